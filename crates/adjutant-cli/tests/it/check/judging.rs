//! `check`, `parse`, `validate` and `policy`: judging without running.

use serde_json::json;

use crate::support::rig::{Output, Rig};

fn check(rig: &Rig, args: &[&str], input: &str) -> Output {
    rig.call(["check"]).args(args).stdin(input).run()
}

const CYCLE: &str =
    r#"{"tree":[{"id":"r","agent":"implement"}],"request":{"parent":"r","agent":"implement"}}"#;

#[test]
fn check_grants_with_exit_0() {
    let input =
        r#"{"tree":[{"id":"r","agent":"research"}],"request":{"parent":"r","agent":"researcher"}}"#;
    let rig = Rig::new();
    insta::assert_snapshot!(check(&rig, &["--preset", "command"], input), @r#"
    {
      "granted": true,
      "depth": 1,
      "path": [
        "orchestrator",
        "research",
        "researcher"
      ],
      "timeout": 3600,
      "clamped": false,
      "estimate_tokens": 5000,
      "tools": [
        "Delegate",
        "Edit",
        "Glob",
        "Grep",
        "Note",
        "Read",
        "Task",
        "Write"
      ]
    }
    --- stderr ---
    [exit 0]
    "#);
    assert!(!rig.state().exists(), "judging needs no state");
}

#[test]
fn req_7_check_refuses_a_cycle_with_exit_4() {
    let rig = Rig::new();
    insta::assert_snapshot!(check(&rig, &["--preset", "command"], CYCLE), @r#"
        {
          "granted": false,
          "code": "CYCLE_DETECTED",
          "message": "Cycle detected: orchestrator → implement → implement",
          "recommendation": "Do this work at the current level, or delegate a smaller, different task.",
          "recoverable": false
        }
        --- stderr ---
        [exit 4]
    "#);
    let json = check(&rig, &["--preset", "command", "--json"], CYCLE);
    assert_eq!(json.json()["code"], "CYCLE_DETECTED", "--json changes nothing: it is JSON anyway");
}

#[test]
fn check_names_the_error_in_its_input() {
    let rig = Rig::new();
    for (input, said) in [
        ("", "standard input is not a valid request: EOF while parsing a value at line 1 column 0"),
        ("{}", "standard input is not a valid request: missing field `request`"),
        ("nonsense", "standard input is not a valid request: expected ident"),
        (r#"{"request":{"agent":"a"}}"#, "tree: at least the root is needed"),
        (
            r#"{"tree":[{"id":"r","agent":"a"}],"request":{"parent":"nobody","agent":"b"}}"#,
            "UNKNOWN_PARENT",
        ),
        (r#"{"policy":{"max_depth":4},"request":{"agent":"a"}}"#, "exceeds the hard maximum 3"),
        (r#"{"policy":{"nope":1},"request":{"agent":"a"}}"#, "unknown policy key `nope`"),
    ] {
        let out = check(&rig, &[], input);
        let expected = if said == "UNKNOWN_PARENT" { 4 } else { 2 };
        assert!(format!("{out}").contains(said), "{input}: {out}");
        assert_eq!(out.code, expected, "{input}: {out}");
    }
    assert_eq!(check(&rig, &["--preset", "nope"], CYCLE).code, 2);
}

#[test]
fn req_55_parse_reads_markers_and_reports_rejects() {
    let text = "I split this.\n[delegate:Write the parser:2]\n[delegate:no hours]\n`[delegate:quoted:1]`\n";
    let out = Rig::new().call(["parse", "--parent", "US-007", "--start", "4"]).stdin(text).run();
    insta::assert_snapshot!(out, @r#"
        {
          "delegations": [
            {
              "description": "Write the parser",
              "estimated_hours": 2,
              "parent_story_id": "US-007",
              "child_story_id": "US-007-DEL-004",
              "depth": 1
            }
          ],
          "errors": [
            {
              "text": "[delegate:no hours]",
              "reason": "Invalid delegation syntax: [delegate:no hours] (the hours are missing)",
              "offset": 44
            }
          ]
        }
        --- stderr ---
        [exit 0]
    "#);
}

#[test]
fn parse_bad_usage_exits_2() {
    let rig = Rig::new();
    insta::assert_snapshot!(rig.run(["parse"]), @"
        --- stderr ---
        error: the following required arguments were not provided:
          --parent <STORY>

        Usage: adjutant parse --parent <STORY>

        For more information, try '--help'.
        [exit 2]
    ");
    assert_eq!(rig.run(["parse", "--parent", "A", "--start", "0"]).code, 2);
    let out = rig.call(["parse", "--parent", "A"]).stdin(b"\xff").run();
    insta::assert_snapshot!(out, @"
        --- stderr ---
        adjutant: standard input is not UTF-8: invalid at byte 0
        [exit 2]
    ");
}

pub(crate) fn a_return() -> serde_json::Value {
    json!({
        "status": "completed",
        "summary": "The cause was found. It is fixed.",
        "artifacts": [{ "type": "research", "path": "report.md" }],
        "metadata": {
            "session_id": "sess_1735460684_a1b2c3", "duration_seconds": 3, "agent_type": "researcher",
            "delegation_depth": 1, "delegation_path": ["research", "researcher"],
        },
        "errors": [],
    })
}

#[test]
fn validate_accepts_a_return_of_the_standard() {
    let rig = Rig::new();
    rig.write("report.md", "found");
    let args = ["validate", "--session", "sess_1735460684_a1b2c3", "--root", "."];
    let out = rig.call(args).stdin(a_return().to_string()).run();
    assert_eq!((out.code, &out.json()["valid"]), (0, &json!(true)), "{out}");
    assert_eq!(out.json()["return"]["status"], "completed");
}

#[test]
fn req_34_validate_lists_every_complaint_and_exits_1() {
    let rig = Rig::new();
    let mut bad = a_return();
    bad["summary"] = json!("");
    let args = ["validate", "--session", "sess_1735460684_zzzzzz", "--root", "."];
    let out = rig.call(args).stdin(bad.to_string()).run();
    let json = out.json();
    let errors: Vec<String> = (json["errors"].as_array().unwrap().iter())
        .map(|error| format!("{}: {}", error["field"], error["message"]))
        .collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"
        "metadata.session_id": "Session ID mismatch: sess_1735460684_a1b2c3 != sess_1735460684_zzzzzz"
        "summary": "Summary cannot be empty"
        "artifacts[0].path": "Artifact does not exist: report.md"
    "#);
    assert_eq!(out.code, 1);
    assert_eq!(rig.call(["validate"]).stdin("no JSON at all").run().code, 1);
    let bare = {
        let mut bare = a_return();
        bare["artifacts"] = json!([]);
        bare.to_string()
    };
    assert_eq!(rig.call(["validate", "--artifacts-required"]).stdin(&bare).run().code, 1);
    assert_eq!(rig.call(["validate"]).stdin(&bare).run().code, 0);
}

#[test]
fn validate_bad_usage_exits_2() {
    let rig = Rig::new();
    insta::assert_snapshot!(rig.run(["validate", "--session", "me"]), @"
        --- stderr ---
        adjutant: --session: `me` is not an id of the form sess_{unix seconds}_{6 characters of a-z0-9}
        [exit 2]
    ");
    insta::assert_snapshot!(rig.run(["validate", "--root", "nowhere"]), @"
        --- stderr ---
        adjutant: no such file or directory
        [exit 2]
    ");
}

#[test]
fn policy_shows_each_limit_with_its_origin() {
    let rig = Rig::new();
    rig.write(".adjutant/config.toml", "[policy]\nmax_output_tokens = 1000\n");
    let config = rig.home().join(".config/adjutant");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[policy]\nbudget_usd = 2.5\n").unwrap();
    let call = rig.call(["policy", "--set", "concurrency=3"]).env("ADJUTANT_STALL_S", "30");
    insta::assert_snapshot!(call.run(), @"
        scout (forge): read-only subagents that report; one approval per batch

        enabled              true                                    preset scout
        max_depth            1                                       preset scout
        tasks_per_call       8                                       preset scout
        children_per_parent  none                                    preset scout
        children_per_run     50                                      preset scout
        concurrency          3                                       flag --set
        concurrency_max      4                                       preset scout
        cycle_key            task                                    preset scout
        timeout_s            none                                    preset scout
        timeout_max_s        none                                    preset scout
        total_s              none                                    preset scout
        stall_s              30                                      environment ADJUTANT_STALL_S
        context_tokens       none                                    preset scout
        budget_tokens        5,000,000                               preset scout
        budget_tokens_run    20,000,000                              preset scout
        budget_usd           2.5                                     user config
        max_output_tokens    1,000                                   project config
        result_tokens        4,096                                   preset scout
        on_full              by_agent                                preset scout
        continuations        3                                       preset scout
        workspace            shared                                  preset scout
        tools                Glob Grep Note Read WebFetch WebSearch  preset scout
        write_below          none                                    preset scout
        in_place             false                                   preset scout
        workspace_bytes      2,147,483,648                           preset scout
        workspace_entries    500,000                                 preset scout
        disk_bytes           21,474,836,480                          preset scout
        run_max_s            600                                     preset scout
        merge_children       false                                   preset scout
        network              false                                   preset scout
        web_domains          none                                    preset scout
        approval             batch                                   preset scout
        approve_below_usd    none                                    preset scout
        approval_s           900                                     preset scout
        answer_min_ms        250                                     preset scout
        verify_attempts      3                                       preset scout
        verify_s             600                                     preset scout
        contract             report                                  preset scout
        retention_days       7                                       preset scout
        --- stderr ---
        [exit 0]
    ");
}

#[test]
fn policy_explain_says_what_each_key_bounds() {
    let rig = Rig::new();
    let out = rig.run(["policy", "explain", "--preset", "opencode"]);
    insta::assert_snapshot!(out.stdout.lines().take(8).collect::<Vec<_>>().join("\n"), @r"
    command (opencode): slash commands and named agents; timed by operation, validated returns

    enabled              true                                                             preset command
        whether anything may be delegated; in a project file it may only be switched off
    max_depth            3                                                                preset command
        deepest level of a delegation; the root is 0; never above 3; in a project file it may only be lowered
    tasks_per_call       1                                                                preset command
        most tasks in one call; in a project file it may only be lowered
    ");
    let json = rig.run(["policy", "explain", "--preset", "opencode", "--json"]).json();
    assert_eq!((&json["v"], &json["preset"]), (&json!(1), &json!("command")));
    for (name, key) in json["keys"].as_object().unwrap() {
        assert!(out.stdout.contains(&format!("\n{name} ")), "{name}");
        for part in ["value", "source", "bounds", "project_files"] {
            assert!(key.get(part).is_some(), "{name} lacks {part}");
        }
    }
}
