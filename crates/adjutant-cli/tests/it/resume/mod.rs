//! `resume`.

mod limits;
mod workspaces;
