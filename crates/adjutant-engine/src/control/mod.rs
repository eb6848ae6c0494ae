//! Requests to a live run from other processes: a Unix socket in its directory, one JSON object per line.
//!
//! `wire` has the messages, `server` accepts connections, `listener` is the run loop's side, `client` sends
//! requests. Nothing here decides: a request becomes a command of the core and is answered once the events
//! are durable.

mod client;
mod listener;
mod server;
mod wire;

pub use client::{CancelOutcome, ControlError};
pub(crate) use listener::ControlListener;
pub(crate) use server::QueuedRequest;
pub use wire::{ControlAnswer, ControlRefusal, ControlRequest, RunState};
