//! Part of `admission`: cycles.

use super::*;

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
fn an_agent_outside_the_path_is_no_cycle() {
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
fn the_same_task_with_another_label_or_through_other_agents_is_a_cycle() {
    let mut sim = Sim::of(scout(&["max_depth=3"]), "lead", "map the code");
    let first = sim.child(brief("one", "scout", "find the bug"));
    let second = sim.child_of(first, brief("two", "scout", "look at x"));
    let again = sim.ask(second, vec![brief("three", "scout", "find the bug")], None).unwrap();
    assert_eq!(refused(&again), [ErrorCode::CycleDetected]);
    // The run's own goal is a task like any other.
    let again = sim.ask(first, vec![brief("four", "lead", "Map the code")], None).unwrap();
    assert_eq!(refused(&again), [ErrorCode::CycleDetected]);
    // Other context files make it another task.
    let mut other = brief("five", "scout", "find the bug");
    other.context = vec![ContextFile { path: "a.rs".into(), found: ContextFileStatus::Loaded }];
    assert_eq!(granted(&sim.ask(second, vec![other], None).unwrap()).len(), 1);
}

#[test]
fn requirement_61_the_cycle_message_is_the_prescribed_one() {
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
fn a_story_delegated_unchanged_is_a_cycle_by_its_text() {
    let input = json!({"policy": {"enabled": true},
        "tree": [{"id": "US-007"}, {"id": "US-007-DEL-001", "parent": "US-007", "agent": "dev", "prompt": "Add JWT"}],
        "request": {"parent": "US-007-DEL-001", "agent": "dev", "child": "US-007-DEL-002", "prompt": "add  jwt"}});
    let text = refusal(Preset::Story, &input);
    assert!(
        text.contains("Cycle path: US-007 → US-007-DEL-001 → US-007-DEL-002 (dev) (attempted)"),
        "{text}"
    );
}
