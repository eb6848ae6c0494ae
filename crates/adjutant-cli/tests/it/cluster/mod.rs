//! Runs on a Restate server with several workers, which are killed while they work.
//!
//! `tests/cluster/run` installs the server and names it in `ADJUTANT_RESTATE_SERVER`; without it nothing here is checked,
//! and each test says so.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "says what was checked, and what was not"
)]

mod bad_input;
mod faults;
mod long;
mod node;
mod runs;
mod scenarios;
mod stores;
