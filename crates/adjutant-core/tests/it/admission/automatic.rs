//! Part of `admission`: auto-approved calls.

use super::*;
use crate::sim::says;

/// A policy that asks, with small budgets so that amounts are easy to read: one task can cost
/// 10,000 output tokens at $15 a million, 15 cents.
fn below(dollars: &str) -> Policy {
    let below = format!("approve_below_usd={dollars}");
    policy(Preset::Scout, &["budget_tokens=10000", "budget_usd=5", &below])
}

fn paid(label: &str) -> Brief {
    Brief { model: Some(priced()), ..about(label) }
}

/// Says what became of one call: started at which amount, or asked.
fn call(sim: &mut Sim, briefs: Vec<Brief>) -> String {
    let root = sim.root();
    let events = sim.ask(root, briefs, None).unwrap();
    let words = events.iter().find_map(|event| match event {
        Event::AutoApproved { amount, .. } => Some(format!("starts at {amount}")),
        Event::ApprovalAsked { .. } => Some("asks".to_owned()),
        _ => None,
    });
    words.unwrap_or_else(|| "neither".to_owned())
}

#[test]
fn calls_start_until_their_worst_cases_exceed_the_amount() {
    // Two tasks of 15 cents each fit 45 cents, one more does, and then nothing does.
    let mut sim = Sim::new(below("0.45"));
    let said: Vec<String> = [vec!["a", "b"], vec!["c"], vec!["d"]]
        .into_iter()
        .map(|labels| call(&mut sim, labels.into_iter().map(paid).collect()))
        .collect();
    assert_eq!(said, ["starts at $0.30", "starts at $0.15", "asks"]);
    assert_eq!(sim.tree.auto_approved(), Usd::from_dollars(0.45).unwrap());
    assert_eq!(sim.tree.waiting(), 2, "one for a person, one for a place");
    // Actual costs below the worst case release nothing: the next call asks too.
    let first = sim.tree.nodes().nth(1).unwrap().session;
    sim.say(first, "done");
    assert_eq!(call(&mut sim, vec![paid("e")]), "asks");
}

#[test]
fn the_auto_approval_amount_is_inclusive() {
    for (dollars, said) in [("0.15", "starts at $0.15"), ("0.1499999", "asks"), ("none", "asks")] {
        assert_eq!(call(&mut Sim::new(below(dollars)), vec![paid("a")]), said, "{dollars}");
    }
}

#[test]
fn a_model_without_a_price_is_never_auto_approved() {
    let unpriced = about("b");
    let nobody = Brief { model: None, ..about("c") };
    for odd in [unpriced, nobody] {
        let mut sim = Sim::new(below("1000"));
        assert_eq!(call(&mut sim, vec![odd.clone()]), "asks");
        // One such task among others makes the whole call ask.
        assert_eq!(call(&mut sim, vec![paid("a"), odd]), "asks");
        assert_eq!(sim.tree.auto_approved(), Usd::ZERO);
    }
}

#[test]
fn the_worst_case_is_capped_by_the_rest_of_the_run_s_budget() {
    let settings = ["budget_tokens=none", "budget_usd=0.50", "approve_below_usd=0.90"];
    let mut sim = Sim::new(policy(Preset::Scout, &settings));
    assert_eq!(call(&mut sim, vec![paid("a")]), "starts at $0.50");
    let first = sim.tree.nodes().nth(1).unwrap().session;
    // Held open is not spent: while the first works, a second could still risk all of it.
    assert_eq!(call(&mut sim, vec![paid("b")]), "asks");
    // 10,000 tokens in and 6,000 out are 12 cents; 38 are left, and 50 + 38 fit 90.
    sim.reply(first, ModelReply { usage: used(10_000, 6_000), ..says("done") });
    assert_eq!(call(&mut sim, vec![paid("c")]), "starts at $0.38");
}

#[test]
fn a_call_that_starts_is_recorded_before_its_grants_and_reads_back_the_same() {
    let mut sim = Sim::new(below("0.30"));
    let root = sim.root();
    let events = sim.ask(root, vec![paid("a"), paid("b")], None).unwrap();
    assert!(matches!(events[0], Event::AutoApproved { .. }), "{:?}", events[0]);
    assert!(sim.effects.iter().all(|effect| !matches!(effect, Effect::AskApproval { .. })));
    // Whatever is torn off behind it, the amount counts.
    let mut torn = Sim::replay(&sim.log[..2]);
    assert_eq!(torn.tree.auto_approved(), sim.tree.auto_approved());
    assert_eq!(call(&mut torn, vec![paid("c")]), "asks");
    assert_eq!(format!("{:?}", Sim::replay(&sim.log).tree), format!("{:?}", sim.tree));
}

#[test]
fn without_approval_no_person_is_asked_and_nothing_is_counted() {
    let mut sim = Sim::new(Policy { approval: ApprovalRule::None, ..below("0.01") });
    assert_eq!(call(&mut sim, vec![paid("a")]), "neither");
    assert_eq!(sim.tree.auto_approved(), Usd::ZERO);
}

#[test]
fn content_may_lower_or_remove_the_auto_approval_amount_but_not_set_it() {
    let set = |start: Option<&str>, value: Value| {
        let mut layered = LayeredPolicy::new(Preset::Scout);
        if let Some(start) = start {
            let start = serde_json::from_str(start).unwrap();
            layered.set("approve_below_usd", &start, &PolicySource::UserConfig).unwrap();
        }
        let set = layered.set("approve_below_usd", &value, &PolicySource::ProjectConfig);
        set.map(|()| layered.policy().approve_below_usd).map_err(|error| error.to_string())
    };
    assert_eq!(set(Some("2"), json!(1)), Ok(Usd::from_dollars(1.0)));
    assert_eq!(set(Some("2"), json!(2)), Ok(Usd::from_dollars(2.0)));
    assert_eq!(set(Some("2"), json!("none")), Ok(None));
    assert_eq!(set(None, json!("none")), Ok(None));
    insta::assert_snapshot!(set(Some("2"), json!(3)).unwrap_err(), @"approve_below_usd: project config may not change 2.0 to 3.0, it may only be lowered or taken away");
    insta::assert_snapshot!(set(None, json!(0.01)).unwrap_err(), @"approve_below_usd: project config may not change none to 0.01, it may only be lowered or taken away");
}

fn allow_up_to(sim: &mut Sim, dollars: f64) -> Vec<Event> {
    let (hash, amount) = (asked_hash(sim), Usd::from_dollars(dollars).unwrap());
    sim.submit(Command::ApproveUpTo { hash, amount }).unwrap()
}

#[test]
fn yes_up_to_an_amount_lets_further_calls_start_until_it_is_used_up() {
    let mut sim = Sim::new(below("none"));
    assert_eq!(call(&mut sim, vec![paid("a")]), "asks");
    let events = allow_up_to(&mut sim, 0.45);
    insta::assert_snapshot!(serde_json::to_value(&events[0]).unwrap()["up_to"], @"0.45");
    // The approved call itself does not count.
    assert_eq!(sim.tree.auto_approved(), Usd::ZERO);
    assert_eq!(call(&mut sim, vec![paid("b"), paid("c")]), "starts at $0.30");
    assert_eq!(call(&mut sim, vec![paid("d")]), "starts at $0.15");
    assert_eq!(call(&mut sim, vec![paid("e")]), "asks");
    // A second answer counts from there on.
    allow_up_to(&mut sim, 0.15);
    assert_eq!(call(&mut sim, vec![paid("f")]), "starts at $0.15");
    assert_eq!(call(&mut sim, vec![paid("g")]), "asks");
    assert_eq!(sim.tree.auto_approval_limit(), Usd::from_dollars(0.60));
    assert_eq!(format!("{:?}", Sim::replay(&sim.log).tree), format!("{:?}", sim.tree));
}

#[test]
fn what_a_person_allowed_survives_every_cut_of_the_journal_and_never_lowers_the_policy() {
    let mut sim = Sim::new(below("0.15"));
    assert_eq!(call(&mut sim, vec![paid("a")]), "starts at $0.15");
    assert_eq!(call(&mut sim, vec![paid("b")]), "asks");
    let before = sim.log.len();
    allow_up_to(&mut sim, 0.30);
    for cut in before..=sim.log.len() {
        let mut cut_off = Sim::replay(&sim.log[..cut]);
        let allowed = if cut > before { "starts at $0.15" } else { "asks" };
        assert_eq!(call(&mut cut_off, vec![paid("c")]), allowed, "after {cut} records");
    }
    let mut generous = Sim::new(below("1.00"));
    assert_eq!(call(&mut generous, vec![about("unpriced")]), "asks");
    allow_up_to(&mut generous, 0.01);
    assert_eq!(call(&mut generous, vec![paid("d")]), "starts at $0.15");
}

#[test]
fn an_answer_up_to_an_amount_counts_once_and_only_for_an_open_question() {
    let mut sim = Sim::new(below("none"));
    assert_eq!(call(&mut sim, vec![paid("a")]), "asks");
    allow_up_to(&mut sim, 0.15);
    let amount = Usd::from_dollars(9.0).unwrap();
    for hash in ["00".to_owned(), asked_hash(&sim)] {
        let refused = sim.tree.decide(sim.now, Command::ApproveUpTo { hash, amount }).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ApprovalDenied);
    }
}

fn asked_hash(sim: &Sim) -> String {
    let asked = sim.log.iter().rev().find_map(|(_, event)| match event {
        Event::ApprovalAsked { hash, .. } => Some(hash.clone()),
        _ => None,
    });
    asked.unwrap()
}
