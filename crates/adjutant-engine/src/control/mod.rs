//! Orders to a live run from other processes: a socket in its folder, one JSON object per line.
//!
//! `wire` says what is asked and answered, `server` takes connections beside the loop, `door` is
//! what the loop sees of them, `client` is the other end. Nothing here judges: an order becomes a
//! command like any other and is answered once what it led to is on disk.

mod client;
mod door;
mod server;
mod wire;

pub use client::{Cancelled, ControlError};
pub(crate) use door::Door;
pub(crate) use server::Order;
pub use wire::{Answer, Complaint, Request, RunState};
