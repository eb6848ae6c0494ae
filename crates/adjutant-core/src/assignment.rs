//! What a slash command asks of a run (its [`SlashCommandAssignment`]), and which status its tasks get in the
//! project's task list.
//!
//! The list is updated when work on a task begins and when it ends: the operation decides the first
//! status, operation and outcome the second. Nothing here reads or writes a file: a
//! [`TaskListUpdate`] says what to change, the engine changes it.
//!
//! [`TaskDetails`] is what agents are told about a task: its number, description, complexity and directory.
//! [`UpdateTrigger`] says whether an update is for the begin or the end of the work.

use serde::{Deserialize, Serialize};

use crate::ids::AgentName;
use crate::outcome::Outcome;
use crate::policy::Operation;
use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{TaskArtifact, TaskStatus};

/// What a slash command asks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlashCommandAssignment {
    /// The command, without the slash.
    pub command: String,
    /// The command line as a client sent it; present only if a person has to approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The numbers of the tasks it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<u64>,
    /// The kind of work, which decides time limits and task statuses.
    pub operation: Operation,
    /// The language of the task, which selected the agent.
    pub language: String,
    /// The agent that does the work; absent if the root agent does it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Timeout in seconds for the delegations that do the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Whether a return with status `completed` must name an artifact file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub artifacts_required: bool,
    /// The type that at least one artifact must have, if the return names artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_kind: Option<ArtifactKind>,
    /// Context files put before the agent's prompt, as paths relative to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// What the task list says about these tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<TaskDetails>,
}

/// What agents are told about a task of the task list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDetails {
    /// The task's number.
    pub number: u64,
    /// The task's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The complexity, as written in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<String>,
    /// The directory for everything written for the task, relative to the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl SlashCommandAssignment {
    /// Returns an assignment without tasks and without an agent.
    #[must_use]
    pub fn new(command: &str, operation: Operation) -> Self {
        Self {
            command: command.to_owned(),
            sent: None,
            tasks: Vec::new(),
            operation,
            language: "general".to_owned(),
            agent: None,
            timeout_s: None,
            artifacts_required: false,
            artifact_kind: None,
            context: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Says whether a delegation from the root to `agent` does the work of the command. Delegations
    /// to other agents only help the root.
    #[must_use]
    pub fn is_work_of(&self, agent: &AgentName) -> bool {
        self.agent.as_deref() == Some(agent.as_str())
    }

    /// Returns what the task list says about a task.
    #[must_use]
    pub fn facts_of(&self, number: u64) -> Option<&TaskDetails> {
        self.facts.iter().find(|facts| facts.number == number)
    }

    /// Returns the task that a prompt is for: the task on its first line (`Task: N`), otherwise the
    /// assignment's only task.
    #[must_use]
    pub fn task_of(&self, prompt: &str) -> Option<u64> {
        let first = prompt.trim_start().lines().next().unwrap_or_default();
        match (task_in(first), self.tasks.as_slice()) {
            (Some(number), tasks) if tasks.contains(&number) => Some(number),
            (_, [only]) => Some(*only),
            _ => None,
        }
    }
}

/// Returns `N` if the line is `Task: N`.
fn task_in(line: &str) -> Option<u64> {
    line.strip_prefix("Task:").and_then(|rest| rest.trim().parse().ok())
}

/// Removes the lines `Task: N` from the beginning of a prompt.
#[must_use]
pub fn without_task_lines(prompt: &str) -> &str {
    let mut rest = prompt;
    loop {
        let text = rest.trim_start();
        let (first, below) = text.split_once('\n').unwrap_or((text, ""));
        if task_in(first).is_none() {
            return rest;
        }
        rest = below;
    }
}

/// Returns the prompt with exactly one line `Task: N`, at its beginning, wherever its author wrote
/// that line.
#[must_use]
pub fn with_task_line(prompt: &str, number: u64) -> String {
    let is_other = |line: &&str| task_in(line.trim()) != Some(number);
    let rest: Vec<&str> = without_task_lines(prompt).lines().filter(is_other).collect();
    let rest = rest.join("\n");
    match rest.trim() {
        "" => format!("Task: {number}"),
        rest => format!("Task: {number}\n\n{rest}"),
    }
}

/// A change to one entry of the project's task list, caused by work on that task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskListUpdate {
    /// The task's number.
    pub task: u64,
    /// Whether the work began or ended.
    pub work: UpdateTrigger,
    /// The new status; absent if the status does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// Why the task is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The files to link in the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<TaskArtifact>,
}

/// What causes an update of the task list: work on the task began, or it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateTrigger {
    /// The work began.
    Begun,
    /// The work ended.
    Ended,
}

/// Returns the status of a task while this operation runs; `None` if the operation does not change
/// it.
#[must_use]
pub const fn status_of_work(operation: Operation) -> Option<TaskStatus> {
    match operation {
        Operation::Research => Some(TaskStatus::Researching),
        Operation::Plan => Some(TaskStatus::Planning),
        Operation::Implement => Some(TaskStatus::Implementing),
        Operation::Revise => Some(TaskStatus::Revising),
        Operation::Review | Operation::Simple | Operation::Unknown => None,
    }
}

/// Returns the status of a task after this operation ended with `outcome`.
///
/// Work that did not complete leaves the task in progress, never failed: partial findings count,
/// and the work can be resumed.
#[must_use]
pub const fn status_after(operation: Operation, outcome: Outcome) -> Option<TaskStatus> {
    let done = match operation {
        Operation::Research => TaskStatus::Researched,
        Operation::Plan => TaskStatus::Planned,
        Operation::Implement => TaskStatus::Completed,
        Operation::Revise => TaskStatus::Revised,
        Operation::Review | Operation::Simple | Operation::Unknown => return None,
    };
    match outcome {
        Outcome::Completed => Some(done),
        Outcome::Partial | Outcome::Failed | Outcome::Cancelled => Some(TaskStatus::InProgress),
        Outcome::Blocked => Some(TaskStatus::Blocked),
        Outcome::Refused => None,
    }
}

/// Returns the artifact type of a file that the operation wrote but its return did not name.
#[must_use]
pub const fn kind_written(operation: Operation) -> ArtifactKind {
    match operation {
        Operation::Research | Operation::Review => ArtifactKind::Research,
        Operation::Plan | Operation::Revise => ArtifactKind::Plan,
        Operation::Implement => ArtifactKind::Implementation,
        Operation::Simple | Operation::Unknown => ArtifactKind::Summary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(tasks: &[u64]) -> SlashCommandAssignment {
        SlashCommandAssignment {
            tasks: tasks.to_vec(),
            agent: Some("implementer".into()),
            ..SlashCommandAssignment::new("implement", Operation::Implement)
        }
    }

    #[test]
    fn a_prompt_is_for_the_task_on_its_first_line_or_for_the_only_task() {
        for (tasks, prompt, expected) in [
            (&[12][..], "Task: 12\nDo it.", Some(12)),
            (&[12], "Do it.", Some(12)),
            // A model may name a task that is not in the command; the command wins.
            (&[12], "Task: 13\nDo it.", Some(12)),
            (&[12, 13], "\n Task: 13", Some(13)),
            (&[12, 13], "Do it.\nTask: 13", None),
            (&[12, 13], "Task: 14", None),
            (&[], "Task: 1", None),
        ] {
            assert_eq!(about(tasks).task_of(prompt), expected, "{tasks:?} {prompt:?}");
        }
    }

    #[test]
    fn requirement_13_the_task_line_comes_first_and_once() {
        for (prompt, expected) in [
            ("", "Task: 12"),
            ("Task: 12", "Task: 12"),
            ("Do it.", "Task: 12\n\nDo it."),
            ("Task: 12\nDo it.\n\nThen rest.", "Task: 12\n\nDo it.\n\nThen rest."),
            ("\nTask:12\nTask: 12\n\nDo it.", "Task: 12\n\nDo it."),
            ("Do it.\n  Task: 12\nNow.", "Task: 12\n\nDo it.\nNow."),
            ("Task: 13\nDo it.", "Task: 12\n\nDo it."),
            // Only the first line names the task; later lines may mention others.
            ("Do it after\nTask: 7", "Task: 12\n\nDo it after\nTask: 7"),
            ("Task: twelve\nDo it.", "Task: 12\n\nTask: twelve\nDo it."),
        ] {
            let named = with_task_line(prompt, 12);
            assert_eq!(named, expected, "{prompt:?}");
            assert_eq!(with_task_line(&named, 12), named, "{prompt:?}");
        }
    }

    #[test]
    fn requirement_36_every_outcome_leads_to_a_valid_task_status() {
        let ends = [
            Outcome::Completed,
            Outcome::Partial,
            Outcome::Failed,
            Outcome::Blocked,
            Outcome::Cancelled,
        ];
        for operation in
            [Operation::Research, Operation::Plan, Operation::Implement, Operation::Revise]
        {
            let during = status_of_work(operation).unwrap();
            for outcome in ends {
                let after = status_after(operation, outcome).unwrap();
                assert!(during.step(after).is_ok(), "{during:?} to {after:?}");
            }
            assert_eq!(status_after(operation, Outcome::Refused), None);
        }
    }
}
