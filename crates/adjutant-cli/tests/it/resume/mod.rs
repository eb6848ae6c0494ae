//! `resume`.

mod limits;
mod questions;
mod rebase;
mod workspaces;
