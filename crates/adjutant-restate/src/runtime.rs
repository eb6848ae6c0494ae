//! The cluster as the runtime of a front end: starts runs there and follows them.

use std::sync::Arc;

use adjutant_core::RunId;
use adjutant_engine::{LinkFuture, RemoteOpening, RemoteRuntime, RunLink};
use tokio::sync::mpsc;

use crate::client::{CallError, Ingress};
use crate::link::{CommandSender, link, mirror};
use crate::wire::{RunInput, Submission};

/// A cluster on which a front end starts and follows runs.
pub struct ClusterRuntime {
    ingress: Ingress,
}

impl ClusterRuntime {
    /// Uses the cluster with this ingress.
    #[must_use]
    pub const fn new(ingress: Ingress) -> Self {
        Self { ingress }
    }
}

impl RemoteRuntime for ClusterRuntime {
    fn start(&self, opening: RemoteOpening) -> LinkFuture {
        let ingress = self.ingress.clone();
        Box::pin(async move {
            let RemoteOpening { run, commands, wall_ms } = opening;
            ingress.check().await.map_err(|error| error.to_string())?;
            let submission = Submission { wall_ms, known: 0, input: RunInput::Open(commands) };
            let key = run.to_string();
            let opened = ingress.submit(&key, &submission, &format!("{key}-open")).await;
            opened.map_err(|error| explain(&error))?;
            Ok(connect(ingress, run, wall_ms))
        })
    }

    fn follow(&self, run: RunId) -> LinkFuture {
        let ingress = self.ingress.clone();
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            Ok(connect(ingress, run, adjutant_engine::wall_now()))
        })
    }

    fn address(&self) -> String {
        self.ingress.address().replace("http://", "").split(',').fold(String::new(), |all, host| {
            let separator = if all.is_empty() { "restate://" } else { "," };
            all + separator + host
        })
    }
}

fn explain(error: &CallError) -> String {
    match error {
        CallError::NoWorker { .. } => format!(
            "{error}; start one with `adjutant serve-worker`, or both with `adjutant cluster dev`"
        ),
        CallError::Unreachable { .. } | CallError::Status { .. } | CallError::Unreadable { .. } => {
            error.to_string()
        }
    }
}

fn connect(ingress: Ingress, run: RunId, wall_ms: u64) -> RunLink {
    let (link, ends) = link();
    let run = run.to_string();
    // The batches come with the mirror's own calls.
    let (recorded, _) = mpsc::unbounded_channel();
    let sender = CommandSender {
        ingress: ingress.clone(),
        run: run.clone(),
        instance: format!("front-{wall_ms}-{}", std::process::id()),
        known: Arc::default(),
        is_calling: Arc::default(),
        recorded,
    };
    let updates = ends.updates.clone();
    tokio::spawn(async move {
        if let Err(error) = sender.send_all(ends.commands).await {
            let lost = adjutant_engine::RunUpdate::Lost(error.to_string());
            let _ = updates.send(lost).await;
        }
    });
    tokio::spawn(mirror(ingress, run, ends.updates));
    link
}
