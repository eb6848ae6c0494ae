//! Properties of every history of the registry: several processes that take turns and crash.
//!
//! The test keeps its own accounts from the events and compares them with the limits after every
//! step.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::budget::{BudgetAmount, BudgetCap};
use adjutant_core::registry::{
    CallKey, DelegationSample, HolderId, KEPT_SAMPLES, SampleGroup, SampleKey, StoryEnd, StoryKey,
    StoryRunState, TreeKey,
};
use adjutant_core::{
    Preset, Registry, RegistryCommand, RegistryEvent, RegistryRefusal, RunId, Usd,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const START: u64 = 20_000 * DAY_MS;
const MAX_RUNS: u32 = 2;
const LIMIT: Usd = Usd::from_pico(10_000_000_000_000);
const STORIES_USD: Usd = Usd::from_pico(2_000_000_000_000);

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Die(usize),
    Admit { who: usize, tree: usize, call: Option<usize> },
    End(Index),
    Reserve { who: usize, run: Index, dollars: u64 },
    Settle { run: Index, dollars: u64 },
    BeginCall { who: usize, call: usize, replaces: bool },
    AbandonCall(usize),
    Wait { who: usize, call: usize },
    StopWaiting { who: usize, call: usize },
    StartCancelling { who: usize, call: usize },
    StopCancelling(usize),
    Claim { who: usize, story: usize },
    Release { who: usize, story: usize },
    BeginStory { who: usize, story: usize },
    EndStory { run: Index, dollars: u64 },
    Consent(u8),
    Question { run: Index, id: u8 },
    Merge(u8),
    Unmerge(u8),
    Sample { model: u16, count: usize },
    Later(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let (who, two) = (0..3_usize, 0..2_usize);
    let run = any::<Index>;
    prop_oneof![
        3 => who.clone().prop_map(Step::Join),
        1 => who.clone().prop_map(Step::Die),
        5 => (who.clone(), two.clone(), prop::option::of(0..3_usize))
            .prop_map(|(who, tree, call)| Step::Admit { who, tree, call }),
        2 => run().prop_map(Step::End),
        4 => (who.clone(), run(), 0..6_u64)
            .prop_map(|(who, run, dollars)| Step::Reserve { who, run, dollars }),
        2 => (run(), 0..4_u64).prop_map(|(run, dollars)| Step::Settle { run, dollars }),
        5 => (who.clone(), 0..3_usize, any::<bool>())
            .prop_map(|(who, call, replaces)| Step::BeginCall { who, call, replaces }),
        1 => (0..3_usize).prop_map(Step::AbandonCall),
        3 => (who.clone(), 0..3_usize).prop_map(|(who, call)| Step::Wait { who, call }),
        2 => (who.clone(), 0..3_usize).prop_map(|(who, call)| Step::StopWaiting { who, call }),
        2 => (who.clone(), 0..3_usize).prop_map(|(who, call)| Step::StartCancelling { who, call }),
        1 => (0..3_usize).prop_map(Step::StopCancelling),
        4 => (who.clone(), two.clone()).prop_map(|(who, story)| Step::Claim { who, story }),
        2 => (who.clone(), two.clone()).prop_map(|(who, story)| Step::Release { who, story }),
        3 => (who, two).prop_map(|(who, story)| Step::BeginStory { who, story }),
        2 => (run(), 0..3_u64).prop_map(|(run, dollars)| Step::EndStory { run, dollars }),
        1 => any::<u8>().prop_map(Step::Consent),
        1 => (run(), any::<u8>()).prop_map(|(run, id)| Step::Question { run, id }),
        1 => (0..3_u8).prop_map(Step::Merge),
        1 => (0..3_u8).prop_map(Step::Unmerge),
        2 => (0..300_u16, 0..260_usize).prop_map(|(model, count)| Step::Sample { model, count }),
        1 => (0..DAY_MS).prop_map(Step::Later),
    ]
}

fn usd(dollars: u64) -> Usd {
    Usd::from_dollars(dollars as f64).unwrap()
}

fn call(number: usize) -> CallKey {
    CallKey::new(format!("call{number}"))
}

fn story(number: usize) -> StoryKey {
    StoryKey { prd: "/work/prd.json".to_owned(), id: format!("S-{number}") }
}

fn sampled(model: &str, tokens: std::ops::Range<u64>) -> SampleGroup {
    let key = SampleKey { preset: Preset::Scout, model: model.to_owned(), worker: None };
    let sample = |tokens| DelegationSample::new(tokens, Some(usd(1)), 2_000);
    SampleGroup { key, samples: tokens.map(sample).collect() }
}

fn tree(number: usize) -> TreeKey {
    TreeKey::new(format!("/work/tree{number}"))
}

/// A world of three processes that may die and come back under another name.
#[derive(Default)]
struct World {
    registry: Registry,
    /// What was recorded when, and the state of the process that recorded it.
    log: Vec<LoggedEvent>,
    wall_ms: u64,
    /// How often each process has restarted.
    lives: [u32; 3],
    runs: Vec<RunId>,
    books: Books,
}

struct LoggedEvent {
    wall_ms: u64,
    /// What is on disk is text.
    text: String,
    live: Registry,
}

impl LoggedEvent {
    fn replay(&self, registry: &mut Registry) {
        registry.evolve(self.wall_ms, &serde_json::from_str(&self.text).unwrap());
    }
}

/// What the test counts itself, from the events alone.
#[derive(Default)]
struct Books {
    places: BTreeMap<RunId, (HolderId, TreeKey)>,
    unasked: Vec<Unasked>,
    stories: BTreeMap<StoryKey, HolderId>,
    story_runs: BTreeMap<RunId, HolderId>,
    story_usd: BTreeMap<HolderId, Usd>,
}

/// A run that started unasked.
struct Unasked {
    holder: HolderId,
    run: RunId,
    day: u64,
    amount: Usd,
    is_settled: bool,
}

impl World {
    fn holder(&self, who: usize) -> HolderId {
        HolderId::new(format!("holder{who}.{}.", self.lives[who]))
    }

    fn new_run(&mut self) -> RunId {
        let number = self.runs.len();
        let run: RunId = format!("run_1735460684_{number:06}").parse().unwrap();
        self.runs.push(run);
        run
    }

    fn some_run(&self, which: Index) -> Option<RunId> {
        (!self.runs.is_empty()).then(|| *which.get(&self.runs))
    }

    fn submit(&mut self, command: RegistryCommand) -> Result<(), RegistryRefusal> {
        let decision = self.registry.decide(self.wall_ms, command.clone());
        assert_eq!(decision, self.registry.decide(self.wall_ms, command), "the same twice");
        for event in decision? {
            self.registry.evolve(self.wall_ms, &event);
            self.books.enter(self.wall_ms, &event);
            let text = serde_json::to_string(&event).unwrap();
            let (wall_ms, live) = (self.wall_ms, self.registry.clone());
            self.log.push(LoggedEvent { wall_ms, text, live });
        }
        self.check();
        Ok(())
    }

    fn check(&self) {
        for number in 0..2 {
            let live = self.registry.live_runs().filter(|(_, it)| it.tree == tree(number)).count();
            assert!(live <= MAX_RUNS as usize, "{live} runs are alive");
        }
        let counted: BTreeSet<RunId> = self.books.places.keys().copied().collect();
        let live: BTreeSet<RunId> = self.registry.live_runs().map(|(run, _)| run).collect();
        assert_eq!(live, counted);
        let mut of_calls = BTreeSet::new();
        for (run, it) in self.registry.live_runs() {
            let Some(call) = &it.call else { continue };
            assert!(of_calls.insert(call.clone()), "{call} has two live runs");
            assert_eq!(self.registry.call(call).unwrap().run, run);
        }
        for number in 0..2 {
            let holder = self.registry.story_holder(&story(number)).map(|(holder, _)| holder);
            assert_eq!(holder, self.books.stories.get(&story(number)));
            let key = story(number);
            let at_work = self.registry.story_runs(&key).filter(|it| match &it.state {
                StoryRunState::Running(by) => Some(by) == holder || panic!("{by} gave {key:?} up"),
                StoryRunState::Ended(_) => false,
            });
            assert!(at_work.count() <= 1, "two runs work on {key:?}");
        }
    }

    fn perform(&mut self, step: Step) {
        let command = match step {
            Step::Join(who) => RegistryCommand::Join { holder: self.holder(who), pid: 7 },
            Step::Die(who) => {
                let holder = self.holder(who);
                self.lives[who] += 1;
                let _ = self.submit(RegistryCommand::HolderGone { holder: holder.clone() });
                let state = serde_json::to_string(&self.registry).unwrap();
                assert!(!state.contains(holder.as_str()), "{holder} holds something: {state}");
                return;
            }
            Step::Admit { who, tree: number, call: None } => RegistryCommand::AdmitRun {
                holder: self.holder(who),
                run: self.new_run(),
                tree: tree(number),
                max_runs: MAX_RUNS,
                call: None,
            },
            Step::Admit { who, tree: number, call: Some(of) } => {
                let known = self.registry.call(&call(of)).map(|it| it.run);
                // Now and then a process that was overtaken.
                let run = known.filter(|_| number == 0).or(self.runs.last().copied());
                let Some(run) = run else { return };
                RegistryCommand::AdmitRun {
                    holder: self.holder(who),
                    run,
                    tree: tree(number),
                    max_runs: MAX_RUNS,
                    call: Some(call(of)),
                }
            }
            Step::End(which) => match self.some_run(which) {
                Some(run) => RegistryCommand::EndRun { run },
                None => return,
            },
            Step::Reserve { who, run, dollars } => match self.some_run(run) {
                Some(run) => RegistryCommand::ReserveAllowance {
                    holder: self.holder(who),
                    run,
                    amount: usd(dollars),
                    limit: LIMIT,
                },
                None => return,
            },
            Step::Settle { run, dollars } => match self.some_run(run) {
                Some(run) => RegistryCommand::SettleAllowance { run, spent: usd(dollars) },
                None => return,
            },
            Step::BeginCall { who, call: of, replaces } => {
                let known = self.registry.call(&call(of)).map(|it| it.run);
                RegistryCommand::BeginCall {
                    holder: self.holder(who),
                    call: call(of),
                    run: self.new_run(),
                    instead_of: known.filter(|_| replaces),
                }
            }
            Step::AbandonCall(of) => match self.registry.call(&call(of)) {
                Some(known) if !self.books.places.contains_key(&known.run) => {
                    RegistryCommand::AbandonCall { call: call(of), run: known.run }
                }
                _ => return,
            },
            Step::Wait { who, call: of } => match self.registry.call(&call(of)) {
                Some(known) => RegistryCommand::Wait { holder: self.holder(who), run: known.run },
                None => return,
            },
            Step::StopWaiting { who, call: of } => match self.registry.call(&call(of)) {
                Some(known) => {
                    RegistryCommand::StopWaiting { holder: self.holder(who), run: known.run }
                }
                None => return,
            },
            Step::StartCancelling { who, call: of } => match self.registry.call(&call(of)) {
                Some(known) => {
                    RegistryCommand::StartCancelling { holder: self.holder(who), run: known.run }
                }
                None => return,
            },
            Step::StopCancelling(of) => match self.registry.call(&call(of)) {
                Some(known) => RegistryCommand::StopCancelling { run: known.run },
                None => return,
            },
            Step::Claim { who, story: number } => {
                RegistryCommand::ClaimStory { holder: self.holder(who), story: story(number) }
            }
            Step::Release { who, story: number } => {
                RegistryCommand::ReleaseStory { holder: self.holder(who), story: story(number) }
            }
            Step::BeginStory { who, story: number } => RegistryCommand::BeginStory {
                holder: self.holder(who),
                story: story(number),
                run: self.new_run(),
                asked: "digest".to_owned(),
                budget: BudgetCap { usd: Some(STORIES_USD), tokens: None },
            },
            Step::EndStory { run, dollars } => match self.some_run(run) {
                Some(run) => RegistryCommand::EndStory {
                    run,
                    end: StoryEnd::Over,
                    spent: BudgetAmount { tokens: 1, usd: usd(dollars) },
                    commit: None,
                    last_child: dollars,
                },
                None => return,
            },
            Step::Consent(byte) => {
                RegistryCommand::GiveConsent { digest: format!("{byte:02x}").repeat(32) }
            }
            Step::Question { run, id } => match self.some_run(run) {
                Some(run) => RegistryCommand::OpenQuestion {
                    id: id.to_string(),
                    run,
                    hash: "hash".to_owned(),
                    code: "ABC234".to_owned(),
                    client: "tester".to_owned(),
                    at_prompt: false,
                },
                None => return,
            },
            Step::Merge(number) => RegistryCommand::RecordMerge {
                tree: tree(0),
                run: self.new_run(),
                commit: format!("{number}"),
            },
            Step::Unmerge(number) => {
                RegistryCommand::UndoMerge { tree: tree(0), commit: format!("{number}") }
            }
            Step::Sample { model, count } => RegistryCommand::RecordSamples {
                groups: vec![sampled(&model.to_string(), 0..count as u64)],
            },
            Step::Later(millis) => {
                self.wall_ms += millis;
                return;
            }
        };
        let _ = self.submit(command);
    }
}

impl Books {
    fn enter(&mut self, wall_ms: u64, event: &RegistryEvent) {
        match event {
            RegistryEvent::RunAdmitted { holder, run, tree, .. } => {
                self.places.insert(*run, (holder.clone(), tree.clone()));
            }
            RegistryEvent::RunEnded { run } => _ = self.places.remove(run),
            RegistryEvent::AllowanceReserved { holder, run, amount, .. } => {
                let day = wall_ms / DAY_MS;
                let before = self.unasked.iter().filter(|it| it.day == day);
                let sum: Usd = before.map(|it| it.amount).sum();
                // A run may cost more than it reserved; after that only what is free starts unasked.
                let is_within = *amount == Usd::ZERO || sum + *amount <= LIMIT;
                assert!(is_within, "{sum} and {amount} started unasked");
                let (holder, run, amount) = (holder.clone(), *run, *amount);
                self.unasked.push(Unasked { holder, run, day, amount, is_settled: false });
            }
            RegistryEvent::AllowanceSettled { run, spent } => {
                let mut open = self.unasked.iter_mut().filter(|it| it.run == *run);
                let open = open.find(|it| !it.is_settled).unwrap();
                (open.amount, open.is_settled) = (*spent, true);
            }
            RegistryEvent::StoryClaimed { holder, story } => {
                assert_eq!(self.stories.insert(story.clone(), holder.clone()), None, "{story:?}");
            }
            RegistryEvent::StoryReleased { holder, story } => {
                assert_eq!(self.stories.remove(story).as_ref(), Some(holder));
            }
            RegistryEvent::StoryBegun { holder, story, run, left_usd, .. } => {
                self.story_runs.insert(*run, holder.clone());
                assert_eq!(self.stories.get(story), Some(holder), "one process per story");
                let spent = self.story_usd.get(holder).copied().unwrap_or_default();
                assert_eq!(*left_usd, Some(STORIES_USD.saturating_sub(spent)));
            }
            RegistryEvent::StoryEnded { run, spent, .. } => {
                let holder = self.story_runs.remove(run).unwrap();
                *self.story_usd.entry(holder).or_default() += spent.usd;
            }
            RegistryEvent::HolderGone { holder } => {
                // A worst case that can be settled no more stays as it is.
                let ours = self.unasked.iter_mut().filter(|it| it.holder == *holder);
                ours.for_each(|it| it.is_settled = true);
                self.places.retain(|_, (by, _)| by != holder);
                self.stories.retain(|_, by| by != holder);
            }
            _ => {}
        }
    }
}

proptest! {
    // `PROPTEST_CASES` can only ask for more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(256),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_history_exceeds_a_limit_and_every_prefix_recovers(
        history in vec(steps(), 0..120),
        cut in any::<Index>(),
    ) {
        let mut world = World { wall_ms: START, ..World::default() };
        for who in 0..3 {
            world.perform(Step::Join(who));
        }
        for step in history {
            world.perform(step);
        }
        // A process that opens the log after any record has the same state as its writer.
        let mut opened = Registry::default();
        for logged in &world.log {
            logged.replay(&mut opened);
            prop_assert_eq!(&opened, &logged.live);
        }
        // And so it does after a compaction, and from there on.
        let cut = cut.index(world.log.len() + 1);
        let early = cut.checked_sub(1).map(|last| world.log[last].live.clone()).unwrap_or_default();
        let checkpoint = serde_json::to_string(&early.checkpoint()).unwrap();
        let mut late = Registry::default();
        late.evolve(0, &serde_json::from_str(&checkpoint).unwrap());
        prop_assert_eq!(&late, &early);
        world.log[cut..].iter().for_each(|logged| logged.replay(&mut late));
        prop_assert_eq!(late, world.registry);
    }
}

/// A registry with one process, and its answers to a list of commands.
fn check(commands: impl IntoIterator<Item = RegistryCommand>) -> String {
    let mut registry = Registry::default();
    let mut said = String::new();
    let joins = ["a", "b"].map(|name| RegistryCommand::Join { holder: holder(name), pid: 41 });
    for (number, command) in joins.into_iter().chain(commands).enumerate() {
        let decided = registry.decide(START, command);
        if let Ok(events) = &decided {
            events.iter().for_each(|event| registry.evolve(START, event));
        }
        if number > 1 {
            said += &match decided {
                Ok(events) => serde_json::to_string(&events).unwrap(),
                Err(refusal) => format!("refused: {refusal}"),
            };
            said.push('\n');
        }
    }
    said
}

fn holder(name: &str) -> HolderId {
    HolderId::new(name)
}

fn run(last: char) -> RunId {
    format!("run_1735460684_aaaaa{last}").parse().unwrap()
}

fn begin(by: &str, of: char, instead_of: Option<RunId>) -> RegistryCommand {
    RegistryCommand::BeginCall { holder: holder(by), call: call(0), run: run(of), instead_of }
}

fn admit(by: &str, of: char, call: Option<CallKey>) -> RegistryCommand {
    RegistryCommand::AdmitRun { holder: holder(by), run: run(of), tree: tree(0), max_runs: 1, call }
}

#[test]
fn an_equal_call_finds_the_run_of_the_first_until_that_has_ended_without_an_answer() {
    insta::assert_snapshot!(check([
        begin("a", '1', None),
        begin("b", '2', None),
        begin("b", '2', Some(run('1'))),
        admit("b", '1', Some(call(0))),
        RegistryCommand::HolderGone { holder: holder("a") },
        begin("b", '2', Some(run('1'))),
        RegistryCommand::EndRun { run: run('1') },
        begin("b", '2', None),
        begin("b", '2', Some(run('1'))),
        admit("b", '1', Some(call(0))),
    ]), @r#"
    [{"call_begun":{"holder":"a","call":"call0","run":"run_1735460684_aaaaa1"}}]
    refused: an equal call already started run_1735460684_aaaaa1
    refused: an equal call already started run_1735460684_aaaaa1
    [{"run_admitted":{"holder":"b","run":"run_1735460684_aaaaa1","tree":"/work/tree0","call":"call0"}}]
    [{"holder_gone":{"holder":"a"}}]
    refused: an equal call already started run_1735460684_aaaaa1
    [{"run_ended":{"run":"run_1735460684_aaaaa1"}}]
    refused: an equal call already started run_1735460684_aaaaa1
    [{"call_begun":{"holder":"b","call":"call0","run":"run_1735460684_aaaaa2"}}]
    refused: an equal call started run_1735460684_aaaaa2 in the meantime
    "#);
}

#[test]
fn a_run_is_cancelled_only_while_no_call_waits_for_it_and_then_none_joins_it() {
    let wait = |by: &str| RegistryCommand::Wait { holder: holder(by), run: run('1') };
    let cancel = |by: &str| RegistryCommand::StartCancelling { holder: holder(by), run: run('1') };
    insta::assert_snapshot!(check([
        begin("a", '1', None),
        wait("a"),
        wait("b"),
        RegistryCommand::StopWaiting { holder: holder("a"), run: run('1') },
        cancel("a"),
        RegistryCommand::StopWaiting { holder: holder("b"), run: run('1') },
        cancel("a"),
        wait("b"),
        begin("b", '2', None),
        RegistryCommand::StopCancelling { run: run('1') },
        wait("b"),
    ]), @r#"
    [{"call_begun":{"holder":"a","call":"call0","run":"run_1735460684_aaaaa1"}}]
    [{"wait_begun":{"holder":"a","run":"run_1735460684_aaaaa1"}}]
    [{"wait_begun":{"holder":"b","run":"run_1735460684_aaaaa1"}}]
    [{"wait_ended":{"holder":"a","run":"run_1735460684_aaaaa1"}}]
    refused: other calls wait for run_1735460684_aaaaa1 (1)
    [{"wait_ended":{"holder":"b","run":"run_1735460684_aaaaa1"}}]
    [{"cancelling_started":{"holder":"a","run":"run_1735460684_aaaaa1"}}]
    refused: run_1735460684_aaaaa1 is being cancelled
    refused: run_1735460684_aaaaa1 is being cancelled
    [{"cancelling_stopped":{"run":"run_1735460684_aaaaa1"}}]
    [{"wait_begun":{"holder":"b","run":"run_1735460684_aaaaa1"}}]
    "#);
}

#[test]
fn refusals_name_the_limit_and_the_holder() {
    let reserve = |of, dollars| RegistryCommand::ReserveAllowance {
        holder: holder("a"),
        run: run(of),
        amount: usd(dollars),
        limit: usd(5),
    };
    let claim = |by: &str| RegistryCommand::ClaimStory { holder: holder(by), story: story(1) };
    insta::assert_snapshot!(check([
        admit("a", '1', None),
        admit("a", '2', None),
        reserve('1', 3),
        reserve('2', 3),
        RegistryCommand::SettleAllowance { run: run('1'), spent: usd(1) },
        reserve('2', 4),
        reserve('3', 1),
        reserve('3', 0),
        claim("a"),
        claim("b"),
        claim("nobody"),
        RegistryCommand::GiveConsent { digest: "../../etc/passwd".to_owned() },
    ]), @r#"
    [{"run_admitted":{"holder":"a","run":"run_1735460684_aaaaa1","tree":"/work/tree0"}}]
    refused: QUEUE_FULL: 1 runs of this tree that clients began are alive, those that wait for approval included, limit 1
    [{"allowance_reserved":{"holder":"a","run":"run_1735460684_aaaaa1","day":20000,"amount":3.0}}]
    refused: the call may spend $3.00, but only $2.00 is left of today's $5.00 for calls without approval
    [{"allowance_settled":{"run":"run_1735460684_aaaaa1","spent":1.0}}]
    [{"allowance_reserved":{"holder":"a","run":"run_1735460684_aaaaa2","day":20000,"amount":4.0}}]
    refused: the call may spend $1.00, but nothing is left of today's $5.00 for calls without approval
    [{"allowance_reserved":{"holder":"a","run":"run_1735460684_aaaaa3","day":20000,"amount":0.0}}]
    [{"story_claimed":{"holder":"a","story":{"prd":"/work/prd.json","id":"S-1"}}}]
    refused: process 41 works on it
    refused: process `nobody` holds no lock that the registry knows
    refused: `../../etc/passwd` is not a SHA-256 digest
    "#);
}

#[test]
fn a_crashed_process_leaves_its_worst_case_spent_for_that_day() {
    let mut registry = Registry::default();
    let mut submit = |wall_ms, command| {
        let events = registry.decide(wall_ms, command).unwrap();
        events.iter().for_each(|event| registry.evolve(wall_ms, event));
        (registry.spent_unasked(START), registry.spent_unasked(START + DAY_MS))
    };
    submit(START, RegistryCommand::Join { holder: holder("a"), pid: 1 });
    let (holder, limit) = (holder("a"), usd(5));
    let reserve = RegistryCommand::ReserveAllowance {
        holder: holder.clone(),
        run: run('1'),
        amount: usd(3),
        limit,
    };
    assert_eq!(submit(START, reserve), (usd(3), Usd::ZERO));
    assert_eq!(submit(START, RegistryCommand::HolderGone { holder }), (usd(3), Usd::ZERO));
}

fn record(registry: &mut Registry, group: SampleGroup) {
    let command = RegistryCommand::RecordSamples { groups: vec![group] };
    for event in registry.decide(START, command).unwrap() {
        registry.evolve(START, &event);
    }
}

#[test]
fn of_each_key_the_latest_200_samples_are_kept() {
    let mut registry = Registry::default();
    record(&mut registry, sampled("a", 0..150));
    record(&mut registry, sampled("a", 150..350));
    record(&mut registry, sampled("b", 0..1_000));
    let kept = |model: &str| registry.samples(&sampled(model, 0..0).key);
    assert_eq!(kept("a"), &sampled("a", 150..350).samples);
    assert_eq!(kept("b"), &sampled("b", 1_000 - KEPT_SAMPLES as u64..1_000).samples);
    assert_eq!(kept("c"), []);
}

#[test]
fn keys_that_are_no_longer_used_are_dropped_first() {
    let mut registry = Registry::default();
    for round in 0..10 {
        record(&mut registry, sampled("often", 0..1));
        for model in 0..30 {
            record(&mut registry, sampled(&format!("{round}.{model}"), 0..1));
        }
    }
    let count = |model: &str| registry.samples(&sampled(model, 0..0).key).len();
    assert_eq!((count("often"), count("9.29"), count("0.0")), (10, 1, 0));
    // However many samples a key has, they stay below a total.
    for model in 0..300 {
        record(&mut registry, sampled(&format!("{model}"), 0..200));
    }
    let all: usize =
        (0..300).map(|model| registry.samples(&sampled(&model.to_string(), 0..0).key).len()).sum();
    assert_eq!(all, 4_000);
    assert!(serde_json::to_string(&registry.checkpoint()).unwrap().len() < 100_000);
}

#[test]
fn a_checkpoint_of_an_earlier_version_has_no_samples() {
    let mut registry = Registry::default();
    record(&mut registry, sampled("a", 0..3));
    let text = r#"{"checkpoint":{"state":{"consents":["ab"]}}}"#;
    registry.evolve(START, &serde_json::from_str(text).unwrap());
    assert_eq!(registry.samples(&sampled("a", 0..0).key), []);
    assert!(registry.has_consent("ab"));
}

#[test]
fn a_run_without_samples_records_nothing() {
    let registry = Registry::default();
    for groups in [vec![], vec![sampled("a", 0..0)], vec![sampled(&"m".repeat(201), 0..1)]] {
        let events = registry.decide(START, RegistryCommand::RecordSamples { groups }).unwrap();
        assert_eq!(events, []);
    }
}

#[test]
fn a_sample_is_three_numbers() {
    let mut group = sampled("acme/large", 7..8);
    group.samples.push(DelegationSample::new(1, None, 2));
    let text = serde_json::to_string(&group).unwrap();
    assert_eq!(
        text,
        r#"{"key":{"preset":"scout","model":"acme/large"},"samples":[[7,1000000,2000],[1,null,2]]}"#
    );
    assert_eq!(serde_json::from_str::<SampleGroup>(&text).unwrap(), group);
}
