//! A builder for histories: one method per kind of event.

use adjutant_core::budget::{BudgetAmount, Reservation, Settlement};
use adjutant_core::refusal::TimeBound;
use adjutant_core::{
    AgentName, AttemptError, Brief, ErrorCode, Event, Grant, Label, ModelErrorKind, ModelSpec,
    Outcome, OutcomeReason, Preset, Price, Rights, RunId, SessionId, StopReason, Timestamp,
    ToolCall, ToolOutput, ToolSet, Usage, Usd,
};
use adjutant_view::events::{WireEvent, translate};
use adjutant_view::turn_costs::TurnCosts;
use adjutant_view::{RunView, TimedEvent};
use serde_json::{Value, json};

/// The wall-clock time of the start: 2025-01-31T12:34:56Z.
pub(crate) const WALL: u64 = 1_738_326_896_000;
const STAMP: u64 = 1_738_326_896;

pub(crate) struct History {
    pub(crate) records: Vec<(Timestamp, Event)>,
    pub(crate) now: u64,
    made: u8,
    calls: Vec<(SessionId, u32)>,
}

pub(crate) fn run_id() -> RunId {
    RunId::new(STAMP, [0; 6])
}

pub(crate) fn root() -> SessionId {
    run_id().root_session()
}

pub(crate) fn model() -> ModelSpec {
    let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
    ModelSpec {
        name: "acme/large".into(),
        window: 200_000,
        max_output: 8_192,
        price: Some(price),
        effort: None,
    }
}

/// A label of any length and content, as a journal written by another program might contain.
pub(crate) fn label(text: &str) -> Label {
    serde_json::from_value(Value::String(text.into())).unwrap()
}

pub(crate) fn reason(code: ErrorCode, message: &str, recommendation: &str) -> OutcomeReason {
    OutcomeReason {
        code,
        message: message.into(),
        recommendation: recommendation.into(),
        recoverable: true,
    }
}

pub(crate) fn exhausted() -> OutcomeReason {
    reason(
        ErrorCode::ContextExhausted,
        "The context was exhausted: 199,000 of 200,000 tokens.",
        "Split the task, or use a model with a larger window.",
    )
}

pub(crate) fn tokens(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

pub(crate) fn settled(usage: Usage) -> Settlement {
    Settlement { usage, usd: model().price.unwrap().cost(&usage), estimated: false }
}

/// A person resumed the run without changes.
pub(crate) fn resumed() -> Event {
    Event::Resumed {
        version: "test".into(),
        rights: Rights::default(),
        agents: Default::default(),
        model: None,
        timeout_s: None,
        clamped: false,
        deadlines: Default::default(),
        questions_until: Timestamp::ZERO,
        limits: Default::default(),
        terms: None,
    }
}

pub(crate) fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: "call_1".into(), name: name.into(), arguments, malformed: false }
}

impl History {
    pub(crate) fn new() -> Self {
        Self::with_goal("Review the tree")
    }

    pub(crate) fn with_goal(goal: &str) -> Self {
        let mut history = Self { records: Vec::new(), now: 0, made: 0, calls: Vec::new() };
        history.push(Event::RunStarted {
            run: run_id(),
            agent: AgentName::new("delegate"),
            goal: goal.into(),
            workdir: "work/tree".into(),
            policy: Box::new(Preset::Scout.policy()),
            version: "0.1.0".into(),
            model: None,
            terms: None,
            base_depth: 0,
            environment: None,
        });
        history
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.records.push((Timestamp::from_millis(self.now), event));
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += millis;
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = TimedEvent<'_>> {
        self.records.iter().map(|(at, event)| TimedEvent::new(*at, WALL + at.as_millis(), event))
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().map(|(_, event)| event)
    }

    pub(crate) fn view(&self) -> RunView {
        RunView::of(self.entries())
    }

    pub(crate) fn turn_costs(&self) -> TurnCosts {
        let mut costs = TurnCosts::default();
        self.events().for_each(|event| costs.apply(event));
        costs
    }

    pub(crate) fn session(&mut self) -> SessionId {
        self.made += 1;
        SessionId::new(STAMP, [0, 0, 0, 0, self.made / 36, self.made % 36])
    }

    fn next_call(&mut self, parent: SessionId) -> u32 {
        if let Some(known) = self.calls.iter_mut().find(|(known, _)| *known == parent) {
            known.1 += 1;
            return known.1;
        }
        self.calls.push((parent, 1));
        1
    }

    pub(crate) fn grant(&mut self, parent: SessionId, name: &str, prompt: &str) -> Grant {
        let mut brief = Brief::new(label(name), AgentName::new("scout"), prompt);
        brief.model = Some(model());
        Grant {
            session: self.session(),
            parent,
            call: 1,
            index: 0,
            places: 2,
            brief,
            depth: 1,
            path: vec!["delegate".into(), "scout".into()],
            rights: Rights { tools: ToolSet::read_only(), network: false, ..Rights::default() },
            timeout_s: None,
            clamped: false,
            preface: None,
            task: None,
            opening_bytes: 400,
            awaiting_approval: false,
        }
    }

    /// Delegates tasks from the root in one call.
    pub(crate) fn call<const N: usize>(&mut self, tasks: [(&str, &str); N]) -> [SessionId; N] {
        self.call_from(root(), tasks)
    }

    pub(crate) fn call_from<const N: usize>(
        &mut self,
        parent: SessionId,
        tasks: [(&str, &str); N],
    ) -> [SessionId; N] {
        let number = self.next_call(parent);
        let mut index = 0;
        tasks.map(|(name, prompt)| {
            let grant = self.grant(parent, name, prompt);
            let session = grant.session;
            self.push(Event::Granted(Box::new(Grant { call: number, index, ..grant })));
            index += 1;
            session
        })
    }

    pub(crate) fn refuse(
        &mut self,
        call: u32,
        index: u32,
        name: &str,
        reason: OutcomeReason,
    ) -> SessionId {
        let session = self.session();
        self.push(Event::Refused {
            session,
            parent: root(),
            call,
            index,
            label: label(name),
            agent: AgentName::new("scout"),
            story: None,
            reason,
        });
        session
    }

    pub(crate) fn start(&mut self, session: SessionId) {
        self.push(Event::Started { session, deadline: None, bound: TimeBound::Own });
    }

    pub(crate) fn reserve(&mut self, session: SessionId, turn: u32) {
        let amount = BudgetAmount { tokens: 10_000, usd: Usd::from_pico(80_000_000_000) };
        let reservation =
            Reservation { turn, attempt: 1, max_output: 4_096, amount, last_call: false };
        self.push(Event::Reserved { session, reservation });
    }

    pub(crate) fn reply(
        &mut self,
        session: SessionId,
        text: &str,
        tool_calls: Vec<ToolCall>,
        usage: Usage,
    ) {
        let stop = if tool_calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        self.push(Event::Replied {
            session,
            turn: 1,
            attempt: 1,
            text: text.into(),
            tool_calls,
            translations: vec![],
            stop,
            opaque: None,
            settlement: settled(usage),
        });
    }

    pub(crate) fn fail(&mut self, session: SessionId, kind: ModelErrorKind, retry_in: Option<u64>) {
        let open = Reservation {
            turn: 1,
            attempt: 1,
            max_output: 1_000,
            amount: BudgetAmount { tokens: 5_000, usd: Usd::from_pico(27_000_000_000) },
            last_call: false,
        };
        self.push(Event::AttemptFailed {
            session,
            turn: 1,
            attempt: 1,
            error: AttemptError {
                kind,
                message: "try later".into(),
                retry_after_ms: None,
                never_began: false,
            },
            settlement: Settlement::estimated(&open),
            retry_at: retry_in.map(|millis| self.at().plus_millis(millis)),
        });
    }

    /// The agent calls a tool, and the tool returns.
    pub(crate) fn tool(
        &mut self,
        session: SessionId,
        name: &str,
        arguments: Value,
        output: ToolOutput,
    ) {
        self.reply(session, "", vec![call(name, arguments)], tokens(1_000, 50));
        self.push(Event::ToolCalled { session, call: 0 });
        self.push(Event::ToolReturned { session, call: 0, output });
    }

    pub(crate) fn note(&mut self, session: SessionId, text: &str) {
        let output = ToolOutput {
            content: "Noted.".into(),
            note: Some(text.into()),
            ..ToolOutput::default()
        };
        self.tool(session, "Note", json!({ "content": text }), output);
    }

    pub(crate) fn read(&mut self, session: SessionId, path: &str) {
        let output = ToolOutput {
            content: "text".into(),
            touched: vec![path.into()],
            ..ToolOutput::default()
        };
        self.tool(session, "Read", json!({ "path": path }), output);
    }

    pub(crate) fn end(
        &mut self,
        session: SessionId,
        outcome: Outcome,
        reason: Option<OutcomeReason>,
    ) {
        self.push(Event::Ended { session, outcome, reason });
    }

    pub(crate) fn end_run(&mut self, outcome: Outcome) {
        self.end(root(), outcome, None);
        self.push(Event::RunEnded { outcome });
    }
}

/// The example of requirement 52: one complete, one running, one out of context.
pub(crate) fn three() -> (History, [SessionId; 3]) {
    let mut h = History::new();
    let sessions = h.call([
        ("security", "scan for vulnerabilities in src/auth.rs"),
        ("correctness", "check return values of every call"),
        ("refactor", "propose simplifications"),
    ]);
    let [security, correctness, refactor] = sessions;
    for session in sessions {
        h.start(session);
    }
    h.wait(1_500);
    h.reserve(security, 1);
    h.reply(security, "Nothing\nbad found.", vec![], tokens(45_000, 2_100));
    h.end(security, Outcome::Completed, None);
    h.wait(9_000);
    h.reserve(correctness, 1);
    let reads = vec![call("Read", json!({ "path": "src/lib.rs" }))];
    h.reply(correctness, "Let me look.", reads, tokens(23_000, 890));
    h.push(Event::ToolCalled { session: correctness, call: 0 });
    h.read(refactor, "src/main.rs");
    h.note(refactor, "main.rs repeats itself");
    h.note(refactor, "two parsers\nfor one format");
    h.reply(refactor, "I was about to look at the tests.", vec![], tokens(190_000, 12_000));
    h.wait(60_000);
    h.end(refactor, Outcome::Partial, Some(exhausted()));
    (h, sessions)
}

/// The same run after its end: the second failed, and a fourth was refused.
pub(crate) fn finished() -> (History, [SessionId; 3]) {
    let (mut h, sessions) = three();
    let refused =
        adjutant_core::Refusal::TooDeep { target: "look deeper".into(), depth: 1, max_depth: 1 };
    h.refuse(2, 0, "deeper", refused.reason());
    h.wait(500);
    let output = ToolOutput::error("no such file");
    h.push(Event::ToolReturned { session: sessions[1], call: 0, output });
    h.fail(sessions[1], ModelErrorKind::Overloaded, None);
    let why = reason(
        ErrorCode::ProviderError,
        "provider overloaded: try later",
        "Try again later, or use another model.",
    );
    h.end(sessions[1], Outcome::Failed, Some(why));
    h.end_run(Outcome::Partial);
    (h, sessions)
}

/// Text with every kind of attack.
pub(crate) const HOSTILE: &str = "a]\u{1b}[2J\u{202e}evil\u{200b}\r\n### [fake] ✓\u{7}\t\u{9b}31m";

/// Returns the wire events of these records.
pub(crate) fn wire_events<'a>(entries: impl Iterator<Item = TimedEvent<'a>>) -> Vec<WireEvent> {
    let mut view = RunView::default();
    entries
        .flat_map(|entry| {
            view.apply(entry);
            translate(&view, &entry)
        })
        .collect()
}
