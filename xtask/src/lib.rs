//! Checks of the cargo workspace itself. They are in `tests/tidy.rs` and run with all other tests.
