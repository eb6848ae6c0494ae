//! Part of `lifecycle`: time.

use super::*;

#[test]
fn requirement_20_a_timeout_is_partial_recoverable_and_names_the_limit() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    let short = sim.child_of(parent, Brief { timeout_wish: Some(30), ..brief("s", "short", "") });
    assert_eq!(sim.tick_at_ms(29_999), []);
    sim.tick_at(30);
    insta::assert_snapshot!(sim.ended(short), @r"
    partial TIMEOUT: Timed out after 30 s, its own timeout.
    => `adjutant resume sess_1700000002_bbbbbb` gives it as much time again; what was found so far is in the result.
    ");
    assert!(sim.end(short).1.unwrap().recoverable);
    let long = sim.child_of(parent, brief("l", "long", ""));
    let events = sim.tick_at(100);
    insta::assert_snapshot!(sim.ended(parent), @r"
    partial TIMEOUT: Timed out after 100 s, its own timeout.
    => `adjutant resume sess_1700000001_bbbbbb` gives it as much time again; what was found so far is in the result.
    ");
    // The child goes first, and both once.
    let order: Vec<SessionId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Ended { session, .. } => Some(*session),
            _ => None,
        })
        .collect();
    assert_eq!(order, [long, parent, sim.root()]);
    assert_eq!(sim.code(long), Some(ErrorCode::Timeout));
    sim.check_over();
}

#[test]
fn a_child_that_ends_at_its_parent_s_deadline_names_it() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    sim.now = Timestamp::from_millis(40_000);
    let child = sim.child_of(parent, Brief { timeout_wish: Some(80), ..brief("c", "child", "") });
    assert_eq!(sim.node(child).deadline(), sim.node(parent).deadline());
    sim.tick_at(100);
    insta::assert_snapshot!(sim.ended(child), @r"
    partial TIMEOUT: Timed out with the one it worked for.
    => `adjutant resume sess_1700000001_bbbbbb` gives it as much time again; what was found so far is in the result.
    ");
}

#[test]
fn d6_the_total_ends_running_and_queued_children() {
    let set = ["enabled=true", "timeout_s=60", "timeout_max_s=60", "total_s=100", "concurrency=1"];
    let mut sim =
        Sim::new(Policy { contract: ContractKind::Report, ..policy(Preset::Story, &set) });
    let children = sim.children(["a", "b", "c", "d"].map(about).into());
    sim.tick_at(60);
    assert_eq!(sim.code(children[0]), Some(ErrorCode::Timeout));
    assert_eq!(sim.state(children[1]), DelegationState::Running);
    let events = sim.tick_at(100);
    // A delegation without time left is not started: it would be paid for and cut off at once.
    assert!(!kinds(&events).contains("started"), "{}", kinds(&events));
    insta::assert_snapshot!(sim.ended(children[1]), @"
    partial TIMEOUT: Timed out after 40 s, its parent's total for delegating (total_s).
    => `adjutant resume sess_1700000002_bbbbbb` gives it as much time again; what was found so far is in the result.
    ");
    insta::assert_snapshot!(sim.ended(children[2]), @r"
    partial TIMEOUT: Timed out before it found a place, its parent's total for delegating (total_s).
    => Delegate it again, with more time or fewer tasks beside it.
    ");
    assert!(sim.model_calls(children[2]).is_empty() && sim.model_calls(children[3]).is_empty());
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn a_child_whose_time_was_cut_by_the_total_names_it() {
    for begins_ms in [0, 50_000, 50_001, 50_999] {
        let set = ["enabled=true", "total_s=100"];
        let mut sim =
            Sim::new(Policy { contract: ContractKind::Report, ..policy(Preset::Story, &set) });
        sim.child(about("first"));
        sim.now = Timestamp::from_millis(begins_ms);
        let second = sim.child(about("second"));
        sim.tick_at(100);
        let (_, reason) = sim.end(second);
        let message = reason.unwrap().message;
        assert!(message.ends_with("its parent's total for delegating (total_s)."), "{message}");
    }
}

#[test]
fn a_model_that_is_silent_for_too_long_has_stalled() {
    let (mut sim, child) = one(&["stall_s=600"]);
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(600_000), DeadlineKind::Stall))
    );
    sim.now = Timestamp::from_millis(599_999);
    sim.submit(Command::Progress { session: child, bytes: 1 }).unwrap();
    assert_eq!(sim.tick_at(600), []);
    assert_eq!(sim.tick_at_ms(1_199_998), []);
    let held = sim.node(child).ledger.reserved;
    assert_eq!(kinds(&sim.tick_at_ms(1_199_999)), "attempt_failed");
    // The provider may bill what it was silent about.
    assert_eq!(sim.node(child).ledger.settled, held);
    let stopped = |effect: &&Effect| matches!(effect, Effect::StopModel { .. });
    assert_eq!(sim.effects.iter().filter(stopped).count(), 1, "the silent call is abandoned");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_200_499), DeadlineKind::Retry))
    );
    assert_eq!(sim.tick_next(), Some(DeadlineKind::Retry));
    assert_eq!(sim.tick_next(), Some(DeadlineKind::Stall));
    assert_eq!(sim.tick_next(), Some(DeadlineKind::Retry));
    assert_eq!(sim.tick_next(), Some(DeadlineKind::Stall));
    insta::assert_snapshot!(sim.ended(child), @r"
    partial STALLED: No byte came from the model for 600 s (attempt 3 of 3).
    => Try again, or use another model.
    ");
    assert_eq!(sim.model_calls(child).len(), 3);
    sim.check_over();
}

#[test]
fn a_stalled_attempt_is_retried_and_the_answer_counts() {
    let (mut sim, child) = one(&["stall_s=600"]);
    sim.tick_at(600);
    sim.tick_next();
    sim.say(child, "Here I am.");
    assert_eq!(sim.state(child), DelegationState::Ended(Outcome::Completed));
    sim.check_over();
}

#[test]
fn a_stalled_attempt_is_not_retried_beyond_its_time_or_budget() {
    let (mut sim, child) = one(&["stall_s=600", "timeout_s=900"]);
    sim.tick_at(600);
    sim.tick_next();
    assert_eq!(sim.tick_next(), Some(DeadlineKind::Timeout));
    assert_eq!(sim.code(child), Some(ErrorCode::Timeout));
    sim.check_over();

    let (mut sim, child) = begun(&["stall_s=600", "budget_tokens=9000"], small(90_000));
    sim.tick_at(600);
    sim.tick_next();
    while sim.node(child).is_live() {
        sim.tick_next();
    }
    assert_eq!(sim.code(child), Some(ErrorCode::BudgetExceeded));
    sim.check_over();
}

#[test]
fn a_stall_and_a_timeout_at_the_same_time_settle_the_call_once() {
    let (mut sim, child) = one(&["stall_s=600", "timeout_s=600"]);
    let events = sim.tick_at(600);
    assert_eq!(kinds(&events).matches("settled").count(), 1, "{}", kinds(&events));
    assert!(!kinds(&events).contains("attempt_failed"), "{}", kinds(&events));
    assert_eq!(sim.code(child), Some(ErrorCode::Timeout));
    sim.check_over();
}

#[test]
fn only_an_open_model_call_can_stall() {
    let (mut sim, child) = one(&["stall_s=10"]);
    // A tool has its own clock.
    sim.call(child, vec![read("1", "a")]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert_eq!(sim.tick_at(1_000), []);
    assert_eq!(sim.submit(Command::Progress { session: child, bytes: 1 }), Ok(vec![]));
    sim.output(child, 0, "text");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_010_000), DeadlineKind::Stall))
    );
    // So has a provider that asked us to wait.
    sim.fail(
        child,
        AttemptError { retry_after_ms: Some(60_000), ..error(ModelErrorKind::RateLimited) },
    );
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_060_000), DeadlineKind::Retry))
    );
    sim.tick_next();
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_070_000), DeadlineKind::Stall))
    );
    sim.cancel(child);
    assert_eq!(sim.tree.next_deadline(), None);
}

#[test]
fn without_stall_s_a_model_call_never_stalls() {
    let (mut sim, _) = one(&["stall_s=none"]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert_eq!(sim.tick_at(1_000_000), []);
}
