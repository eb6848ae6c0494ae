//! `commands` and `run "/NAME …"`: slash commands.

mod bad_files;
mod ends;
mod errors_file;
mod flow;
mod implement;
mod task;
mod typed;
