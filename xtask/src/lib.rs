//! Checks on the workspace itself; they live in `tests/tidy.rs` and run with every other test.
