//! Part of `lifecycle`: errors.

use super::*;

#[test]
fn a_transient_failure_is_attempted_three_times_with_a_reservation_each() {
    let (mut sim, child) = begun(&[], small(90_000));
    for (attempt, wait) in [(1, 500), (2, 1_000)] {
        let now = sim.now.as_millis();
        let events = sim.fail(child, error(ModelErrorKind::Overloaded));
        assert_eq!(kinds(&events), "attempt_failed");
        assert_eq!(
            sim.tree.next_deadline(),
            Some((Timestamp::from_millis(now + wait), DeadlineKind::Retry)),
            "attempt {attempt}"
        );
        assert_eq!(sim.tick_at_ms(now + wait - 1), []);
        assert_eq!(kinds(&sim.tick_at_ms(now + wait)), "reserved");
        let open = sim.node(child).reservation().unwrap();
        assert_eq!((open.turn, open.attempt), (1, attempt + 1));
    }
    sim.fail(child, error(ModelErrorKind::Overloaded));
    insta::assert_snapshot!(sim.ended(child), @r"
    failed PROVIDER_ERROR: provider overloaded: the provider said so
    => Try again later, or use another model.
    ");
    assert_eq!(sim.model_calls(child).len(), MAX_ATTEMPTS as usize);
    assert_eq!(sim.node(child).usage.total(), 3 * (BILLED + 4_096));
    sim.check_over();
}

#[test]
fn a_new_turn_has_all_its_attempts() {
    let (mut sim, child) = one(&[]);
    for turn in 1..=3 {
        for _ in 1..MAX_ATTEMPTS {
            sim.fail(child, error(ModelErrorKind::RateLimited));
            sim.tick_next();
        }
        let open = sim.node(child).reservation().unwrap();
        assert_eq!((open.turn, open.attempt), (turn, MAX_ATTEMPTS));
        sim.call(child, vec![read("1", &turn.to_string())]);
        sim.output(child, 0, "text");
    }
}

#[test]
fn the_provider_s_retry_delay_is_respected() {
    let (mut sim, child) = one(&[]);
    sim.fail(
        child,
        AttemptError { retry_after_ms: Some(7_000), ..error(ModelErrorKind::RateLimited) },
    );
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(7_000), DeadlineKind::Retry))
    );
    // The retry is not made earlier.
    assert_eq!(sim.submit(Command::TakeTurn { session: child }), Ok(vec![]));
}

#[test]
fn every_kind_of_model_error_ends_as_specified() {
    let lines: Vec<String> = [
        ModelErrorKind::RateLimited,
        ModelErrorKind::Overloaded,
        ModelErrorKind::Network,
        ModelErrorKind::Truncated,
        ModelErrorKind::ContextExhausted,
        ModelErrorKind::Authentication,
        ModelErrorKind::OutOfCredit,
        ModelErrorKind::BadRequest,
        ModelErrorKind::Refused,
        ModelErrorKind::ScriptEnded,
    ]
    .into_iter()
    .map(|kind| {
        let (mut sim, child) = one(&[]);
        sim.fail(child, error(kind));
        let retried = sim.node(child).is_live();
        while sim.node(child).is_live() {
            sim.tick_next();
            sim.fail(child, error(kind));
        }
        assert_eq!(kind.is_transient(), retried);
        format!("{} calls, {}", sim.model_calls(child).len(), sim.ended(child))
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    3 calls, failed PROVIDER_ERROR: rate limited: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: provider overloaded: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: network error: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: incomplete answer: the provider said so
    => Try again later, or use another model.
    1 calls, partial CONTEXT_EXHAUSTED: The provider reports that the context is full: the provider said so (estimated before the call: 3 of 200,000 tokens).
    => Split the task, or use a model with a larger window.
    1 calls, failed PROVIDER_ERROR: authentication failed: the provider said so
    => Check the key of this provider.
    1 calls, failed PROVIDER_ERROR: out of credit: the provider said so
    => Add credit to the account of this provider or raise its spend limit, or use another model.
    1 calls, failed PROVIDER_ERROR: request rejected: the provider said so
    => Use another model, or change the task.
    1 calls, failed PROVIDER_ERROR: refused by the provider: the provider said so
    => Change the task, or use another model.
    1 calls, failed PROVIDER_ERROR: script ended: the provider said so
    => Add the missing turn to the script, or record again.
    ");
}

#[test]
fn what_was_found_before_a_failure_makes_it_partial() {
    let fails = |sim: &mut Sim, child| {
        sim.fail(child, error(ModelErrorKind::Authentication));
        sim.end(child).0
    };
    // A tool result alone does not count as a finding; a note and a text do.
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![read("1", "a")]);
    sim.output(child, 0, "text");
    assert_eq!(fails(&mut sim, child), Outcome::Failed);
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![tool("1", "Note", json!({"text": "x"}))]);
    let note =
        ToolOutput { content: "Noted.".into(), note: Some("x".into()), ..ToolOutput::default() };
    sim.submit(Command::TakeOutput { session: child, turn: 1, call: 0, output: note }).unwrap();
    assert_eq!(fails(&mut sim, child), Outcome::Partial);
    let (mut sim, child) = one(&[]);
    sim.reply(child, ModelReply { text: "So far: x.".into(), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "text");
    assert_eq!(fails(&mut sim, child), Outcome::Partial);
}

#[test]
fn retries_due_at_once_share_what_is_left() {
    // Failures count in full: after two of them only one call is left for two children.
    let each = BILLED + 1_000;
    let set = format!("budget_tokens_run={}", 3 * each + 100);
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set]));
    let children =
        sim.children(vec![small(90_000), Brief { prompt: "y".repeat(400), ..small(90_000) }]);
    for child in &children {
        sim.fail(*child, error(ModelErrorKind::Network));
    }
    sim.tick_at(10);
    assert_eq!(sim.model_calls(children[0]).len(), 2);
    assert_eq!(sim.code(children[1]), Some(ErrorCode::BudgetExceeded));
    sim.say(children[0], "done");
    sim.check_over();
}

#[test]
fn a_retry_that_is_due_with_the_deadline_is_not_made() {
    let (mut sim, child) = begun(&[], Brief { timeout_wish: Some(5), ..small(90_000) });
    sim.fail(child, error(ModelErrorKind::Network));
    sim.tick_at(5);
    assert_eq!((sim.code(child), sim.model_calls(child).len()), (Some(ErrorCode::Timeout), 1));
    sim.check_over();
}

#[test]
fn a_retry_that_is_not_made_reserves_nothing() {
    // Both retries are due with the first one's deadline, and one call is left.
    let each = BILLED + 1_000;
    let set = format!("budget_tokens_run={}", 4 * each);
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set]));
    let briefs = vec![
        Brief { timeout_wish: Some(5), ..small(90_000) },
        Brief { prompt: "y".repeat(400), ..small(90_000) },
    ];
    let children = sim.children(briefs);
    for child in &children {
        sim.fail(*child, error(ModelErrorKind::Network));
    }
    sim.tick_at(5);
    assert_eq!(sim.code(children[0]), Some(ErrorCode::Timeout));
    assert_eq!(last_model_call(&sim, children[1]), (1_000, true));
    sim.say(children[1], "done");
    sim.check_over();
}

#[test]
fn a_retry_that_the_budget_cannot_pay_is_not_made() {
    let set = format!("budget_tokens={}", BILLED + 4_096 + BILLED + 50);
    let (mut sim, child) = begun(&[&set], small(90_000));
    sim.fail(child, error(ModelErrorKind::Network));
    sim.tick_next();
    assert_eq!(
        (sim.code(child), sim.model_calls(child).len()),
        (Some(ErrorCode::BudgetExceeded), 1)
    );
}
