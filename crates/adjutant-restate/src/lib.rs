//! Runs of Adjutant on a Restate cluster: the same core and the same engine, on several machines.
//!
//! A run is a virtual object that decides and records (`object`). Workers perform its effects with the engine's own
//! interpreter (`replica`, `worker`). A front end starts runs and follows them into an ordinary run directory
//! ([`ClusterRuntime`]). No type of the SDK leaves this crate.
//!
//! Start at [`ClusterRuntime`] for the front end, at [`ClusterWorker`] for the other side. Invariant: what a run is, is decided by
//! [`adjutant_core::Tree`] alone; this crate carries inputs and events.

mod client;
mod cluster;
mod fold;

mod link;
mod object;
mod placement;
mod replica;
mod request_signature;
mod runtime;
mod store;
mod wire;
mod worker;

pub use client::{Admin, CallError, Ingress};
pub use replica::{PerformerFactory, PerformerInput, RunCheckout, RunPerformer};
pub use runtime::{ClusterRuntime, decisions_of};
pub use store::ClusterStore;
pub use wire::{ClusterWorkerAbilities, LiveClusterWorker, StoredBase};
pub use worker::{ClusterWorker, ClusterWorkerError, ClusterWorkerSetup};
