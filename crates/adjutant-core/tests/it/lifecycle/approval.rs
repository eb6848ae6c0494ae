//! Part of `lifecycle`: approval.

use super::*;

#[test]
fn requirement_43_a_batch_waits_for_one_approval() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b", "c"].map(about).into(), None).unwrap();
    assert_eq!(kinds(&events), "granted granted granted approval_asked");
    let children = granted(&events);
    assert!(children.iter().all(|child| sim.state(*child) == DelegationState::AwaitingApproval));
    let hash = question(&events);
    assert_eq!(sim.effects, [Effect::AskApproval { parent: root, call: 1, hash: hash.clone() }]);
    assert_eq!(hash.len(), 64);
    let events = sim.submit(yes(&hash)).unwrap();
    assert_eq!(kinds(&events), "approved started started reserved reserved");
    assert_eq!(sim.state(children[2]), DelegationState::Queued);
    assert_eq!(sim.tree.next_deadline().map(|(_, why)| why), Some(DeadlineKind::Stall));
}

#[test]
fn an_approval_is_bound_to_the_exact_call_and_used_once() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let first = question(&sim.ask(root, vec![about("a")], None).unwrap());
    let refusal = |sim: &mut Sim, hash: &str| sim.submit(yes(hash)).unwrap_err();
    let foreign = first.replace(|letter: char| letter.is_ascii_digit(), "0");
    insta::assert_snapshot!(refusal(&mut sim, &foreign).message(), @"Not approved: no such call is waiting.");
    sim.submit(yes(&first)).unwrap();
    assert_eq!(refusal(&mut sim, &first).code(), ErrorCode::ApprovalDenied);
    // Also across a crash: a yes that is on disk is spent.
    let mut again = Sim::replay(&sim.log);
    assert_eq!(refusal(&mut again, &first).code(), ErrorCode::ApprovalDenied);
    // Another prompt is another call.
    let hash = |prompt: &str| {
        let mut sim = asking(&[]);
        let root = sim.root();
        question(&sim.ask(root, vec![brief("a", "scout", prompt)], None).unwrap())
    };
    assert_eq!(hash("one"), hash("one"));
    assert_ne!(hash("one"), hash("One"));
}

#[test]
fn approving_one_call_starts_no_task_of_another() {
    let mut sim = asking(&["concurrency=4"]);
    let root = sim.root();
    let first = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    let second = sim.ask(root, vec![about("c")], None).unwrap();
    sim.submit(yes(&question(&second))).unwrap();
    let states = |sim: &Sim, events: &[Event]| -> Vec<&'static str> {
        granted(events).iter().map(|child| sim.state(*child).word()).collect()
    };
    assert_eq!(states(&sim, &second), ["running"]);
    assert_eq!(states(&sim, &first), ["awaiting approval"; 2]);
    // Both questions were asked in the same millisecond; the open one still goes stale.
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::ZERO.plus_seconds(600), DeadlineKind::Stall))
    );
    sim.say(granted(&second)[0], "done");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::ZERO.plus_seconds(APPROVAL_EXPIRES_S), DeadlineKind::Approval))
    );
    sim.submit(yes(&question(&first))).unwrap();
    assert_eq!(states(&sim, &first), ["running"; 2]);
    sim.cancel(root);
    sim.check_over();
}

#[test]
fn denying_a_call_refuses_all_its_tasks() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    let deny = Command::Deny { hash: question(&events), reason: "too dear".into() };
    assert_eq!(kinds(&sim.submit(deny.clone()).unwrap()), "denied ended ended ended run_ended");
    insta::assert_snapshot!(sim.ended(granted(&events)[0]), @r"
    refused APPROVAL_DENIED: Not approved: too dear.
    => Run it in a terminal and approve it, or add --yes.
    ");
    assert_eq!(sim.end(granted(&events)[1]).0, Outcome::Refused);
    assert_eq!(sim.tree.outcome(), Some(Outcome::Refused));
    let reason = "no such call is waiting".to_owned();
    assert_eq!(
        sim.submit(deny),
        Err(adjutant_core::Refusal::ApprovalDenied { reason }),
        "an answer counts once"
    );
    sim.check_over();
}

/// Clients without a person at them answer by themselves, some with yes and some with no.
#[test]
fn a_relayed_answer_that_is_too_fast_leaves_the_question_open() {
    let relay = |hash: &str, answer: &Result<(), String>, after_ms: u64| Command::RelayAnswer {
        hash: hash.to_owned(),
        answer: answer.clone(),
        after_ms,
    };
    for (settings, too_fast, in_time) in [
        (&[][..], Some(ANSWER_MIN_MS - 1), ANSWER_MIN_MS),
        (&["answer_min_ms=5000"], Some(4999), 5000),
        (&["answer_min_ms=none"], None, 0),
    ] {
        for answer in [Ok(()), Err("the person said no".to_owned())] {
            let mut sim = asking(settings);
            let root = sim.root();
            let events = sim.ask(root, vec![about("a")], None).unwrap();
            let (hash, child) = (question(&events), granted(&events)[0]);
            if let Some(too_fast) = too_fast {
                let refusal = sim.submit(relay(&hash, &answer, too_fast)).unwrap_err();
                let said = format!("after {too_fast} ms, and a person needs at least {in_time} ms");
                assert!(refusal.message().contains(&said), "{}", refusal.message());
                assert_eq!(sim.state(child).word(), "awaiting approval");
                assert!(sim.tree.awaits_approval(&hash));
            }
            sim.submit(relay(&hash, &answer, in_time)).unwrap();
            let word = if answer.is_ok() { "running" } else { "refused" };
            assert_eq!(sim.state(child).word(), word);
        }
    }
}

#[test]
fn an_unanswered_question_is_denied_after_fifteen_minutes() {
    let expires = APPROVAL_EXPIRES_S * 1_000;
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, vec![about("a")], None).unwrap();
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(900_000), DeadlineKind::Approval))
    );
    let mut in_time = Sim::replay(&sim.log);
    in_time.now = Timestamp::from_millis(expires - 1);
    assert!(in_time.submit(yes(&question(&events))).is_ok());
    let mut too_late = Sim::replay(&sim.log);
    too_late.now = Timestamp::from_millis(expires);
    let refusal = too_late.submit(yes(&question(&events))).unwrap_err();
    insta::assert_snapshot!(refusal.message(), @"Not approved: the question has expired.");
    assert_eq!(sim.tick_at_ms(expires - 1), []);
    sim.tick_at_ms(expires);
    insta::assert_snapshot!(sim.ended(granted(&events)[0]), @r"
    refused APPROVAL_DENIED: Not approved: nobody answered within 15 minutes.
    => Call again to ask anew.
    ");
    sim.check_over();
}

#[test]
fn a_question_closes_when_all_its_delegations_have_ended() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    sim.cancel(granted(&events)[0]);
    assert!(sim.tree.next_deadline().is_some());
    sim.cancel(granted(&events)[1]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert!(sim.submit(yes(&question(&events))).is_err());
    sim.check_over();
}

#[test]
fn an_approval_starts_only_delegations_that_still_wait() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    sim.cancel(granted(&events)[0]);
    sim.submit(yes(&question(&events))).unwrap();
    assert_eq!(sim.state(granted(&events)[1]), DelegationState::Running);
    assert_eq!(sim.end(granted(&events)[0]).0, Outcome::Cancelled);
    sim.say(granted(&events)[1], "done");
    sim.check_over();
}

#[test]
fn a_parent_and_its_question_that_expire_together_end_the_children_once() {
    let mut sim = asking(&["max_depth=2", "stall_s=none"]);
    let root = sim.root();
    let wish = Brief { timeout_wish: Some(APPROVAL_EXPIRES_S), ..about("p") };
    let events = sim.ask(root, vec![wish], None).unwrap();
    sim.submit(yes(&question(&events))).unwrap();
    let parent = granted(&events)[0];
    let child = granted(&sim.ask(parent, vec![about("c")], None).unwrap())[0];
    sim.tick_at(APPROVAL_EXPIRES_S);
    assert_eq!(sim.code(child), Some(ErrorCode::ApprovalDenied));
    assert_eq!(sim.code(parent), Some(ErrorCode::Timeout));
    sim.check_over();
}

#[test]
fn a_delegation_that_waits_for_approval_cannot_delegate() {
    let mut sim = asking(&["max_depth=2"]);
    let root = sim.root();
    let events = sim.ask(root, vec![about("p")], None).unwrap();
    let waiting = granted(&events)[0];
    let refusal = sim.ask(waiting, vec![about("c")], None).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::UnknownParent);
    assert_eq!(sim.tree.judge_one(sim.now, waiting, &about("c")).unwrap_err(), refusal);
    assert_eq!(sim.submit(Command::TakeTurn { session: waiting }), Ok(vec![]));
}
