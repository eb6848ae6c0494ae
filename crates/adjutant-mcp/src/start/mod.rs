//! Beginning the run that a call asks for: which calls are equal, and the process that carries the run.

pub(crate) mod call_hash;
mod calls;
mod context_files;
pub(crate) mod detach;
pub(crate) mod handover;
mod launch;
pub(crate) mod requested_run;
pub(crate) mod starter;
