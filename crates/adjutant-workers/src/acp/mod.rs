//! A client of the Agent Client Protocol, version 1: JSON-RPC 2.0, one message a line.
//!
//! Only what a worker needs: open or load a session, prompt, answer permission requests, cancel. The messages are read
//! as plain JSON, because agents send fields and notifications of their own; `updates` turns those that are known into
//! actions. Start at [`AcpClient::open`].
//!
//! Written here instead of using the protocol's crate: its transport reads lines and queues messages without a bound,
//! so a worker could fill the memory.

mod connection;
mod session;
mod updates;

pub(crate) use session::{AcpClient, SessionPlan};
