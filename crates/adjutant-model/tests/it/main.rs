//! Integration tests of `adjutant-model`.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

mod examples;
mod faults;
mod malformed;
mod placeholders;
mod rig;
mod selection;
mod turns;
