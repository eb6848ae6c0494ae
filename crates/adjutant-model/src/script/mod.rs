//! The scripted model: turns from a file instead of a provider.
//!
//! It is the demo's model, the tests' model, and a way for users to prove their own policy
//! offline. The file is read by `adjutant-formats` as values with places and goes through `entry` (what
//! they mean), `select` (who is answered what) and `scripted` (the answer).
//!
//! Start at [`ScriptedModel::load`].

mod call;
mod entry;
mod error;
mod pattern;
mod placeholder;
mod scripted_model;
mod select;
mod template;

pub use error::{ScriptError, ScriptPosition};
pub use scripted_model::ScriptedModel;
