//! Strict fake servers of four model APIs, on loopback.
//!
//! Each is written from its API's documentation and shares no serialisation code with the clients
//! that are tried against it. It refuses what the real API refuses, with the API's own error body,
//! plays a [`Script`], and keeps every request. Hand-written HTTP/1.1 on tokio, so that it is light
//! enough to be the model of a benchmark. Start at [`FakeServer`].
//!
//! Invariant: what is answered follows from the request and the script alone, save for
//! [`Turn::first`], which counts how often one turn of one conversation was asked for.

mod anthropic;
mod api;
mod chat;
mod clock;
mod delivery;
mod gemini;
mod http;
mod json;
mod log;
mod openai;
mod provider;
mod responses;
mod script;
mod server;
mod sse;
mod turn;

pub use api::Api;
pub use log::{DeliveryOutcome, RecordedRequest};
pub use script::{Conversation, Script};
pub use server::{FakeServer, KEY, RunningServer};
pub use turn::{Call, Delivery, Fault, FaultClass, Garbage, Part, RawAnswer, Stop, Turn, Usage};
