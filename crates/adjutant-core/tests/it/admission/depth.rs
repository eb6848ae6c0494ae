//! Part of `admission`: depth.

use super::*;

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
fn the_orchestrator_is_in_the_path_once_and_only_in_the_command_preset() {
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
fn requirement_6_an_agent_at_the_deepest_level_has_no_delegation_tools() {
    let tools = |names: &[&str]| {
        let parent = names[names.len() - 1];
        let input = json!({"tree": chain(names), "request": {"parent": parent, "agent": "new"}});
        match answer(Preset::Command, &input).unwrap() {
            CheckAnswer::Granted { tools, .. } => tools.join(" "),
            refused @ CheckAnswer::Refused { .. } => format!("{refused:?}"),
        }
    };
    // No network by default, so WebFetch and WebSearch are not there either.
    assert_eq!(tools(&["a", "b"]), "Delegate Edit Glob Grep Note Read Task Write");
    assert_eq!(tools(&["a", "b", "c"]), "Edit Glob Grep Note Read Write");
}

#[test]
fn requirement_61_the_depth_message_is_the_prescribed_one() {
    let tree = chain(&["US-007", "US-007-DEL-001", "US-007-DEL-001-DEL-001"]);
    let input = json!({"policy": {"enabled": true}, "tree": tree, "request": {
        "parent": "US-007-DEL-001-DEL-001", "child": "X", "prompt": "Implement advanced caching layer"}});
    insta::assert_snapshot!(refusal(Preset::Story, &input), @r"
    MAX_DEPTH_EXCEEDED (recoverable)
    ERROR: Delegation depth limit (2) reached. Cannot delegate further.

    Current depth: 2
    Attempted delegation: Implement advanced caching layer
    Suggestion: Complete this task at current level or simplify.
    => Complete this task at the current level, or start the run again with --set max_depth=3.
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

#[test]
fn limits_count_from_the_depth_that_the_run_starts_at() {
    let levels = |max_depth: u64, base_depth: u64| {
        let policy = policy(Preset::Command, &[&format!("max_depth={max_depth}")]);
        let mut sim = match Sim::at_depth(policy, base_depth) {
            Ok(sim) => sim,
            Err(refusal) => return format!("{}: {refusal}", refusal.code()),
        };
        // What is recorded is all that a resumed run has.
        sim = Sim::replay(&sim.log);
        let mut parent = sim.root();
        let mut depths = vec![sim.node(parent).depth.to_string()];
        loop {
            let task = brief("x", &format!("agent-{}", depths.len()), "x");
            let events = sim.ask(parent, vec![task], None).unwrap();
            let Some(child) = granted(&events).first().copied() else { break };
            depths.push(sim.node(child).depth.to_string());
            parent = child;
        }
        depths.join(" > ")
    };
    let lines = [(1, 0), (3, 0), (1, 1), (3, 1), (3, 2), (3, 3), (1, 2), (3, 4)].map(
        |(max_depth, base)| format!("max {max_depth}, base {base}: {}", levels(max_depth, base)),
    );
    insta::assert_snapshot!(lines.join("\n"), @"
    max 1, base 0: 0 > 1
    max 3, base 0: 0 > 1 > 2 > 3
    max 1, base 1: 1
    max 3, base 1: 1 > 2 > 3
    max 3, base 2: 2 > 3
    max 3, base 3: 3
    max 1, base 2: MAX_DEPTH_EXCEEDED: the run would start at depth 2 (DELEGATION_DEPTH), limit 1
    max 3, base 4: MAX_DEPTH_EXCEEDED: the run would start at depth 4 (DELEGATION_DEPTH), limit 3
    ");
}
