//! Part of `lifecycle`: a run that a client started and the user approves before it begins.

use adjutant_core::assignment::SlashCommandAssignment;
use adjutant_core::policy::Operation;
use adjutant_core::story::StoryAssignment;
use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::{Price, ResumeOptions, Rights};

use super::*;

fn led(settings: &[&str], model: ModelSpec) -> Sim {
    let policy =
        policy(Preset::Command, &[&["approval=batch", "in_place=true"], settings].concat());
    Sim::led_on(policy, "research", "/research 7", model)
}

fn command(tasks: &[u64]) -> Command {
    let assignment = SlashCommandAssignment {
        tasks: tasks.to_vec(),
        sent: Some("/research 7".into()),
        ..SlashCommandAssignment::new("research", Operation::Research)
    };
    Command::AskToBegin { assignment: Some(Box::new(assignment)), story: None }
}

fn story(title: &str) -> Command {
    let plan = vec![adjutant_core::story::MarkedTask {
        description: "A part".into(),
        hours: 1,
        verify: None,
    }];
    let work = StoryAssignment {
        id: "US-001".into(),
        title: title.into(),
        plan,
        ..StoryAssignment::default()
    };
    Command::AskToBegin { assignment: None, story: Some(Box::new(work)) }
}

/// Asks; returns the hash of the question.
fn ask(sim: &mut Sim, command: Command) -> String {
    let events = sim.submit(command).unwrap();
    sim.submit(Command::TakeTurn { session: sim.root() }).unwrap();
    question(&events)
}

#[test]
fn nothing_of_a_run_happens_before_its_approval_and_its_time_starts_then() {
    let mut sim = led(&[], model());
    let root = sim.root();
    let hash = ask(&mut sim, command(&[7]));
    assert_eq!(sim.state(root), DelegationState::AwaitingApproval);
    let asks = Effect::AskApproval { parent: root, call: WHOLE_RUN, hash: hash.clone() };
    assert_eq!(sim.effects, [asks]);
    assert_eq!(sim.node(root).deadline(), None);
    assert!(sim.ask(root, vec![about("x")], None).is_err(), "it hands nothing down");
    sim.tick_at(600);
    let events = sim.submit(yes(&hash)).unwrap();
    assert_eq!(kinds(&events), "approved started");
    let longest = Operation::Research.max_seconds();
    assert_eq!(sim.node(root).deadline(), Some(Timestamp::ZERO.plus_seconds(600 + longest)));
    // Its task is marked before it thinks.
    assert!(matches!(sim.effects.last(), Some(Effect::UpdateTaskList { .. })), "{:?}", sim.effects);
    assert_eq!(sim.submit(yes(&hash)).unwrap_err().code(), ErrorCode::ApprovalDenied);
    sim.check_invariants();
}

#[test]
fn a_story_that_waits_for_approval_makes_no_workspace_and_delegates_nothing() {
    let policy = policy(Preset::Story, &["approval=batch", "enabled=true"]);
    let mut sim = Sim::led(policy, "story", "Log in");
    let root = sim.root();
    let hash = ask(&mut sim, story("Log in"));
    assert!(matches!(sim.effects[..], [Effect::AskApproval { .. }]), "{:?}", sim.effects);
    sim.spaces_at_once = false;
    sim.tick_at(60);
    let events = sim.submit(yes(&hash)).unwrap();
    assert_eq!(kinds(&events), "approved started");
    assert!(matches!(sim.effects.last(), Some(Effect::MakeWorkspace { .. })), "{:?}", sim.effects);
    assert_eq!(sim.node(root).deadline(), Some(Timestamp::ZERO.plus_seconds(60 + 7_200)));
}

#[test]
fn denial_expiry_and_cancelling_end_a_run_before_it_begins() {
    let mut denied = led(&[], model());
    let hash = ask(&mut denied, command(&[7]));
    let no = Command::Deny { hash, reason: "a person said no".into() };
    assert_eq!(kinds(&denied.submit(no).unwrap()), "denied ended run_ended");

    let mut silent = led(&[], model());
    ask(&mut silent, command(&[7]));
    assert_eq!(silent.tick_next(), Some(DeadlineKind::Approval));

    let mut cancelled = led(&[], model());
    ask(&mut cancelled, command(&[7]));
    let root = cancelled.root();
    cancelled.cancel(root);
    for (sim, outcome) in
        [(denied, Outcome::Refused), (silent, Outcome::Refused), (cancelled, Outcome::Cancelled)]
    {
        assert_eq!(sim.tree.outcome(), Some(outcome));
        assert!(sim.effects.iter().all(|effect| !matches!(effect, Effect::UpdateTaskList { .. })));
        assert_eq!(sim.tree.open_questions(), 0);
        sim.check_over();
        // A resume cannot bypass the question.
        let mut again = Sim::replay(&sim.log);
        assert_eq!(again.submit(Command::Resume(Box::default())).unwrap(), []);
    }
}

#[test]
fn an_approval_of_a_run_is_bound_to_all_its_opening_events() {
    let hash = |settings: &[&str], asked: Command| ask(&mut led(settings, model()), asked);
    let one = hash(&[], command(&[7]));
    assert_eq!(one, hash(&[], command(&[7])));
    let other = ["concurrency=2"];
    let all = [one, hash(&[], command(&[8])), hash(&other, command(&[7])), hash(&[], story("a"))];
    let mut different = [&all[..], &[hash(&[], story("b"))]].concat();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 5);
}

/// The whole worst case must fit. A model without a price never fits; a free one fits even an empty allowance.
#[test]
fn a_run_begins_without_approval_within_the_amount() {
    let price = Price { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 };
    let free = ModelSpec { price: Some(price), ..model() };
    for (limit, budget, model, begins) in [
        (Some(2.0), "budget_usd=2", priced(), true),
        (Some(2.0), "budget_usd=2.01", priced(), false),
        (Some(9.0), "budget_usd=2", model(), false),
        (Some(0.0), "budget_usd=2", free.clone(), true),
        (Some(0.0), "budget_usd=2", priced(), false),
        (None, "budget_usd=2", free, false),
    ] {
        let mut policy = policy(Preset::Command, &["approval=batch", "in_place=true", budget]);
        policy.approve_below_usd = limit.and_then(Usd::from_dollars);
        let mut sim = Sim::led_on(policy, "research", "/research 7", model);
        sim.submit(command(&[])).unwrap();
        let root = sim.root();
        assert_eq!(sim.state(root) == DelegationState::Running, begins, "{limit:?} {budget}");
        assert_eq!(sim.tree.auto_approved(), Usd::ZERO, "what it hands down is counted then");
    }
}

#[test]
fn a_run_that_crashed_around_its_approval_is_resumed_from_there() {
    let mut sim = led(&[], model());
    let root = sim.root();
    let hash = ask(&mut sim, command(&[]));
    let rights = Rights::of(sim.tree.policy());
    let wish = || ResumeOptions { rights: rights.clone(), ..ResumeOptions::default() };
    sim.restart(wish());
    let again = Effect::AskApproval { parent: root, call: WHOLE_RUN, hash: hash.clone() };
    assert!(sim.effects.contains(&again), "{:?}", sim.effects);
    assert_eq!(sim.state(root), DelegationState::AwaitingApproval);
    sim.submit(yes(&hash)).unwrap();
    let is_answer = |(_, event): &(Timestamp, Event)| matches!(event, Event::Approved { .. });
    let answer = sim.log.iter().position(is_answer).unwrap();
    sim.log.truncate(answer + 1);
    let events = sim.restart(wish());
    assert!(kinds(&events).contains("started"), "{}", kinds(&events));
    assert_eq!(sim.state(root), DelegationState::Running);
}
