//! Documents that people and programs write: read with positions, changed without touching other bytes.
//!
//! Owns where the parts of a JSON text stand ([`Node`], found by [`parse_json`]), whole documents of either format
//! ([`PositionedValue`]), changes as data (`Splice`), and setting one entry of a configuration file ([`jsonc`], [`toml`]). What a change means is the business of those who make it.

mod change;
pub mod jsonc;
mod node;
mod parse;
mod positioned;
mod splice;
pub mod toml;

pub use node::{Kind, Member, Node};
pub use parse::{SyntaxError, parse_json};
pub use positioned::{DocumentError, PositionedKey, PositionedKind, PositionedValue};
pub(crate) use splice::{Splice, apply};
