//! One rig for engine tests: work tree, script, journal, clock and ids, all under control.
//!
//! Ids are seeded, the wall clock stands still, the journal lives in memory and can be told to
//! fail, the model is a script that remembers what it was sent. Run tests with a paused tokio
//! clock. Start at [`Rig::new`].
//!
//! [`Append`] is a tool whose executions can be counted; [`crash_rig`] is a program to be killed,
//! [`leftovers`] one that finds processes which tests leave behind.
//! For clients of real APIs there are strict servers of them on loopback; start at [`fake::Fake`].
#![expect(clippy::expect_used, reason = "a rig that cannot be built fails the test, loudly")]
#![expect(clippy::wildcard_enum_match_arm, reason = "tests pick the events they ask about")]

mod append;
pub mod crash_rig;
pub mod fake;
pub mod leftovers;
mod model;
mod rig;

pub use append::Append;
pub use model::{Request, Watched};
pub use rig::{Rig, Story};
