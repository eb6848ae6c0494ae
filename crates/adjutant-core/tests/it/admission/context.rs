//! Part of `admission`: context.

use super::*;

#[test]
fn requirement_61_the_context_message_is_the_prescribed_one() {
    let input = story_context(85_000, json!({"child": "X", "estimate_tokens": 35_000}));
    insta::assert_snapshot!(refusal(Preset::Story, &input), @r"
    CONTEXT_BUDGET_EXCEEDED (recoverable)
    ERROR: Agent context budget (100k tokens) exceeded. Simplify subtask.

    Current context: 85,000 tokens
    Subtask estimate: 35,000 tokens
    Total would be: 120,000 tokens
    Maximum allowed: 100,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    => Break the task into smaller pieces, or start the run again with --set context_tokens=120000.
    ");
}

#[test]
fn requirement_23_a_story_and_its_child_fit_the_context_exactly_or_not_at_all() {
    for (parent, estimate, fits) in [
        (85_000, 15_000, true),
        (85_000, 15_001, false),
        (0, 100_000, true),
        (0, 100_001, false),
        (100_000, 0, true),
        (100_001, 0, false),
        (u64::MAX, u64::MAX, false),
    ] {
        let input = story_context(parent, json!({"child": "X", "estimate_tokens": estimate}));
        let found = verdict(Preset::Story, &input);
        assert_eq!(found.starts_with("granted"), fits, "{parent} + {estimate}: {found}");
    }
}

#[test]
fn d11_an_estimate_is_a_quarter_of_the_characters_rounded_down_and_five_thousand() {
    let estimate = |prompt: &str| {
        let input = story_context(0, json!({"child": "X", "prompt": prompt}));
        match answer(Preset::Story, &input).unwrap() {
            CheckAnswer::Granted { estimate_tokens, .. } => estimate_tokens,
            CheckAnswer::Refused { .. } => 0,
        }
    };
    assert_eq!(["", "abc", "abcd", "äöüßäöüß"].map(estimate), [5_000, 5_000, 5_001, 5_002]);
}

#[test]
fn d11_outside_stories_a_child_must_fit_its_own_window() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let sized = |estimate: u64| Brief { estimate_tokens: Some(estimate), ..about("x") };
    assert_eq!(granted(&sim.ask(root, vec![sized(200_000)], None).unwrap()).len(), 1);
    let refusal = sim.tree.judge_one(sim.now, root, &sized(200_001)).unwrap_err();
    // The window is the model's: no setting makes it larger.
    insta::assert_snapshot!(shown(&refusal), @r"
    CONTEXT_BUDGET_EXCEEDED: ERROR: Agent context budget (200k tokens) exceeded. Simplify subtask.

    Current context: 0 tokens
    Subtask estimate: 200,001 tokens
    Total would be: 200,001 tokens
    Maximum allowed: 200,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    context 0 + estimate 200001 tokens, limit 200000
    => Break the task into smaller pieces, or use a model with a larger window.
    ");
}

#[test]
fn a_context_limit_of_the_policy_is_the_smaller_window() {
    let sim = Sim::new(scout(&["context_tokens=10000"]));
    let judge = |estimate: u64| {
        let sized = Brief { estimate_tokens: Some(estimate), ..about("x") };
        sim.tree.judge_one(sim.now, sim.root(), &sized)
    };
    assert!(judge(10_000).is_ok());
    insta::assert_snapshot!(shown(&judge(10_001).unwrap_err()), @r"
    CONTEXT_BUDGET_EXCEEDED: ERROR: Agent context budget (10k tokens) exceeded. Simplify subtask.

    Current context: 0 tokens
    Subtask estimate: 10,001 tokens
    Total would be: 10,001 tokens
    Maximum allowed: 10,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    context 0 + estimate 10001 tokens, limit 10000
    => Break the task into smaller pieces, or start the run again with --set context_tokens=10001.
    ");
    // Raising the policy beyond the model's window would not help.
    insta::assert_snapshot!(judge(200_001).unwrap_err().recommendation(), @"Break the task into smaller pieces, or use a model with a larger window.");
}

#[test]
fn d11_the_results_must_fit_the_parent_s_window() {
    // The parent holds 20,000 and may be handed 4,096 by each child.
    let small = ModelSpec { window: 20_000, ..model() };
    let lead = Brief { model: Some(small), estimate_tokens: Some(0), ..about("lead") };
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let parent = sim.child(lead);
    // 4 × 4,096 fit beside a first request of a few tokens, 5 do not; a batch counts its own.
    let events = sim.ask(parent, many(5), None).unwrap();
    assert_eq!(granted(&events).len(), 4);
    assert_eq!(refused(&events), [ErrorCode::ContextBudgetExceeded]);
    let Some(Event::Refused { reason, .. }) =
        events.iter().find(|event| matches!(event, Event::Refused { .. }))
    else {
        panic!("{events:?}")
    };
    insta::assert_snapshot!(format!("{}\n=> {}", reason.message, reason.recommendation), @r"
    ERROR: Agent context budget (20k tokens) exceeded. Simplify subtask.

    Current context: 3 tokens
    Subtask estimate: 20,480 tokens
    Total would be: 20,483 tokens
    Maximum allowed: 20,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    => Delegate fewer tasks in one call, or let each hand back less: start the run again with --set result_tokens=3999.
    ");
    // Pasted, it lets the whole call through.
    for (result_tokens, all) in [("result_tokens=3999", 5), ("result_tokens=4000", 4)] {
        let small = ModelSpec { window: 20_000, ..model() };
        let lead = Brief { model: Some(small), estimate_tokens: Some(0), ..about("lead") };
        let mut sim = Sim::new(scout(&["max_depth=2", result_tokens]));
        let parent = sim.child(lead);
        assert_eq!(granted(&sim.ask(parent, many(5), None).unwrap()).len(), all);
    }
}

#[test]
fn a_given_context_size_includes_the_prompt() {
    let ask = |context: Value| {
        let mut root = json!({"id": "p", "prompt": "x".repeat(4_000)});
        root["context_tokens"] = context;
        let input = json!({"policy": {"enabled": true}, "tree": [root],
            "request": {"child": "X", "estimate_tokens": 15_000}});
        verdict(Preset::Story, &input)
    };
    assert!(ask(json!(85_000)).starts_with("granted"));
    assert_eq!(ask(json!(85_001)), "CONTEXT_BUDGET_EXCEEDED");
    // Where it is not given, the prompt is what is known of it.
    assert!(ask(Value::Null).starts_with("granted"));
}

#[test]
fn an_unusable_context_file_refuses_only_its_own_task() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let with = |found: ContextFileStatus| Brief {
        context: vec![ContextFile { path: "../secret".into(), found }],
        ..about("x")
    };
    let outside = ContextFileStatus::Unusable("lies outside the root".into());
    let events = sim
        .ask(
            root,
            vec![with(ContextFileStatus::Missing), with(outside), with(ContextFileStatus::Loaded)],
            None,
        )
        .unwrap();
    assert_eq!((granted(&events).len(), refused(&events)), (2, vec![ErrorCode::ValidationFailed]));
    let Event::Refused { reason, .. } = &events[1] else { panic!("{events:?}") };
    insta::assert_snapshot!(format!("{}\n=> {}", reason.message, reason.recommendation), @r"
    Context file `../secret`: lies outside the root.
    => Name regular files inside the working tree, below the size cap.
    ");
}
