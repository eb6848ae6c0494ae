//! Part of `admission`: order.

use super::*;

#[test]
fn checks_are_made_in_the_specified_order() {
    // DESIGN §5. Each step mends the first broken rule, so every adjacent pair is judged together.
    let expected = [
        ErrorCode::DelegationDisabled,
        ErrorCode::UnknownParent,
        ErrorCode::UnknownAgent,
        ErrorCode::CycleDetected,
        ErrorCode::MaxDepthExceeded,
        ErrorCode::MaxDelegationsExceeded,
        ErrorCode::MaxDelegationsExceeded,
        ErrorCode::RightsExceeded,
        ErrorCode::ValidationFailed,
        ErrorCode::ContextBudgetExceeded,
        ErrorCode::BudgetExceeded,
        ErrorCode::BudgetExceeded,
        ErrorCode::TimeExceeded,
        ErrorCode::QueueFull,
    ];
    let found: Vec<ErrorCode> =
        (0..expected.len()).map(|mended| broken_from(mended).unwrap_err().code()).collect();
    assert_eq!(found, expected);
    let admission = broken_from(expected.len()).unwrap();
    assert_eq!((admission.depth, admission.path.join(" ")), (2, "lead planner worker".into()));
}

#[test]
fn every_refusal_says_what_was_attempted_the_limit_and_what_to_do() {
    let all: Vec<String> = (0..14).map(|mended| shown(&broken_from(mended).unwrap_err())).collect();
    insta::assert_snapshot!(all.join("\n\n"), @r"
    DELEGATION_DISABLED: Delegation is disabled (preset scout, enabled = false).
    delegation is disabled in preset `scout`
    => Start the run again with --enable-delegation, or with ENABLE_DELEGATION=true, or enabled = true in the user config.

    UNKNOWN_PARENT: Unknown parent: sess_1700000001_aaaaaa is not a live delegation.
    `sess_1700000001_aaaaaa` is not a live delegation
    => Name a running delegation; `adjutant tree` lists them.

    UNKNOWN_AGENT: Unknown agent: planner. Known agents: stranger.
    no agent `planner` is defined, known are stranger
    => Use one of the known agents.

    CYCLE_DETECTED: Cycle detected: lead → planner → planner
    `planner` already works above in the chain of delegations lead > planner
    => Do this work at the current level, or delegate a smaller, different task.

    MAX_DEPTH_EXCEEDED: ERROR: Delegation depth limit (1) reached. Cannot delegate further.

    Current depth: 1
    Attempted delegation: do it
    Suggestion: Complete this task at current level or simplify.
    delegating to `do it` would reach depth 2, limit 1
    => Complete this task at the current level, or start the run again with --set max_depth=2.

    MAX_DELEGATIONS_EXCEEDED: Too many delegations (1002). Maximum: 1 per parent
    the parent would have 1002 delegations, limit 1
    => Delegate fewer, larger tasks, or start the run again with --set children_per_parent=1002.

    MAX_DELEGATIONS_EXCEEDED: Too many delegations (1003). Maximum: 1 per run
    the run would have 1003 delegations, limit 1
    => Delegate fewer, larger tasks, or start the run again with --set children_per_run=1003.

    RIGHTS_EXCEEDED: Rights beyond the parent's: Write.
    rights beyond the parent's: Write
    => Ask only for tools the parent holds.

    VALIDATION_FAILED: Context file `notes.md`: is a FIFO.
    context file `notes.md`: is a FIFO
    => Name regular files inside the working tree, below the size cap.

    CONTEXT_BUDGET_EXCEEDED: ERROR: Agent context budget (1k tokens) exceeded. Simplify subtask.

    Current context: 0 tokens
    Subtask estimate: 5,001 tokens
    Total would be: 5,001 tokens
    Maximum allowed: 1,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    context 0 + estimate 5001 tokens, limit 1000
    => Break the task into smaller pieces, or start the run again with --set context_tokens=5001.

    BUDGET_EXCEEDED: Token budget exceeded: the task needs at least 5,101 tokens, 1,000 of the run's 1,000 are left.
    5101 tokens needed, 1000 left of the run's budget
    => Start the run again with --budget-tokens 5101, or delegate less.

    BUDGET_EXCEEDED: Money budget exceeded: the task needs up to $0.0203, $0.0010 of the run's $0.0010 are left.
    $0.0203 needed, $0.0010 left of the run's budget
    => Start the run again with --budget-usd 0.03, or delegate less.

    TIME_EXCEEDED: No time left to delegate: its parent's deadline is used up.
    no time left: its parent's deadline
    => Finish with what is there, or give the parent more time.

    QUEUE_FULL: 1000 delegations are waiting, limit 1000.
    1000 delegations are waiting, limit 1000
    => Wait until delegations have ended, then try again.
    ");
}

#[test]
fn a_fan_out_refusal_names_the_exceeded_limit() {
    // Children per parent is judged before children per run.
    let messages: Vec<String> = [5, 6].map(|rule| broken_from(rule).unwrap_err().message()).into();
    assert_eq!(
        messages,
        [
            "Too many delegations (1002). Maximum: 1 per parent",
            "Too many delegations (1003). Maximum: 1 per run"
        ]
    );
}

#[test]
fn a_disabled_policy_is_reported_before_an_unknown_parent() {
    let input = json!({"tree": [{"id": "US-007"}], "request": {"parent": "nobody", "agent": "x"}});
    assert_eq!(verdict(Preset::Story, &input), "DELEGATION_DISABLED");
    let input = json!({"policy": {"enabled": true}, "tree": [{"id": "US-007"}],
        "agents": ["other"], "request": {"parent": "nobody", "agent": "x"}});
    assert_eq!(verdict(Preset::Story, &input), "UNKNOWN_PARENT");
}

#[test]
fn a_whole_call_is_refused_for_its_parent_before_its_size() {
    let nine = || (0..9).map(|n| about(&n.to_string())).collect::<Vec<_>>();
    let mut off = Sim::new(scout(&["enabled=false"]));
    let root = off.root();
    assert_eq!(off.ask(root, nine(), None).unwrap_err().code(), ErrorCode::DelegationDisabled);
    let mut sim = Sim::new(scout(&[]));
    let nobody = SessionId::new(1_600_000_000, [9; 6]);
    assert_eq!(sim.ask(nobody, nine(), None).unwrap_err().code(), ErrorCode::UnknownParent);
    assert_eq!(sim.ask(root, nine(), None).unwrap_err().code(), ErrorCode::MaxDelegationsExceeded);
    sim.cancel(root);
    assert_eq!(sim.ask(root, nine(), None).unwrap_err().code(), ErrorCode::UnknownParent);
}
