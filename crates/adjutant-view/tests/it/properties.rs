//! Properties of every history: random commands against the real tree, folded by the view.

use std::collections::BTreeMap;

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::story::StoryAssignment;
use adjutant_core::story::VerifyResult;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::verify::VerifyFacts;
use adjutant_core::workspace::{MergedWork, WorkspaceKind};
use adjutant_core::{
    AgentName, AttemptError, Brief, Command, Effect, Event, ModelErrorKind, ModelReply, ModelSpec,
    Outcome, Policy, Preset, RequestedTask, Rights, SessionId, StopReason, Timestamp, ToolOutput,
    ToolSet, Tree, Usage, Usd, WorkerAction, WorkerCallEnd, WorkerCallRequest, WorkerPlace,
    WorkerTerms, WorkerToolStatus, WriteScope,
};
use adjutant_view::cost_sums::{CostGrouping, CostSums};
use adjutant_view::progress::ProgressFrame;
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::story::StoryReport;
use adjutant_view::transcript::Transcript;
use adjutant_view::turn_costs::TurnCosts;
use adjutant_view::{
    Palette, ProcessLiveness, RunSummary, RunView, Spend, TimedEvent, cost, log, tree,
};
use proptest::prelude::*;
use serde_json::json;

use crate::history::{History, WALL, call, label, model, root, run_id, tokens, wire_events};

/// A return that is accepted.
const DONE: &str =
    r#"{"status":"completed","summary":"It is done. All of it.","artifacts":[],"errors":[]}"#;

fn driver_policy() -> Policy {
    let mut policy = Preset::Command.policy();
    policy.tasks_per_call = 4;
    policy.concurrency = 3;
    policy.cycle_key = adjutant_core::policy::CycleKey::Task;
    policy.contract = adjutant_core::policy::ContractKind::Report;
    policy.children_per_run = Some(12);
    policy
}

/// The real tree, driven without an engine.
struct Driver {
    tree: Tree,
    in_flight: EffectsInFlight,
    now: u64,
    records: Vec<(Timestamp, Event)>,
    effects: Vec<Effect>,
    sessions: u8,
}

impl Driver {
    fn new() -> Self {
        Self::on(driver_policy())
    }

    fn on(policy: Policy) -> Self {
        let mut driver = Self {
            tree: Tree::default(),
            in_flight: EffectsInFlight::default(),
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
            base_depth: 0,
            environment: None,
        });
        driver
    }

    /// A run whose agents are external workers in workspaces of their own.
    fn with_workers() -> Self {
        let mut driver = Self::on(Policy {
            workspace: WorkspaceSharing::Own,
            network: false,
            tools: ToolSet::all(),
            ..driver_policy()
        });
        let free = ModelSpec { name: "acme/free".into(), price: None, ..model() };
        driver.submit(Command::Define {
            agent: AgentName::new("scout"),
            system: String::new(),
            tools: vec![],
            rights: Rights { tools: ToolSet::all(), network: false, writes: WriteScope::Own },
            max_turns: None,
            worker: Some(Box::new(WorkerTerms {
                name: "codex".into(),
                place: WorkerPlace::Workspace,
                further_models: vec![free],
                problem: None,
            })),
        });
        driver
    }

    /// A run on a story: its agents work in workspaces and delegate by markers.
    fn on_a_story() -> Self {
        let mut policy = Preset::Story.policy();
        policy.enabled = true;
        policy.cycle_key = adjutant_core::policy::CycleKey::Task;
        policy.budget_usd = Some(Usd::from_pico(50_000_000_000_000));
        let mut driver = Self {
            tree: Tree::default(),
            in_flight: EffectsInFlight::default(),
            now: 0,
            records: Vec::new(),
            effects: Vec::new(),
            sessions: 0,
        };
        driver.submit(Command::Begin {
            run: run_id(),
            agent: AgentName::new("story"),
            goal: "goal".into(),
            workdir: "work".into(),
            policy: Box::new(policy),
            version: "0".into(),
            model: Some(model()),
            terms: None,
            base_depth: 0,
            environment: None,
        });
        let (id, title, verify) = ("US-007".into(), "Log in".into(), Some("make test".into()));
        let story = StoryAssignment { id, title, verify, ..StoryAssignment::default() };
        driver.submit(Command::TakeStory(Box::new(story)));
        driver
    }

    fn tasks(&mut self, prompts: impl Iterator<Item = String>) -> Vec<RequestedTask> {
        let mut task = |prompt: String| {
            self.sessions += 1;
            let mut brief = Brief::new(label("same"), AgentName::new("worker"), &prompt);
            brief.model = Some(model());
            let chance = [1, 1, 1, 2, self.sessions / 36, self.sessions % 36];
            RequestedTask { session: SessionId::new(1_738_326_896, chance), brief }
        };
        prompts.map(&mut task).collect()
    }

    fn submit(&mut self, command: Command) {
        let mut queue = vec![command];
        while let Some(command) = queue.pop() {
            let now = Timestamp::from_millis(self.now);
            let events = self.tree.decide(now, command).unwrap_or_default();
            for event in &events {
                self.tree.evolve(now, event).unwrap();
            }
            let reaction = self.tree.react(&events, &mut self.in_flight);
            queue.extend(reaction.commands.into_iter().rev());
            self.effects.extend(reaction.effects);
            self.records.extend(events.into_iter().map(|event| (now, event)));
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
                RequestedTask { session: SessionId::new(1_738_326_896, chance), brief }
            })
            .collect();
        self.submit(Command::Delegate { parent, tasks, concurrency: None, origin: None });
    }

    /// Performs one random step, chosen by `pick`.
    fn step(&mut self, pick: u16) {
        self.now += u64::from(pick % 7) * 100;
        let of = usize::from(pick / 16);
        let live: Vec<SessionId> =
            self.tree.nodes().filter(|node| node.is_live()).map(|node| node.session).collect();
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

    /// Answers one of the pending effects, in any order.
    fn answer(&mut self, of: usize, pick: u16) {
        if self.effects.is_empty() {
            return;
        }
        let effect = self.effects.swap_remove(of % self.effects.len());
        let amount = u64::from(pick);
        match effect {
            Effect::Model { session, turn, attempt, .. } if pick.is_multiple_of(5) => {
                let kind = if pick.is_multiple_of(2) {
                    ModelErrorKind::Network
                } else {
                    ModelErrorKind::BadRequest
                };
                let error = AttemptError {
                    kind,
                    message: "no".into(),
                    retry_after_ms: None,
                    never_began: false,
                };
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
                let marks = self.tree.story().is_some() && pick.is_multiple_of(2);
                let marker =
                    if marks { format!("\n[delegate:task {pick}:1]") } else { String::new() };
                let text = match (self.tree.story(), marks) {
                    (Some(_), false) => DONE.to_owned(),
                    _ => format!("answer {pick}{marker}"),
                };
                let reply = ModelReply { text, tool_calls, stop, opaque: None, usage };
                self.submit(Command::Reply { session, turn, attempt, reply });
            }
            Effect::Tool { session, turn, index, .. }
            | Effect::Fetch { session, turn, index, .. } => {
                let note = (pick.is_multiple_of(2)).then(|| "a note".to_owned());
                let output = ToolOutput { content: "x".into(), note, ..ToolOutput::default() };
                self.submit(Command::TakeOutput { session, turn, call: index, output });
            }
            Effect::Prompt { session, turn, attempt } => self.work(session, turn, attempt, pick),
            Effect::ForwardCall { session, call } => {
                let usage = (!pick.is_multiple_of(4)).then(|| tokens(amount, amount / 9));
                let end = match pick % 5 {
                    0 => WorkerCallEnd::Failed { message: "HTTP 500".into() },
                    1 => WorkerCallEnd::Cut,
                    2 => WorkerCallEnd::Abandoned,
                    _ => WorkerCallEnd::Complete,
                };
                let never_began = pick.is_multiple_of(8);
                self.submit(Command::SettleCall { session, call, end, usage, never_began });
            }
            Effect::AskApproval { hash, .. } => self.submit(Command::Approve { hash }),
            Effect::AskDomain { host, .. } => self.submit(Command::AllowDomain { host }),
            // No agent here may write.
            Effect::PrepareWrite { .. } | Effect::Write { .. } => {}
            Effect::MakeWorkspace { session, .. } => {
                let made = Ok(crate::story::space(WorkspaceKind::Overlay, "x"));
                self.submit(Command::TakeWorkspace { session, made, project: None });
            }
            Effect::CommitWork { session, .. } => {
                let files = vec![crate::story::file("a", "added", (1, 0))];
                let kept = Ok(crate::story::work(session, files));
                self.submit(Command::TakeKeptWork { session, kept });
            }
            Effect::Markers { session, turn, markers } => {
                let tasks = self.tasks(markers.tasks.into_iter().map(|it| it.description));
                let rejected = markers.rejected;
                self.submit(Command::DelegateMarkers { session, turn, tasks, rejected });
            }
            Effect::Merge { session, .. } => {
                let merged = if pick.is_multiple_of(2) {
                    Ok(MergedWork::default())
                } else {
                    Err("no".into())
                };
                self.submit(Command::TakeMerge { session, merged });
            }
            Effect::Check { session, .. } => {
                let passed = pick.is_multiple_of(3);
                let check = if passed { VerifyResult::Passed } else { VerifyResult::Failed };
                self.submit(Command::TakeCheck {
                    session,
                    check,
                    text: "ran".into(),
                    facts: VerifyFacts::default(),
                });
            }
            Effect::ReturnResults { .. } => {
                let waits: Vec<(SessionId, u32)> =
                    self.tree.nodes().map(|node| (node.session, node.turn)).collect();
                for (session, turn) in waits {
                    let text = "results".to_owned();
                    // Only the session that waits for the results receives them.
                    if (1..20).any(|call| self.tree.awaits_results(session, call)) {
                        self.submit(Command::TellResults { session, turn, text });
                    }
                }
            }
            Effect::CollectHandover { session, turn, .. } => {
                let handover = Box::default();
                self.submit(Command::TakeHandover { session, turn, handover });
            }
            Effect::Verify { session, .. } => {
                let (text, artifacts) = (DONE.to_owned(), Vec::new());
                self.submit(Command::Conclude {
                    session,
                    call: None,
                    text,
                    artifacts,
                    changed: None,
                });
            }
            Effect::Delegate { .. }
            | Effect::UpdateTaskList { .. }
            | Effect::StopModel { .. }
            | Effect::Stop { .. }
            | Effect::Close => {}
        }
    }

    /// Lets a worker make a call, say something or answer its prompt, which stays open otherwise.
    fn work(&mut self, session: SessionId, turn: u32, attempt: u32, pick: u16) {
        let prompt = Effect::Prompt { session, turn, attempt };
        let usage = None;
        match pick % 7 {
            0 => {
                let (text, stop) = ("done".to_owned(), StopReason::EndTurn);
                let reply = ModelReply { text, tool_calls: vec![], stop, opaque: None, usage };
                self.submit(Command::Reply { session, turn, attempt, reply });
                return;
            }
            1 => {
                let (id, title, status) = ("1".into(), "make".into(), WorkerToolStatus::Failed);
                let action = WorkerAction::Tool { id, title, status };
                self.submit(Command::TakeWorkerAction { session, action });
            }
            2 => {
                let action = WorkerAction::Said { text: "I look.".into() };
                self.submit(Command::TakeWorkerAction { session, action });
            }
            _ => {
                let models = ["acme/large", "free", "other"];
                let request = WorkerCallRequest {
                    model: models[usize::from(pick % 3)].into(),
                    input_bound: u64::from(pick),
                    requested_output: None,
                    removed: vec![],
                    problem: None,
                };
                self.submit(Command::AdmitCall { session, request });
            }
        }
        self.effects.push(prompt);
    }

    fn entries(&self) -> impl Iterator<Item = TimedEvent<'_>> {
        self.records.iter().map(|(at, event)| TimedEvent::new(*at, WALL + at.as_millis(), event))
    }
}

fn settlements(driver: &Driver) -> (Usage, Usd) {
    let mut sum = (Usage::default(), Usd::ZERO);
    for (_, event) in &driver.records {
        if let Event::Replied { settlement, .. }
        | Event::AttemptFailed { settlement, .. }
        | Event::Settled { settlement, .. }
        | Event::WorkerCallSettled { settlement, .. } = event
        {
            sum = (sum.0 + settlement.usage, sum.1 + settlement.usd);
        }
    }
    sum
}

fn turn_costs(driver: &Driver) -> TurnCosts {
    let mut costs = TurnCosts::default();
    driver.records.iter().for_each(|(_, event)| costs.apply(event));
    costs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Requirement 59 and DESIGN §5: the root's inclusive cost is the sum of all usage records.
    #[test]
    fn the_root_includes_every_settlement(
        picks in prop::collection::vec(any::<u16>(), 1..200),
        kind in 0..3_usize,
    ) {
        let mut driver = [Driver::new, Driver::on_a_story, Driver::with_workers][kind]();
        if kind != 1 {
            driver.delegate(root(), 3);
        }
        for pick in picks {
            driver.step(pick);
        }
        let view = RunView::of(driver.entries());
        let sum = settlements(&driver);
        let root = view.root().unwrap();
        prop_assert_eq!((root.inclusive.usage, root.inclusive.usd), sum);
        prop_assert_eq!(root.inclusive, *view.total());
        let bill = cost::json(&view, None);
        prop_assert_eq!(bill.total.usage, sum.0.into());
        let by_model = bill.by_model.iter().map(|one| one.spent.usage.input + one.spent.usage.output);
        prop_assert_eq!(by_model.sum::<u64>(), sum.0.total());
        let calls = bill.by_model.iter().map(|one| one.calls);
        prop_assert_eq!(calls.sum::<u64>(), bill.total.calls);
        let summary = RunSummary::of(&view, ProcessLiveness::Alive);
        let by_hour = summary.spent.iter().fold(Spend::default(), |sum, it| sum.plus(&it.spend));
        prop_assert_eq!(by_hour, *view.total());
        let sums = CostSums::of([&summary], CostGrouping::Model, None).json();
        prop_assert_eq!(sums.total, bill.total.clone());
        let names = |all: &mut dyn Iterator<Item = (String, u64)>| all.collect::<BTreeMap<_, _>>();
        prop_assert_eq!(
            names(&mut sums.groups.into_iter().map(|it| (it.name, it.calls))),
            names(&mut bill.by_model.iter().map(|it| (it.name.clone(), it.calls)))
        );
        let indexed: RunSummary =
            serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
        prop_assert_eq!(indexed, summary);
        let rows = turn_costs(&driver).json(&view, None).turns;
        prop_assert_eq!(rows.len() as u64, bill.total.calls);
        if let Some(report) = StoryReport::of(&view) {
            prop_assert_eq!((report.inclusive.usage, report.inclusive.usd), sum);
            let below = report.children.iter().map(|child| child.own.usd);
            prop_assert_eq!(below.fold(report.own.usd, |sum, own| sum + own), sum.1);
        }
        for node in view.preorder() {
            let below = view.children(node).fold(node.own, |sum, child| sum.plus(&child.inclusive));
            prop_assert_eq!(node.inclusive, below);
        }
        // The view agrees with the tree on every node.
        for node in driver.tree.nodes() {
            let shown = view.delegation(node.session).unwrap();
            prop_assert_eq!(&shown.state, &node.state());
            prop_assert_eq!((shown.own.usage, shown.own.usd), (node.usage, node.cost));
            prop_assert_eq!(shown.depth, node.depth);
        }
    }

    /// Requirement 50: results are in input order, and everything that ended has one `completed` event.
    #[test]
    fn every_rendering_survives_every_history(
        picks in prop::collection::vec(any::<u16>(), 1..120),
        has_workers in any::<bool>(),
    ) {
        let mut driver = if has_workers { Driver::with_workers() } else { Driver::new() };
        driver.delegate(root(), 4);
        for pick in picks {
            driver.step(pick);
        }
        let view = RunView::of(driver.entries());
        let results = CallResults::of_run(&view);
        let places: Vec<(u32, u32)> = results.items().iter().map(|item| (item.call, item.index)).collect();
        prop_assert!(places.is_sorted());
        let now = Timestamp::from_millis(driver.now);
        let frame = ProgressFrame { width: 60, height: Some(10), now, palette: Palette::Plain };
        prop_assert!(frame.render(&view).lines().count() <= 10);
        prop_assert!(!results.markdown(&ResultOptions::default()).is_empty());
        prop_assert!(!tree::render(&view, now, ProcessLiveness::Dead, Palette::Ansi, 160).is_empty());
        prop_assert_eq!(log::render(driver.entries()).lines().count(), driver.records.len());
        let mut completed: BTreeMap<Option<SessionId>, usize> = BTreeMap::new();
        for event in wire_events(driver.entries()) {
            if matches!(event.what, adjutant_view::events::WireEventKind::Completed { .. }) {
                *completed.entry(event.session_id).or_default() += 1;
            }
        }
        let ended = view.delegations().filter(|node| !node.state.is_live()).count();
        prop_assert_eq!(completed.len(), ended);
        prop_assert!(completed.values().all(|count| *count == 1));
        for node in view.delegations() {
            let transcript = Transcript::of(driver.entries(), node.session, ProcessLiveness::Alive);
            prop_assert!(transcript.is_some());
        }
    }

    /// Requirement 50: results do not depend on the order of completion.
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
            let results = CallResults::of_run(&view);
            let json = serde_json::to_string(&results.json(&ResultOptions::default())).unwrap();
            (results.markdown(&ResultOptions::default()), json)
        };
        prop_assert_eq!(tell(order), tell([0, 1, 2, 3, 4]));
    }
}

/// Random histories of stories must reach the cases that they are meant to cover.
#[test]
fn histories_of_stories_reach_children_merges_and_checks() {
    let mut seen = (false, false, false, 0);
    for seed in 0..200_u16 {
        let mut driver = Driver::on_a_story();
        for step in 0..200_u16 {
            driver.step(seed.wrapping_mul(7_919).wrapping_add(step.wrapping_mul(10_007)));
        }
        let view = RunView::of(driver.entries());
        for node in view.preorder() {
            seen.0 |= node.merged.is_some();
            seen.1 |= node.checked.is_some();
            seen.2 |= node.story.as_deref() == Some("US-007-DEL-001");
            seen.3 = seen.3.max(if node.started.is_some() { node.depth } else { 0 });
        }
    }
    assert_eq!(seen, (true, true, true, 2));
}

/// Checks that the random workers above make calls of both models, and that some are refused.
#[test]
fn random_workers_make_calls_of_several_models() {
    let (mut calls, mut refused) = (BTreeMap::new(), 0);
    for seed in 0..20_u16 {
        let mut driver = Driver::with_workers();
        driver.delegate(root(), 3);
        (0..200_u16).for_each(|step| driver.step(step.wrapping_mul(2_654).wrapping_add(seed * 97)));
        let view = RunView::of(driver.entries());
        for node in view.delegations() {
            for (model, spend) in node.by_model() {
                *calls.entry(model).or_insert(0) += spend.calls;
            }
            refused += node.worker.as_ref().map_or(0, |worker| worker.refused_calls);
        }
    }
    assert!(
        calls["acme/large"] > 20 && calls["acme/free"] > 20 && refused > 20,
        "{calls:?} {refused}"
    );
}
