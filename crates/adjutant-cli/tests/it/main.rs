//! Tests of the `adjutant` binary: its output, its exit codes and the files it writes. One directory per command.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod agents;
mod approvals;
mod check;
#[cfg(feature = "restate")]
mod cluster;
mod commands;
mod control;
mod delegate;
mod demo;
mod docs;
mod eval;
mod help;
mod hostile;
mod kills;
mod mcp;
mod merge;
mod naming;
mod records;
mod resume;
mod run;
mod setup;
mod state;
mod story;
mod support;
mod task;
mod undo;
mod watch;
mod workers;
