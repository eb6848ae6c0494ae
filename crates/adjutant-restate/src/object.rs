//! The virtual object of a run: decides each input and records what it changed as one batch.
//!
//! Start at `RunObject::submit`. It performs nothing: effects go one-way to the worker of their session, and the tree's
//! next deadline becomes a delayed call of itself. Whether a command may happen is decided by [`adjutant_core::Tree`].
//!
//! Invariant: for equal state and input the handler makes equal calls, whichever process runs it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::{Command, Effect, Event, SessionId, Timestamp};
use adjutant_engine::portable::{StoreError, remove_work};
use adjutant_engine::{ControlRefusal, RecordedDecision};
use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;

use crate::client::Ingress;
use crate::cluster::ClusterObjectClient;
use crate::fold::{RunCache, RunFold};
use crate::placement::place;
use crate::store::ClusterStore;
use crate::wire::{
    BatchPage, BatchQuery, CLUSTER_KEY, DecisionBatch, PerformRequest, RetryableInput, RunHead,
    RunInput, Submission, SubmissionResult, TimedCommand, WorkerChange, session_of, worker_service,
};

/// The most batches of one page.
const PAGE: u64 = 64;

/// The longest that a reader waits for a new batch. What another process decides wakes no reader here.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The handlers of a run.
pub(crate) struct RunObject {
    pub(crate) ingress: Ingress,
    pub(crate) cache: Arc<RunCache>,
    /// How long the server keeps a run that has ended. Until then it can be continued.
    pub(crate) retention: Duration,
}

/// Says why a run cannot be continued.
fn refuse_resume(is_unknown: bool) -> ControlRefusal {
    let message = if is_unknown {
        "the cluster no longer keeps this run, so it cannot be continued"
    } else {
        "the run is already running on the cluster"
    };
    ControlRefusal { message: message.to_owned(), ..ControlRefusal::over() }
}

#[object(
    name = "AdjutantRun",
    lazy_state = true,
    journal_retention = "0s",
    idempotency_retention = "10m",
    inactivity_timeout = "2m",
    abort_timeout = "2m",
    invocation_retry_policy(
        initial_interval = "20ms",
        max_interval = "500ms",
        max_attempts = 200000
    )
)]
impl RunObject {
    /// Decides an input.
    #[handler]
    async fn submit(
        &self,
        ctx: ObjectContext<'_>,
        submission: RetryableInput<Submission>,
    ) -> Result<Json<SubmissionResult>, HandlerError> {
        let submission = submission.read()?;
        let run = ctx.key().to_owned();
        // The only state that is read through the journal.
        let head = ctx.get::<Json<RunHead>>("head").await?.map(Json::into_inner);
        let is_new = head.is_none();
        let before = head.unwrap_or_default();
        let mut head = before.clone();
        let opens = matches!(submission.input, RunInput::Open { .. });
        let resumes = matches!(submission.input, RunInput::Resume(_));
        // A run that is not known has ended long ago, and was removed.
        if (head.has_ended || (is_new && !opens)) && !resumes {
            let refusals = vec![Some(ControlRefusal::over()); submission.input.commands()];
            return Ok(Json(SubmissionResult { batches: head.batches, last: None, refusals }));
        }
        let mut fold = self.cache.take(&self.ingress, &run, head.batches).await?;
        // Also the time of inputs that changed nothing else, which no batch has.
        fold.latest = fold.latest.max(head.latest);
        let mut decider = Decider { fold, wall_ms: submission.wall_ms, ..Decider::default() };
        let mut lost = None;
        let mut workers_changed = false;
        let (mut opened, mut moved_off) = (None, Vec::new());
        match submission.input {
            RunInput::Open { commands, base } if is_new => {
                decider.fold.has_store = base.is_some();
                opened = base;
                commands.into_iter().for_each(|it| decider.submit(Timestamp::ZERO, it));
                ctx.object_client::<ClusterObjectClient>(CLUSTER_KEY)
                    .register_run(Json(run.clone()))
                    .send();
            }
            // The first call was answered, and its answer was lost.
            RunInput::Open { .. } => {}
            RunInput::Resume(_) if !head.has_ended => {
                decider.refusals.push(Some(refuse_resume(is_new)));
            }
            RunInput::Resume(command) => {
                decider.submit(command.at, command.command);
                head.has_ended = decider.decisions.is_empty();
                // Ticks that arrived after the end were ignored.
                head.ticks.clear();
                let cluster = ctx.object_client::<ClusterObjectClient>(CLUSTER_KEY);
                let Json(workers) = cluster.workers().call().await?;
                moved_off = decider.fold.unplace_lost(&workers);
                cluster.register_run(Json(run.clone())).send();
            }
            RunInput::Commands(commands) => {
                for TimedCommand { at, command } in commands {
                    decider.submit_from(submission.worker.as_deref(), at, command);
                }
            }
            RunInput::Tick { due } => {
                let expected = head.ticks.len();
                head.ticks.retain(|at| *at != due);
                // A tick that was sent before the run ended and was continued is about a deadline of that time.
                if head.ticks.len() < expected {
                    decider.tick(due);
                }
            }
            RunInput::WorkersChanged(change) => {
                let gone = match change {
                    WorkerChange::Joined => None,
                    WorkerChange::Lost(worker) => Some(worker),
                };
                // Without a store, only the lost worker has what its agents wrote: they wait for it.
                lost = gone.filter(|_| !decider.fold.is_work_bound_to_worker());
                workers_changed = true;
            }
        }
        if let Some(problem) = decider.problem {
            // With a code for which no caller repeats the call.
            return Err(TerminalError::new_with_code(422, problem).into());
        }
        let Decider { mut fold, decisions, effects, refusals, .. } = decider;
        let mut work = RequestedWork::new(effects);
        if workers_changed {
            work.add_stranded(&fold, lost.as_deref());
        }
        // Which workers live must be in the journal: another attempt must send to the same ones.
        let mut placed = match work.unplaced(&fold, lost.as_deref()) {
            unplaced if unplaced.is_empty() => Vec::new(),
            unplaced => {
                let cluster = ctx.object_client::<ClusterObjectClient>(CLUSTER_KEY);
                let Json(workers) = cluster.workers().call().await?;
                place(&fold, &unplaced, &workers, lost.as_deref())
            }
        };
        placed.splice(..0, moved_off);
        if let Some(lost) = &lost {
            // Sessions that wait for something are placed when they go on.
            let is_left = |(session, worker): &(&SessionId, &Option<String>)| {
                worker.as_ref() == Some(lost) && placed.iter().all(|(it, _)| it != *session)
            };
            let left: Vec<SessionId> =
                fold.placed.iter().filter(is_left).map(|(session, _)| *session).collect();
            placed.extend(left.into_iter().map(|session| (session, None)));
        }
        fold.place(&placed);
        let has_ended = fold.tree.outcome().is_some();
        let batch = DecisionBatch { decisions, placed, base: opened };
        let is_recorded = !batch.decisions.is_empty() || !batch.placed.is_empty();
        if is_recorded {
            ctx.set(&format!("b{:08}", head.batches), Json(batch.clone()));
            head.batches += 1;
            fold.batches += 1;
        }
        head.latest = fold.latest;
        head.has_ended |= has_ended;
        let next_tick = fold.tree.next_deadline().map(|(due, _)| due).filter(|due| {
            // One tick that is due early enough is enough; a later deadline is set when it arrives.
            !has_ended && head.ticks.iter().all(|at| at > due)
        });
        head.ticks.extend(next_tick);
        // Before anything is sent: a worker that got a request and does not find its batch believes the run was removed.
        if head != before {
            ctx.set("head", Json(head.clone()));
        }
        for RequestedEffect { effect, is_repeated } in work.effects {
            let workers: BTreeSet<&str> = match session_of(&effect) {
                Some(session) => {
                    fold.placed.get(&session).and_then(Option::as_deref).into_iter().collect()
                }
                // Also a worker that lost its sessions and came back still has something to close.
                None if matches!(effect, Effect::Close) => {
                    fold.workers.iter().map(String::as_str).collect()
                }
                None => BTreeSet::new(),
            };
            for worker in workers {
                let target = RequestTarget::service(worker_service(worker), "perform");
                let request = PerformRequest {
                    run: run.parse().map_err(|_| TerminalError::new("the key is no run id"))?,
                    batches: head.batches,
                    effect: effect.clone(),
                    is_repeated,
                };
                ctx.request::<_, ()>(target, Json(request)).send();
            }
        }
        if has_ended {
            ctx.object_client::<ClusterObjectClient>(CLUSTER_KEY)
                .unregister_run(Json(run.clone()))
                .send();
            ctx.object_client::<RunObjectClient>(run.clone())
                .forget(Json(head.batches))
                .send_after(self.retention);
        }
        if let Some(due) = next_tick {
            let delay = due.as_millis().saturating_sub(fold.latest.as_millis());
            let wall_ms = submission.wall_ms + delay;
            let tick =
                Submission { wall_ms, known: 0, worker: None, input: RunInput::Tick { due } };
            // Not with the SDK's `send_after`: that computes when the tick is due with the clock of this machine, and if
            // it is slow, the tick arrives early and ends agents that have time left. Here the server adds the delay.
            let (ingress, key) = (self.ingress.clone(), run.clone());
            let idempotency_key =
                format!("{run}-tick-{}-{due}", head.batches, due = due.as_millis());
            let delay = Duration::from_millis(delay);
            let send = || async move {
                Ok(ingress.submit_later(&key, &tick, delay, &idempotency_key).await?)
            };
            ctx.run(send).name("tick").await?;
        }
        let last = (is_recorded && submission.known + 1 == head.batches).then_some(batch);
        if has_ended {
            self.cache.forget(&run, head.batches);
        } else {
            self.cache.keep(&run, fold);
        }
        Ok(Json(SubmissionResult { batches: head.batches, last, refusals }))
    }

    /// Removes what the server and the store keep of a run that has ended with this number of batches.
    #[handler(ingress_private = true)]
    async fn forget(
        &self,
        ctx: ObjectContext<'_>,
        Json(batches): Json<u64>,
    ) -> Result<(), HandlerError> {
        let head = ctx.get::<Json<RunHead>>("head").await?.map(Json::into_inner);
        if head.is_none_or(|head| !head.has_ended || head.batches != batches) {
            // It was continued.
            return Ok(());
        }
        let first = ctx.get::<Json<DecisionBatch>>("b00000000").await?.map(Json::into_inner);
        let base = first.and_then(|first| first.base);
        if let (Some(base), Ok(run)) = (base, ctx.key().parse()) {
            // The store that the run used, whatever this worker uses now.
            let remove = move || match ClusterStore::open(&base.store) {
                Ok(store) => remove_work(&store, run),
                Err(error) => Err(error),
            };
            let removed = || async move {
                match tokio::task::spawn_blocking(remove).await {
                    Ok(Err(error @ StoreError::Unavailable(_))) => Err(error.into()),
                    // What cannot be removed only takes up space.
                    Ok(_) | Err(_) => Ok(()),
                }
            };
            ctx.run(removed).name("remove").await?;
        }
        ctx.clear_all();
        Ok(())
    }

    /// Returns batches from a number on; waits if there are none yet.
    #[handler(idempotency_retention = "0s")]
    async fn batches(
        &self,
        ctx: SharedObjectContext<'_>,
        Json(query): Json<BatchQuery>,
    ) -> Result<Json<BatchPage>, HandlerError> {
        if query.wait_ms > 0 {
            let longest = Duration::from_millis(query.wait_ms).min(LONGEST_WAIT);
            self.cache.wait_beyond(ctx.key(), query.from, longest).await;
        }
        let head = ctx.get::<Json<RunHead>>("head").await?.map(Json::into_inner);
        let total = head.unwrap_or_default().batches;
        let keys: Vec<String> =
            (query.from..total.min(query.from + PAGE)).map(|it| format!("b{it:08}")).collect();
        let reads: Vec<_> = keys.iter().map(|key| ctx.get::<Json<DecisionBatch>>(key)).collect();
        let mut batches = Vec::with_capacity(reads.len());
        for read in reads {
            match read.await? {
                Some(Json(batch)) => batches.push(batch),
                None => break,
            }
        }
        Ok(Json(BatchPage { batches, total }))
    }
}

impl RunInput {
    /// Returns the number of commands whose refusal the sender is told.
    const fn commands(&self) -> usize {
        match self {
            Self::Commands(commands) => commands.len(),
            Self::Open { .. } | Self::Resume(_) | Self::Tick { .. } | Self::WorkersChanged(_) => 0,
        }
    }
}

/// Decides the commands of one input and those that follow from them.
#[derive(Default)]
struct Decider {
    fold: RunFold,
    wall_ms: u64,
    decisions: Vec<RecordedDecision>,
    effects: Vec<Effect>,
    refusals: Vec<Option<ControlRefusal>>,
    /// A bug: the core does not accept its own event.
    problem: Option<String>,
}

impl Decider {
    /// Decides a command of a worker, unless another worker has taken its session over: the files of that worker lack
    /// what this one did since.
    fn submit_from(&mut self, worker: Option<&str>, at: Timestamp, command: Command) {
        let is_late = worker
            .zip(command.session())
            .is_some_and(|(worker, session)| !self.fold.may_answer(session, worker));
        if is_late {
            self.refusals.push(None);
        } else {
            self.submit(at, command);
        }
    }

    /// Decides a command that was sent at `at`. The time in a run never runs backwards.
    fn submit(&mut self, at: Timestamp, command: Command) {
        let at = at.max(self.fold.latest);
        self.fold.latest = at;
        let call = if let Command::Delegate { parent, origin: Some(origin), .. } = &command {
            Some((*parent, *origin))
        } else {
            None
        };
        let refusal = match self.fold.tree.decide(at, command) {
            Ok(events) => {
                self.record(at, events);
                None
            }
            Err(refusal) => {
                let answer = call
                    .and_then(|(parent, origin)| Command::answer_refused(parent, origin, &refusal));
                if let Some(events) =
                    answer.and_then(|answer| self.fold.tree.decide(at, answer).ok())
                {
                    self.record(at, events);
                }
                Some(ControlRefusal::from(&refusal))
            }
        };
        self.refusals.push(refusal);
    }

    /// Applies the deadlines that have passed at `due`.
    fn tick(&mut self, due: Timestamp) {
        let at = due.max(self.fold.latest);
        self.fold.latest = at;
        if let Ok(events) = self.fold.tree.decide(at, Command::Tick) {
            self.record(at, events);
        }
    }

    fn record(&mut self, at: Timestamp, events: Vec<Event>) {
        let mut queue = VecDeque::new();
        self.apply(at, events, &mut queue);
        while let Some(command) = queue.pop_front() {
            let Ok(events) = self.fold.tree.decide(at, command) else { continue };
            self.apply(at, events, &mut queue);
        }
    }

    fn apply(&mut self, at: Timestamp, events: Vec<Event>, queue: &mut VecDeque<Command>) {
        if events.is_empty() {
            return;
        }
        match self.fold.take_events(at, &events) {
            Ok(reaction) => {
                queue.extend(reaction.commands);
                self.effects.extend(reaction.effects);
            }
            Err(error) => {
                self.problem = Some(error.to_string());
                return;
            }
        }
        self.decisions.push(RecordedDecision { at, wall_ms: self.wall_ms, events });
    }
}

/// The effects to request from workers.
struct RequestedWork {
    effects: Vec<RequestedEffect>,
}

/// An effect to request from a worker.
struct RequestedEffect {
    effect: Effect,
    /// Whether another worker may have begun it.
    is_repeated: bool,
}

impl RequestedWork {
    fn new(effects: Vec<Effect>) -> Self {
        let fresh = |effect| RequestedEffect { effect, is_repeated: false };
        Self { effects: effects.into_iter().map(fresh).collect() }
    }

    /// Adds the effects under way whose worker is gone, or that no worker was there for.
    fn add_stranded(&mut self, fold: &RunFold, lost: Option<&str>) {
        let stranded = |effect: Effect| {
            let session = session_of(&effect)?;
            let worker = fold.placed.get(&session).and_then(Option::as_deref);
            let is_stranded =
                (worker.is_none() || worker == lost) && fold.in_flight.has(&effect.key());
            let is_repeated = fold.begun.contains(&session);
            is_stranded.then_some(RequestedEffect { effect, is_repeated })
        };
        self.effects.extend(fold.tree.all_due().effects.into_iter().filter_map(stranded));
    }

    /// Returns the sessions of the effects that have no worker.
    fn unplaced(&self, fold: &RunFold, lost: Option<&str>) -> BTreeSet<SessionId> {
        let needs_worker =
            |effect: &&Effect| !matches!(effect, Effect::Stop { .. } | Effect::StopModel { .. });
        let effects = self.effects.iter().map(|it| &it.effect);
        let sessions = effects.filter(needs_worker).filter_map(session_of);
        sessions
            .filter(|session| {
                let worker = fold.placed.get(session).and_then(Option::as_deref);
                worker.is_none() || worker == lost
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use adjutant_core::workspace::WorkspaceTerms;
    use adjutant_core::{LayeredPolicy, Preset, RunId};

    use super::*;

    #[test]
    fn the_needed_tools_are_known_with_the_decision_that_starts_the_run() {
        let mut decider = Decider::default();
        let terms = WorkspaceTerms { needed_tools: vec!["cargo".to_owned()], ..Default::default() };
        let run = RunId::new(1_700_000_000, [10; 6]);
        decider.submit(Timestamp::ZERO, begin_with(run, Some(Box::new(terms))));
        assert_eq!(decider.fold.needed_tools, ["cargo"]);
    }

    #[test]
    fn only_the_worker_of_a_session_answers_for_it() {
        let session = SessionId::new(1_700_000_000, [1; 6]);
        let mut fold = RunFold::default();
        assert!(fold.may_answer(session, "one"), "it waits for a worker");
        fold.place(&[(session, Some("two".to_owned()))]);
        assert!(!fold.may_answer(session, "one") && fold.may_answer(session, "two"));
        fold.place(&[(session, None)]);
        assert!(fold.may_answer(session, "two"), "no other worker took it over");
        assert!(fold.begun.contains(&session), "what is requested for it now is repeated");
        let mut decider = Decider { fold, ..Decider::default() };
        decider.fold.place(&[(session, Some("one".to_owned()))]);
        let at = Timestamp::from_millis;
        decider.submit_from(Some("two"), at(5), Command::TakeTurn { session });
        assert_eq!(decider.fold.latest, at(0), "it is not decided");
        decider.submit_from(Some("one"), at(7), Command::TakeTurn { session });
        assert_eq!(decider.fold.latest, at(7));
    }

    #[test]
    fn time_in_a_run_never_runs_backwards() {
        let mut decider = Decider::default();
        decider.fold.latest = Timestamp::from_millis(500);
        let run = RunId::new(1_700_000_000, [10; 6]);
        decider.submit(Timestamp::from_millis(100), begin(run));
        assert_eq!(decider.decisions.len(), 1, "{:?}", decider.refusals);
        assert_eq!(decider.decisions[0].at, Timestamp::from_millis(500));
    }

    #[test]
    fn a_fold_of_the_batches_is_the_state_that_was_decided() {
        let mut decider = Decider::default();
        decider.submit(Timestamp::ZERO, begin(RunId::new(1_700_000_000, [10; 6])));
        let batch = DecisionBatch { decisions: decider.decisions, placed: Vec::new(), base: None };
        // As it is stored.
        let stored = serde_json::to_vec(&batch).unwrap_or_default();
        let read =
            serde_json::from_slice::<DecisionBatch>(&stored).map_err(|error| error.to_string());
        assert_eq!(read.as_ref(), Ok(&batch));
        let mut fold = RunFold::default();
        assert!(fold.add(&batch).is_ok());
        assert_eq!(fold.tree.run(), decider.fold.tree.run());
        assert_eq!(fold.latest, decider.fold.latest);
        assert_eq!(
            fold.in_flight.keys().collect::<Vec<_>>(),
            decider.fold.in_flight.keys().collect::<Vec<_>>()
        );
    }

    fn begin(run: RunId) -> Command {
        begin_with(run, None)
    }

    fn begin_with(run: RunId, terms: Option<Box<WorkspaceTerms>>) -> Command {
        Command::Begin {
            run,
            agent: adjutant_core::AgentName::new("delegate"),
            goal: String::new(),
            workdir: "/".to_owned(),
            policy: Box::new(LayeredPolicy::new(Preset::Scout).into_policy()),
            version: "0".to_owned(),
            model: None,
            terms,
            base_depth: 0,
            environment: None,
        }
    }
}
