//! The run loop: takes one input at a time, decides, records and evolves; performs effects once their events are
//! durable.
//!
//! Start at [`Runner::run`]; `record` has the way of a command to the disk, `effects` what is performed.
//! Invariant: an event is reported and its effects start only after it is durable.

pub(crate) mod clock;
pub(crate) mod effects;
mod follow;
pub(crate) mod journal_reserve;
pub(crate) mod panics;
mod record;
mod story;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adjutant_core::schema::ReturnFormat;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{
    AgentName, Command, Conversation, Effect, Event, Outcome, SessionId, Timestamp, ToolCall,
    ToolSpec, Tree,
};
use adjutant_store::{Journal, JournalError, JournalPosition, JournalRecord, RecordNumber, RunDir};
use adjutant_workspace::sandbox::CancelHandle;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use crate::briefs::brief_builder::BriefBuilder;
use crate::control::{ControlListener, QueuedRequest};
use crate::engine::storage::SyncProgress;
use crate::engine::{EngineError, RunGuard, RunOpening};
use crate::ids::IdSource;
use crate::remote::{RemoteRun, RunAuthority, RunUpdate};
use crate::runner::clock::RunClock;
use crate::runner::effects::question_queue::QuestionQueue;
use crate::runner::effects::workers::{AdmittedCalls, WorkerSlot};
use crate::runner::effects::{
    Approver, EffectResult, LiveSignal, NextEffect, ParsedDelegation, SessionSignal,
};
use crate::runner::journal_reserve::JournalReserve;
use crate::workers::{WorkerHost, WorkerInput};
use crate::workspaces::RunWorkspaces;

/// Receives every event in order, once it is durable.
pub trait Reporter {
    /// Receives one event with its time in the run and the wall clock in Unix milliseconds.
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event);

    /// Receives one event of an earlier process of a resumed run. A reporter that keeps the state of the run
    /// needs it; one that prints or forwards events can ignore it.
    fn replay(&mut self, _at: Timestamp, _wall_ms: u64, _event: &Event) {}

    /// Receives the end of the text that a model is writing. It is not an event: it is bounded, may be skipped,
    /// and is not recorded.
    fn show_text_end(&mut self, _at: Timestamp, _session: SessionId, _text: &str) {}
}

impl<F: FnMut(Timestamp, u64, &Event)> Reporter for F {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self(at, wall_ms, event);
    }
}

/// Formats the results of delegated tasks for the agent that delegated them.
pub trait Narrator {
    /// Returns the results of one call of `parent`. All its events have been reported before.
    fn results(&self, parent: SessionId, call: u32, form: ReturnFormat) -> String;
}

/// A command of the front end to a live run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Cancel the whole run.
    CancelRun,
    /// Cancel one delegation and its descendants.
    Cancel(SessionId),
    /// Give an agent a message before its next turn.
    Tell(SessionId, String),
}

/// The most results that are processed before the journal is synced. Many share one fsync; a bound keeps
/// the latency of each low.
const BATCH: usize = 256;

/// The most signals in the queue. Progress beyond that is reported with the next signal.
pub(crate) const SIGNAL_QUEUE: usize = 256;

/// How often an agent's progress is sent to the runtime that decides its run. The timers that it restarts take a minute.
const SIGNAL_PAUSE: Duration = Duration::from_secs(1);

pub(crate) use effects::perform::{changed_by, message};

/// What effects need from outside the run loop.
pub(crate) struct EffectContext {
    pub(crate) brief_builder: BriefBuilder,
    pub(crate) approver: Approver,
    pub(crate) narrator: Rc<dyn Narrator>,
    pub(crate) ids: IdSource,
    /// The run's directory, in which the old content of written files is saved; absent in memory.
    pub(crate) folder: Option<RunDir>,
    /// The workspaces, if agents write in their own.
    pub(crate) spaces: Option<Arc<RunWorkspaces>>,
    /// Whether commands get the run's limits as environment variables.
    pub(crate) has_limits_in_environment: bool,
    /// Starts external agents.
    pub(crate) workers: Option<Arc<dyn WorkerHost>>,
}

/// An event that is not durable yet, with the effects that wait for it.
struct StagedEvent {
    seq: RecordNumber,
    at: Timestamp,
    wall_ms: u64,
    event: Event,
    effects: Vec<Effect>,
}

/// The handles to stop the running effects of one delegation.
#[derive(Default)]
struct RunningWork {
    stop: Arc<AtomicBool>,
    model: Option<AbortHandle>,
    /// Cancels the last shell command.
    command: Option<Arc<CancelHandle>>,
    /// The external agent that does the work.
    worker: Option<WorkerSlot>,
}

impl RunningWork {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(command) = &self.command {
            command.cancel();
        }
        if let Some(model) = &self.model {
            model.abort();
        }
    }
}

/// The system prompt and tools of an agent.
struct AgentPreamble {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    /// The tools without those that delegate, for the deepest level.
    tools_to_work: Arc<[ToolSpec]>,
}

/// The loop of one run and its state.
pub(crate) struct Runner {
    pub(crate) tree: Tree,
    authority: RunAuthority,
    clock: RunClock,
    journal: Journal<Event>,
    durable: watch::Receiver<SyncProgress>,
    control: mpsc::Receiver<ControlCommand>,
    listener: ControlListener,
    signals: (mpsc::Sender<SessionSignal>, mpsc::Receiver<SessionSignal>),
    worker_inputs: (mpsc::Sender<WorkerInput>, mpsc::Receiver<WorkerInput>),
    /// The admitted model calls of workers whose reservation is not durable yet.
    admitted: AdmittedCalls,
    context: EffectContext,
    reporters: Vec<Box<dyn Reporter>>,
    preambles: BTreeMap<AgentName, AgentPreamble>,
    conversations: BTreeMap<SessionId, Arc<Conversation>>,
    running: BTreeMap<SessionId, RunningWork>,
    /// The events of calls that wait for approval, by parent and call number.
    asked: BTreeMap<(SessionId, u32), Vec<Event>>,
    /// The first events, until the first turn: a person may be asked to approve the whole run.
    opening: Vec<Event>,
    questions: QuestionQueue,
    /// Delegate calls that are being parsed or wait for it.
    unread: BTreeMap<SessionId, VecDeque<(u32, u32, ToolCall)>>,
    tasks: JoinSet<EffectResult>,
    /// The effects that were requested and have no result yet.
    in_flight: EffectsInFlight,
    /// When each agent's progress was last sent to the runtime.
    signalled: BTreeMap<SessionId, Instant>,
    staged_events: VecDeque<StagedEvent>,
    /// Whether the next decisions must become durable together with this one.
    joined: bool,
    /// The start of the last record, if it counts only together with the next.
    open: Option<JournalPosition>,
    reserve: JournalReserve,
    /// Set once the disk is full. From then on only replies of running model calls and ends are recorded.
    full: Option<JournalError>,
    closed: bool,
    /// Dropped before the end of the run is written; see [`crate::Engine::with_guard`].
    pub(crate) guard: Option<RunGuard>,
}

impl Runner {
    pub(crate) fn new(
        clock: RunClock,
        journal: Journal<Event>,
        durable: watch::Receiver<SyncProgress>,
        control: mpsc::Receiver<ControlCommand>,
        listener: ControlListener,
        context: EffectContext,
        reporters: Vec<Box<dyn Reporter>>,
    ) -> Self {
        Self {
            tree: Tree::with_custom_tools(context.brief_builder.toolbox.custom_tools()),
            authority: RunAuthority::Here,
            clock,
            journal,
            durable,
            control,
            listener,
            signals: mpsc::channel(SIGNAL_QUEUE),
            worker_inputs: mpsc::channel(SIGNAL_QUEUE),
            admitted: AdmittedCalls::default(),
            context,
            reporters,
            preambles: BTreeMap::new(),
            conversations: BTreeMap::new(),
            running: BTreeMap::new(),
            asked: BTreeMap::new(),
            opening: Vec::new(),
            questions: QuestionQueue::default(),
            unread: BTreeMap::new(),
            tasks: JoinSet::new(),
            in_flight: EffectsInFlight::default(),
            signalled: BTreeMap::new(),
            staged_events: VecDeque::new(),
            joined: false,
            open: None,
            reserve: JournalReserve::default(),
            full: None,
            closed: false,
            guard: None,
        }
    }

    /// Records the opening, then runs the loop until the run has ended and is on disk.
    pub(crate) async fn run(mut self, opening: RunOpening) -> Result<Outcome, EngineError> {
        self.reserve = JournalReserve::of(&self.tree);
        let start = self.journal.position();
        let mut left = opening.decided.len() + opening.commands.len();
        for events in opening.decided {
            left -= 1;
            // The run and its tasks become durable together.
            self.joined = left > 0;
            // After a full disk nothing more is recorded.
            if self.full.is_none() {
                self.take_decided(Timestamp::ZERO, events)?;
            }
        }
        for command in opening.commands {
            left -= 1;
            // A question must be durable by itself: the turn after it starts only once it is answered.
            self.joined = left > 0 && !matches!(command, Command::AskToBegin { .. });
            self.submit(command)?;
        }
        self.close_opening()?;
        if let Some(error) = self.full.take_if(|_| self.tree.nodes().nth(1).is_none()) {
            // No delegation was admitted before the disk was full, so there is no run at all.
            self.journal.unstage(start);
            return Err(error.into());
        }
        self.work().await
    }

    /// Follows a run that a runtime decides until it has ended, and is on disk if this is its front end.
    pub(crate) async fn follow(mut self, followed: RemoteRun) -> Result<Outcome, EngineError> {
        self.authority = RunAuthority::Remote(followed);
        self.work().await
    }

    /// Runs the loop until the run has ended and is on disk.
    async fn work(mut self) -> Result<Outcome, EngineError> {
        if let Err(error) = self.work_until_closed().await {
            // What they do could no longer be recorded.
            self.running.values().for_each(RunningWork::stop);
            return Err(error);
        }
        self.tasks.abort_all();
        let outcome = self.tree.outcome().unwrap_or(Outcome::Failed);
        self.journal.close()?;
        self.listener.close().await;
        Ok(outcome)
    }

    async fn work_until_closed(&mut self) -> Result<(), EngineError> {
        self.journal.submit()?;
        while !self.closed {
            self.next_input().await?;
            self.take_ready_results()?;
            self.journal.submit()?;
        }
        Ok(())
    }

    /// Applies a record of an earlier process without performing its effects.
    pub(crate) fn replay(&mut self, record: &JournalRecord<Event>) -> Result<(), EngineError> {
        self.tree.evolve(record.at, &record.event)?;
        self.fold(&record.event);
        for reporter in &mut self.reporters {
            reporter.replay(record.at, record.wall_ms, &record.event);
        }
        Ok(())
    }

    /// Returns the time in the run.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the conversation of a session; `None` after it has ended.
    pub(crate) fn conversation(&self, session: SessionId) -> Option<&Conversation> {
        self.conversations.get(&session).map(AsRef::as_ref)
    }

    /// Submits the resume command after all records were replayed, then runs the loop. Returns `None` if there is
    /// nothing to resume.
    pub(crate) async fn resume(mut self, command: Command) -> Result<Option<Outcome>, EngineError> {
        self.reserve = JournalReserve::of(&self.tree);
        let (before, start) = (self.staged_events.len(), self.journal.position());
        self.try_submit(command)??;
        self.reserve = JournalReserve::of(&self.tree);
        if let Some(error) = self.full.take() {
            // Nothing was recorded; the run can be resumed once there is space.
            self.journal.unstage(start);
            return Err(error.into());
        }
        if self.staged_events.len() == before {
            return Ok(None);
        }
        let live = |session: &SessionId| self.tree.node(*session).is_some_and(|it| it.is_live());
        self.conversations.retain(|session, _| live(session));
        let open = |events: &Vec<Event>| {
            events.iter().any(
                |event| matches!(event, Event::ApprovalAsked { hash, .. } if self.tree.awaits_approval(hash)),
            )
        };
        self.asked.retain(|_, events| open(events));
        self.work().await.map(Some)
    }

    /// Waits for the next input and processes it.
    async fn next_input(&mut self) -> Result<(), EngineError> {
        let deadline = match self.authority {
            RunAuthority::Here => self.tree.next_deadline().map(|(at, _)| self.clock.instant(at)),
            // The runtime has its own timers.
            RunAuthority::Remote(_) => None,
        };
        if deadline.is_some_and(|at| at <= tokio::time::Instant::now()) {
            // After a suspension a deadline and other inputs may be due at once. The deadline comes first, so
            // that the order is always the same.
            return self.submit(Command::Tick);
        }
        let alarm = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let updates = self.authority.followed().map(|followed| &mut followed.link.updates);
        let update = async {
            match updates {
                Some(updates) => updates
                    .recv()
                    .await
                    .unwrap_or_else(|| RunUpdate::Lost("the connection has ended".to_owned())),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            update = update => self.take_update(update),
            changed = self.durable.changed() => {
                changed.map_err(|_gone| EngineError::JournalGone)?;
                self.release()
            }
            Some(result) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take_result(result),
            Some(control) = self.control.recv() => self.take_control(control),
            Some(order) = self.listener.next() => self.answer_request(order),
            Some((session, sign)) = self.signals.1.recv() => match sign {
                LiveSignal::Bytes(_) | LiveSignal::Printed(_) if !self.may_send_signal(session) => Ok(()),
                LiveSignal::Bytes(bytes) => self.submit(Command::Progress { session, bytes }),
                LiveSignal::Pause { provider, ms } => self.submit(Command::Pause { session, provider, ms }),
                LiveSignal::Printed(text) => self.submit(Command::Print { session, text }),
                LiveSignal::TextEnd(text) => {
                    let at = self.clock.now();
                    self.reporters.iter_mut().for_each(|it| it.show_text_end(at, session, &text));
                    Ok(())
                }
            },
            Some(input) = self.worker_inputs.1.recv() => self.take_worker_input(input),
            () = alarm => self.submit(Command::Tick),
        }
    }

    /// Processes other results that are ready, so that they share the next fsync.
    fn take_ready_results(&mut self) -> Result<(), EngineError> {
        for _ in 0..BATCH {
            match self.tasks.try_join_next() {
                Some(result) => self.take_result(result)?,
                None => break,
            }
        }
        Ok(())
    }

    fn take_result(&mut self, result: Result<EffectResult, JoinError>) -> Result<(), EngineError> {
        // An aborted task has no result; panics were caught inside the task.
        let Ok(EffectResult { command, briefs, next }) = result else { return Ok(()) };
        if self.full.is_some() && !command.as_ref().is_some_and(|it| self.is_recorded_when_full(it))
        {
            return Ok(());
        }
        if let Some(command) = command {
            // What a worker reported before its answer came over another channel and belongs before the answer, which
            // may end the delegation.
            for _ in 0..self.worker_inputs.1.len() {
                let Ok(input) = self.worker_inputs.1.try_recv() else { break };
                self.take_worker_input(input)?;
            }
            self.submit(command)?;
        }
        if let Some(briefs) = briefs {
            self.delegate(briefs)?;
        }
        match next {
            NextEffect::None => {}
            NextEffect::ReadCall(session) => {
                if let Some(waiting) = self.unread.get_mut(&session) {
                    waiting.pop_front();
                }
                self.read_next(session);
            }
            NextEffect::DropUnusedSpace(session) => self.drop_unused_space(session),
            NextEffect::PutQuestion => {
                self.questions.mark_answered();
                self.ask_next_question();
            }
        }
        Ok(())
    }

    /// Delegates the tasks of a tool call, or returns the refusal to the agent.
    fn delegate(&mut self, call: ParsedDelegation) -> Result<(), EngineError> {
        let ParsedDelegation { parent, origin, briefs, concurrency } = call;
        let is_taken = |session| self.tree.node(session).is_some();
        let tasks = self.context.ids.tasks(briefs, is_taken)?;
        let command = Command::Delegate { parent, tasks, concurrency, origin: Some(origin) };
        let Err(refusal) = self.try_submit(command)? else { return Ok(()) };
        match Command::answer_refused(parent, origin, &refusal) {
            Some(answer) => self.submit(answer),
            None => Ok(()),
        }
    }

    fn take_control(&mut self, control: ControlCommand) -> Result<(), EngineError> {
        let command = match control {
            ControlCommand::CancelRun => {
                let Some(run) = self.tree.run() else { return Ok(()) };
                Command::Cancel { session: run.root_session() }
            }
            ControlCommand::Cancel(session) => Command::Cancel { session },
            ControlCommand::Tell(session, text) => Command::Tell { session, text },
        };
        self.submit(command)
    }

    /// Carries out the request of another process and answers it.
    fn answer_request(&mut self, order: QueuedRequest) -> Result<(), EngineError> {
        if let RunAuthority::Remote(_) = self.authority {
            return self.send_request(order);
        }
        let Some(run) = self.tree.run() else { return Ok(()) };
        let done = match order.request.command(run) {
            None => Ok(None),
            Some(command) => self.try_submit(command)?.map(|()| Some(self.journal.position().seq)),
        };
        self.listener.answer(run, self.tree.outcome(), order, done);
        Ok(())
    }
}
