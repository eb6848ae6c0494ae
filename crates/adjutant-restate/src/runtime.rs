//! The cluster as the runtime of a front end: starts runs there and follows them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::{Command, Rights, RunId, WriteScope};
use adjutant_engine::portable::{StoreError, remove_work, store_base};
use adjutant_engine::{LinkFuture, RecordedDecision, RemoteOpening, RemoteRuntime, RunLink};
use tokio::sync::mpsc;

use crate::client::{CallError, Ingress};
use crate::link::{CommandSender, UserCheckout, decisions, link, mirror};
use crate::store::ClusterStore;
use crate::wire::{
    AgentNeeds, LiveClusterWorker, RunInput, StoredBase, Submission, TimedCommand, provider_of,
};

/// How long the start of a run waits for a live worker.
const WORKER_WAIT: Duration = Duration::from_secs(3);

/// The pause between two looks at the workers.
const WORKER_PAUSE: Duration = Duration::from_millis(200);

/// How long a question about the tools of the workers may take. A run can start without the answer.
const TOOLS_WAIT: Duration = Duration::from_secs(2);

/// A cluster on which a front end starts and follows runs.
pub struct ClusterRuntime {
    ingress: Ingress,
    state: PathBuf,
    commands_see: OnceLock<Option<String>>,
}

impl ClusterRuntime {
    /// Uses the cluster with this ingress. `state` is a directory of the user.
    #[must_use]
    pub const fn new(ingress: Ingress, state: PathBuf) -> Self {
        Self { ingress, state, commands_see: OnceLock::new() }
    }
}

/// Returns all decisions of a run; none if the cluster does not know it.
pub async fn decisions_of(
    ingress: &Ingress,
    run: RunId,
) -> Result<Vec<RecordedDecision>, CallError> {
    let (mut all, mut from, run) = (Vec::new(), 0, run.to_string());
    loop {
        let page = ingress.batches(&run, from, Duration::ZERO).await?;
        from += page.batches.len() as u64;
        let is_last = page.batches.is_empty() || from >= page.total;
        all.extend(decisions(page.batches));
        if is_last {
            return Ok(all);
        }
    }
}

impl RemoteRuntime for ClusterRuntime {
    fn start(&self, opening: RemoteOpening) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            let workers = live_workers(&ingress).await.map_err(|error| explain(&error))?;
            needs_of(&opening.commands)
                .iter()
                .try_for_each(|needs| require_able_worker(&workers, needs))?;
            let base = upload_base(&opening, &state, &workers).await?;
            let RemoteOpening { run, commands, wall_ms, workdir, .. } = opening;
            let stored = base.as_ref().map(|base| base.store.clone());
            let input = RunInput::Open { commands, base };
            let submission = Submission { wall_ms, known: 0, worker: None, input };
            let key = run.to_string();
            let opened = ingress.submit(&key, &submission, &format!("{key}-open")).await;
            if let Err(error) = opened {
                // With an answer that cannot be read, the run may have begun.
                if !matches!(error, CallError::Unreadable { .. }) {
                    remove_base(stored, run).await;
                }
                return Err(explain(&error));
            }
            let user = UserCheckout { run, tree: workdir, state, imported: 0 };
            Ok(connect(ingress, user, wall_ms))
        })
    }

    fn resume(&self, opening: RemoteOpening, mirrored: u64) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            live_workers(&ingress).await.map_err(|error| explain(&error))?;
            let RemoteOpening { run, commands, at, wall_ms, workdir } = opening;
            let key = run.to_string();
            for command in commands {
                let input = RunInput::Resume(Box::new(TimedCommand { at, command }));
                let submission = Submission { wall_ms, known: 0, worker: None, input };
                let idempotency_key = format!("{key}-resume-{wall_ms}-{}", std::process::id());
                let taken = ingress.submit(&key, &submission, &idempotency_key).await;
                let taken = taken.map_err(|error| explain(&error))?;
                if let Some(refusal) = taken.refusals.into_iter().flatten().next() {
                    return Err(refusal.message);
                }
            }
            let user = UserCheckout { run, tree: workdir, state, imported: mirrored };
            Ok(connect(ingress, user, wall_ms))
        })
    }

    fn follow(&self, run: RunId, workdir: PathBuf, mirrored: u64) -> LinkFuture {
        let (ingress, state) = (self.ingress.clone(), self.state.clone());
        Box::pin(async move {
            ingress.check().await.map_err(|error| error.to_string())?;
            let user = UserCheckout { run, tree: workdir, state, imported: mirrored };
            Ok(connect(ingress, user, adjutant_engine::wall_now()))
        })
    }

    fn address(&self) -> String {
        self.ingress.address().replace("http://", "").split(',').fold(String::new(), |all, host| {
            let separator = if all.is_empty() { "restate://" } else { "," };
            all + separator + host
        })
    }

    fn commands_see(&self) -> Option<String> {
        let ask = || {
            // The caller is no async function, and may be inside a runtime, where waiting is not allowed.
            let ingress = self.ingress.with_own_connections();
            let workers = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let asked = async { tokio::time::timeout(TOOLS_WAIT, ingress.workers()).await };
                runtime.ok()?.block_on(asked).ok()?.ok()
            });
            common_tools(&workers.join().ok().flatten()?)
        };
        self.commands_see.get_or_init(ask).clone()
    }
}

/// Returns what commands see with each of the workers that take agents which run commands, if it is the same.
fn common_tools(workers: &[LiveClusterWorker]) -> Option<String> {
    let mut able = workers.iter().map(|it| &it.abilities).filter(|it| it.sandbox.is_some());
    let first = able.next()?.commands_see.clone();
    first.filter(|first| able.all(|other| other.commands_see.as_ref() == Some(first)))
}

fn explain(error: &CallError) -> String {
    match error {
        CallError::NoWorker { .. } => format!(
            "{error}; start one with `adjutant serve-worker`, or both with `adjutant cluster dev`"
        ),
        CallError::Unreachable { .. }
        | CallError::AdminUnreachable { .. }
        | CallError::Status { .. }
        | CallError::Unreadable { .. } => error.to_string(),
    }
}

/// Returns the live workers. Waits a while for one: a worker that is restarted is not live for some seconds.
async fn live_workers(ingress: &Ingress) -> Result<Vec<LiveClusterWorker>, CallError> {
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

/// Returns what the first agents of a run need.
fn needs_of(commands: &[Command]) -> Vec<AgentNeeds> {
    let mut base = AgentNeeds::default();
    let mut models: BTreeSet<&str> = BTreeSet::new();
    for command in commands {
        if let Command::Begin { policy, terms, model, .. } = command {
            base.sandbox = policy.workspace == WorkspaceSharing::Own && !policy.in_place;
            base.tools = terms.iter().flat_map(|it| it.needed_tools.iter().cloned()).collect();
            models.extend(model.iter().map(|it| it.name.as_str()));
        } else if let Command::Delegate { tasks, .. } = command {
            let named = tasks.iter().filter_map(|task| task.brief.model.as_ref());
            models.extend(named.map(|it| it.name.as_str()));
        }
    }
    let with = |model: &str| AgentNeeds { provider: provider_of(model), ..base.clone() };
    let mut all: Vec<AgentNeeds> = models.into_iter().map(with).collect();
    all.push(base);
    all
}

/// Refuses an agent whose work no live worker can do, and says what each of them lacks.
fn require_able_worker(workers: &[LiveClusterWorker], needs: &AgentNeeds) -> Result<(), String> {
    let mut lacks = Vec::new();
    for worker in workers {
        let Some(lacking) = worker.abilities.lacking(needs) else { return Ok(()) };
        lacks.push(format!("{} lacks {lacking}", worker.name));
    }
    Err(format!("no worker of the cluster can do the work: {}", lacks.join("; ")))
}

/// Puts the state of the user's checkout into the store that the workers use; `None` if they use none.
async fn upload_base(
    opening: &RemoteOpening,
    state: &Path,
    workers: &[LiveClusterWorker],
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

/// Removes the state of the user's checkout from a store: its run did not begin.
async fn remove_base(store: Option<String>, run: RunId) {
    let Some(address) = store else { return };
    let remove = move || remove_work(&ClusterStore::open(&address)?, run);
    // Best effort: what is left takes up space.
    let _ = tokio::task::spawn_blocking(remove).await;
}

/// Returns why a run cannot work on a copy of the user's checkout; `None` if it can.
fn why_not_on_copies(commands: &[Command]) -> Option<&'static str> {
    commands.iter().find_map(|command| {
        let assignment = if let Command::AskToBegin { assignment, .. } = command {
            assignment.as_ref()
        } else if let Command::Assign(assignment) = command {
            Some(assignment)
        } else {
            None
        };
        if assignment.is_some_and(|assignment| !assignment.tasks.is_empty()) {
            return Some("so the list of tasks there would not be updated; use --runtime local");
        }
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

fn connect(ingress: Ingress, user: UserCheckout, wall_ms: u64) -> RunLink {
    let (link, ends) = link();
    let run = user.run.to_string();
    // The batches come with the mirror's own calls.
    let (recorded, _) = mpsc::unbounded_channel();
    let sender = CommandSender {
        ingress: ingress.clone(),
        run,
        follower: format!("front-{wall_ms}-{}", std::process::id()),
        worker: None,
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

#[cfg(test)]
mod tests {
    use adjutant_core::{LayeredPolicy, ModelSpec, Preset, workspace::WorkspaceTerms};

    use super::*;
    use crate::wire::ClusterWorkerAbilities;

    #[test]
    fn work_that_no_worker_can_do_is_refused_with_what_each_lacks() {
        let abilities =
            |providers: &[&str], tools: &[&str], sandbox: bool| ClusterWorkerAbilities {
                providers: providers.iter().map(|&it| it.to_owned()).collect(),
                tools: tools.iter().map(|&it| it.to_owned()).collect(),
                sandbox: sandbox.then(|| "namespaces".to_owned()),
                ..ClusterWorkerAbilities::default()
            };
        let worker = |name: &str, abilities| LiveClusterWorker { name: name.to_owned(), abilities };
        let workers = [
            worker("east", abilities(&["openai"], &["cargo"], false)),
            worker("west", abilities(&["anthropic"], &["cargo"], true)),
        ];
        for (model, tools, writes, refusal) in [
            ("anthropic/one", &["cargo"][..], true, None),
            ("openai/two", &[], false, None),
            (
                "openai/two",
                &[],
                true,
                Some(
                    "east lacks a sandbox, which agents that write need; west lacks a key for models of openai",
                ),
            ),
            (
                "anthropic/one",
                &["go"],
                true,
                Some("east lacks a key for models of anthropic; west lacks the tool go"),
            ),
        ] {
            let needs = needs_of(&[begin(model, tools, writes)]);
            let judged = needs.iter().try_for_each(|needs| require_able_worker(&workers, needs));
            let refusal =
                refusal.map(|it| format!("no worker of the cluster can do the work: {it}"));
            assert_eq!(judged.err(), refusal, "{model} {tools:?} {writes}");
        }
    }

    fn begin(model: &str, tools: &[&str], writes: bool) -> Command {
        let mut policy = LayeredPolicy::new(Preset::Scout).into_policy();
        if writes {
            policy.workspace = WorkspaceSharing::Own;
        }
        let needed_tools = tools.iter().map(|&it| it.to_owned()).collect();
        Command::Begin {
            run: RunId::new(1_700_000_000, [10; 6]),
            agent: adjutant_core::AgentName::new("delegate"),
            goal: String::new(),
            workdir: "/".to_owned(),
            policy: Box::new(policy),
            version: "0".to_owned(),
            model: Some(ModelSpec {
                name: model.to_owned(),
                window: 100_000,
                max_output: 4_000,
                price: None,
                effort: None,
            }),
            terms: Some(Box::new(WorkspaceTerms { needed_tools, ..WorkspaceTerms::default() })),
            base_depth: 0,
            environment: None,
        }
    }
}
