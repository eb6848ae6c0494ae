//! The conversation between an agent and its model, in one provider-neutral form.
//!
//! Everything here is data that can be journaled and replayed. How a provider spells it on the
//! wire is the model crate's business.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::money::Price;
use crate::usage::Usage;

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the agent is asked or told.
    User {
        /// The text, markdown or plain.
        content: String,
    },
    /// What the model answered.
    Assistant {
        /// Its text; empty when it only called tools.
        content: String,
        /// The tools it asked for, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// What the provider must get back verbatim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// What a tool gave back for one call.
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

/// A model's wish to use a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for the call; unique within its turn.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; `Err` text is kept as a JSON string when they were not valid JSON.
    pub arguments: Value,
    /// Whether the arguments could not be parsed; such a call is answered with an error, not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub malformed: bool,
}

/// A tool as a model is shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name a call uses.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// Why a model stopped writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It said what it had to say.
    EndTurn,
    /// It waits for tool results.
    ToolUse,
    /// It was cut off at the output limit: the text is no finished answer, its calls are not run.
    MaxOutput,
    /// The provider or the model declined to answer.
    Refused,
}

/// A complete answer of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text; may be empty next to tool calls.
    pub text: String,
    /// The tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What the provider must get back verbatim: signed thinking, encrypted reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
    /// What the provider says it consumed; `None` when it said nothing.
    pub usage: Option<Usage>,
}

/// What became of one model call.
pub type AttemptResult = Result<ModelReply, AttemptError>;

/// A model call that gave no complete answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{kind}: {message}")]
pub struct AttemptError {
    /// The class of the error, which decides what happens next.
    pub kind: ModelErrorKind,
    /// A sentence for people: no key, no header, no body.
    pub message: String,
    /// How long the provider asked us to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether the provider never began to work on the call, so that the attempt costs nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
}

/// The classes of model errors that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// The conversation no longer fits the model's window.
    ContextExhausted,
    /// Too many requests; try later.
    RateLimited,
    /// The provider is overloaded or broke down; try later.
    Overloaded,
    /// The key is missing, wrong or not allowed.
    Authentication,
    /// The account has no credit or quota left, or reached a spend limit.
    OutOfCredit,
    /// The request itself was rejected.
    BadRequest,
    /// The provider declined for policy reasons.
    Refused,
    /// The connection could not be made or broke.
    Network,
    /// The stream ended early or made no sense.
    Truncated,
    /// The connection stayed open and nothing came for too long.
    Idle,
    /// A scripted model has no turn left that fits.
    ScriptEnded,
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
            | Self::ScriptEnded => false,
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
        })
    }
}

/// What a model can hold and what it charges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// `provider/model`, or `script:FILE`.
    pub name: String,
    /// Tokens the window holds, input and output together.
    pub window: u64,
    /// The most output tokens one call may ask for.
    pub max_output: u64,
    /// What it charges; `None` when unknown, and then only the token caps bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}
