//! Part of `lifecycle`: going on in a fresh conversation when the context is full.

use adjutant_core::tree::HANDOVER_NOTE;
use adjutant_core::{CollectedHandover, ResumeOptions, Rights, VerifyCommand};

use super::*;
use crate::handovers::{conversation, hand_over};

/// Begins a task of an agent that writes in its own workspace, with this context window.
fn writer(settings: &[&str], brief: Brief) -> (Sim, SessionId) {
    let usual =
        ["enabled=true", "contract=report", "context_tokens=none", "max_output_tokens=1000"];
    let settings: Vec<&str> = usual.into_iter().chain(settings.iter().copied()).collect();
    let mut sim = Sim::new(policy(Preset::Story, &settings));
    let child = sim.child(brief);
    (sim, child)
}

/// Fills the context with one successful tool call.
fn fill(sim: &mut Sim, child: SessionId) {
    fill_with(sim, child, ToolOutput { content: "y".repeat(3_000), ..ToolOutput::default() });
}

fn fill_with(sim: &mut Sim, child: SessionId, output: ToolOutput) {
    let path = sim.log.len().to_string();
    let reply = ModelReply { usage: used(8_000, 20), ..asks(vec![read("1", &path)]) };
    sim.reply(child, ModelReply { text: "I read it.".into(), ..reply });
    let turn = sim.node(child).turn;
    sim.submit(Command::TakeOutput { session: child, turn, call: 0, output }).unwrap();
}

fn collects(sim: &Sim) -> Option<bool> {
    match sim.effects.last() {
        Some(Effect::CollectHandover { has_note, .. }) => Some(*has_note),
        _ => None,
    }
}

fn continued(sim: &Sim) -> usize {
    sim.log.iter().filter(|(_, event)| matches!(event, Event::Continued { .. })).count()
}

#[test]
fn an_agent_that_writes_goes_on_in_a_fresh_conversation_and_can_complete() {
    let (mut sim, child) = writer(&[], small(10_000));
    fill(&mut sim, child);
    assert_eq!(sim.told(child), [HANDOVER_NOTE]);
    assert_eq!(last_model_call(&sim, child), (1_000, false));
    // The note is neither an answer nor a return, and markers in it are text.
    let note = r#"Done: a. [delegate:b:1] {"status":"completed","summary":"All of it."}"#;
    let reply = ModelReply { text: note.into(), ..asks(vec![read("1", "b")]) };
    assert_eq!(kinds(&sim.reply(child, reply)), "replied");
    let max_bytes = 3 * (5_000 - 64);
    let asked = Effect::CollectHandover { session: child, turn: 2, has_note: true, max_bytes };
    assert_eq!(sim.effects.last(), Some(&asked));
    assert!(hand_over(&mut sim, 60));
    assert_eq!(sim.effects.len(), sim.effects.iter().filter(|it| **it != Effect::Close).count());
    assert_eq!(last_model_call(&sim, child), (1_000, true));
    let talk = conversation(&sim, child);
    let [Message::User { content: brief }, Message::User { content: handover }] = talk.messages()
    else {
        panic!("{talk:?}")
    };
    assert_eq!(*brief, "x".repeat(400));
    assert!(handover.contains(note) && handover.contains("- src/a.rs"), "{handover}");
    sim.say(child, "It is done.");
    assert_eq!(sim.ended(child), "completed");
    sim.check_over();
}

#[test]
fn without_a_usable_note_the_engine_makes_it() {
    let (blank, declined) = (says(" \n"), ModelReply { stop: StopReason::Refused, ..says("No.") });
    for reply in [cut_off("Done:"), blank, declined, asks(vec![read("1", "b")])] {
        let (mut sim, child) = writer(&[], small(10_000));
        fill(&mut sim, child);
        sim.reply(child, reply.clone());
        assert_eq!(collects(&sim), Some(false), "{reply:?}");
        assert!(hand_over(&mut sim, 0));
        let words = conversation(&sim, child);
        let Some(Message::User { content }) = words.messages().last() else { panic!("{words:?}") };
        let last = if reply.text.trim().is_empty() { "I read it." } else { &reply.text };
        assert!(content.contains(&format!("What you said last:\n{last}")), "{content}");
    }
}

#[test]
fn a_request_that_the_provider_rejects_as_too_long_is_continued_without_a_note() {
    // First the request for the note, then an ordinary one.
    for output in [3_000, 10] {
        let (mut sim, child) = writer(&[], small(10_000));
        let content = "y".repeat(output);
        fill_with(&mut sim, child, ToolOutput { content, ..ToolOutput::default() });
        let events = sim.fail(child, error(ModelErrorKind::ContextExhausted));
        assert_eq!(kinds(&events), "attempt_failed note_skipped");
        assert_eq!(collects(&sim), Some(false));
        assert!(hand_over(&mut sim, 0));
        sim.say(child, "It is done.");
        assert_eq!(sim.ended(child), "completed");
        sim.check_over();
    }
    // A result that leaves no room for a note has the same effect.
    let (mut sim, child) = writer(&[], small(10_000));
    let content = "y".repeat(9_000);
    fill_with(&mut sim, child, ToolOutput { content, ..ToolOutput::default() });
    assert_eq!((sim.told(child).len(), collects(&sim)), (0, Some(false)));
}

#[test]
fn a_note_is_retried_and_other_errors_end_the_agent() {
    let (mut sim, child) = writer(&[], small(10_000));
    fill(&mut sim, child);
    sim.fail(child, error(ModelErrorKind::Overloaded));
    sim.tick_next();
    assert_eq!(sim.told(child), [HANDOVER_NOTE]);
    assert_eq!(last_model_call(&sim, child), (1_000, false));
    sim.fail(child, error(ModelErrorKind::Authentication));
    assert_eq!(sim.code(child), Some(ErrorCode::ProviderError));
    sim.check_over();
}

/// Returns what the agent is told when its context is full.
fn told_when_full(mut sim: Sim, child: SessionId) -> Vec<String> {
    fill(&mut sim, child);
    sim.told(child).into_iter().map(str::to_owned).collect()
}

#[test]
fn only_agents_that_write_continue_unless_a_person_says_otherwise() {
    let own = |settings: &[&str]| writer(settings, small(10_000));
    let reader = |settings: &[&str]| {
        let mut all = vec!["max_output_tokens=1000"];
        all.extend(settings);
        begun(&all, small(10_000))
    };
    let command = |settings: &[&str]| {
        let mut all = vec!["max_output_tokens=1000", "contract=report"];
        all.extend(settings);
        let mut sim = Sim::new(policy(Preset::Command, &all));
        let child = sim.child(small(10_000));
        (sim, child)
    };
    let cases = [
        ("a writer", own(&[]), true),
        ("a writer under handover", own(&["on_full=handover"]), false),
        ("own workspace, no tool that writes", own(&["tools=Read,Grep"]), false),
        ("own workspace, only Run", own(&["tools=Read,Run"]), true),
        ("a reader", reader(&[]), false),
        ("a reader under continue", reader(&["on_full=continue"]), true),
        ("writing below the specs folder", command(&[]), false),
        ("writing in place", command(&["in_place=true"]), true),
    ];
    for (name, (sim, child), continues) in cases {
        let expected = if continues { HANDOVER_NOTE } else { LAST_CALL };
        assert_eq!(told_when_full(sim, child), [expected], "{name}");
    }
}

#[test]
fn a_conversation_is_not_continued_without_progress_space_budget_or_turns() {
    let turns = |max| Brief { max_turns: Some(max), ..small(10_000) };
    // Half the window are 5,000 tokens: at most 14,808 bytes.
    let long = |bytes| Brief { prompt: "x".repeat(bytes), ..small(10_000) };
    // Spent so far 8,020, then the note with 8,000, 3,300 and 1,000, then twice 198 and 1,000.
    let note = HANDOVER_NOTE.len() as u64 + "I read it.".len() as u64 + 3_000;
    let call = asks(vec![read("1", "2")]).tool_calls[0].clone();
    let note = note + (call.arguments.to_string().len() + call.name.len()) as u64;
    let needed = 8_020 + (8_000 + note + 1_000) + 2 * (BILLED + 1_000);
    let budget = |tokens: u64| format!("budget_tokens={tokens}");
    let cases = [
        ("two turns left", writer(&[], turns(4)), true),
        ("one turn left", writer(&[], turns(3)), false),
        ("a long brief", writer(&[], long(14_808)), true),
        ("a brief of half the window", writer(&[], long(14_809)), false),
        ("budget for two turns", writer(&[&budget(needed + 10)], small(10_000)), true),
        ("less budget", writer(&[&budget(needed - 10)], small(10_000)), false),
    ];
    for (name, (sim, child), continues) in cases {
        let expected = if continues { HANDOVER_NOTE } else { LAST_CALL };
        assert_eq!(told_when_full(sim, child), [expected], "{name}");
    }
    let (mut sim, child) = writer(&[], small(10_000));
    fill_with(&mut sim, child, ToolOutput::error("y".repeat(3_000)));
    assert_eq!(sim.told(child), [LAST_CALL], "no tool call succeeded");
}

#[test]
fn an_agent_is_continued_at_most_as_often_as_the_policy_allows() {
    let (mut sim, child) = writer(&["continuations=2"], small(10_000));
    for times in 1..=2 {
        fill(&mut sim, child);
        sim.say(child, "The note.");
        assert!(hand_over(&mut sim, 0));
        assert_eq!(continued(&sim), times);
    }
    fill(&mut sim, child);
    assert_eq!(sim.told(child), [HANDOVER_NOTE, HANDOVER_NOTE, LAST_CALL]);
    sim.say(child, "What I have.");
    insta::assert_snapshot!(sim.ended(child), @r"
    partial CONTEXT_EXHAUSTED: The context was exhausted: 103 of 10,000 tokens, and an answer may need 1,000 more. It had gone on in a fresh conversation 2 times before.
    => Split the task, use a model with a larger window, or start the run again with --set continuations=4.
    ");
    sim.check_over();
}

#[test]
fn a_handover_that_does_not_fit_ends_the_agent_as_before() {
    let (mut sim, child) = writer(&[], small(10_000));
    fill(&mut sim, child);
    sim.say(child, "The note.");
    let long = CollectedHandover {
        brief: vec!["x".repeat(400)],
        note: Some("n".repeat(15_000)),
        ..CollectedHandover::default()
    };
    let handover = Box::new(long);
    // A report about another turn changes nothing.
    let old = Command::TakeHandover { session: child, turn: 1, handover: handover.clone() };
    assert_eq!(kinds(&sim.submit(old).unwrap()), "");
    sim.submit(Command::TakeHandover { session: child, turn: 2, handover }).unwrap();
    assert_eq!(sim.code(child), Some(ErrorCode::ContextExhausted));
    assert_eq!(continued(&sim), 0);
    sim.check_over();
}

#[test]
fn the_opening_takes_at_most_half_the_window() {
    let (mut sim, child) = writer(&[], small(10_000));
    fill(&mut sim, child);
    sim.say(child, "The note.");
    assert!(hand_over(&mut sim, 100_000));
    let talk = conversation(&sim, child);
    let text = |message: &Message| match message {
        Message::User { content } => content.clone(),
        other => panic!("{other:?}"),
    };
    let opening: Vec<String> = talk.messages().iter().map(text).collect();
    let bytes = opening.concat().len();
    assert!((14_700..=14_808).contains(&bytes), "{bytes}");
    assert!(opening[1].ends_with("(The diff is cut here. `git status` and `git diff` show the rest; read files that are new.)"));
    assert!(sim.node(child).context_estimate() <= 5_000);
}

#[test]
fn nothing_is_renewed_by_a_continuation() {
    let verify = Some(VerifyCommand::from("make"));
    let (mut sim, child) =
        writer(&["timeout_s=600"], Brief { verify, max_turns: Some(40), ..small(10_000) });
    // Two verifications fail, a return is empty once, and a call is made three times.
    for _ in 0..2 {
        sim.say(child, "Done.");
        sim.submit(Command::TakeCheck {
            session: child,
            check: adjutant_core::story::VerifyResult::Failed,
            text: "no".into(),
            facts: Default::default(),
        })
        .unwrap();
    }
    sim.say(child, "");
    for _ in 0..3 {
        assert!(turn(&mut sim, child, read("1", "same")));
    }
    let before = (sim.node(child).deadline(), sim.node(child).max_turns(), sim.node(child).turn);
    fill(&mut sim, child);
    sim.say(child, "The note.");
    let spent = sim.node(child).ledger.settled;
    assert!(hand_over(&mut sim, 0));
    let node = sim.node(child);
    assert_eq!((node.deadline(), node.max_turns(), node.turn), (before.0, before.1, before.2 + 2));
    assert_eq!(node.ledger.settled, spent);
    // The fifth equal call is refused, as if there had been one conversation.
    assert!(turn(&mut sim, child, read("1", "same")));
    assert!(!turn(&mut sim, child, read("1", "same")));
    // The second repair is the last, and so is the third failed verification.
    sim.say(child, "");
    sim.say(child, "Done.");
    sim.submit(Command::TakeCheck {
        session: child,
        check: adjutant_core::story::VerifyResult::Failed,
        text: "no".into(),
        facts: Default::default(),
    })
    .unwrap();
    assert_eq!(sim.code(child), Some(ErrorCode::BuildError));
    sim.check_over();
}

#[test]
fn what_a_person_said_is_part_of_the_next_conversation() {
    let (mut sim, child) = writer(&[], small(10_000));
    sim.submit(Command::Tell { session: child, text: "Use tabs.".into() }).unwrap();
    fill(&mut sim, child);
    sim.say(child, "The note.");
    // This one waits for the next turn, which is in the fresh conversation.
    sim.submit(Command::Tell { session: child, text: "Hurry.".into() }).unwrap();
    assert!(hand_over(&mut sim, 0));
    let talk = conversation(&sim, child);
    let said: Vec<bool> = talk
        .messages()
        .iter()
        .map(|message| format!("{message:?}"))
        .map(|text| text.contains("> Use tabs.") || text.contains("> Hurry."))
        .collect();
    assert_eq!(said, [false, true, false, true]);
    assert_eq!(talk.brief().len(), 3);
}

#[test]
fn a_crash_at_any_point_of_a_continuation_is_recovered() {
    let (mut sim, child) = writer(&[], small(10_000));
    fill(&mut sim, child);
    sim.say(child, "The note.");
    assert!(hand_over(&mut sim, 30));
    let opening = conversation(&sim, child);
    for cut in sim.decisions.clone() {
        let mut again = Sim::replay(&sim.log[..cut]);
        if again.tree.node(child).is_none() {
            continue;
        }
        let rights = Rights::of(again.tree.policy());
        again.restart(ResumeOptions { rights, ..ResumeOptions::default() });
        for _ in 0..10 {
            if again.tree.outcome().is_some() {
                break;
            }
            if hand_over(&mut again, 30) {
                continue;
            }
            if again.node(child).reservation().is_none() {
                again.output(child, 0, &"y".repeat(3_000));
            } else if again.told(child).contains(&HANDOVER_NOTE) && continued(&again) == 0 {
                again.say(child, "The note.");
            } else if continued(&again) == 1 {
                // The bytes of the recorded opening are used again.
                let talk = conversation(&again, child);
                assert_eq!(talk.messages(), opening.messages());
                again.say(child, "It is done.");
            } else {
                fill(&mut again, child);
            }
        }
        assert_eq!(again.ended(child), "completed", "cut at {cut}");
        again.check_over();
    }
}
