//! The MCP server: delegation under limits for any MCP client.
//!
//! The server is a front end. It does not execute runs itself: each run lives in its own process outside the
//! server's process tree, and the server reads the run's journal and talks to its control socket like any
//! other process. Killing the client or the server therefore does not end a run; its id is the handle to find
//! it again. No tool can approve a call, widen rights, or choose the directory or the keys: the person who
//! starts the server fixes these, and the run's process enforces them.
//!
//! Start at [`serve`]. Invariant: every line of standard output is a protocol message, whatever other code
//! prints.

mod answer;
mod approval;
mod client_call;
mod clients;
mod merging;
#[cfg(test)]
mod planted_files;
mod prompts;
mod reports;
mod resources;
mod runs;
mod server;
mod start;
mod tasks;
mod tool_calls;
mod tools;
mod transport;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use adjutant_core::Policy;
use adjutant_core::schema::CallLimits;
use adjutant_engine::Archive;
use adjutant_engine::roster::UserFolders;

pub use approval::{ApprovalMode, MergeApproval};
pub use clients::{KnownClient, SERVER, detach_after};
pub use server::{ServeError, serve};
pub use start::detach::start_detached_if_asked;
pub use start::handover::LaunchHandover;
pub use transport::http::{
    BearerToken, HttpOptions, HttpServer, TOKEN_VARIABLE, TokenError, serve_handler,
};

/// The settings a person chose when they started the server.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// Where runs are stored.
    pub archive: Archive,
    /// The directory tree in which all runs work. Runs of other trees are hidden from clients.
    pub root: PathBuf,
    /// The program that the server starts for each run.
    pub program: PathBuf,
    /// Arguments placed after the subcommand of every run's process. They make it print events.
    pub arguments: Vec<OsString>,
    /// Additional arguments for `Delegate` calls only; slash commands and stories bring their own presets.
    pub task_arguments: Vec<OsString>,
    /// Additional arguments for `delegate_write` calls only: what workspaces contain and commands may read.
    pub write_arguments: Vec<OsString>,
    /// Whether a run ends when the server that started it ends.
    pub ends_with_server: bool,
    /// Where git is looked up, in the format of `PATH`.
    pub search: OsString,
    /// The limits of one call.
    pub limits: CallLimits,
    /// What happens to a call that needs approval.
    pub approval: ApprovalMode,
    /// Who approves that results are merged into the user's files.
    pub merge_approval: MergeApproval,
    /// The policy of the server's flags and the person's configuration, for questions that no run asks.
    pub policy: Policy,
    /// Whether the server asks the person through the client, if the client supports it.
    pub asks_client: bool,
    /// How long a call may block before it is answered with a handle. `None` chooses by the client's name.
    pub detach_after: Option<Duration>,
    /// The maximum size of a result, text and data together. `None` chooses by the client's name.
    pub result_bytes: Option<usize>,
    /// The directories that contain the user's slash commands.
    pub command_folders: UserFolders,
    /// The program name at the start of commands that messages recommend.
    pub program_name: String,
    /// Set if delegation is refused altogether: the message that every call gets.
    pub refusal: Option<String>,
    /// The version reported to clients.
    pub version: String,
}
