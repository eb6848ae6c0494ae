//! Integration tests of `adjutant-store`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod checkpoint;
mod control;
mod damage;
mod failures;
mod fixture;
mod groups;
mod locking;
mod pruning;
mod reading;
mod recovery;
mod reserve;
mod speed;
mod state_dir;
mod writing;
