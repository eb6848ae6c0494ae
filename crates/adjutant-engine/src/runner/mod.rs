//! The loop: one input at a time, decide, record, evolve, react; effects and reports once durable.

pub(crate) mod clock;
pub(crate) mod effects;
pub(crate) mod journal_reserve;
pub(crate) mod panics;
mod record;
mod story;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use adjutant_core::schema::ReturnForm;
use adjutant_core::tree::InFlight;
use adjutant_core::{
    AgentName, Command, Conversation, Effect, Event, Origin, Outcome, SessionId, Timestamp,
    ToolCall, ToolOutput, ToolSpec, Tree,
};
use adjutant_store::{Journal, JournalError, Position, Record, RunDir, Seq};
use adjutant_workspace::sandbox::CancelHandle;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::briefs::brief_builder::BriefBuilder;
use crate::control::{ControlListener, QueuedRequest};
use crate::engine::storage::SyncProgress;
use crate::engine::{EngineError, RunGuard, RunOpening};
use crate::ids::IdSource;
use crate::runner::clock::RunClock;
use crate::runner::effects::question_queue::QuestionQueue;
use crate::runner::effects::{
    Approver, EffectResult, LiveSignal, NextEffect, ParsedDelegation, SessionSignal,
};
use crate::runner::journal_reserve::JournalReserve;
use crate::workspaces::RunWorkspaces;

/// Hears of every event, in order, once it is on disk.
pub trait Reporter {
    /// Takes one event: when in the run's life, when by the wall clock in Unix milliseconds, what.
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event);

    /// Takes one event that was reported by an earlier process of the same run; whoever keeps a
    /// picture of the run folds it in, whoever only passes things on has done so before.
    fn replay(&mut self, _at: Timestamp, _wall_ms: u64, _event: &Event) {}
}

impl<F: FnMut(Timestamp, u64, &Event)> Reporter for F {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self(at, wall_ms, event);
    }
}

/// Puts into words what came back, for the agent that handed tasks down.
pub trait Narrator {
    /// Returns the results of one call of `parent`; every event of it has been reported before.
    fn results(&self, parent: SessionId, call: u32, form: ReturnForm) -> String;
}

/// What a person or another process may ask of a live run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Stop everything and keep what was found.
    CancelRun,
    /// Stop one delegation and all below it.
    Cancel(SessionId),
    /// Say something to an agent before its next turn.
    Tell(SessionId, String),
}

/// Inputs taken before the journal is handed what they led to: enough to share a sync, few enough
/// that a reply never waits long for its turn.
const BATCH: usize = 256;

/// Signs of life that may wait; more are told together with the next.
pub(crate) const SIGNAL_QUEUE: usize = 256;

pub(crate) use effects::perform::{changed_by, message};

/// What the effects need.
pub(crate) struct EffectContext {
    pub(crate) brief_builder: BriefBuilder,
    pub(crate) approver: Approver,
    pub(crate) narrator: Rc<dyn Narrator>,
    pub(crate) ids: IdSource,
    /// The run's folder, where there is one: what a write would lose is kept there.
    pub(crate) folder: Option<RunDir>,
    /// Where agents work that write in workspaces of their own.
    pub(crate) spaces: Option<Arc<RunWorkspaces>>,
    /// Whether commands find the limits of the run in their environment.
    pub(crate) has_limits_in_environment: bool,
}

/// An event on its way to the disk, and what waits for it.
struct StagedEvent {
    seq: Seq,
    at: Timestamp,
    wall_ms: u64,
    event: Event,
    effects: Vec<Effect>,
}

/// What is under way for one delegation.
#[derive(Default)]
struct RunningWork {
    stop: Arc<AtomicBool>,
    model: Option<AbortHandle>,
    /// What stops the command it began last.
    command: Option<Arc<CancelHandle>>,
}

/// How an agent is introduced to its model.
struct AgentPreamble {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    /// What is offered at the deepest level.
    tools_to_work: Arc<[ToolSpec]>,
}

/// Drives one run to its end.
pub(crate) struct Runner {
    pub(crate) tree: Tree,
    clock: RunClock,
    journal: Journal<Event>,
    durable: watch::Receiver<SyncProgress>,
    control: mpsc::Receiver<ControlCommand>,
    listener: ControlListener,
    signals: (mpsc::Sender<SessionSignal>, mpsc::Receiver<SessionSignal>),
    context: EffectContext,
    reporters: Vec<Box<dyn Reporter>>,
    preambles: BTreeMap<AgentName, AgentPreamble>,
    conversations: BTreeMap<SessionId, Arc<Conversation>>,
    running: BTreeMap<SessionId, RunningWork>,
    /// Calls a person has yet to answer, by parent and number.
    asked: BTreeMap<(SessionId, u32), Vec<Event>>,
    /// What the run began with, until its first turn: a person may be asked about the whole of it.
    opening: Vec<Event>,
    questions: QuestionQueue,
    /// Calls of the `Delegate` tool that are being read or wait for it.
    unread: BTreeMap<SessionId, VecDeque<(u32, u32, ToolCall)>>,
    tasks: JoinSet<EffectResult>,
    /// The effects that were asked for and are not over.
    in_flight: InFlight,
    staged_events: VecDeque<StagedEvent>,
    /// Whether more decisions follow that count only together with this one.
    joined: bool,
    /// Where the last record begins, if it counts only together with more.
    open: Option<Position>,
    reserve: JournalReserve,
    /// Set once the disk is full. From then on only the answers of model calls under way are recorded, and the ends.
    full: Option<JournalError>,
    closed: bool,
    /// Given back before the end of the run is written.
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
            tree: Tree::default(),
            clock,
            journal,
            durable,
            control,
            listener,
            signals: mpsc::channel(SIGNAL_QUEUE),
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
            in_flight: InFlight::default(),
            staged_events: VecDeque::new(),
            joined: false,
            open: None,
            reserve: JournalReserve::default(),
            full: None,
            closed: false,
            guard: None,
        }
    }

    /// Takes the opening, then inputs until the run has ended and is on disk.
    pub(crate) async fn run(mut self, opening: RunOpening) -> Result<Outcome, EngineError> {
        self.reserve = JournalReserve::of(&self.tree);
        let start = self.journal.position();
        let mut left = opening.decided.len() + opening.commands.len();
        for events in opening.decided {
            left -= 1;
            // A run that began without its tasks would have lost them.
            self.joined = left > 0;
            // A full disk has ended the run.
            if self.full.is_none() {
                self.take_decided(Timestamp::ZERO, events)?;
            }
        }
        for command in opening.commands {
            left -= 1;
            // A question is whole by itself: the turn behind it is taken once it is answered.
            self.joined = left > 0 && !matches!(command, Command::AskToBegin { .. });
            self.submit(command)?;
        }
        self.close_opening()?;
        if let Some(error) = self.full.take_if(|_| self.tree.nodes().nth(1).is_none()) {
            // Nobody was admitted and nothing was asked: better no run than one about nothing.
            self.journal.unstage(start);
            return Err(error.into());
        }
        self.work().await
    }

    /// Takes inputs until the run has ended and is on disk.
    async fn work(mut self) -> Result<Outcome, EngineError> {
        self.journal.submit()?;
        while !self.closed {
            self.next_input().await?;
            self.take_ready_results()?;
            self.journal.submit()?;
        }
        self.tasks.abort_all();
        let outcome = self.tree.outcome().unwrap_or(Outcome::Failed);
        self.journal.close()?;
        self.listener.close().await;
        Ok(outcome)
    }

    /// Folds in what an earlier process recorded, without doing any of it.
    pub(crate) fn replay(&mut self, record: &Record<Event>) -> Result<(), EngineError> {
        self.tree.evolve(record.at, &record.event)?;
        self.fold(&record.event);
        for reporter in &mut self.reporters {
            reporter.replay(record.at, record.wall_ms, &record.event);
        }
        Ok(())
    }

    /// Returns how old the run is.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the conversation of a session, as far as it is kept.
    pub(crate) fn conversation(&self, session: SessionId) -> Option<&Conversation> {
        self.conversations.get(&session).map(AsRef::as_ref)
    }

    /// Goes on with a recalled run as `command` says. Says no when nothing can go on.
    pub(crate) async fn resume(mut self, command: Command) -> Result<Option<Outcome>, EngineError> {
        self.reserve = JournalReserve::of(&self.tree);
        let (before, start) = (self.staged_events.len(), self.journal.position());
        self.try_submit(command)??;
        self.reserve = JournalReserve::of(&self.tree);
        if let Some(error) = self.full.take() {
            // Nothing was done yet; it waits as it was until there is room.
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

    /// Waits for the next thing that happens and takes it.
    async fn next_input(&mut self) -> Result<(), EngineError> {
        let deadline = self.tree.next_deadline().map(|(at, _)| self.clock.instant(at));
        if deadline.is_some_and(|at| at <= tokio::time::Instant::now()) {
            // Whoever was stopped, or kept from the processor, wakes up to a deadline and to what
            // came meanwhile. Time decides first, and so the same way each time.
            return self.submit(Command::Tick);
        }
        let alarm = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.durable.changed() => {
                changed.map_err(|_gone| EngineError::JournalGone)?;
                self.release()
            }
            Some(result) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take_result(result),
            Some(control) = self.control.recv() => self.take_control(control),
            Some(order) = self.listener.next() => self.answer_request(order),
            Some((session, sign)) = self.signals.1.recv() => self.submit(match sign {
                LiveSignal::Bytes(bytes) => Command::Progress { session, bytes },
                LiveSignal::Pause { provider, ms } => Command::Pause { session, provider, ms },
                LiveSignal::Printed(text) => Command::Print { session, text },
            }),
            () = alarm => self.submit(Command::Tick),
        }
    }

    /// Takes whatever else is ready, so that it shares the next sync.
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
        // A task that was aborted has nothing to say; panics were caught inside it.
        let Ok(EffectResult { command, briefs, next }) = result else { return Ok(()) };
        if self.full.is_some() && !command.as_ref().is_some_and(|it| self.is_recorded_when_full(it))
        {
            return Ok(());
        }
        if let Some(command) = command {
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
                self.questions.answered();
                self.ask_next_question();
            }
        }
        Ok(())
    }

    /// Hands down the tasks of a tool call, or tells the agent why not.
    fn delegate(&mut self, call: ParsedDelegation) -> Result<(), EngineError> {
        let ParsedDelegation { parent, origin, briefs, concurrency } = call;
        let is_taken = |session| self.tree.node(session).is_some();
        let tasks = self.context.ids.tasks(briefs, is_taken)?;
        let command = Command::Delegate { parent, tasks, concurrency, origin: Some(origin) };
        let Err(refusal) = self.try_submit(command)? else { return Ok(()) };
        let Origin { turn, index: Some(call), .. } = origin else { return Ok(()) };
        let (code, message) = (refusal.code(), refusal.message());
        let output = ToolOutput::error(format!("{code}: {message}\n{}", refusal.recommendation()));
        self.submit(Command::TakeOutput { session: parent, turn, call, output })
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

    /// Does what another process asks, and answers it.
    fn answer_request(&mut self, order: QueuedRequest) -> Result<(), EngineError> {
        let Some(run) = self.tree.run() else { return Ok(()) };
        let done = match order.request.command(run) {
            None => Ok(None),
            Some(command) => self.try_submit(command)?.map(|()| Some(self.journal.position().seq)),
        };
        self.listener.answer(run, self.tree.outcome(), order, done);
        Ok(())
    }
}
