//! Messages from a person: when they are delivered, and what they cost.

use adjutant_core::tree::{MAILBOX, TELL_BYTES};
use adjutant_core::{AddedMessageReason, Refusal};

use super::*;

fn tell(sim: &mut Sim, session: SessionId, text: &str) -> Result<String, Refusal> {
    sim.submit(Command::Tell { session, text: text.into() }).map(|events| kinds(&events))
}

/// Returns the user's messages in the conversation of `session`.
fn heard(sim: &Sim, session: SessionId) -> Vec<&str> {
    let told = |(_, event): &'_ (Timestamp, Event)| matches!(event, Event::Told { session: of, nudge: AddedMessageReason::Person, .. } if *of == session);
    let texts = sim.log.iter().filter(|entry| told(entry)).map(|(_, event)| match event {
        Event::Told { text, .. } => text.as_str(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn a_message_waits_for_the_results_of_running_calls() {
    let (mut sim, child) = one(&[]);
    assert_eq!(tell(&mut sim, child, "Look at b too.").unwrap(), "messaged");
    let calls = vec![read("1", "a"), read("2", "b")];
    assert_eq!(kinds(&sim.call(child, calls)), "replied tool_called tool_called");
    assert_eq!(tell(&mut sim, child, "And at\n\nc.").unwrap(), "messaged");
    assert_eq!(kinds(&sim.output(child, 1, "b")), "tool_returned");
    assert_eq!(kinds(&sim.output(child, 0, "a")), "tool_returned told told reserved");
    insta::assert_snapshot!(heard(&sim, child).join("\n--\n"), @"
    The person you work for says, while you are at work:

    > Look at b too.

    Take this into account and go on.
    --
    The person you work for says, while you are at work:

    > And at
    >
    > c.

    Take this into account and go on.
    ");
    assert_eq!(kinds(&sim.say(child, "done")), "replied ended ended run_ended");
}

#[test]
fn a_message_is_delivered_before_the_agent_ends() {
    let (mut sim, child) = one(&[]);
    tell(&mut sim, child, "One more thing.").unwrap();
    assert_eq!(kinds(&sim.say(child, "done")), "replied told reserved");
    // The message was delivered once; the next answer ends the agent.
    assert_eq!(kinds(&sim.say(child, "really done")), "replied ended ended run_ended");
    assert_eq!(sim.end(child).0, Outcome::Completed);
}

#[test]
fn a_return_under_the_contract_waits_for_the_message_too() {
    let (mut sim, child) = standard();
    tell(&mut sim, child, "One more thing.").unwrap();
    let good = returned("completed", json!([]));
    assert_eq!(returns(&mut sim, child, &good, &[]), "told reserved");
    assert_eq!(returns(&mut sim, child, &good, &[]), "judged ended ended run_ended");
}

#[test]
fn a_message_counts_in_the_next_reservation() {
    let tokens = |said: Option<&str>| {
        let (mut sim, child) = one(&[]);
        sim.call(child, vec![read("1", "a")]);
        if let Some(text) = said {
            tell(&mut sim, child, text).unwrap();
        }
        sim.output(child, 0, "a");
        let told: usize = heard(&sim, child).iter().map(|text| text.len()).sum();
        (sim.node(child).reservation().unwrap().amount.tokens, told as u64)
    };
    let ((quiet, none), (loud, told)) = (tokens(None), tokens(Some("Mind the gap.")));
    assert_eq!((none, loud), (0, quiet + told));
}

#[test]
fn a_queued_agent_gets_the_message_with_its_first_turn() {
    let mut sim = Sim::new(scout(&["concurrency=1"]));
    let [first, second] = sim.children(vec![about("a"), about("b")])[..] else { panic!() };
    assert_eq!(tell(&mut sim, second, "Hurry.").unwrap(), "messaged");
    assert_eq!(kinds(&sim.say(first, "done")), "replied ended started told reserved");
}

#[test]
fn an_undeliverable_message_is_refused() {
    let (mut sim, child) = one(&[]);
    let no = |sim: &mut Sim, session, text: &str| {
        let refusal = tell(sim, session, text).unwrap_err();
        format!("{} {} {}", refusal.code(), refusal.message(), refusal.recommendation())
    };
    let (root, nobody) = (sim.root(), SessionId::new(1, [7; 6]));
    let all = [
        no(&mut sim, root, "Hello."),
        no(&mut sim, nobody, "Hello."),
        no(&mut sim, child, " \n"),
        no(&mut sim, child, &"x".repeat(TELL_BYTES + 1)),
    ];
    insta::assert_snapshot!(all.join("\n"), @"
    UNKNOWN_PARENT cannot send the message to sess_1700000000_aaaaaa: it has no agent of its own; name one of its delegations. Name a session at work; `adjutant status latest` lists them.
    UNKNOWN_PARENT cannot send the message to sess_1_hhhhhh: it is not a live delegation. Name a session at work; `adjutant status latest` lists them.
    VALIDATION_FAILED cannot send the message to sess_1700000001_bbbbbb: it is empty. Say something.
    VALIDATION_FAILED cannot send the message to sess_1700000001_bbbbbb: it has 16385 bytes, limit 16384. Say it shorter, or put it into a file the agent can read.
    ");
    assert!(tell(&mut sim, child, &"x".repeat(TELL_BYTES)).is_ok());
    for _ in 1..MAILBOX {
        tell(&mut sim, child, "x").unwrap();
    }
    assert_eq!(tell(&mut sim, child, "x").unwrap_err().code(), ErrorCode::QueueFull);
    sim.cancel(child);
    assert_eq!(tell(&mut sim, child, "x").unwrap_err().code(), ErrorCode::UnknownParent);
}

#[test]
fn a_message_that_does_not_fit_does_not_cost_the_report() {
    // The window holds an answer and a little, not sixteen thousand bytes more.
    let (mut sim, child) = begun(&[], small(8_000));
    tell(&mut sim, child, &"x".repeat(TELL_BYTES)).unwrap();
    assert_eq!(kinds(&sim.say(child, "done")), "replied ended ended run_ended");
    assert_eq!((sim.end(child).0, heard(&sim, child).len()), (Outcome::Completed, 0));
}

#[test]
fn a_message_may_make_a_turn_the_last_one_and_is_delivered_in_it() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(3_000));
    tell(&mut sim, child, &"x".repeat(6_400)).unwrap();
    assert_eq!(kinds(&sim.call(child, vec![read("1", "a")])), "replied tool_called");
    assert_eq!(kinds(&sim.output(child, 0, "a")), "tool_returned told told reserved");
    assert_eq!(last_model_call(&sim, child), (1_000, false));
}
