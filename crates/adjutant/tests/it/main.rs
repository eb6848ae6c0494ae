//! The library as an embedding program uses it.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod delegation;
mod embedder;
mod examples;
