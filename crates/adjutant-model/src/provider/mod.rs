//! Providers: who serves models, with which key, and the client that asks them.
//!
//! Start at [`open_model`]. Keys and addresses are handed in with [`ModelSources`]; nothing here looks
//! for them.

mod client;
mod open;
mod sources;

pub use open::{OpenModelError, open_model, open_model_with};
pub use sources::{ModelSources, ProviderConfig};
