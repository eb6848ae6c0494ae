//! The provider-neutral form of a conversation between an agent and its model.
//!
//! Everything here is data for journals and replay. The model crate translates it to and from each
//! provider's wire format.
//!
//! [`Message`] is one message, [`ToolSpec`] the declaration of a tool for the model, and
//! [`ToolCall`] one call that the model asked for. One attempt at a model call gives a
//! [`ModelReply`] or an [`AttemptError`] (of a [`ModelErrorKind`]). [`ModelSpec`] is a name, limits
//! and a price of one model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::money::Price;
use crate::usage::Usage;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A message to the model.
    User {
        /// The text, markdown or plain.
        content: String,
    },
    /// The model's answer.
    Assistant {
        /// Its text; empty when it only called tools.
        content: String,
        /// The tool calls, in the model's order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// Provider data that must be sent back verbatim, such as signed thinking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// The result of one tool call.
    Tool {
        /// The call this answers.
        tool_call_id: String,
        /// The result, masked and capped.
        content: String,
        /// Whether the tool failed or was refused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Returns the text of the message.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::User { content }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. } => content,
        }
    }
}

/// A tool call that a model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for the call; unique within its turn.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments. If they were not valid JSON, this is the raw text as a JSON string.
    pub arguments: Value,
    /// Whether the arguments were not valid JSON; such a call is answered with an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub malformed: bool,
}

/// The declaration of a tool for a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// Why a model stopped generating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    EndTurn,
    /// The model waits for tool results.
    ToolUse,
    /// The answer was cut off at the output limit; its tool calls are not run.
    MaxOutput,
    /// The provider or the model declined to answer.
    Refused,
}

/// A complete reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text; may be empty next to tool calls.
    pub text: String,
    /// The tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped generating.
    pub stop: StopReason,
    /// Provider data that must be sent back verbatim: signed thinking, encrypted reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
    /// The usage that the provider reported; `None` if it reported none.
    pub usage: Option<Usage>,
}

/// The outcome of one attempt at a model call.
pub type AttemptResult = Result<ModelReply, AttemptError>;

/// A failed attempt at a model call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{kind}: {message}")]
pub struct AttemptError {
    /// The kind of error, which decides whether the call is retried.
    pub kind: ModelErrorKind,
    /// A message for people, without keys, headers or response bodies.
    pub message: String,
    /// The pause that the provider asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether the provider never began to process the call, so that the attempt costs nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
}

/// The kinds of model errors that are handled differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// The conversation no longer fits the model's window.
    ContextExhausted,
    /// Too many requests; a later attempt may succeed.
    RateLimited,
    /// The provider is overloaded or failed; a later attempt may succeed.
    Overloaded,
    /// The API key is missing, wrong or lacks permission.
    Authentication,
    /// The account has no credit or quota left, or reached a spend limit.
    OutOfCredit,
    /// The provider rejected the request as invalid.
    BadRequest,
    /// The provider declined for policy reasons.
    Refused,
    /// The connection failed.
    Network,
    /// The response stream ended early or could not be parsed.
    Truncated,
    /// The connection stayed open, but no bytes came for too long.
    Idle,
    /// A scripted model has no turn left that matches.
    ScriptEnded,
    /// An external worker could not be started, broke its protocol or exited.
    WorkerFailed,
}

impl ModelErrorKind {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            Self::RateLimited | Self::Overloaded | Self::Network | Self::Truncated | Self::Idle => {
                true
            }
            Self::ContextExhausted
            | Self::Authentication
            | Self::OutOfCredit
            | Self::BadRequest
            | Self::Refused
            | Self::ScriptEnded
            | Self::WorkerFailed => false,
        }
    }
}

impl std::fmt::Display for ModelErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ContextExhausted => "context exhausted",
            Self::RateLimited => "rate limited",
            Self::Overloaded => "provider overloaded",
            Self::Authentication => "authentication failed",
            Self::OutOfCredit => "out of credit",
            Self::BadRequest => "request rejected",
            Self::Refused => "refused by the provider",
            Self::Network => "network error",
            Self::Truncated => "incomplete answer",
            Self::Idle => "stream went silent",
            Self::ScriptEnded => "script ended",
            Self::WorkerFailed => "worker failed",
        })
    }
}

/// A model's name, limits and price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// `provider/model`, or `script:FILE`.
    pub name: String,
    /// The context window in tokens, input and output together.
    pub window: u64,
    /// The most output tokens one call may ask for.
    pub max_output: u64,
    /// The price; `None` if unknown, and then only token budgets apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// How much it should reason in this conversation; `None` uses the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
}

/// How much a model should reason before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// The maximum that the provider supports.
    Max,
}

impl ReasoningEffort {
    /// All levels, the lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Max];

    /// Returns the word in files and settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Max => "max",
        }
    }

    /// Reads a level from its word.
    ///
    /// # Errors
    ///
    /// What the word should be.
    pub fn parse(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|effort| effort.as_str() == word);
        known.ok_or_else(|| format!("`{}` is not low, medium, high or max", word.escape_debug()))
    }
}
