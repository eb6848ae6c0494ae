//! Changing a part of a text and leaving every other byte alone.
//!
//! Owns changes as data ([`Splice`]) and where the parts of a JSON text stand ([`spans`]). What a
//! change means is the business of those who make it: `task` and `prd`.

mod json;
pub mod jsonc;
mod splice;

pub(crate) use json::{Node, spans};
pub(crate) use splice::{Splice, apply};
