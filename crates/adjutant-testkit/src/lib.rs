//! One rig for engine tests: work tree, script, journal, clock and ids, all under control.
//!
//! Ids are seeded, the wall clock is fixed, the journal lives in memory and can be told to
//! fail, the model is a script that records its requests. Run tests with a paused tokio
//! clock. Start at [`Rig::new`].
//!
//! [`AppendTool`] is a tool whose executions can be counted; [`crash_rig`] is a program to be killed,
//! [`leftovers`] one that finds processes which tests leave behind.
//! [`acp_agent`] is a coding agent of another vendor, as a program.
//! For clients of the model APIs there are strict fake servers on loopback; start at [`fake::FakeServer`].
#![expect(clippy::expect_used, reason = "a rig that cannot be built fails the test, loudly")]
#![expect(clippy::wildcard_enum_match_arm, reason = "tests pick the events they ask about")]

pub mod acp_agent;
mod append;
pub mod crash_rig;
pub mod fake;
pub mod leftovers;
mod model;
mod rig;

pub use append::AppendTool;
pub use model::{ModelRequest, RecordingModel};
pub use rig::{Rig, RunTrace};
