//! The records of a run that works on a story of a PRD.
//!
//! The root agent works in a workspace of its own and delegates with markers in its answers. The
//! engine reads and updates the PRD file.
//!
//! [`StoryAssignment`] is the story that the run works on and [`VerifyResult`] the result of its
//! verify command. [`AnswerMarkers`] are all markers of one answer: a [`MarkedTask`] for each valid
//! one, a [`RejectedMarker`] for each that could not be parsed.

use serde::{Deserialize, Serialize};

use crate::ids::Label;
use crate::verify::VerifyCommand;

/// The story that a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryAssignment {
    /// Its id in the PRD.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The PRD file, relative to the directory of the run; absent for a story that was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prd: Option<String>,
    /// A digest of the story's text, to notice that it was edited since.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// The verify command that must succeed before the story passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyCommand>,
    /// Whether it names a verify command that no person has allowed, so that it cannot pass. Only
    /// journals of earlier versions have it; such a story is refused now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unallowed: bool,
    /// The highest child number of earlier runs on the story, so that no number is used twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbered: u64,
    /// Tasks that are delegated before the root agent begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<MarkedTask>,
    /// The commits of the stories it depends on; its workspace starts with them merged in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_in: Vec<String>,
    /// The command-line flags of the run, for the command that is recommended to start it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typed: Vec<String>,
}

impl StoryAssignment {
    /// Returns the label of the root agent: the story's id.
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

/// The result of a verify command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerifyResult {
    /// It succeeded.
    Passed,
    /// It ran and failed.
    Failed,
    /// It could not be run, which says nothing about the work.
    NotRun,
}

/// A text that looks like a marker but could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedMarker {
    /// The text.
    pub text: String,
    /// Why it could not be parsed.
    pub reason: String,
}

/// A task that an agent requested with a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedTask {
    /// The task.
    pub description: String,
    /// The estimated hours.
    pub hours: u32,
    /// The verify command; only for tasks planned in the PRD, with a person's consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyCommand>,
}

/// The markers of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerMarkers {
    /// The parsed tasks.
    pub tasks: Vec<MarkedTask>,
    /// The markers that could not be parsed.
    pub rejected: Vec<RejectedMarker>,
}
