//! Documents that people and programs write: read with positions, changed without touching other bytes.
//!
//! Owns where the parts of a text stand ([`DocumentNode`], found by [`parse_json`] and [`parse_toml`]), changes as data
//! (`Splice`), and setting one entry of a configuration file ([`jsonc`], [`toml`]). What a change means is the business of those who make it.

pub mod jsonc;
mod node;
mod node_edit;
mod parse;
mod splice;
pub mod toml;

pub use node::{DocumentMember, DocumentNode, NodeKind};
pub use parse::{SyntaxError, parse_json, parse_toml, parse_unique_json, position};
pub(crate) use splice::{Splice, apply};
