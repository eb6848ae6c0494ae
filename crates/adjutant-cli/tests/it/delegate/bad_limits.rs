//! Bad input: unknown or invalid limits, and project files that loosen one.

use crate::support::rig::{Output, Rig};

fn rig() -> Rig {
    Rig::with_script("[[turn]]\ntext = 'should not run'")
}

fn told(rig: &Rig, args: &[&str]) -> String {
    let out = rig.delegating(&["-t", "a=x"]).args(args).run();
    assert!(rig.runs().is_empty(), "{args:?} left a run: {out}");
    out.talk()
}

#[test]
fn unknown_presets_and_keys_are_refused() {
    let rig = rig();
    insta::assert_snapshot!(told(&rig, &["--preset", "scuot"]), @"
        adjutant: unknown preset `scuot`; known are scout (forge), command (opencode), story (claude-loop)
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--set", "max_depht=1"]), @"
        adjutant: flag --set: unknown policy key `max_depht`; did you mean `max_depth`?
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--set", "max_depth"]), @"
        adjutant: `max_depth` is not of the form key=value
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
}

#[test]
fn nonsensical_limit_values_are_refused() {
    let rig = rig();
    insta::assert_snapshot!(told(&rig, &["--set", "tasks_per_call=-1"]), @"
        adjutant: flag --set: tasks_per_call: -1 is negative
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--set", "tasks_per_call=0"]), @"
        adjutant: flag --set: tasks_per_call: 0 is not allowed, the least is 1
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--set", "timeout_s=soon"]), @r#"
        adjutant: flag --set: timeout_s: "soon" is not a whole number
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    "#);
    insta::assert_snapshot!(told(&rig, &["--concurrency", "0"]), @"
        adjutant: flag --concurrency: concurrency: 0 is not allowed, the least is 1
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--concurrency", "-1"]), @"
        adjutant: flag --concurrency: concurrency: -1 is negative
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--concurrency", "two"]), @"
        error: invalid value 'two' for '--concurrency <N>': invalid digit found in string

        For more information, try '--help'.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--budget-tokens", "0"]), @"
        adjutant: flag --budget-tokens: budget_tokens_run: 0 is not allowed, the least is 1
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--budget-tokens", "-5"]), @"
        adjutant: flag --budget-tokens: budget_tokens_run: -5 is negative
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--budget-usd", "0"]), @"
        adjutant: flag --budget-usd: budget_usd: 0 is not allowed, the least is any amount above it, or none
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(told(&rig, &["--budget-usd", "-1"]), @"
        adjutant: flag --budget-usd: budget_usd: -1.0 is negative
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
}

/// They used to arrive at the policy as `null`, which took the limit away.
#[test]
fn a_budget_that_is_not_a_number_does_not_mean_no_limit() {
    let rig = rig();
    insta::assert_snapshot!(told(&rig, &["--budget-usd", "nan"]), @"
        error: invalid value 'nan' for '--budget-usd <USD>': not an amount of dollars, such as 2.50

        For more information, try '--help'.
        [exit 2]
    ");
    for endless in ["inf", "infinity", "1e999"] {
        let out = rig.delegate(&["-t", "a=x", "--budget-usd", endless]);
        assert_eq!(out.code, 2, "{out}");
    }
    assert!(rig.runs().is_empty());
}

#[test]
fn req_5_no_flag_variable_or_file_sets_a_depth_above_3() {
    let rig = rig();
    insta::assert_snapshot!(told(&rig, &["--set", "max_depth=4"]), @"
        adjutant: flag --set: max_depth: 4 exceeds the hard maximum 3
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    for variable in ["MAX_DELEGATION_DEPTH", "ADJUTANT_MAX_DEPTH"] {
        let out = rig.delegating(&["-t", "a=x"]).env(variable, "5").run();
        let said = format!("environment {variable}: max_depth: 5 exceeds the hard maximum 3");
        assert!(out.stderr.contains(&said), "{out}");
        assert_eq!(out.code, 2);
    }
    let config = rig.home().join(".config/adjutant");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[policy]\nmax_depth = 4\n").unwrap();
    insta::assert_snapshot!(told(&rig, &[]), @"
        adjutant: user config: max_depth: 4 exceeds the hard maximum 3
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
}

fn with_project(config: &str) -> Output {
    let rig = rig();
    rig.write(".adjutant/config.toml", config);
    let out = rig.delegate(&["-t", "a=x", "-t", "b=y"]);
    assert!(rig.runs().is_empty(), "{config} left a run");
    out
}

#[test]
fn a_project_file_may_only_tighten() {
    insta::assert_snapshot!(with_project("[policy]\nmax_depth = 3").talk(), @"
        adjutant: max_depth: project config may not change 1 to 3, it may only be lowered
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("[policy]\napproval = 'none'").talk(), @"
        adjutant: approval: project config may not change batch to none, it may only be made to ask
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("[policy]\nworkspace = 'own'").talk(), @"
        adjutant: workspace: project config may not change shared to own, it has no tighter value
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("preset = 'story'").talk(), @"
        adjutant: $WORK/.adjutant/config.toml: a project file may only tighten [policy], not choose a preset, a model, a server, an agent, a verify or notify command or what MCP clients may do
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("model = 'script:mine.toml'").talk(), @"
        adjutant: $WORK/.adjutant/config.toml: a project file may only tighten [policy], not choose a preset, a model, a server, an agent, a verify or notify command or what MCP clients may do
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("[policy]\ntasks_per_call = 1").talk(), @"
        adjutant: MAX_DELEGATIONS_EXCEEDED: Too many delegations (2). Maximum: 1
          Delegate fewer, larger tasks, or start the run again with --set tasks_per_call=2.
        [exit 4]
    ");
}

#[test]
fn a_broken_config_file_is_named_with_the_place() {
    insta::assert_snapshot!(with_project("[policy\nmax_depth = 1").talk(), @"
        adjutant: $WORK/.adjutant/config.toml: TOML parse error at line 1, column 8
          |
        1 | [policy
          |        ^
        unclosed table, expected `]`
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("[plicy]\nmax_depth = 1").talk(), @"
        adjutant: $WORK/.adjutant/config.toml: TOML parse error at line 1, column 2
          |
        1 | [plicy]
          |  ^^^^^
        unknown field `plicy`, expected one of `preset`, `model`, `runtime`, `models_allowed`, `search`, `providers`, `models`, `effort`, `routing`, `verify`, `notify`, `workers`, `mcp`, `toolchains`, `policy`
        [exit 2]
    ");
    insta::assert_snapshot!(with_project("[policy]\nmax_depth = 'one'").talk(), @r#"
        adjutant: project config: max_depth: "one" is not a whole number
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    "#);
}

#[test]
fn req_56_the_story_preset_is_off_until_it_is_switched_on() {
    let rig = rig();
    insta::assert_snapshot!(told(&rig, &["--preset", "story"]), @"
        adjutant: DELEGATION_DISABLED: Delegation is disabled (preset story, enabled = false).
          Start the run again with --enable-delegation, or with ENABLE_DELEGATION=true, or enabled = true in the user config.
        [exit 4]
    ");
    let told =
        rig.delegating(&["-t", "a=x", "--preset", "story"]).env("ENABLE_DELEGATION", "maybe");
    insta::assert_snapshot!(told.run().talk(), @r#"
        adjutant: environment ENABLE_DELEGATION: enabled: "maybe" is not true or false
          `adjutant policy explain` lists the keys and their values.
        [exit 2]
    "#);
}
