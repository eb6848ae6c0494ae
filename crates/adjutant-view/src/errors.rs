//! The errors of runs, as text and as the `errors.json` that other tools maintain by hand.
//!
//! Nothing is stored: an error is a delegation that failed, was refused, or was interrupted by the death
//! of its process. Its id is derived from the records. Each entry says where it happened (`context`),
//! through which agents (`trajectory`) and what to do about it (`recovery`). Start at [`of_run`].
//!
//! [`ErrorsJson`] is the list, [`ErrorJson`] one entry with its [`ErrorContextJson`],
//! [`ErrorTrajectoryJson`] and [`ErrorRecoveryJson`].

use std::fmt::Write;

use adjutant_core::{DelegationState, ErrorCode, Outcome, OutcomeReason, Preset, RunId, SessionId};
use adjutant_formats::contract::{ErrorType, WireWord};
use serde::{Deserialize, Serialize};

use crate::layout::{bracketed, cut, fit, wrap};
use crate::palette::{Palette, TextStyle};
use crate::results::answer_command;
use crate::run::{Delegation, DelegationError, ProcessLiveness, RunView, fault_id};
use crate::sanitize;
use crate::time_text::rfc3339;
use crate::wire::VERSION;

/// The maximum width of an untrusted text within a line, in columns.
const TEXT_COLUMNS: usize = 160;
/// The maximum width of a type or a code, in columns; a return may contain any word.
pub(crate) const WORD_COLUMNS: usize = 40;

/// The errors of one or more runs as JSON; also the projection `errors.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorsJson {
    /// The version of the format.
    pub v: u32,
    /// One entry for each error, the newest run first.
    pub errors: Vec<ErrorJson>,
}

impl ErrorsJson {
    /// Wraps the errors of all runs.
    #[must_use]
    pub const fn new(errors: Vec<ErrorJson>) -> Self {
        Self { v: VERSION, errors }
    }
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorJson {
    /// `err_`, the second of its record, and six characters.
    pub id: String,
    /// When it was recorded.
    pub timestamp: String,
    /// `timeout`, `validation`, `execution` or `tool_unavailable`, or the type that a return gave.
    #[serde(rename = "type")]
    pub kind: String,
    /// How severe it is.
    pub severity: ErrorSeverity,
    /// The stable code, or the code that a return gave.
    pub code: String,
    /// What happened, with the relevant numbers.
    pub message: String,
    /// Where it happened.
    pub context: ErrorContextJson,
    /// The agents from the root to the one that failed.
    pub trajectory: ErrorTrajectoryJson,
    /// What to do about it.
    pub recovery: ErrorRecoveryJson,
    /// Whether a person still has to deal with it.
    pub fix_status: FixStatus,
}

/// Where an error happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorContextJson {
    /// The delegation.
    pub session_id: SessionId,
    /// The run.
    pub run: RunId,
    /// The command that started the run.
    pub command: String,
    /// The task's story, its number in the task list, or its label.
    pub task: String,
}

/// The field `trajectory` of an error: the agents from the root down to the one that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTrajectoryJson {
    /// The agents from the root to the failed one.
    pub delegation_path: Vec<String>,
    /// The depth at which it failed.
    pub failed_at_depth: u64,
}

/// What to do about an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorRecoveryJson {
    /// What to do next.
    pub suggested_action: String,
    /// Whether a retry can help.
    pub auto_recoverable: bool,
}

impl ErrorJson {
    /// Returns whether a person still has to deal with it.
    #[must_use]
    pub fn is_unfixed(&self) -> bool {
        self.fix_status == FixStatus::Unfixed
    }
}

/// Whether a person still has to deal with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FixStatus {
    /// It is open.
    Unfixed,
    /// It was dealt with.
    Fixed,
}

impl FixStatus {
    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unfixed => "unfixed",
            Self::Fixed => "fixed",
        }
    }
}

/// Returns the errors of a run in the order they happened. Delegations that a dead run left unfinished come
/// last.
#[must_use]
pub fn of_run(view: &RunView, liveness: ProcessLiveness) -> Vec<ErrorJson> {
    let Some(run) = view.run() else { return Vec::new() };
    let left_behind = |node: &&Delegation| {
        node.state == DelegationState::Running
            && liveness == ProcessLiveness::Dead
            && view.outcome().is_none()
    };
    // A root without a model only stands for those below it.
    let works = |node: &&Delegation| node.parent.is_some() || node.model.is_some();
    let interrupted = view.preorder().into_iter().filter(works).filter(left_behind);
    let interrupted = interrupted.map(|node| interruption(view, run, node));
    let faults = view.faults().all().iter().cloned();
    faults.chain(interrupted).filter_map(|fault| error(view, run, &fault)).collect()
}

fn interruption(view: &RunView, run: RunId, node: &Delegation) -> DelegationError {
    let moment = view.latest();
    let session = node.session;
    let reason = OutcomeReason {
        code: ErrorCode::Interrupted,
        message: "The process that ran it is gone.".into(),
        recommendation: format!("`adjutant resume {run}` continues it."),
        recoverable: true,
    };
    let id = fault_id(run, session, moment, reason.code.as_str());
    DelegationError { id, session, moment, reason, as_returned: None }
}

fn error(view: &RunView, run: RunId, fault: &DelegationError) -> Option<ErrorJson> {
    let node = view.delegation(fault.session)?;
    let root = view.root()?;
    let reason = &fault.reason;
    let fixed = view.faults().is_fixed(&fault.id);
    let (kind, code) = fault.as_returned.clone().unwrap_or_else(|| {
        (type_of(reason.code).word().to_owned(), reason.code.as_str().to_owned())
    });
    Some(ErrorJson {
        id: fault.id.clone(),
        timestamp: rfc3339(fault.moment.wall_ms),
        kind,
        severity: severity(&node.state, reason.code),
        code,
        message: reason.message.clone(),
        context: ErrorContextJson {
            session_id: fault.session,
            run,
            command: root.agent.to_string(),
            task: task_of(view, node),
        },
        trajectory: ErrorTrajectoryJson {
            delegation_path: view.path(node),
            failed_at_depth: node.depth,
        },
        recovery: ErrorRecoveryJson {
            suggested_action: match node.open_question() {
                Some(_) => {
                    format!("Answer with `{}`.", answer_command(view, fault.session, "adjutant"))
                }
                None => reason.recommendation.clone(),
            },
            auto_recoverable: reason.recoverable,
        },
        fix_status: if fixed { FixStatus::Fixed } else { FixStatus::Unfixed },
    })
}

/// Returns the task's name. Under the preset `command` this is the task number, and delegations belong to the
/// task of their parent. If several numbers were typed and no brief names one, all of them are returned.
fn task_of(view: &RunView, node: &Delegation) -> String {
    let label = || node.story.clone().unwrap_or_else(|| node.label.to_string());
    if node.story.is_some() || view.policy().is_none_or(|it| it.preset != Preset::Command) {
        return label();
    }
    let above = |node: &&Delegation| node.parent.and_then(|parent| view.delegation(parent));
    if let Some(number) = view.task_number(node) {
        return number.to_string();
    }
    let mut path = std::iter::successors(Some(node), above);
    path.find_map(|node| numbers_in(&node.task)).map_or_else(label, str::to_owned)
}

/// Returns the number after `Task:` or a command's name. A list or range counts as one word.
fn numbers_in(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split_whitespace();
    let first = words.next().filter(|word| *word == "Task:" || word.starts_with('/'))?;
    let is_number = |word: &&str| {
        let plain = word.bytes().all(|byte| byte.is_ascii_digit() || b",-".contains(&byte));
        plain && word.starts_with(|digit: char| digit.is_ascii_digit())
    };
    words.next().filter(|word| first.len() > 1 && is_number(word))
}

/// Renders errors, a few lines each, for a terminal of `wide` columns.
#[must_use]
pub fn render(errors: &[ErrorJson], wide: usize, palette: Palette) -> String {
    let mut text = String::new();
    for error in errors {
        let fixed = if error.is_unfixed() { "" } else { " · fixed" };
        let word = |text: &str| fit(&sanitize::collapsed(text), WORD_COLUMNS);
        let (kind, code) = (word(&error.kind), word(&error.code));
        let severity = error.severity.word();
        let what = format!("severity {severity} · type {kind} · code {code}{fixed}");
        let what = fit(&what, wide.saturating_sub(error.id.len() + 2).max(WORD_COLUMNS / 2));
        let style = if error.is_unfixed() { TextStyle::Bad } else { TextStyle::Quiet };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  {}", error.id, palette.paint(style, &what));
        let mut lines = |title: &str, value: &str| {
            text += &paragraph(2, title, value, wide, TEXT_LINES);
        };
        lines("what", &error.message);
        let (run, session) = (error.context.run, error.context.session_id);
        let path = error.trajectory.delegation_path.join(" > ");
        lines("who", &format!("{} {session}, {path}", bracketed(&error.context.task, 34)));
        lines("when", &format!("{} in {run}", error.timestamp));
        lines("next", &error.recovery.suggested_action);
    }
    text
}

/// The maximum number of lines of a text.
const TEXT_LINES: usize = 4;

/// Returns untrusted text behind a title, wrapped to `wide` columns and cut after `most` lines.
pub(crate) fn paragraph(
    indent: usize,
    title: &str,
    value: &str,
    wide: usize,
    most: usize,
) -> String {
    let room = wide.saturating_sub(indent + TITLE_COLUMNS).clamp(WORD_COLUMNS / 2, TEXT_COLUMNS);
    let safe = fit(&sanitize::collapsed(value), TEXT_COLUMNS.max(room.saturating_mul(most)));
    let mut text = String::new();
    let mut lines = wrap(&safe, room);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cut(last, room - 2) + " …";
        }
    }
    for (place, line) in lines.iter().enumerate() {
        let title = if place == 0 { title } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:indent$}{title:<TITLE_COLUMNS$}{line}", "");
    }
    text
}

/// The columns of a title and the space behind it.
const TITLE_COLUMNS: usize = 6;

/// How severe an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSeverity {
    /// Adjutant or the machine is broken.
    Critical,
    /// Work was lost or is unusable.
    High,
    /// Work was cut short, but its findings were returned.
    Medium,
    /// A limit did its job; nothing was started.
    Low,
}

impl ErrorSeverity {
    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

const fn severity(state: &DelegationState, code: ErrorCode) -> ErrorSeverity {
    if matches!(state, DelegationState::Ended(Outcome::Refused)) {
        return ErrorSeverity::Low;
    }
    match code {
        ErrorCode::DiskFull | ErrorCode::Internal => ErrorSeverity::Critical,
        ErrorCode::ValidationFailed
        | ErrorCode::ToolUnavailable
        | ErrorCode::BuildError
        | ErrorCode::StatusSyncFailed
        | ErrorCode::GitCommitFailed
        | ErrorCode::UnknownError
        | ErrorCode::Interrupted
        | ErrorCode::ProviderError => ErrorSeverity::High,
        ErrorCode::Timeout
        | ErrorCode::Stalled
        | ErrorCode::ContextExhausted
        | ErrorCode::BudgetExceeded
        | ErrorCode::LoopDetected
        | ErrorCode::FileNotFound => ErrorSeverity::Medium,
        ErrorCode::DelegationDisabled
        | ErrorCode::UnknownParent
        | ErrorCode::UnknownAgent
        | ErrorCode::CycleDetected
        | ErrorCode::MaxDepthExceeded
        | ErrorCode::MaxDelegationsExceeded
        | ErrorCode::RightsExceeded
        | ErrorCode::ContextBudgetExceeded
        | ErrorCode::TimeExceeded
        | ErrorCode::QueueFull
        | ErrorCode::ApprovalDenied
        | ErrorCode::Cancelled => ErrorSeverity::Low,
    }
}

const fn type_of(code: ErrorCode) -> ErrorType {
    match code {
        ErrorCode::Timeout | ErrorCode::Stalled | ErrorCode::TimeExceeded => ErrorType::Timeout,
        ErrorCode::ToolUnavailable => ErrorType::ToolUnavailable,
        ErrorCode::ValidationFailed
        | ErrorCode::DelegationDisabled
        | ErrorCode::UnknownParent
        | ErrorCode::UnknownAgent
        | ErrorCode::CycleDetected
        | ErrorCode::MaxDepthExceeded
        | ErrorCode::MaxDelegationsExceeded
        | ErrorCode::RightsExceeded
        | ErrorCode::ContextBudgetExceeded
        | ErrorCode::QueueFull
        | ErrorCode::ApprovalDenied => ErrorType::Validation,
        ErrorCode::BudgetExceeded
        | ErrorCode::BuildError
        | ErrorCode::FileNotFound
        | ErrorCode::StatusSyncFailed
        | ErrorCode::GitCommitFailed
        | ErrorCode::UnknownError
        | ErrorCode::ContextExhausted
        | ErrorCode::LoopDetected
        | ErrorCode::Cancelled
        | ErrorCode::Interrupted
        | ErrorCode::ProviderError
        | ErrorCode::DiskFull
        | ErrorCode::Internal => ErrorType::Execution,
    }
}

#[cfg(test)]
mod tests {
    use super::numbers_in;

    #[test]
    fn a_task_number_is_only_read_after_task_or_a_command() {
        for (text, expected) in [
            ("Task: 12", Some("12")),
            ("Task: 12\n\nTask: 13", Some("12")),
            ("/research 12 --divide", Some("12")),
            ("/implement 3-5,9 soon", Some("3-5,9")),
            ("/review src/12", None),
            ("/review 2nd part", None),
            ("/ 12", None),
            ("Task: twelve", None),
            ("Task:12", None),
            ("Count 12", None),
            ("12", None),
            ("", None),
            ("\nTask: 12", None),
            ("Task: -3", None),
        ] {
            assert_eq!(numbers_in(text), expected, "{text}");
        }
    }
}
