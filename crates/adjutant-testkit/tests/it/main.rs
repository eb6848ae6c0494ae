//! Integration tests of `adjutant-testkit`: the fakes, tried with hand-written HTTP.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

mod acp_agent;
mod anthropic;
mod binary;
mod chat;
mod connections;
mod delivery;
mod faults;
mod gemini;
mod leftovers;
mod responses;
mod rig;
mod script;
