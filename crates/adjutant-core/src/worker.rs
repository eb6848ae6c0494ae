//! External agents as workers: the terms of their work, and the model calls that they make.
//!
//! A worker is another agent program, such as Claude Code or Codex. It takes its own turns and uses its own tools; what
//! Adjutant decides about are its prompts and every model call, which it can only make through the gateway.
//!
//! [`WorkerTerms`] belong to the definition of an agent. A [`WorkerCallRequest`] is a model call that the worker wants
//! to make; a [`CallRefusal`] says why it may not, and a [`WorkerCallEnd`] how an admitted call ended. A
//! [`WorkerAction`] is what the worker reports about its work, and a [`WorkerUsageReport`] what it says it has used.

use serde::{Deserialize, Serialize};

use crate::message::ModelSpec;
use crate::money::Usd;

/// How many model calls in a row may be refused or fail before the worker is ended.
pub const FAILED_CALLS_IN_A_ROW: u32 = 20;

/// The external agent that does the work of an agent definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTerms {
    /// The name of the worker, as in `--worker NAME`.
    pub name: String,
    /// Where it runs.
    pub place: WorkerPlace,
    /// The models that it may call beside the model of its task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_models: Vec<ModelSpec>,
    /// Why it cannot be used here; its tasks are refused with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerPlace {
    /// In a workspace of its own, in the sandbox.
    Workspace,
    /// Where the person started it: only its model calls are bounded (`adjutant gateway`).
    Terminal,
}

/// A model call that a worker wants to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCallRequest {
    /// The model that the request names, without its provider.
    pub model: String,
    /// An upper estimate of the input tokens.
    pub input_bound: u64,
    /// The output tokens that the request asks for at most; `None` if it names no limit.
    pub requested_output: Option<u64>,
    /// What the gateway removed from the request, such as tools that run at the provider.
    pub removed: Vec<String>,
    /// Why the gateway cannot forward the request; it is refused with this text.
    pub problem: Option<String>,
}

/// Why a model call of a worker was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum CallRefusal {
    /// The rest of a budget does not pay for the call.
    #[error("budget exhausted")]
    Budget,
    /// The model is not one that the delegation may use.
    #[error("model {model} is not allowed here")]
    Model {
        /// The model that was asked for.
        model: String,
    },
    /// The agent's definition allows no further model call.
    #[error("all {max} model calls that the agent's definition allows were made")]
    Calls {
        /// The limit.
        max: u32,
    },
    /// The request needs something that is not available.
    #[error("{problem}")]
    Request {
        /// What is not available.
        problem: String,
    },
    /// The worker has no open prompt: it was not given one yet, has answered it, or has ended.
    #[error("no prompt is open")]
    NoPrompt,
}

/// How an admitted model call of a worker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum WorkerCallEnd {
    /// The answer arrived completely.
    Complete,
    /// The answer was cut off at the output limit.
    Cut,
    /// The provider or the connection to it failed.
    Failed {
        /// What failed, for people.
        message: String,
    },
    /// The worker closed the connection before the end, or the delegation ended.
    Abandoned,
}

/// One thing that a worker reports about its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum WorkerAction {
    /// It wrote text.
    Said {
        /// The text.
        text: String,
    },
    /// A tool call of its own began or changed.
    Tool {
        /// The worker's id of the call.
        id: String,
        /// What it does, in the worker's words.
        title: String,
        /// How far it is.
        status: WorkerToolStatus,
    },
    /// It asked for a permission, which was answered.
    Permission {
        /// What it asked for.
        title: String,
        /// Whether it was allowed.
        allowed: bool,
    },
}

/// How far a tool call of a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerToolStatus {
    /// It has begun.
    Begun,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
}

/// What a worker itself says it has used. It is shown beside the bill and never counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerUsageReport {
    /// Its tokens, input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
}

/// How the session of a worker was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerSessionStart {
    /// A new session.
    New,
    /// An earlier session of the same delegation was loaded.
    Loaded,
    /// A new session that was told what the earlier one did, because that one could not be loaded.
    Retold,
}
