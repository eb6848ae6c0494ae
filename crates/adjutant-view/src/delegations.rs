//! The hierarchy of delegations as a log: one object for each beginning and each end (req. 60).
//!
//! This is the `delegation.jsonl` that other tools write beside their runs, with its names. It is
//! rendered from the journal and never read back. Start at [`line()`].

use adjutant_core::{Code, Event, Outcome, SessionId, State, Usd};
use serde::Serialize;

use crate::run::{Delegation, RunView};
use crate::time_text::rfc3339;
use crate::timed_event::TimedEvent;
use crate::wire::VERSION;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationLine {
    /// The version of the format.
    pub v: u32,
    /// When it was recorded.
    pub timestamp: String,
    /// The story of the one who asked, else its label.
    pub parent_story: String,
    /// The story of the delegation, else its label.
    pub child_story: String,
    /// Edges from the root.
    pub depth: u64,
    /// Who asked.
    pub parent_id: Option<SessionId>,
    /// The delegation.
    pub child_id: SessionId,
    /// `started`, `completed`, `failed`, `timeout` or `cancelled`.
    pub status: &'static str,
    /// What belongs to a beginning.
    #[serde(flatten)]
    pub beginning: Option<DelegationStart>,
    /// What belongs to an end.
    #[serde(flatten)]
    pub end: Option<DelegationEnd>,
}

/// What is known when a delegation begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DelegationStart {
    /// The start of what was asked.
    pub description: String,
    /// Its own copy of the tree; absent where it works in the caller's.
    pub worktree_path: Option<String>,
}

/// What is known when a delegation ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationEnd {
    /// Milliseconds it worked, before and after it was taken up again; zero for one that never began.
    pub duration_ms: u64,
    /// Every input token of its own calls, cached ones included.
    pub tokens_in: u64,
    /// Every output token of its own calls.
    pub tokens_out: u64,
    /// What its own calls cost; absent when its model has no price.
    pub cost_usd: Option<Usd>,
    /// The files it changed.
    pub files_changed: Vec<String>,
    /// Whether all of it was done.
    pub success: bool,
    /// Why it ended as it did, unless all of it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// Returns the line of an event, if it begins or ends a delegation.
///
/// `view` has folded the event in already.
#[must_use]
pub fn line(view: &RunView, entry: &TimedEvent<'_>) -> Option<DelegationLine> {
    let node = entry.event.session().and_then(|session| view.delegation(session))?;
    if !tells(node, entry.event) {
        return None;
    }
    let parent = node.parent.and_then(|parent| view.delegation(parent))?;
    let (status, beginning, end) = match node.state {
        State::Ended(outcome) => (status(outcome, node), None, Some(end_of(node, outcome))),
        State::AwaitingApproval | State::Queued | State::Running => {
            let worktree_path = node.space.as_ref().map(|space| space.path.clone());
            let beginning = DelegationStart { description: node.task.clone(), worktree_path };
            ("started", Some(beginning), None)
        }
    };
    let ended = node.ended.filter(|_| end.is_some()).map(|moment| moment.wall_ms);
    Some(DelegationLine {
        v: VERSION,
        timestamp: rfc3339(ended.unwrap_or(entry.wall_ms)),
        parent_story: story(parent),
        child_story: story(node),
        depth: node.depth,
        parent_id: node.parent,
        child_id: node.session,
        status,
        beginning,
        end,
    })
}

/// Says whether an event is the one that a beginning or an end is told by: one in a workspace of its
/// own begins once that is there, and its end is told once it is known what it changed.
const fn tells(node: &Delegation, event: &Event) -> bool {
    if matches!(event, Event::Started { .. }) {
        return !node.has_own_space || node.space.is_some();
    }
    if matches!(event, Event::Ended { .. }) {
        return node.space.is_none();
    }
    matches!(event, Event::Refused { .. })
        || (matches!(event, Event::SpaceMade { .. }) && matches!(node.state, State::Running))
        || (matches!(event, Event::SpaceKept { .. }) && matches!(node.state, State::Ended(_)))
}

fn story(node: &Delegation) -> String {
    node.story.clone().unwrap_or_else(|| node.label.to_string())
}

fn status(outcome: Outcome, node: &Delegation) -> &'static str {
    let code = node.reason.as_ref().map(|reason| reason.code);
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Cancelled => "cancelled",
        Outcome::Partial | Outcome::Failed
            if matches!(code, Some(Code::Timeout | Code::Stalled)) =>
        {
            "timeout"
        }
        // The log knows no half success; its code and the result say what there is.
        Outcome::Partial | Outcome::Failed | Outcome::Blocked | Outcome::Refused => "failed",
    }
}

fn end_of(node: &Delegation, outcome: Outcome) -> DelegationEnd {
    let took = node.ended.and_then(|ended| node.elapsed(ended.at)).unwrap_or_default();
    DelegationEnd {
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        tokens_in: node.own.usage.input_total(),
        tokens_out: node.own.usage.output,
        cost_usd: node.own.known_usd(),
        files_changed: files_changed(node),
        success: outcome == Outcome::Completed,
        code: node.reason.as_ref().map(|reason| reason.code.as_str()),
    }
}

fn files_changed(node: &Delegation) -> Vec<String> {
    match &node.kept {
        Some(kept) => kept.0.files.iter().map(|file| file.path.clone()).collect(),
        None => node.changed.iter().map(ToString::to_string).collect(),
    }
}
