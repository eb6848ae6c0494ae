//! The task that a caller wants to delegate: prompt, context files and requested limits.
//!
//! A brief only says what is asked. What is granted is decided by `tree::admission`.
//!
//! A [`Brief`] is one task, a [`RequestedTask`] the brief with the session id that it would get,
//! and a [`ContextFile`] one file of it with the result of reading it ([`ContextFileStatus`]:
//! loaded, loaded with invalid bytes replaced, missing or unusable).

use serde::{Deserialize, Serialize};

use crate::assignment::with_task_line;
use crate::ids::{AgentName, Label, SessionId};
use crate::message::ModelSpec;
use crate::policy::Operation;
use crate::rights::Rights;
use crate::verify::VerifyCommand;

/// A task to delegate, with the limits and rights that the caller asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The short name shown in progress and results.
    pub label: Label,
    /// The agent that should do it.
    pub agent: AgentName,
    /// The prompt as the caller wrote it.
    pub prompt: String,
    /// The files whose text is put before the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextFile>,
    /// The first message, context files and prompt together; absent if it is only the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<String>,
    /// The project's texts for agents in the folders of the context files and above them, quoted; absent if they are
    /// those of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The id of the story that this delegation works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
    /// The kind of work, which decides the time limits.
    #[serde(default)]
    pub operation: Operation,
    /// The timeout it asks for, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_wish: Option<u64>,
    /// Whether the caller asked for that timeout; otherwise it is the default of the command or
    /// agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timeout_requested: bool,
    /// The context size it expects to need, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_tokens: Option<u64>,
    /// The output tokens it asks for per model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The turns that its agent's definition allows; absent if only budgets limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Whether a return with status `completed` must name an artifact file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub artifacts_required: bool,
    /// The verify command that must succeed before the work counts as done. A model can never set
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyCommand>,
    /// The hours its parent estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<u32>,
    /// The rights it asks for; absent means everything its parent may grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights_wish: Option<Rights>,
    /// The model that runs it; absent for a node that only delegates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// Why the requested model is not available; the task is refused with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_problem: Option<String>,
}

impl Brief {
    /// Returns a brief with a label, an agent and a prompt, and no other wishes.
    #[must_use]
    pub fn new(label: Label, agent: AgentName, prompt: &str) -> Self {
        Self {
            label,
            agent,
            prompt: prompt.to_owned(),
            context: Vec::new(),
            opening: None,
            instructions: None,
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

    /// Puts the line `Task: N` at the beginning of the prompt, exactly once.
    pub(crate) fn name_task(&mut self, number: u64) {
        let named = with_task_line(&self.prompt, number);
        if let Some(opening) = &mut self.opening {
            // The opening ends with the prompt; what comes before it are the context files.
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

    /// Returns the context size the task is expected to need, in tokens: its own estimate, or a
    /// quarter of the characters of its opening plus 5,000 for the work.
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

/// Tokens that a task without an estimate is expected to need beyond its opening text.
const ESTIMATE_FOR_WORK: u64 = 5_000;

/// A context file and the result of reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFile {
    /// The path as the caller wrote it.
    pub path: String,
    /// The result of reading the path.
    pub found: ContextFileStatus,
}

/// The result of reading a context file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextFileStatus {
    /// The file was read and is put before the prompt.
    Loaded,
    /// The file is not UTF-8. Invalid bytes were replaced, and the prompt says so.
    Lossy,
    /// There is no such file. The task goes on without it, and the prompt says so.
    Missing,
    /// The file must not be read, for this reason; the task is refused.
    Unusable(String),
}

/// A brief with the session id that it gets if it is granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedTask {
    /// The session id for the delegation.
    pub session: SessionId,
    /// The task.
    pub brief: Brief,
}
