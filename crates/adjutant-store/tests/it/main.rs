//! Integration tests of `adjutant-store`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod checkpoint;
mod control;
mod damage;
mod failures;
mod groups;
mod home;
mod locking;
mod pruning;
mod reading;
mod recovery;
mod reserve;
mod rig;
mod speed;
mod writing;
