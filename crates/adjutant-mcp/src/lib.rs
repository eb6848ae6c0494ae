//! The MCP server: bounded delegation for any client of the protocol.
//!
//! A front end. It carries no run itself: each lives in a process of its own, outside the server's process
//! tree, and the server reads its journal and speaks to its control socket like any other process.
//! Killing the client or the server therefore ends no run, and the handle is the run's id. No tool
//! can approve, widen rights or choose where and with which keys work is done: that is fixed by the
//! person who starts the server, and judged by the process that carries the run.
//!
//! Start at [`serve`]. Invariant: whatever anyone prints, every line of standard output is a message
//! of the protocol.

mod answer;
mod approval;
mod client_call;
mod clients;
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

use adjutant_core::schema::CallLimits;
use adjutant_engine::Archive;
use adjutant_engine::roster::UserFolders;

pub use approval::ApprovalMode;
pub use clients::{KnownClient, SERVER, detach_after};
pub use server::{ServeError, serve};
pub use start::detach::start_detached_if_asked;
pub use start::handover::LaunchHandover;
pub use transport::http::{
    BearerToken, HttpOptions, HttpServer, TOKEN_VARIABLE, TokenError, serve_handler,
};

/// What a person decided when they started the server.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// The runs.
    pub archive: Archive,
    /// The tree all work is done in; runs of other trees are not seen.
    pub root: PathBuf,
    /// The program that carries a run.
    pub program: PathBuf,
    /// Its arguments behind the subcommand, for whatever is begun; it prints events.
    pub arguments: Vec<OsString>,
    /// Further ones where it is a call of `Delegate`: commands and stories have presets of their own.
    pub task_arguments: Vec<OsString>,
    /// Whether a run ends with the server that began it.
    pub ends_with_server: bool,
    /// Where git is looked for, as in the value of `PATH`.
    pub search: OsString,
    /// The bounds of one call.
    pub limits: CallLimits,
    /// What becomes of a call that needs approval.
    pub approval: ApprovalMode,
    /// Whether a client that can is made to ask.
    pub asks_client: bool,
    /// How long a call may keep its client waiting before it is answered with a handle; where that
    /// is not said, it depends on the client.
    pub detach_after: Option<Duration>,
    /// The most bytes of a result, text and data together; where that is not said, it depends on the client.
    pub result_bytes: Option<usize>,
    /// The folders in which the person keeps slash commands.
    pub command_folders: UserFolders,
    /// How commands that are recommended begin.
    pub program_name: String,
    /// Why nothing may be delegated, where that is so.
    pub refusal: Option<String>,
    /// The version that clients are told.
    pub version: String,
}
