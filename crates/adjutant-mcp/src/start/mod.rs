//! Beginning the run that a call asks for: which calls are equal, and the process that carries the run.

pub(crate) mod begin;
pub(crate) mod calls;
pub(crate) mod canonical;
pub(crate) mod contexts;
pub(crate) mod detach;
pub(crate) mod handover;
pub(crate) mod jobs;
pub(crate) mod launch;
