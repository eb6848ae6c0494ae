//! Integration tests of `adjutant-view`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod approval;
mod command;
mod continuations;
mod cost;
mod cost_sums;
mod delegations;
mod error_groups;
mod errors;
mod eval;
mod events;
mod history;
mod layout;
mod log;
mod progress;
mod properties;
mod results;
mod run;
mod sanitize;
mod schemas;
mod spaces;
mod status;
mod story;
mod terminal_markdown;
mod time_text;
mod timeline;
mod transcript;
mod tree;
mod workers;
