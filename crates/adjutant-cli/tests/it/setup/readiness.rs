//! The last sentence of `doctor`, and `update`.

use serde_json::Value;

use crate::support::rig::{BINARY, Rig};
use crate::support::schema::assert_fits;

#[test]
fn doctor_ends_with_what_it_is_ready_for_and_the_next_command() {
    let rig = Rig::new();
    let out = rig.run(["doctor"]);
    let last = out.stdout.lines().last().unwrap().to_owned();
    insta::assert_snapshot!(last, @"Ready: demo. Not ready: subagents (no model: no API key was found, and a server on this machine is used only if --model or config.toml names it). Next: adjutant init");
    let with_key = |args: &[&str]| rig.call(args).env("ANTHROPIC_API_KEY", "sk-ant-test").run();
    let out = with_key(&["doctor"]);
    let last = out.stdout.lines().last().unwrap();
    assert!(last.starts_with("Ready: demo, reading subagents with anthropic/"), "{last}");
    assert!(last.ends_with(" Next: adjutant delegate -t try='What is here?'"), "{last}");
    let json = with_key(&["doctor", "--json"]).json();
    assert_fits("doctor", &json);
    assert_eq!(json["next"], "adjutant delegate -t try='What is here?'");
    let ready: Vec<&str> =
        json["ready"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(ready[0], "demo");
}

#[test]
fn a_configuration_that_cannot_be_read_is_one_finding_among_all() {
    let rig = Rig::new();
    rig.write(".adjutant/config.toml", "[policy\n");
    let out = rig.run(["doctor"]);
    assert_eq!(out.code, 0, "{out}");
    let line = |start: &str| out.stdout.lines().find(|line| line.starts_with(start));
    assert!(
        line("· configuration ").unwrap().contains("config.toml: TOML parse error at line 1"),
        "{out}"
    );
    assert!(line("✓ store").is_some() && line("✓ kernel").is_some(), "{out}");
    assert!(line("Ready: demo. Not ready: subagents (").is_some(), "{out}");
}

#[test]
fn a_model_that_cannot_be_used_is_the_reason_and_init_the_next_command() {
    let rig = Rig::new();
    let out = rig.call(["doctor", "--json"]).env("ADJUTANT_MODEL", "openai/gpt-5").run();
    let json = out.json();
    assert_fits("doctor", &json);
    assert_eq!((&json["can_run"], &json["next"]), (&false.into(), &"adjutant init".into()));
    assert_eq!(json["not_ready"][0]["what"], "subagents");
    let why = json["not_ready"][0]["why"].as_str().unwrap();
    assert!(why.contains("no API key for provider openai") && !why.contains('\n'), "{why}");
}

#[test]
fn update_recognises_a_program_that_was_built_from_source() {
    let rig = Rig::new();
    let json = rig.run(["update", "--json"]).json();
    assert_fits("update", &json);
    assert_eq!(json["path"], BINARY);
    let text = rig.run(["update"]).stdout;
    // A target directory elsewhere says nothing about its source.
    if json["installed_by"] == "source" {
        assert!(text.contains("Update with:   cd "), "{text}");
    } else {
        assert!(text.contains("replace this file"), "{text}");
    }
}
