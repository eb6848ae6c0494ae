//! Properties of agents whose small window is filled again and again, with failures and crashes in between.

use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{
    Brief, Command, Event, Message, ModelErrorKind, ModelReply, ModelSpec, Policy, Preset,
    ResumeOptions, Rights, SessionId, ToolOutput, Tree,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::handovers::{conversation, hand_over};
use crate::properties::{check_told, complete, observed, settled};
use crate::restarts::{check_prefixes, check_restart};
use crate::sim::{Sim, asks, brief, error, model, read, says, used};

/// What happens next to the agent.
#[derive(Clone, Debug)]
enum Act {
    /// It calls a tool, which returns this many bytes or fails.
    Work { bytes: usize, fails: bool },
    /// It answers, with or without text.
    Say { text: &'static str },
    /// Its model call fails.
    Fail { kind: ModelErrorKind },
    /// Its handover is collected, with a diff of this size.
    HandOver { diff_bytes: usize },
    /// A person tells it something.
    Tell { bytes: usize },
    /// The process dies and the run is resumed.
    Restart,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => (0..6_000_usize, prop::bool::weighted(0.1))
            .prop_map(|(bytes, fails)| Act::Work { bytes, fails }),
        2 => prop_oneof![Just("A note."), Just(""), Just("[delegate:x:1]")]
            .prop_map(|text| Act::Say { text }),
        1 => prop_oneof![Just(ModelErrorKind::ContextExhausted), Just(ModelErrorKind::Overloaded)]
            .prop_map(|kind| Act::Fail { kind }),
        4 => (0..20_000_usize).prop_map(|diff_bytes| Act::HandOver { diff_bytes }),
        1 => (1..400_usize).prop_map(|bytes| Act::Tell { bytes }),
        1 => Just(Act::Restart),
    ]
}

fn policies() -> impl Strategy<Value = (Policy, Brief)> {
    let limits = (3_000..12_000_u64, 100..500_u64, 1..4_u64);
    let caps = (option::of(20_000..200_000_u64), option::of(4..30_u32), 1..2_000_usize);
    (limits, caps).prop_map(
        |((window, max_output_tokens, continuations), (budget, turns, prompt))| {
            let policy = Policy {
                enabled: true,
                context_tokens: None,
                max_output_tokens,
                continuations,
                budget_tokens: budget,
                contract: adjutant_core::policy::ContractKind::Report,
                ..Preset::Story.policy()
            };
            let task = Brief {
                model: Some(ModelSpec { window, ..model() }),
                max_turns: turns,
                estimate_tokens: Some(0),
                ..brief("w", "worker", &"x".repeat(prompt))
            };
            (policy, task)
        },
    )
}

fn play(policy: Policy, task: Brief, acts: Vec<Act>) -> (Sim, SessionId) {
    let mut sim = Sim::new(policy);
    let child = sim.child(task);
    for act in acts {
        if sim.tree.outcome().is_some() {
            break;
        }
        perform(&mut sim, child, act);
    }
    (sim, child)
}

fn perform(sim: &mut Sim, child: SessionId, act: Act) {
    let is_open = sim.node(child).reservation().is_some();
    match act {
        Act::Work { bytes, fails } if is_open => {
            let input = sim.node(child).context_estimate();
            let path = sim.log.len().to_string();
            let reply = ModelReply { usage: used(input, 20), ..asks(vec![read("1", &path)]) };
            sim.reply(child, ModelReply { text: "I work.".into(), ..reply });
            let content = "y".repeat(bytes);
            let output = ToolOutput { content, is_error: fails, ..ToolOutput::default() };
            let turn = sim.node(child).turn;
            sim.submit(Command::TakeOutput { session: child, turn, call: 0, output }).unwrap();
        }
        Act::Say { text } if is_open => {
            let input = sim.node(child).context_estimate();
            sim.reply(child, ModelReply { usage: used(input, 20), ..says(text) });
        }
        Act::Fail { kind } if is_open => drop(sim.fail(child, error(kind))),
        Act::HandOver { diff_bytes } => drop(hand_over(sim, diff_bytes)),
        Act::Tell { bytes } => {
            let _ = sim.submit(Command::Tell { session: child, text: "z".repeat(bytes) });
        }
        Act::Restart => {
            let rights = Rights::of(sim.tree.policy());
            sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        }
        Act::Work { .. } | Act::Say { .. } | Act::Fail { .. } => {}
    }
}

/// Checks that each fresh conversation follows a full one in which a tool was used, begins with at most half the window
/// and with what was recorded, and that there are not too many.
fn check_continuations(sim: &Sim, child: SessionId) {
    let window = sim.node(child).model.as_ref().unwrap().window;
    let (mut made, mut is_full, mut has_used_tool) = (0, false, false);
    for (place, (_, event)) in sim.log.iter().enumerate() {
        match event {
            Event::Told { nudge: adjutant_core::AddedMessageReason::HandoverNote, .. }
            | Event::NoteSkipped { .. } => is_full = true,
            Event::ToolReturned { output, .. } => has_used_tool |= !output.is_error,
            // A person who resumes an ended agent renews its limits.
            Event::Reopened(_) => made = 0,
            Event::Continued { brief, handover, .. } => {
                made += 1;
                assert!(made <= sim.tree.policy().continuations, "continued {made} times");
                assert!(is_full && has_used_tool, "continued for no reason");
                (is_full, has_used_tool) = (false, false);
                let opening: Vec<String> = brief.iter().chain([handover]).cloned().collect();
                let bytes = opening.iter().map(|text| text.len() as u64).sum::<u64>();
                assert!(bytes / 3 <= window / 2, "{bytes} bytes for a window of {window}");
                let talk = conversation(&Sim::replay(&sim.log[..=place]), child);
                let seen = talk.messages().iter().map(|message| match message {
                    Message::User { content } => content.clone(),
                    other => panic!("{other:?}"),
                });
                assert_eq!(seen.collect::<Vec<_>>(), opening);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(256),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_continued_agent_keeps_its_limits_and_ends_once(
        (policy, task) in policies(),
        acts in vec(acts(), 0..60),
    ) {
        let (mut sim, child) = play(policy, task, acts);
        complete(&mut sim);
        sim.check_over();
        check_told(&sim.log);
        check_continuations(&sim, child);
        check_prefixes(&sim);
        prop_assert_eq!(sim.node(sim.root()).ledger.settled, settled(&sim.log));
        prop_assert_eq!(observed(&Sim::replay(&sim.log).tree), observed(&sim.tree));
    }

    #[test]
    fn any_prefix_of_a_continued_agent_can_be_resumed(
        (policy, task) in policies(),
        acts in vec(acts(), 0..60),
        cut in any::<Index>(),
    ) {
        let (sim, child) = play(policy, task, acts);
        let mut sim = Sim::replay(&sim.log[..*cut.get(&sim.decisions)]);
        check_restart(Sim::replay(&sim.log));
        let rights = Rights::of(sim.tree.policy());
        sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        complete(&mut sim);
        sim.check_over();
        check_told(&sim.log);
        if sim.tree.node(child).is_some() {
            check_continuations(&sim, child);
        }
    }

    #[test]
    fn shuffled_events_of_a_continued_agent_do_not_make_the_fold_panic(
        (policy, task) in policies(),
        acts in vec(acts(), 0..40),
        order in vec(any::<Index>(), 0..200),
    ) {
        let (sim, _) = play(policy, task, acts);
        let (mut tree, mut in_flight) = (Tree::default(), EffectsInFlight::default());
        let shuffled = order.iter().map(|index| index.get(&sim.log));
        for (at, event) in sim.log.iter().take(2).chain(shuffled) {
            if tree.evolve(*at, event).is_ok() {
                let _ = tree.react([event], &mut in_flight);
                let _ = tree.all_due();
            }
        }
    }
}

/// Checks that the histories above really continue.
#[test]
fn random_agents_are_continued_often_with_and_without_a_note() {
    let mut runner = TestRunner::deterministic();
    let (mut continued, mut skipped, mut asked) = (0, 0, 0);
    for _ in 0..100 {
        let (policy, task) = policies().new_tree(&mut runner).unwrap().current();
        let acts = vec(acts(), 0..60).new_tree(&mut runner).unwrap().current();
        for (_, event) in play(policy, task, acts).0.log {
            match event {
                Event::Continued { .. } => continued += 1,
                Event::NoteSkipped { .. } => skipped += 1,
                Event::Told { nudge: adjutant_core::AddedMessageReason::HandoverNote, .. } => {
                    asked += 1;
                }
                _ => {}
            }
        }
    }
    assert!(continued > 20 && skipped > 5 && asked > 5, "{continued} {skipped} {asked}");
}
