//! What the screen shows and what keys do, without a terminal.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
#[expect(dead_code, reason = "the tests of the view use the rest")]
#[path = "../../../adjutant-view/tests/it/history.rs"]
mod history;
mod keys;
mod states;
