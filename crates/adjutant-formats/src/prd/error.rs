//! Why a PRD cannot be read, run or changed.

use super::finding::PrdFinding;

/// Says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrdError {
    /// It is no JSON; a writer may have been cut off.
    #[error("not JSON, line {line} column {column}: {reason}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// It holds something else than an object.
    #[error("not a PRD: a PRD is a JSON object with a list `userStories` or `stories`")]
    NotObject,
    /// Fields say what they cannot say.
    #[error("{}", listed(.findings, *.more))]
    Faults {
        /// The first faults, at most twenty.
        findings: Vec<PrdFinding>,
        /// How many more there are.
        more: usize,
    },
    /// There is no such story.
    #[error("there is no story `{id}`{}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// The id asked for.
        id: String,
        /// The id that looks most like it.
        nearest: Option<String>,
    },
    /// The story is a part of another one's work.
    #[error("story `{id}` is a child of `{parent}` and is not run by itself; run `{parent}`")]
    Child {
        /// The story asked for.
        id: String,
        /// Its parent.
        parent: String,
    },
    /// The story is done.
    #[error("story `{id}` passes already; set its `passes` to false to run it again")]
    Passes {
        /// The story asked for.
        id: String,
    },
    /// What the story depends on is not done.
    #[error("story `{id}` depends on {}, which {} not pass yet", joined(.waits_for), if .waits_for.len() == 1 { "does" } else { "do" })]
    NotReady {
        /// The story asked for.
        id: String,
        /// The dependencies that do not pass yet.
        waits_for: Vec<String>,
    },
    /// Stories depend on each other.
    #[error("line {line}: the dependencies of stories form a cycle: {}", .path.join(" → "))]
    Cycle {
        /// The line where the first of them says what it depends on, from 1.
        line: usize,
        /// The stories, each depending on the next; the first is also the last.
        path: Vec<String>,
    },
    /// Something of a person stands where the outcome would.
    #[error(
        "story `{id}` has a field `adjutant` of yours, where its outcome would stand; nothing was written"
    )]
    Taken {
        /// The story.
        id: String,
    },
    /// The new text would not read back as what was meant.
    #[error("the PRD cannot take the outcome of story `{id}` where it stands; nothing was written")]
    Unwritable {
        /// The story.
        id: String,
    },
}

fn listed(findings: &[PrdFinding], more: usize) -> String {
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

fn joined(ids: &[String]) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    quoted.join(", ")
}
