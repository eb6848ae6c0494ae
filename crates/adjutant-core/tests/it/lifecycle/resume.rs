//! Resuming after a crash or an end: what continues, and what is never repeated.

use std::collections::BTreeSet;

use adjutant_core::{
    Command, DelegationState, ErrorCode, Event, ModelErrorKind, ModelReply, Outcome, Preset,
    ResumeOptions, Rights, SessionId, ToolSet,
};
use serde_json::{Value, json};

use super::{begun, small};
use crate::sim::{Sim, about, asks, error, policy, read, says, scout, tool, used};

/// Options that resume everything, with the rights of the run's own policy.
fn wish(sim: &Sim) -> ResumeOptions {
    ResumeOptions { rights: Rights::of(sim.tree.policy()), ..ResumeOptions::default() }
}

fn answers(events: &[Event], session: SessionId) -> Vec<(u32, &str)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::ToolReturned { session: of, call, output } if *of == session => {
                Some((*call, output.content.as_str()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_call_under_way_counts_as_spent_and_is_made_once_more() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    let open = sim.node(child).reservation().unwrap();
    let wish = wish(&sim);
    sim.restart(wish);
    assert_eq!(sim.node(child).ledger.settled.tokens, open.amount.tokens);
    let again = sim.node(child).reservation().unwrap();
    assert_eq!((again.turn, again.attempt), (open.turn, open.attempt + 1));
    assert_eq!(sim.model_calls(child).len(), 1);
}

#[test]
fn crashes_do_not_count_as_attempts() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    for _ in 0..5 {
        let wish = wish(&sim);
        sim.restart(wish);
    }
    for _ in 0..2 {
        sim.fail(child, error(ModelErrorKind::Overloaded));
        assert!(sim.state(child).is_live());
        sim.tick_next();
    }
    sim.fail(child, error(ModelErrorKind::Overloaded));
    assert_eq!(sim.code(child), Some(ErrorCode::ProviderError));
}

#[test]
fn reading_calls_run_again_and_calls_with_effects_are_not_repeated() {
    let mut policy = policy(Preset::Story, &["enabled=true"]);
    policy.approval = adjutant_core::policy::ApprovalRule::None;
    let mut sim = Sim::new(policy);
    let child = sim.child(about("a"));
    let first = tool("2", "Run", json!({"command": "make"}));
    let second = tool("3", "Run", json!({"command": "make test"}));
    sim.call(child, vec![read("1", "a"), first, second]);
    assert_eq!(sim.tools_run(child), ["Read", "Run"]);
    let wish = wish(&sim);
    let events = sim.restart(wish);
    let told = answers(&events, child);
    let [(1, text)] = told[..] else { panic!("{told:?}") };
    assert!(text.starts_with("Interrupted"), "{text}");
    // The second waited for the first, so it was not made yet; the runtime makes it once, however
    // often it is asked.
    assert!(sim.tools_run(child).contains(&"Run"));
    sim.output(child, 2, "ran");
    // After a second crash no result is delivered twice.
    let wish = ResumeOptions { rights: Rights::of(sim.tree.policy()), ..ResumeOptions::default() };
    let events = sim.restart(wish);
    assert!(answers(&events, child).is_empty());
    sim.output(child, 0, "text");
    assert!(sim.node(child).reservation().is_some(), "it goes on once all are answered");
}

#[test]
fn a_recorded_reply_is_used_and_not_paid_for_again() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    let open = sim.node(child).reservation().unwrap();
    for (reply, expected) in [(asks(vec![read("1", "a")]), "Read"), (says("the report"), "")] {
        // Only the answer itself reached the disk, and nothing that follows from it.
        let (session, turn, attempt) = (child, open.turn, open.attempt);
        let command = Command::Reply { session, turn, attempt, reply };
        let events = sim.tree.decide(sim.now, command).unwrap();
        let mut log = sim.log.clone();
        log.extend(events.into_iter().map(|event| (sim.now, event)));
        let mut after = Sim::replay(&log);
        let wish = wish(&after);
        after.restart(wish);
        assert!(after.model_calls(child).is_empty());
        if expected.is_empty() {
            assert_eq!(after.state(child), DelegationState::Ended(Outcome::Completed));
        } else {
            assert_eq!(after.tools_run(child), [expected]);
        }
    }
}

#[test]
fn after_a_resume_rights_are_the_recorded_and_the_present_ones() {
    let mut sim = Sim::new(scout(&["network=true"]));
    let child = sim.child(about("a"));
    assert!(sim.node(child).rights.network);
    let rights = Rights { tools: ToolSet::new(["Read", "Write"]), ..Rights::default() };
    sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    let rights = &sim.node(child).rights;
    assert_eq!((rights.tools.to_string().as_str(), rights.network), ("Read", false));
    // More rights now do not bring back what was given up.
    let wish = wish(&sim);
    sim.restart(wish);
    assert_eq!(sim.node(child).rights.tools.to_string(), "Read");
}

#[test]
fn completed_work_stays_and_unfinished_work_is_resumed() {
    let mut sim = Sim::new(scout(&["concurrency=4"]));
    let [done, cancelled, failed, crashed] =
        sim.children(vec![about("a"), about("b"), about("c"), about("d")])[..]
    else {
        panic!("four children")
    };
    sim.say(done, "the report");
    sim.cancel(cancelled);
    sim.fail(failed, error(ModelErrorKind::Authentication));
    let (message, backtrace) = ("boom".into(), String::new());
    sim.submit(Command::Crash { session: crashed, message, backtrace }).unwrap();
    assert!(sim.tree.outcome().is_some());
    let wish = wish(&sim);
    let events = sim.restart(wish);
    let again: Vec<SessionId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Reopened(it) => Some(it.session),
            _ => None,
        })
        .collect();
    assert_eq!(again, [cancelled, failed], "what is done, and a defect of ours, stay as they are");
    sim.say(cancelled, "at last");
    sim.say(failed, "at last");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn only_a_message_resumes_completed_or_blocked_work() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    sim.say(child, "the report");
    let named = |say: Option<&str>, sim: &Sim| ResumeOptions {
        session: Some(child),
        say: say.map(str::to_owned),
        ..wish(sim)
    };
    let silent = named(None, &sim);
    assert!(sim.restart(silent).is_empty());
    let spoken = named(Some("And the tests?"), &sim);
    sim.restart(spoken);
    assert_eq!(sim.state(child), DelegationState::Running);
    sim.say(child, "They pass.");
    sim.check_over();
}

#[test]
fn a_new_timeout_counts_from_the_resume() {
    let mut sim = Sim::new(scout(&["timeout_s=10"]));
    let child = sim.child(about("a"));
    sim.tick_at(10);
    assert_eq!(sim.code(child), Some(ErrorCode::Timeout));
    let wish = ResumeOptions { timeout_s: Some(60), ..wish(&sim) };
    sim.restart(wish);
    assert_eq!(sim.node(child).deadline().unwrap().as_millis(), 70_000);
    sim.tick_at(69);
    assert!(sim.state(child).is_live());
}

#[test]
fn a_resume_does_not_renew_money_and_tokens() {
    let mut sim = Sim::new(scout(&["budget_tokens_run=20000"]));
    let child = sim.child(about("a"));
    let spent = sim.node(child).ledger.settled;
    for _ in 0..20 {
        if sim.tree.outcome().is_some() {
            break;
        }
        let wish = wish(&sim);
        sim.restart(wish);
    }
    // Each crash in flight counts in full, so the budget ends the run whatever happens.
    assert_eq!(sim.code(child), Some(ErrorCode::BudgetExceeded));
    assert!(sim.node(child).ledger.settled.tokens > spent.tokens);
    let wish = wish(&sim);
    sim.restart(wish);
    assert!(sim.model_calls(child).is_empty());
    assert!(sim.tree.outcome().is_some(), "nothing is left to go on with");
}

#[test]
fn an_open_call_needs_the_present_rights() {
    let mut sim = Sim::new(scout(&["network=true"]));
    let child = sim.child(about("a"));
    let fetch = tool("2", "WebFetch", json!({"url": "https://docs.example/"}));
    sim.call(child, vec![tool("1", "Grep", json!({"pattern": "x"})), fetch]);
    assert_eq!(sim.tree.open_questions(), 1);
    let rights = Rights { tools: ToolSet::new(["Read"]), ..Rights::default() };
    let events = sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    let refused =
        |event: &&Event| matches!(event, Event::ToolRefused { session, .. } if *session == child);
    assert_eq!(events.iter().filter(refused).count(), 2);
    assert!(sim.tools_run(child).is_empty());
    assert_eq!(sim.tree.open_questions(), 0);
}

#[test]
fn after_a_resume_an_agent_has_at_most_the_rights_of_its_present_definition() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    let narrowed =
        Rights { tools: ToolSet::new(["Read", "Note"]), network: true, ..Rights::default() };
    let agents = [(sim.node(child).agent.clone(), narrowed)].into();
    let wish = ResumeOptions { agents, ..wish(&sim) };
    sim.restart(wish);
    assert_eq!(sim.node(child).rights.tools.to_string(), "Note, Read");
}

#[test]
fn a_new_timeout_applies_to_every_delegation_of_an_interrupted_run() {
    let mut sim = Sim::new(scout(&["concurrency=1"]));
    let [works, waits] = sim.children(vec![about("a"), about("b")])[..] else { panic!("two") };
    assert_eq!(sim.node(works).deadline(), None);
    let wish = ResumeOptions { timeout_s: Some(60), ..wish(&sim) };
    sim.restart(wish);
    assert_eq!(sim.node(works).deadline().unwrap().as_millis(), 60_000);
    sim.tick_at(60);
    assert_eq!(sim.code(works), Some(ErrorCode::Timeout));
    assert_eq!(sim.node(waits).deadline().unwrap().as_millis(), 120_000);
}

#[test]
fn a_new_timeout_is_clamped_to_the_maximum_of_the_operation() {
    // A working, a queued and an ended agent: none gets more time, and the clamping is recorded.
    let mut sim = Sim::new(scout(&["concurrency=1", "timeout_s=100", "timeout_max_s=300"]));
    let [ended, works, waits] = sim.children(vec![about("a"), about("b"), about("c")])[..] else {
        panic!("three")
    };
    sim.tick_at(100);
    assert_eq!(sim.code(ended), Some(ErrorCode::Timeout));
    let cut = |seconds: u64, sim: &mut Sim| {
        let wish = ResumeOptions { timeout_s: Some(seconds), ..wish(sim) };
        let events = sim.restart(wish);
        events.iter().any(|event| matches!(event, Event::Resumed { clamped: true, .. }))
    };
    assert!(!cut(300, &mut sim), "exactly the most");
    assert!(cut(99_999_999, &mut sim));
    assert_eq!(sim.node(works).deadline().unwrap().as_millis(), 400_000);
    sim.tick_at(400);
    assert_eq!(sim.node(waits).deadline().unwrap().as_millis(), 700_000);
    sim.cancel(sim.root());
    assert!(cut(99_999_999, &mut sim));
    assert!(sim.node(ended).deadline().is_none_or(|it| it.as_millis() <= 700_000));
}

#[test]
fn unapproved_work_cannot_be_resumed() {
    let mut sim = Sim::new(policy(Preset::Scout, &[]));
    let child = sim.child(about("a"));
    assert_eq!(sim.state(child), DelegationState::AwaitingApproval);
    sim.cancel(sim.root());
    let wish = wish(&sim);
    assert!(sim.restart(wish).is_empty());
}

#[test]
fn a_full_disk_ends_a_delegation_below_an_ended_parent() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(about("a"));
    let child = sim.child_of(parent, crate::sim::brief("b", "helper", "look"));
    sim.cancel(sim.root());
    let wish = ResumeOptions { session: Some(child), ..wish(&sim) };
    sim.restart(wish);
    assert_eq!(sim.state(child), DelegationState::Running);
    assert!(!sim.state(parent).is_live());
    sim.submit(Command::DiskFull { lost: [child].into() }).unwrap();
    assert!(!sim.state(child).is_live());
    sim.check_over();
}

/// Ends a run because the disk is full, right after the answer of its only child was recorded.
fn full_after(reply: ModelReply) -> (Sim, SessionId) {
    let (mut sim, child) = begun(&[], about("a"));
    let open = sim.node(child).reservation().unwrap();
    let (turn, attempt) = (open.turn, open.attempt);
    sim.record_only(Command::Reply { session: child, turn, attempt, reply });
    sim.submit(Command::DiskFull { lost: BTreeSet::new() }).unwrap();
    sim.check_over();
    (sim, child)
}

#[test]
fn a_final_answer_that_a_full_disk_left_unjudged_is_judged_on_resume() {
    let (mut sim, child) = full_after(says("found it"));
    let on = wish(&sim);
    sim.restart(on);
    assert!(sim.model_calls(child).is_empty(), "no turn is bought");
    assert_eq!(sim.state(child), DelegationState::Ended(Outcome::Completed));

    let (mut sim, child) = full_after(says("found it"));
    let say = Some("And the other one?".to_owned());
    let on = ResumeOptions { say, ..wish(&sim) };
    sim.restart(on);
    assert_eq!(sim.model_calls(child).len(), 1, "a person's words need an answer");
}

#[test]
fn tool_calls_that_a_full_disk_left_open_are_run_on_resume_where_that_does_no_harm() {
    let (mut sim, child) = full_after(asks(vec![read("1", "a.txt"), tool("2", "Note", json!({}))]));
    let on = wish(&sim);
    let events = sim.restart(on);
    assert_eq!(sim.tools_run(child), ["Read", "Note"], "neither was begun");
    assert_eq!(answers(&events, child), []);

    let mut policy = policy(Preset::Story, &["enabled=true"]);
    policy.approval = adjutant_core::policy::ApprovalRule::None;
    // The first command had started, the second waited for it. Without the right to read, nothing is read.
    for (rights, unanswered) in [("Read, Run", vec![1]), ("Run", vec![0, 1])] {
        let mut sim = Sim::new(policy.clone());
        let child = sim.child(about("a"));
        let run = |id| tool(id, "Run", json!({"command": "make"}));
        sim.call(child, vec![read("1", "a.txt"), run("2"), run("3")]);
        sim.submit(Command::DiskFull { lost: BTreeSet::new() }).unwrap();
        let mut on = wish(&sim);
        on.rights.tools = ToolSet::new(rights.split(", "));
        let events = sim.restart(on);
        let reopened = events.iter().find_map(|event| match event {
            Event::Reopened(reopening) => Some(reopening.unanswered.clone()),
            _ => None,
        });
        assert_eq!(reopened, Some(unanswered), "{rights}");
        let is_read = sim.tools_run(child).contains(&"Read");
        assert_eq!(is_read, rights.contains("Read"), "{rights}");
    }
}

/// Returns the limits of a run with some of them changed.
fn with_limits(sim: &Sim, settings: &[(&str, Value)]) -> ResumeOptions {
    let mut limits = sim.tree.policy().clone();
    for (name, value) in settings {
        limits.set_on_resume(name, value).unwrap();
    }
    let rights = Rights::of(sim.tree.policy());
    ResumeOptions { rights, limits: Some(Box::new(limits)), ..ResumeOptions::default() }
}

/// Returns why a delegation ended last; it may have ended before.
fn last_code(sim: &Sim, child: SessionId) -> Option<ErrorCode> {
    sim.log.iter().rev().find_map(|(_, event)| match event {
        Event::Ended { session, reason, .. } if *session == child => Some(reason.as_ref()?.code),
        _ => None,
    })
}

#[test]
fn a_run_without_budget_is_resumed_with_a_larger_one() {
    let (mut sim, child) = begun(&["budget_tokens_run=9000"], small(90_000));
    sim.reply(child, ModelReply { usage: used(8_000, 700), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "text");
    assert_eq!(sim.code(child), Some(ErrorCode::BudgetExceeded));
    let spent = sim.node(sim.root()).ledger.settled;

    let unchanged = ResumeOptions { limits: None, ..with_limits(&sim, &[]) };
    sim.restart(unchanged);
    assert_eq!(
        last_code(&sim, child),
        Some(ErrorCode::BudgetExceeded),
        "nothing is left of the old one"
    );

    sim.restart(with_limits(&sim, &[("budget_tokens_run", json!(60_000))]));
    assert_eq!(sim.node(sim.root()).ledger.cap.tokens, Some(60_000));
    assert_eq!(sim.node(sim.root()).ledger.settled, spent, "what is spent stays spent");
    sim.say(child, "done");
    assert_eq!(sim.state(child), DelegationState::Ended(Outcome::Completed));
    let again = Sim::replay(&sim.log);
    assert_eq!(again.tree.policy().budget_tokens_run, Some(60_000), "the journal has the limit");
    sim.check_over();
}

#[test]
fn a_budget_below_what_is_spent_allows_no_further_call() {
    let (mut sim, child) = begun(&[], small(90_000));
    sim.reply(child, ModelReply { usage: used(300, 700), ..asks(vec![read("1", "a")]) });
    sim.cancel(child);
    sim.restart(with_limits(&sim, &[("budget_tokens_run", json!(10))]));
    assert!(sim.model_calls(child).is_empty());
    assert_eq!(last_code(&sim, child), Some(ErrorCode::BudgetExceeded));
    assert!(sim.node(sim.root()).ledger.is_within_cap());
    sim.check_over();
}

#[test]
fn only_budgets_times_and_concurrency_can_change_on_resume() {
    let mut policy = scout(&[]);
    let told: Vec<String> = ["tools", "max_depth", "budget_usdd", "concurrency"]
        .into_iter()
        .filter_map(|name| policy.set_on_resume(name, &json!(3)).err())
        .map(|error| error.to_string())
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    tools: cannot be changed when a run is resumed; `resume` sets concurrency, concurrency_max, timeout_s, timeout_max_s, total_s, stall_s, budget_tokens, budget_tokens_run, budget_usd, approval_s
    max_depth: cannot be changed when a run is resumed; `resume` sets concurrency, concurrency_max, timeout_s, timeout_max_s, total_s, stall_s, budget_tokens, budget_tokens_run, budget_usd, approval_s
    unknown policy key `budget_usdd`; did you mean `budget_usd`?
    ");
}
