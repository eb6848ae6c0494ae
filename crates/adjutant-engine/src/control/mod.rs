//! Orders to a live run from other processes: a socket in its folder, one JSON object per line.
//!
//! `wire` says what is asked and answered, `server` takes connections beside the loop, `listener` is
//! what the loop sees of them, `client` is the other end. Nothing here judges: an order becomes a
//! command like any other and is answered once what it led to is on disk.

mod client;
mod listener;
mod server;
mod wire;

pub use client::{CancelOutcome, ControlError};
pub(crate) use listener::ControlListener;
pub(crate) use server::QueuedRequest;
pub use wire::{ControlAnswer, ControlRefusal, ControlRequest, RunState};
