//! Providers: their addresses and keys, and the client that sends requests to them.
//!
//! Start at [`open_model`]. The caller passes keys and addresses in [`ModelSources`]; nothing here searches
//! for them.

mod client;
mod listing;
mod open;
mod sources;

pub(crate) use client::{connection_error, head, requested_wait, send_error};
pub use open::{OpenModelError, open_model, open_model_with};
pub(crate) use open::{base_url, endpoint, find_provider, headers, is_official};
pub(crate) use sources::SharedConnections;
pub use sources::{ModelSources, ProviderConfig};
