//! `agents` and `--agent` with agent files.

use std::fs;

use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

const REVIEWER: &str = "---
name: reviewer
description: Judges code.
tools: Read, Grep, Bash
model: openai/gpt-5.6
maxTurns: 4
color: red
---
You judge code.
";

const SCRIPT: &str = r#"
[[turn]]
agent = "lead"
[[turn.call]]
tool = "Task"
args = { agent = "reviewer", prompt = "Judge it" }
[[turn]]
agent = "lead"
text = "They say: {{result}}"
[[turn]]
agent = "reviewer"
text = "It is good."
times = "forever"
"#;

fn place() -> Rig {
    let rig = Rig::with_script(SCRIPT);
    rig.write(".claude/agents/reviewer.md", REVIEWER);
    rig
}

fn at_home(rig: &Rig, path: &str, text: &str) {
    let path = rig.home().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn without_agent_files_agents_explains_how_to_write_one() {
    insta::assert_snapshot!(Rig::new().run(["agents"]), @r#"
    researcher  built-in, for slash commands, also `general`, as in opencode
      Finds out what a task needs to be known; reads, compares, reports with sources.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    planner  built-in, for slash commands, also `plan`, as in opencode
      Lays out the steps of a task, each with its files, checks and risks.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    implementer  built-in, for slash commands, also `build`, as in opencode
      Does the work of a task by its plan, and checks it.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    reviewer  built-in, for slash commands
      Judges code; names defects and risks with file and line.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    error-diagnostics-agent  built-in, for slash commands
      Finds the causes behind recorded errors.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    specialist  built-in, for slash commands
      Answers one narrow question in depth.
      tools: Delegate, Glob, Grep, Note, Read, Task

    helper  built-in, for slash commands, also `explore`, as in opencode
      Does one small look-up or count and reports it.
      tools: Glob, Grep, Note, Read

    No agent is described by a file yet. Put one into .claude/agents,
    .opencode/agent, .codex/agents, .gemini/agents or .adjutant/agents,
    here or in your home directory, for example .claude/agents/reviewer.md:

      ---
      name: reviewer
      description: Judges a change and names what is wrong with it.
      tools: Read, Grep, Glob
      ---
      You review code. Cite files and lines.

    Then: adjutant run --agent reviewer "GOAL"
    `adjutant run` can also give it tasks by its name.
    --- stderr ---
    [exit 0]
    "#);
}

#[test]
fn agents_lists_used_shadowed_and_unusable_agent_files() {
    let rig = place();
    rig.write(".gemini/agents/reviewer.md", REVIEWER);
    rig.write(".claude/agents/broken.md", "---\nname: x\n---\n");
    at_home(
        &rig,
        ".claude/agents/reviewer.md",
        "---\nname: reviewer\ndescription: Mine.\ntools: Read\n---\nMine.",
    );
    at_home(
        &rig,
        ".config/opencode/agent/chief.md",
        "---\ndescription: Leads.\nmode: primary\n---\nLead.",
    );
    insta::assert_snapshot!(rig.run(["agents"]), @r#"
    reviewer  project .claude/agents/reviewer.md
      Judges code.
      tools: Note, Read
      model: openai/gpt-5.6 · 4 turns
      bounded by your own $PLACE/home/.claude/agents/reviewer.md
      ignored: `color`: not used
      ignored: your own $PLACE/home/.claude/agents/reviewer.md does not permit Grep, Run
      ignored: model openai/gpt-5.6: a project's file cannot choose it; allow it with models_allowed = ["openai/gpt-5.6"] in your own configuration

    chief  user $PLACE/home/.config/opencode/agent/chief.md
      Leads.
      tools: Delegate, Glob, Grep, Note, Read, Task
      leads only, takes no tasks

    researcher  built-in, for slash commands, also `general`, as in opencode
      Finds out what a task needs to be known; reads, compares, reports with sources.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    planner  built-in, for slash commands, also `plan`, as in opencode
      Lays out the steps of a task, each with its files, checks and risks.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    implementer  built-in, for slash commands, also `build`, as in opencode
      Does the work of a task by its plan, and checks it.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    error-diagnostics-agent  built-in, for slash commands
      Finds the causes behind recorded errors.
      tools: Delegate, Edit, Glob, Grep, Note, Read, Task, Write

    specialist  built-in, for slash commands
      Answers one narrow question in depth.
      tools: Delegate, Glob, Grep, Note, Read, Task

    helper  built-in, for slash commands, also `explore`, as in opencode
      Does one small look-up or count and reports it.
      tools: Glob, Grep, Note, Read

    Not used, because another file has the name:
      .gemini/agents/reviewer.md (by .claude/agents/reviewer.md)
      $PLACE/home/.claude/agents/reviewer.md (by .claude/agents/reviewer.md)
      built-in reviewer (by .claude/agents/reviewer.md)

    Cannot be used:
      .claude/agents/broken.md: its prompt is empty
    --- stderr ---
    [exit 0]
    "#);
    let json = rig.run(["agents", "--json"]).json();
    assert_fits("agents", &json);
    assert_eq!(
        json["agents"][0]["bounded_by"].as_str().map(|file| file.ends_with("reviewer.md")),
        Some(true)
    );
    assert!(json["agents"][0].get("prompt").is_none());
    let one = rig.run(["agents", "chief", "--json"]).json();
    assert_fits("agents", &one);
    assert_eq!(
        (one["agents"][0]["prompt"].as_str(), one["agents"].as_array().unwrap().len()),
        (Some("Lead."), 1)
    );
    let bare = Rig::new().run(["agents", "--json"]).json();
    assert_fits("agents", &bare);
    assert_eq!(bare["agents"].as_array().unwrap().len(), 7);
}

#[test]
fn one_agent_is_shown_with_its_prompt_and_a_misspelled_name_gets_a_suggestion() {
    let rig = place();
    insta::assert_snapshot!(rig.run(["agents", "reviewer"]).data(), @r#"
    reviewer  project .claude/agents/reviewer.md
      Judges code.
      tools: Grep, Note, Read
      model: openai/gpt-5.6 · 4 turns
      ignored: `color`: not used
      ignored: the policy does not permit Run
      ignored: model openai/gpt-5.6: a project's file cannot choose it; allow it with models_allowed = ["openai/gpt-5.6"] in your own configuration

    It is told by the project:

    You judge code.

    Not used, because another file has the name:
      built-in reviewer (by .claude/agents/reviewer.md)
    "#);
    let shown = rig.run(["agents", "helper"]).data();
    let head = "helper  built-in, for slash commands, also `explore`, as in opencode\n  Does one small look-up";
    assert!(shown.starts_with(head), "{shown}");
    assert!(shown.contains("\nIt is told by the program:\n\nYou "), "{shown}");
    let json = rig.run(["agents", "helper", "--json"]).json();
    assert_fits("agents", &json);
    assert_eq!(json["agents"][0]["scope"], "built-in");
    insta::assert_snapshot!(rig.run(["agents", "reviewr"]).talk(), @"
    adjutant: there is no agent `reviewr`, did you mean `reviewer`?; known are reviewer, researcher, planner, implementer, error-diagnostics-agent, specialist, helper
      `adjutant agents` lists the agents, and the files that cannot be used.
    [exit 2]
    ");
}

#[test]
fn agent_files_cannot_control_the_terminal() {
    let rig = Rig::new();
    rig.write(
        ".claude/agents/a.md",
        "---\nname: a\ndescription: \"x\\e[31m\\u202ey\"\nmodel: \"m\\e[2J\"\n\"k\\ey\": 1\n---\n\u{1b}]0;x\u{7}",
    );
    rig.write(".claude/agents/b\u{1b}[31m.md", "---\ndescription: x\n---\nx");
    for args in
        [&["agents"][..], &["agents", "a"], &["agents", "--json"], &["agents", "a", "--json"]]
    {
        let out = rig.run(args);
        assert_eq!(out.code, 0, "{out}");
        assert!(
            !out.stdout.contains(['\u{1b}', '\u{202e}', '\u{7}']),
            "{}",
            out.stdout.escape_debug()
        );
    }
}

#[test]
fn a_run_gives_tasks_to_agents_by_their_names() {
    let rig = place();
    rig.write(".claude/agents/README.md", "# Agents");
    let out = rig.run(["run", "--yes", "--model", rig.model(), "Is it good?"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("It is good."), "{out}");
    assert!(out.stderr.contains("1 agent file cannot be used"), "{out}");
    let tree = rig.run(["tree"]);
    assert!(tree.stdout.contains("reviewer"), "{tree}");
    let events = rig.events(&rig.only_run());
    let defined = |name: &str| {
        events.iter().find(|event| event["type"] == "agent_defined" && event["agent"] == name)
    };
    assert!(defined("reviewer").unwrap()["system"].as_str().unwrap().contains("You judge code."));
}

#[test]
fn the_agent_flag_chooses_the_agent_of_a_run_or_task() {
    let rig = place();
    let model = rig.model();
    let out = rig.run(["run", "--agent", "reviewer", "--model", model, "Is it good?"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("working as reviewer (.claude/agents/reviewer.md)"), "{out}");
    let out = rig.delegate(&["--agent", "reviewer", "-t", "a=Judge a", "-t", "b=Judge b"]);
    assert_eq!(out.code, 0, "{out}");
    let question = ["delegate", "--dry-run", "--json", "--agent", "reviewer", "-t", "a=Judge a"];
    let json = rig.run(question).json();
    assert_eq!(json["tasks"][0]["agent"], "reviewer");
    assert_eq!(json["tasks"][0]["tools"].to_string(), r#"["Grep","Note","Read"]"#);
    for command in
        [&["run", "x", "--agent", "nobody"][..], &["delegate", "-t", "a=b", "--agent", "nobody"]]
    {
        let out = rig.call(command).arg("--model").arg(model).run();
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("there is no agent `nobody`; known are reviewer, "), "{out}");
    }
}

#[test]
fn only_the_user_can_let_project_files_choose_a_model() {
    let rig = place();
    at_home(&rig, ".config/adjutant/config.toml", "models_allowed = [\"openai/gpt-5.6\"]");
    let json = rig.run(["agents", "reviewer", "--json"]).json();
    let ignored = json["agents"][0]["ignored"].to_string();
    assert!(!ignored.contains("model"), "{ignored}");
    rig.write(".adjutant/config.toml", "models_allowed = [\"openai/gpt-5.6\"]");
    let out = rig.run(["agents"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("may only tighten [policy]"), "{out}");
}

#[test]
fn the_agent_flag_accepts_every_listed_agent_and_all_opencode_agents() {
    let rig = Rig::with_script("[[turn]]\ntext = 'planned'\n");
    rig.write(".claude/agents/explore.md", "---\ndescription: Own.\n---\nLook around.");
    let listed = rig.run(["agents", "--json"]).json();
    let listed = listed["agents"].as_array().unwrap().iter();
    let mut names: Vec<(String, String)> = listed
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .map(|name| (name.clone(), name))
        .collect();
    assert!(names.len() > 7, "{names:?}");
    for (theirs, ours) in [("build", "implementer"), ("plan", "planner"), ("general", "researcher")]
    {
        names.push((theirs.into(), ours.into()));
        let shown = rig.run(["agents", theirs, "--json"]).json();
        assert_eq!(shown["agents"][0]["name"], ours);
    }
    for (typed, agent) in names {
        let args = ["delegate", "--dry-run", "--json", "-t", "a=b", "--agent", &typed];
        let out = rig.run(args);
        assert_eq!(out.code, 0, "{typed}: {out}");
        assert_eq!(out.json()["tasks"][0]["agent"], agent.as_str(), "{typed}");
    }
    let out = rig.run(["run", "Plan it", "--yes", "--agent", "plan", "--model", rig.model()]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("working as planner (built-in)"), "{out}");
    let out = rig.run(["run", "x", "--agent", "plannr", "--model", rig.model()]);
    assert!(out.stderr.contains("there is no agent `plannr`, did you mean `planner`?"), "{out}");
}

#[test]
fn resume_uses_the_built_in_agent_that_the_run_was_started_with() {
    let rig = Rig::with_script("[[turn]]\ndelay_ms = 300000\ntext = 'late'\n");
    let mut live = rig.delegating(&["--agent", "explore", "-t", "a=look"]).start();
    live.wait_for("[a] started").signal(rustix::process::Signal::KILL);
    let _ = live.finish();
    std::fs::write(rig.path().join("script.toml"), "[[turn]]\ntext = 'seen'\n").unwrap();
    let out = rig.run(["resume"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("> seen"), "{out}");
}

#[test]
fn a_requested_tool_that_is_not_granted_is_listed_as_ignored() {
    let rig = Rig::new();
    let file = |keys: &str| format!("---\ndescription: One.\n{keys}\n---\nWork.");
    rig.write(".opencode/agent/switch.md", file("tools:\n  write: true\n  grep: true"));
    rig.write(".opencode/agent/permit.md", file("permission:\n  edit: allow\n  bash: allow"));
    rig.write(".claude/agents/list.md", file("tools: Read, Bash\ndisallowedTools: Bash"));
    rig.write(".claude/agents/both.md", file("tools: Read, Grep, Write"));
    at_home(&rig, ".claude/agents/both.md", &file("tools: Read, Write"));
    let json = rig.run(["agents", "--json"]).json();
    let ignored = |name: &str| {
        let agents = json["agents"].as_array().unwrap();
        agents.iter().find(|it| it["name"] == name).unwrap()["ignored"].to_string()
    };
    assert_eq!(ignored("switch"), r#"["the policy does not permit Write"]"#);
    assert_eq!(ignored("permit"), r#"["the policy does not permit Edit, Run, Write"]"#);
    assert_eq!(ignored("list"), "[]", "the file itself denies it");
    let both = ignored("both");
    assert!(both.contains("your own "), "{both}");
    assert!(both.contains("both.md does not permit Grep"), "{both}");
    assert!(both.contains("the policy does not permit Write"), "{both}");
}
