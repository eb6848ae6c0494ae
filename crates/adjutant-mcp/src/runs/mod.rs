//! The runs of one tree: reading, listing, and waiting for them.

mod directory_watcher;
pub(crate) mod listing;
pub(crate) mod owner;
mod reader;
pub(crate) mod run_processes;
pub(crate) mod wait;

pub(crate) use reader::{RunSnapshot, RunWatch, VisibleRuns, error_chain};
