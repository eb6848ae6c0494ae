//! The runs of one tree: their files, lists of them, and waiting for what happens in one.

mod changes;
pub(crate) mod children;
pub(crate) mod listing;
pub(crate) mod owner;
mod reader;
pub(crate) mod wait;

pub(crate) use reader::{Runs, Seen, Watch, chain};
