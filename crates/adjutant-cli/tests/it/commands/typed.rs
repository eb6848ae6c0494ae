//! `commands` and `run "/NAME …"`: slash commands through the binary.

use std::fs;

use serde_json::json;

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

/// A command, its agent, a specialist and a helper, each called by the one before with `Task`.
const DOWN: &str = r#"
[[turn]]
agent = "research"
[[turn.call]]
tool = "Task"
args = { agent = "researcher", prompt = "Task: 1" }
[[turn]]
agent = "research"
text = "It was found."

[[turn]]
agent = "researcher"
[[turn.call]]
tool = "Task"
args = { agent = "specialist", prompt = "Which one?" }
[[turn]]
agent = "researcher"
[[turn.call]]
tool = "Write"
args = { path = ".adjutant/specs/1/report.md", content = "It is here." }
[[turn.call]]
tool = "Return"
args = { status = "completed", summary = "Found it. It is here.", artifacts = [{ type = "research", path = ".adjutant/specs/1/report.md" }] }

[[turn]]
agent = "specialist"
[[turn.call]]
tool = "Task"
args = { agent = "researcher", prompt = "You again" }
[[turn.call]]
tool = "Task"
args = { agent = "research", prompt = "And you" }
[[turn.call]]
tool = "Task"
args = { agent = "reseacher", prompt = "Who?" }
[[turn.call]]
tool = "Task"
args = { agent = "helper", prompt = "Count" }
[[turn]]
agent = "specialist"
text = '{"status":"completed","summary":"The second. It is larger.","artifacts":[],"errors":[]}'

[[turn]]
agent = "helper"
[[turn.call]]
tool = "Task"
args = { agent = "planner", prompt = "Deeper" }
[[turn]]
agent = "helper"
text = '{"status":"completed","summary":"There are two. Both are here.","artifacts":[],"errors":[]}'
"#;

/// Anybody says one thing.
const ONE_WORD: &str = "[[turn]]\ntext = 'Done.'\ntimes = 'forever'";

fn run(rig: &Rig, args: &[&str]) -> Output {
    rig.call(["run"]).args(args).arg("--model").arg(rig.model()).run()
}

#[test]
fn requirements_3_and_7_a_command_delegates_three_levels_deep_and_no_deeper() {
    let rig = Rig::with_script(DOWN);
    // One who may delegate, so that only the depth keeps it from doing so.
    rig.write(
        ".claude/agents/helper.md",
        "---\ndescription: Helps.\ntools: Read, Task\nadjutant: {operation: simple}\n---\nHelp.",
    );
    rig.tasks(".adjutant/specs", &[1]);
    let out = run(&rig, &["/research 1 find it"]);
    assert_eq!(out.code, 0, "{out}");
    let said = "It was found.\n\nResearch: .adjutant/specs/1/report.md\nTask 1 is [RESEARCHED]\n";
    assert_eq!(out.stdout, format!("Task: 1\n\n{said}"));
    assert!(out.stderr.contains("adjutant: /research (built-in), done by researcher\n"), "{out}");
    let events = rig.events(&rig.only_run());
    let of = |kind: &str| events.iter().filter(move |it| it["type"] == kind).collect::<Vec<_>>();
    let granted: Vec<_> =
        of("granted").iter().map(|it| (it["path"].clone(), it["timeout_s"].clone())).collect();
    let path = ["orchestrator", "research", "researcher", "specialist", "helper"];
    assert_eq!(granted.len(), 3);
    for (depth, seconds) in [(1, 3600), (2, 3600), (3, 300)] {
        assert_eq!(granted[depth - 1].0, json!(path[..=depth + 1]));
        // A child never gets more than its parent has left, so a second may be gone.
        let given = granted[depth - 1].1.as_u64().unwrap();
        assert!((seconds - 5..=seconds).contains(&given), "{given}");
    }
    let refused: Vec<_> = of("refused").iter().map(|it| it["reason"]["message"].clone()).collect();
    assert_eq!(
        refused[0],
        "Cycle detected: orchestrator → research → researcher → specialist → researcher"
    );
    assert_eq!(
        refused[1],
        "Cycle detected: orchestrator → research → researcher → specialist → research"
    );
    assert!(refused[2].as_str().unwrap().starts_with("Unknown agent: reseacher."), "{refused:?}");
    let text = of("tool_refused")[0]["text"].as_str().unwrap();
    assert!(text.contains("`Task` is not available to you"), "{text}");
    let started = of("run_started")[0];
    assert_eq!(
        (&started["agent"], &started["policy"]["preset"]),
        (&json!("research"), &json!("command"))
    );
}

#[test]
fn a_task_prompt_that_begins_with_a_command_is_expanded() {
    let script = r#"
[[turn]]
agent = "research"
[[turn.call]]
tool = "Task"
args = { agent = "planner", prompt = "/plan 7 for $1" }
[[turn.call]]
tool = "Task"
args = { agent = "planner", prompt = "/plan soon" }
[[turn.call]]
tool = "Task"
args = { agent = "planner", prompt = "/nothing of the kind" }
[[turn.call]]
tool = "Task"
args = { agent = "researcher", prompt = "Task: 1" }
[[turn]]
agent = "research"
text = "Done."
[[turn]]
agent = "planner"
text = '{"status":"completed","summary":"It is planned. It is short.","artifacts":[{"type":"plan","path":"plan.md"}],"errors":[]}'
times = "forever"
[[turn]]
agent = "researcher"
[[turn.call]]
tool = "Write"
args = { path = ".adjutant/specs/r.md", content = "found" }
[[turn]]
agent = "researcher"
text = '{"status":"completed","summary":"It is found. It is short.","artifacts":[{"type":"research","path":".adjutant/specs/r.md"}],"errors":[]}'
"#;
    let rig = Rig::with_script(script);
    rig.write(".opencode/command/plan.md", "Plan for $2.");
    rig.write("plan.md", "One step.");
    rig.tasks(".adjutant/specs", &[1]);
    let out = run(&rig, &["/research 1"]);
    assert_eq!(out.code, 0, "{out}");
    let events = rig.events(&rig.only_run());
    let prompts: Vec<_> = (events.iter().filter(|it| it["type"] == "granted"))
        .map(|it| it["brief"]["prompt"].as_str().unwrap())
        .collect();
    let [plan, plain, _] = prompts[..] else { panic!("{prompts:?}") };
    assert!(plan.starts_with("Task: 7\n\n/plan 7 for $1\n"), "{plan}");
    assert!(plan.contains(".opencode/command/plan.md") && plan.contains("Plan for for."), "{plan}");
    assert_eq!(plain, "/nothing of the kind");
    let told = "Task number must be positive integer, got: soon";
    assert!(events.iter().any(|it| it.to_string().contains(told)), "{out}");
}

#[test]
fn section_10_a_command_that_cannot_run_says_why() {
    let rig = Rig::with_script(ONE_WORD);
    rig.write(".claude/commands/broken.md", "---\ndescription: x\n");
    rig.write(".claude/commands/lost.md", "---\nagent: nobodi\n---\nx");
    rig.write(".claude/commands/todo.md", "");
    let said: String = [
        "/pln 12",
        "/plan",
        "/plan 0",
        "/plan twelve",
        "/plan 12,13",
        "/implement 5-3",
        "/research 1 --dvide",
        "/errors --typ x",
        "/task",
        "/tmp is full",
        "/broken",
        "/lost",
        "/todo",
    ]
    .iter()
    .map(|goal| format!("{goal}\n{}\n", run(&rig, &[goal]).talk()))
    .collect();
    insta::assert_snapshot!(said, @r#"
    /pln 12
    adjutant: there is no command `/pln`, did you mean `/plan`?
      `adjutant commands` lists them. To begin a goal with a path, put a space before it.
    [exit 2]
    /plan
    adjutant: Task number required for /plan command
      adjutant run '/plan N [PROMPT]'
    [exit 2]
    /plan 0
    adjutant: Task number must be positive integer, got: 0
      adjutant run '/plan N [PROMPT]'
    [exit 2]
    /plan twelve
    adjutant: Task number must be positive integer, got: twelve
      adjutant run '/plan N [PROMPT]'
    [exit 2]
    /plan 12,13
    adjutant: Task number must be positive integer, got: 12,13
      adjutant run '/plan N [PROMPT]'
    [exit 2]
    /implement 5-3
    adjutant: Task range must ascend, got: 5-3
      adjutant run '/implement N|A-B|A,B [--in-place] [PROMPT]'
    [exit 2]
    /research 1 --dvide
    adjutant: Unknown option for /research command: --dvide, did you mean --divide?
      adjutant run '/research N [--divide] [PROMPT]'
    [exit 2]
    /errors --typ x
    adjutant: Unknown option for /errors command: --typ, did you mean --type?
      adjutant run '/errors [--all] [--type T]'
    [exit 2]
    /task
    adjutant: Text required for /task command
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /tmp is full
    adjutant: there is no command `/tmp`
      `adjutant commands` lists them. To begin a goal with a path, put a space before it.
    [exit 2]
    /broken
    adjutant: /broken is described by .claude/commands/broken.md, which cannot be used: its front matter has no end: a second line of --- is missing
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    /lost
    adjutant: /lost (.claude/commands/lost.md) delegates to `nobodi`, but there is no agent `nobodi`; known are researcher, planner, implementer, reviewer, error-diagnostics-agent, specialist, helper
      `adjutant agents` lists the agents; --agent NAME chooses one.
    [exit 2]
    /todo
    adjutant: /todo is described by .claude/commands/todo.md, which cannot be used: its body is empty
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    "#);
    assert!(rig.runs().is_empty());
}

#[test]
fn a_goal_that_begins_with_a_path_is_still_a_goal() {
    let rig = Rig::with_script(ONE_WORD);
    for goal in ["/etc/hosts is strange", " /tmp is full", " /plan is a word"] {
        let out = run(&rig, &[goal]);
        assert_eq!((out.code, out.stdout.as_str()), (0, "Done.\n"), "{goal}: {out}");
    }
    // What is piped in was not typed.
    let out = rig.call(["run", "--model", rig.model()]).stdin("/plan 12").run();
    assert_eq!((out.code, out.stdout.as_str()), (0, "Done.\n"), "{out}");
}

#[test]
fn a_command_file_replaces_the_built_in_command_and_gets_its_arguments() {
    let rig = Rig::with_script(ONE_WORD);
    rig.write(
        ".claude/commands/review.md",
        "---\nallowed-tools: Read\n---\nJudge $1, then $2. All: $ARGUMENTS. !`rm -rf /`",
    );
    let out = rig.call(["run", "--model", rig.model(), "/review 'a b' $1"]).stdin("the diff").run();
    assert_eq!((out.code, out.stdout.as_str()), (0, "Command: /review\n\nDone.\n"), "{out}");
    assert!(out.stderr.contains("`!`rm -rf /``: nothing is executed, it is left as text"), "{out}");
    let events = rig.events(&rig.only_run());
    let root = events.iter().find(|it| it["type"] == "agent_defined" && it["agent"] == "review");
    let root = root.unwrap();
    let system = root["system"].as_str().unwrap();
    assert!(system.contains("Judge a b, then $1. All: 'a b' $1. !`rm -rf /`"), "{system}");
    assert!(system.contains("described below by a file of the project"), "{system}");
    assert_eq!(root["rights"]["tools"], json!(["Note", "Read"]));
    let goal = events[0]["goal"].as_str().unwrap();
    assert!(goal.starts_with("/review 'a b' $1\n") && goal.contains("the diff"), "{goal}");
}

#[test]
fn the_agent_and_preset_flags_override_those_of_a_command() {
    let rig = Rig::with_script(ONE_WORD);
    rig.tasks(".adjutant/specs", &[12]);
    let out = run(&rig, &["/plan 12", "--agent", "reviewer"]);
    assert!(out.stderr.contains("/plan (built-in), done by reviewer (chosen by --agent)"), "{out}");
    let out = run(&rig, &["/plan 12", "--agent", "rewiever"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("did you mean `reviewer`?"), "{out}");
    let config = rig.home().join(".config/adjutant/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, "preset = 'story'\n[routing.plan]\ndefault = 'specialist'").unwrap();
    let out = run(&rig, &["/plan 12", "--preset", "scout"]);
    assert!(out.stderr.contains("done by specialist (chosen by your configuration)"), "{out}");
    let presets: Vec<_> = (rig.runs().iter())
        .map(|run| rig.events(run)[0]["policy"]["preset"].as_str().unwrap().to_owned())
        .collect();
    assert!(presets.contains(&"command".to_owned()) && presets.contains(&"scout".to_owned()));
    rig.write(".adjutant/config.toml", "[routing.plan]\ndefault = 'helper'");
    let out = run(&rig, &["/plan 12"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("may only tighten [policy]"), "{out}");
}

#[test]
fn commands_lists_each_command_with_its_file_agent_and_ignored_keys() {
    let rig = Rig::new();
    rig.write(
        ".opencode/command/plan.md",
        "---\ndescription: Plans.\nrouting: {lean: lean-planner, default: planner}\ntimeout: 600\ncolour: red\n---\nPlan $1.",
    );
    rig.write(".claude/commands/broken.md", "---\n");
    let out = rig.run(["commands"]);
    let head: Vec<&str> = out.stdout.lines().take(9).collect();
    insta::assert_snapshot!(head.join("\n"), @"
    /plan N [PROMPT]  project .opencode/command/plan.md
      Plans.
      agent: planner · lean: lean-planner (not described)
      600 s
      ignored: `colour`: unknown

    /research N [--divide] [PROMPT]  built-in
      Find out what a task needs to be known before it is planned.
      agent: researcher · lean: lean-research-agent (not described)
    ");
    let tail: Vec<&str> = out.stdout.lines().rev().take(6).collect();
    insta::assert_snapshot!(tail.into_iter().rev().collect::<Vec<_>>().join("\n"), @"

    Not used, because another file has the name:
      built-in plan (by .opencode/command/plan.md)

    Cannot be used:
      .claude/commands/broken.md: its front matter has no end: a second line of --- is missing
    ");
    insta::assert_snapshot!(rig.run(["commands", "plan"]), @"
    /plan N [PROMPT]  project .opencode/command/plan.md
      Plans.
      agent: planner · lean: lean-planner (not described)
      600 s
      ignored: `colour`: unknown

    It says:

    Plan $1.

    Not used, because another file has the name:
      built-in plan (by .opencode/command/plan.md)
    --- stderr ---
    [exit 0]
    ");
    insta::assert_snapshot!(rig.run(["commands", "plam"]).talk(), @"
    adjutant: there is no command `/plam`, did you mean `/plan`?
      `adjutant commands` lists them, and the files that cannot be used.
    [exit 2]
    ");
    for args in [
        &["commands", "--json"][..],
        &["commands", "plan", "--json"],
        &["commands", "task", "--json"],
    ] {
        assert_fits("commands", &rig.run(args).json());
    }
    let json = rig.run(["commands", "/plan", "--json"]).json();
    assert_eq!(json["commands"][0]["routing"][1]["known"], false);
    assert_eq!(json["commands"][0]["body"], "Plan $1.");
    let all = rig.run(["commands", "--json"]).json();
    assert_eq!(all["commands"].as_array().unwrap().len(), 9);
    assert_eq!(all["shadowed"][0]["scope"], "built-in");
}

#[test]
fn command_files_cannot_control_the_terminal() {
    let rig = Rig::with_script(ONE_WORD);
    rig.write(
        ".claude/commands/a.md",
        "---\ndescription: \"x\\e[31m\\u202ey\"\nargument-hint: \"\\e[2J\"\n\"k\\ey\": 1\nagent: \"z\\e[31m\"\n---\n\u{1b}]0;x\u{7} @\u{1b}x",
    );
    rig.write(".claude/commands/b\u{1b}[31m.md", "x");
    let model = rig.model();
    for args in [
        &["commands"][..],
        &["commands", "a"],
        &["commands", "a", "--json"],
        &["run", "/a", "--model", model],
        &["run", "/a", "--agent", "helper", "--model", model],
        &["run", "/a\u{1b}[31m", "--model", model],
    ] {
        let out = rig.run(args);
        let all = format!("{}{}", out.stdout, out.stderr);
        assert!(!all.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{args:?} {}", all.escape_debug());
    }
}

#[test]
fn a_command_gets_the_longest_timeout_of_its_operation() {
    let rig = Rig::with_script(ONE_WORD);
    rig.tasks(".adjutant/specs", &[1]);
    // The command delegated nothing, so it is not completed.
    assert_eq!(run(&rig, &["/implement 1"]).code, 1);
    let events = rig.events(&rig.only_run());
    let started = events.iter().find(|it| it["type"] == "started").unwrap();
    let deadline = started["deadline"].as_u64().unwrap();
    assert!((14_400_000..14_460_000).contains(&deadline), "{deadline}");
}

/// The command hands its work to `reviewer`; `alone` and `out` work themselves.
const WITH_CONTEXT: &str = r#"
[[turn]]
agent = "look"
[[turn.call]]
tool = "Task"
args = { agent = "reviewer", prompt = "Look." }
[[turn]]
agent = "look"
text = "Looked."
[[turn]]
agent = "reviewer"
text = '{"status":"completed","summary":"It is good. It is short.","artifacts":[],"errors":[]}'
[[turn]]
agent = "alone"
text = "Alone."
"#;

#[test]
fn context_loading_files_are_passed_to_the_working_agent() {
    let rig = Rig::with_script(WITH_CONTEXT);
    rig.write("docs/style.md", "Be brief.");
    let command = |name: &str, front: &str| {
        rig.write(&format!(".opencode/command/{name}.md"), format!("---\n{front}\n---\nLook."));
    };
    command("look", "agent: reviewer\ncontext_loading: {required: [docs/style.md, docs/gone.md]}");
    command("alone", "context_loading: {data_files: [docs/style.md]}");
    command("out", "context_loading: {data_files: [../secret.md]}");
    let out = run(&rig, &["/look"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("context file not found: docs/gone.md"), "{out}");
    let events = rig.events(&rig.only_run());
    let granted = events.iter().find(|it| it["type"] == "granted").unwrap();
    let found = [("docs/style.md", "loaded"), ("docs/gone.md", "missing")];
    let found = found.map(|(path, found)| json!({ "path": path, "found": found }));
    assert_eq!(granted["brief"]["context"], json!(found));
    assert!(granted["brief"]["opening"].as_str().unwrap().contains("Be brief."), "{granted}");
    let out = run(&rig, &["/alone", "--json"]);
    assert_eq!(out.code, 0, "{out}");
    let run_of_it = out.json()["tree"]["run"].as_str().unwrap().to_owned();
    let goal = rig.events(&run_of_it)[0]["goal"].as_str().unwrap().to_owned();
    assert!(goal.starts_with("/alone\n") && goal.contains("Be brief."), "{goal}");
    let before = rig.runs().len();
    insta::assert_snapshot!(run(&rig, &["/out"]).talk(), @"
    adjutant: /out (.opencode/command/out.md)
    adjutant: context file `../secret.md`: path is outside the workspace
      Name regular files below the root in `context_loading` of the command's file.
    [exit 4]
    ");
    assert_eq!(rig.runs().len(), before);
}
