//! The pure heart of Adjutant: what is allowed, what happened, what follows.
//!
//! Holds the policy, the delegation tree, budgets, the return contract and the marker parser.
//! It knows no file, no clock, no thread and no chance: time enters as [`Timestamp`], ids are
//! made elsewhere, effects leave as data. Start at `Tree::decide`, the only place that can say no.

pub mod code;
pub mod contract;
mod excerpt;
pub mod ids;
pub mod marker;
pub mod message;
pub mod money;
pub mod propagation;
pub mod schema;
pub mod time;
pub mod usage;

pub use code::Code;
pub use ids::{AgentName, Label, RunId, SessionId};
pub use message::{
    Attempt, AttemptError, ErrorKind, Message, ModelSpec, Reply, StopReason, ToolCall, ToolSpec,
};
pub use money::{Price, Usd};
pub use time::Timestamp;
pub use usage::Usage;
