//! Integration tests of `adjutant-engine`, on a paused clock, with everything in memory.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests pick the events they ask about")]

mod archive;
mod bad_input;
mod continuations;
mod control;
mod crashes;
mod cuts;
mod disk;
mod domains;
mod efforts;
mod faults;
mod flow;
mod formats;
mod guidance;
mod lead;
mod limits;
mod live;
mod misbehaviour;
mod own_tools;
mod prd;
mod prefixes;
mod providers;
mod registry;
mod replay;
mod resume;
mod roles;
mod roster;
mod slash;
mod specs;
mod specs_errors;
mod time;
mod workspace_facts;
mod workspace_rig;
mod workspaces;
mod workspaces_resume;
mod writes;
