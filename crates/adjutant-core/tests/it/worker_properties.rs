//! Properties of workers that make model calls at the same time: random caps, ends, crashes and cancellations.
//!
//! The simulator checks the ledgers after every decision and that each reservation is settled once.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::policy::ContractKind;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{
    Brief, CallRefusal, Command, DelegationState, Event, ModelErrorKind, ModelReply, ModelSpec,
    Node, Policy, ResumeOptions, Rights, SessionId, Timestamp, Tree, Usage, Usd, WorkerAction,
    WorkerCallEnd, WorkerCallRequest, WorkerSessionStart,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::properties::{GOOD, complete, make_marks, observed, pick, sessions, settled, tick};
use crate::restarts::{check_prefixes, check_restart};
use crate::sim::{Sim, brief, error, priced, says};
use crate::worker_calls::{WORKER_TOOLS, define, failed, terms, writing};

/// Two agents whose work is done by workers, and one of Adjutant's own.
const AGENTS: [&str; 3] = ["codex", "gemini", "own"];
/// The model of every task, a further one of the workers, and one that none may use.
const MODELS: [&str; 3] = ["script:test", "acme/small", "acme/huge"];

/// What happens next in the run.
#[derive(Clone, Debug)]
enum Act {
    Delegate {
        parent: Index,
        agent: usize,
        max_turns: Option<u32>,
    },
    /// A worker makes a model call.
    Call {
        who: Index,
        request: WorkerCallRequest,
    },
    /// One of the running calls ends, with this percentage of its reservation as usage, if any.
    Settle {
        which: Index,
        end: WorkerCallEnd,
        percent: Option<u64>,
        never_began: bool,
    },
    /// A call that is not running ends.
    Stray {
        who: Index,
        call: u32,
    },
    /// A worker says something or opens a session.
    Report {
        who: Index,
        opens: bool,
    },
    /// An agent answers its prompt.
    Answer {
        who: Index,
        good: bool,
    },
    /// A prompt fails.
    Fail {
        who: Index,
    },
    Cancel {
        who: Index,
    },
    /// The process dies and the run is resumed.
    Restart,
    Wait {
        millis: u64,
    },
}

fn requests() -> impl Strategy<Value = WorkerCallRequest> {
    let model = prop_oneof![8 => Just(0), 4 => Just(1), 1 => Just(2)];
    let output = option::of(prop_oneof![1..200_u64, 200..5_000_u64]);
    (model, 0..3_000_u64, output, prop::bool::weighted(0.05)).prop_map(
        |(model, input_bound, requested_output, has_problem)| WorkerCallRequest {
            model: MODELS[model].to_owned(),
            input_bound,
            requested_output,
            removed: Vec::new(),
            problem: has_problem.then(|| "web search is not available".to_owned()),
        },
    )
}

fn acts() -> impl Strategy<Value = Act> {
    let ends = prop_oneof![
        6 => Just(WorkerCallEnd::Complete),
        1 => Just(WorkerCallEnd::Cut),
        2 => Just(failed()),
        1 => Just(WorkerCallEnd::Abandoned),
    ];
    let percent = option::weighted(0.7, prop_oneof![4 => 0..=100_u64, 1 => 101..300_u64]);
    prop_oneof![
        3 => (any::<Index>(), 0..AGENTS.len(), option::of(1..6_u32))
            .prop_map(|(parent, agent, max_turns)| Act::Delegate { parent, agent, max_turns }),
        12 => (any::<Index>(), requests()).prop_map(|(who, request)| Act::Call { who, request }),
        9 => (any::<Index>(), ends, percent, any::<bool>()).prop_map(
            |(which, end, percent, never_began)| Act::Settle { which, end, percent, never_began }
        ),
        1 => (any::<Index>(), 0..9_u32).prop_map(|(who, call)| Act::Stray { who, call }),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(who, opens)| Act::Report { who, opens }),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(who, good)| Act::Answer { who, good }),
        1 => any::<Index>().prop_map(|who| Act::Fail { who }),
        1 => any::<Index>().prop_map(|who| Act::Cancel { who }),
        1 => Just(Act::Restart),
        1 => (0..20_000_u64).prop_map(|millis| Act::Wait { millis }),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let tokens = (option::of(500..20_000_u64), option::of(1_000..40_000_u64), 50..2_000_u64);
    let other = (option::of(1..400_u64), option::of(5..60_u64), 1..4_u64, any::<bool>());
    (tokens, other).prop_map(
        |((each, run, max_output_tokens), (mills, stall_s, places, standard))| {
            let contract = if standard { ContractKind::Standard } else { ContractKind::Report };
            Policy {
                budget_tokens: each,
                budget_tokens_run: run,
                budget_usd: mills.and_then(|mills| Usd::from_dollars(mills as f64 / 1_000.0)),
                max_output_tokens,
                stall_s,
                concurrency: places,
                contract,
                ..writing(&["max_depth=3"])
            }
        },
    )
}

fn play(policy: Policy, acts: Vec<Act>) -> Sim {
    let mut sim = Sim::new(policy);
    for agent in AGENTS {
        let worker = (agent != "own").then(|| terms(agent));
        let tools = ["Delegate", "Read"].into_iter().chain(WORKER_TOOLS).collect::<Vec<_>>();
        define(&mut sim, agent, &tools, worker);
    }
    for act in acts {
        if sim.tree.outcome().is_some() {
            break;
        }
        perform(&mut sim, act);
    }
    sim
}

fn perform(sim: &mut Sim, act: Act) {
    let is_open = |node: &Node| node.reservation().is_some();
    let is_worker = |node: &Node| node.worker().is_some();
    match act {
        Act::Delegate { parent, agent, max_turns } => {
            let running = sessions(sim, |node| node.state() == DelegationState::Running);
            if let Some(parent) = pick(running, parent) {
                let prompt = format!("task {}", sim.log.len());
                let model = if agent == 1 { ModelSpec { ..priced() } } else { crate::sim::model() };
                let task = Brief {
                    model: Some(model),
                    max_turns,
                    estimate_tokens: Some(0),
                    ..brief("x", AGENTS[agent], &prompt)
                };
                let _ = sim.ask(parent, vec![task], None);
            }
        }
        Act::Call { who, request } => {
            // Mostly one with an open prompt; the others get no event.
            let anyone = who.index(16) == 0;
            let callers = sessions(sim, |node| is_worker(node) && (anyone || is_open(node)));
            if let Some(session) = pick(callers, who) {
                let has_prompt = is_open(sim.node(session));
                let events = sim.submit(Command::AdmitCall { session, request }).unwrap();
                assert_eq!(events.is_empty(), !has_prompt, "{events:?}");
            }
        }
        Act::Settle { which, end, percent, never_began } => {
            let open: Vec<(SessionId, u32)> = sim.worker_calls.keys().copied().collect();
            if open.is_empty() {
                return;
            }
            let (session, call) = *which.get(&open);
            let reserved = sim.worker_calls[&(session, call)].tokens;
            let usage = percent.map(|percent| {
                let (_, max_output) = sim.node(session).worker_call(call).unwrap();
                let output = max_output * percent / 100;
                let input = (reserved - max_output) * percent / 100;
                Usage { input, output, ..Usage::default() }
            });
            sim.submit(Command::SettleCall { session, call, end, usage, never_began }).unwrap();
        }
        Act::Stray { who, call } => {
            if let Some(session) = pick(sessions(sim, is_worker), who)
                && !sim.worker_calls.contains_key(&(session, call))
            {
                let before = observed(&sim.tree);
                let end = WorkerCallEnd::Complete;
                let usage = Some(Usage { input: 9, ..Usage::default() });
                let stray = Command::SettleCall { session, call, end, usage, never_began: false };
                sim.submit(stray).unwrap();
                assert_eq!(observed(&sim.tree), before, "a late settlement changed something");
            }
        }
        Act::Report { who, opens } => {
            if let Some(session) = pick(sessions(sim, is_worker), who) {
                let (id, start) = ("abc".to_owned(), WorkerSessionStart::New);
                let action = WorkerAction::Said { text: "I look.".into() };
                sim.submit(if opens {
                    Command::TakeWorkerSession { session, id, start }
                } else {
                    Command::TakeWorkerAction { session, action }
                })
                .unwrap();
            }
        }
        Act::Answer { who, good } => {
            if let Some(session) = pick(sessions(sim, is_open), who) {
                answer(sim, session, good);
            }
        }
        Act::Fail { who } => {
            if let Some(session) = pick(sessions(sim, is_open), who) {
                let kinds = [ModelErrorKind::WorkerFailed, ModelErrorKind::ContextExhausted];
                sim.fail(session, error(kinds[who.index(2)]));
            }
        }
        Act::Cancel { who } => {
            if let Some(session) = pick(sessions(sim, |node| node.depth > 0), who) {
                let _ = sim.submit(Command::Cancel { session });
            }
        }
        Act::Restart => {
            let rights = Rights::of(sim.tree.policy());
            sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        }
        Act::Wait { millis } => tick(sim, sim.now.plus_millis(millis)),
    }
}

/// Answers the open prompt of an agent; the answer is judged at once.
fn answer(sim: &mut Sim, session: SessionId, good: bool) {
    let text = if good { GOOD } else { "It is done." };
    // What a prompt to a worker used is settled call by call.
    let usage = if sim.node(session).worker().is_some() { None } else { says("").usage };
    sim.reply(session, ModelReply { usage, ..says(text) });
    let (text, artifacts) = (text.to_owned(), Vec::new());
    sim.submit(Command::Conclude { session, call: None, text, artifacts, changed: None }).unwrap();
}

/// Checks that no worker is completed whose last turn lacks an answered model call, or had one refused for its budget.
fn check_outcomes(log: &[(Timestamp, Event)]) {
    let mut turns: BTreeMap<SessionId, (bool, bool)> = BTreeMap::new();
    let mut workers = BTreeSet::new();
    for (_, event) in log {
        let Some(session) = event.session() else { continue };
        let turn = turns.entry(session).or_default();
        match event {
            Event::Granted(grant) if grant.brief.agent.as_str() != "own" => {
                workers.insert(session);
            }
            Event::Reserved { .. } => *turn = (false, false),
            Event::WorkerCallSettled { end: WorkerCallEnd::Complete, .. } => turn.0 = true,
            Event::WorkerCallRefused { refusal: CallRefusal::Budget, .. } => turn.1 = true,
            Event::Ended { outcome: adjutant_core::Outcome::Completed, .. }
                if workers.contains(&session) =>
            {
                assert_eq!(*turn, (true, false), "{session} is completed");
            }
            _ => {}
        }
    }
}

/// Counts the model calls of each delegation, and checks that no definition's limit is passed.
fn check_limits(sim: &Sim) {
    let mut calls: BTreeMap<SessionId, u32> = BTreeMap::new();
    let mut limits: BTreeMap<SessionId, u32> = BTreeMap::new();
    for (_, event) in &sim.log {
        match event {
            Event::Granted(grant) => {
                limits.extend(grant.brief.max_turns.map(|max| (grant.session, max)));
            }
            Event::WorkerCallReserved { session, call, .. } => {
                let before = calls.insert(*session, *call).unwrap_or_default();
                assert_eq!(*call, before + 1, "calls are numbered without gaps");
            }
            _ => {}
        }
    }
    for (session, max) in limits {
        let made = calls.get(&session).copied().unwrap_or_default();
        let legs = 1 + sim.reopenings(session) as u32;
        assert!(made <= max * legs, "{session} made {made} of {max} calls, {legs} times begun");
    }
}

fn check_all(sim: &Sim) {
    sim.check_over();
    check_outcomes(&sim.log);
    check_limits(sim);
    assert_eq!(sim.node(sim.root()).ledger.settled, settled(&sim.log));
    assert_eq!(observed(&Sim::replay(&sim.log).tree), observed(&sim.tree));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(256),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_scope_of_workers_keeps_its_cap_and_every_call_is_settled_once(
        policy in policies(),
        acts in vec(acts(), 0..80),
    ) {
        let mut sim = play(policy, acts);
        complete(&mut sim);
        check_all(&sim);
        check_prefixes(&sim);
    }

    #[test]
    fn any_prefix_of_a_run_with_workers_can_be_resumed(
        policy in policies(),
        acts in vec(acts(), 0..80),
        cut in any::<Index>(),
    ) {
        let sim = play(policy, acts);
        let mut sim = Sim::replay(&sim.log[..*cut.get(&sim.decisions)]);
        check_restart(Sim::replay(&sim.log));
        let rights = Rights::of(sim.tree.policy());
        sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        prop_assert!(sim.worker_calls.is_empty(), "a resume settles the calls of the dead process");
        complete(&mut sim);
        check_all(&sim);
    }

    #[test]
    fn cancelling_the_root_settles_every_call(
        policy in policies(),
        acts in vec(acts(), 0..80),
    ) {
        let mut sim = play(policy, acts);
        if sim.node(sim.root()).is_live() {
            sim.cancel(sim.root());
        }
        while make_marks(&mut sim) {}
        check_all(&sim);
    }

    #[test]
    fn shuffled_events_of_workers_do_not_make_the_fold_panic(
        policy in policies(),
        acts in vec(acts(), 0..40),
        order in vec(any::<Index>(), 0..200),
    ) {
        let sim = play(policy, acts);
        let (mut tree, mut in_flight) = (Tree::default(), EffectsInFlight::default());
        let shuffled = order.iter().map(|index| index.get(&sim.log));
        for (at, event) in sim.log.iter().take(4).chain(shuffled) {
            if tree.evolve(*at, event).is_ok() {
                let _ = tree.react([event], &mut in_flight);
                let _ = tree.all_due();
            }
        }
    }

    #[test]
    fn events_of_workers_without_content_keep_the_amounts(
        policy in policies(),
        acts in vec(acts(), 0..60),
    ) {
        let sim = play(policy, acts);
        let bare: Vec<(Timestamp, Event)> =
            sim.log.iter().map(|(at, event)| (*at, event.without_content())).collect();
        let again = Sim::replay(&bare);
        let ledgers = |sim: &Sim| -> Vec<String> {
            let line = |node: &Node| format!("{} {:?} {:?}", node.session, node.state(), node.ledger);
            sim.tree.nodes().map(line).collect()
        };
        prop_assert_eq!(ledgers(&again), ledgers(&sim));
    }
}

/// Checks that the random runs above contain every end and every refusal, at several calls at once.
#[test]
fn random_workers_meet_every_end_and_refusal() {
    let mut runner = TestRunner::deterministic();
    let (mut met, mut most_at_once) = (BTreeSet::new(), 0);
    for _ in 0..150 {
        let policy = policies().new_tree(&mut runner).unwrap().current();
        let acts = vec(acts(), 0..80).new_tree(&mut runner).unwrap().current();
        let (mut at_once, mut sim) = (0_i64, play(policy, acts));
        complete(&mut sim);
        for (_, event) in &sim.log {
            let value = serde_json::to_value(event).unwrap();
            let word = |name: &str| value[name].as_str().map(str::to_owned);
            match event {
                Event::WorkerCallReserved { .. } => at_once += 1,
                Event::WorkerCallRefused { .. } => met.extend(word("why")),
                Event::WorkerCallSettled { .. } => {
                    at_once -= 1;
                    met.extend(word("how"));
                }
                Event::Overran { .. } => drop(met.insert("overran".to_owned())),
                Event::Ended { outcome, .. } => drop(met.insert(outcome.word().to_uppercase())),
                _ => {}
            }
            most_at_once = most_at_once.max(at_once);
        }
    }
    let met: Vec<&str> = met.iter().map(String::as_str).collect();
    insta::assert_snapshot!(met.join(" "), @"CANCELLED COMPLETED FAILED PARTIAL REFUSED abandoned budget calls complete cut failed model overran request");
    assert!(most_at_once >= 4, "{most_at_once}");
}
