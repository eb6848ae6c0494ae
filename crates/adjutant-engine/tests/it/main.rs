//! Integration tests of `adjutant-engine`, on a paused clock, with everything in memory.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests pick the events they ask about")]

mod bad_input;
mod crashes;
mod cuts;
mod faults;
mod flow;
mod lead;
mod limits;
mod live;
mod own_tools;
mod providers;
mod replay;
mod resume;
mod time;
