//! Integration tests of `adjutant-engine`, on a paused clock, with everything in memory.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests pick the events they ask about")]

mod archive;
mod bad_input;
mod crashes;
mod flow;
mod lead;
mod limits;
mod providers;
mod replay;
mod time;
