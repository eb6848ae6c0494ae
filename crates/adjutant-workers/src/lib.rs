//! Other agents as workers: finds them, starts them in the sandbox, and meters their model calls.
//!
//! [`Workers`] is the engine's `WorkerHost`. Each delegation of a worker has its own `gateway`, which is the only
//! address its sandbox can reach: it asks the core before each model call, forwards the call with the real key, and
//! settles it by the usage that the provider reports. `acp` speaks the Agent Client Protocol with the agent over its
//! standard input and output.
//!
//! Start at [`Workers::new`]. Invariants: no key enters a worker's environment; a worker's process ends with its
//! delegation.

mod acp;
mod definition;
mod find;
mod gateway;
mod host;
mod process;
mod terminal;

pub use definition::{BUILT_IN, WorkerDefinition, WorkerProtocol};
pub use find::{FoundWorker, WorkerPaths};
pub use host::{WorkerState, Workers};
pub use terminal::{TerminalProgram, TerminalResult};
