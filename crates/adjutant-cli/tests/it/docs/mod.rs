//! The documentation: what it tells people to type, its tables and its schemas.

mod commands;
mod mcp;
mod schemas;
mod stories;
mod story_examples;
mod workers;
mod workspaces;
