//! The results of delegations for their parent, as Markdown or JSON, always in input order.
//!
//! Markdown is read by people and models. A child's text is a block quote with `>` on each line, so that it
//! cannot imitate our headings, and cutting it cannot leave a quote open as it could a fence. JSON keeps
//! texts unchanged. Start at [`CallResults::of_run`].
//!
//! [`CallResults`] are the delegations to present, [`ResultOptions`] how, and `ResultCounts` how
//! many have each status.

mod bounded_text;
mod json;
mod json_size;
mod markdown;
mod standard;
mod story;
mod text_allowance;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use adjutant_core::{DelegationState, ErrorCode, Outcome, OutcomeReason, SessionId};

use crate::layout::bracketed;
use crate::receipt::{Receipt, verified_outcome};
use crate::run::{Delegation, ProcessLiveness, RunView};
use crate::state_words::is_interrupted;
use crate::status::ContentRetention;

pub use json::{ResultJson, ResultsJson, SharedFileJson, root_reason};
pub use markdown::root_end;
pub use standard::{command_end, command_head, return_as_text, standard, synthesis};
pub use text_allowance::start_and_end;

/// The maximum width of a label, in columns.
const LABEL_COLUMNS: usize = 34;

/// How results are presented.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultOptions<'a> {
    /// The maximum tokens of one result, counted as four bytes each; `None` for no limit.
    pub result_tokens: Option<u64>,
    /// The directory of the transcripts, if it may be named.
    pub transcripts: Option<&'a str>,
    /// Whether a text that is cut keeps its end as well as its start.
    pub ends: bool,
    /// Whether a terminal draws the quotes for a person, who needs no word about them.
    pub is_rendered: bool,
    /// How the reader calls the program, to type a recommended command; `None` for a reader that cannot.
    pub program: Option<&'a str>,
}

impl ResultOptions<'_> {
    fn transcript(&self, session: SessionId) -> Option<String> {
        self.transcripts
            .map(|folder| format!("{}/{session}.transcript.json", folder.trim_end_matches('/')))
    }

    /// Explains how to answer a delegation that ended with a question.
    fn how_to_answer(&self, view: &RunView, session: SessionId) -> Option<String> {
        let command = answer_command(view, session, self.program?);
        Some(format!("answer with `{command}`"))
    }
}

/// Returns the command that answers the question of a delegation.
#[must_use]
pub fn answer_command(view: &RunView, session: SessionId, program: &str) -> String {
    format!("{} --say", resume_command(view, session, program))
}

/// Returns the command that resumes a run or a delegation with the rights that the run had.
#[must_use]
pub fn resume_command(view: &RunView, id: impl Display, program: &str) -> String {
    let flag = resume_flag(view).map(|flag| format!(" {flag}"));
    format!("{program} resume {id}{}", flag.unwrap_or_default())
}

/// Returns the flag that `adjutant resume` needs so that agents may write in place again, which only a person can allow.
#[must_use]
pub fn resume_flag(view: &RunView) -> Option<&'static str> {
    view.policy().is_some_and(|policy| policy.in_place).then_some("--in-place")
}

/// The delegations of one call, or of all calls of a parent, in input order.
#[derive(Clone, Debug)]
pub struct CallResults<'a> {
    view: &'a RunView,
    items: Vec<Cow<'a, Delegation>>,
    /// Why the root agent did not complete its goal; only for the results of a run.
    reason: Option<&'a OutcomeReason>,
}

impl<'a> CallResults<'a> {
    /// Collects what the root delegated.
    #[must_use]
    pub fn of_run(view: &'a RunView) -> Self {
        let reason = view.root().and_then(why_incomplete);
        let all = view.root().map(|root| Self::gather(view, root, None));
        Self { view, items: all.map_or_else(Vec::new, |all| all.items), reason }
    }

    /// Collects what `parent` delegated, in one call or in all.
    #[must_use]
    pub fn of(view: &'a RunView, parent: SessionId, call: Option<u32>) -> Self {
        view.delegation(parent).map_or(Self { view, items: Vec::new(), reason: None }, |parent| {
            Self::gather(view, parent, call)
        })
    }

    /// Takes a single delegation.
    #[must_use]
    pub fn of_one(view: &'a RunView, delegation: &'a Delegation) -> Self {
        Self { view, items: vec![Cow::Borrowed(delegation)], reason: None }
    }

    /// Marks unfinished delegations of a dead run as partial, with what they found so far. Recommended
    /// commands start with `program`.
    #[must_use]
    pub fn with_liveness(
        mut self,
        liveness: ProcessLiveness,
        content: ContentRetention,
        program: &str,
    ) -> Self {
        for item in &mut self.items {
            if is_interrupted(&item.state, liveness) {
                let item = item.to_mut();
                item.state = DelegationState::Ended(Outcome::Partial);
                item.reason = Some(interruption(item.session, content, program));
            }
        }
        self
    }

    fn gather(view: &'a RunView, parent: &Delegation, call: Option<u32>) -> Self {
        let wanted = |child: &&Delegation| call.is_none_or(|call| child.call == call);
        let mut items: Vec<&Delegation> = view.children(parent).filter(wanted).collect();
        items.sort_by_key(|child| (child.call, child.index));
        Self { view, items: items.into_iter().map(Cow::Borrowed).collect(), reason: None }
    }

    /// Returns the delegations in input order.
    #[must_use]
    pub fn items(&self) -> Vec<&Delegation> {
        self.items.iter().map(Cow::as_ref).collect()
    }

    /// Returns a line for each delegation that started: its outcome with its verification, and its receipt.
    #[must_use]
    pub fn receipts(&self) -> Vec<String> {
        let line = |item: &Delegation| {
            let receipt = Receipt::of(item);
            let DelegationState::Ended(outcome) = item.state else { return None };
            item.started?;
            let word = verified_outcome(item, outcome).unwrap_or_else(|| outcome.word().to_owned());
            let check =
                receipt.check_line().map(|it| format!(" · changed files of the check: {it}"));
            Some(format!(
                "{} {word} · {}{}",
                bracketed(item.label.as_str(), LABEL_COLUMNS),
                receipt.line(),
                check.unwrap_or_default()
            ))
        };
        self.items.iter().filter_map(|item| line(item)).collect()
    }

    /// Returns the files that several delegations changed, with these delegations. Empty in a story, where
    /// merging finds conflicts and each section reports them.
    fn shared(&self) -> BTreeMap<&str, Vec<&Delegation>> {
        let mut touched: BTreeMap<&str, Vec<&Delegation>> = BTreeMap::new();
        if self.view.story().is_some() {
            return touched;
        }
        for item in &self.items {
            let files = item.kept.as_deref().map(|(work, _)| work.files.as_slice());
            for file in files.unwrap_or_default() {
                let before = file.how.strip_prefix("renamed from ");
                for path in before.into_iter().chain([file.path.as_str()]) {
                    let by = touched.entry(path).or_default();
                    if by.last().is_none_or(|last| last.session != item.session) {
                        by.push(item);
                    }
                }
            }
        }
        touched.retain(|_, by| by.len() > 1);
        touched
    }

    /// Returns how the workspaces differ from the tree they were made from, without duplicates.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let spaces = self.items.iter().filter_map(|item| item.space.as_deref());
        let mut all: Vec<String> = Vec::new();
        for remark in spaces.flat_map(|space| &space.remarks) {
            if !all.contains(remark) {
                all.push(remark.clone());
            }
        }
        all
    }

    fn counts(&self) -> ResultCounts {
        let mut counts = ResultCounts { total: self.items.len(), ..ResultCounts::default() };
        for item in &self.items {
            match item.state {
                DelegationState::Ended(outcome) => match outcome {
                    Outcome::Completed => counts.ok += 1,
                    Outcome::Partial => counts.partial += 1,
                    Outcome::Cancelled => counts.cancelled += 1,
                    Outcome::Failed => counts.failed += 1,
                    Outcome::Blocked => counts.blocked += 1,
                    Outcome::Refused => counts.refused += 1,
                },
                DelegationState::AwaitingApproval
                | DelegationState::Queued
                | DelegationState::Running => counts.pending += 1,
            }
        }
        counts
    }
}

/// Returns why the root agent did not complete its goal, if that is so.
fn why_incomplete(root: &Delegation) -> Option<&OutcomeReason> {
    let ended_short =
        matches!(root.state, DelegationState::Ended(outcome) if outcome != Outcome::Completed);
    root.reason.as_ref().filter(|_| ended_short && root.model.is_some())
}

fn interruption(session: SessionId, content: ContentRetention, program: &str) -> OutcomeReason {
    let recommendation = match content {
        ContentRetention::Kept => format!(
            "`{program} resume {session}` continues it; what was found so far is in the result."
        ),
        ContentRetention::Expired => {
            "Delegate the task again; it is not resumable (expired).".into()
        }
    };
    OutcomeReason {
        code: ErrorCode::Interrupted,
        message: "The process that ran it is gone.".into(),
        recommendation,
        recoverable: true,
    }
}

/// The number of results by status.
#[derive(Clone, Copy, Debug, Default)]
struct ResultCounts {
    ok: usize,
    partial: usize,
    failed: usize,
    cancelled: usize,
    blocked: usize,
    refused: usize,
    pending: usize,
    total: usize,
}
