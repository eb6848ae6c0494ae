//! What the agents of a run are told about the project and their limits.
//!
//! The engine collects the [`ProjectGuidance`] once, before the run starts, and records it. Every agent gets the same
//! text, also after a resume. Agents with workspaces of their own get the [`ProjectFacts`] of the state that these
//! were made from, if they differ. [`GrantedLimits`] are the limits of one delegation, as they were when it was
//! granted.

use serde::{Deserialize, Serialize};

/// What the agents of a run are told about the project: facts, the tools of commands, and its texts for agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectGuidance {
    /// The end of the system prompt, for all agents that have no other facts.
    #[serde(flatten)]
    pub project: ProjectFacts,
    /// What follows for agents that run commands: the tools that commands see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<String>,
    /// The project's texts for agents, quoted. They are the first message of every conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The facts about one state of the project: the user's files, or the base of workspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectFacts {
    /// The text that agents are told.
    #[serde(rename = "facts")]
    pub text: String,
    /// What git's file HEAD contained: a branch such as `ref: refs/heads/main`, or a commit. Absent outside a
    /// repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

impl ProjectGuidance {
    /// Returns about how many bytes the environment adds to the first request of an agent that is told these facts.
    /// `instructions` are those of its brief, which replace the shared ones.
    pub(crate) fn bytes(
        &self,
        project: &ProjectFacts,
        runs_commands: bool,
        instructions: Option<&str>,
    ) -> u64 {
        let commands = self.commands.as_ref().filter(|_| runs_commands);
        let instructions = instructions.or(self.instructions.as_deref());
        let bytes = project.text.len()
            + commands.map_or(0, String::len)
            + instructions.map_or(0, str::len)
            + LIMITS_BYTES;
        bytes as u64
    }
}

/// The most bytes that an agent is told about its verify command, its workspace and its limits.
const LIMITS_BYTES: usize = 1_750;

/// The limits of a delegation as they were when it was granted. A resume may change the limits, but not what the
/// agent was told about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantedLimits {
    /// Its timeout in seconds.
    pub seconds: Option<u64>,
    /// The tokens that it and its descendants may use.
    pub tokens: Option<u64>,
    /// The turns that it may take.
    pub turns: Option<u32>,
}
