//! The pure heart of Adjutant: what is allowed, what happened, what follows.
//!
//! Holds the policy, the delegation tree, budgets, the return contract and the marker parser.
//! It knows no file, no clock, no thread and no chance: time enters as [`Timestamp`], ids are
//! made elsewhere, effects leave as data. Start at [`Tree::decide`], the only place that can say no.

pub mod assignment;
pub mod brief;
pub mod budget;
pub mod check;
pub mod code;
pub mod command;
pub mod contract;
pub mod conversation;
pub mod domain;
pub mod event;
mod excerpt;
pub mod fingerprint;
pub mod graph;
pub mod ids;
pub mod json;
pub mod marker;
pub mod message;
pub mod money;
mod nearest;
pub mod numbers;
pub mod outcome;
pub mod policy;
pub mod prd;
pub mod propagation;
pub mod refusal;
pub mod rights;
pub mod schema;
mod secret;
pub mod space;
mod splice;
pub mod story;
pub mod task;
pub mod time;
pub mod tree;
pub mod undo;
pub mod usage;
pub mod write;

pub use assignment::{Assignment, Mark};
pub use brief::{Brief, ContextFile, Found, Task};
pub use code::Code;
pub use command::{Command, Effect, Reaction, Resumption};
pub use conversation::Conversation;
pub use domain::HostSet;
pub use event::{Event, Grant, IllegalEvent, Nudge, Origin, ToolOutput};
pub use ids::{AgentName, Label, RunId, SessionId};
pub use message::{
    Attempt, AttemptError, ErrorKind, Message, ModelSpec, Reply, StopReason, ToolCall, ToolSpec,
};
pub use money::{Price, PriceOverride, Usd};
pub use nearest::nearest;
pub use outcome::{Outcome, Reason, State};
pub use policy::{Layered, Policy, Preset, Source};
pub use refusal::{Refusal, Untold};
pub use rights::{Rights, ToolSet};
pub use secret::Secret;
pub use splice::jsonc;
pub use time::Timestamp;
pub use tree::{Node, Tree};
pub use usage::Usage;
pub use write::{Change, Looked, Writes, content_hash};
