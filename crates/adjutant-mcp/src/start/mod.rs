//! Starts the run that a call requests: finds the run of an equal call, or starts a process for a new one.

pub(crate) mod call_hash;
mod calls;
mod context_files;
pub(crate) mod detach;
pub(crate) mod handover;
mod launch;
pub(crate) mod requested_run;
pub(crate) mod starter;
