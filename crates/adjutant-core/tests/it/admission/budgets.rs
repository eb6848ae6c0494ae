//! Part of `admission`: budgets.

use super::*;

#[test]
fn a_task_needs_its_estimate_and_a_short_answer_within_every_budget() {
    // The estimate is 5,000 and the least worth asking for is 100.
    for key in ["budget_tokens", "budget_tokens_run"] {
        for (tokens, fits) in [(5_100, true), (5_099, false)] {
            let input = json!({"policy": {key: tokens}, "tree": [{"id": "lead"}],
                "request": {"agent": "scout"}});
            let found = verdict(Preset::Scout, &input);
            assert_eq!(found.starts_with("granted"), fits, "{key}={tokens}: {found}");
        }
    }
    let input = |key: &str| json!({"policy": {key: 5_099}, "tree": [{"id": "lead"}], "request": {"agent": "scout"}});
    insta::assert_snapshot!(refusal(Preset::Scout, &input("budget_tokens")), @r"
    BUDGET_EXCEEDED (recoverable)
    Token budget exceeded: the task needs at least 5,100 tokens, 5,099 of the delegation's 5,099 are left.
    => Start the run again with --set budget_tokens=5100, or delegate less.
    ");
    insta::assert_snapshot!(refusal(Preset::Scout, &input("budget_tokens_run")), @r"
    BUDGET_EXCEEDED (recoverable)
    Token budget exceeded: the task needs at least 5,100 tokens, 5,099 of the run's 5,099 are left.
    => Start the run again with --budget-tokens 5100, or delegate less.
    ");
}

#[test]
fn money_is_checked_only_for_models_with_a_price() {
    // 5,000 tokens in at the dearest input price of $3.75 and 100 out at $15: $0.02025.
    let judge = |dollars: &str, model: ModelSpec| {
        let sim = Sim::new(scout(&[&format!("budget_usd={dollars}")]));
        let task = Brief { model: Some(model), prompt: String::new(), ..about("x") };
        sim.tree.judge_one(sim.now, sim.root(), &task)
    };
    assert!(judge("0.02025", priced()).is_ok());
    insta::assert_snapshot!(shown(&judge("0.02024", priced()).unwrap_err()), @r"
    BUDGET_EXCEEDED: Money budget exceeded: the task needs up to $0.0203, $0.0202 of the run's $0.0202 are left.
    $0.0203 needed, $0.0202 left of the run's budget
    => Start the run again with --budget-usd 0.03, or delegate less.
    ");
    assert!(judge("0.00001", model()).is_ok());
}

#[test]
fn spent_and_reserved_amounts_of_every_ancestor_are_not_available_to_a_child() {
    let mut sim = Sim::new(scout(&["max_depth=2", "budget_tokens=20000", "max_output_tokens=100"]));
    let parent = sim.child(about("lead"));
    let judge = |sim: &Sim| sim.tree.judge_one(sim.now, parent, &about("x")).map(drop);
    assert_eq!(judge(&sim), Ok(()));
    sim.reply(parent, ModelReply { usage: used(14_000, 100), ..asks(vec![read("1", "a")]) });
    // 5,900 are left and 5,102 are needed; then the next call holds 14,000 more open.
    assert_eq!(judge(&sim), Ok(()));
    let spent = sim.node(parent).ledger.settled;
    assert_eq!(spent, BudgetAmount { tokens: 14_100, usd: Usd::ZERO });
    let reservation = Reservation {
        turn: 2,
        attempt: 1,
        max_output: 100,
        amount: BudgetAmount { tokens: 1_000, usd: Usd::ZERO },
        last_call: false,
    };
    let mut held = sim.tree.clone();
    held.evolve(sim.now, &Event::Reserved { session: parent, reservation }).unwrap();
    let refusal = held.judge_one(sim.now, parent, &about("x")).unwrap_err();
    insta::assert_snapshot!(shown(&refusal), @r"
    BUDGET_EXCEEDED: Token budget exceeded: the task needs at least 5,102 tokens, 4,900 of the delegation's 20,000 are left.
    5102 tokens needed, 4900 left of the delegation's budget
    => Start the run again with --set budget_tokens=20202, or delegate less.
    ");
}
