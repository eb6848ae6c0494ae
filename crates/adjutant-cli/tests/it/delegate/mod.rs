//! `delegate`.

mod apis;
mod approval;
mod bad_calls;
mod bad_files;
mod bad_limits;
mod bad_models;
mod exits;
mod flags;
mod git_dirs;
mod live;
mod notifications;
mod other_vocabulary;
mod prompt;
mod prompt_editor;
mod replay;
pub(crate) mod signals;
mod subfolder;
mod toolchains;
mod verify;
mod wide_root;
mod workspace_fails;
mod workspace_inside;
mod workspace_refused;
mod write;

pub(crate) use flags::{FETCHES, SCRIPT, rig};
