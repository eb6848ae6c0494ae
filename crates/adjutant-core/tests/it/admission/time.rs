//! Part of `admission`: time.

use super::*;

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
        let task = Brief {
            timeout_wish: wish,
            is_timeout_requested: wish.is_some(),
            ..brief("c", "child", "")
        };
        sim.tree
            .judge_one(Timestamp::from_millis(millis), parent, &task)
            .map(|admission| (admission.timeout_s, admission.clamped))
    };
    assert_eq!(judge(&sim, 0, Some(50)), Ok((Some(50), false)));
    // Its own default would be an hour; no one requested it, so clamping it is not reported.
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
    assert_eq!(sim.node(child).deadline(), Some(Timestamp::from_millis(100_000)));
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
    insta::assert_snapshot!(shown(&judge(&sim, 1_000 + 7_200).unwrap_err()), @"
    TIME_EXCEEDED: No time left to delegate: its parent's total for delegating (total_s) of 7,200 s is used up.
    no time left: its parent's total for delegating (total_s)
    => Finish with what is there, or give the parent more time.
    ");
    sim.now = Timestamp::from_millis((1_000 + 7_000) * 1_000);
    let late = sim.child(about("late"));
    assert_eq!(sim.node(late).deadline(), Some(Timestamp::from_millis(8_200_000)));
    assert_eq!(sim.node(first).deadline(), Some(Timestamp::from_millis(2_800_000)));
    // A later grant does not begin it anew.
    assert_eq!(judge(&sim, 1_000 + 7_199), Ok(Some(1)));
    assert!(judge(&sim, 1_000 + 7_200).is_err());
}

#[test]
fn the_default_timeout_is_clamped_to_the_maximum() {
    let mut policy = scout(&[]);
    policy.timeout_s = DelegationTimeout::Seconds(100);
    policy.timeout_max_s = DelegationTimeout::Seconds(60);
    let sim = Sim::new(policy);
    let admission = sim.tree.judge_one(sim.now, sim.root(), &about("x")).unwrap();
    assert_eq!((admission.timeout_s, admission.clamped), (Some(60), false));
}

#[test]
fn a_thousand_delegations_may_be_queued_and_no_more() {
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
    assert_eq!(refused(&events), [ErrorCode::QueueFull]);
    assert_eq!(sim.tree.waiting(), QUEUE_LIMIT);
    insta::assert_snapshot!(shown(&sim.tree.judge_one(sim.now, root, &about("x")).unwrap_err()), @r"
    QUEUE_FULL: 1000 delegations are waiting, limit 1000.
    1000 delegations are waiting, limit 1000
    => Wait until delegations have ended, then try again.
    ");
    // A delegation that can start at once needs no place in the full queue.
    let running = granted(&events)[0];
    assert_eq!(granted(&sim.ask(running, many(4), None).unwrap()).len(), 3);
    // A delegation that ends frees its slot.
    sim.cancel(granted(&events)[1_000]);
    assert_eq!(granted(&sim.ask(root, many(2), None).unwrap()).len(), 1);
    sim.cancel(root);
    sim.check_over();
}

#[test]
fn delegations_that_wait_for_approval_take_no_slot() {
    let mut sim =
        Sim::new(policy(Preset::Scout, &["tasks_per_call=2000", "children_per_run=none"]));
    let root = sim.root();
    let events = sim.ask(root, many(1_001), None).unwrap();
    assert_eq!(granted(&events).len(), 1_000);
    assert_eq!(refused(&events), [ErrorCode::QueueFull]);
    assert_eq!(sim.tree.waiting(), QUEUE_LIMIT);
}

#[test]
fn d29_a_task_over_the_concurrency_limit_is_queued() {
    for (preset, concurrency, ceiling) in
        [(Preset::Scout, 2, 4), (Preset::Command, 1, 4), (Preset::Story, 3, 8)]
    {
        for (wish, places) in [(None, concurrency), (Some(0), 1), (Some(3), 3), (Some(99), ceiling)]
        {
            let mut policy = policy(preset, &["enabled=true", "tasks_per_call=10"]);
            policy.approval = ApprovalRule::None;
            policy.cycle_key = CycleKey::Task;
            let mut sim = Sim::new(policy);
            let root = sim.root();
            let children = granted(&sim.ask(root, many(10), wish).unwrap());
            let running =
                children.iter().filter(|child| sim.state(**child) == DelegationState::Running);
            assert_eq!(running.count() as u64, places, "{preset} {wish:?}");
            assert_eq!(sim.tree.waiting(), 10 - places);
        }
    }
}

#[test]
fn clamping_a_default_timeout_is_not_reported_below_the_root() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    let clamped = |parent, is_timeout_requested| {
        let wish = Some(20_000);
        let task = Brief { timeout_wish: wish, is_timeout_requested, ..brief("c", "child", "") };
        sim.tree.judge_one(sim.now, parent, &task).unwrap().clamped
    };
    assert!(clamped(parent, true));
    // The default timeout of a command or agent; its clamping was reported at the first level.
    assert!(!clamped(parent, false));
    assert!(clamped(sim.root(), false));
}
