//! Integration tests of `adjutant-model`.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

mod catalogue;
mod examples;
mod exchange;
mod fakes;
mod faults;
mod gateway;
mod golden;
mod malformed;
mod placeholders;
mod requests;
mod rig;
mod selection;
mod server;
mod streams;
mod strict;
mod turns;
