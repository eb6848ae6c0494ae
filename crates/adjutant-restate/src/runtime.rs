//! The cluster as the runtime of a front end: starts runs there and follows them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::{Command, Rights, RunId, WriteScope};
use adjutant_engine::portable::{StoreError, store_base};
use adjutant_engine::{LinkFuture, RemoteOpening, RemoteRuntime, RunLink};
use tokio::sync::mpsc;

use crate::client::{CallError, Ingress};
use crate::link::{CommandSender, UserSide, link, mirror};
use crate::store::ClusterStore;
use crate::wire::{LiveWorker, RunInput, StoredBase, Submission, TimedCommand};

/// How long the start of a run waits for a live worker.
const WORKER_WAIT: Duration = Duration::from_secs(3);

/// The pause between two looks at the workers.
const WORKER_PAUSE: Duration = Duration::from_millis(200);

/// A cluster on which a front end starts and follows runs.
pub struct ClusterRuntime {
    ingress: Ingress,
    state: PathBuf,
}

impl ClusterRuntime {
    /// Uses the cluster with this ingress. `state` is a directory of the user.
    #[must_use]
    pub const fn new(ingress: Ingress, state: PathBuf) -> Self {
        Self { ingress, state }
    }
}

impl RemoteRuntime for ClusterRuntime {
    fn start(&self, opening: RemoteOpening) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            let workers = live_workers(&ingress).await.map_err(|error| explain(&error))?;
            let base = store_state(&opening, &state, &workers).await?;
            let RemoteOpening { run, commands, wall_ms, workdir, .. } = opening;
            let input = RunInput::Open { commands, base };
            let submission = Submission { wall_ms, known: 0, input };
            let key = run.to_string();
            let opened = ingress.submit(&key, &submission, &format!("{key}-open")).await;
            opened.map_err(|error| explain(&error))?;
            Ok(connect(ingress, UserSide { run, tree: workdir, state }, wall_ms))
        })
    }

    fn resume(&self, opening: RemoteOpening) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            live_workers(&ingress).await.map_err(|error| explain(&error))?;
            let RemoteOpening { run, commands, at, wall_ms, workdir } = opening;
            let key = run.to_string();
            for command in commands {
                let input = RunInput::Resume(Box::new(TimedCommand { at, command }));
                let submission = Submission { wall_ms, known: 0, input };
                let once = format!("{key}-resume-{wall_ms}-{}", std::process::id());
                let taken = ingress.submit(&key, &submission, &once).await;
                let taken = taken.map_err(|error| explain(&error))?;
                if let Some(refusal) = taken.refusals.into_iter().flatten().next() {
                    return Err(refusal.message);
                }
            }
            Ok(connect(ingress, UserSide { run, tree: workdir, state }, wall_ms))
        })
    }

    fn follow(&self, run: RunId, workdir: PathBuf) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            let user = UserSide { run, tree: workdir, state };
            Ok(connect(ingress, user, adjutant_engine::wall_now()))
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

/// Returns the live workers. Waits a while for one: a worker that is restarted is not live for some seconds.
async fn live_workers(ingress: &Ingress) -> Result<Vec<LiveWorker>, CallError> {
    let began = tokio::time::Instant::now();
    loop {
        let workers = ingress.workers().await?;
        if !workers.is_empty() {
            return Ok(workers);
        }
        if began.elapsed() >= WORKER_WAIT {
            return Err(CallError::NoWorker { address: ingress.address() });
        }
        tokio::time::sleep(WORKER_PAUSE).await;
    }
}

/// Puts the state of the user's checkout into the store that the workers use; `None` if they use none.
async fn store_state(
    opening: &RemoteOpening,
    state: &Path,
    workers: &[LiveWorker],
) -> Result<Option<Box<StoredBase>>, String> {
    let mut stores: Vec<&Option<String>> = workers.iter().map(|it| &it.abilities.store).collect();
    stores.sort();
    stores.dedup();
    let address = match stores.as_slice() {
        [] | [None] => return Ok(None),
        [Some(address)] => address.clone(),
        several => {
            let name = |it: &&Option<String>| it.as_deref().unwrap_or("none").to_owned();
            let names: Vec<String> = several.iter().map(name).collect();
            return Err(format!(
                "the workers of the cluster use different stores ({}); start all of them with the same --store",
                names.join(", ")
            ));
        }
    };
    if let Some(problem) = why_not_on_copies(&opening.commands) {
        return Err(format!(
            "the workers of this cluster work on copies of your checkout, {problem}"
        ));
    }
    let (tree, state, run) = (opening.workdir.clone(), state.to_owned(), opening.run);
    let takes_in = opening.commands.iter().find_map(|command| {
        if let Command::TakeStory(story) = command { Some(story.takes_in.clone()) } else { None }
    });
    let stored = tokio::task::spawn_blocking(move || {
        let store = ClusterStore::open(&address)?;
        let state = store_base(&store, (&tree, &state), run, &takes_in.unwrap_or_default())?;
        Ok::<_, StoreError>(StoredBase { store: address, state })
    });
    let stored = stored.await.map_err(|error| error.to_string())?;
    stored.map(|base| Some(Box::new(base))).map_err(|error| error.to_string())
}

/// Returns why a run cannot work on a copy of the user's checkout; `None` if it can.
fn why_not_on_copies(commands: &[Command]) -> Option<&'static str> {
    commands.iter().find_map(|command| {
        let Command::Begin { policy, terms, .. } = command else { return None };
        if terms.as_ref().is_some_and(|terms| !terms.include_ignored.is_empty()) {
            return Some("which have no ignored files; leave --include-ignored out");
        }
        let writes = Rights::of(policy).writes;
        matches!(writes, WriteScope::Anywhere | WriteScope::Below(_)).then_some(
            "so files that agents write in the checkout itself would be lost; use --write, or --runtime local",
        )
    })
}

fn connect(ingress: Ingress, user: UserSide, wall_ms: u64) -> RunLink {
    let (link, ends) = link();
    let run = user.run.to_string();
    // The batches come with the mirror's own calls.
    let (recorded, _) = mpsc::unbounded_channel();
    let sender = CommandSender {
        ingress: ingress.clone(),
        run,
        follower: format!("front-{wall_ms}-{}", std::process::id()),
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
    tokio::spawn(mirror(ingress, user, ends.updates));
    link
}
