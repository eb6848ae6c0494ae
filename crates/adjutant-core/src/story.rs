//! What a run does when it works on a story of a PRD.
//!
//! The agent at the root works itself, in a workspace of its own, and hands tasks down by markers in
//! what it writes. Where the story stands in its file is the engine's business.

use serde::{Deserialize, Serialize};

use crate::ids::Label;

/// The story a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryAssignment {
    /// Its id in the file.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The file it stands in, relative to the folder of the run; absent for one that was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prd: Option<String>,
    /// The digest of what was asked, by which a story that was changed since is told from this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// The command that has to succeed before the story passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// Whether it names a command that decides which no person allowed, so that it does not pass. Only
    /// runs of earlier versions have it: such a story is not begun any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unallowed: bool,
    /// The number of the last child that earlier runs on it had: none is used twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbered: u64,
    /// What is handed down before its agent begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<MarkedTask>,
    /// The commits of the stories it depends on, which its workspace begins with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_in: Vec<String>,
    /// The flags that were typed for it, each with its value, for the command that begins it anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typed: Vec<String>,
}

impl StoryAssignment {
    /// Returns what the agent at the root is called: by its story.
    #[must_use]
    pub fn label(&self) -> Label {
        let short: String = self.id.chars().take(Label::MAX_CHARS).collect();
        Label::new(&short).unwrap_or_else(|_| Label::unnamed())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What came of the command that decides whether work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyResult {
    /// It succeeded.
    Passed,
    /// It ran and did not.
    Failed,
    /// It could not be run, which says nothing about the work.
    NotRun,
}

/// A text that looked like a marker and is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedMarker {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What an agent asked for by a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedTask {
    /// What is to be done.
    pub description: String,
    /// The hours it is thought to take.
    pub hours: u32,
    /// The command that has to succeed before it counts as done; only of one that was planned before
    /// the run, with a person's consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
}

/// The markers of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerMarkers {
    /// Those that can be read.
    pub tasks: Vec<MarkedTask>,
    /// Those that cannot.
    pub rejected: Vec<RejectedMarker>,
}
