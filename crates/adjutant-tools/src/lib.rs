//! The tools that an agent may call inside a workspace.
//!
//! Owns the tools, their limits and their descriptions for models. It does not decide which agent may call
//! which tool (`core`'s `decide` does), and it starts no threads: the engine runs each call on its own thread
//! and tells it when to stop. Only `web` uses the network.
//!
//! Start at [`Toolbox::call`]. Invariant: a call never panics and never reads or writes outside the root
//! (except a command whose sandbox the user switched off), and its result is limited in size, masked, and
//! says what was cut.

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
mod overview;
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
pub use overview::{MAX_OVERVIEW_ENTRIES, ProjectOverview, shown, shown_path};
pub use run::{Confinement, ToolAvailability, command_environment};
pub use toolbox::{ApprovedHosts, Toolbox};
pub use web::{Resolver, SearchEndpoint, SystemResolver, WebAccess, WebCaps, WebError};
pub use write::PreparedWrite;
