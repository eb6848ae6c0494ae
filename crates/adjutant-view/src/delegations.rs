//! The log of delegations: one JSON object for each start and each end (req. 60).
//!
//! This is the `delegation.jsonl` that other tools write beside their runs, with the same field names. It is
//! rendered from the journal and never read back. Start at [`line()`].
//!
//! A [`DelegationLine`] is one line of it: a [`DelegationStart`] or a [`DelegationEnd`].

use adjutant_core::{DelegationState, ErrorCode, Event, Outcome, SessionId, Usd};
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
    /// The parent's story, or its label.
    pub parent_story: String,
    /// The delegation's story, or its label.
    pub child_story: String,
    /// The depth in the tree.
    pub depth: u64,
    /// The session id of the parent.
    pub parent_id: Option<SessionId>,
    /// The delegation's session id.
    pub child_id: SessionId,
    /// `started`, `completed`, `failed`, `timeout` or `cancelled`.
    pub status: &'static str,
    /// Fields of a start.
    #[serde(flatten)]
    pub beginning: Option<DelegationStart>,
    /// Fields of an end.
    #[serde(flatten)]
    pub end: Option<DelegationEnd>,
}

/// What is known when a delegation starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DelegationStart {
    /// The start of its task.
    pub description: String,
    /// Its own copy of the tree; absent if it works in the caller's tree.
    pub worktree_path: Option<String>,
}

/// What is known when a delegation ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationEnd {
    /// How long it worked, including before a resume; zero if it never started.
    pub duration_ms: u64,
    /// Every input token of its own calls, cached ones included.
    pub tokens_in: u64,
    /// Every output token of its own calls.
    pub tokens_out: u64,
    /// The cost of its own calls; absent if its model has no price.
    pub cost_usd: Option<Usd>,
    /// The files it changed.
    pub files_changed: Vec<String>,
    /// Whether it completed.
    pub success: bool,
    /// Why it ended this way, unless it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// Returns the line of an event if it starts or ends a delegation.
///
/// `view` must already include the event.
#[must_use]
pub fn line(view: &RunView, entry: &TimedEvent<'_>) -> Option<DelegationLine> {
    let node = entry.event.session().and_then(|session| view.delegation(session))?;
    if !is_start_or_end(node, entry.event) {
        return None;
    }
    let parent = node.parent.and_then(|parent| view.delegation(parent))?;
    let (status, beginning, end) = match node.state {
        DelegationState::Ended(outcome) => {
            (status(outcome, node), None, Some(end_of(node, outcome)))
        }
        DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running => {
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

/// Returns whether an event counts as start or end. A delegation with its own workspace starts once the
/// workspace exists, and ends once its changes are known.
const fn is_start_or_end(node: &Delegation, event: &Event) -> bool {
    if matches!(event, Event::Started { .. }) {
        return !node.has_own_space || node.space.is_some();
    }
    if matches!(event, Event::Ended { .. }) {
        return node.space.is_none();
    }
    matches!(event, Event::Refused { .. })
        || (matches!(event, Event::SpaceMade { .. })
            && matches!(node.state, DelegationState::Running))
        || (matches!(event, Event::SpaceKept { .. })
            && matches!(node.state, DelegationState::Ended(_)))
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
            if matches!(code, Some(ErrorCode::Timeout | ErrorCode::Stalled)) =>
        {
            "timeout"
        }
        // The log has no word for a partial success. The code and the result tell what there is.
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
