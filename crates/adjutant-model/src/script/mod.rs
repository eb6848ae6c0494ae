//! The scripted model, which takes its turns from a file instead of a provider.
//!
//! Used by the demo, by tests, and by users who test a policy offline. The file is parsed by
//! `adjutant-formats`, read by `entry` (what a turn means), indexed by `select` (which turn answers which
//! request) and answered by `scripted_model`.
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
