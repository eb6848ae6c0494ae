//! Who may be delegated to: every refusal, its edge, its place in the order, and its words.

use adjutant_core::budget::{Amount, Reservation};
use adjutant_core::check::{CheckAnswer, CheckError, CheckInput, check};
use adjutant_core::event::Grant;
use adjutant_core::policy::{Approval, CycleKey, Timeout, parse_assignment};
use adjutant_core::refusal::TimeBound;
use adjutant_core::rights::{Rights, ToolSet};
use adjutant_core::tree::{Admission, QUEUE_LIMIT, worst_case};
use adjutant_core::{
    AgentName, Brief, Code, Command, ContextFile, Event, Found, Label, Layered, ModelSpec, Outcome,
    Policy, Preset, Refusal, Reply, RunId, SessionId, Source, State, Timestamp, Tree, Usd,
};
use serde_json::{Value, json};

use crate::sim::{
    Sim, about, asks, brief, granted, model, policy, priced, read, refused, scout, used,
};

/// Asks `adjutant check` and shows its answer in full.
fn answer(preset: Preset, input: &Value) -> Result<CheckAnswer, CheckError> {
    let input: CheckInput = serde_json::from_value(input.clone()).unwrap();
    check(Layered::new(preset), &input)
}

/// Shows an answer in one line: the code, or what was granted.
fn verdict(preset: Preset, input: &Value) -> String {
    match answer(preset, input).unwrap() {
        CheckAnswer::Refused { code, .. } => code,
        CheckAnswer::Granted { depth, path, timeout, clamped, .. } => {
            let timeout = timeout.map_or_else(|| "none".to_owned(), |seconds| seconds.to_string());
            let clamped = if clamped { " clamped" } else { "" };
            format!("granted: depth {depth}, timeout {timeout}{clamped}, {}", path.join(" → "))
        }
    }
}

/// Shows a refusal as a person reads it.
fn refusal(preset: Preset, input: &Value) -> String {
    match answer(preset, input).unwrap() {
        CheckAnswer::Refused { code, message, recommendation, recoverable, .. } => {
            let recoverable = if recoverable { "recoverable" } else { "final" };
            format!("{code} ({recoverable})\n{message}\n=> {recommendation}")
        }
        granted @ CheckAnswer::Granted { .. } => format!("{granted:?}"),
    }
}

fn shown(refusal: &Refusal) -> String {
    format!("{}: {}\n{refusal}\n=> {}", refusal.code(), refusal.message(), refusal.recommendation())
}

/// Returns nodes named `names`, each the child of the one before it.
fn chain(names: &[&str]) -> Vec<Value> {
    names
        .iter()
        .enumerate()
        .map(|(depth, name)| match depth {
            0 => json!({"id": name}),
            _ => json!({"id": name, "parent": names[depth - 1]}),
        })
        .collect()
}

// ---- The order: first refusal wins ----

/// A task that breaks every rule but the first `mended`, judged.
///
/// Each rule is broken by itself, so mending one uncovers the next and nothing else.
fn broken_from(mended: usize) -> Result<Admission, Refusal> {
    let breaks = |rule: usize| rule >= mended;
    let at = Timestamp::ZERO;
    let read_only = Rights { tools: ToolSet::read_only(), network: false };
    let policy = Policy {
        enabled: !breaks(0),
        cycle_key: CycleKey::Agent,
        max_depth: if breaks(4) { 1 } else { 2 },
        children_per_parent: breaks(5).then_some(1),
        children_per_run: breaks(6).then_some(1),
        context_tokens: breaks(9).then_some(1_000),
        budget_tokens: None,
        budget_tokens_run: Some(if breaks(10) { 1_000 } else { 1_000_000 }),
        budget_usd: Usd::from_dollars(if breaks(11) { 0.001 } else { 5.0 }),
        concurrency: 1,
        approval: Approval::None,
        ..Preset::Scout.policy()
    };
    let mut tree = Tree::default();
    let run = RunId::new(1_700_000_000, [0; 6]);
    let parent = SessionId::new(1_700_000_001, [0; 6]);
    let mut made = 1_u64;
    let mut grant = |above: SessionId, agent: &str, depth: u64| {
        made += 1;
        Grant {
            session: SessionId::new(1_700_000_000 + made, [0; 6]),
            parent: above,
            call: 1,
            index: 0,
            places: 1,
            brief: Brief::new(Label::unnamed(), AgentName::new(agent), ""),
            depth,
            path: Vec::new(),
            rights: read_only.clone(),
            timeout_s: None,
            clamped: false,
            opening_bytes: 0,
            awaiting_approval: false,
        }
    };
    let mut events = vec![Event::RunStarted {
        run,
        agent: AgentName::new("lead"),
        goal: String::new(),
        workdir: String::new(),
        policy: Box::new(policy),
        version: String::new(),
        model: None,
    }];
    let target = if breaks(3) { "planner" } else { "worker" };
    let known = if breaks(2) { &["planner"][..0] } else { &["planner", "worker"] };
    for agent in known.iter().chain(&["stranger"]) {
        events.push(Event::AgentDefined {
            agent: AgentName::new(agent),
            system: String::new(),
            tools: Vec::new(),
            rights: read_only.clone(),
        });
    }
    let deadline = breaks(12).then(|| at.plus_seconds(10));
    events.push(Event::Granted(Box::new(Grant {
        session: parent,
        ..grant(run.root_session(), "planner", 1)
    })));
    events.push(Event::Started { session: parent, deadline, bound: TimeBound::Own });
    let earlier = grant(parent, "worker", 2);
    let earlier_session = earlier.session;
    events.push(Event::Granted(Box::new(earlier)));
    let ended = |session| Event::Ended { session, outcome: Outcome::Completed, reason: None };
    events.push(ended(earlier_session));
    for _ in 0..if breaks(13) { QUEUE_LIMIT } else { QUEUE_LIMIT - 1 } {
        events.push(Event::Granted(Box::new(grant(parent, "worker", 2))));
    }
    if breaks(1) {
        events.push(ended(parent));
    }
    for event in &events {
        tree.evolve(at, event).unwrap();
    }
    let mut task = brief("task", target, "do it");
    task.model = Some(priced());
    task.rights_wish =
        breaks(7).then(|| Rights { tools: ToolSet::new(["Read", "Write"]), network: false });
    let found = if breaks(8) { Found::Unusable("is a FIFO".into()) } else { Found::Loaded };
    task.context = vec![ContextFile { path: "notes.md".into(), found }];
    tree.judge_one(at.plus_seconds(10), parent, &task)
}

#[test]
fn the_first_refusal_wins_in_the_order_of_the_design() {
    // DESIGN §5. Each step mends the first broken rule, so every adjacent pair is judged together.
    let expected = [
        Code::DelegationDisabled,
        Code::UnknownParent,
        Code::UnknownAgent,
        Code::CycleDetected,
        Code::MaxDepthExceeded,
        Code::MaxDelegationsExceeded,
        Code::MaxDelegationsExceeded,
        Code::RightsExceeded,
        Code::ValidationFailed,
        Code::ContextBudgetExceeded,
        Code::BudgetExceeded,
        Code::BudgetExceeded,
        Code::TimeExceeded,
        Code::QueueFull,
    ];
    let found: Vec<Code> =
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
    => Add --enable-delegation, or set ENABLE_DELEGATION=true, or enabled = true in the user config.

    UNKNOWN_PARENT: Unknown parent: sess_1700000001_aaaaaa is not a live delegation.
    `sess_1700000001_aaaaaa` is not a live delegation
    => Name a running delegation; `adjutant tree` lists them.

    UNKNOWN_AGENT: Unknown agent: planner. Known agents: stranger.
    no agent `planner` is defined, known are stranger
    => Use one of the known agents.

    CYCLE_DETECTED: Cycle detected: lead → planner → planner
    `planner` is already on the path lead > planner
    => Do this work at the current level, or delegate a smaller, different task.

    MAX_DEPTH_EXCEEDED: ERROR: Delegation depth limit (1) reached. Cannot delegate further.

    Current depth: 1
    Attempted delegation: do it
    Suggestion: Complete this task at current level or simplify.
    delegating to `do it` would reach depth 2, limit 1
    => Complete this task at the current level, or allow one level more with --set max_depth=2.

    MAX_DELEGATIONS_EXCEEDED: Too many delegations (1002). Maximum: 1 per parent
    the parent would have 1002 delegations, limit 1
    => Delegate fewer, larger tasks, or raise the limit with --set children_per_parent=1002.

    MAX_DELEGATIONS_EXCEEDED: Too many delegations (1003). Maximum: 1 per run
    the run would have 1003 delegations, limit 1
    => Delegate fewer, larger tasks, or raise the limit with --set children_per_run=1003.

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
    => Break the task into smaller pieces, or raise the limit with --set context_tokens=5001.

    BUDGET_EXCEEDED: Token budget exceeded: the task needs at least 5,101 tokens, 1,000 of the run's 1,000 are left.
    5101 tokens needed, 1000 left of the run's budget
    => Raise the budget with --set budget_tokens_run=5101, or delegate less.

    BUDGET_EXCEEDED: Money budget exceeded: the task needs up to $0.0203, $0.0010 of the run's $0.0010 are left.
    $0.0203 needed, $0.0010 left of the run's budget
    => Raise the budget with --budget-usd 0.03, or delegate less.

    TIME_EXCEEDED: No time left to delegate: its parent's deadline is used up.
    no time left: its parent's deadline
    => Finish with what is there, or give the parent more time.

    QUEUE_FULL: 1000 delegations are waiting, limit 1000.
    1000 delegations are waiting, limit 1000
    => Wait until delegations have ended, then try again.
    ");
}

#[test]
fn what_is_refused_for_its_fan_out_says_which_limit_it_met() {
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
fn a_disabled_policy_is_said_before_an_unknown_parent() {
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
    assert_eq!(off.ask(root, nine(), None).unwrap_err().code(), Code::DelegationDisabled);
    let mut sim = Sim::new(scout(&[]));
    let nobody = SessionId::new(1_600_000_000, [9; 6]);
    assert_eq!(sim.ask(nobody, nine(), None).unwrap_err().code(), Code::UnknownParent);
    assert_eq!(sim.ask(root, nine(), None).unwrap_err().code(), Code::MaxDelegationsExceeded);
    sim.cancel(root);
    assert_eq!(sim.ask(root, nine(), None).unwrap_err().code(), Code::UnknownParent);
}

// ---- Depth: requirements 3, 5, 6; D1, D8 ----

#[test]
fn d1_depth_is_inclusive_in_every_preset() {
    let names = ["implement", "task-executor", "implementer", "git-workflow-manager", "helper"];
    for (preset, max_depth) in [(Preset::Scout, 1), (Preset::Command, 3), (Preset::Story, 2)] {
        for depth in 1..=4 {
            let input = json!({"policy": {"enabled": true}, "tree": chain(&names[..depth]),
                "request": {"parent": names[depth - 1], "agent": names[depth], "prompt": "next"}});
            let found = answer(preset, &input).unwrap();
            assert_eq!(found.is_granted(), depth <= max_depth, "{preset} at {depth}: {found:?}");
            if depth > max_depth {
                assert_eq!(verdict(preset, &input), "MAX_DEPTH_EXCEEDED");
            }
        }
    }
}

#[test]
fn requirement_3_the_three_level_pattern_of_the_guide_is_granted_with_its_path() {
    // Seed 000, patterns 1 to 3: `orchestrator` is written before the command and is no level.
    let names = ["implement", "task-executor", "implementer", "git-workflow-manager", "helper"];
    let lines: Vec<String> = (1..=4)
        .map(|depth| {
            let input = json!({"tree": chain(&names[..depth]),
                "request": {"parent": names[depth - 1], "agent": names[depth]}});
            verdict(Preset::Command, &input)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    granted: depth 1, timeout 3600, orchestrator → implement → task-executor
    granted: depth 2, timeout 3600, orchestrator → implement → task-executor → implementer
    granted: depth 3, timeout 3600, orchestrator → implement → task-executor → implementer → git-workflow-manager
    MAX_DEPTH_EXCEEDED
    ");
}

#[test]
fn the_orchestrator_is_written_once_and_only_in_command() {
    let input = |root: &str| json!({"tree": [{"id": root}], "request": {"agent": "researcher"}});
    for (preset, root, path) in [
        (Preset::Command, "research", "orchestrator → research → researcher"),
        (Preset::Command, "orchestrator", "orchestrator → researcher"),
        (Preset::Scout, "research", "research → researcher"),
    ] {
        let found = verdict(preset, &input(root));
        assert!(found.ends_with(&format!(", {path}")), "{found}");
    }
}

#[test]
fn requirement_6_an_agent_at_the_deepest_level_is_given_no_tool_to_delegate_with() {
    let tools = |names: &[&str]| {
        let parent = names[names.len() - 1];
        let input = json!({"tree": chain(names), "request": {"parent": parent, "agent": "new"}});
        match answer(Preset::Command, &input).unwrap() {
            CheckAnswer::Granted { tools, .. } => tools.join(" "),
            refused @ CheckAnswer::Refused { .. } => format!("{refused:?}"),
        }
    };
    // No network by default, so WebFetch and WebSearch are not there either.
    assert_eq!(tools(&["a", "b"]), "Delegate Glob Grep Note Read Return Task Write");
    assert_eq!(tools(&["a", "b", "c"]), "Glob Grep Note Read Return Write");
}

#[test]
fn requirement_61_the_depth_text_of_the_seed_is_kept_to_the_letter() {
    let tree = chain(&["US-007", "US-007-DEL-001", "US-007-DEL-001-DEL-001"]);
    let input = json!({"policy": {"enabled": true}, "tree": tree, "request": {
        "parent": "US-007-DEL-001-DEL-001", "child": "X", "prompt": "Implement advanced caching layer"}});
    insta::assert_snapshot!(refusal(Preset::Story, &input), @r"
    MAX_DEPTH_EXCEEDED (recoverable)
    ERROR: Delegation depth limit (2) reached. Cannot delegate further.

    Current depth: 2
    Attempted delegation: Implement advanced caching layer
    Suggestion: Complete this task at current level or simplify.
    => Complete this task at the current level, or allow one level more with --set max_depth=3.
    ");
    let input =
        json!({"tree": chain(&["a", "b", "c", "d"]), "request": {"parent": "d", "agent": "e"}});
    insta::assert_snapshot!(refusal(Preset::Command, &input), @r"
    MAX_DEPTH_EXCEEDED (final)
    ERROR: Delegation depth limit (3) reached. Cannot delegate further.

    Current depth: 3
    Attempted delegation: e
    Suggestion: Complete this task at current level or simplify.
    => Complete this task at the current level; 3 is the hard maximum.
    ");
}

// ---- Cycles: requirements 7, 8; D9, D10 ----

#[test]
fn requirement_7_the_cycle_example_of_the_guide_is_refused() {
    let input = json!({"tree": chain(&["implement", "task-executor"]),
        "request": {"parent": "task-executor", "agent": "task-executor"}});
    insta::assert_snapshot!(refusal(Preset::Command, &input), @r"
    CYCLE_DETECTED (final)
    Cycle detected: orchestrator → implement → task-executor → task-executor
    => Do this work at the current level, or delegate a smaller, different task.
    ");
    // The root, an agent in the middle and the name before the command are on the path as well.
    for target in ["implement", "task-executor", "orchestrator"] {
        let input = json!({"tree": chain(&["implement", "task-executor", "implementer"]),
            "request": {"parent": "implementer", "agent": target}});
        assert_eq!(verdict(Preset::Command, &input), "CYCLE_DETECTED", "{target}");
    }
}

#[test]
fn an_agent_beside_the_path_is_no_cycle() {
    let mut tree = chain(&["implement", "task-executor"]);
    tree.push(json!({"id": "reviewer", "parent": "implement"}));
    let input = json!({"tree": tree, "request": {"parent": "task-executor", "agent": "reviewer"}});
    assert!(verdict(Preset::Command, &input).starts_with("granted: depth 2"));
}

#[test]
fn d9_the_same_task_is_a_cycle_in_scout_and_story_and_another_task_is_not() {
    let tree = json!([{"id": "lead"},
        {"id": "a", "parent": "lead", "agent": "scout", "prompt": "Find the bug"}]);
    for preset in [Preset::Scout, Preset::Story] {
        let ask = |agent: &str, prompt: &str| {
            let input = json!({"policy": {"enabled": true, "max_depth": 2}, "tree": tree,
                "request": {"parent": "a", "agent": agent, "prompt": prompt}});
            verdict(preset, &input)
        };
        assert_eq!(ask("scout", "  find THE\nbug "), "CYCLE_DETECTED", "{preset}");
        assert!(ask("scout", "Find the other bug").starts_with("granted"), "{preset}");
        assert!(ask("reader", "Find the bug").starts_with("granted"), "{preset}");
        // Nothing to be known by.
        assert!(ask("scout", " ").starts_with("granted"), "{preset}");
    }
}

#[test]
fn a_task_handed_down_under_another_label_or_through_others_is_a_cycle() {
    let mut sim = Sim::of(scout(&["max_depth=3"]), "lead", "map the code");
    let first = sim.child(brief("one", "scout", "find the bug"));
    let second = sim.child_of(first, brief("two", "scout", "look at x"));
    let again = sim.ask(second, vec![brief("three", "scout", "find the bug")], None).unwrap();
    assert_eq!(refused(&again), [Code::CycleDetected]);
    // The run's own goal is a task like any other.
    let again = sim.ask(first, vec![brief("four", "lead", "Map the code")], None).unwrap();
    assert_eq!(refused(&again), [Code::CycleDetected]);
    // Other context files make it another task.
    let mut other = brief("five", "scout", "find the bug");
    other.context = vec![ContextFile { path: "a.rs".into(), found: Found::Loaded }];
    assert_eq!(granted(&sim.ask(second, vec![other], None).unwrap()).len(), 1);
}

#[test]
fn requirement_61_the_cycle_text_of_the_seed_is_kept_to_the_letter() {
    let input = json!({"policy": {"enabled": true}, "tree": chain(&["US-007", "US-007-DEL-001"]),
        "request": {"parent": "US-007-DEL-001", "child": "US-007"}});
    insta::assert_snapshot!(refusal(Preset::Story, &input), @r"
    CYCLE_DETECTED (final)
    ERROR: Delegation cycle detected. Cannot delegate to avoid infinite loop.

    Cycle path: US-007 → US-007-DEL-001 → US-007 (attempted)

    This would create an infinite delegation loop.
    => Do this work at the current level, or delegate a smaller, different task.
    ");
}

#[test]
fn requirement_8_a_graph_of_stories_is_searched_without_a_tree() {
    let edges =
        json!([["US-007", "US-007-DEL-001"], ["US-007-DEL-001", "US-009"], ["US-001", "US-009"]]);
    let ask = |parent: &str, child: &str| {
        let input = json!({"policy": {"enabled": true}, "edges": edges,
            "request": {"parent": parent, "child": child}});
        refusal(Preset::Story, &input)
    };
    insta::assert_snapshot!(ask("US-009", "US-007"), @r"
    CYCLE_DETECTED (final)
    ERROR: Delegation cycle detected. Cannot delegate to avoid infinite loop.

    Cycle path: US-007 → US-007-DEL-001 → US-009 → US-007 (attempted)

    This would create an infinite delegation loop.
    => Do this work at the current level, or delegate a smaller, different task.
    ");
    assert!(ask("US-009", "US-009").contains("Cycle path: US-009 → US-009 (attempted)"));
    // D10: a diamond, a new story and a leaf are no error.
    for (parent, child) in [("US-001", "US-007"), ("US-007", "US-009"), ("US-009", "US-100")] {
        assert!(ask(parent, child).starts_with("Granted"), "{parent} → {child}");
    }
}

#[test]
fn a_story_handed_down_unchanged_is_a_cycle_by_its_text() {
    let input = json!({"policy": {"enabled": true},
        "tree": [{"id": "US-007"}, {"id": "US-007-DEL-001", "parent": "US-007", "agent": "dev", "prompt": "Add JWT"}],
        "request": {"parent": "US-007-DEL-001", "agent": "dev", "child": "US-007-DEL-002", "prompt": "add  jwt"}});
    let text = refusal(Preset::Story, &input);
    assert!(
        text.contains("Cycle path: US-007 → US-007-DEL-001 → US-007-DEL-002 (attempted)"),
        "{text}"
    );
}

// ---- Fan-out: requirement 24; D12 ----

fn many(count: usize) -> Vec<Brief> {
    (0..count).map(|n| about(&format!("t{n}"))).collect()
}

#[test]
fn requirement_24_a_call_with_too_many_tasks_is_refused_as_a_whole() {
    for (preset, most) in [(Preset::Scout, 8), (Preset::Command, 1), (Preset::Story, 10)] {
        let mut sim = Sim::new(policy(preset, &["enabled=true"]));
        let root = sim.root();
        let before = sim.log.len();
        let refusal = sim.ask(root, many(most + 1), None).unwrap_err();
        assert_eq!(refusal.code(), Code::MaxDelegationsExceeded);
        assert_eq!(sim.log.len(), before, "nothing may have happened");
        assert_eq!(granted(&sim.ask(root, many(most), None).unwrap()).len(), most, "{preset}");
    }
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    insta::assert_snapshot!(shown(&sim.ask(root, many(9), None).unwrap_err()), @r"
    MAX_DELEGATIONS_EXCEEDED: Too many delegations (9). Maximum: 8
    the call would have 9 delegations, limit 8
    => Delegate fewer, larger tasks, or raise the limit with --set tasks_per_call=9.
    ");
}

#[test]
fn a_batch_counts_its_own_grants_and_those_before_it() {
    // 45 of 50 are granted; of eight more five stand and three are refused, in input order.
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    for count in [8, 8, 8, 8, 8, 5] {
        assert_eq!(granted(&sim.ask(root, many(count), None).unwrap()).len(), count);
    }
    let events = sim.ask(root, many(8), None).unwrap();
    let answers: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Granted(_) => Some("granted"),
            Event::Refused { reason, .. } => Some(reason.code.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(answers[..5], ["granted"; 5]);
    assert_eq!(answers[5..], ["MAX_DELEGATIONS_EXCEEDED"; 3]);
    let Event::Refused { reason, index, .. } = &events[5] else { panic!("{events:?}") };
    assert_eq!(*index, 5);
    insta::assert_snapshot!(format!("{}\n=> {}", reason.message, reason.recommendation), @r"
    Too many delegations (51). Maximum: 50 per run
    => Delegate fewer, larger tasks, or raise the limit with --set children_per_run=51.
    ");
}

#[test]
fn d12_children_are_counted_over_a_parents_life_not_over_its_live_ones() {
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true"]));
    let root = sim.root();
    // A child that keeps the run open, and nine that come and go.
    let open = sim.child(about("open"));
    for n in 0..9 {
        let child = sim.child(about(&format!("n{n}")));
        sim.cancel(child);
    }
    let eleventh = sim.ask(root, many(1), None).unwrap();
    assert_eq!(refused(&eleventh), [Code::MaxDelegationsExceeded]);
    // The limit is each parent's own.
    assert_eq!(granted(&sim.ask(open, many(10), None).unwrap()).len(), 10);
    assert_eq!(refused(&sim.ask(open, many(1), None).unwrap()), [Code::MaxDelegationsExceeded]);
}

#[test]
fn two_equal_labels_in_one_call_are_told_apart() {
    let labels = |labels: &[&str]| -> Vec<String> {
        let mut sim = Sim::new(scout(&[]));
        let briefs = labels.iter().map(|label| about(label)).collect();
        sim.children(briefs).iter().map(|child| sim.node(*child).label.to_string()).collect()
    };
    assert_eq!(labels(&["a", "b", "a", "a"]), ["a", "b", "a (2)", "a (3)"]);
    // A label that already looks numbered is not taken twice.
    assert_eq!(labels(&["a", "a (2)", "a"]), ["a", "a (2)", "a (3)"]);
    assert_eq!(labels(&["a", "a", "a (2)"]), ["a", "a (2)", "a (2) (2)"]);
}

// ---- Rights: promise 4 ----

fn rights_of(sim: &Sim, session: SessionId) -> String {
    let rights = &sim.node(session).rights;
    format!("{}{}", rights.tools, if rights.network { " +network" } else { "" })
}

#[test]
fn rights_only_shrink_on_the_way_down() {
    let settings = ["enabled=true", "max_depth=3", "network=true"];
    let mut sim = Sim::new(policy(Preset::Story, &settings));
    let define = |agent: &str, tools: &[&str], network: bool| Command::Define {
        agent: AgentName::new(agent),
        system: String::new(),
        tools: Vec::new(),
        rights: Rights { tools: ToolSet::new(tools.iter().copied()), network },
    };
    sim.submit(define("dev", &["Read", "Write", "Delegate"], true)).unwrap();
    sim.submit(define("all", &["Read", "Write", "Run", "WebFetch", "Delegate"], true)).unwrap();
    sim.submit(define("reader", &["Read", "WebFetch"], false)).unwrap();
    let dev = sim.child(brief("dev", "dev", "a"));
    assert_eq!(rights_of(&sim, dev), "Delegate, Read, Write +network");
    // A definition is a ceiling, not a grant: `all` gets from `dev` what `dev` has.
    let all = sim.child_of(dev, brief("all", "all", "b"));
    assert_eq!(rights_of(&sim, all), "Delegate, Read, Write +network");
    let reader = sim.child_of(all, brief("reader", "reader", "c"));
    assert_eq!(rights_of(&sim, reader), "Read");
}

#[test]
fn a_wish_within_the_parents_rights_is_granted_and_one_beyond_is_refused() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let wish = |tools: &[&str], network: bool| Brief {
        rights_wish: Some(Rights { tools: ToolSet::new(tools.iter().copied()), network }),
        ..about("wish")
    };
    let less = sim.child(wish(&["Read"], false));
    assert_eq!(rights_of(&sim, less), "Read");
    for (tools, network) in [(&["Read", "Run"][..], false), (&["Read"], true), (&["Edit"], true)] {
        let events = sim.ask(root, vec![wish(tools, network)], None).unwrap();
        assert_eq!(refused(&events), [Code::RightsExceeded], "{tools:?} {network}");
    }
    let reason = |tools: &[&str], network: bool| {
        let refusal = sim.tree.judge_one(sim.now, root, &wish(tools, network)).unwrap_err();
        shown(&refusal)
    };
    insta::assert_snapshot!(reason(&["Edit", "Run"], false), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: Edit, Run.
    rights beyond the parent's: Edit, Run
    => Ask only for tools the parent holds.
    ");
    insta::assert_snapshot!(reason(&["Read"], true), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: the network.
    rights beyond the parent's: the network
    => Ask only for tools and a network that the parent holds.
    ");
    insta::assert_snapshot!(reason(&["Edit"], true), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: Edit, the network.
    rights beyond the parent's: Edit, the network
    => Ask only for tools and a network that the parent holds.
    ");
}

// ---- Agents ----

#[test]
fn any_agent_is_known_unless_agents_are_given() {
    let ask = |agents: Value| {
        let mut input = json!({"tree": [{"id": "lead"}], "request": {"agent": "scout"}});
        if !agents.is_null() {
            input["agents"] = agents;
        }
        refusal(Preset::Scout, &input)
    };
    assert!(ask(Value::Null).starts_with("Granted"));
    assert!(ask(json!(["reader", "scout"])).starts_with("Granted"));
    insta::assert_snapshot!(ask(json!(["reader", "planner"])), @r"
    UNKNOWN_AGENT (recoverable)
    Unknown agent: scout. Known agents: planner, reader.
    => Use one of the known agents.
    ");
    // An empty list knows nobody.
    insta::assert_snapshot!(ask(json!([])), @r"
    UNKNOWN_AGENT (recoverable)
    Unknown agent: scout. Known agents: none.
    => Use one of the known agents.
    ");
}

// ---- Context: requirement 23; D11 ----

fn story_context(parent: u64, request: Value) -> Value {
    let mut request = request;
    request["parent"] = json!("US-007");
    json!({"policy": {"enabled": true}, "tree": [{"id": "US-007", "context_tokens": parent}],
        "request": request})
}

#[test]
fn requirement_61_the_context_text_of_the_seed_is_kept_to_the_letter() {
    let input = story_context(85_000, json!({"child": "X", "estimate_tokens": 35_000}));
    insta::assert_snapshot!(refusal(Preset::Story, &input), @r"
    CONTEXT_BUDGET_EXCEEDED (recoverable)
    ERROR: Agent context budget (100k tokens) exceeded. Simplify subtask.

    Current context: 85,000 tokens
    Subtask estimate: 35,000 tokens
    Total would be: 120,000 tokens
    Maximum allowed: 100,000 tokens

    Suggestion: Break subtask into smaller pieces or reduce parent context.
    => Break the task into smaller pieces, or raise the limit with --set context_tokens=120000.
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
fn d11_elsewhere_a_child_must_fit_its_own_window() {
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
    => Break the task into smaller pieces, or raise the limit with --set context_tokens=10001.
    ");
    // Raising the policy to what the model cannot hold would help nobody.
    insta::assert_snapshot!(judge(200_001).unwrap_err().recommendation(), @"Break the task into smaller pieces, or use a model with a larger window.");
}

#[test]
fn d11_a_parent_must_be_able_to_take_in_what_comes_back() {
    // The parent holds 20,000 and may be handed 4,096 by each child.
    let small = ModelSpec { window: 20_000, ..model() };
    let lead = Brief { model: Some(small), estimate_tokens: Some(0), ..about("lead") };
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let parent = sim.child(lead);
    // 4 × 4,096 fit beside a first request of a few tokens, 5 do not; a batch counts its own.
    let events = sim.ask(parent, many(5), None).unwrap();
    assert_eq!(granted(&events).len(), 4);
    assert_eq!(refused(&events), [Code::ContextBudgetExceeded]);
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
    => Break the task into smaller pieces, or use a model with a larger window.
    ");
}

#[test]
fn a_context_file_that_may_not_be_handed_over_refuses_its_task_alone() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let with = |found: Found| Brief {
        context: vec![ContextFile { path: "../secret".into(), found }],
        ..about("x")
    };
    let outside = Found::Unusable("lies outside the root".into());
    let events = sim
        .ask(root, vec![with(Found::Missing), with(outside), with(Found::Loaded)], None)
        .unwrap();
    assert_eq!((granted(&events).len(), refused(&events)), (2, vec![Code::ValidationFailed]));
    let Event::Refused { reason, .. } = &events[1] else { panic!("{events:?}") };
    insta::assert_snapshot!(format!("{}\n=> {}", reason.message, reason.recommendation), @r"
    Context file `../secret`: lies outside the root.
    => Name regular files inside the working tree, below the size cap.
    ");
}

// ---- Budgets ----

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
    => Raise the budget with --set budget_tokens=5100, or delegate less.
    ");
    insta::assert_snapshot!(refusal(Preset::Scout, &input("budget_tokens_run")), @r"
    BUDGET_EXCEEDED (recoverable)
    Token budget exceeded: the task needs at least 5,100 tokens, 5,099 of the run's 5,099 are left.
    => Raise the budget with --set budget_tokens_run=5100, or delegate less.
    ");
}

#[test]
fn money_is_judged_for_models_with_a_price_only() {
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
    => Raise the budget with --budget-usd 0.03, or delegate less.
    ");
    assert!(judge("0.00001", model()).is_ok());
}

#[test]
fn what_is_spent_and_held_anywhere_on_the_way_up_is_not_there_for_a_child() {
    let mut sim = Sim::new(scout(&["max_depth=2", "budget_tokens=20000", "max_output_tokens=100"]));
    let parent = sim.child(about("lead"));
    let judge = |sim: &Sim| sim.tree.judge_one(sim.now, parent, &about("x")).map(drop);
    assert_eq!(judge(&sim), Ok(()));
    sim.reply(parent, Reply { usage: used(14_000, 100), ..asks(vec![read("1", "a")]) });
    // 5,900 are left and 5,102 are needed; then the next call holds 14,000 more open.
    assert_eq!(judge(&sim), Ok(()));
    let spent = sim.node(parent).ledger.settled;
    assert_eq!(spent, Amount { tokens: 14_100, usd: Usd::ZERO });
    let reservation = Reservation {
        turn: 2,
        attempt: 1,
        max_output: 100,
        amount: Amount { tokens: 1_000, usd: Usd::ZERO },
        last_call: false,
    };
    let mut held = sim.tree.clone();
    held.evolve(sim.now, &Event::Reserved { session: parent, reservation }).unwrap();
    let refusal = held.judge_one(sim.now, parent, &about("x")).unwrap_err();
    insta::assert_snapshot!(shown(&refusal), @r"
    BUDGET_EXCEEDED: Token budget exceeded: the task needs at least 5,102 tokens, 4,900 of the delegation's 20,000 are left.
    5102 tokens needed, 4900 left of the delegation's budget
    => Raise the budget with --set budget_tokens=20202, or delegate less.
    ");
}

// ---- Time: requirements 17 to 21; D5, D6, D7 ----

#[test]
fn requirement_19_the_time_table_of_command_holds() {
    // Operation, default, maximum, as in seed 002 and DESIGN §3.
    for (operation, default, most) in [
        ("research", 3_600, 7_200),
        ("plan", 1_800, 3_600),
        ("implement", 7_200, 14_400),
        ("revise", 1_800, 3_600),
        ("review", 3_600, 7_200),
        ("simple", 300, 600),
        ("unknown", 3_600, 7_200),
        ("/research", 3_600, 7_200),
        ("juggle", 3_600, 7_200),
    ] {
        let ask = |wish: Value| {
            let mut request = json!({"agent": "worker", "operation": operation});
            if !wish.is_null() {
                request["timeout"] = wish;
            }
            verdict(Preset::Command, &json!({"tree": [{"id": "cmd"}], "request": request}))
        };
        let expect = |seconds: u64, clamped: &str| {
            format!("granted: depth 1, timeout {seconds}{clamped}, orchestrator → cmd → worker")
        };
        assert_eq!(ask(Value::Null), expect(default, ""), "{operation}");
        assert_eq!(ask(json!(1)), expect(1, ""), "{operation}");
        assert_eq!(ask(json!(most)), expect(most, ""), "{operation}");
        assert_eq!(ask(json!(most + 1)), expect(most, " clamped"), "{operation}");
    }
}

#[test]
fn d5_scout_has_no_timeout_and_story_thirty_minutes() {
    let ask = |preset: Preset, timeout: u64| {
        let mut input = json!({"policy": {"enabled": true}, "tree": [{"id": "p"}],
            "request": {"agent": "c"}});
        if timeout > 0 {
            input["request"]["timeout"] = json!(timeout);
        }
        verdict(preset, &input)
    };
    assert_eq!(ask(Preset::Scout, 0), "granted: depth 1, timeout none, p → c");
    assert_eq!(ask(Preset::Scout, 5), "granted: depth 1, timeout 5, p → c");
    assert_eq!(ask(Preset::Story, 0), "granted: depth 1, timeout 1800, p → c");
    assert_eq!(ask(Preset::Story, 1_800), "granted: depth 1, timeout 1800, p → c");
    assert_eq!(ask(Preset::Story, 1_801), "granted: depth 1, timeout 1800 clamped, p → c");
}

#[test]
fn d6_a_child_is_never_given_more_time_than_its_parent_has_left() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    let judge = |sim: &Sim, millis: u64, wish: Option<u64>| {
        let task = Brief { timeout_wish: wish, ..brief("c", "child", "") };
        sim.tree
            .judge_one(Timestamp::from_millis(millis), parent, &task)
            .map(|admission| (admission.timeout_s, admission.clamped))
    };
    assert_eq!(judge(&sim, 0, Some(50)), Ok((Some(50), false)));
    // Its own default would be an hour; nobody asked for it, so nothing is called cut.
    assert_eq!(judge(&sim, 40_000, None), Ok((Some(60), false)));
    assert_eq!(judge(&sim, 40_000, Some(60)), Ok((Some(60), false)));
    assert_eq!(judge(&sim, 40_000, Some(61)), Ok((Some(60), true)));
    assert_eq!(judge(&sim, 99_000, Some(50)), Ok((Some(1), true)));
    insta::assert_snapshot!(shown(&judge(&sim, 99_001, None).unwrap_err()), @r"
    TIME_EXCEEDED: No time left to delegate: its parent's deadline is used up.
    no time left: its parent's deadline
    => Finish with what is there, or give the parent more time.
    ");
    // The deadline that holds is set when it starts.
    sim.now = Timestamp::from_millis(40_000);
    let child = sim.child_of(parent, brief("c", "child", ""));
    assert_eq!(sim.node(child).deadline, Some(Timestamp::from_millis(100_000)));
}

#[test]
fn requirement_21_a_parent_spends_two_hours_delegating_in_all() {
    // From its first grant on: 7,200 s, whatever the children ask for.
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true"]));
    let root = sim.root();
    sim.now = Timestamp::from_millis(1_000_000);
    let first = sim.child(about("first"));
    let judge = |sim: &Sim, seconds: u64| {
        let now = Timestamp::from_millis(seconds * 1_000);
        sim.tree.judge_one(now, root, &about("x")).map(|admission| admission.timeout_s)
    };
    assert_eq!(judge(&sim, 1_000 + 5_400), Ok(Some(1_800)));
    assert_eq!(judge(&sim, 1_000 + 5_401), Ok(Some(1_799)));
    assert_eq!(judge(&sim, 1_000 + 7_199), Ok(Some(1)));
    insta::assert_snapshot!(shown(&judge(&sim, 1_000 + 7_200).unwrap_err()), @r"
    TIME_EXCEEDED: No time left to delegate: its parent's total for delegating of 7,200 s is used up.
    no time left: its parent's total for delegating
    => Finish with what is there, or give the parent more time.
    ");
    sim.now = Timestamp::from_millis((1_000 + 7_000) * 1_000);
    let late = sim.child(about("late"));
    assert_eq!(sim.node(late).deadline, Some(Timestamp::from_millis(8_200_000)));
    assert_eq!(sim.node(first).deadline, Some(Timestamp::from_millis(2_800_000)));
    // A later grant does not begin it anew.
    assert_eq!(judge(&sim, 1_000 + 7_199), Ok(Some(1)));
    assert!(judge(&sim, 1_000 + 7_200).is_err());
}

#[test]
fn a_timeout_of_the_policy_is_cut_to_its_own_maximum() {
    let mut policy = scout(&[]);
    policy.timeout_s = Timeout::Seconds(100);
    policy.timeout_max_s = Timeout::Seconds(60);
    let sim = Sim::new(policy);
    let admission = sim.tree.judge_one(sim.now, sim.root(), &about("x")).unwrap();
    assert_eq!((admission.timeout_s, admission.clamped), (Some(60), false));
}

// ---- The queue ----

#[test]
fn a_thousand_may_wait_and_not_one_more() {
    let settings = [
        "enabled=true",
        "tasks_per_call=2000",
        "children_per_parent=none",
        "children_per_run=none",
    ];
    let mut sim = Sim::new(policy(Preset::Story, &settings));
    let root = sim.root();
    // Three find a place at once, a thousand wait.
    let events = sim.ask(root, many(1_004), None).unwrap();
    assert_eq!(granted(&events).len(), 1_003);
    assert_eq!(refused(&events), [Code::QueueFull]);
    assert_eq!(sim.tree.waiting(), QUEUE_LIMIT);
    insta::assert_snapshot!(shown(&sim.tree.judge_one(sim.now, root, &about("x")).unwrap_err()), @r"
    QUEUE_FULL: 1000 delegations are waiting, limit 1000.
    1000 delegations are waiting, limit 1000
    => Wait until delegations have ended, then try again.
    ");
    // A free place somewhere else is no place in the queue, but it needs none.
    let running = granted(&events)[0];
    assert_eq!(granted(&sim.ask(running, many(4), None).unwrap()).len(), 3);
    // Whoever ends makes room.
    sim.cancel(granted(&events)[1_000]);
    assert_eq!(granted(&sim.ask(root, many(2), None).unwrap()).len(), 1);
    sim.cancel(root);
    sim.check_over();
}

#[test]
fn those_who_wait_for_a_person_have_no_place_yet() {
    let mut sim =
        Sim::new(policy(Preset::Scout, &["tasks_per_call=2000", "children_per_run=none"]));
    let root = sim.root();
    let events = sim.ask(root, many(1_001), None).unwrap();
    assert_eq!(granted(&events).len(), 1_000);
    assert_eq!(refused(&events), [Code::QueueFull]);
    assert_eq!(sim.tree.waiting(), QUEUE_LIMIT);
}

#[test]
fn d29_over_the_concurrency_limit_a_task_waits_and_is_not_refused() {
    for (preset, concurrency, ceiling) in
        [(Preset::Scout, 2, 4), (Preset::Command, 1, 4), (Preset::Story, 3, 8)]
    {
        for (wish, places) in [(None, concurrency), (Some(0), 1), (Some(3), 3), (Some(99), ceiling)]
        {
            let mut policy = policy(preset, &["enabled=true", "tasks_per_call=10"]);
            policy.approval = Approval::None;
            policy.cycle_key = CycleKey::Task;
            let mut sim = Sim::new(policy);
            let root = sim.root();
            let children = granted(&sim.ask(root, many(10), wish).unwrap());
            let running = children.iter().filter(|child| *sim.state(**child) == State::Running);
            assert_eq!(running.count() as u64, places, "{preset} {wish:?}");
            assert_eq!(sim.tree.waiting(), 10 - places);
        }
    }
}

// ---- What is recommended works ----

/// Returns the policy settings that a recommendation tells a person to type.
fn flags(recommendation: &str) -> Vec<(String, Value)> {
    let words: Vec<&str> =
        recommendation.split_whitespace().map(|word| word.trim_end_matches([',', '.'])).collect();
    let mut settings = Vec::new();
    for pair in words.windows(2) {
        match pair[0] {
            "--set" => {
                let (key, value) = parse_assignment(pair[1]).unwrap();
                settings.push((key.to_owned(), value));
            }
            "--budget-usd" => {
                settings.push(("budget_usd".into(), serde_json::from_str(pair[1]).unwrap()));
            }
            "--enable-delegation" => settings.push(("enabled".into(), json!(true))),
            word => assert!(!word.starts_with("--"), "what does {word} do?"),
        }
    }
    settings
}

#[test]
fn a_flag_that_is_recommended_works_when_pasted() {
    let ten: Vec<Value> = std::iter::once(json!({"id": "p"}))
        .chain((0..10).map(|n| json!({"id": format!("c{n}"), "parent": "p"})))
        .collect();
    let fifty: Vec<Value> = std::iter::once(json!({"id": "p"}))
        .chain((0..50).map(|n| json!({"id": format!("c{n}"), "parent": "p"})))
        .collect();
    for (preset, input) in [
        (Preset::Story, json!({"tree": [{"id": "p"}], "request": {"agent": "x"}})),
        (
            Preset::Scout,
            json!({"tree": chain(&["a", "b"]), "request": {"parent": "b", "agent": "x"}}),
        ),
        (
            Preset::Story,
            json!({"policy": {"enabled": true}, "tree": chain(&["a", "b", "c"]),
            "request": {"parent": "c", "agent": "x"}}),
        ),
        (
            Preset::Story,
            json!({"policy": {"enabled": true}, "tree": ten, "request": {"agent": "x"}}),
        ),
        (Preset::Scout, json!({"tree": fifty, "request": {"agent": "x"}})),
        (Preset::Story, story_context(85_000, json!({"child": "X", "estimate_tokens": 35_000}))),
        (
            Preset::Scout,
            json!({"policy": {"context_tokens": 4_000}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
        (
            Preset::Scout,
            json!({"policy": {"budget_tokens": 5_000}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
        (
            Preset::Scout,
            json!({"policy": {"budget_tokens_run": 9}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
    ] {
        let CheckAnswer::Refused { recommendation, code, .. } = answer(preset, &input).unwrap()
        else {
            panic!("{input} is granted already")
        };
        let settings = flags(&recommendation);
        assert!(!settings.is_empty(), "{code}: {recommendation}");
        let mut mended = input.clone();
        for (key, value) in settings {
            mended["policy"][key] = value;
        }
        let found = verdict(preset, &mended);
        assert!(found.starts_with("granted"), "{code}: {recommendation} gives {found}");
    }
}

#[test]
fn a_flag_recommended_where_check_cannot_look_works_when_pasted() {
    // Money needs a price, and a whole call needs a call.
    let mended = |settings: &[&str], refusal: &Refusal| {
        let mut layered = Layered::new(Preset::Scout);
        for setting in settings {
            let (key, value) = parse_assignment(setting).unwrap();
            layered.set(key, &value, &Source::Flag("--set".into())).unwrap();
        }
        for (key, value) in flags(&refusal.recommendation()) {
            layered.set(&key, &value, &Source::Flag("--set".into())).unwrap();
        }
        Sim::new(layered.into_policy())
    };
    let task = || Brief { model: Some(priced()), ..about("x") };
    for dollars in ["budget_usd=0.01", "budget_usd=0.0000001", "budget_usd=0.02"] {
        let sim = Sim::new(scout(&[dollars]));
        let refusal = sim.tree.judge_one(sim.now, sim.root(), &task()).unwrap_err();
        let again = mended(&[dollars], &refusal);
        assert!(again.tree.judge_one(sim.now, sim.root(), &task()).is_ok(), "{refusal}");
    }
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let refusal = sim.ask(root, many(9), None).unwrap_err();
    let mut again = mended(&[], &refusal);
    assert_eq!(granted(&again.ask(root, many(9), None).unwrap()).len(), 9);
}

#[test]
fn a_refusal_is_recoverable_exactly_when_its_recommendation_helps() {
    let recoverable: Vec<String> = (0..14)
        .map(|mended| broken_from(mended).unwrap_err())
        .filter(Refusal::recoverable)
        .map(|refusal| refusal.code().to_string())
        .collect();
    assert_eq!(
        recoverable.join(" "),
        "DELEGATION_DISABLED UNKNOWN_AGENT MAX_DEPTH_EXCEEDED MAX_DELEGATIONS_EXCEEDED \
         MAX_DELEGATIONS_EXCEEDED VALIDATION_FAILED CONTEXT_BUDGET_EXCEEDED BUDGET_EXCEEDED \
         BUDGET_EXCEEDED QUEUE_FULL"
    );
}

// ---- What check cannot read ----

#[test]
fn input_that_describes_no_tree_is_named() {
    let problem = |input: Value| answer(Preset::Scout, &input).unwrap_err().to_string();
    let request = json!({"agent": "x"});
    for (input, expected) in [
        (json!({"request": request}), "tree: at least the root is needed"),
        (json!({"tree": [{"id": "a"}], "request": {}}), "request: `agent` or `child` is needed"),
        (
            json!({"tree": [{"id": "a"}, {"id": "a", "parent": "a"}], "request": request}),
            "tree: `a` appears twice",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b", "parent": "c"}], "request": request}),
            "tree: `b` does not lead to the root; its parent is `c`",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b"}], "request": request}),
            "tree: `b` does not lead to the root; its parent is missing",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b", "parent": "c"}, {"id": "c", "parent": "b"}],
                "request": request}),
            "tree: `c` does not lead to the root; its parent is `b`",
        ),
        (
            json!({"policy": {"max_depth": 4}, "tree": [{"id": "a"}], "request": request}),
            "policy: max_depth: 4 is too deep, the hard maximum is 3",
        ),
        (
            json!({"policy": {"max_dept": 2}, "tree": [{"id": "a"}], "request": request}),
            "policy: unknown policy key `max_dept`; did you mean `max_depth`?",
        ),
    ] {
        assert_eq!(problem(input.clone()), expected, "{input}");
    }
    let unknown: Result<CheckInput, _> =
        serde_json::from_value(json!({"tree": [], "request": request, "extra": 1}));
    assert!(unknown.is_err());
}

#[test]
fn nodes_may_be_written_in_any_order_after_the_root() {
    let input = json!({"tree": [{"id": "a"}, {"id": "c", "parent": "b"}, {"id": "b", "parent": "a"}],
        "request": {"parent": "c", "agent": "d"}});
    let expected = "granted: depth 3, timeout 3600, orchestrator → a → b → c → d";
    assert_eq!(verdict(Preset::Command, &input), expected);
}

#[test]
fn an_answer_is_printed_with_the_documented_keys() {
    let input = json!({"tree": [{"id": "lead"}], "request": {"agent": "scout", "prompt": "look"}});
    let text = serde_json::to_string(&answer(Preset::Scout, &input).unwrap()).unwrap();
    insta::assert_snapshot!(text, @r#"{"granted":true,"depth":1,"path":["lead","scout"],"timeout":null,"clamped":false,"estimate_tokens":5001,"tools":["Glob","Grep","Note","Read"]}"#);
    let input = json!({"tree": [{"id": "lead"}], "request": {"parent": "x", "agent": "scout"}});
    let text = serde_json::to_string(&answer(Preset::Scout, &input).unwrap()).unwrap();
    insta::assert_snapshot!(text, @r#"{"granted":false,"code":"UNKNOWN_PARENT","message":"Unknown parent: x is not a live delegation.","recommendation":"Name a running delegation; `adjutant tree` lists them.","recoverable":false}"#);
}

// ---- What a person is asked to risk ----

#[test]
fn the_worst_case_is_the_sum_of_what_every_task_may_take() {
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true"]));
    let root = sim.root();
    let briefs = (0..4).map(|n| Brief { model: Some(priced()), ..about(&n.to_string()) }).collect();
    let events = sim.ask(root, briefs, Some(1)).unwrap();
    let grants: Vec<Grant> = events
        .iter()
        .filter_map(|event| match event {
            Event::Granted(grant) => Some(grant.as_ref().clone()),
            _ => None,
        })
        .collect();
    let (amount, seconds) = worst_case(sim.tree.policy(), &grants);
    assert_eq!(amount.tokens, 20_000_000);
    assert_eq!(amount.usd, Usd::from_dollars(5.0).unwrap());
    // One after the other, because the call asked for one place.
    assert_eq!(seconds, Some(4 * 1_800));
    let (one, _) = worst_case(&scout(&["budget_usd=none"]), &grants[..1]);
    assert_eq!((one.tokens, one.usd), (5_000_000, Usd::from_dollars(75.0).unwrap()));
    let unbounded = Grant { timeout_s: None, ..grants[0].clone() };
    assert_eq!(worst_case(sim.tree.policy(), &[grants[1].clone(), unbounded]).1, None);
}
