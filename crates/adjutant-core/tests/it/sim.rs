//! A simulated run without an engine: the loop that every runtime of the tree has, and nothing
//! else.
//!
//! A command is decided, its events are folded in as one batch, and what follows from each event is
//! decided at once and in order. Effects are only collected; the test answers them as it likes.
//! After every batch the books and the shape of the tree are checked, whatever the test is about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use adjutant_core::budget::BudgetAmount;
use adjutant_core::policy::{ApprovalRule, parse_assignment};
use adjutant_core::tree::{DeadlineKind, EffectKey, EffectsInFlight};
use adjutant_core::workspace::{KeptWork, OwnWorkspace, WorkspaceKind};
use adjutant_core::{
    AgentName, AttemptError, Brief, Command, DelegationState, Effect, ErrorCode, Event, Label,
    LayeredPolicy, ModelErrorKind, ModelReply, ModelSpec, Node, Outcome, OutcomeReason, Policy,
    PolicySource, Preset, Price, Refusal, RequestedTask, ResumeOptions, RunId, SessionId,
    StopReason, Timestamp, ToolCall, ToolOutput, Tree, Usage, Usd,
};
use serde_json::{Value, json};

/// Trees above this size are only checked at the end of a test: every check walks all of it.
const CHECKED_AT_EACH_STEP: usize = 64;

pub(crate) struct Sim {
    pub(crate) tree: Tree,
    pub(crate) now: Timestamp,
    /// Everything that happened, in order.
    pub(crate) log: Vec<(Timestamp, Event)>,
    /// Every effect that was asked for, answered or not.
    pub(crate) effects: Vec<Effect>,
    /// The lengths of the log after each decision: a journal holds decisions whole.
    pub(crate) decisions: Vec<usize>,
    /// What was asked for and is not over.
    pub(crate) in_flight: EffectsInFlight,
    /// The effects in flight whenever nothing was left to decide, by the length of the log.
    pub(crate) rests: Vec<(usize, BTreeSet<EffectKey>)>,
    /// Whether something was recorded without what follows from it.
    is_cut_off: bool,
    parents: BTreeMap<SessionId, SessionId>,
    made: u64,
    /// Whether workspaces are made and kept as soon as that is asked for.
    pub(crate) spaces_at_once: bool,
    /// Whether there is work in what is kept.
    pub(crate) has_work: bool,
    /// The running model calls of workers, with what is reserved for each.
    pub(crate) worker_calls: BTreeMap<(SessionId, u32), BudgetAmount>,
}

/// Returns what a runtime reports once it has made or kept a workspace.
fn space_of(effect: &Effect, has_work: bool) -> Option<Command> {
    let space = || OwnWorkspace {
        kind: WorkspaceKind::Overlay,
        path: "state/space".into(),
        base: "0".repeat(40),
        layers: Vec::new(),
        remarks: Vec::new(),
    };
    match effect {
        Effect::MakeWorkspace { session, .. } => {
            Some(Command::TakeWorkspace { session: *session, made: Ok(space()), project: None })
        }
        Effect::CommitWork { session, .. } => {
            let commit = has_work.then(|| "1".repeat(40));
            let kept = KeptWork { commit, ..KeptWork::default() };
            Some(Command::TakeKeptWork { session: *session, kept: Ok(kept) })
        }
        _ => None,
    }
}

impl Sim {
    /// Begins a run of `lead` that has no goal of its own.
    pub(crate) fn new(policy: Policy) -> Self {
        Self::of(policy, "lead", "")
    }

    pub(crate) fn of(policy: Policy, agent: &str, goal: &str) -> Self {
        Self::begin(policy, agent, goal, None)
    }

    /// Begins a run whose root is an agent with a model.
    pub(crate) fn led(policy: Policy, agent: &str, goal: &str) -> Self {
        Self::led_on(policy, agent, goal, model())
    }

    /// The same on that model.
    pub(crate) fn led_on(policy: Policy, agent: &str, goal: &str, model: ModelSpec) -> Self {
        Self::begin(policy, agent, goal, Some(model))
    }

    fn begin(policy: Policy, agent: &str, goal: &str, model: Option<ModelSpec>) -> Self {
        Self::try_begin(policy, agent, goal, model, 0).unwrap()
    }

    /// Begins a run whose root sits at that depth.
    pub(crate) fn at_depth(policy: Policy, base_depth: u64) -> Result<Self, Refusal> {
        Self::try_begin(policy, "lead", "", None, base_depth)
    }

    fn try_begin(
        policy: Policy,
        agent: &str,
        goal: &str,
        model: Option<ModelSpec>,
        base_depth: u64,
    ) -> Result<Self, Refusal> {
        let mut sim = Self {
            tree: Tree::default(),
            now: Timestamp::ZERO,
            log: Vec::new(),
            effects: Vec::new(),
            decisions: Vec::new(),
            in_flight: EffectsInFlight::default(),
            rests: Vec::new(),
            is_cut_off: false,
            parents: BTreeMap::new(),
            made: 0,
            spaces_at_once: true,
            has_work: false,
            worker_calls: BTreeMap::new(),
        };
        sim.submit(Command::Begin {
            run: RunId::new(1_700_000_000, [0; 6]),
            agent: AgentName::new(agent),
            goal: goal.into(),
            workdir: "/work".into(),
            policy: Box::new(policy),
            version: "test".into(),
            model,
            terms: None,
            base_depth,
            environment: None,
        })?;
        Ok(sim)
    }

    /// Folds recorded events into a fresh tree, as recovery does.
    pub(crate) fn replay(log: &[(Timestamp, Event)]) -> Self {
        let mut sim = Self {
            tree: Tree::default(),
            now: log.last().map_or(Timestamp::ZERO, |(at, _)| *at),
            log: Vec::new(),
            effects: Vec::new(),
            decisions: Vec::new(),
            in_flight: EffectsInFlight::default(),
            rests: Vec::new(),
            is_cut_off: true,
            parents: BTreeMap::new(),
            made: 1_000_000,
            spaces_at_once: true,
            has_work: false,
            worker_calls: BTreeMap::new(),
        };
        for (at, event) in log {
            sim.fold(*at, event);
        }
        sim
    }

    pub(crate) fn root(&self) -> SessionId {
        self.tree.run().unwrap().root_session()
    }

    /// Decides a command and everything that follows from it; returns all events in order.
    pub(crate) fn submit(&mut self, command: Command) -> Result<Vec<Event>, Refusal> {
        let mut events = self.tree.decide(self.now, command)?;
        let mut all = Vec::new();
        let mut commands = VecDeque::new();
        loop {
            for event in &events {
                self.fold(self.now, event);
            }
            self.decisions.push(self.log.len());
            if self.tree.nodes().count() <= CHECKED_AT_EACH_STEP {
                self.check_invariants();
            }
            let reaction = self.tree.react(&events, &mut self.in_flight);
            commands.extend(reaction.commands);
            if self.spaces_at_once {
                commands
                    .extend(reaction.effects.iter().filter_map(|it| space_of(it, self.has_work)));
            }
            self.effects.extend(reaction.effects);
            all.append(&mut events);
            let Some(next) = commands.pop_front() else {
                self.check_rest();
                return Ok(all);
            };
            // Commands that follow from an event are never refused: there is no caller to report it to.
            events = self.tree.decide(self.now, next).unwrap();
        }
    }

    /// Decides a command and folds in its events, and nothing that follows from them.
    pub(crate) fn record_only(&mut self, command: Command) {
        for event in self.tree.decide(self.now, command).unwrap() {
            self.fold(self.now, &event);
        }
        self.decisions.push(self.log.len());
        self.is_cut_off = true;
    }

    fn fold(&mut self, at: Timestamp, event: &Event) {
        if let Event::Granted(grant) = event {
            self.parents.insert(grant.session, grant.parent);
        }
        self.track_worker_call(event);
        let folded = self.tree.evolve(at, event);
        assert_eq!(folded, Ok(()), "its own event: {event:?}");
        self.log.push((at, event.clone()));
    }

    /// Checks that every reservation for a worker's model call is settled at most once.
    fn track_worker_call(&mut self, event: &Event) {
        match event {
            Event::WorkerCallReserved { session, call, amount, .. } => {
                let before = self.worker_calls.insert((*session, *call), *amount);
                assert_eq!(before, None, "call {call} of {session} was reserved twice");
            }
            Event::WorkerCallSettled { session, call, .. } => {
                let open = self.worker_calls.remove(&(*session, *call));
                assert!(open.is_some(), "call {call} of {session} was not open");
            }
            _ => {}
        }
    }

    /// Crashes, loses every effect in flight, and resumes with the options `wish`.
    pub(crate) fn restart(&mut self, wish: ResumeOptions) -> Vec<Event> {
        let (made, at_once, has_work) = (self.made, self.spaces_at_once, self.has_work);
        let rests = std::mem::take(&mut self.rests);
        *self = Self::replay(&self.log);
        (self.made, self.spaces_at_once, self.has_work) = (made, at_once, has_work);
        self.rests = rests;
        self.is_cut_off = false;
        self.submit(Command::Resume(Box::new(wish))).unwrap()
    }

    /// Moves the clock and lets time do its work.
    pub(crate) fn tick_at(&mut self, seconds: u64) -> Vec<Event> {
        self.tick_at_ms(seconds * 1_000)
    }

    pub(crate) fn tick_at_ms(&mut self, millis: u64) -> Vec<Event> {
        self.now = self.now.max(Timestamp::from_millis(millis));
        self.submit(Command::Tick).unwrap()
    }

    /// Jumps to the next instant at which time alone changes something.
    pub(crate) fn tick_next(&mut self) -> Option<DeadlineKind> {
        let (at, why) = self.tree.next_deadline()?;
        self.tick_at_ms(at.as_millis());
        Some(why)
    }

    /// Makes an id for a brief.
    pub(crate) fn task(&mut self, brief: Brief) -> RequestedTask {
        self.made += 1;
        RequestedTask { session: SessionId::new(1_700_000_000 + self.made, [1; 6]), brief }
    }

    pub(crate) fn ask(
        &mut self,
        parent: SessionId,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let tasks = briefs.into_iter().map(|brief| self.task(brief)).collect();
        self.submit(Command::Delegate { parent, tasks, concurrency, origin: None })
    }

    /// Delegates one task from the root and returns the child, which must have been granted.
    pub(crate) fn child(&mut self, brief: Brief) -> SessionId {
        let root = self.root();
        self.child_of(root, brief)
    }

    pub(crate) fn child_of(&mut self, parent: SessionId, brief: Brief) -> SessionId {
        let events = self.ask(parent, vec![brief], None).unwrap();
        granted(&events)[0]
    }

    /// Delegates tasks from the root in one call and returns those that were granted.
    pub(crate) fn children(&mut self, briefs: Vec<Brief>) -> Vec<SessionId> {
        let root = self.root();
        granted(&self.ask(root, briefs, None).unwrap())
    }

    pub(crate) fn node(&self, session: SessionId) -> &Node {
        self.tree.node(session).unwrap()
    }

    pub(crate) fn state(&self, session: SessionId) -> DelegationState {
        self.node(session).state()
    }

    /// Answers the model call that is open for `session`.
    pub(crate) fn reply(&mut self, session: SessionId, reply: ModelReply) -> Vec<Event> {
        let open = self.node(session).reservation().unwrap();
        let (turn, attempt) = (open.turn, open.attempt);
        self.submit(Command::Reply { session, turn, attempt, reply }).unwrap()
    }

    pub(crate) fn say(&mut self, session: SessionId, text: &str) -> Vec<Event> {
        self.reply(session, says(text))
    }

    pub(crate) fn call(&mut self, session: SessionId, calls: Vec<ToolCall>) -> Vec<Event> {
        self.reply(session, asks(calls))
    }

    pub(crate) fn fail(&mut self, session: SessionId, error: AttemptError) -> Vec<Event> {
        let open = self.node(session).reservation().unwrap();
        let (turn, attempt) = (open.turn, open.attempt);
        self.submit(Command::FailAttempt { session, turn, attempt, error }).unwrap()
    }

    /// Gives a result for a call of the current turn.
    pub(crate) fn output(&mut self, session: SessionId, call: u32, content: &str) -> Vec<Event> {
        let turn = self.node(session).turn;
        let output = ToolOutput { content: content.into(), ..ToolOutput::default() };
        self.submit(Command::TakeOutput { session, turn, call, output }).unwrap()
    }

    pub(crate) fn cancel(&mut self, session: SessionId) -> Vec<Event> {
        self.submit(Command::Cancel { session }).unwrap()
    }

    /// Returns how a delegation ended; it must have.
    pub(crate) fn end(&self, session: SessionId) -> (Outcome, Option<OutcomeReason>) {
        let ends: Vec<_> = self
            .log
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Ended { session: of, outcome, reason } if *of == session => {
                    Some((*outcome, reason.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 1, "ends of {session}: {ends:?}");
        ends.into_iter().next().unwrap()
    }

    pub(crate) fn code(&self, session: SessionId) -> Option<ErrorCode> {
        self.end(session).1.map(|reason| reason.code)
    }

    /// Returns how a delegation ended, as shown to users.
    pub(crate) fn ended(&self, session: SessionId) -> String {
        let (outcome, reason) = self.end(session);
        reason.map_or_else(
            || outcome.word().to_owned(),
            |reason| {
                format!(
                    "{} {}: {}\n=> {}",
                    outcome.word(),
                    reason.code,
                    reason.message,
                    reason.recommendation
                )
            },
        )
    }

    /// Returns the model calls that were asked for, for `session`.
    pub(crate) fn model_calls(&self, session: SessionId) -> Vec<&Effect> {
        let of = |effect: &&Effect| matches!(effect, Effect::Model { session: of, .. } if *of == session);
        self.effects.iter().filter(of).collect()
    }

    /// Returns the tools that were run, for `session`.
    pub(crate) fn tools_run(&self, session: SessionId) -> Vec<&str> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Tool { session: of, call, .. } if *of == session => {
                    Some(call.name.as_str())
                }
                _ => None,
            })
            .collect()
    }

    /// Returns what the engine told `session` or answered instead of running a tool.
    pub(crate) fn told(&self, session: SessionId) -> Vec<&str> {
        self.log
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Told { session: of, text, .. }
                | Event::ToolRefused { session: of, text, .. }
                    if *of == session =>
                {
                    Some(text.as_str())
                }
                _ => None,
            })
            .collect()
    }

    /// Checks what holds when nothing is left to decide: the due effects are those that were started, and no
    /// due command produces events. So a process that resumes here starts the effects that this one has in flight.
    fn check_rest(&mut self) {
        let is_over = self.tree.outcome().is_some();
        if is_over || self.is_cut_off || self.tree.nodes().count() > CHECKED_AT_EACH_STEP {
            return;
        }
        let due = self.tree.all_due();
        let keys: BTreeSet<EffectKey> = due.effects.iter().map(Effect::key).collect();
        assert_eq!(keys, self.in_flight.keys().cloned().collect(), "due, and under way");
        self.rests.push((self.log.len(), keys));
        // A run that is being opened has neither delegated nor taken a turn.
        let is_opening = self.tree.nodes().map(|node| node.turn).eq([0]);
        for command in due.commands.into_iter().filter(|_| !is_opening) {
            let events = self.tree.decide(self.now, command.clone());
            assert_eq!(events, Ok(Vec::new()), "{command:?} was due");
        }
    }

    /// Checks that calls started unasked only within the policy's amount, or within what a person allowed, counted
    /// from their answer.
    fn check_auto_approvals(&self, policy: &Policy) {
        let (mut started, mut allowed) = (Usd::ZERO, None);
        for (_, event) in &self.log {
            if let Event::Approved { up_to: Some(amount), .. } = event {
                allowed = Some(started + *amount);
            } else if let Event::AutoApproved { amount, .. } = event {
                started += *amount;
                let limit = policy.approve_below_usd.max(allowed).unwrap_or_default();
                assert!(started <= limit, "{started} started unasked, limit {limit}");
            }
        }
        assert_eq!(started, self.tree.auto_approved());
    }

    /// Checks what holds in every history, at every step.
    pub(crate) fn check_invariants(&self) {
        let policy = self.tree.policy();
        self.check_auto_approvals(policy);
        let mut open: BTreeMap<SessionId, BudgetAmount> = BTreeMap::new();
        let mut spent: BTreeMap<SessionId, BudgetAmount> = BTreeMap::new();
        for node in self.tree.nodes() {
            assert!(node.depth <= policy.max_depth, "{} at depth {}", node.session, node.depth);
            assert!(
                node.max_turns().is_none_or(|max| node.turn <= max),
                "{} took {} turns",
                node.session,
                node.turn
            );
            assert!(node.ledger.is_within_cap(), "books of {}: {:?}", node.session, node.ledger);
            assert!(
                node.reservation().is_none() || node.state() == DelegationState::Running,
                "{} is {} with a call open",
                node.session,
                node.state().word()
            );
            let held = node.reservation().map(|open| open.amount).unwrap_or_default();
            let calls = self.worker_calls.range((node.session, 0)..=(node.session, u32::MAX));
            let held = calls.fold(held, |sum, (_, amount)| sum.plus(*amount));
            let own = BudgetAmount { tokens: node.usage.total(), usd: node.cost };
            for above in self.chain(node.session) {
                let scope = open.entry(above).or_default();
                *scope = scope.plus(held);
                let scope = spent.entry(above).or_default();
                *scope = scope.plus(own);
            }
            if let Some(parent) = self.parents.get(&node.session) {
                let parent = self.node(*parent);
                assert_eq!(node.depth, parent.depth + 1);
                assert!(
                    parent.is_live() || !node.is_live() || self.reopenings(node.session) > 0,
                    "{} outlives its parent",
                    node.session
                );
                let bound = parent.deadline().filter(|_| parent.is_live());
                if let (Some(deadline), DelegationState::Running) = (bound, node.state()) {
                    assert!(
                        node.deadline().is_some_and(|own| own <= deadline),
                        "{} may outlast its parent",
                        node.session
                    );
                }
            }
        }
        for node in self.tree.nodes() {
            assert_eq!(node.ledger.reserved, open[&node.session], "held by {}", node.session);
            assert_eq!(node.ledger.settled, spent[&node.session], "spent by {}", node.session);
        }
    }

    /// Returns how often a delegation was resumed.
    pub(crate) fn reopenings(&self, session: SessionId) -> usize {
        let of = |event: &Event| matches!(event, Event::Reopened(it) if it.session == session);
        self.log.iter().filter(|(_, event)| of(event)).count()
    }

    /// Returns a node's session and those of its ancestors.
    pub(crate) fn chain(&self, session: SessionId) -> impl Iterator<Item = SessionId> {
        std::iter::successors(Some(session), |session| self.parents.get(session).copied())
    }

    /// Checks what holds once a run is over.
    pub(crate) fn check_over(&self) {
        self.check_invariants();
        assert!(self.tree.outcome().is_some(), "the run has no end");
        assert_eq!(self.tree.next_deadline(), None, "a timer is left");
        assert_eq!(self.tree.waiting(), 0, "someone still waits");
        assert!(self.worker_calls.is_empty(), "not settled: {:?}", self.worker_calls);
        let mut ends: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (_, event) in &self.log {
            match event {
                Event::Granted(grant) => drop(ends.entry(grant.session).or_default()),
                Event::Ended { session, .. } => *ends.entry(*session).or_default() += 1,
                _ => {}
            }
        }
        for (session, times) in ends.into_iter().filter(|(session, _)| *session != self.root()) {
            assert_eq!(times, 1 + self.reopenings(session), "{session} ended {times} times");
        }
        for node in self.tree.nodes() {
            assert!(!node.is_live(), "{} is {}", node.session, node.state().word());
            assert!(node.ledger.reserved.is_zero(), "{} holds {:?}", node.session, node.ledger);
        }
        let mut unasked = BTreeSet::new();
        let mut asked: BTreeMap<&str, Vec<SessionId>> = BTreeMap::new();
        for (_, event) in &self.log {
            match event {
                Event::Granted(grant) if grant.awaiting_approval => {
                    unasked.insert(grant.session);
                }
                Event::ApprovalAsked { hash, .. } => {
                    asked.insert(hash, unasked.iter().copied().collect());
                }
                Event::Approved { hash, .. } => {
                    for session in asked.remove(hash.as_str()).unwrap_or_default() {
                        unasked.remove(&session);
                    }
                }
                Event::Started { session, .. } => {
                    assert!(!unasked.contains(session), "nobody said yes to {session}");
                }
                _ => {}
            }
        }
        let closes = self.effects.iter().filter(|effect| **effect == Effect::Close).count();
        let goes_on = |event: &Event| matches!(event, Event::Resumed { .. });
        let resumptions = self.log.iter().filter(|(_, event)| goes_on(event)).count();
        assert!(closes <= 1 + resumptions, "closed {closes} times");
    }
}

/// Returns what was granted, in order.
pub(crate) fn granted(events: &[Event]) -> Vec<SessionId> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Granted(grant) => Some(grant.session),
            _ => None,
        })
        .collect()
}

/// Returns the codes of what was refused, in order.
pub(crate) fn refused(events: &[Event]) -> Vec<ErrorCode> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Refused { reason, .. } => Some(reason.code),
            _ => None,
        })
        .collect()
}

/// Returns a preset with typed settings.
pub(crate) fn policy(preset: Preset, settings: &[&str]) -> Policy {
    let mut layered = LayeredPolicy::new(preset);
    for setting in settings {
        let (key, value) = parse_assignment(setting).unwrap();
        layered.set(key, &value, &PolicySource::Flag("--set".into())).unwrap();
    }
    layered.into_policy()
}

/// Returns `scout` without approval.
pub(crate) fn scout(settings: &[&str]) -> Policy {
    let mut policy = policy(Preset::Scout, settings);
    policy.approval = ApprovalRule::None;
    policy
}

pub(crate) fn model() -> ModelSpec {
    ModelSpec {
        name: "script:test".into(),
        window: 200_000,
        max_output: 8_192,
        price: None,
        effort: None,
    }
}

pub(crate) fn priced() -> ModelSpec {
    let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
    ModelSpec { price: Some(price), ..model() }
}

pub(crate) fn brief(label: &str, agent: &str, prompt: &str) -> Brief {
    Brief {
        model: Some(model()),
        ..Brief::new(Label::new(label).unwrap(), AgentName::new(agent), prompt)
    }
}

/// Returns a brief for `scout` whose only feature is its label.
pub(crate) fn about(label: &str) -> Brief {
    brief(label, "scout", &format!("look at {label}"))
}

pub(crate) const fn used(input: u64, output: u64) -> Option<Usage> {
    Some(Usage { input, output, cache_read: 0, cache_write: 0 })
}

pub(crate) fn says(text: &str) -> ModelReply {
    let usage = used(100, 10);
    ModelReply {
        text: text.into(),
        tool_calls: Vec::new(),
        stop: StopReason::EndTurn,
        usage,
        opaque: None,
    }
}

pub(crate) fn asks(tool_calls: Vec<ToolCall>) -> ModelReply {
    ModelReply {
        text: String::new(),
        tool_calls,
        stop: StopReason::ToolUse,
        usage: used(100, 10),
        opaque: None,
    }
}

pub(crate) fn tool(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments, malformed: false }
}

pub(crate) fn read(id: &str, path: &str) -> ToolCall {
    tool(id, "Read", json!({"path": path}))
}

pub(crate) fn error(kind: ModelErrorKind) -> AttemptError {
    AttemptError {
        kind,
        message: "the provider said so".into(),
        retry_after_ms: None,
        never_began: false,
    }
}
