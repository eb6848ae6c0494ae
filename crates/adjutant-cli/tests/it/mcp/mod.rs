//! `mcp`.

mod allowance;
mod apart;
mod approval;
pub(crate) mod begin;
mod delegating;
mod eras;
mod hostile;
mod http;
mod install;
mod lists;
mod presets;
mod process_tree;
mod resources;
mod rounds;
mod whole_run;
mod writers;
