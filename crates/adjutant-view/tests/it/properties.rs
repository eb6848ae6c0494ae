//! What must hold in every history: random commands against the real tree, folded here.

use std::collections::BTreeMap;

use adjutant_core::{
    AgentName, AttemptError, Brief, Command, Effect, ErrorKind, Event, Outcome, Preset, Reply,
    SessionId, StopReason, Task, Timestamp, ToolOutput, Tree, Usage, Usd,
};
use adjutant_view::events::EventStream;
use adjutant_view::progress::Frame;
use adjutant_view::results::{Options, Results};
use adjutant_view::transcript::Transcript;
use adjutant_view::{Entry, Liveness, Palette, RunView, log, tree};
use proptest::prelude::*;
use serde_json::json;

use crate::history::{History, WALL, call, label, model, root, run_id, tokens};

/// The real tree, driven without an engine.
struct Driver {
    tree: Tree,
    now: u64,
    records: Vec<(Timestamp, Event)>,
    effects: Vec<Effect>,
    sessions: u8,
}

impl Driver {
    fn new() -> Self {
        let mut policy = Preset::Command.policy();
        policy.tasks_per_call = 4;
        policy.concurrency = 3;
        policy.cycle_key = adjutant_core::policy::CycleKey::Task;
        policy.contract = adjutant_core::policy::ContractKind::Report;
        policy.children_per_run = Some(12);
        let mut driver = Self {
            tree: Tree::default(),
            now: 0,
            records: Vec::new(),
            effects: Vec::new(),
            sessions: 0,
        };
        driver.submit(Command::Begin {
            run: run_id(),
            agent: AgentName::new("delegate"),
            goal: "goal".into(),
            workdir: "work".into(),
            policy: Box::new(policy),
            version: "0".into(),
            model: None,
            terms: None,
        });
        driver
    }

    fn submit(&mut self, command: Command) {
        let mut queue = vec![command];
        while let Some(command) = queue.pop() {
            let now = Timestamp::from_millis(self.now);
            for event in self.tree.decide(now, command).unwrap_or_default() {
                self.tree.evolve(now, &event).unwrap();
                let reaction = self.tree.react(&event);
                queue.extend(reaction.commands.into_iter().rev());
                self.effects.extend(reaction.effects);
                self.records.push((now, event));
            }
        }
    }

    fn delegate(&mut self, parent: SessionId, count: u8) {
        let tasks = (0..count)
            .map(|_| {
                self.sessions += 1;
                let prompt = format!("task {}", self.sessions);
                let mut brief = Brief::new(label("same"), AgentName::new("scout"), &prompt);
                brief.model = Some(model());
                let chance = [1, 1, 1, 1, self.sessions / 36, self.sessions % 36];
                Task { session: SessionId::new(1_738_326_896, chance), brief }
            })
            .collect();
        self.submit(Command::Delegate { parent, tasks, concurrency: None, origin: None });
    }

    /// Does one thing; `pick` chooses what and to whom.
    fn step(&mut self, pick: u16) {
        self.now += u64::from(pick % 7) * 100;
        let of = usize::from(pick / 16);
        let live: Vec<SessionId> = self
            .tree
            .nodes()
            .filter(|node| node.state.is_live())
            .map(|node| node.session)
            .collect();
        let Some(&session) = live.get(of % live.len().max(1)) else { return };
        match pick % 16 {
            0 | 1 => self.delegate(session, (pick / 256 % 3) as u8 + 1),
            2 if session != root() => self.submit(Command::Cancel { session }),
            3 => self.submit(Command::Tick),
            4 if session != root() => self.submit(Command::Crash {
                session,
                message: "broke".into(),
                backtrace: String::new(),
            }),
            _ => self.answer(of, pick),
        }
    }

    /// Answers one of the effects that are waiting, in any order.
    fn answer(&mut self, of: usize, pick: u16) {
        if self.effects.is_empty() {
            return;
        }
        let effect = self.effects.swap_remove(of % self.effects.len());
        let amount = u64::from(pick);
        match effect {
            Effect::Model { session, turn, attempt, .. } if pick.is_multiple_of(5) => {
                let kind =
                    if pick.is_multiple_of(2) { ErrorKind::Network } else { ErrorKind::BadRequest };
                let error = AttemptError { kind, message: "no".into(), retry_after_ms: None };
                self.submit(Command::FailAttempt { session, turn, attempt, error });
            }
            Effect::Model { session, turn, attempt, .. } => {
                let tool_calls = if pick.is_multiple_of(3) {
                    vec![call("Read", json!({ "path": pick }))]
                } else {
                    vec![]
                };
                let usage = Usage { cache_read: amount / 3, ..tokens(amount, amount / 9) };
                let usage = (!pick.is_multiple_of(4)).then_some(usage);
                let stop = StopReason::EndTurn;
                let text = format!("answer {pick}");
                let reply = Reply { text, tool_calls, stop, opaque: None, usage };
                self.submit(Command::Reply { session, turn, attempt, reply });
            }
            Effect::Tool { session, turn, index, .. }
            | Effect::Fetch { session, turn, index, .. } => {
                let note = (pick.is_multiple_of(2)).then(|| "a note".to_owned());
                let output = ToolOutput { content: "x".into(), note, ..ToolOutput::default() };
                self.submit(Command::TakeOutput { session, turn, call: index, output });
            }
            Effect::AskApproval { hash, .. } => self.submit(Command::Approve { hash }),
            Effect::AskDomain { host, .. } => self.submit(Command::AllowDomain { host }),
            // Nobody here may write.
            Effect::PrepareWrite { .. } | Effect::Write { .. } => {}
            Effect::Delegate { .. }
            | Effect::HandUp { .. }
            | Effect::Verify { .. }
            | Effect::Mark { .. }
            | Effect::MakeSpace { .. }
            | Effect::KeepSpace { .. }
            | Effect::Markers { .. }
            | Effect::Merge { .. }
            | Effect::Check { .. }
            | Effect::Stop { .. }
            | Effect::Close => {}
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.records.iter().map(|(at, event)| Entry::new(*at, WALL + at.as_millis(), event))
    }
}

fn settlements(driver: &Driver) -> (Usage, Usd) {
    let mut sum = (Usage::default(), Usd::ZERO);
    for (_, event) in &driver.records {
        if let Event::Replied { settlement, .. }
        | Event::AttemptFailed { settlement, .. }
        | Event::Settled { settlement, .. } = event
        {
            sum = (sum.0 + settlement.usage, sum.1 + settlement.usd);
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Requirement 59 and DESIGN §5: the root's inclusive cost is the sum of all usage records.
    #[test]
    fn the_root_includes_every_settlement(picks in prop::collection::vec(any::<u16>(), 1..200)) {
        let mut driver = Driver::new();
        driver.delegate(root(), 3);
        for pick in picks {
            driver.step(pick);
        }
        let view = RunView::of(driver.entries());
        let sum = settlements(&driver);
        let root = view.root().unwrap();
        prop_assert_eq!((root.inclusive.usage, root.inclusive.usd), sum);
        prop_assert_eq!(root.inclusive, *view.total());
        for node in view.preorder() {
            let below = view.children(node).fold(node.own, |sum, child| sum.plus(&child.inclusive));
            prop_assert_eq!(node.inclusive, below);
        }
        // The view and the tree that decided agree on every node.
        for node in driver.tree.nodes() {
            let shown = view.delegation(node.session).unwrap();
            prop_assert_eq!(&shown.state, &node.state);
            prop_assert_eq!((shown.own.usage, shown.own.usd), (node.usage, node.cost));
            prop_assert_eq!(shown.depth, node.depth);
        }
    }

    /// Requirement 50: order is input order, and everything that ended completed once on the wire.
    #[test]
    fn every_rendering_survives_every_history(picks in prop::collection::vec(any::<u16>(), 1..120)) {
        let mut driver = Driver::new();
        driver.delegate(root(), 4);
        for pick in picks {
            driver.step(pick);
        }
        let view = RunView::of(driver.entries());
        let results = Results::of_run(&view);
        let places: Vec<(u32, u32)> = results.items().iter().map(|item| (item.call, item.index)).collect();
        prop_assert!(places.is_sorted());
        let now = Timestamp::from_millis(driver.now);
        let frame = Frame { width: 60, height: Some(10), now, palette: Palette::Plain };
        prop_assert!(frame.render(&view).lines().count() <= 10);
        prop_assert!(!results.markdown(&Options::default()).is_empty());
        prop_assert!(!tree::render(&view, now, Liveness::Dead, Palette::Ansi).is_empty());
        prop_assert_eq!(log::render(driver.entries()).lines().count(), driver.records.len());
        let mut stream = EventStream::new();
        let mut completed: BTreeMap<Option<SessionId>, usize> = BTreeMap::new();
        for event in driver.entries().flat_map(|entry| stream.translate(entry)) {
            if matches!(event.what, adjutant_view::events::What::Completed { .. }) {
                *completed.entry(event.session_id).or_default() += 1;
            }
        }
        let ended = view.delegations().filter(|node| !node.state.is_live()).count();
        prop_assert_eq!(completed.len(), ended);
        prop_assert!(completed.values().all(|count| *count == 1));
        for node in view.delegations() {
            let transcript = Transcript::of(driver.entries(), node.session, Liveness::Alive);
            prop_assert!(transcript.is_some());
        }
    }

    /// Requirement 50: results do not depend on who finished first.
    #[test]
    fn results_are_independent_of_the_order_of_completion(order in Just([0_usize, 1, 2, 3, 4]).prop_shuffle()) {
        let tell = |order: [usize; 5]| {
            let mut h = History::new();
            let sessions = h.call([("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("e", "x")]);
            for session in sessions {
                h.start(session);
            }
            for place in order {
                h.reply(sessions[place], &format!("report {place}"), vec![], tokens(place as u64, 1));
                h.end(sessions[place], Outcome::Completed, None);
            }
            let view = h.view();
            let results = Results::of_run(&view);
            let json = serde_json::to_string(&results.json(&Options::default())).unwrap();
            (results.markdown(&Options::default()), json)
        };
        prop_assert_eq!(tell(order), tell([0, 1, 2, 3, 4]));
    }
}
