//! Providers: their addresses and keys, and the client that sends requests to them.
//!
//! Start at [`open_model`]. The caller passes keys and addresses in [`ModelSources`]; nothing here searches
//! for them.

mod client;
mod open;
mod sources;

pub use open::{OpenModelError, open_model, open_model_with};
pub use sources::{ModelSources, ProviderConfig};
