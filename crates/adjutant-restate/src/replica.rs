//! The runs that a worker works for: each is followed by a task that performs the effects the run's object asks for.
//!
//! All tasks share one thread, because the engine's loop is not `Send`; tools and commands have threads of their own.
//! Start at [`PerformerThread::perform`]. Invariant: an effect that is performed already is not begun again, however often the
//! server asks.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::{Command, Effect, RunId, SessionId};
use adjutant_engine::portable::{self, PortableBase, PortableWork, SessionPlacements, StoreError};
use adjutant_engine::{
    Engine, EngineError, Narrator, RecordedDecision, Reporter, RunUpdate, SentCommand, wall_now,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::client::{CallError, Ingress, error_chain};
use crate::link::{CommandSender, LinkEnds, decisions, has_ended, link};
use crate::store::ClusterStore;
use crate::wire::{DecisionBatch, PerformRequest, RunInput, StoredBase, Submission, session_of};

/// The threads for tool calls of all runs. As in a local run, most calls take microseconds.
const TOOL_THREADS: usize = 16;

/// How long a request waits before its batch is fetched, if a call is in flight whose answer may contain the batch.
const ANSWER_TIME: Duration = Duration::from_millis(20);

/// How long the end of a run waits until its workspaces are closed here.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// Why a run is no longer followed by a worker that counted as lost and came back.
const MOVED: &str = "its agents went on at another worker";

/// What performs the effects of one run.
pub struct RunPerformer {
    /// The engine, set up as the run's opening says.
    pub engine: Engine,
    /// Puts results into words for agents.
    pub narrator: Rc<dyn Narrator>,
    /// Receives every event.
    pub reporters: Vec<Box<dyn Reporter>>,
}

/// Sets up what performs the effects of a run. The error says what this worker lacks.
pub type PerformerFactory =
    Arc<dyn Fn(PerformerInput<'_>) -> Result<RunPerformer, String> + Send + Sync>;

/// The beginning of a run.
#[derive(Debug)]
pub struct PerformerInput<'a> {
    /// The run.
    pub run: RunId,
    /// Its decisions so far.
    pub decisions: &'a [RecordedDecision],
    /// The copy of the user's checkout, if the run's work is in a store.
    pub checkout: Option<RunCheckout>,
}

/// A copy of a user's checkout, for the agents of one run.
#[derive(Debug)]
pub struct RunCheckout {
    /// The state that it shows.
    pub state: PortableBase,
    /// The directory in which the run has everything on this machine.
    pub place: PathBuf,
    /// The copy.
    pub tree: PathBuf,
    /// Stores the work of the agents.
    pub work: PortableWork,
}

/// A request with the channel that tells when its effect is over.
type AwaitedRequest = (PerformRequest, oneshot::Sender<()>);

/// The runs that this worker works for.
#[derive(Clone)]
pub(crate) struct PerformerThread {
    requests: mpsc::UnboundedSender<AwaitedRequest>,
    /// How many effects are performed now.
    performing: watch::Sender<usize>,
    last_problem: LastProblem,
}

/// Why a run could not be followed, the last time that happened.
type LastProblem = Arc<Mutex<String>>;

/// Counts an effect while it is performed, also if the server drops the call.
struct PerformingCount<'a>(&'a watch::Sender<usize>);

impl<'a> PerformingCount<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for PerformingCount<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// What all runs of a worker share.
struct WorkerContext {
    ingress: Ingress,
    worker: String,
    instance: String,
    /// How often this process has begun to follow a run.
    followers: Cell<u64>,
    last_problem: LastProblem,
    factory: PerformerFactory,
    store: Option<Arc<ClusterStore>>,
    checkouts: PathBuf,
}

impl WorkerContext {
    /// Returns a name that no other follower has. The keys of calls begin with it: a call whose key was used before is
    /// answered with the result of that call.
    fn name_follower(&self) -> String {
        self.followers.set(self.followers.get() + 1);
        format!("{}-{}", self.instance, self.followers.get())
    }
}

/// What a worker performs effects with.
pub(crate) struct PerformerThreadSetup {
    pub(crate) factory: PerformerFactory,
    /// The store of the cluster.
    pub(crate) store: Option<Arc<ClusterStore>>,
    /// Where copies of users' checkouts are.
    pub(crate) checkouts: PathBuf,
}

impl PerformerThread {
    /// Starts the thread of the runs.
    pub(crate) fn start(
        ingress: Ingress,
        worker: String,
        instance: String,
        setup: PerformerThreadSetup,
    ) -> std::io::Result<Self> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let PerformerThreadSetup { factory, store, checkouts } = setup;
        let last_problem = LastProblem::default();
        let context = WorkerContext {
            ingress,
            worker,
            instance,
            followers: Cell::new(0),
            last_problem: Arc::clone(&last_problem),
            factory,
            store,
            checkouts,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(TOOL_THREADS)
            .build()?;
        std::thread::Builder::new().name("adjutant-runs".to_owned()).spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime, dispatch(Rc::new(context), receiver));
        })?;
        Ok(Self { requests, performing: watch::channel(0).0, last_problem })
    }

    /// Performs an effect, or waits for its end if it is performed already.
    ///
    /// An error says why following the run failed: it must be asked for again.
    pub(crate) async fn perform(&self, request: PerformRequest) -> Result<(), String> {
        let (done, over) = oneshot::channel();
        let _performing = PerformingCount::new(&self.performing);
        let is_over = self.requests.send((request, done)).is_ok() && over.await.is_ok();
        let problem = || self.last_problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if is_over { Ok(()) } else { Err(problem()) }
    }

    /// Returns how many effects are performed now.
    pub(crate) fn performing(&self) -> watch::Receiver<usize> {
        self.performing.subscribe()
    }
}

/// Passes each request to the task of its run.
async fn dispatch(
    context: Rc<WorkerContext>,
    mut requests: mpsc::UnboundedReceiver<AwaitedRequest>,
) {
    let mut runs: HashMap<RunId, (mpsc::UnboundedSender<AwaitedRequest>, JoinHandle<()>)> =
        HashMap::new();
    while let Some(request) = requests.recv().await {
        let run = request.0.run;
        runs.retain(|_, (_, task)| !task.is_finished());
        let unsent = match runs.get(&run) {
            Some((of_run, _)) => of_run.send(request).err().map(|unsent| unsent.0),
            None => Some(request),
        };
        let Some(request) = unsent else { continue };
        let (sender, receiver) = mpsc::unbounded_channel();
        // The receiver is below.
        let _ = sender.send(request);
        let earlier = runs.remove(&run).map(|(_, task)| task);
        let context = Rc::clone(&context);
        let task = tokio::task::spawn_local(async move {
            if let Some(earlier) = earlier {
                // A run that was continued at once may still be closed here.
                let _ = earlier.await;
            }
            if let Err(problem) = follow_run(Rc::clone(&context), run, receiver).await {
                let mut last = context.last_problem.lock().unwrap_or_else(PoisonError::into_inner);
                *last = format!("run {run}: {problem}");
            }
        });
        runs.insert(run, (sender, task));
    }
}

/// One run, as far as this worker knows it.
struct RunReplica {
    context: Rc<WorkerContext>,
    run: String,
    known: Arc<AtomicU64>,
    /// The worker of each session.
    placed: BTreeMap<SessionId, Option<String>>,
    /// The number of the batch that last gave each session to a worker.
    placements: SessionPlacements,
    /// Whether a session was taken from this worker.
    has_lost_a_session: bool,
    base: Option<Box<StoredBase>>,
    has_ended: bool,
    /// How many batches the server had when it was asked last.
    total: u64,
}

impl RunReplica {
    fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Fetches all batches that are missing, and returns their decisions.
    async fn fetch(&mut self) -> Result<Vec<RecordedDecision>, CallError> {
        let mut fetched = Vec::new();
        loop {
            let page =
                self.context.ingress.batches(&self.run, self.known(), Duration::ZERO).await?;
            self.total = page.total;
            let is_last =
                page.batches.is_empty() || self.known() + page.batches.len() as u64 >= page.total;
            fetched.extend(self.take(page.batches));
            if is_last {
                return Ok(fetched);
            }
        }
    }

    fn take(&mut self, batches: Vec<DecisionBatch>) -> Vec<RecordedDecision> {
        for batch in &batches {
            let number = self.known.fetch_add(1, Ordering::Relaxed) + 1;
            for (session, worker) in &batch.placed {
                let before = self.placed.insert(*session, worker.clone()).flatten();
                let is_us = |worker: &Option<String>| worker.as_ref() == Some(&self.context.worker);
                self.has_lost_a_session |= is_us(&before) && !is_us(worker);
                // A session without a worker may still be answered for by its last one.
                if worker.is_some() {
                    self.placements.note(*session, number, is_us(worker));
                }
            }
            if batch.base.is_some() {
                self.base.clone_from(&batch.base);
            }
        }
        let decisions = decisions(batches);
        self.has_ended = has_ended(&decisions).unwrap_or(self.has_ended);
        decisions
    }

    /// Returns whether this worker is the one to perform an effect.
    fn is_ours(&self, effect: &Effect) -> bool {
        let Some(session) = session_of(effect) else { return true };
        self.placed.get(&session).is_some_and(|it| it.as_deref() == Some(&self.context.worker))
    }
}

/// Follows a run and performs its effects until it has ended. After an error the server asks again.
async fn follow_run(
    context: Rc<WorkerContext>,
    run: RunId,
    mut requests: mpsc::UnboundedReceiver<AwaitedRequest>,
) -> Result<(), String> {
    let known = Arc::new(AtomicU64::new(0));
    let mut followed = RunReplica {
        context: Rc::clone(&context),
        run: run.to_string(),
        known: Arc::clone(&known),
        placed: BTreeMap::new(),
        placements: SessionPlacements::default(),
        has_lost_a_session: false,
        base: None,
        has_ended: false,
        total: 0,
    };
    // An earlier process of this worker may have sent results that wait for the run's object. Its inputs are taken in
    // order, so after this one they are recorded, and what they are about is not performed again.
    let nothing = Submission {
        wall_ms: wall_now(),
        known: 0,
        worker: Some(context.worker.clone()),
        input: RunInput::Commands(Vec::new()),
    };
    let follower = context.name_follower();
    let idempotency_key = format!("{run}-{follower}-begin");
    let text = |error: CallError| error.to_string();
    context.ingress.submit(&followed.run, &nothing, &idempotency_key).await.map_err(text)?;
    let opening = followed.fetch().await.map_err(text)?;
    if followed.has_ended || followed.total == 0 {
        answer_rest(requests);
        return Ok(());
    }
    // What an earlier process did for sessions that were taken from it ended with it.
    followed.has_lost_a_session = false;
    let (link, ends) = link();
    let (recorded, mut news) = mpsc::unbounded_channel();
    let is_calling = Arc::new(AtomicBool::new(false));
    let sender = CommandSender {
        ingress: context.ingress.clone(),
        run: followed.run.clone(),
        follower,
        worker: Some(context.worker.clone()),
        known,
        is_calling: Arc::clone(&is_calling),
        recorded,
    };
    let LinkEnds { commands, updates } = ends;
    let commands_of_us = link.commands.clone();
    let mut sending = tokio::task::spawn_local(sender.send_all(commands));
    let checkout = match followed.base.take() {
        None => Ok(None),
        Some(base) => {
            let opening = CheckoutOpening {
                store: context.store.clone(),
                checkouts: context.checkouts.clone(),
                worker: context.worker.clone(),
                placements: followed.placements.clone(),
            };
            let made = tokio::task::spawn_blocking(move || open_checkout(opening, run, *base));
            made.await.map_err(|error| error.to_string())?.map(Some)
        }
    };
    let prepared = match checkout {
        // The server asks again.
        Err(StoreError::Unavailable(problem)) => return Err(problem),
        Err(StoreError::Failed(problem)) => Err(problem),
        Ok(checkout) => (context.factory)(PerformerInput { run, decisions: &opening, checkout }),
    };
    let mut performing = None;
    let cannot_work = |problem: &dyn std::fmt::Display| {
        Some(format!("cluster worker `{}` cannot run this agent: {problem}", context.worker))
    };
    let mut problem = match prepared {
        Ok(performer) => {
            let RunPerformer { engine, narrator, reporters } = performer;
            let effects = engine.perform_for(run, opening, link, narrator, reporters);
            performing = Some(tokio::task::spawn_local(async move { effects.await.map(drop) }));
            None
        }
        Err(problem) => cannot_work(&problem),
    };
    let mut waiting: Vec<AwaitedRequest> = Vec::new();
    // Whether an answer counted batches that this worker does not have.
    let mut is_behind = false;
    loop {
        let has_gap =
            is_behind || waiting.iter().any(|(request, _)| request.batches > followed.known());
        let mut decided = Vec::new();
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => waiting.push(request),
                None => return Ok(()),
            },
            Some((total, last)) = news.recv() => {
                if let Some(last) = last.filter(|_| total == followed.known() + 1) {
                    decided = followed.take(vec![last]);
                }
                is_behind = total > followed.known();
            }
            () = wait_for_answer(&is_calling), if has_gap => {
                decided = followed.fetch().await.map_err(text)?;
                is_behind = false;
                if followed.total < followed.known() {
                    // The server no longer keeps the run.
                    answer_rest(requests);
                    return Ok(());
                }
                let total = followed.total;
                for (_, done) in waiting.extract_if(.., |(request, _)| request.batches > total) {
                    // About a run of the same name that the server no longer keeps.
                    let _ = done.send(());
                }
            }
            ended = wait_for_engine(&mut performing) => {
                // It ends by itself only with the run.
                performing = None;
                if let Err(error) = ended {
                    problem = cannot_work(&error);
                }
            }
            // The commands of this process can no longer be sent.
            sent = &mut sending => return match sent {
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(())) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        }
        if followed.has_lost_a_session && !followed.has_ended {
            // The workspaces here lack what the new worker does. Should a session come back, the run is followed anew:
            // the requests that are dropped here are made again.
            drop(updates.send(RunUpdate::Lost(MOVED.to_owned())).await);
            if let Some(performing) = performing {
                let _ = tokio::time::timeout(CLOSING_TIME, performing).await;
            }
            return Err(MOVED.to_owned());
        }
        if !decided.is_empty() && problem.is_none() {
            // The engine's loop has ended when it has seen the end of the run.
            let _ = updates.send(RunUpdate::Recorded(decided)).await;
        }
        let known = followed.known();
        for (request, done) in waiting.extract_if(.., |(request, _)| request.batches <= known) {
            if followed.has_ended || !followed.is_ours(&request.effect) {
                let _ = done.send(());
            } else if let Some(problem) = &problem {
                fail_effect(&commands_of_us, &request.effect, problem);
                let _ = done.send(());
            } else {
                let PerformRequest { effect, is_repeated, batches, .. } = request;
                // It was sent before its session left this worker and came back.
                let is_old = |session| followed.placements.was_given_after(session, batches);
                let is_repeated = is_repeated || session_of(&effect).is_some_and(is_old);
                let update = RunUpdate::Perform { effect: Box::new(effect), is_repeated, done };
                let _ = updates.send(update).await;
            }
        }
        if followed.has_ended {
            answer_rest(requests);
            drop(updates);
            if let Some(performing) = performing {
                // Its workspaces are closed then.
                let _ = tokio::time::timeout(CLOSING_TIME, performing).await;
            }
            let place = context.checkouts.join(run.to_string());
            // Best effort: an old one is removed when the worker starts.
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(place)).await;
            return Ok(());
        }
    }
}

/// What a worker opens checkouts with.
struct CheckoutOpening {
    store: Option<Arc<ClusterStore>>,
    checkouts: PathBuf,
    worker: String,
    placements: SessionPlacements,
}

/// Makes a copy of the user's checkout for a run, or opens the one that an earlier process has made. Blocks.
fn open_checkout(
    opening: CheckoutOpening,
    run: RunId,
    base: StoredBase,
) -> Result<RunCheckout, StoreError> {
    let CheckoutOpening { store, checkouts, worker, placements } = opening;
    let StoredBase { store: address, state } = base;
    let store = store.filter(|store| store.address() == address).ok_or_else(|| {
        StoreError::Failed(format!(
            "the files of the run are in the store {address}, and the worker uses another store or none"
        ))
    })?;
    let place = checkouts.join(run.to_string());
    let tree = portable::open_checkout(&*store, &place, run, &state)?;
    let work = PortableWork::new(store, (worker, placements), &state, place.join("state"))?;
    Ok(RunCheckout { state, place, tree, work })
}

/// Answers an effect that this worker cannot perform. Ends its delegation, if that has not ended.
fn fail_effect(commands: &mpsc::UnboundedSender<SentCommand>, effect: &Effect, problem: &str) {
    let Some(command) = failure_of(effect, problem.to_owned()) else { return };
    let at = adjutant_core::Timestamp::ZERO;
    // The sending task holds the other side.
    let _ = commands.send(SentCommand { at, wall_ms: wall_now(), command, answer: None });
}

fn failure_of(effect: &Effect, problem: String) -> Option<Command> {
    match effect {
        // These are also due for a delegation that has ended, and the run waits for their answers.
        Effect::CommitWork { session, .. } => {
            Some(Command::TakeKeptWork { session: *session, kept: Err(problem) })
        }
        Effect::Merge { session, .. } => {
            Some(Command::TakeMerge { session: *session, merged: Err(problem) })
        }
        Effect::Stop { .. } | Effect::StopModel { .. } | Effect::Close => None,
        Effect::Model { .. }
        | Effect::Prompt { .. }
        | Effect::ForwardCall { .. }
        | Effect::Tool { .. }
        | Effect::PrepareWrite { .. }
        | Effect::Write { .. }
        | Effect::Fetch { .. }
        | Effect::Delegate { .. }
        | Effect::ReturnResults { .. }
        | Effect::Verify { .. }
        | Effect::UpdateTaskList { .. }
        | Effect::MakeWorkspace { .. }
        | Effect::Markers { .. }
        | Effect::Check { .. }
        | Effect::CollectHandover { .. }
        | Effect::AskApproval { .. }
        | Effect::AskDomain { .. } => session_of(effect).map(|session| Command::Crash {
            session,
            message: problem,
            backtrace: String::new(),
        }),
    }
}

/// Waits until the engine that performs the effects has ended; forever if there is none.
async fn wait_for_engine(
    performing: &mut Option<JoinHandle<Result<(), EngineError>>>,
) -> Result<(), String> {
    match performing {
        Some(performing) => match performing.await {
            Ok(result) => result.map_err(|error| error_chain(&error)),
            Err(error) => Err(error.to_string()),
        },
        None => std::future::pending().await,
    }
}

/// Waits a moment if a call is under way, whose answer may bring what is missing.
async fn wait_for_answer(is_calling: &AtomicBool) {
    if is_calling.load(Ordering::Relaxed) {
        tokio::time::sleep(ANSWER_TIME).await;
    }
}

/// Answers the requests for a run that has ended: nothing of it is due any more.
fn answer_rest(mut requests: mpsc::UnboundedReceiver<AwaitedRequest>) {
    requests.close();
    while let Ok((_, done)) = requests.try_recv() {
        let _ = done.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_does_not_wait_for_work_that_cannot_be_kept() {
        let session = SessionId::new(1_700_000_000, [1; 6]);
        let merge = Effect::Merge { session, into: session, commit: String::new() };
        let failed = failure_of(&merge, "no engine".to_owned());
        let merged = Err("no engine".to_owned());
        assert_eq!(failed, Some(Command::TakeMerge { session, merged }));
        assert_eq!(failure_of(&Effect::Close, String::new()), None);
        let markers = Effect::CollectHandover { session, turn: 1, has_note: false, max_bytes: 1 };
        assert!(matches!(failure_of(&markers, String::new()), Some(Command::Crash { .. })));
    }
}
