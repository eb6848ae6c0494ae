//! The policy: which source may set which key, how errors are reported, and what the presets are.

use adjutant_core::policy::{
    Operation, PolicyError, PolicyKey, SourceTrust, TighteningRule, parse_assignment,
};
use adjutant_core::{LayeredPolicy, Policy, PolicySource, Preset, Usd};
use serde_json::{Value, json};

#[test]
fn auto_approval_is_limited_by_the_policy_and_the_shared_allowance() {
    let usd = |dollars| Usd::from_dollars(dollars).unwrap();
    let unasked = |own: Option<f64>, spent| {
        let policy = Policy { approve_below_usd: own.map(usd), ..Preset::Scout.policy() };
        policy.auto_approval_left(usd(1.0), usd(spent))
    };
    assert_eq!(unasked(None, 0.25), Some(usd(0.75)));
    assert_eq!(unasked(Some(0.5), 0.25), Some(usd(0.5)));
    assert_eq!(unasked(Some(5.0), 0.25), Some(usd(0.75)));
    assert_eq!(unasked(Some(0.5), 3.0), None);
    assert_eq!(unasked(None, 1.0), None);
}

#[test]
fn an_auto_approved_run_reserves_its_worst_case_or_the_whole_rest() {
    let usd = |dollars| Usd::from_dollars(dollars).unwrap();
    let policy = |max_depth, budget_usd| Policy { max_depth, budget_usd, ..Preset::Scout.policy() };
    let cases = [
        (1, Some(usd(0.2)), usd(0.2)),
        (1, None, usd(0.75)),
        (2, Some(usd(0.2)), usd(0.75)),
        (2, None, usd(0.75)),
    ];
    for (depth, worst, reserved) in cases {
        let policy = policy(depth, None);
        let left = Some(usd(0.75));
        assert_eq!(policy.unasked_reservation(worst, left), reserved, "{depth} {worst:?}");
        assert_eq!(policy.unasked_reservation(None, None), Usd::ZERO);
    }
    assert_eq!(policy(2, None).unasked_budget(usd(0.75)), usd(0.75));
    assert_eq!(policy(2, Some(usd(0.5))).unasked_budget(usd(0.75)), usd(0.5));
    assert_eq!(policy(2, Some(usd(5.0))).unasked_budget(usd(0.75)), usd(0.75));
}

fn flag() -> PolicySource {
    PolicySource::Flag("--set".into())
}

fn content() -> PolicySource {
    PolicySource::Content("the model's call".into())
}

/// What each key takes, and what is tighter and looser than `from`.
struct Row {
    key: PolicyKey,
    from: Value,
    tighter: Vec<Value>,
    looser: Vec<Value>,
    /// Invalid values of this key.
    wrong: Vec<Value>,
}

fn limit(key: PolicyKey) -> Row {
    Row {
        key,
        from: json!(500),
        tighter: vec![json!(499), json!(1)],
        looser: vec![json!(501), json!(u64::MAX), Value::Null, json!("none")],
        wrong: vec![json!("many"), json!(true), json!(1.5), json!([1]), json!({})],
    }
}

/// A limit that must be a number: there is no `none`.
fn count(key: PolicyKey) -> Row {
    let mut row = limit(key);
    row.looser.truncate(2);
    row.wrong.extend([Value::Null, json!("none")]);
    row
}

fn switch(key: PolicyKey) -> Row {
    Row {
        key,
        from: json!(true),
        tighter: vec![json!(false)],
        looser: vec![],
        wrong: vec![Value::Null, json!("yes"), json!(1)],
    }
}

fn unordered(key: PolicyKey, values: [&str; 2]) -> Row {
    Row {
        key,
        from: json!(values[0]),
        tighter: vec![],
        looser: vec![json!(values[1])],
        wrong: vec![Value::Null, json!("other"), json!(1)],
    }
}

fn timeout(key: PolicyKey) -> Row {
    let mut row = limit(key);
    row.looser.push(json!("by_operation"));
    row
}

fn table() -> Vec<Row> {
    vec![
        switch(PolicyKey::Enabled),
        Row {
            from: json!(2),
            tighter: vec![json!(1)],
            looser: vec![json!(3)],
            ..count(PolicyKey::MaxDepth)
        },
        count(PolicyKey::TasksPerCall),
        limit(PolicyKey::ChildrenPerParent),
        limit(PolicyKey::ChildrenPerRun),
        count(PolicyKey::Concurrency),
        count(PolicyKey::ConcurrencyMax),
        unordered(PolicyKey::CycleKey, ["task", "agent"]),
        timeout(PolicyKey::TimeoutS),
        timeout(PolicyKey::TimeoutMaxS),
        limit(PolicyKey::TotalS),
        limit(PolicyKey::StallS),
        limit(PolicyKey::ContextTokens),
        limit(PolicyKey::BudgetTokens),
        limit(PolicyKey::BudgetTokensRun),
        Row {
            from: json!(2.5),
            tighter: vec![json!(2.49), json!(0.000_001), json!(2)],
            looser: vec![json!(2.51), Value::Null, json!("none")],
            wrong: vec![json!("$5"), json!(true), json!(1e30)],
            key: PolicyKey::BudgetUsd,
        },
        count(PolicyKey::MaxOutputTokens),
        limit(PolicyKey::ResultTokens),
        Row {
            key: PolicyKey::OnFull,
            from: json!("by_agent"),
            tighter: vec![json!("handover")],
            looser: vec![json!("continue")],
            wrong: vec![Value::Null, json!("sometimes"), json!(true)],
        },
        count(PolicyKey::Continuations),
        unordered(PolicyKey::Workspace, ["shared", "own"]),
        Row {
            key: PolicyKey::Tools,
            from: json!(["Read", "Grep"]),
            tighter: vec![json!(["Read"]), json!("Grep"), json!([])],
            looser: vec![json!(["Read", "Grep", "Glob"]), json!("Run")],
            wrong: vec![Value::Null, json!([1]), json!("Dance"), json!(["Read", "read"]), json!(3)],
        },
        Row {
            key: PolicyKey::WriteBelow,
            from: json!("docs/specs"),
            tighter: vec![Value::Null, json!("none")],
            looser: vec![json!("docs"), json!("docs/specs/plans")],
            wrong: vec![
                json!("/etc"),
                json!(".."),
                json!("a/../b"),
                json!(""),
                json!("."),
                json!(3),
            ],
        },
        switch(PolicyKey::InPlace),
        count(PolicyKey::WorkspaceBytes),
        count(PolicyKey::WorkspaceEntries),
        Row { tighter: vec![], ..count(PolicyKey::DiskBytes) },
        count(PolicyKey::RunMaxS),
        switch(PolicyKey::MergeChildren),
        switch(PolicyKey::Network),
        Row {
            key: PolicyKey::WebDomains,
            from: json!(["docs.rs", "crates.io"]),
            tighter: vec![json!(["docs.rs"]), json!("crates.io"), json!([])],
            looser: vec![json!(["docs.rs", "crates.io", "a.example"]), json!("sub.docs.rs")],
            wrong: vec![Value::Null, json!([1]), json!("https://docs.rs"), json!("*.rs"), json!(3)],
        },
        Row {
            key: PolicyKey::Approval,
            from: json!("none"),
            tighter: vec![json!("batch")],
            looser: vec![],
            wrong: vec![Value::Null, json!("sometimes"), json!(true)],
        },
        Row {
            from: json!(2.5),
            tighter: vec![json!(2.49), json!(0.000_001), Value::Null, json!("none")],
            looser: vec![json!(2.51), json!(3)],
            wrong: vec![json!("$5"), json!(true), json!(1e30)],
            key: PolicyKey::ApproveBelowUsd,
        },
        count(PolicyKey::ApprovalS),
        Row {
            tighter: vec![],
            looser: vec![json!(499), json!(501)],
            ..limit(PolicyKey::AnswerMinMs)
        },
        count(PolicyKey::VerifyAttempts),
        count(PolicyKey::VerifyS),
        unordered(PolicyKey::Contract, ["report", "standard"]),
        Row { tighter: vec![], ..count(PolicyKey::RetentionDays) },
    ]
}

fn holding(row: &Row) -> LayeredPolicy {
    let mut layered = LayeredPolicy::new(Preset::Scout);
    layered.set(row.key.name(), &row.from, &flag()).unwrap();
    layered
}

#[test]
fn every_key_has_a_row_in_this_table() {
    let rows: Vec<PolicyKey> = table().iter().map(|row| row.key).collect();
    assert_eq!(rows, PolicyKey::ALL);
}

#[test]
fn a_person_may_set_every_key_to_every_value() {
    for row in table() {
        for value in row.tighter.iter().chain(&row.looser) {
            for source in
                [flag(), PolicySource::UserConfig, PolicySource::Environment("ADJUTANT_X".into())]
            {
                let mut layered = holding(&row);
                let set = layered.set(row.key.name(), value, &source);
                assert_eq!(set, Ok(()), "{} = {value}", row.key.name());
                assert_eq!(layered.source(row.key), source);
                assert_ne!(row.key.get(layered.policy()), row.from, "{}", row.key.name());
            }
        }
    }
}

#[test]
fn content_may_tighten_every_key_that_has_an_order() {
    for row in table() {
        assert_eq!(row.tighter.is_empty(), row.key.tighter() == TighteningRule::Unordered);
        for value in row.tighter.iter().chain([&row.from]) {
            for source in [content(), PolicySource::ProjectConfig] {
                let mut layered = holding(&row);
                let set = layered.set(row.key.name(), value, &source);
                assert_eq!(set, Ok(()), "{} = {value}", row.key.name());
            }
        }
    }
}

#[test]
fn content_may_loosen_no_key() {
    for row in table() {
        for value in &row.looser {
            for source in [content(), PolicySource::ProjectConfig] {
                let mut layered = holding(&row);
                let before = layered.policy().clone();
                let error = layered.set(row.key.name(), value, &source).unwrap_err();
                assert!(
                    matches!(&error, PolicyError::Loosens { key, .. } if *key == row.key),
                    "{} = {value}: {error}",
                    row.key.name()
                );
                assert_eq!(*layered.policy(), before);
            }
        }
    }
}

#[test]
fn content_may_not_switch_on_a_key_or_remove_approval() {
    for (key, strict, loose) in [
        (PolicyKey::Enabled, json!(false), json!(true)),
        (PolicyKey::Network, json!(false), json!(true)),
        (PolicyKey::Approval, json!("batch"), json!("none")),
    ] {
        let mut layered = LayeredPolicy::new(Preset::Scout);
        layered.set(key.name(), &strict, &flag()).unwrap();
        assert!(layered.set(key.name(), &loose, &content()).is_err(), "{}", key.name());
        layered.set(key.name(), &loose, &flag()).unwrap();
    }
}

#[test]
fn content_may_set_a_limit_where_there_is_none() {
    for row in table().iter().filter(|row| row.looser.contains(&Value::Null)) {
        let mut layered = LayeredPolicy::new(Preset::Scout);
        layered.set(row.key.name(), &Value::Null, &flag()).unwrap();
        assert_eq!(layered.set(row.key.name(), &row.from, &content()), Ok(()));
        assert_eq!(row.key.get(layered.policy()), row.from, "{}", row.key.name());
    }
}

#[test]
fn a_number_replaces_the_time_table_where_it_is_tighter_for_certain() {
    for key in [PolicyKey::TimeoutS, PolicyKey::TimeoutMaxS] {
        let mut layered = LayeredPolicy::new(Preset::Command);
        assert_eq!(layered.set(key.name(), &json!(300), &content()), Ok(()));
        let mut layered = LayeredPolicy::new(Preset::Command);
        assert!(layered.set(key.name(), &json!(7_201), &content()).is_err());
        assert_eq!(layered.set(key.name(), &json!("by_operation"), &content()), Ok(()));
    }
}

#[test]
fn an_invalid_value_is_reported_with_its_key() {
    for row in table() {
        for value in &row.wrong {
            let error = holding(&row).set(row.key.name(), value, &flag()).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("{}: ", row.key.name())), "{text}");
        }
    }
}

#[test]
fn zero_and_negative_numbers_are_reported_for_every_key() {
    for row in table() {
        let name = row.key.name();
        let set = |value: Value| holding(&row).set(name, &value, &flag());
        match row.from {
            Value::Number(_) => {
                assert_eq!(set(json!(0)), Err(PolicyError::Zero { key: row.key }));
                for negative in [json!(-1), json!(-0.5)] {
                    let value = negative.to_string();
                    assert_eq!(set(negative), Err(PolicyError::Negative { key: row.key, value }));
                }
            }
            _ => assert!(set(json!(0)).is_err() && set(json!(-1)).is_err(), "{name}"),
        }
    }
}

#[test]
fn every_error_message_names_the_mistake() {
    let mistakes = [
        "max_dept=2",
        "preset=story",
        "zzz=1",
        "max_depth=4",
        "max_depth=0",
        "max_depth=-1",
        "max_depth=two",
        "max_depth=none",
        "tasks_per_call=0",
        "stall_s=-5",
        "budget_usd=0",
        "budget_usd=-1",
        "budget_usd=lots",
        "budget_tokens=1.5",
        "tools=Dance",
        "tools=7",
        "cycle_key=wheel",
        "approval=maybe",
        "enabled=yes",
        "=3",
        "enabled",
    ];
    let lines: Vec<String> = mistakes
        .iter()
        .map(|text| {
            let error = parse_assignment(text)
                .and_then(|(key, value)| {
                    LayeredPolicy::new(Preset::Scout).set(key, &value, &flag())
                })
                .unwrap_err();
            format!("{text:<20} {error}")
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    max_dept=2           unknown policy key `max_dept`; did you mean `max_depth`?
    preset=story         unknown policy key `preset`
    zzz=1                unknown policy key `zzz`
    max_depth=4          max_depth: 4 exceeds the hard maximum 3
    max_depth=0          max_depth: 0 is not allowed, the least is 1 (to switch delegation off, set enabled=false)
    max_depth=-1         max_depth: -1 is negative
    max_depth=two        max_depth: "two" is not a whole number
    max_depth=none       max_depth: "none" is not a whole number
    tasks_per_call=0     tasks_per_call: 0 is not allowed, the least is 1
    stall_s=-5           stall_s: -5 is negative
    budget_usd=0         budget_usd: 0 is not allowed, the least is any amount above it, or none
    budget_usd=-1        budget_usd: -1 is negative
    budget_usd=lots      budget_usd: "lots" is not an amount of dollars
    budget_tokens=1.5    budget_tokens: 1.5 is not a whole number
    tools=Dance          tools: unknown tool `Dance`
    tools=7              tools: 7 is not a list of tool names
    cycle_key=wheel      cycle_key: "wheel" is not task, agent or story
    approval=maybe       approval: "maybe" is not none or batch
    enabled=yes          enabled: "yes" is not true or false
    =3                   `=3` is not of the form key=value
    enabled              `enabled` is not of the form key=value
    "#);
}

#[test]
fn a_loosening_setting_is_reported_with_both_values_and_the_rule() {
    let lines: Vec<String> = [
        ("max_depth", json!(3), PolicySource::ProjectConfig),
        ("enabled", json!(true), PolicySource::ProjectConfig),
        ("network", json!(true), content()),
        ("tools", json!(["Read", "Run"]), content()),
        ("cycle_key", json!("agent"), content()),
        ("budget_usd", Value::Null, content()),
        ("timeout_s", json!("by_operation"), content()),
        ("approval", json!("none"), PolicySource::Content("PRD stories.json".into())),
    ]
    .into_iter()
    .map(|(key, value, source)| {
        let mut layered = LayeredPolicy::new(Preset::Scout);
        layered.set("enabled", &json!(false), &flag()).unwrap();
        layered.set(key, &value, &source).unwrap_err().to_string()
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    max_depth: project config may not change 1 to 3, it may only be lowered
    enabled: project config may not change false to true, it may only be switched off
    network: the model's call may not change false to true, it may only be switched off
    tools: the model's call may not change ["Glob","Grep","Note","Read","WebFetch","WebSearch"] to ["Read","Run"], it may only lose members
    cycle_key: the model's call may not change task to agent, it has no tighter value
    budget_usd: the model's call may not change 5.0 to none, it may only be lowered
    timeout_s: the model's call may not change none to by_operation, it may only be lowered
    approval: PRD stories.json may not change batch to none, it may only be made to ask
    "#);
}

#[test]
fn a_layer_is_applied_as_a_whole_or_not_at_all() {
    let layer = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    let mut layered = LayeredPolicy::new(Preset::Story);
    let before = layered.policy().clone();
    let error = layered.apply(&layer(r#"{"concurrency": 1, "max_depth": 9}"#), &flag());
    assert_eq!(error, Err(PolicyError::TooDeep { depth: 9 }));
    let error = layered.apply(&layer(r#"{"concurrency": 1, "total_s": 9000}"#), &content());
    assert!(matches!(error, Err(PolicyError::Loosens { key: PolicyKey::TotalS, .. })), "{error:?}");
    assert_eq!(*layered.policy(), before);
    assert_eq!(layered.source(PolicyKey::Concurrency), PolicySource::Preset(Preset::Story));
    layered.apply(&layer(r#"{"concurrency": 1, "total_s": 60}"#), &content()).unwrap();
    assert_eq!((layered.policy().concurrency, layered.policy().total_s), (1, Some(60)));
    assert_eq!(layered.source(PolicyKey::TotalS), content());
    assert_eq!(layered.source(PolicyKey::StallS), PolicySource::Preset(Preset::Story));
}

#[test]
fn a_person_is_trusted_and_content_is_not() {
    for (source, trust, shown) in [
        (PolicySource::Preset(Preset::Scout), SourceTrust::Person, "preset scout"),
        (PolicySource::UserConfig, SourceTrust::Person, "user config"),
        (
            PolicySource::Environment("MAX_DELEGATION_DEPTH".into()),
            SourceTrust::Person,
            "environment MAX_DELEGATION_DEPTH",
        ),
        (PolicySource::Flag("--budget-usd".into()), SourceTrust::Person, "flag --budget-usd"),
        (PolicySource::ProjectConfig, SourceTrust::Content, "project config"),
        (PolicySource::Content("PRD".into()), SourceTrust::Content, "PRD"),
    ] {
        assert_eq!(source.trust(), trust, "{shown}");
        assert_eq!(source.to_string(), shown);
    }
}

#[test]
fn an_assignment_is_json_where_it_parses_and_text_otherwise() {
    for (text, key, value) in [
        ("max_depth=2", "max_depth", json!(2)),
        (" max_depth = 2 ", "max_depth", json!(2)),
        ("total_s=none", "total_s", json!("none")),
        ("total_s=null", "total_s", Value::Null),
        ("tools=Read,Grep", "tools", json!("Read,Grep")),
        (r#"tools=["Read"]"#, "tools", json!(["Read"])),
        ("enabled=true", "enabled", json!(true)),
        ("a=b=c", "a", json!("b=c")),
    ] {
        assert_eq!(parse_assignment(text), Ok((key, value)), "{text}");
    }
}

#[test]
fn a_value_is_written_as_it_is_read() {
    for preset in Preset::ALL {
        for key in PolicyKey::ALL {
            let value = key.get(&preset.policy());
            let mut layered = LayeredPolicy::new(preset);
            assert_eq!(layered.set(key.name(), &value, &flag()), Ok(()), "{}", key.name());
            assert_eq!(*layered.policy(), preset.policy());
            assert_eq!(PolicyKey::parse(key.name()), Some(*key));
        }
    }
}

#[test]
fn the_presets_are_the_table_of_the_design() {
    // DESIGN §3, row by row: scout, command, story.
    let readers = json!(["Glob", "Grep", "Note", "Read", "WebFetch", "WebSearch"]);
    let rows = [
        ("enabled", [json!(true), json!(true), json!(false)]),
        ("max_depth", [json!(1), json!(3), json!(2)]),
        ("tasks_per_call", [json!(8), json!(1), json!(10)]),
        ("children_per_parent", [json!(null), json!(null), json!(10)]),
        ("children_per_run", [json!(50), json!(50), json!(50)]),
        ("concurrency", [json!(2), json!(1), json!(3)]),
        ("concurrency_max", [json!(4), json!(4), json!(8)]),
        ("cycle_key", [json!("task"), json!("agent"), json!("story")]),
        ("timeout_s", [json!(null), json!("by_operation"), json!(1800)]),
        ("timeout_max_s", [json!(null), json!("by_operation"), json!(1800)]),
        ("total_s", [json!(null), json!(null), json!(7200)]),
        ("stall_s", [json!(600), json!(600), json!(600)]),
        ("context_tokens", [json!(null), json!(null), json!(100_000)]),
        ("budget_tokens", [json!(5_000_000), json!(5_000_000), json!(5_000_000)]),
        ("budget_tokens_run", [json!(20_000_000), json!(20_000_000), json!(20_000_000)]),
        ("budget_usd", [json!(5.0), json!(5.0), json!(5.0)]),
        ("max_output_tokens", [json!(4096), json!(4096), json!(16384)]),
        ("result_tokens", [json!(4096), json!(null), json!(2000)]),
        ("on_full", [json!("by_agent"), json!("by_agent"), json!("by_agent")]),
        ("continuations", [json!(3), json!(3), json!(3)]),
        ("workspace", [json!("shared"), json!("shared"), json!("own")]),
        (
            "tools",
            [
                readers,
                json!([
                    "Delegate",
                    "Edit",
                    "Glob",
                    "Grep",
                    "Note",
                    "Read",
                    "Task",
                    "WebFetch",
                    "WebSearch",
                    "Write"
                ]),
                json!([
                    "Delegate",
                    "Edit",
                    "Glob",
                    "Grep",
                    "Note",
                    "Read",
                    "Run",
                    "Task",
                    "WebFetch",
                    "WebSearch",
                    "Write"
                ]),
            ],
        ),
        ("write_below", [json!(null), json!(".adjutant/specs"), json!(null)]),
        ("in_place", [json!(false), json!(false), json!(false)]),
        (
            "workspace_bytes",
            [json!(2_147_483_648_u64), json!(2_147_483_648_u64), json!(2_147_483_648_u64)],
        ),
        ("workspace_entries", [json!(500_000), json!(500_000), json!(500_000)]),
        (
            "disk_bytes",
            [json!(21_474_836_480_u64), json!(21_474_836_480_u64), json!(21_474_836_480_u64)],
        ),
        ("run_max_s", [json!(600), json!(600), json!(600)]),
        ("merge_children", [json!(false), json!(false), json!(true)]),
        ("network", [json!(false), json!(false), json!(false)]),
        ("web_domains", [json!([]), json!([]), json!([])]),
        ("approval", [json!("batch"), json!("none"), json!("none")]),
        ("approve_below_usd", [json!(null), json!(null), json!(null)]),
        ("approval_s", [json!(900), json!(900), json!(900)]),
        ("answer_min_ms", [json!(250), json!(250), json!(250)]),
        ("verify_attempts", [json!(3), json!(3), json!(3)]),
        ("verify_s", [json!(600), json!(600), json!(600)]),
        ("contract", [json!("report"), json!("standard"), json!("standard")]),
        ("retention_days", [json!(7), json!(7), json!(7)]),
    ];
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, PolicyKey::ALL.iter().map(|key| key.name()).collect::<Vec<_>>());
    for (name, expected) in rows {
        let key = PolicyKey::parse(name).unwrap();
        let found = Preset::ALL.map(|preset| key.get(&preset.policy()));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_journal_without_the_newer_keys_gets_their_defaults() {
    let usual = Preset::Story.policy();
    let written = serde_json::to_value(&usual).unwrap();
    for key in ["workspace_bytes", "workspace_entries", "disk_bytes", "run_max_s"] {
        assert!(written.get(key).is_none(), "{key}: what is usual is not written");
    }
    assert_eq!(serde_json::from_value::<Policy>(written).unwrap(), usual);
    let other =
        Policy { workspace_entries: 7, run_max_s: 8, workspace_bytes: 9, disk_bytes: 10, ..usual };
    let written = serde_json::to_value(&other).unwrap();
    assert_eq!(serde_json::from_value::<Policy>(written).unwrap(), other);
}

#[test]
fn a_preset_answers_to_its_name_and_its_alias() {
    for (name, alias, preset) in [
        ("scout", "forge", Preset::Scout),
        ("command", "opencode", Preset::Command),
        ("story", "claude-loop", Preset::Story),
    ] {
        assert_eq!(Preset::parse(name), Some(preset));
        assert_eq!(Preset::parse(alias), Some(preset));
        assert_eq!(preset.to_string(), name);
    }
    assert_eq!(Preset::parse("Scout"), None);
}

#[test]
fn requirement_18_an_operation_is_known_by_the_names_of_both_guides() {
    for (name, operation) in [
        ("research", Operation::Research),
        ("/research", Operation::Research),
        ("plan", Operation::Plan),
        ("planning", Operation::Plan),
        ("implement", Operation::Implement),
        ("implementation", Operation::Implement),
        ("revise", Operation::Revise),
        ("review", Operation::Review),
        ("simple", Operation::Simple),
        ("errors", Operation::Unknown),
    ] {
        assert_eq!(Operation::parse(name), operation, "{name}");
    }
}

#[test]
fn typed_tasks_run_all_at_once_up_to_four_unless_concurrency_is_set() {
    let typed = |preset, sets: &[(&str, PolicySource)], tasks| {
        let mut layered = LayeredPolicy::new(preset);
        for (setting, source) in sets {
            let (key, value) = parse_assignment(setting).unwrap();
            layered.set(key, &value, source).unwrap();
        }
        layered.typed_concurrency(tasks)
    };
    for (tasks, at_once) in [(1, 2), (2, 2), (3, 3), (4, 4), (8, 4)] {
        assert_eq!(typed(Preset::Scout, &[], tasks), Some(at_once), "{tasks}");
    }
    for source in [
        flag(),
        PolicySource::UserConfig,
        PolicySource::ProjectConfig,
        PolicySource::Environment("X".into()),
    ] {
        assert_eq!(typed(Preset::Scout, &[("concurrency=2", source)], 8), None);
    }
    assert_eq!(typed(Preset::Scout, &[("tasks_per_call=20", flag())], 20), Some(4));
    assert_eq!(typed(Preset::Command, &[], 3), None);
    assert_eq!(typed(Preset::Story, &[], 8), None);
}

#[test]
fn agents_that_can_write_files_have_more_output_unless_another_number_is_set() {
    let explained = |preset, settings: &[&str]| {
        let mut layered = LayeredPolicy::new(preset);
        for setting in settings {
            let (key, value) = parse_assignment(setting).unwrap();
            layered.set(key, &value, &flag()).unwrap();
        }
        let source = layered.source(PolicyKey::MaxOutputTokens);
        format!("{}, {source}", layered.policy().max_output_tokens)
    };
    assert_eq!(explained(Preset::Scout, &[]), "4096, preset scout");
    assert_eq!(explained(Preset::Scout, &["workspace=own"]), "16384, flag --set");
    assert_eq!(explained(Preset::Command, &[]), "4096, preset command");
    assert_eq!(explained(Preset::Command, &["in_place=true"]), "16384, flag --set");
    assert_eq!(explained(Preset::Story, &[]), "16384, preset story");
    // An explicit number applies, whichever key is set first.
    assert_eq!(
        explained(Preset::Scout, &["max_output_tokens=900", "workspace=own"]),
        "900, flag --set"
    );
    assert_eq!(
        explained(Preset::Scout, &["workspace=own", "max_output_tokens=900"]),
        "900, flag --set"
    );
    assert_eq!(
        explained(Preset::Scout, &["workspace=own", "workspace=shared"]),
        "4096, preset scout"
    );
}
