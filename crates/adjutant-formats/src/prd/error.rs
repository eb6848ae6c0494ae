//! Errors of reading, running or editing a PRD.

use super::finding::PrdFinding;

/// Why a PRD cannot be read, run or edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrdError {
    /// The file is not JSON, perhaps because a write was interrupted.
    #[error("not JSON, line {line} column {column}: {reason}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// The file is not a JSON object.
    #[error("not a PRD: a PRD is a JSON object with a list `userStories` or `stories`")]
    NotObject,
    /// Fields have invalid values.
    #[error("{}", list_findings(.findings, *.more))]
    Faults {
        /// The first faults, at most twenty.
        findings: Vec<PrdFinding>,
        /// How many more there are.
        more: usize,
    },
    /// There is no such story.
    #[error("there is no story `{id}`{}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// The requested id.
        id: String,
        /// The most similar id.
        nearest: Option<String>,
    },
    /// The story is a child of another story.
    #[error("story `{id}` is a child of `{parent}` and is not run by itself; run `{parent}`")]
    Child {
        /// The requested story.
        id: String,
        /// Its parent.
        parent: String,
    },
    /// The story already passes.
    #[error("story `{id}` already passes; set its `passes` to false to run it again")]
    Passes {
        /// The requested story.
        id: String,
    },
    /// The story's dependencies do not pass yet.
    #[error("story `{id}` depends on {}, which {} not pass yet", join_ids(.waits_for), if .waits_for.len() == 1 { "does" } else { "do" })]
    NotReady {
        /// The requested story.
        id: String,
        /// The dependencies that do not pass yet.
        waits_for: Vec<String>,
    },
    /// The dependencies form a cycle.
    #[error("line {line}: the dependencies of stories form a cycle: {}", .path.join(" → "))]
    Cycle {
        /// The line with the dependencies of the first story, from 1.
        line: usize,
        /// The ids of the stories, each depending on the next; the first id is repeated at the end.
        path: Vec<String>,
    },
    /// The user has a field where the outcome would be written.
    #[error(
        "story `{id}` has its own field `adjutant`, which is where the outcome is written; rename that field; nothing was written"
    )]
    Taken {
        /// The story.
        id: String,
    },
    /// The edited text would not parse to the intended values.
    #[error(
        "the outcome of story `{id}` cannot be written into the PRD because of its layout; nothing was written"
    )]
    Unwritable {
        /// The story.
        id: String,
    },
}

fn list_findings(findings: &[PrdFinding], more: usize) -> String {
    if let ([only], 0) = (findings, more) {
        return only.to_string();
    }
    let mut text = format!("{} faults:", findings.len() + more);
    for finding in findings {
        text += &format!("\n  {finding}");
    }
    if more > 0 {
        text += &format!("\n  and {more} more");
    }
    text
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |id| format!("; did you mean `{id}`?"))
}

fn join_ids(ids: &[String]) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    quoted.join(", ")
}
