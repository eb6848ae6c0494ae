//! Properties of every history: random policies, tasks, replies, failures and clocks.
//!
//! A history is a list of steps that name their targets by number, so that it shrinks well. The
//! simulator checks the books and the shape of the tree after every batch; here is the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use adjutant_core::budget::BudgetAmount;
use adjutant_core::policy::{ContractKind, CycleKey, Operation};
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::workspace::KeptWork;
use adjutant_core::{
    AddedMessageReason, Command, Conversation, DelegationState, Effect, Event, Message,
    ModelErrorKind, Outcome, Policy, ResumeOptions, Rights, SessionId, SlashCommandAssignment,
    Timestamp, ToolOutput, Tree, Usd,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::handovers::hand_over;
use crate::histories::{Step, histories, policies, steps};
use crate::restarts::{check_prefixes, check_restart};
use crate::sim::Sim;

pub(crate) const GOOD: &str =
    r#"{"status":"completed","summary":"It is done. All of it.","artifacts":[],"errors":[]}"#;

pub(crate) fn pick(sessions: Vec<SessionId>, which: Index) -> Option<SessionId> {
    (!sessions.is_empty()).then(|| *which.get(&sessions))
}

pub(crate) fn sessions(sim: &Sim, wanted: impl Fn(&adjutant_core::Node) -> bool) -> Vec<SessionId> {
    sim.tree.nodes().filter(|node| wanted(node)).map(|node| node.session).collect()
}

/// Returns the questions that were asked, answered or not.
pub(crate) fn questions(sim: &Sim) -> Vec<String> {
    sim.effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::AskApproval { hash, .. } => Some(hash.clone()),
            _ => None,
        })
        .collect()
}

pub(crate) fn perform(sim: &mut Sim, step: Step) {
    let all = |_: &adjutant_core::Node| true;
    let open = |node: &adjutant_core::Node| node.reservation().is_some();
    // A random step without a target does nothing; it is not a failure.
    match step {
        Step::Delegate { parent, briefs, concurrency } => {
            // Mostly a working agent, otherwise hardly any history gets deep.
            let at_work = |node: &adjutant_core::Node| node.state() == DelegationState::Running;
            let anyone = parent.index(16) == 0;
            let parents = sessions(sim, |node| anyone || at_work(node));
            if let Some(parent) = pick(parents, parent) {
                let _ = sim.ask(parent, briefs, concurrency);
            }
        }
        Step::Answer { who, reply } => {
            if let Some(session) = pick(sessions(sim, open), who) {
                sim.reply(session, reply);
            }
        }
        Step::Fail { who, error } => {
            if let Some(session) = pick(sessions(sim, open), who) {
                sim.fail(session, error);
            }
        }
        Step::Output { who, call, output } => {
            if let Some(session) = pick(sessions(sim, all), who) {
                let turn = sim.node(session).turn;
                sim.submit(Command::TakeOutput { session, turn, call, output }).unwrap();
            }
        }
        Step::Conclude { who, good } => {
            if let Some(session) = pick(sessions(sim, all), who) {
                conclude(sim, session, good);
            }
        }
        Step::Mark { which, made } => {
            let due: Vec<Effect> = sim.tree.due_marks().collect();
            if !due.is_empty() {
                mark(sim, which.get(&due).clone(), made);
            }
        }
        Step::HandOver { diff_bytes } => drop(hand_over(sim, diff_bytes)),
        Step::Progress { who } => {
            if let Some(session) = pick(sessions(sim, all), who) {
                sim.submit(Command::Progress { session, bytes: 1 }).unwrap();
                let pause = Command::Pause { session, provider: "p".into(), ms: 700 };
                sim.submit(pause).unwrap();
            }
        }
        Step::Decide { which, yes } => {
            let is_open = |hash: &String| {
                sim.tree.decide(sim.now, Command::Approve { hash: hash.clone() }).is_ok()
            };
            let anything = which.index(16) == 0;
            let asked: Vec<String> =
                questions(sim).into_iter().filter(|hash| anything || is_open(hash)).collect();
            if !asked.is_empty() {
                let hash = which.get(&asked).clone();
                let mills = which.index(60);
                let _ = sim.submit(if yes && mills > 30 {
                    let amount = Usd::from_dollars(mills as f64 / 1_000.0).unwrap();
                    Command::ApproveUpTo { hash, amount }
                } else if yes {
                    Command::Approve { hash }
                } else {
                    Command::Deny { hash, reason: "no".into() }
                });
            }
        }
        Step::Host { which, yes } => {
            let host = ["a.example", "b.example"][which].to_owned();
            let no = "no".to_owned();
            sim.submit(if yes {
                Command::AllowDomain { host }
            } else {
                Command::DenyDomain { host, reason: no }
            })
            .unwrap();
        }
        Step::Tell { who, bytes } => {
            if let Some(session) = pick(sessions(sim, all), who) {
                let _ = sim.submit(Command::Tell { session, text: "x".repeat(bytes) });
            }
        }
        Step::Cancel { who } => {
            if let Some(session) = pick(sessions(sim, |node| node.depth > 0), who) {
                let _ = sim.submit(Command::Cancel { session });
            }
        }
        Step::Crash { who } => {
            if let Some(session) = pick(sessions(sim, |node| node.depth > 0), who) {
                let (message, backtrace) = ("boom".into(), String::new());
                sim.submit(Command::Crash { session, message, backtrace }).unwrap();
            }
        }
        Step::Stray { who, turn, attempt } => {
            if let Some(session) = pick(sessions(sim, all), who) {
                let is_open = |node: &adjutant_core::Node| {
                    node.reservation().is_some_and(|it| (it.turn, it.attempt) == (turn, attempt))
                };
                if !is_open(sim.node(session)) {
                    let reply = crate::sim::says("late");
                    let before = format!("{:?}", sim.tree);
                    sim.submit(Command::Reply { session, turn, attempt, reply }).unwrap();
                    assert_eq!(format!("{:?}", sim.tree), before, "a late reply changed something");
                }
            }
        }
        Step::Wait { millis } => tick(sim, sim.now.plus_millis(millis)),
        Step::Next => {
            if let Some((at, _)) = sim.tree.next_deadline() {
                tick(sim, at);
            }
        }
    }
}

fn conclude(sim: &mut Sim, session: SessionId, good: bool) {
    let text = if good { GOOD } else { "It is done." };
    let asked = sim.effects.iter().rev().find_map(|effect| match effect {
        Effect::Verify { session: of, returned } if *of == session => Some(returned.as_ref()),
        _ => None,
    });
    let call = asked.flatten().map(|(number, _)| *number);
    let (text, artifacts) = (text.to_owned(), Vec::new());
    sim.submit(Command::Conclude { session, call, text, artifacts, changed: None }).unwrap();
}

/// Performs all due task list updates, handovers and commits of work; returns whether there were any.
pub(crate) fn make_marks(sim: &mut Sim) -> bool {
    let due: Vec<Effect> = sim.tree.due_marks().collect();
    let keeps: Vec<Effect> = sim.tree.due_keeps().collect();
    let any = hand_over(sim, 30) || !due.is_empty() || !keeps.is_empty();
    due.into_iter().for_each(|due| mark(sim, due, true));
    for keep in keeps {
        let Effect::CommitWork { session, .. } = keep else { panic!("{keep:?}") };
        sim.submit(Command::TakeKeptWork { session, kept: Ok(KeptWork::default()) }).unwrap();
    }
    any
}

fn mark(sim: &mut Sim, effect: Effect, made: bool) {
    let Effect::UpdateTaskList { session, mark } = effect else { panic!("{effect:?}") };
    let problem = (!made).then(|| "the list is locked".to_owned());
    sim.submit(Command::TakeListUpdate { session, mark, problem }).unwrap();
}

/// (h) After a tick nothing is due any more: a runtime that sleeps until the next deadline sleeps.
pub(crate) fn tick(sim: &mut Sim, at: Timestamp) {
    sim.tick_at_ms(at.as_millis());
    if let Some((next, why)) = sim.tree.next_deadline() {
        assert!(next > sim.now, "{why:?} at {next:?} is still due at {:?}", sim.now);
    }
}

/// Answers everything that is open until the run is over, as a patient world would.
pub(crate) fn complete(sim: &mut Sim) {
    for _ in 0..2_000 {
        if sim.tree.outcome().is_some() {
            return;
        }
        if let Some(hash) = questions(sim)
            .into_iter()
            .find(|hash| sim.tree.decide(sim.now, Command::Approve { hash: hash.clone() }).is_ok())
        {
            sim.submit(Command::Approve { hash }).unwrap();
            continue;
        }
        if make_marks(sim) {
            continue;
        }
        let running =
            sessions(sim, |node| node.state() == DelegationState::Running && node.depth > 0);
        if running.is_empty() && !sim.tree.has_live_delegations() {
            // Nothing was ever delegated, or all of it ended while the root was still asked about.
            sim.cancel(sim.root());
            continue;
        }
        let before = sim.log.len();
        for session in running {
            if !sim.node(session).is_live() {
                continue;
            }
            if sim.node(session).reservation().is_some() {
                sim.say(session, "the report");
            }
            for call in 0..4 {
                if sim.node(session).is_live() {
                    let turn = sim.node(session).turn;
                    let output = ToolOutput::default();
                    let command = Command::TakeOutput { session, turn, call, output };
                    let events = sim.tree.decide(sim.now, command.clone()).unwrap();
                    if events.iter().any(|event| !matches!(event, Event::Late { .. })) {
                        sim.submit(command).unwrap();
                    }
                }
            }
            conclude(sim, session, true);
        }
        if sim.log.len() == before {
            let (at, _) = sim.tree.next_deadline().expect("nobody works and nothing is due");
            tick(sim, at);
        }
    }
    panic!("the run does not end: {:?}", sim.tree);
}

fn play(policy: Policy, history: Vec<Step>) -> Sim {
    let is_standard = policy.contract == ContractKind::Standard;
    let mut sim = Sim::new(policy);
    if is_standard {
        let work = SlashCommandAssignment::new("research", Operation::Research);
        sim.submit(Command::Assign(Box::new(SlashCommandAssignment { tasks: vec![1], ..work })))
            .unwrap();
    }
    for step in history {
        // A run without live delegations is over; further steps would be refused.
        if sim.tree.outcome().is_some() {
            break;
        }
        perform(&mut sim, step);
        check_paths(&sim);
    }
    sim
}

/// (b) Under `cycle_key` agent no name is on a path twice; under the others no task is.
fn check_paths(sim: &Sim) {
    if sim.tree.policy().cycle_key != CycleKey::Agent {
        return;
    }
    for node in sim.tree.nodes() {
        let names: Vec<String> =
            sim.chain(node.session).map(|above| sim.node(above).agent.to_string()).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}

/// What is followed of one agent's conversation.
#[derive(Default)]
struct Talk<'a> {
    shown: Conversation,
    /// The calls of the last answer that its model sees as made and that lack their results.
    open: BTreeSet<u32>,
    mailbox: VecDeque<&'a str>,
    told: bool,
}

/// (j) Nothing is put between a tool call and its results, and messages of the user are delivered in order,
/// at most once, with the call that carries it.
pub(crate) fn check_told(log: &[(Timestamp, Event)]) {
    let mut talks: BTreeMap<SessionId, Talk> = BTreeMap::new();
    for (_, event) in log {
        let Some(session) = event.session() else { continue };
        let talk = talks.entry(session).or_default();
        let is_turn = matches!(event, Event::Told { .. } | Event::Reserved { .. });
        assert!(!talk.told || is_turn, "{event:?} follows what a person said");
        talk.told = false;
        talk.shown.apply(event);
        match event {
            Event::Replied { .. } => {
                let results = |message: &&Message| matches!(message, Message::Tool { .. });
                let made = talk.shown.messages().iter().rev().take_while(results).count();
                talk.open = (0..).take(made).collect();
            }
            Event::ToolReturned { call, .. } | Event::ToolRefused { call, .. } => {
                assert!(talk.open.remove(call), "{event:?} answers no open call");
            }
            Event::Reopened(again) if again.afresh => talk.open.clear(),
            // Resuming answers the calls that were open at the end, started or not.
            Event::Reopened(again) => {
                let looked = again.looked.iter().map(|(call, _)| call);
                for call in again.unanswered.iter().chain(looked) {
                    assert!(talk.open.remove(call), "{event:?} answers no open call");
                }
            }
            Event::Messaged { text, .. } => talk.mailbox.push_back(text),
            Event::Told { nudge, text, .. } => {
                assert!(talk.open.is_empty(), "told while {:?} lack their results", talk.open);
                if *nudge == AddedMessageReason::Person {
                    assert!(text.contains(talk.mailbox.pop_front().unwrap()));
                    talk.told = true;
                }
            }
            _ => {}
        }
    }
}

/// Everything a tree knows, private parts included.
pub(crate) fn observed(tree: &Tree) -> String {
    format!("{tree:?}")
}

pub(crate) fn settled(log: &[(Timestamp, Event)]) -> BudgetAmount {
    log.iter()
        .filter_map(|(_, event)| match event {
            Event::Replied { settlement, .. }
            | Event::AttemptFailed { settlement, .. }
            | Event::Settled { settlement, .. }
            | Event::WorkerCallSettled { settlement, .. } => Some(settlement.amount()),
            _ => None,
        })
        .fold(BudgetAmount::default(), BudgetAmount::plus)
}

proptest! {
    // `PROPTEST_CASES` can only ask for more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(256),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    /// (a), (b), (c), (d), (g), (h): the simulator looks at every step, this at the end.
    #[test]
    fn every_history_keeps_the_limits_and_every_delegation_ends_once(
        policy in policies(),
        history in histories(),
    ) {
        let mut sim = play(policy, history);
        complete(&mut sim);
        sim.check_over();
        check_told(&sim.log);
        let root = sim.node(sim.root());
        prop_assert_eq!(root.ledger.settled, settled(&sim.log));
    }

    /// (d) Cancelling the root ends everything at once, in every state of the run.
    #[test]
    fn cancelling_the_root_ends_everything(
        policy in policies(),
        history in histories(),
    ) {
        let mut sim = play(policy, history);
        // It may have ended, and only marks be left to make.
        if sim.node(sim.root()).is_live() {
            sim.cancel(sim.root());
        }
        while make_marks(&mut sim) {}
        sim.check_over();
    }

    /// (e) Folding the journal gives the very same tree, also through its bytes.
    #[test]
    fn replaying_the_events_gives_the_same_tree(
        policy in policies(),
        history in histories(),
    ) {
        let sim = play(policy, history);
        prop_assert_eq!(observed(&Sim::replay(&sim.log).tree), observed(&sim.tree));
        let bytes: Vec<String> =
            sim.log.iter().map(|(_, event)| serde_json::to_string(event).unwrap()).collect();
        let read: Vec<(Timestamp, Event)> = sim
            .log
            .iter()
            .zip(&bytes)
            .map(|((at, _), text)| (*at, serde_json::from_str(text).unwrap()))
            .collect();
        prop_assert_eq!(&read, &sim.log);
        prop_assert_eq!(observed(&Sim::replay(&read).tree), observed(&sim.tree));
    }

    /// (f) Whatever was written last, the rest can be ended.
    #[test]
    fn any_prefix_of_the_events_recovers(
        policy in policies(),
        history in histories(),
        cut in any::<Index>(),
    ) {
        let sim = play(policy, history);
        let cut = 1 + cut.index(sim.log.len());
        let mut sim = Sim::replay(&sim.log[..cut]);
        if sim.node(sim.root()).is_live() {
            sim.cancel(sim.root());
        } else if sim.tree.outcome().is_none() {
            sim.submit(Command::EndRun).unwrap();
        }
        while make_marks(&mut sim) {}
        sim.check_over();
    }

    /// (j) After any prefix of the journal the run can be resumed, repeatedly, and ends; nothing that
    /// was spent is forgotten.
    #[test]
    fn any_prefix_of_the_events_can_be_resumed(
        policy in policies(),
        history in histories(),
        cut in any::<Index>(),
        more in vec(steps(), 0..20),
        again in any::<bool>(),
        budgets in option::of((option::of(1..20_000_u64), option::of(1..20_000_u64))),
    ) {
        let sim = play(policy, history);
        let mut sim = Sim::replay(&sim.log[..*cut.get(&sim.decisions)]);
        let spent = sim.node(sim.root()).ledger.settled;
        let limits = budgets.map(|(budget_tokens_run, budget_tokens)| {
            Box::new(Policy { budget_tokens_run, budget_tokens, ..sim.tree.policy().clone() })
        });
        let rights = Rights::of(sim.tree.policy());
        let wish = ResumeOptions { rights, limits, ..ResumeOptions::default() };
        sim.restart(wish.clone());
        for step in more {
            if sim.tree.outcome().is_some() {
                break;
            }
            perform(&mut sim, step);
        }
        if again {
            sim.restart(wish);
        }
        complete(&mut sim);
        sim.check_over();
        let root = sim.node(sim.root());
        prop_assert_eq!(root.ledger.settled, settled(&sim.log));
        prop_assert!(root.ledger.settled.tokens >= spent.tokens);
        prop_assert_eq!(observed(&Sim::replay(&sim.log).tree), observed(&sim.tree));
    }

    /// (l) Wherever the process dies, resuming starts again what was under way, save what must not be repeated.
    #[test]
    fn a_resumed_run_starts_the_effects_that_ran_at_the_crash(
        policy in policies(),
        history in histories(),
        cut in any::<Index>(),
    ) {
        let sim = play(policy, history);
        let sim = Sim::replay(&sim.log[..*cut.get(&sim.decisions)]);
        check_restart(sim);
    }

    /// (m) After any prefix of the journal, the due effects of a reader are those the writer had in flight, each once.
    #[test]
    fn the_due_effects_after_any_prefix_are_those_in_flight(
        policy in policies(),
        history in histories(),
        again in any::<bool>(),
    ) {
        let mut sim = play(policy, history);
        if again && sim.tree.outcome().is_none() {
            let rights = Rights::of(sim.tree.policy());
            sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        }
        complete(&mut sim);
        check_prefixes(&sim);
    }

    /// (k) Unfinished work can be resumed and ends again; completed work stays.
    #[test]
    fn unfinished_work_can_be_resumed(
        policy in policies(),
        history in histories(),
        who in any::<Index>(),
        say in any::<bool>(),
        named in any::<bool>(),
    ) {
        let mut sim = play(policy, history);
        if sim.node(sim.root()).is_live() {
            sim.cancel(sim.root());
        }
        while make_marks(&mut sim) {}
        let done = sessions(&sim, |node| node.state() == DelegationState::Ended(Outcome::Completed));
        let session = pick(sessions(&sim, |node| node.depth > 0), who).filter(|_| named);
        let events = sim.restart(ResumeOptions {
            rights: Rights::of(sim.tree.policy()),
            session,
            say: say.then(|| "go on".to_owned()),
            ..ResumeOptions::default()
        });
        if events.is_empty() {
            return Ok(());
        }
        complete(&mut sim);
        sim.check_over();
        for session in done {
            let asked = say && named;
            prop_assert!(asked || sim.reopenings(session) == 0, "{session} was done");
        }
        prop_assert_eq!(sim.node(sim.root()).ledger.settled, settled(&sim.log));
        prop_assert_eq!(observed(&Sim::replay(&sim.log).tree), observed(&sim.tree));
    }

    /// (i) A foreign or damaged journal is refused, event by event, and breaks nothing.
    #[test]
    fn no_list_of_events_makes_the_fold_panic(
        policy in policies(),
        history in histories(),
        order in vec(any::<Index>(), 0..200),
    ) {
        let sim = play(policy, history);
        let (mut tree, mut in_flight) = (Tree::default(), EffectsInFlight::default());
        // The beginning first, or hardly anything fits.
        let shuffled = order.iter().map(|index| index.get(&sim.log));
        for (at, event) in sim.log.iter().take(1).chain(shuffled) {
            if tree.evolve(*at, event).is_ok() {
                let _ = tree.react([event], &mut in_flight);
                let _ = tree.all_due();
            }
            let _ = tree.next_deadline();
        }
        let _ = tree.decide(Timestamp::from_millis(u64::MAX), Command::Tick);
    }

    /// What is kept after its content expired folds as well, into the same shape and cost.
    #[test]
    fn events_without_content_keep_ids_times_outcomes_and_amounts(
        policy in policies(),
        history in histories(),
    ) {
        let sim = play(policy, history);
        for (_, event) in &sim.log {
            let bare = event.without_content();
            prop_assert_eq!(bare.session(), event.session());
            prop_assert_eq!(bare.without_content(), bare);
        }
        let bare: Vec<(Timestamp, Event)> =
            sim.log.iter().map(|(at, event)| (*at, event.without_content())).collect();
        let again = Sim::replay(&bare);
        let shape = |sim: &Sim| -> Vec<String> {
            sim.tree
                .nodes()
                .map(|node| {
                    format!("{} {} {:?} {:?}", node.session, node.depth, node.state(), node.ledger)
                })
                .collect()
        };
        prop_assert_eq!(shape(&again), shape(&sim));
    }
}

/// Checks that the random histories of the properties contain every kind of event.
#[test]
fn random_histories_meet_every_kind_of_event() {
    let mut runner = TestRunner::deterministic();
    let mut met: BTreeSet<String> = BTreeSet::new();
    for _ in 0..150 {
        let policy = policies().new_tree(&mut runner).unwrap().current();
        let history = histories().new_tree(&mut runner).unwrap().current();
        let mut sim = play(policy, history);
        complete(&mut sim);
        for (_, event) in &sim.log {
            met.insert(serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned());
            if let Event::Granted(grant) = event {
                met.insert(format!("depth {}", grant.depth));
            }
            if let Event::Ended { reason: Some(reason), .. } = event {
                met.insert(reason.code.to_string());
            }
            // Histories have no such error of their own: these attempts stalled.
            if let Event::AttemptFailed { error, .. } = event
                && error.kind == ModelErrorKind::Idle
            {
                met.insert("stalled".to_owned());
            }
        }
    }
    // Agents are defined by front ends; a loop needs more patience than chance has.
    let met: Vec<&str> = met.iter().map(String::as_str).collect();
    insta::assert_snapshot!(met.join(" "), @"APPROVAL_DENIED BUDGET_EXCEEDED CANCELLED CONTEXT_EXHAUSTED INTERNAL PROVIDER_ERROR STATUS_SYNC_FAILED TIMEOUT approval_asked approved assigned attempt_failed auto_approved crashed denied depth 1 depth 2 depth 3 domain_allowed domain_asked domain_denied ended granted judged late marked messaged note_skipped overran paused progressed refused replied reserved run_ended run_started settled space_kept space_made stalled started told tool_called tool_refused tool_returned");
}
