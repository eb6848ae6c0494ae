//! Beginning the run that a call asks for: which calls are equal, and the process that carries the run.

mod calls;
pub(crate) mod canonical;
mod contexts;
pub(crate) mod detach;
pub(crate) mod handover;
pub(crate) mod jobs;
mod launch;
pub(crate) mod starter;
