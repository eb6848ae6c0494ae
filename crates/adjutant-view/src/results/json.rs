//! Results as JSON.

use adjutant_core::space::{Clash, KeptWork};
use adjutant_core::{Outcome, SessionId, State, Usd};
use adjutant_formats::contract::Return;
use serde::Serialize;

use super::bounded_text::bytes;
use super::text_allowance::TextAllowance;
use super::{CallResults, ResultOptions, fell_short, json_size, standard};
use crate::run::{Delegation, DelegationWarning, Liveness, RunView};
use crate::state_words::state_key;
use crate::story::StoryNode;
use crate::wire::{ReasonJson, SpendJson, VERSION, seconds};

/// Returns why a parent agent ended short of its goal, for programs.
#[must_use]
pub fn root_reason(view: &RunView) -> Option<ReasonJson> {
    view.root().and_then(fell_short).map(Into::into)
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
    /// Worst cases of the calls that started without asking, added up; only where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_approved_usd: Option<Usd>,
    /// Why the parent agent ended short of its goal; only where there is one and it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// One entry for each task, in input order.
    pub results: Vec<ResultJson>,
    /// Files that the work of several touches; only where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedJson>,
    /// What is different in their workspaces from the tree they were made from; only where there is anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A file that the work of several touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedJson {
    /// Its path.
    pub path: String,
    /// Those who touch it.
    pub by: Vec<SessionId>,
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultJson {
    /// What it is called.
    pub label: String,
    /// `ok`, `partial`, `error`, or a live state.
    pub status: &'static str,
    /// The state in full: `completed`, `cancelled`, `refused`…
    pub outcome: &'static str,
    /// Its id.
    pub session_id: SessionId,
    /// Who worked.
    pub agent: String,
    /// The model that ran it.
    pub model: Option<String>,
    /// Tokens and money of its own calls.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// Seconds from start to end.
    pub duration_s: Option<f64>,
    /// The final answer; only when the status is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The notes, one line each; always there when the status is `partial`, never when it is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratchpad: Option<String>,
    /// The latest text, when there is one that is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_text: Option<String>,
    /// The files its tools touched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What went wrong, in one text; only when the status is `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it ended as it did, and how to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// What held its latest command, or would: `full`, `off`, `on`, or what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// What was kept of the work in its own workspace; only where it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptJson>,
    /// Its part in a story; only where the run works on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryNode>,
    /// What came of merging it into the workspace of the one who asked; only where that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeJson>,
    /// The standard return; only where the run asks for one, and once it has ended.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub returned: Option<Return>,
    /// What it went on in spite of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What arrived after its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<String>,
    /// How much of its text is shown, when that is not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutJson>,
    /// Where the whole conversation is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
}

/// Work that was kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptJson {
    /// How its workspace was made.
    pub workspace: &'static str,
    /// What was kept.
    #[serde(flatten)]
    pub work: KeptWork,
    /// Why it could not be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A merge into the workspace of the one who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeJson {
    /// The files that changed by it.
    pub files: Vec<String>,
    /// Why nothing was merged, by file: to be settled in the workspace of the one who asked.
    pub conflicts: Vec<Clash>,
    /// Why it could not be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How much of a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CutJson {
    /// Bytes that are shown.
    pub shown_bytes: usize,
    /// Bytes there are.
    pub total_bytes: usize,
}

impl CallResults<'_> {
    /// Returns the results for programs.
    #[must_use]
    pub fn json(&self, options: &ResultOptions<'_>) -> ResultsJson {
        let counts = self.counts();
        ResultsJson {
            v: VERSION,
            completed: counts.ok,
            partial: counts.partial,
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

fn shared((path, by): (&str, Vec<&Delegation>)) -> SharedJson {
    SharedJson { path: path.to_owned(), by: by.iter().map(|it| it.session).collect() }
}

fn entry(view: &RunView, item: &Delegation, options: &ResultOptions<'_>) -> ResultJson {
    let outcome = match item.state {
        State::Ended(outcome) => Some(outcome),
        State::AwaitingApproval | State::Queued | State::Running => None,
    };
    let state = state_key(&item.state, Liveness::Alive);
    let mut room = TextAllowance::new(options);
    let texts = ResultTexts::of(item, outcome, &mut room);
    let is_error = outcome.is_some_and(|outcome| outcome.result_word() == "error");
    let mut entry = ResultJson {
        label: item.label.to_string(),
        status: outcome.map_or(state, Outcome::result_word),
        outcome: state,
        session_id: item.session,
        agent: item.agent.to_string(),
        model: item.model.clone(),
        spent: (&item.own).into(),
        duration_s: item.ended.and_then(|end| item.elapsed(end.at)).map(seconds),
        report: texts.report,
        scratchpad: texts.scratchpad,
        last_text: texts.last_text,
        files: item.files.iter().map(ToString::to_string).collect(),
        error: item.reason.as_ref().filter(|_| is_error).map(|reason| reason.message.clone()),
        reason: item.reason.as_ref().map(Into::into),
        sandbox: view.sandbox_of(item).map(str::to_owned),
        kept: kept(item),
        story: StoryNode::of(view, item),
        merge: merge(item),
        returned: standard(view, item),
        warnings: item.warnings.iter().map(DelegationWarning::to_string).collect(),
        late: item.late.iter().map(|late| late.what.clone()).collect(),
        cut: room.cut().map(|(shown_bytes, total_bytes)| CutJson { shown_bytes, total_bytes }),
        transcript: options.transcript(item.session),
    };
    if view.story().is_some() {
        json_size::cut(&mut entry, bytes(options.result_tokens));
    }
    entry
}

fn kept(item: &Delegation) -> Option<KeptJson> {
    let (work, problem) = item.kept.as_deref()?.clone();
    let workspace = item.space.as_ref().map_or("", |space| space.kind.word());
    Some(KeptJson { workspace, work, problem })
}

fn merge(item: &Delegation) -> Option<MergeJson> {
    let (merged, problem) = item.merged.as_deref()?.clone();
    Some(MergeJson { files: merged.files, conflicts: merged.conflicts, problem })
}

/// The texts of a result, cut to their room.
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
