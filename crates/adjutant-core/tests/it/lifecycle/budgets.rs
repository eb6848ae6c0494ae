//! Part of `lifecycle`: budgets.

use adjutant_core::refusal::raising_flags;

use super::*;

#[test]
fn an_agent_is_warned_while_a_report_still_fits_its_window() {
    // A full answer, a quarter of one, and the text of the warning.
    let fits = OPENING + 1_000 + 250 + TOLD;
    let set = ["max_output_tokens=1000"];
    let (sim, child) = begun(&set, small(fits));
    assert_eq!(last_model_call(&sim, child), (1_000, true));
    let (mut sim, child) = begun(&set, small(fits - 1));
    assert_eq!(last_model_call(&sim, child), (1_000, false));
    assert_eq!(sim.told(child), [LAST_CALL]);
    // Whatever it answers, tools are over and the work is partial.
    sim.reply(child, ModelReply { text: "What I have.".into(), ..asks(vec![read("1", "a")]) });
    assert!(sim.tools_run(child).is_empty());
    insta::assert_snapshot!(sim.ended(child), @r"
    partial CONTEXT_EXHAUSTED: The context was exhausted: 107 of 1,498 tokens, and an answer may need 1,000 more.
    => Split the task, or use a model with a larger window.
    ");
    sim.check_over();
}

#[test]
fn a_last_call_is_retried_without_another_warning() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(1_300));
    sim.fail(child, error(ModelErrorKind::Overloaded));
    sim.tick_next();
    assert_eq!(sim.told(child), [LAST_CALL]);
    assert_eq!((sim.model_calls(child).len(), last_model_call(&sim, child).1), (2, false));
    // Nor is it asked to be shorter: there is no turn left for that.
    sim.reply(child, cut_off("What I"));
    assert_eq!(sim.told(child), [LAST_CALL]);
    assert_eq!(sim.code(child), Some(ErrorCode::ContextExhausted));
    sim.check_over();
}

#[test]
fn the_tightest_limit_is_named() {
    // Neither leaves room for another turn; the budget leaves less for this one.
    let (sim, child) = begun(&["max_output_tokens=1000", "budget_tokens=900"], small(1_300));
    let told = |sim: &Sim| {
        sim.log.iter().find_map(|(_, event)| match event {
            Event::Told { nudge: AddedMessageReason::LastCall(code), .. } => Some(*code),
            _ => None,
        })
    };
    assert_eq!(told(&sim), Some(ErrorCode::BudgetExceeded));
    assert!(sim.node(child).is_live());
    let (sim, _) = begun(&["max_output_tokens=1000", "budget_tokens=1200"], small(600));
    assert_eq!(told(&sim), Some(ErrorCode::ContextExhausted));
}

#[test]
fn an_answer_is_cut_to_what_the_window_has_left_and_not_asked_for_below_the_floor() {
    let set = ["max_output_tokens=1000"];
    let floor = OPENING + TOLD.div_ceil(4) + MIN_OUTPUT;
    let (sim, child) = begun(&set, small(floor + 50));
    assert_eq!(last_model_call(&sim, child), (150, false));
    let (sim, child) = begun(&set, small(floor));
    assert_eq!(last_model_call(&sim, child), (MIN_OUTPUT, false));
    let (sim, child) = begun(&set, small(floor - 1));
    assert!(sim.model_calls(child).is_empty());
    assert_eq!(
        (sim.end(child).0, sim.code(child)),
        (Outcome::Partial, Some(ErrorCode::ContextExhausted))
    );
}

#[test]
fn a_full_context_allows_a_last_report() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(10_000));
    sim.reply(child, ModelReply { usage: used(8_000, 20), ..asks(vec![read("1", "a")]) });
    // 8,000 and a few fit one more full answer beside the grace; 3,000 bytes more do not.
    sim.output(child, 0, &"y".repeat(3_000));
    assert_eq!(sim.told(child), [LAST_CALL]);
    sim.say(child, "The end.");
    assert_eq!(sim.code(child), Some(ErrorCode::ContextExhausted));
}

#[test]
fn a_smaller_policy_context_is_the_window_and_is_named() {
    let (mut sim, child) = begun(&["context_tokens=1400", "max_output_tokens=1000"], small(90_000));
    assert_eq!(sim.told(child), [LAST_CALL]);
    sim.say(child, "The end.");
    insta::assert_snapshot!(sim.ended(child), @r"
    partial CONTEXT_EXHAUSTED: The context was exhausted: 102 of 1,400 tokens, and an answer may need 1,000 more.
    => Split the task, or use a model with a larger window.
    ");
}

#[test]
fn an_agent_is_warned_while_a_report_still_fits_its_budget() {
    // The conversation and a full answer are paid for twice when there is a turn after this one.
    for key in ["budget_tokens", "budget_tokens_run"] {
        let fits = 2 * (BILLED + 1_000);
        let set = |tokens: u64| format!("{key}={tokens}");
        let (sim, child) = begun(&["max_output_tokens=1000", &set(fits)], small(90_000));
        assert_eq!(last_model_call(&sim, child), (1_000, true), "{key}");
        let (mut sim, child) = begun(&["max_output_tokens=1000", &set(fits - 1)], small(90_000));
        assert!(!last_model_call(&sim, child).1, "{key}");
        sim.say(child, "What I have.");
        let (twice, raised) = (2 * (fits - 1), set(2 * (fits - 1)));
        let flag = match key {
            "budget_tokens" => format!("--set {raised}"),
            _ => format!("--budget-tokens {twice}"),
        };
        assert_eq!(
            sim.ended(child),
            format!(
                "partial BUDGET_EXCEEDED: The budget was exhausted after 110 tokens.\n\
                 => Split the task, or go on with a larger budget: `adjutant resume {child} {flag}`."
            )
        );
        // It works when pasted.
        let (sim, child) = begun(&["max_output_tokens=1000", &raised], small(90_000));
        assert_eq!(last_model_call(&sim, child), (1_000, true));
    }
}

#[test]
fn an_answer_is_cut_to_what_the_budget_has_left_to_the_last_token() {
    let least = BILLED + TOLD + MIN_OUTPUT;
    for (cap, output) in [(least + 50, Some(150)), (least, Some(MIN_OUTPUT)), (least - 1, None)] {
        let set = format!("budget_tokens_run={cap}");
        let (sim, child) = begun(&["max_output_tokens=1000", &set], small(90_000));
        match output {
            Some(output) => {
                assert_eq!(last_model_call(&sim, child), (output, false));
                assert_eq!(sim.node(sim.root()).ledger.remaining().tokens, 0);
            }
            None => {
                assert!(sim.model_calls(child).is_empty());
                assert_eq!(sim.code(child), Some(ErrorCode::BudgetExceeded));
                assert_eq!(sim.end(child).0, Outcome::Partial);
            }
        }
    }
}

#[test]
fn money_bounds_an_answer_where_the_model_has_a_price() {
    // Input at $3.75 a million at the dearest, output at $15: pico-dollars per token.
    let (dear_in, dear_out) = (3_750_000, 15_000_000);
    let enough = 2 * BILLED * dear_in + 2_000 * dear_out;
    let run = |pico: u64, model: ModelSpec| {
        let mut policy = scout(&["max_output_tokens=1000"]);
        policy.budget_usd = Some(Usd::from_pico(pico));
        let mut sim = Sim::new(policy);
        let child = sim.child(Brief { model: Some(model), ..small(90_000) });
        last_model_call(&sim, child)
    };
    let model = ModelSpec { window: 90_000, ..priced() };
    assert_eq!(run(enough, model.clone()), (1_000, true));
    assert_eq!(run(enough - 1, model.clone()), (1_000, false));
    let for_half = (BILLED + TOLD) * dear_in + 500 * dear_out;
    assert_eq!(run(for_half, model.clone()), (500, false));
    assert_eq!(run(for_half - 1, model.clone()), (499, false));
    assert_eq!(run(1, ModelSpec { price: None, ..model }), (1_000, true));
}

#[test]
fn the_budget_that_ran_out_is_the_one_to_raise() {
    let recommended = |settings: &[&str]| {
        let (mut sim, child) = begun(settings, small(90_000));
        sim.say(child, "What I have.");
        sim.end(child).1.unwrap().recommendation
    };
    let lines = [
        recommended(&["budget_tokens=4400", "budget_tokens_run=5000"]),
        recommended(&["budget_tokens=5000", "budget_tokens_run=4400"]),
        recommended(&["budget_tokens=5000000", "budget_usd=0.03"]),
        recommended(&["budget_tokens=4400", "budget_usd=5"]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=8824 --budget-tokens 10000`.
    Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=10000 --budget-tokens 8824`.
    Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --budget-usd 0.13`.
    Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=8824`.
    ");
}

#[test]
fn the_budget_that_is_advised_fits_the_call_that_did_not() {
    let begun = |settings: &[&str]| {
        let mut sim = Sim::led_on(scout(settings), "lead", "Do it.", priced());
        let root = sim.root();
        sim.submit(Command::TakeTurn { session: root }).unwrap();
        (sim, root)
    };
    for tight in [
        &["budget_usd=0.0005"][..],
        &["budget_usd=0.0005", "budget_tokens_run=30"],
        &["budget_tokens_run=30"],
    ] {
        let (sim, child) = begun(tight);
        let (_, reason) = sim.end(child);
        let reason = reason.unwrap();
        assert!(reason.message.starts_with("The next call does not fit"), "{}", reason.message);
        let flags = raising_flags(&reason.recommendation).unwrap();
        let flags = flags.replace("--budget-usd ", "budget_usd=").replace("--set ", "");
        let flags = flags.replace("--budget-tokens ", "budget_tokens_run=");
        let (sim, child) = begun(&flags.split(' ').collect::<Vec<_>>());
        assert_eq!(last_model_call(&sim, child), (4_096, true), "{flags}");
    }
}

#[test]
fn what_one_child_reserves_and_spends_is_not_available_to_its_sibling() {
    // Room for one full call and a bit: the second child gets what is left.
    let cap = 2 * BILLED + 1_000;
    let set = format!("budget_tokens_run={cap}");
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set, "concurrency=2"]));
    let children =
        sim.children(vec![small(90_000), Brief { prompt: "y".repeat(400), ..small(90_000) }]);
    assert_eq!(last_model_call(&sim, children[0]), (1_000, false));
    assert!(sim.model_calls(children[1]).is_empty(), "what is left does not pay for the input");
    assert_eq!(sim.code(children[1]), Some(ErrorCode::BudgetExceeded));
    sim.reply(children[0], ModelReply { usage: used(BILLED, 1_000), ..says("done") });
    assert_eq!(sim.node(sim.root()).ledger.settled.tokens, BILLED + 1_000);
    sim.check_over();
}

#[test]
fn output_tokens_are_the_smallest_of_task_policy_and_model() {
    let asked = |settings: &[&str], wish: Option<u64>, most: u64| {
        let model = ModelSpec { max_output: most, ..model() };
        let brief = Brief { max_output_tokens: wish, model: Some(model), ..about("x") };
        let (sim, child) = begun(settings, brief);
        last_model_call(&sim, child).0
    };
    assert_eq!(asked(&[], None, 8_192), 4_096);
    assert_eq!(asked(&[], Some(500), 8_192), 500);
    assert_eq!(asked(&["max_output_tokens=9000"], None, 8_192), 8_192);
    assert_eq!(asked(&[], Some(16_384), 8_192), 8_192);
    // A requested limit below the floor still allows a call.
    assert_eq!(asked(&["max_output_tokens=50"], None, 8_192), 50);
}

#[test]
fn an_overrun_is_recorded_and_stops_the_scope() {
    let (mut sim, child) = begun(&["budget_tokens=9000"], small(90_000));
    let events =
        sim.reply(child, ModelReply { usage: used(9_000, 700), ..asks(vec![read("1", "a")]) });
    let held = BILLED + 4_096;
    let overran = |event: &Event| match event {
        Event::Overran { amount, .. } => Some(amount.tokens),
        _ => None,
    };
    assert_eq!(events.iter().find_map(overran), Some(9_700 - held));
    assert!(sim.node(child).ledger.is_within_cap());
    sim.output(child, 0, "text");
    assert_eq!(sim.model_calls(child).len(), 1, "no further call");
    assert_eq!(
        (sim.end(child).0, sim.code(child)),
        (Outcome::Partial, Some(ErrorCode::BudgetExceeded))
    );
    sim.check_over();
}

#[test]
fn a_call_without_a_usage_record_counts_at_its_full_reservation() {
    let settlement = |events: &[Event]| -> Option<Settlement> {
        events.iter().find_map(|event| match event {
            Event::Replied { settlement, .. }
            | Event::AttemptFailed { settlement, .. }
            | Event::Settled { settlement, .. } => Some(*settlement),
            _ => None,
        })
    };
    let held = BudgetAmount {
        tokens: BILLED + 4_096,
        usd: Usd::from_pico(BILLED * 3_750_000 + 4_096 * 15_000_000),
    };
    for close in [
        |sim: &mut Sim, child| sim.reply(child, ModelReply { usage: None, ..says("x") }),
        |sim: &mut Sim, child| sim.fail(child, error(ModelErrorKind::Truncated)),
        |sim: &mut Sim, child| sim.cancel(child),
    ] {
        let (mut sim, child) = begun(&[], small(90_000));
        assert_eq!(sim.node(child).ledger.reserved, held);
        let events = close(&mut sim, child);
        let settlement = settlement(&events).unwrap();
        assert!(settlement.estimated);
        assert_eq!(settlement.amount(), held);
        assert_eq!(sim.node(sim.root()).ledger.settled, held);
        assert!(sim.node(sim.root()).ledger.reserved.is_zero());
    }
    let (mut sim, child) = begun(&[], small(90_000));
    let settlement = settlement(&sim.say(child, "x")).unwrap();
    assert_eq!((settlement.estimated, settlement.usage.total()), (false, 110));
}

#[test]
fn attempts_that_the_provider_never_began_cost_nothing_and_are_still_counted() {
    let unbegun = |kind| AttemptError { never_began: true, ..error(kind) };
    // Room for two full calls: three that were settled at their reservations would not fit.
    let (mut sim, child) = begun(&["budget_tokens=9000"], small(90_000));
    let held = sim.node(child).ledger.reserved;
    for attempt in 1..=MAX_ATTEMPTS {
        assert_eq!(sim.node(child).ledger.reserved, held, "attempt {attempt}");
        sim.fail(child, unbegun(ModelErrorKind::Network));
        let ledger = sim.node(sim.root()).ledger;
        assert!(ledger.settled.is_zero() && ledger.reserved.is_zero(), "{ledger:?}");
        if attempt < MAX_ATTEMPTS {
            sim.tick_next();
        }
    }
    insta::assert_snapshot!(sim.ended(child), @r"
    failed PROVIDER_ERROR: network error: the provider said so
    => Try again later, or use another model.
    ");
    assert_eq!(sim.model_calls(child).len(), MAX_ATTEMPTS as usize);
    assert_eq!(sim.node(child).usage.total(), 0);
    sim.check_over();
}

#[test]
fn a_recorded_settlement_stays_as_it_was_recorded() {
    // Written before attempts could cost nothing.
    let old = r#"{"type":"attempt_failed","session":"sess_1735460684_aaaaaa","turn":1,"attempt":1,
        "error":{"kind":"rate_limited","message":"HTTP 429"},
        "settlement":{"usage":{"input":300,"output":4096},"usd":0.5,"estimated":true},
        "retry_at":null}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    let Event::AttemptFailed { error, settlement, .. } = event else { panic!("{event:?}") };
    assert!(!error.never_began);
    assert_eq!((settlement.estimated, settlement.usage.total()), (true, 4_396));
}

#[test]
fn a_reservation_is_the_last_billed_input_plus_one_token_per_new_byte() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(90_000));
    sim.reply(
        child,
        ModelReply {
            text: "thinking".into(),
            usage: used(300, 20),
            ..asks(vec![read("1", "abc")])
        },
    );
    sim.output(child, 0, &"z".repeat(500));
    let call = json!({"path": "abc"}).to_string().len() as u64 + 4;
    let open = sim.node(child).reservation().unwrap();
    assert_eq!(open.amount.tokens, 300 + 8 + call + 500 + 1_000);
}
