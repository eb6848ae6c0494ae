//! Properties of every history of a story: markers, merges and the verify command, with crashes in
//! between.
//!
//! Effects are answered in any order, also those that were answered before or lost in a crash: what
//! comes too late changes nothing, and what was done is not done again.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::schema::ReturnFormat;
use adjutant_core::story::{MarkedTask, StoryAssignment, VerifyResult};
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::verify::VerifyFacts;
use adjutant_core::workspace::{MergeConflict, MergedWork};
use adjutant_core::{
    AddedMessageReason, Brief, Command, DelegationOrigin, DelegationState, Effect, Event, Outcome,
    Policy, RequestedTask, ResumeOptions, Rights, SessionId, Timestamp, ToolOutput, Tree,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::histories::{Step, policies, steps};
use crate::properties::{
    GOOD, check_told, make_marks, observed, perform, pick, questions, sessions, settled, tick,
};
use crate::restarts::{check_prefixes, check_restart};
use crate::sim::{Sim, asks, brief, says, tool};

/// What an agent may write.
const TEXTS: [&str; 10] = [
    "[delegate:one:1]",
    "Parts:\n[delegate:two:2]\n[delegate:three:3]",
    "[delegate:one:1] and [delegate:bad]",
    "[delegate:bad]",
    "`[delegate:code:1]`\n\n> [delegate:quoted:1]",
    "[delegate:US-7:1]",
    "[delegate:US-7-DEL-001:1] [delegate:US-8:1]",
    "[delegate:a:1][delegate:b:1][delegate:c:1][delegate:d:1][delegate:e:1]",
    GOOD,
    "I think.",
];

#[derive(Clone, Debug)]
enum Act {
    /// What happens in any run.
    Any(Step),
    /// An agent answers with a text, or calls `Delegate`.
    Say { who: Index, text: usize },
    /// An effect is answered, whether or not it was before.
    Answer { which: Index, luck: u8 },
    /// The process dies and the run is resumed.
    Restart,
}

fn acts() -> impl Strategy<Value = Act> {
    let who = any::<Index>;
    prop_oneof![
        4 => steps().prop_map(Act::Any),
        6 => (who(), 0..=TEXTS.len()).prop_map(|(who, text)| Act::Say { who, text }),
        10 => (who(), any::<u8>()).prop_map(|(which, luck)| Act::Answer { which, luck }),
        1 => Just(Act::Restart),
    ]
}

fn stories() -> impl Strategy<Value = StoryAssignment> {
    (any::<bool>(), 0..3_usize, 0..3_u64).prop_map(|(verify, planned, numbered)| {
        let task = |nth: usize| MarkedTask {
            description: ["one", "two"][nth].to_owned(),
            hours: 1,
            verify: (nth == 0).then(|| "make one".into()),
        };
        StoryAssignment {
            id: "US-7".into(),
            title: "Log in".into(),
            verify: verify.then(|| "make".into()),
            numbered,
            plan: (0..planned).map(task).collect(),
            ..StoryAssignment::default()
        }
    })
}

fn wish(sim: &Sim) -> ResumeOptions {
    ResumeOptions { rights: Rights::of(sim.tree.policy()), ..ResumeOptions::default() }
}

fn marked(sim: &mut Sim, task: &MarkedTask) -> RequestedTask {
    let name = &task.description;
    sim.task(Brief {
        verify: task.verify.clone(),
        hours: Some(task.hours),
        story: (name == "US-8").then(|| name.clone()),
        estimate_tokens: Some(10),
        ..brief(&name[..name.len().min(8)], "worker", name)
    })
}

/// Returns the report of a runtime about an effect; `None` for effects that the simulator handles.
fn report(sim: &mut Sim, effect: &Effect, luck: u8) -> Option<Command> {
    let (session, text) = (effect_of(effect)?, "what came of it".to_owned());
    Some(match effect.clone() {
        Effect::Markers { turn, markers, .. } => {
            let tasks = markers.tasks.iter().map(|task| marked(sim, task)).collect();
            Command::DelegateMarkers { session, turn, tasks, rejected: markers.rejected }
        }
        Effect::ReturnResults { origin: DelegationOrigin { turn, index: None, .. }, .. } => {
            Command::TellResults { session, turn, text }
        }
        Effect::ReturnResults {
            origin: DelegationOrigin { turn, index: Some(call), .. }, ..
        }
        | Effect::Tool { turn, index: call, .. } => {
            let output = ToolOutput { content: text, ..ToolOutput::default() };
            Command::TakeOutput { session, turn, call, output }
        }
        Effect::Delegate { turn, index, .. } => {
            let origin =
                DelegationOrigin { turn, index: Some(index), form: ReturnFormat::Markdown };
            let tasks = vec![sim.task(brief("d", "worker", "by a tool"))];
            Command::Delegate { parent: session, tasks, concurrency: None, origin: Some(origin) }
        }
        Effect::Merge { .. } => {
            let clash =
                MergeConflict { path: "a".into(), what: "both changed it".into(), patch: None };
            let merged = match luck % 4 {
                0 => Ok(MergedWork { conflicts: vec![clash], ..MergedWork::default() }),
                1 => Err("the disk is full".to_owned()),
                _ => Ok(MergedWork { files: vec!["a".into()], ..MergedWork::default() }),
            };
            Command::TakeMerge { session, merged }
        }
        Effect::Check { .. } => {
            let check = [
                VerifyResult::Passed,
                VerifyResult::Failed,
                VerifyResult::Failed,
                VerifyResult::NotRun,
            ];
            Command::TakeCheck {
                session,
                check: check[usize::from(luck % 4)],
                text,
                facts: VerifyFacts::default(),
            }
        }
        Effect::Verify { returned, .. } => {
            let text = if luck.is_multiple_of(4) { "It is done." } else { GOOD }.to_owned();
            let call = returned.map(|(number, _)| number);
            Command::Conclude { session, call, text, artifacts: Vec::new(), changed: None }
        }
        _ => return None,
    })
}

fn effect_of(effect: &Effect) -> Option<SessionId> {
    match effect {
        Effect::Markers { session, .. }
        | Effect::ReturnResults { session, .. }
        | Effect::Tool { session, .. }
        | Effect::Delegate { session, .. }
        | Effect::Merge { session, .. }
        | Effect::Check { session, .. }
        | Effect::Verify { session, .. } => Some(*session),
        _ => None,
    }
}

fn act(sim: &mut Sim, act: Act) {
    match act {
        Act::Any(step) => perform(sim, step),
        Act::Say { who, text } => {
            let open = sessions(sim, |node| node.reservation().is_some());
            if let Some(session) = pick(open, who) {
                let reply = match TEXTS.get(text) {
                    Some(text) => says(text),
                    None => asks(vec![tool("d", "Delegate", serde_json::json!({}))]),
                };
                sim.reply(session, reply);
            }
        }
        Act::Answer { which, luck } => {
            let known = |effect: &&Effect| effect_of(effect).is_some();
            let asked: Vec<Effect> = sim.effects.iter().filter(known).cloned().collect();
            // Mostly one of the last: the others were answered.
            let asked = &asked[asked.len().saturating_sub(6)..];
            if !asked.is_empty()
                && let Some(command) = report(sim, which.get(asked), luck)
            {
                // An ended parent delegates nothing.
                let _ = sim.submit(command);
            }
        }
        Act::Restart => drop(sim.restart(wish(sim))),
    }
}

fn play(policy: Policy, story: StoryAssignment, history: Vec<Act>) -> Sim {
    let mut sim = Sim::led(policy, "story", "Do it.");
    sim.has_work = true;
    sim.submit(Command::TakeStory(Box::new(story))).unwrap();
    for step in history {
        if sim.tree.outcome().is_some() {
            break;
        }
        act(&mut sim, step);
    }
    sim
}

/// Answers every effect that is still needed; returns whether there was any.
fn answer_all(sim: &mut Sim) -> bool {
    let mut any = false;
    for effect in sim.effects.clone() {
        let Some(command) = report(sim, &effect, 2) else { continue };
        let is_new = |event: &Event| !matches!(event, Event::Late { .. });
        let decided = sim.tree.decide(sim.now, command.clone());
        if decided.is_ok_and(|events| events.iter().any(is_new)) {
            sim.submit(command).unwrap();
            any = true;
        }
    }
    any
}

/// Lets everything go well from here on.
fn complete(sim: &mut Sim) {
    for _ in 0..2_000 {
        if sim.tree.outcome().is_some() {
            return;
        }
        let is_open = |hash: &String| {
            sim.tree.decide(sim.now, Command::Approve { hash: hash.clone() }).is_ok()
        };
        if let Some(hash) = questions(sim).into_iter().find(is_open) {
            sim.submit(Command::Approve { hash }).unwrap();
            continue;
        }
        let mut any = make_marks(sim) | answer_all(sim);
        for session in sessions(sim, |node| node.reservation().is_some()) {
            if sim.node(session).reservation().is_some() {
                sim.say(session, GOOD);
                any = true;
            }
        }
        if !any {
            match sim.tree.next_deadline() {
                Some((at, _)) => tick(sim, at),
                None => drop(sim.cancel(sim.root())),
            }
        }
    }
    panic!("the story does not end: {:?}", sim.tree);
}

/// Nothing is done twice, whatever was asked for again after a crash.
fn check_once(log: &[(Timestamp, Event)]) {
    let mut read = BTreeSet::new();
    let mut open: BTreeMap<SessionId, i32> = BTreeMap::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut untold: BTreeMap<SessionId, i32> = BTreeMap::new();
    let mut merges: BTreeMap<SessionId, i32> = BTreeMap::new();
    for (_, event) in log {
        match event {
            Event::MarkersRead { session, turn, .. } => {
                assert!(read.insert((*session, *turn)), "read twice: {event:?}");
                *untold.entry(*session).or_default() += 1;
            }
            Event::Told { session, nudge: AddedMessageReason::Results, .. } => {
                let left = untold.entry(*session).or_default();
                *left -= 1;
                assert!(*left >= 0, "told twice: {event:?}");
            }
            Event::Checking { session, .. } => *open.entry(*session).or_default() += 1,
            Event::Checked { session, .. } => {
                let left = open.entry(*session).or_default();
                *left -= 1;
                assert!(*left >= 0, "checked twice: {event:?}");
            }
            Event::SpaceKept { session, .. } => *merges.entry(*session).or_default() = 1,
            Event::Merged { session, .. } => {
                let left = merges.entry(*session).or_default();
                *left -= 1;
                assert!(*left >= 0, "merged twice: {event:?}");
            }
            Event::Granted(grant) => {
                let name = grant.brief.story.as_deref().expect("a task of a story has a name");
                assert!(
                    name.starts_with("US-7-DEL-") && names.insert(name),
                    "{name} is used twice"
                );
            }
            _ => {}
        }
    }
}

/// A delegation with a verify command completes only if the command succeeds.
fn check_verified(log: &[(Timestamp, Event)]) {
    let mut judged: BTreeMap<SessionId, bool> = BTreeMap::new();
    let mut root = None;
    for (_, event) in log {
        match event {
            Event::RunStarted { run, .. } => root = Some(run.root_session()),
            Event::StoryTaken { story, .. } if story.verify.is_some() => {
                judged.insert(root.unwrap(), false);
            }
            Event::Granted(grant) if grant.brief.verify.is_some() => {
                judged.insert(grant.session, false);
            }
            Event::Checked { session, passed, .. } => drop(judged.insert(*session, *passed)),
            Event::Ended { session, outcome: Outcome::Completed, .. } => {
                assert_ne!(judged.get(session), Some(&false), "{session} completed unjudged");
            }
            _ => {}
        }
    }
}

fn check_over(sim: &Sim) {
    sim.check_over();
    check_told(&sim.log);
    check_once(&sim.log);
    check_verified(&sim.log);
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
    fn every_story_keeps_the_limits_ends_and_repeats_nothing(
        policy in policies(),
        story in stories(),
        history in vec(acts(), 0..100),
    ) {
        let mut sim = play(policy, story, history);
        complete(&mut sim);
        check_over(&sim);
        check_prefixes(&sim);
    }

    #[test]
    fn any_prefix_of_a_story_can_be_resumed_and_ends(
        policy in policies(),
        story in stories(),
        history in vec(acts(), 0..80),
        cut in any::<Index>(),
        more in vec(acts(), 0..20),
    ) {
        let sim = play(policy, story, history);
        // Before that there is no story.
        let is_taken = |(_, event): &(Timestamp, Event)| matches!(event, Event::StoryTaken { .. });
        let first = 1 + sim.log.iter().position(is_taken).unwrap();
        let mut sim = Sim::replay(&sim.log[..(*cut.get(&sim.decisions)).max(first)]);
        sim.has_work = true;
        sim.restart(wish(&sim));
        for step in more {
            if sim.tree.outcome().is_some() {
                break;
            }
            act(&mut sim, step);
        }
        complete(&mut sim);
        check_over(&sim);
    }

    #[test]
    fn a_resumed_story_starts_the_effects_that_ran_at_the_crash(
        policy in policies(),
        story in stories(),
        history in vec(acts(), 0..80),
        cut in any::<Index>(),
    ) {
        let sim = play(policy, story, history);
        check_restart(Sim::replay(&sim.log[..*cut.get(&sim.decisions)]));
    }

    #[test]
    fn a_story_survives_serialisation_and_cancelling_ends_it(
        policy in policies(),
        story in stories(),
        history in vec(acts(), 0..80),
        order in vec(any::<Index>(), 0..200),
    ) {
        let mut sim = play(policy, story, history);
        let mut read = Vec::new();
        for (at, event) in &sim.log {
            let text = serde_json::to_string(event).unwrap();
            read.push((*at, serde_json::from_str::<Event>(&text).unwrap()));
            prop_assert_eq!(event.without_content().without_content(), event.without_content());
        }
        prop_assert_eq!(&read, &sim.log);
        prop_assert_eq!(observed(&Sim::replay(&read).tree), observed(&sim.tree));
        // A damaged journal breaks nothing.
        let (mut tree, mut in_flight) = (Tree::default(), EffectsInFlight::default());
        for (at, event) in read.iter().take(2).chain(order.iter().map(|it| it.get(&read))) {
            if tree.evolve(*at, event).is_ok() {
                let _ = tree.react([event], &mut in_flight);
                let _ = tree.all_due();
            }
        }
        if sim.node(sim.root()).is_live() {
            sim.cancel(sim.root());
        }
        for _ in 0..50 {
            if !(make_marks(&mut sim) | answer_all(&mut sim)) {
                break;
            }
        }
        check_over(&sim);
    }
}

/// Checks that the random stories of the properties contain every kind of event.
#[test]
fn random_stories_meet_every_kind_of_event() {
    let mut runner = TestRunner::deterministic();
    let mut met: BTreeSet<String> = BTreeSet::new();
    for _ in 0..400 {
        let policy = policies().new_tree(&mut runner).unwrap().current();
        let story = stories().new_tree(&mut runner).unwrap().current();
        let history = vec(acts(), 0..100).new_tree(&mut runner).unwrap().current();
        let mut sim = play(policy, story, history);
        complete(&mut sim);
        for (_, event) in &sim.log {
            met.insert(serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned());
            match event {
                Event::Granted(grant) => drop(met.insert(format!("depth {}", grant.depth))),
                Event::Refused { reason, .. } => drop(met.insert(reason.code.to_string())),
                Event::Merged { merged, problem, .. } => {
                    let clash = !merged.conflicts.is_empty();
                    met.insert(format!("merged {clash} {}", problem.is_some()));
                }
                Event::Checked { passed, .. } => drop(met.insert(format!("passed {passed}"))),
                Event::Told { nudge, .. } => drop(met.insert(format!("{nudge:?}"))),
                _ => {}
            }
        }
        let completed = sim.node(sim.root()).state() == DelegationState::Ended(Outcome::Completed);
        met.insert(format!("completed {completed}"));
    }
    let met: Vec<&str> = met.iter().map(String::as_str).collect();
    insta::assert_snapshot!(met.join(" "), @"BUDGET_EXCEEDED CONTEXT_BUDGET_EXCEEDED CYCLE_DETECTED Check HandoverNote LastCall(BudgetExceeded) LastCall(ContextExhausted) MAX_DELEGATIONS_EXCEEDED MAX_DEPTH_EXCEEDED Person Repair Results Shorten TIME_EXCEEDED VALIDATION_FAILED approval_asked approved attempt_failed auto_approved checked checking completed false completed true continued crashed delegated denied depth 1 depth 2 depth 3 domain_allowed domain_asked domain_denied ended granted judged late markers_read merged merged false false merged false true merged true false messaged note_skipped overran passed false passed true paused progressed refused replied reserved resumed run_ended run_started settled space_kept space_made started story_taken told tool_called tool_refused tool_returned");
}
