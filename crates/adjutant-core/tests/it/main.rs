//! Integration tests of `adjutant-core`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise, and names only the events it is about"
)]

mod admission;
mod continuation_properties;
mod handovers;
mod histories;
mod lifecycle;
mod policy;
mod prd_config;
mod properties;
mod registry;
mod registry_stories;
mod restarts;
mod sim;
mod story_properties;
mod tool_calls;
mod worker_calls;
mod worker_properties;
