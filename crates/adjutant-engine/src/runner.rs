//! The loop: one input at a time, decide, record, evolve, react; effects and reports once durable.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_core::policy::Approval;
use adjutant_core::schema::{CallLimits, DELEGATE, ReturnForm, TASK};
use adjutant_core::{
    AgentName, Command, Conversation, Effect, Event, Origin, Outcome, Refusal, SessionId,
    Timestamp, ToolCall, ToolOutput, ToolSet, ToolSpec, Tree,
};
use adjutant_store::{Durability, Journal, JournalError, Record, Seq};
use adjutant_tools::Approved;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::clock::Clock;
use crate::control::{Door, Order};
use crate::crash::guard;
use crate::desk::Desk;
use crate::engine::EngineError;
use crate::execute::{
    Answer, Approver, Asked, Briefs, Done, Heard, Question, Sign, Thought, put, read_call, think,
    use_tool, verify,
};
use crate::ids::IdSource;
use crate::opening::Durable;
use crate::questions::Questions;
use crate::room::Room;

/// Hears of every event, in order, once it is on disk.
pub trait Reporter {
    /// Takes one event: when in the run's life, when by the wall clock in Unix milliseconds, what.
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event);

    /// Takes one event that was reported by an earlier process of the same run; whoever keeps a
    /// picture of the run folds it in, whoever only passes things on has done so before.
    fn recall(&mut self, _at: Timestamp, _wall_ms: u64, _event: &Event) {}
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
pub enum Control {
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
pub(crate) const HEARD_QUEUE: usize = 256;

/// What the effects need.
pub(crate) struct Shop {
    pub(crate) desk: Desk,
    pub(crate) approver: Approver,
    pub(crate) narrator: Rc<dyn Narrator>,
    pub(crate) ids: IdSource,
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
    /// What is offered at the deepest level.
    tools_to_work: Arc<[ToolSpec]>,
}

/// Drives one run to its end.
pub(crate) struct Runner {
    pub(crate) tree: Tree,
    clock: Clock,
    journal: Journal<Event>,
    durable: watch::Receiver<Durable>,
    control: mpsc::Receiver<Control>,
    door: Door,
    heard: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    shop: Shop,
    reporters: Vec<Box<dyn Reporter>>,
    preambles: BTreeMap<AgentName, Preamble>,
    conversations: BTreeMap<SessionId, Arc<Conversation>>,
    works: BTreeMap<SessionId, Work>,
    /// Calls a person has yet to answer, by parent and number.
    asked: BTreeMap<(SessionId, u32), Vec<Event>>,
    questions: Questions,
    /// Calls of the `Delegate` tool that are being read or wait for it.
    unread: BTreeMap<SessionId, VecDeque<(u32, u32, ToolCall)>>,
    tasks: JoinSet<Done>,
    held: VecDeque<Held>,
    /// Whether more decisions follow that count only together with this one.
    joined: bool,
    room: Room,
    /// Why everything was ended, once the disk is full: nothing more is recorded than that.
    full: Option<JournalError>,
    closed: bool,
}

impl Runner {
    pub(crate) fn new(
        clock: Clock,
        journal: Journal<Event>,
        durable: watch::Receiver<Durable>,
        control: mpsc::Receiver<Control>,
        door: Door,
        shop: Shop,
        reporters: Vec<Box<dyn Reporter>>,
    ) -> Self {
        Self {
            tree: Tree::default(),
            clock,
            journal,
            durable,
            control,
            door,
            heard: mpsc::channel(HEARD_QUEUE),
            shop,
            reporters,
            preambles: BTreeMap::new(),
            conversations: BTreeMap::new(),
            works: BTreeMap::new(),
            asked: BTreeMap::new(),
            questions: Questions::default(),
            unread: BTreeMap::new(),
            tasks: JoinSet::new(),
            held: VecDeque::new(),
            joined: false,
            room: Room::default(),
            full: None,
            closed: false,
        }
    }

    /// Takes the opening commands, then inputs until the run has ended and is on disk.
    pub(crate) async fn run(mut self, opening: Vec<Command>) -> Result<Outcome, EngineError> {
        self.room = Room::of(&self.tree);
        let start = self.journal.position();
        let last = opening.len().saturating_sub(1);
        for (nth, command) in opening.into_iter().enumerate() {
            // A run that began without its tasks would have lost them.
            self.joined = nth < last;
            self.submit(command)?;
        }
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
            self.drain()?;
            self.journal.submit()?;
        }
        self.tasks.abort_all();
        let outcome = self.tree.outcome().unwrap_or(Outcome::Failed);
        self.journal.close()?;
        self.door.close().await;
        Ok(outcome)
    }

    /// Folds in what an earlier process recorded, without doing any of it.
    pub(crate) fn recall(&mut self, record: &Record<Event>) -> Result<(), EngineError> {
        self.tree.evolve(record.at, &record.event)?;
        self.fold(&record.event);
        for reporter in &mut self.reporters {
            reporter.recall(record.at, record.wall_ms, &record.event);
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

    /// Goes on with a recalled run: `commands` say how. Says no when nothing can go on.
    pub(crate) async fn go_on(
        mut self,
        commands: Vec<Command>,
    ) -> Result<Option<Outcome>, EngineError> {
        self.room = Room::of(&self.tree);
        let (before, start) = (self.held.len(), self.journal.position());
        for command in commands {
            self.submit(command)?;
        }
        if let Some(error) = self.full.take() {
            // Nothing was done yet; it waits as it was until there is room.
            self.journal.unstage(start);
            return Err(error.into());
        }
        if self.held.len() == before {
            return Ok(None);
        }
        let live =
            |session: &SessionId| self.tree.node(*session).is_some_and(|it| it.state.is_live());
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
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take(done),
            Some(control) = self.control.recv() => self.obey(control),
            Some(order) = self.door.next() => self.serve(order),
            Some((session, sign)) = self.heard.1.recv() => self.submit(match sign {
                Sign::Bytes(bytes) => Command::Progress { session, bytes },
                Sign::Pause { provider, ms } => Command::Pause { session, provider, ms },
            }),
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
        if self.full.is_some() {
            // It came too late for everyone, and there is no room to say so.
            return Ok(());
        }
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
            | Done::Tool { session, result: Err(crash), .. }
            | Done::Verified { session, facts: Err(crash), .. }
            | Done::Briefed { session, result: Err(crash), .. } => {
                Command::Crash { session, message: crash.message, backtrace: crash.backtrace }
            }
            Done::Verified { session, text, facts: Ok(artifacts) } => {
                Command::Conclude { session, text, artifacts }
            }
            Done::Briefed { session, turn, index, result: Ok(read) } => {
                if let Some(waiting) = self.unread.get_mut(&session) {
                    waiting.pop_front();
                }
                self.read_next(session);
                return self.delegate(session, turn, index, read);
            }
            Done::Answered { asked, answer } => {
                self.submit(match (asked, answer) {
                    (Asked::Call(hash), Answer::Yes) => Command::Approve { hash },
                    (Asked::Call(hash), Answer::No(reason)) => Command::Deny { hash, reason },
                    (Asked::Domain(host), Answer::Yes) => Command::AllowDomain { host },
                    (Asked::Domain(host), Answer::No(reason)) => {
                        Command::DenyDomain { host, reason }
                    }
                })?;
                self.questions.answered();
                self.put_next();
                return Ok(());
            }
        };
        self.submit(command)
    }

    /// Hands down the tasks of a tool call, or tells the agent why not.
    fn delegate(
        &mut self,
        parent: SessionId,
        turn: u32,
        index: u32,
        read: Result<Briefs, String>,
    ) -> Result<(), EngineError> {
        let refused = match read {
            Err(complaint) => complaint,
            Ok(call) => {
                let origin = Some(Origin { turn, index, form: call.form });
                let taken = |session| self.tree.node(session).is_some();
                let tasks = self.shop.ids.tasks(call.briefs, taken)?;
                let command =
                    Command::Delegate { parent, tasks, concurrency: call.concurrency, origin };
                match self.try_submit(command)? {
                    Ok(()) => return Ok(()),
                    Err(refusal) => format!(
                        "{}: {}\n{}",
                        refusal.code(),
                        refusal.message(),
                        refusal.recommendation()
                    ),
                }
            }
        };
        let output = ToolOutput::error(refused);
        self.submit(Command::TakeOutput { session: parent, turn, call: index, output })
    }

    fn obey(&mut self, control: Control) -> Result<(), EngineError> {
        let command = match control {
            Control::CancelRun => {
                let Some(run) = self.tree.run() else { return Ok(()) };
                Command::Cancel { session: run.root_session() }
            }
            Control::Cancel(session) => Command::Cancel { session },
            Control::Tell(session, text) => Command::Tell { session, text },
        };
        self.submit(command)
    }

    /// Does what another process asks, and answers it.
    fn serve(&mut self, order: Order) -> Result<(), EngineError> {
        let Some(run) = self.tree.run() else { return Ok(()) };
        let done = match order.request.command(run) {
            None => Ok(None),
            Some(command) => self.try_submit(command)?.map(|()| Some(self.journal.position().seq)),
        };
        self.door.answer(run, self.tree.outcome(), order, done);
        Ok(())
    }

    /// Decides a command and everything that follows from it.
    fn submit(&mut self, command: Command) -> Result<(), EngineError> {
        // What is refused here changed nothing: a call as a whole was judged before the run began,
        // and a stale approval or cancel has nobody left to tell.
        let _refusal = self.try_submit(command)?;
        Ok(())
    }

    /// Does the same, and says when the command itself was refused.
    fn try_submit(&mut self, command: Command) -> Result<Result<(), Refusal>, EngineError> {
        let now = self.clock.now();
        let mut queue = VecDeque::new();
        match self.tree.decide(now, command) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(events) => self.record(now, events, &mut queue)?,
        }
        while let Some(command) = queue.pop_front() {
            let now = self.clock.now();
            let Ok(events) = self.tree.decide(now, command) else { continue };
            self.record(now, events, &mut queue)?;
        }
        Ok(Ok(()))
    }

    fn record(
        &mut self,
        now: Timestamp,
        events: Vec<Event>,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        let wall_ms = self.clock.wall_ms();
        let (first, start) = (self.held.len(), self.journal.position());
        let last = events.len().saturating_sub(1);
        for (nth, event) in events.iter().enumerate() {
            let durability =
                if event.must_be_durable() { Durability::Sync } else { Durability::Lazy };
            // What was decided together is on disk together or not at all.
            let staged = if nth < last || self.joined {
                self.journal.stage_open(now, wall_ms, event, durability)
            } else {
                self.journal.stage(now, wall_ms, event, durability)
            };
            if let Err(error) = staged {
                self.journal.unstage(start);
                return self.give_up(event, error, queue);
            }
        }
        if let Err(error) = self.leave_room(&events) {
            self.journal.unstage(start);
            return self.run_out(error, queue);
        }
        let mut seq = start.seq;
        for event in events {
            seq = seq.next();
            self.tree.evolve(now, &event)?;
            self.fold(&event);
            if let Event::Ended { session, .. } | Event::Refused { session, .. } = &event {
                // Nobody will speak with it again; a thousand ended children must not keep their words.
                self.conversations.remove(session);
            }
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

    /// Makes sure that, with these events staged, there is still room to end the run in order and
    /// to record every answer that is under way.
    fn leave_room(&mut self, events: &[Event]) -> Result<(), JournalError> {
        events.iter().for_each(|event| self.room.fold(event));
        // Signs of life are part of the room of the answer they announce.
        if self.full.is_some() || !events.iter().any(Event::must_be_durable) {
            return Ok(());
        }
        self.journal.make_room(self.room.bytes())
    }

    /// Ends everything while there is room to say so.
    fn run_out(
        &mut self,
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        if self.tree.run().is_none() {
            // Nothing has begun, so there is nothing to end.
            return Err(error.into());
        }
        self.full = Some(error);
        // What else was to follow would only need more room.
        queue.clear();
        queue.push_back(Command::DiskFull);
        Ok(())
    }

    /// An event no record can hold ends the delegation it is about, and nobody else.
    fn give_up(
        &mut self,
        event: &Event,
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        match event.session() {
            Some(session) if !error.is_final() => {
                let message = format!("what it said cannot be recorded: {error}");
                queue.push_back(Command::Crash { session, message, backtrace: String::new() });
                Ok(())
            }
            Some(_) | None => Err(error.into()),
        }
    }

    /// Keeps what effects will need: conversations, preambles, open questions.
    fn fold(&mut self, event: &Event) {
        if let Event::AgentDefined { agent, system, tools, .. } = event {
            let works = |tool: &&ToolSpec| tool.name != DELEGATE && tool.name != TASK;
            let preamble = Preamble {
                system: system.as_str().into(),
                tools: tools.as_slice().into(),
                tools_to_work: tools.iter().filter(works).cloned().collect(),
            };
            self.preambles.insert(agent.clone(), preamble);
        }
        if self.tree.policy().approval == Approval::Batch
            && let Some(call) = call_of(event)
        {
            self.asked.entry(call).or_default().push(event.clone());
        }
        let Some(session) = event.conversation() else { return };
        Arc::make_mut(self.conversations.entry(session).or_default()).apply(event);
    }

    /// Reports and performs what the disk now holds.
    fn release(&mut self) -> Result<(), EngineError> {
        let durable = self.durable.borrow_and_update().clone();
        let through = match durable {
            Durable::Through(seq) => seq,
            Durable::Failed(error) => return Err(error.into()),
        };
        // Everything is told before anything is done: what is done may quote what was told.
        let mut effects = Vec::new();
        while self.held.front().is_some_and(|held| held.seq <= through) {
            let Some(held) = self.held.pop_front() else { break };
            self.tell(&held);
            effects.extend(held.effects);
        }
        self.report_lazy();
        self.door.keep(through);
        let begins = !effects.is_empty();
        effects.into_iter().try_for_each(|effect| self.perform(effect))?;
        if let (true, Some(run)) = (begins, self.tree.run()) {
            self.door.open(run);
        }
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

    fn perform(&mut self, effect: Effect) -> Result<(), EngineError> {
        match effect {
            Effect::Model { session, turn, attempt, max_output, context_tokens, with_tools } => {
                self.start_thinking(session, turn, attempt, max_output, context_tokens, with_tools);
            }
            Effect::Tool { session, turn, index, call } => {
                let stop = Arc::clone(&self.works.entry(session).or_default().stop);
                let toolbox = Arc::clone(&self.shop.desk.toolbox);
                self.tasks.spawn_blocking(move || {
                    use_tool(&toolbox, session, turn, index, &call, None, &stop)
                });
            }
            Effect::Fetch { session, turn, index, call, host, hosts } => {
                let stop = Arc::clone(&self.works.entry(session).or_default().stop);
                let toolbox = Arc::clone(&self.shop.desk.toolbox);
                self.tasks.spawn_blocking(move || {
                    let approved = Some(Approved { host: &host, hosts: &hosts });
                    use_tool(&toolbox, session, turn, index, &call, approved, &stop)
                });
            }
            Effect::Delegate { session, turn, index, call } => {
                let waiting = self.unread.entry(session).or_default();
                waiting.push_back((turn, index, call));
                if waiting.len() == 1 {
                    self.read_next(session);
                }
            }
            Effect::HandUp { session, call, origin } => self.hand_up(session, call, origin)?,
            Effect::Verify { session } => {
                let text = self.conversations.get(&session).and_then(|talk| talk.last_text());
                let text = text.unwrap_or_default().to_owned();
                let toolbox = Arc::clone(&self.shop.desk.toolbox);
                self.tasks.spawn_blocking(move || verify(&toolbox, session, text));
            }
            Effect::AskApproval { parent, call, hash } => {
                let events = self.asked.remove(&(parent, call)).unwrap_or_default();
                let policy = Box::new(self.tree.policy().clone());
                let question = Question::Call { events, policy, left: self.tree.spendable(parent) };
                self.questions.add(question, Asked::Call(hash));
                self.put_next();
            }
            Effect::AskDomain { session, host, url } => {
                if let Some(node) = self.tree.node(session) {
                    let (label, asked) = (node.label.clone(), Asked::Domain(host.clone()));
                    self.questions.add(Question::Domain { label, host, url }, asked);
                    self.put_next();
                }
            }
            Effect::Stop { session } => {
                self.shop.desk.models.forget(session);
                self.unread.remove(&session);
                if let Some(work) = self.works.remove(&session) {
                    work.stop.store(true, Ordering::Relaxed);
                    if let Some(model) = work.model {
                        model.abort();
                    }
                }
            }
            Effect::Close => self.closed = true,
        }
        Ok(())
    }

    /// Puts the next question to the person, unless one is out.
    fn put_next(&mut self) {
        let tree = &self.tree;
        let is_open = |asked: &Asked| match asked {
            Asked::Call(hash) => tree.awaits_approval(hash),
            Asked::Domain(host) => tree.awaits_domain(host),
        };
        if let Some((question, asked)) = self.questions.next(is_open) {
            let approver = Arc::clone(&self.shop.approver);
            self.tasks.spawn_blocking(move || put(&approver, &question, asked));
        }
    }

    /// Reads the first call that waits. The calls of one agent are read one after the other, so that
    /// they are admitted in the order they were made.
    fn read_next(&mut self, session: SessionId) {
        let Some((turn, index, call)) =
            self.unread.get(&session).and_then(|waiting| waiting.front().cloned())
        else {
            return;
        };
        let Some(caller) = self.tree.node(session).and_then(|node| node.model.clone()) else {
            return;
        };
        let policy = self.tree.policy();
        let limits = CallLimits {
            // How many tasks one call may bring is judged with the other limits.
            max_tasks: usize::MAX,
            max_concurrency: policy.concurrency_max,
            default_concurrency: policy.concurrency,
            ..CallLimits::default()
        };
        let desk = self.shop.desk.clone();
        self.tasks.spawn_blocking(move || {
            let result = guard(|| read_call(&desk, &limits, &caller, &call));
            Done::Briefed { session, turn, index, result }
        });
    }

    fn hand_up(
        &mut self,
        session: SessionId,
        call: u32,
        origin: Origin,
    ) -> Result<(), EngineError> {
        // Two tasks that end together each ask for this; the agent is told once.
        if !self.tree.awaits_output(session, origin.turn, origin.index) {
            return Ok(());
        }
        let content = self.shop.narrator.results(session, call, origin.form);
        let output = ToolOutput { content, ..ToolOutput::default() };
        self.submit(Command::TakeOutput { session, turn: origin.turn, call: origin.index, output })
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
        let Some(spec) = &node.model else { return };
        let thought = Thought {
            session,
            turn,
            attempt,
            max_output,
            context_tokens,
            agent: node.agent.clone(),
            label: node.label.clone(),
            system: Arc::clone(&preamble.system),
            tools: preamble.offer(with_tools, &node.rights.usable_tools()),
            conversation: self.conversations.get(&session).cloned().unwrap_or_default(),
            model: self.shop.desk.models.get(&spec.name),
        };
        let handle = self.tasks.spawn(think(thought, self.heard.0.clone()));
        self.works.entry(session).or_default().model = Some(handle);
    }
}

/// Returns the call that waits for a person, where an event of admission belongs to one.
fn call_of(event: &Event) -> Option<(SessionId, u32)> {
    if let Event::Granted(grant) = event {
        return grant.awaiting_approval.then_some((grant.parent, grant.call));
    }
    if let Event::Refused { parent, call, .. } | Event::ApprovalAsked { parent, call, .. } = event {
        return Some((*parent, *call));
    }
    None
}

impl Preamble {
    /// Returns the tools an agent is offered: none in its last turn, and of its definition's only
    /// what was granted to it.
    fn offer(&self, with_tools: bool, usable: &ToolSet) -> Arc<[ToolSpec]> {
        if !with_tools {
            return Arc::default();
        }
        let delegates = usable.contains(DELEGATE) || usable.contains(TASK);
        let tools = if delegates { &self.tools } else { &self.tools_to_work };
        if tools.iter().all(|tool| usable.contains(&tool.name)) {
            return Arc::clone(tools);
        }
        tools.iter().filter(|tool| usable.contains(&tool.name)).cloned().collect()
    }
}
