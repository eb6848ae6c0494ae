//! Shared test support: the rig, processes, terminals, servers, repositories, and checks of output.

pub(crate) mod journal;
pub(crate) mod mcp_client;
pub(crate) mod mcp_http;
pub(crate) mod project;
pub(crate) mod redact;
pub(crate) mod repository;
pub(crate) mod rig;
pub(crate) mod running;
pub(crate) mod schema;
pub(crate) mod server;
pub(crate) mod terminal;
