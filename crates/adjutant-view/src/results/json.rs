//! Results as JSON.
//!
//! [`ResultsJson`] are all results of a call, [`ResultJson`] is one of them, with [`KeptWorkJson`]
//! (the commit of its work, if any, the paths left out, and why committing failed), [`MergeJson`] (its merge into
//! the parent's workspace), [`TextCutJson`] (how much of its text is shown) and [`SharedFileJson`] (a file that
//! several tasks changed).

use adjutant_core::workspace::{KeptWork, MergeConflict};
use adjutant_core::{DelegationState, Outcome, SessionId, Usd};
use adjutant_formats::contract::Return;
use serde::Serialize;

use super::bounded_text::bytes;
use super::text_allowance::TextAllowance;
use super::{CallResults, ResultOptions, json_size, standard, why_incomplete};
use crate::receipt::{Receipt, ReceiptJson, Verification};
use crate::run::{Delegation, DelegationWarning, ProcessLiveness, RunView};
use crate::state_words::state_key;
use crate::story::StoryNode;
use crate::wire::{ReasonJson, SpendJson, VERSION, seconds};

/// Returns why the root agent did not complete its goal, as JSON.
#[must_use]
pub fn root_reason(view: &RunView) -> Option<ReasonJson> {
    view.root().and_then(why_incomplete).map(Into::into)
}

/// The results of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultsJson {
    /// The version of the format.
    pub v: u32,
    /// Results with status `ok`.
    pub completed: usize,
    /// Results with status `partial`.
    pub partial: usize,
    /// Results with status `error`.
    pub failed: usize,
    /// Delegations that have not ended.
    pub pending: usize,
    /// Tasks of the call.
    pub total: usize,
    /// The summed worst cases of calls that started without asking; only set if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_approved_usd: Option<Usd>,
    /// Why the root agent did not complete its goal; only set if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// One entry for each task, in input order.
    pub results: Vec<ResultJson>,
    /// Files that several delegations changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedFileJson>,
    /// How the workspaces differ from the tree they were made from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A file that several delegations changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedFileJson {
    /// Its path.
    pub path: String,
    /// The delegations that changed it.
    pub by: Vec<SessionId>,
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultJson {
    /// The label.
    pub label: String,
    /// `ok`, `partial`, `error`, or a live state.
    pub status: &'static str,
    /// The state in full: `completed`, `cancelled`, `refused`…
    pub outcome: &'static str,
    /// Whether its work was verified.
    pub verification: Verification,
    /// The session id.
    pub session_id: SessionId,
    /// The name of the agent.
    pub agent: String,
    /// The model that ran it.
    pub model: Option<String>,
    /// Tokens and money of its own calls.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// What the engine saw of its work; absent if it never started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptJson>,
    /// Seconds from start to end.
    pub duration_s: Option<f64>,
    /// The final answer; only if the status is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The notes, one line each; always set if the status is `partial`, never if it is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratchpad: Option<String>,
    /// The latest text, if it is not a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_text: Option<String>,
    /// The files its tools touched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The error message; only if the status is `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it ended this way, and how to continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// How its latest command was sandboxed: `full`, `off`, `on`, or which layer is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The committed work of its own workspace, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptWorkJson>,
    /// What this task contributed to the story of the run: its id there, changed files, verification and merge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryNode>,
    /// The merge into the parent's workspace, if it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeJson>,
    /// The standard return; only if the run requires one, and after the end.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub returned: Option<Return>,
    /// Problems that it continued despite.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What arrived after it had ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<String>,
    /// How much of its text is shown, if not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<TextCutJson>,
    /// Where the complete transcript is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
}

/// What was committed of a workspace, and why the rest was not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptWorkJson {
    /// The kind of workspace.
    pub workspace: &'static str,
    /// The commit and its files.
    #[serde(flatten)]
    pub work: KeptWork,
    /// Why the work could not be committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A merge into the parent's workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeJson {
    /// The files that it changed.
    pub files: Vec<String>,
    /// Why nothing was merged, per file. The conflicts are to be resolved in the parent's workspace.
    pub conflicts: Vec<MergeConflict>,
    /// Why the merge could not be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How much of a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TextCutJson {
    /// Bytes that are shown.
    pub shown_bytes: usize,
    /// Bytes there are.
    pub total_bytes: usize,
}

impl CallResults<'_> {
    /// Returns the results as JSON.
    #[must_use]
    pub fn json(&self, options: &ResultOptions<'_>) -> ResultsJson {
        let counts = self.counts();
        ResultsJson {
            v: VERSION,
            completed: counts.ok,
            partial: counts.partial + counts.cancelled,
            failed: counts.failed + counts.refused,
            pending: counts.pending,
            total: counts.total,
            auto_approved_usd: None,
            reason: self.reason.map(Into::into),
            results: self.items.iter().map(|item| entry(self.view, item, options)).collect(),
            shared: self.shared().into_iter().map(shared).collect(),
            remarks: self.remarks(),
        }
    }
}

fn shared((path, by): (&str, Vec<&Delegation>)) -> SharedFileJson {
    SharedFileJson { path: path.to_owned(), by: by.iter().map(|it| it.session).collect() }
}

fn entry(view: &RunView, item: &Delegation, options: &ResultOptions<'_>) -> ResultJson {
    let outcome = match item.state {
        DelegationState::Ended(outcome) => Some(outcome),
        DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running => {
            None
        }
    };
    let state = state_key(&item.state, ProcessLiveness::Alive);
    let mut room = TextAllowance::new(options);
    let texts = ResultTexts::of(item, outcome, &mut room);
    let is_error = outcome.is_some_and(|outcome| outcome.result_word() == "error");
    let mut entry = ResultJson {
        label: item.label.to_string(),
        status: outcome.map_or(state, Outcome::result_word),
        outcome: state,
        verification: Verification::of(item),
        session_id: item.session,
        agent: item.agent.to_string(),
        model: item.model.clone(),
        spent: (&item.own).into(),
        receipt: item.started.map(|_| Receipt::of(item).json()),
        duration_s: item.ended.and_then(|end| item.elapsed(end.at)).map(seconds),
        report: texts.report,
        scratchpad: texts.scratchpad,
        last_text: texts.last_text,
        files: item.files.iter().map(ToString::to_string).collect(),
        error: item.reason.as_ref().filter(|_| is_error).map(|reason| reason.message.clone()),
        reason: item.reason.as_ref().map(Into::into),
        sandbox: view.sandbox_of(item).map(str::to_owned),
        kept: kept_work(item),
        story: StoryNode::of(view, item),
        merge: merge(item),
        returned: standard(view, item),
        warnings: item.warnings.iter().map(DelegationWarning::to_string).collect(),
        late: item.late.iter().map(|late| late.what.clone()).collect(),
        cut: room
            .cut_sizes()
            .map(|(shown_bytes, total_bytes)| TextCutJson { shown_bytes, total_bytes }),
        transcript: options.transcript(item.session),
    };
    if view.story().is_some() {
        json_size::cut_to_size(&mut entry, bytes(options.result_tokens));
    }
    entry
}

fn kept_work(item: &Delegation) -> Option<KeptWorkJson> {
    let (work, problem) = item.kept.as_deref()?.clone();
    let workspace = item.space.as_ref().map_or("", |space| space.kind.word());
    Some(KeptWorkJson { workspace, work, problem })
}

fn merge(item: &Delegation) -> Option<MergeJson> {
    let (merged, problem) = item.merged.as_deref()?.clone();
    Some(MergeJson { files: merged.files, conflicts: merged.conflicts, problem })
}

/// The texts of a result, cut to their allowance.
#[derive(Default)]
struct ResultTexts {
    report: Option<String>,
    scratchpad: Option<String>,
    last_text: Option<String>,
}

impl ResultTexts {
    fn of(item: &Delegation, outcome: Option<Outcome>, room: &mut TextAllowance) -> Self {
        match outcome {
            Some(Outcome::Completed) => {
                Self { report: Some(room.take(&item.last_text).into_owned()), ..Self::default() }
            }
            None
            | Some(
                Outcome::Partial
                | Outcome::Failed
                | Outcome::Blocked
                | Outcome::Cancelled
                | Outcome::Refused,
            ) => {
                let notes = item.scratchpad();
                let differs = !item.last_text.is_empty() && item.last_text.trim() != notes.trim();
                let is_partial = outcome.is_some_and(|outcome| outcome.result_word() == "partial");
                let wanted = is_partial || !notes.is_empty();
                Self {
                    report: None,
                    scratchpad: wanted.then(|| room.take(&notes).into_owned()),
                    last_text: differs.then(|| room.take(&item.last_text).into_owned()),
                }
            }
        }
    }
}
