//! The `adjutant` command as its users meet it: the real binary, its output, its exit codes and
//! the files it leaves behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod agents;
mod apis;
mod approval;
mod bad_calls;
mod bad_files;
mod bad_limits;
mod bad_models;
mod bad_stores;
mod commands;
mod control;
mod control_socket;
mod delegate;
mod demo;
mod errors;
mod exits;
mod full_disk;
mod help;
mod hostile;
mod injection;
mod journal;
mod kills;
mod leftovers;
mod live;
mod pipes;
mod pure;
mod records;
mod redact;
mod replay;
mod rig;
mod running;
mod sandbox;
mod schema;
mod schema_outputs;
mod server;
mod signals;
mod tasks;
mod terminal;
mod undo;
mod watch;
