//! What is asked of a delegation, and what its context files turned out to be.

use serde::{Deserialize, Serialize};

use crate::assignment::with_task_line;
use crate::ids::{AgentName, Label, SessionId};
use crate::message::ModelSpec;
use crate::policy::Operation;
use crate::rights::Rights;

/// What is asked: label, prompt, context and wishes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// What the task is called.
    pub label: Label,
    /// Who is to do it.
    pub agent: AgentName,
    /// What is to be done, as the caller wrote it.
    pub prompt: String,
    /// The files to put before the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextFile>,
    /// The whole first message: context and prompt. Absent when it is just the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<String>,
    /// The story this delegation works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
    /// What kind of work it is.
    #[serde(default)]
    pub operation: Operation,
    /// The seconds it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_wish: Option<u64>,
    /// Whether the caller asked for that time; otherwise it is the usual one of the command or agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timeout_requested: bool,
    /// The context it is expected to fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_tokens: Option<u64>,
    /// The output tokens it asks for in each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The turns its agent's definition allows; absent where only budgets bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Whether it must name a file that holds the work when it claims to have completed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub artifacts_required: bool,
    /// The command that has to succeed before its work counts as done; never a model's own wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// The hours its parent thinks it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<u32>,
    /// The rights it asks for; absent means what its parent may give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights_wish: Option<Rights>,
    /// The model that runs it; absent for a node that only delegates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// Why the model it asks for cannot be had; refuses the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_problem: Option<String>,
}

impl Brief {
    /// Returns a brief with nothing but a label, an agent and a prompt.
    #[must_use]
    pub fn new(label: Label, agent: AgentName, prompt: &str) -> Self {
        Self {
            label,
            agent,
            prompt: prompt.to_owned(),
            context: Vec::new(),
            opening: None,
            story: None,
            operation: Operation::Unknown,
            timeout_wish: None,
            is_timeout_requested: false,
            estimate_tokens: None,
            max_output_tokens: None,
            max_turns: None,
            artifacts_required: false,
            verify: None,
            hours: None,
            rights_wish: None,
            model: None,
            model_problem: None,
        }
    }

    /// Puts the line `Task: N` before the prompt, once.
    pub(crate) fn name_task(&mut self, number: u64) {
        let named = with_task_line(&self.prompt, number);
        if let Some(opening) = &mut self.opening {
            // The prompt stands behind the context files.
            let context = opening.strip_suffix(self.prompt.as_str()).unwrap_or(opening.as_str());
            *opening = format!("{context}{named}");
        }
        self.prompt = named;
    }

    /// Returns the first message of the conversation.
    #[must_use]
    pub fn opening(&self) -> &str {
        self.opening.as_deref().unwrap_or(&self.prompt)
    }

    /// Returns the context the task is expected to fill: its own word, or a quarter of the
    /// characters and 5,000 for the work.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        self.estimate_tokens
            .unwrap_or_else(|| self.opening().chars().count() as u64 / 4 + ESTIMATE_FOR_WORK)
    }

    /// Returns the paths of the context files.
    #[must_use]
    pub fn context_paths(&self) -> Vec<String> {
        self.context.iter().map(|file| file.path.clone()).collect()
    }
}

/// Tokens a task is expected to need beyond its own text.
const ESTIMATE_FOR_WORK: u64 = 5_000;

/// A context file, and what was found at its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFile {
    /// The path as the caller wrote it.
    pub path: String,
    /// What was found.
    pub found: ContextFileStatus,
}

/// What was found at a context path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextFileStatus {
    /// The file, put before the prompt.
    Loaded,
    /// The file, but it is not UTF-8: what cannot be text was replaced, and the task says so.
    Lossy,
    /// Nothing: the task goes on without it, and says so.
    Missing,
    /// Something that may not be handed over; refuses the task.
    Unusable(String),
}

/// A brief together with the id made for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedTask {
    /// The id of the delegation, if it is granted.
    pub session: SessionId,
    /// What is asked.
    pub brief: Brief,
}
