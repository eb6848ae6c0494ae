//! The standard return of a delegation, however it ended, and the outcome of a slash command.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use adjutant_core::assignment::kind_written;
use adjutant_core::error_summary::handle_error_return;
use adjutant_core::policy::ContractKind;
use adjutant_core::{AgentName, DelegationState, ErrorCode, Outcome, OutcomeReason};
use adjutant_formats::contract::{
    Artifact, ErrorType, Return, ReturnError, ReturnMetadata, ReturnStatus, SUMMARY_MAX_CHARS,
};

use super::{answer_command, resume_command};
use crate::layout::excerpt;
use crate::run::{Delegation, RunView};
use crate::sanitize;

/// Renders a return as text: summary, artifacts, next steps.
#[must_use]
pub fn return_as_text(returned: &Return) -> String {
    let mut text = returned.summary.trim().to_owned();
    if !returned.artifacts.is_empty() {
        text += "\n\nArtifacts:";
        for artifact in &returned.artifacts {
            let about = artifact.summary.as_ref().map(|about| format!(" ({about})"));
            // Writing to a string cannot fail, here and below.
            let _ = write!(
                text,
                "\n- {}: {}{}",
                artifact.kind,
                artifact.path,
                about.unwrap_or_default()
            );
        }
    }
    if let Some(next) = &returned.next_steps {
        let _ = write!(text, "\n\nNext: {}", next.trim());
    }
    text
}

/// Returns the standard return of an ended delegation: its own, or one that describes its end. Returns `None`
/// if the run requires no returns, or the delegation has not ended.
#[must_use]
pub fn standard(view: &RunView, delegation: &Delegation) -> Option<Return> {
    let asks = view.policy().is_some_and(|policy| policy.contract == ContractKind::Standard);
    let DelegationState::Ended(outcome) = delegation.state else { return None };
    if !asks || delegation.parent.is_none() {
        return None;
    }
    let own = delegation.returned.as_deref().filter(|own| own.status == status(outcome));
    Some(own.cloned().unwrap_or_else(|| ended_without(view, delegation, outcome)))
}

const fn status(outcome: Outcome) -> ReturnStatus {
    match outcome {
        Outcome::Completed => ReturnStatus::Completed,
        Outcome::Partial | Outcome::Cancelled => ReturnStatus::Partial,
        Outcome::Failed | Outcome::Refused => ReturnStatus::Failed,
        Outcome::Blocked => ReturnStatus::Blocked,
    }
}

fn ended_without(view: &RunView, delegation: &Delegation, outcome: Outcome) -> Return {
    let unknown = || OutcomeReason {
        code: ErrorCode::UnknownError,
        message: format!("Ended {} without giving a reason.", outcome.word()),
        recommendation: format!("Read `adjutant log {}`.", delegation.session),
        recoverable: true,
    };
    let reason = delegation.reason.clone().unwrap_or_else(unknown);
    let status = status(outcome);
    let said =
        if status == ReturnStatus::Completed { &delegation.last_text } else { &reason.message };
    let summary = Some(excerpt(said, SUMMARY_MAX_CHARS)).filter(|text| !text.trim().is_empty());
    let errors = if status == ReturnStatus::Completed { Vec::new() } else { vec![error(reason)] };
    let operation = view.assignment().map(|it| it.operation).unwrap_or_default();
    let artifacts = changed_below(view, delegation).into_iter().map(|path| Artifact {
        kind: kind_written(operation),
        path,
        summary: None,
    });
    Return {
        status,
        summary: summary.unwrap_or_else(|| format!("Ended {}.", outcome.word())),
        artifacts: artifacts.collect(),
        metadata: metadata(view, delegation),
        errors,
        next_steps: None,
    }
}

/// Returns the files that a delegation and everything below it changed.
fn changed_below(view: &RunView, delegation: &Delegation) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    let mut waiting = vec![delegation];
    while let Some(next) = waiting.pop() {
        changed.extend(next.changed.iter().map(ToString::to_string));
        waiting.extend(view.children(next));
    }
    changed
}

fn error(reason: OutcomeReason) -> ReturnError {
    let of_kind = [
        (ErrorCode::Timeout, ErrorType::Timeout),
        (ErrorCode::Stalled, ErrorType::Timeout),
        (ErrorCode::TimeExceeded, ErrorType::Timeout),
        (ErrorCode::ValidationFailed, ErrorType::Validation),
        (ErrorCode::ToolUnavailable, ErrorType::ToolUnavailable),
    ];
    let kind = of_kind.iter().find(|(code, _)| *code == reason.code);
    let kind = kind.map_or(ErrorType::Execution, |(_, kind)| *kind);
    ReturnError {
        kind: kind.into(),
        message: reason.message,
        code: reason.code.into(),
        recoverable: reason.recoverable,
        recommendation: reason.recommendation,
    }
}

fn metadata(view: &RunView, delegation: &Delegation) -> ReturnMetadata {
    let ended = delegation.ended.map_or(view.latest().at, |ended| ended.at);
    ReturnMetadata {
        session_id: delegation.session,
        duration_seconds: delegation.elapsed(ended).map_or(0, |elapsed| elapsed.as_secs()),
        agent_type: delegation.agent.clone(),
        delegation_depth: u32::try_from(delegation.depth).unwrap_or(u32::MAX),
        delegation_path: view.path(delegation).iter().map(|it| AgentName::new(it)).collect(),
    }
}

/// Returns the first line of a slash command's outcome: `Task: N` or `Command: /name`.
#[must_use]
pub fn command_head(view: &RunView) -> Option<String> {
    let assignment = view.assignment()?;
    let tasks: Vec<String> = assignment.tasks.iter().map(u64::to_string).collect();
    Some(if tasks.is_empty() {
        format!("Command: /{}", one_line(&assignment.command))
    } else {
        format!("Task: {}", tasks.join(", "))
    })
}

/// The start of the line that reports an incomplete status.
const STATUS: &str = "Status: ";

/// Renders the outcome of a slash command: for each task, its artifacts, its state and, if it did not
/// complete, how to continue. Returns `None` for other runs. Commands start with `program`.
#[must_use]
pub fn command_end(view: &RunView, program: &str) -> Option<String> {
    let assignment = view.assignment()?;
    assignment.agent.as_ref()?;
    let latest = latest_work(view);
    let left = assignment.tasks.iter().filter(|task| !latest.contains_key(&Some(**task)));
    // If nothing was done at all, the caller reports that.
    let left = left.filter(|_| !latest.is_empty());
    let left = left.map(|task| format!("Task {task}: nothing was done"));
    let is_one = assignment.tasks.len() < 2;
    let said = latest.iter().map(|(task, child)| {
        let text = task_outcome(view, child, program);
        // If there are several tasks, an incomplete one names its number.
        let whose = task.filter(|_| !is_one && text.starts_with(STATUS));
        whose.map(|task| format!("Task: {task}\n{text}")).unwrap_or(text)
    });
    let said = said.chain(left);
    let text = said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then_some(text)
}

/// Returns the work of a slash command by task. A failed task may have been retried; the latest attempt
/// counts.
fn latest_work(view: &RunView) -> BTreeMap<Option<u64>, &Delegation> {
    let (Some(assignment), Some(root)) = (view.assignment(), view.root()) else {
        return BTreeMap::new();
    };
    let work = view.children(root).filter(|child| assignment.is_work_of(&child.agent));
    work.map(|child| (child.number, child)).collect()
}

/// Returns the root agent's conclusion. If work was resumed after the root agent ended, returns the summaries
/// of that work instead.
#[must_use]
pub fn synthesis(view: &RunView) -> Cow<'_, str> {
    let Some(root) = view.root() else { return Cow::Borrowed("") };
    let latest = latest_work(view);
    let ended = |node: &Delegation| node.ended.map(|moment| moment.at);
    let outlives_root = |child: &&Delegation| {
        child.reopened && (!root.reopened || ended(child) > ended(root)) && ended(child).is_some()
    };
    if !latest.values().any(outlives_root) {
        return Cow::Borrowed(root.last_text.trim_end());
    }
    let returns = latest.values().filter_map(|child| standard(view, child));
    let summaries: Vec<String> = returns.map(|it| it.summary.trim().to_owned()).collect();
    Cow::Owned(summaries.join("\n\n"))
}

fn task_outcome(view: &RunView, child: &Delegation, program: &str) -> String {
    let Some(returned) = standard(view, child) else { return String::new() };
    let mut lines = Vec::new();
    let fatal = child.reason.as_ref().map(|reason| one_line(&reason.message));
    let session = child.session;
    let resume = resume_command(view, session, program);
    match returned.status {
        ReturnStatus::Completed => {}
        ReturnStatus::Partial => {
            lines.push(format!("{STATUS}Partial"));
            lines.extend(fatal);
            lines.push(format!("Resume with: {resume}"));
        }
        ReturnStatus::Failed => {
            lines.push(format!("{STATUS}Failed"));
            lines.push(one_line(&handle_error_return(&returned.errors)));
            // The sentence above already contains one of the two.
            let advice = child.reason.as_ref().map(|reason| one_line(&reason.recommendation));
            let unsaid = |text: &String| !lines[1].contains(text.as_str());
            let more: Vec<String> = fatal.into_iter().chain(advice).filter(unsaid).collect();
            lines.extend(more);
            lines.push(format!("Look with: {program} transcript {session}"));
            if child.reason.as_ref().is_none_or(|reason| reason.recoverable) {
                lines.push(format!("Resume with: {resume}"));
            }
        }
        ReturnStatus::Blocked => {
            lines.push(format!("{STATUS}Blocked"));
            lines.push(format!("Question: {}", fatal.unwrap_or_default()));
            lines.push(format!("Answer with: {}", answer_command(view, session, program)));
        }
    }
    for artifact in &returned.artifacts {
        lines.push(format!("{}: {}", capitalise(artifact.kind.as_str()), one_line(&artifact.path)));
    }
    lines.extend(child.marked.as_ref().and_then(|(mark, problem)| match (problem, mark.status) {
        (Some(problem), _) => Some(format!(
            "Task {} could not be updated in the task list: {}",
            mark.task,
            one_line(problem)
        )),
        (None, Some(status)) => Some(format!("Task {} is {}", mark.task, status.marker())),
        (None, None) => None,
    }));
    lines.join("\n")
}

fn capitalise(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

fn one_line(foreign: &str) -> String {
    sanitize::collapsed(foreign)
}
