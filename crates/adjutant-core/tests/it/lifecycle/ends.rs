//! Part of `lifecycle`: ends.

use std::collections::BTreeSet;

use super::*;

#[test]
fn cancelling_ends_a_subtree_the_deepest_first_and_nothing_beside_it() {
    let mut sim = Sim::new(scout(&["max_depth=3", "concurrency=4"]));
    let [a, b] = sim.children(["a", "b"].map(about).into())[..] else { panic!() };
    let inner = granted(&sim.ask(a, ["c", "d"].map(about).into(), None).unwrap());
    let deepest = sim.child_of(inner[0], about("e"));
    let events = sim.cancel(a);
    let ended: Vec<SessionId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Ended { session, outcome: Outcome::Cancelled, .. } => Some(*session),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [deepest, inner[1], inner[0], a]);
    insta::assert_snapshot!(sim.ended(deepest), @r"
    cancelled CANCELLED: Cancelled before it was done.
    => `adjutant resume sess_1700000005_bbbbbb` takes it up again; what was found so far is in the result.
    ");
    assert_eq!(sim.state(b), DelegationState::Running);
    assert!(sim.tree.outcome().is_none());
    let stopped = sim.effects.iter().filter(|effect| matches!(effect, Effect::Stop { .. })).count();
    assert_eq!(stopped, 4);
    sim.say(b, "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn ending_a_delegation_ends_its_descendants() {
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let parent = sim.child(about("p"));
    let child = sim.child_of(parent, about("c"));
    sim.say(parent, "I am done without you.");
    assert_eq!(sim.end(parent).0, Outcome::Completed);
    assert_eq!(sim.code(child), Some(ErrorCode::Cancelled));
    sim.check_over();
}

#[test]
fn a_full_disk_ends_all_delegations_and_the_run() {
    let mut sim = Sim::new(scout(&["max_depth=2", "concurrency=2"]));
    let [a, b, at_work, other] = sim.children(["a", "b", "c", "d"].map(about).into())[..] else {
        panic!()
    };
    sim.say(a, "done before");
    sim.say(b, "done before");
    let below = sim.child_of(at_work, about("e"));
    let lost = [below, at_work, other].into();
    let events = sim.submit(Command::DiskFull { lost }).unwrap();
    assert_eq!(kinds(&events), "settled ended settled ended settled ended ended run_ended");
    for session in [below, at_work, other] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(sim.ended(session), @r"
            partial DISK_FULL: The disk is full: the journal has no room for another step.
            => Free space, then `adjutant resume run_1700000000_aaaaaa`; what was found so far is kept.
            ");
        }
        assert!(sim.end(session).1.unwrap().recoverable);
    }
    assert_eq!(sim.ended(a), "completed", "what was done stays done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
    let full = Command::DiskFull { lost: BTreeSet::new() };
    assert_eq!(sim.submit(full.clone()), Ok(vec![]), "it ended already");
    let nothing = adjutant_core::Tree::default();
    assert_eq!(nothing.decide(Timestamp::ZERO, full), Ok(vec![]));
}

#[test]
fn a_full_disk_waits_for_the_model_calls_under_way_and_ends_their_agents_after_them() {
    let mut sim = Sim::new(scout(&["max_depth=2", "concurrency=3"]));
    let [reads, parent, thinks, queued] = sim.children(["a", "b", "c", "d"].map(about).into())[..]
    else {
        panic!()
    };
    sim.call(reads, vec![read("1", "long.txt")]);
    let below = sim.child_of(parent, about("e"));
    sim.fail(parent, error(ModelErrorKind::Overloaded));
    let full = || Command::DiskFull { lost: BTreeSet::new() };

    assert_eq!(kinds(&sim.submit(full()).unwrap()), "ended ended");
    let is_live = |sim: &Sim, session| sim.state(session).is_live();
    assert!(!is_live(&sim, reads) && !is_live(&sim, queued), "neither waits for a model");
    assert!(is_live(&sim, below) && is_live(&sim, thinks), "their answers have room");
    assert!(is_live(&sim, parent), "it is above one of them");
    assert_eq!(sim.submit(full()), Ok(vec![]));

    sim.call(below, vec![read("1", "a.txt")]);
    assert_eq!(kinds(&sim.submit(full()).unwrap()), "ended ended");
    assert!(!is_live(&sim, below) && !is_live(&sim, parent));

    let events = sim.submit(Command::DiskFull { lost: [thinks].into() }).unwrap();
    assert_eq!(kinds(&events), "settled ended ended run_ended");
    sim.check_over();
}

#[test]
fn a_crash_in_one_child_leaves_the_others_alone() {
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let [a, b] = sim.children(["a", "b"].map(about).into())[..] else { panic!() };
    let below = sim.child_of(a, about("c"));
    let (message, backtrace) = ("index out of bounds".to_owned(), "at turn.rs:1".to_owned());
    let events = sim.submit(Command::Crash { session: a, message, backtrace }).unwrap();
    assert_eq!(kinds(&events), "crashed settled ended settled ended");
    insta::assert_snapshot!(sim.ended(a), @r"
    failed INTERNAL: Adjutant broke while working on this: index out of bounds
    => This is a defect of Adjutant; `adjutant log` holds the backtrace.
    ");
    assert!(!sim.end(a).1.unwrap().recoverable);
    assert_eq!(sim.code(below), Some(ErrorCode::Cancelled));
    sim.say(b, "done");
    assert_eq!(sim.ended(b), "completed");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn slots_are_given_first_come_first_served() {
    let mut sim = Sim::new(scout(&["concurrency=2"]));
    let children = sim.children(["a", "b", "c", "d", "e"].map(about).into());
    let running = |sim: &Sim| -> Vec<usize> {
        (0..5).filter(|n| sim.state(children[*n]) == DelegationState::Running).collect()
    };
    assert_eq!(running(&sim), [0, 1]);
    sim.say(children[1], "done");
    assert_eq!(running(&sim), [0, 2]);
    // A delegation that was cancelled while queued is skipped.
    sim.cancel(children[3]);
    assert_eq!(running(&sim), [0, 2]);
    sim.say(children[0], "done");
    assert_eq!(running(&sim), [2, 4]);
    sim.say(children[2], "done");
    sim.say(children[4], "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn a_later_call_waits_behind_an_earlier_one() {
    let mut sim = Sim::new(scout(&["concurrency=1"]));
    let first = sim.children(["a", "b"].map(about).into());
    let second = sim.child(about("c"));
    sim.say(first[0], "done");
    assert_eq!(
        (sim.state(first[1]), sim.state(second)),
        (DelegationState::Running, DelegationState::Queued)
    );
    sim.say(first[1], "done");
    assert_eq!(sim.state(second), DelegationState::Running);
}

#[test]
fn a_run_ends_like_all_its_delegations_or_partial() {
    use Outcome::{Blocked, Cancelled, Completed, Failed, Partial, Refused};
    for (parts, whole) in [
        (vec![], Failed),
        (vec![Completed], Completed),
        (vec![Completed, Completed], Completed),
        (vec![Failed, Failed], Failed),
        (vec![Refused, Refused], Refused),
        (vec![Blocked], Blocked),
        (vec![Cancelled, Cancelled], Cancelled),
        (vec![Completed, Partial], Partial),
        (vec![Completed, Failed], Partial),
        (vec![Completed, Refused], Partial),
        (vec![Failed, Cancelled], Partial),
    ] {
        assert_eq!(Outcome::of_all(parts.clone()), whole, "{parts:?}");
    }
    for (outcome, result, status) in [
        (Completed, "ok", "completed"),
        (Partial, "partial", "partial"),
        (Failed, "error", "failed"),
        (Blocked, "error", "blocked"),
        (Cancelled, "partial", "partial"),
        (Refused, "error", "failed"),
    ] {
        assert_eq!((outcome.result_word(), outcome.return_status()), (result, status));
    }
}

#[test]
fn a_refusal_counts_towards_the_end_of_the_run() {
    // A depth the policy does not have: nothing starts, and the run is refused.
    let mut sim = Sim::of(scout(&[]), "lead", "do it");
    let root = sim.root();
    let events = sim.ask(root, vec![brief("x", "lead", "do it")], None).unwrap();
    assert_eq!(kinds(&events), "refused ended run_ended");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Refused));
    let mut sim = Sim::of(scout(&[]), "lead", "do it");
    let events = sim.ask(root, vec![brief("x", "lead", "do it"), about("y")], None).unwrap();
    assert!(sim.tree.outcome().is_none());
    sim.say(granted(&events)[0], "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
}

#[test]
fn a_run_that_met_a_limit_made_no_call_or_met_an_error_is_never_completed() {
    // DESIGN §5, States. Each child does its best to look completed.
    type Ending = fn() -> (Sim, SessionId);
    let ends: [(&str, Ending); 7] = [
        ("the window", || {
            let (mut sim, child) = begun(&["max_output_tokens=1000"], small(1_300));
            sim.say(child, "All done!");
            (sim, child)
        }),
        ("the budget", || {
            let (mut sim, child) =
                begun(&["max_output_tokens=1000", "budget_tokens=1300"], small(90_000));
            sim.say(child, "All done!");
            (sim, child)
        }),
        ("no call at all", || begun(&[], small(150))),
        ("an API error", || {
            let (mut sim, child) = one(&[]);
            sim.reply(child, ModelReply { text: "All done!".into(), ..asks(vec![read("1", "a")]) });
            sim.output(child, 0, "text");
            sim.fail(child, error(ModelErrorKind::BadRequest));
            (sim, child)
        }),
        ("a cut answer", || {
            let (mut sim, child) = one(&[]);
            sim.reply(child, cut_off("All done!"));
            sim.reply(child, cut_off("All done!"));
            (sim, child)
        }),
        ("a loop", || {
            let (mut sim, child) = one(&[]);
            sim.call(child, (0..8).map(|n| read(&n.to_string(), "a")).collect());
            (sim, child)
        }),
        ("the clock", || {
            let (mut sim, child) = one(&[]);
            while sim.node(child).is_live() {
                sim.tick_next();
            }
            (sim, child)
        }),
    ];
    for (what, end) in ends {
        let (sim, child) = end();
        assert_ne!(sim.end(child).0, Outcome::Completed, "{what}");
        assert_ne!(sim.tree.outcome(), Some(Outcome::Completed), "{what}");
        assert!(sim.end(child).1.is_some(), "{what} has no reason");
        sim.check_over();
    }
    // A standard return that claims to be complete does not help either.
    let mut policy = scout(&["max_output_tokens=1000", "budget_tokens=1300"]);
    policy.contract = ContractKind::Standard;
    let mut sim = Sim::new(policy);
    let child = sim.child(small(90_000));
    returns(&mut sim, child, &returned("completed", json!([])), &[]);
    assert_eq!(sim.code(child), Some(ErrorCode::BudgetExceeded));
}

#[test]
fn a_run_ends_only_when_nothing_is_live() {
    let mut sim = Sim::new(scout(&[]));
    let children = sim.children(["a", "b"].map(about).into());
    sim.say(children[0], "done");
    assert_eq!(sim.submit(Command::EndRun), Ok(vec![]));
    sim.say(children[1], "done");
    assert_eq!(sim.submit(Command::EndRun), Ok(vec![]), "it ended already");
    sim.check_over();
}

#[test]
fn a_conversation_shows_calls_with_their_results_in_order_and_hides_what_was_not_run() {
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![read("1", "a"), tool("2", "Dance", json!({})), read("3", "b")]);
    sim.output(child, 2, "third");
    sim.output(child, 0, "first");
    sim.reply(child, cut_off("too lo"));
    sim.say(child, "short");
    let mut conversation = Conversation::default();
    for (_, event) in sim.log.iter().filter(|(_, event)| event.session() == Some(child)) {
        conversation.apply(event);
    }
    let lines: Vec<String> = conversation
        .messages()
        .iter()
        .map(|message| match message {
            Message::User { content } => format!("user: {content}"),
            Message::Assistant { content, tool_calls, .. } => {
                let calls: Vec<&str> = tool_calls.iter().map(|call| call.id.as_str()).collect();
                format!("assistant: {content} {calls:?}")
            }
            Message::Tool { tool_call_id, content, is_error } => {
                format!("tool {tool_call_id}{}: {content}", if *is_error { " failed" } else { "" })
            }
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    user: look at x
    assistant:  ["1", "2", "3"]
    tool 1: first
    tool 2 failed: Not run: `Dance` is not available to you. Available: Glob, Grep, Note, Read.
    tool 3: third
    assistant: too lo []
    user: Your answer was cut off at the output limit. Say it again, shorter, in one message.
    assistant: short []
    "#);
    assert_eq!(conversation.last_text(), Some("short"));
}

#[test]
fn an_event_that_contradicts_the_state_is_an_error() {
    let (mut sim, child) = one(&["concurrency=1"]);
    let queued = sim.child(about("y"));
    let last = sim.child(about("z"));
    let nobody = SessionId::new(1_600_000_000, [9; 6]);
    let started = |session| Event::Started {
        session,
        deadline: None,
        bound: adjutant_core::refusal::TimeBound::Own,
    };
    let ended = |session| Event::Ended { session, outcome: Outcome::Completed, reason: None };
    let settlement = Settlement { usage: used(1, 1).unwrap(), usd: Usd::ZERO, estimated: false };
    let settled = |session| Event::Settled { session, turn: 1, attempt: 1, settlement };
    let returned =
        |session, call| Event::ToolReturned { session, call, output: ToolOutput::default() };
    sim.call(child, vec![read("1", "a")]);
    let again = sim.log[0].1.clone();
    let granted_again =
        sim.log.iter().find(|(_, event)| matches!(event, Event::Granted(_))).unwrap().1.clone();
    let lines: Vec<String> = [
        again,
        granted_again,
        started(nobody),
        started(sim.root()),
        started(last),
        ended(nobody),
        settled(child),
        settled(queued),
        returned(child, 7),
        Event::Approved { hash: "00".into(), parent: sim.root(), up_to: None },
        Event::Denied { hash: "00".into(), reason: String::new() },
    ]
    .iter()
    .map(|event| sim.tree.clone().evolve(sim.now, event).unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    run_started does not fit: the run had already started
    granted does not fit: sess_1700000001_bbbbbb exists already
    started does not fit: sess_1600000000_jjjjjj is unknown
    started does not fit: the root is already running
    started does not fit: sess_1700000003_bbbbbb was not next in the queue
    ended does not fit: sess_1600000000_jjjjjj is unknown
    settled does not fit: no call is under way
    settled does not fit: sess_1700000002_bbbbbb is queued
    tool result does not fit: call 7 is not open
    approved does not fit: no such question is open
    denied does not fit: no such question is open
    ");
    // Bytes of a call that is over start no clock.
    let mut tree = sim.tree.clone();
    tree.evolve(sim.now, &Event::Progressed { session: child, bytes: 1 }).unwrap();
    assert_eq!(tree.next_deadline(), None);
    tree.evolve(sim.now, &ended(child)).unwrap();
    assert!(tree.evolve(sim.now, &ended(child)).is_err(), "one end is enough");
}

#[test]
fn everything_but_progress_must_be_on_disk_before_it_has_effects() {
    let (mut sim, child) = one(&[]);
    sim.submit(Command::Progress { session: child, bytes: 9 }).unwrap();
    sim.say(child, "done");
    for (_, event) in &sim.log {
        let is_progress = matches!(event, Event::Progressed { .. });
        assert_eq!(event.must_be_durable(), !is_progress, "{event:?}");
    }
}

#[test]
fn a_retry_delay_of_hours_is_not_waited_for() {
    let (mut sim, child) = one(&[]);
    let patient =
        AttemptError { retry_after_ms: Some(600_000), ..error(ModelErrorKind::RateLimited) };
    sim.fail(child, patient);
    assert!(sim.tree.next_deadline().is_some_and(|(_, why)| why == DeadlineKind::Retry));
    let (mut sim, child) = one(&[]);
    sim.fail(
        child,
        AttemptError { retry_after_ms: Some(600_001), ..error(ModelErrorKind::RateLimited) },
    );
    assert_eq!(sim.code(child), Some(ErrorCode::ProviderError));
}

#[test]
fn a_call_without_tasks_is_refused_as_a_whole() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    assert_eq!(sim.ask(root, Vec::new(), None).unwrap_err(), adjutant_core::Refusal::NoTasks);
}
