//! `resume`.

mod limits;
mod rebase;
mod workspaces;
