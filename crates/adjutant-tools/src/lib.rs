//! What an agent may call, acting inside a workspace.
//!
//! Owns what the tools do, their limits, and what a model is told about both. It does not decide
//! which agent may call what (that is `core`'s `decide`), and it owns no thread: the engine runs a
//! call on one of its own and says when to stop. The network is in `web`, and only there.
//!
//! Start at [`Toolbox::call`]. Invariant: a call never panics, never reads or writes outside the root (a command
//! does where a person took its sandbox away), and what it returns is capped, masked, and says where it was cut.

mod args;
mod caps;
mod context;
mod custom_tools;
mod edit;
mod file_matches;
mod glob;
mod glob_pattern;
mod grep;
mod ignore_rules;
mod line_reader;
mod mask;
mod name;
mod note;
mod output;
mod quote;
mod read;
mod run;
mod show;
mod spec;
mod toolbox;
mod walk;
mod web;
mod write;

pub use caps::ToolCaps;
pub use context::{
    CONTEXT_CAP_BYTES, ContextFileContent, ContextFileError, ContextFileState, load_context,
    render_context,
};
pub use custom_tools::CustomTool;
pub use mask::Masker;
pub use name::ToolName;
pub use output::ToolCallResult;
pub use run::Confinement;
pub use toolbox::{ApprovedHosts, Toolbox};
pub use web::{Resolver, SearchEndpoint, SystemResolver, WebAccess, WebCaps, WebError};
pub use write::PreparedWrite;
