//! The pure heart of Adjutant: what is allowed, what happened, what follows.
//!
//! Holds the policy, the delegation tree and budgets; the texts it judges are read by `adjutant-formats`.
//! It knows no file, no clock, no thread and no chance: time enters as [`Timestamp`], ids are
//! made elsewhere, effects leave as data. Start at [`Tree::decide`], the only place that can say no.

pub mod assignment;
pub mod brief;
pub mod budget;
pub mod check;
pub mod command;
pub mod conversation;
pub mod domain;
pub mod event;
pub mod fingerprint;
pub mod graph;
pub mod message;
pub mod policy;
pub mod propagation;
pub mod refusal;
pub mod registry;
pub mod rights;
pub mod schema;
mod secret;
pub mod space;
pub mod story;
pub mod tree;
pub mod undo;
pub mod write;

pub use adjutant_formats::{
    AgentName, Code, Label, Outcome, Price, PriceOverride, Reason, RunId, SessionId, State,
    Timestamp, Usage, Usd, nearest,
};
pub use adjutant_formats::{code, ids, money, numbers, outcome, time, usage};
pub use assignment::{Assignment, Mark};
pub use brief::{Brief, ContextFile, Found, Task};
pub use command::{Command, Effect, Reaction, Resumption};
pub use conversation::Conversation;
pub use domain::HostSet;
pub use event::{Event, Grant, IllegalEvent, Nudge, Origin, ToolOutput};
pub use message::{
    Attempt, AttemptError, ErrorKind, Message, ModelSpec, Reply, StopReason, ToolCall, ToolSpec,
};
pub use policy::{Layered, Policy, Preset, Source};
pub use refusal::{Refusal, Untold};
pub use registry::{Registry, RegistryCommand, RegistryEvent, RegistryRefusal};
pub use rights::{Rights, ToolSet};
pub use secret::Secret;
pub use tree::{Node, Tree};
pub use write::{Change, Looked, Writes, content_hash};
