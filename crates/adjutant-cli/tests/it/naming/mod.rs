//! How runs and subagents are named, across commands.

mod latest_run;
mod names;
