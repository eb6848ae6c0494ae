//! The loop: one input at a time, decide, record, evolve, react; effects and reports once durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_core::policy::Approval;
use adjutant_core::{
    AgentName, Command, Conversation, Effect, Event, Outcome, SessionId, Timestamp, ToolSpec, Tree,
};
use adjutant_model::Model;
use adjutant_store::{Durability, Journal, Seq};
use adjutant_tools::Toolbox;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::clock::Clock;
use crate::engine::EngineError;
use crate::execute::{Answer, Approver, Done, Heard, Question, Thought, think, use_tool, verify};
use crate::opening::Durable;

/// Hears of every event, in order, once it is on disk.
pub trait Reporter {
    /// Takes one event: when in the run's life, when by the wall clock in Unix milliseconds, what.
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event);
}

/// What a person or another process may ask of a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Stop everything and keep what was found.
    CancelRun,
    /// Stop one delegation and all below it.
    Cancel(SessionId),
}

/// Inputs taken before the journal is handed what they led to: enough to share a sync, few enough
/// that a reply never waits long for its turn.
const BATCH: usize = 256;

/// Signs of life that may wait; more are told together with the next.
pub(crate) const HEARD_QUEUE: usize = 256;

/// What the effects need.
pub(crate) struct Shop {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) approver: Approver,
}

/// An event on its way to the disk, and what waits for it.
struct Held {
    seq: Seq,
    at: Timestamp,
    wall_ms: u64,
    event: Event,
    effects: Vec<Effect>,
}

/// What is under way for one delegation.
#[derive(Default)]
struct Work {
    stop: Arc<AtomicBool>,
    model: Option<AbortHandle>,
}

/// How an agent is introduced to its model.
struct Preamble {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
}

/// Drives one run to its end.
pub(crate) struct Runner {
    pub(crate) tree: Tree,
    clock: Clock,
    journal: Journal<Event>,
    durable: watch::Receiver<Durable>,
    control: mpsc::Receiver<Control>,
    heard: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    shop: Shop,
    reporters: Vec<Box<dyn Reporter>>,
    preambles: BTreeMap<AgentName, Preamble>,
    conversations: BTreeMap<SessionId, Arc<Conversation>>,
    works: BTreeMap<SessionId, Work>,
    /// Calls a person has yet to answer, by parent and number.
    asked: BTreeMap<(SessionId, u32), Vec<Event>>,
    tasks: JoinSet<Done>,
    held: VecDeque<Held>,
    closed: bool,
}

impl Runner {
    pub(crate) fn new(
        clock: Clock,
        journal: Journal<Event>,
        durable: watch::Receiver<Durable>,
        control: mpsc::Receiver<Control>,
        shop: Shop,
        reporters: Vec<Box<dyn Reporter>>,
    ) -> Self {
        Self {
            tree: Tree::default(),
            clock,
            journal,
            durable,
            control,
            heard: mpsc::channel(HEARD_QUEUE),
            shop,
            reporters,
            preambles: BTreeMap::new(),
            conversations: BTreeMap::new(),
            works: BTreeMap::new(),
            asked: BTreeMap::new(),
            tasks: JoinSet::new(),
            held: VecDeque::new(),
            closed: false,
        }
    }

    /// Takes the opening commands, then inputs until the run has ended and is on disk.
    pub(crate) async fn run(mut self, opening: Vec<Command>) -> Result<Outcome, EngineError> {
        for command in opening {
            self.submit(command)?;
        }
        self.journal.submit()?;
        while !self.closed {
            self.next_input().await?;
            self.drain()?;
            self.journal.submit()?;
        }
        self.tasks.abort_all();
        let outcome = self.tree.outcome().unwrap_or(Outcome::Failed);
        self.journal.close()?;
        Ok(outcome)
    }

    /// Waits for the next thing that happens and takes it.
    async fn next_input(&mut self) -> Result<(), EngineError> {
        let deadline = self.tree.next_deadline().map(|(at, _)| self.clock.instant(at));
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
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take(done),
            Some(control) = self.control.recv() => self.obey(control),
            Some((session, bytes)) = self.heard.1.recv() => self.submit(Command::Progress { session, bytes }),
            () = alarm => self.submit(Command::Tick),
        }
    }

    /// Takes whatever else is ready, so that it shares the next sync.
    fn drain(&mut self) -> Result<(), EngineError> {
        for _ in 0..BATCH {
            match self.tasks.try_join_next() {
                Some(done) => self.take(done)?,
                None => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, done: Result<Done, JoinError>) -> Result<(), EngineError> {
        // A task that was aborted has nothing to say; panics were caught inside it.
        let Ok(done) = done else { return Ok(()) };
        let command = match done {
            Done::Model { session, turn, attempt, result: Ok(Ok(reply)) } => {
                Command::Reply { session, turn, attempt, reply }
            }
            Done::Model { session, turn, attempt, result: Ok(Err(error)) } => {
                Command::FailAttempt { session, turn, attempt, error }
            }
            Done::Tool { session, turn, call, result: Ok(output) } => {
                Command::TakeOutput { session, turn, call, output }
            }
            Done::Model { session, result: Err(crash), .. }
            | Done::Tool { session, result: Err(crash), .. } => {
                Command::Crash { session, message: crash.message, backtrace: crash.backtrace }
            }
            Done::Verified { session, text, artifacts } => {
                Command::Conclude { session, text, artifacts }
            }
            Done::Answered { hash, answer: Answer::Yes } => Command::Approve { hash },
            Done::Answered { hash, answer: Answer::No(reason) } => Command::Deny { hash, reason },
        };
        self.submit(command)
    }

    fn obey(&mut self, control: Control) -> Result<(), EngineError> {
        let session = match control {
            Control::CancelRun => self.tree.run().map(adjutant_core::RunId::root_session),
            Control::Cancel(session) => Some(session),
        };
        session.map_or(Ok(()), |session| self.submit(Command::Cancel { session }))
    }

    /// Decides a command and everything that follows from it.
    fn submit(&mut self, command: Command) -> Result<(), EngineError> {
        let mut queue = VecDeque::from([command]);
        while let Some(command) = queue.pop_front() {
            let now = self.clock.now();
            // What was refused changed nothing: a call as a whole was judged before the run began,
            // and a stale approval or cancel has nobody left to tell.
            let Ok(events) = self.tree.decide(now, command) else { continue };
            self.record(now, events, &mut queue)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        now: Timestamp,
        events: Vec<Event>,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        let wall_ms = self.clock.wall_ms();
        let first = self.held.len();
        for event in events {
            let durability =
                if event.must_be_durable() { Durability::Sync } else { Durability::Lazy };
            let seq = self.journal.stage(now, wall_ms, &event, durability)?;
            self.tree.evolve(now, &event)?;
            self.fold(&event);
            self.held.push_back(Held { seq, at: now, wall_ms, event, effects: Vec::new() });
        }
        // Reactions look at the tree after the whole decision, as a replay would.
        for held in self.held.iter_mut().skip(first) {
            let reaction = self.tree.react(&held.event);
            held.effects = reaction.effects;
            queue.extend(reaction.commands);
        }
        if self.held.front().is_some_and(|held| !held.event.must_be_durable()) {
            self.report_lazy();
        }
        Ok(())
    }

    /// Keeps what effects will need: conversations, preambles, open questions.
    fn fold(&mut self, event: &Event) {
        if let Event::AgentDefined { agent, system, tools, .. } = event {
            let preamble =
                Preamble { system: system.as_str().into(), tools: tools.as_slice().into() };
            self.preambles.insert(agent.clone(), preamble);
        }
        if self.tree.policy().approval == Approval::Batch
            && let Some(call) = call_of(event)
        {
            self.asked.entry(call).or_default().push(event.clone());
        }
        let Some(session) = event.session() else { return };
        if matches!(event, Event::Ended { .. } | Event::Refused { .. } | Event::Late { .. }) {
            // Nobody will speak with it again; a thousand ended children must not keep their words.
            self.conversations.remove(&session);
            self.shop.model.forget(session);
        } else {
            Arc::make_mut(self.conversations.entry(session).or_default()).apply(event);
        }
    }

    /// Reports and performs what the disk now holds.
    fn release(&mut self) -> Result<(), EngineError> {
        let durable = self.durable.borrow_and_update().clone();
        let through = match durable {
            Durable::Through(seq) => seq,
            Durable::Failed(error) => return Err(error.into()),
        };
        while self.held.front().is_some_and(|held| held.seq <= through) {
            let Some(held) = self.held.pop_front() else { break };
            self.tell(&held);
            for effect in held.effects {
                self.perform(effect);
            }
        }
        self.report_lazy();
        Ok(())
    }

    /// Signs of life are never waited for: they are reported when nothing before them is open.
    fn report_lazy(&mut self) {
        while self.held.front().is_some_and(|held| !held.event.must_be_durable()) {
            let Some(held) = self.held.pop_front() else { break };
            self.tell(&held);
        }
    }

    fn tell(&mut self, held: &Held) {
        for reporter in &mut self.reporters {
            reporter.report(held.at, held.wall_ms, &held.event);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Model { session, turn, attempt, max_output, context_tokens, with_tools } => {
                self.start_thinking(session, turn, attempt, max_output, context_tokens, with_tools);
            }
            Effect::Tool { session, turn, index, call } => {
                let stop = Arc::clone(&self.works.entry(session).or_default().stop);
                let toolbox = Arc::clone(&self.shop.toolbox);
                self.tasks
                    .spawn_blocking(move || use_tool(&toolbox, session, turn, index, &call, &stop));
            }
            Effect::Verify { session } => {
                let text = self.conversations.get(&session).and_then(|talk| talk.last_text());
                let text = text.unwrap_or_default().to_owned();
                let toolbox = Arc::clone(&self.shop.toolbox);
                self.tasks.spawn_blocking(move || verify(&toolbox, session, text));
            }
            Effect::AskApproval { parent, call, hash } => {
                let events = self.asked.remove(&(parent, call)).unwrap_or_default();
                let question = Question { events, policy: self.tree.policy().clone() };
                let approver = Arc::clone(&self.shop.approver);
                self.tasks
                    .spawn_blocking(move || Done::Answered { hash, answer: approver(&question) });
            }
            Effect::Stop { session } => {
                if let Some(work) = self.works.remove(&session) {
                    work.stop.store(true, Ordering::Relaxed);
                    if let Some(model) = work.model {
                        model.abort();
                    }
                }
            }
            Effect::Close => self.closed = true,
        }
    }

    fn start_thinking(
        &mut self,
        session: SessionId,
        turn: u32,
        attempt: u32,
        max_output: u64,
        context_tokens: u64,
        with_tools: bool,
    ) {
        // It may have ended while its reservation was on the way to the disk.
        let Some(node) = self.tree.node(session).filter(|node| node.reservation.is_some()) else {
            return;
        };
        let Some(preamble) = self.preambles.get(&node.agent) else { return };
        let thought = Thought {
            session,
            turn,
            attempt,
            max_output,
            context_tokens,
            agent: node.agent.clone(),
            label: node.label.clone(),
            system: Arc::clone(&preamble.system),
            tools: if with_tools { Arc::clone(&preamble.tools) } else { Arc::default() },
            conversation: self.conversations.get(&session).cloned().unwrap_or_default(),
            model: Arc::clone(&self.shop.model),
        };
        let handle = self.tasks.spawn(think(thought, self.heard.0.clone()));
        self.works.entry(session).or_default().model = Some(handle);
    }
}

/// Returns the call an event of admission belongs to.
fn call_of(event: &Event) -> Option<(SessionId, u32)> {
    if let Event::Granted(grant) = event {
        return Some((grant.parent, grant.call));
    }
    if let Event::Refused { parent, call, .. } | Event::ApprovalAsked { parent, call, .. } = event {
        return Some((*parent, *call));
    }
    None
}
