//! JSON and TOML documents: parsing with positions, and edits that leave all other bytes alone.
//!
//! Owns the positions in a text ([`DocumentNode`], made by [`parse_json`] and [`parse_toml`]), edits as data
//! (`Splice`), and edits of one entry of a configuration file ([`jsonc`], [`toml`]). It does not know what a
//! document means.

pub mod jsonc;
mod node;
mod node_edit;
mod parse;
mod splice;
pub mod toml;

pub use node::{DocumentMember, DocumentNode, NodeKind};
pub use parse::{SyntaxError, parse_json, parse_toml, parse_unique_json, position};
pub(crate) use splice::{Splice, apply};
