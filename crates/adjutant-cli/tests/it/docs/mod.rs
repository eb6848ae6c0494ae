//! The documentation: what it tells people to type, its tables and its schemas.

mod commands;
mod links;
mod mcp;
mod messages;
mod pages;
pub(crate) mod reference;
mod schemas;
mod stories;
mod story_examples;
mod workers;
mod workspaces;
