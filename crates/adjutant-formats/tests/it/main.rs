//! Integration tests of `adjutant-formats`.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise, and names only the cases it is about"
)]

mod contract;
mod malformed;
mod prds;
mod tasks;
