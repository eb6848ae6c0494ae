//! What a slash command asks of a run, and how work on a task shows on the project's list.
//!
//! Knows which status belongs to which kind of work and to which end. It reads and writes no list:
//! a [`TaskListUpdate`] says what is to be changed, the engine changes it.

use serde::{Deserialize, Serialize};

use crate::ids::AgentName;
use crate::outcome::Outcome;
use crate::policy::Operation;
use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{Artifact, Status};

/// What a slash command asks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The command, without the slash.
    pub command: String,
    /// The whole of it as a client sent it, where a person is asked about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The tasks it is about, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<u64>,
    /// What kind of work it is.
    pub operation: Operation,
    /// The language that decided who does it.
    pub language: String,
    /// The agent it is handed to; absent where the command works itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Seconds it gives those it hands work to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Whether work that claims to be completed must name a file that holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub artifacts_required: bool,
    /// The type that one artifact of completed work must have, where it names any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_kind: Option<ArtifactKind>,
    /// The files that its agent is given before the prompt, by path from the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// What the project's list says of the tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<TaskFacts>,
}

/// What the project's list says of a task, as far as agents are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// Its number.
    pub number: u64,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How hard it is, in the words of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<String>,
    /// The folder that holds everything written for it, by path from the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Assignment {
    /// Returns what a command asks that is about no task and hands its work to nobody.
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

    /// Says whether a task that the root hands to `agent` is the work of the command. Everything else is
    /// an errand on the way.
    #[must_use]
    pub fn is_work_of(&self, agent: &AgentName) -> bool {
        self.agent.as_deref() == Some(agent.as_str())
    }

    /// Returns what the project's list says of a task.
    #[must_use]
    pub fn facts_of(&self, number: u64) -> Option<&TaskFacts> {
        self.facts.iter().find(|facts| facts.number == number)
    }

    /// Returns the task that a prompt of the root is for: the one its first line names, else the only one.
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

/// Returns the number of a line `Task: N`.
fn task_in(line: &str) -> Option<u64> {
    line.strip_prefix("Task:").and_then(|rest| rest.trim().parse().ok())
}

/// Returns a prompt without the lines `Task: N` at its beginning.
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

/// Returns a prompt that begins with the line `Task: N` and names that task nowhere else in a line of
/// its own, whatever its author wrote.
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

/// A change to a task of the project's list that follows from work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskListUpdate {
    /// The task, by number.
    pub task: u64,
    /// What happened to the work.
    pub work: WorkStage,
    /// Where the task stands then; absent where that does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The files to link in its entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Artifact>,
}

/// What happened to the work on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkStage {
    /// It began.
    Begun,
    /// It ended.
    Ended,
}

/// Returns where a task stands while such work is under way.
#[must_use]
pub const fn status_of_work(operation: Operation) -> Option<Status> {
    match operation {
        Operation::Research => Some(Status::Researching),
        Operation::Plan => Some(Status::Planning),
        Operation::Implement => Some(Status::Implementing),
        Operation::Revise => Some(Status::Revising),
        Operation::Review | Operation::Simple | Operation::Unknown => None,
    }
}

/// Returns where a task stands once such work has ended so.
///
/// What fell short leaves it in progress, never failed: what was found counts, and the work can be
/// taken up again.
#[must_use]
pub const fn status_after(operation: Operation, outcome: Outcome) -> Option<Status> {
    let done = match operation {
        Operation::Research => Status::Researched,
        Operation::Plan => Status::Planned,
        Operation::Implement => Status::Completed,
        Operation::Revise => Status::Revised,
        Operation::Review | Operation::Simple | Operation::Unknown => return None,
    };
    match outcome {
        Outcome::Completed => Some(done),
        Outcome::Partial | Outcome::Failed | Outcome::Cancelled => Some(Status::InProgress),
        Outcome::Blocked => Some(Status::Blocked),
        Outcome::Refused => None,
    }
}

/// Returns what a file is that such work wrote and did not name.
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

    fn about(tasks: &[u64]) -> Assignment {
        Assignment {
            tasks: tasks.to_vec(),
            agent: Some("implementer".into()),
            ..Assignment::new("implement", Operation::Implement)
        }
    }

    #[test]
    fn work_is_for_the_task_its_first_line_names_else_for_the_only_one() {
        for (tasks, prompt, expected) in [
            (&[12][..], "Task: 12\nDo it.", Some(12)),
            (&[12], "Do it.", Some(12)),
            // A number nobody typed is not believed.
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
    fn requirement_13_the_line_of_the_task_stands_first_and_once() {
        for (prompt, expected) in [
            ("", "Task: 12"),
            ("Task: 12", "Task: 12"),
            ("Do it.", "Task: 12\n\nDo it."),
            ("Task: 12\nDo it.\n\nThen rest.", "Task: 12\n\nDo it.\n\nThen rest."),
            ("\nTask:12\nTask: 12\n\nDo it.", "Task: 12\n\nDo it."),
            ("Do it.\n  Task: 12\nNow.", "Task: 12\n\nDo it.\nNow."),
            ("Task: 13\nDo it.", "Task: 12\n\nDo it."),
            // A task that is mentioned is not the one that is named.
            ("Do it after\nTask: 7", "Task: 12\n\nDo it after\nTask: 7"),
            ("Task: twelve\nDo it.", "Task: 12\n\nTask: twelve\nDo it."),
        ] {
            let named = with_task_line(prompt, 12);
            assert_eq!(named, expected, "{prompt:?}");
            assert_eq!(with_task_line(&named, 12), named, "{prompt:?}");
        }
    }

    #[test]
    fn requirement_36_every_end_leaves_a_task_where_its_work_may_lead() {
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
