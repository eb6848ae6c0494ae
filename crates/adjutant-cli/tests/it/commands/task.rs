//! `run '/task "…"'`: an entry in the list of tasks, made by the program itself.

use std::fs;

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

fn run(rig: &Rig, goal: &str, args: &[&str]) -> Output {
    rig.call(["run", goal]).args(args).run()
}

fn todo(rig: &Rig) -> String {
    fs::read_to_string(rig.work().join(".adjutant/specs/TODO.md")).unwrap()
}

#[test]
fn a_task_is_added_without_a_model_a_key_or_a_run() {
    let rig = Rig::new();
    insta::assert_snapshot!(run(&rig, "/task \"Add JWT\"", &[]), @r#"
    Task: 1

    Add JWT
    [NOT STARTED] in .adjutant/specs/TODO.md

    Next: adjutant run "/research 1"
    --- stderr ---
    [exit 0]
    "#);
    let typed = "/task Prove the lemma --language Lean --priority HIGH --effort '2 hours'";
    assert_eq!(run(&rig, typed, &[]).code, 0);
    insta::assert_snapshot!(todo(&rig), @"
    # TODO

    ## Tasks

    ### 1. Add JWT
    - **Effort**: TBD
    - **Status**: [NOT STARTED]
    - **Priority**: Medium
    - **Language**: general
    - **Blocking**: None
    - **Dependencies**: None

    ### 2. Prove the lemma
    - **Effort**: 2 hours
    - **Status**: [NOT STARTED]
    - **Priority**: High
    - **Language**: lean
    - **Blocking**: None
    - **Dependencies**: None
    ");
    assert!(rig.runs().is_empty() && !rig.state().exists(), "nothing was begun");
}

/// The same code adds tasks, so both ways write the same bytes.
#[test]
fn the_slash_command_task_equals_task_add() {
    let (slash, plain) = (Rig::new(), Rig::new());
    let by_slash = slash
        .call(["run", "/task \"Fix it\" --language rust --effort small", "--json"])
        .stdin("It drops the last line.\n")
        .run();
    let description = "It drops the last line.";
    let flags = ["--language", "rust", "--effort", "small", "--description", description, "--json"];
    let by_add = plain.call(["task", "add", "Fix it"]).args(flags).run();
    let (mut one, mut other) = (by_slash.json(), by_add.json());
    assert_fits("task", &one);
    for json in [&mut one, &mut other] {
        json["task"]["created"].take();
        json["task"]["last_updated"].take();
    }
    assert_eq!(one, other);
    assert_eq!(todo(&slash), todo(&plain));
}

#[test]
fn an_invalid_task_command_adds_no_task() {
    let rig = Rig::new();
    let said: String = [
        ("/task", &[][..]),
        ("/task ''", &[]),
        ("/task --language rust", &[]),
        ("/task Fix the --release build", &[]),
        ("/task \"Fix it\" --langage rust", &[]),
        ("/task \"Fix it\" --language", &[]),
        ("/task \"Fix it\" --language 'a b'", &[]),
        ("/task \"Fix it\" --priority urgent", &[]),
        ("/task \"Fix it\"", &["--agent", "planner"]),
        ("/task \"Fix it\"", &["--events"]),
    ]
    .iter()
    .map(|(goal, args)| format!("{goal}\n{}\n", run(&rig, goal, args).talk()))
    .collect();
    insta::assert_snapshot!(said, @r#"
    /task
    adjutant: Text required for /task command
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task ''
    adjutant: Text required for /task command
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task --language rust
    adjutant: Text required for /task command
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task Fix the --release build
    adjutant: Unknown option for /task command: --release; put the text in quotes where that is part of it
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task "Fix it" --langage rust
    adjutant: Unknown option for /task command: --langage, did you mean --language?
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task "Fix it" --language
    adjutant: Option --language of /task command needs a value
      adjutant run '/task "TEXT" [--language L] [--priority P] [--effort E]'
    [exit 2]
    /task "Fix it" --language 'a b'
    adjutant: `a b` is not a language name; expected one word, such as rust
    [exit 2]
    /task "Fix it" --priority urgent
    adjutant: `urgent` is not a priority
      Priorities: low, medium, high, critical.
    [exit 2]
    /task "Fix it"
    adjutant: /task is carried out by adjutant itself, so --agent has no effect
    [exit 2]
    /task "Fix it"
    adjutant: /task is carried out by adjutant itself, so --events has nothing to stream
    [exit 2]
    "#);
    assert!(fs::read_dir(rig.work()).unwrap().next().is_none());
}

#[test]
fn a_command_file_named_task_is_run_by_an_agent() {
    let rig = Rig::with_script("[[turn]]\ntext = 'Thought about it.'");
    rig.write(".opencode/command/task.md", "---\ndescription: Ours.\n---\nThink about $ARGUMENTS.");
    let out = run(&rig, "/task Add JWT --soon", &["--model", rig.model()]);
    assert_eq!(out.stdout, "Command: /task\n\nThought about it.\n", "{out}");
    assert_eq!(rig.runs().len(), 1);
    assert!(!rig.work().join(".adjutant").exists());
    let json = rig.run(["commands", "task", "--json"]).json();
    assert_eq!(json["commands"][0]["by_program"], false);
    rig.write(".opencode/command/task.md", "---\nbroken");
    let out = run(&rig, "/task Add JWT", &[]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("/task is described by .opencode/command/task.md"), "{out}");
}

#[test]
fn commands_lists_task_as_done_without_an_agent() {
    let rig = Rig::new();
    let listed = rig.run(["commands"]).stdout;
    let task: Vec<&str> =
        listed.lines().skip_while(|line| !line.starts_with("/task")).take(3).collect();
    insta::assert_snapshot!(task.join("\n"), @r#"
    /task "TEXT" [--language L] [--priority P] [--effort E]  built-in
      Add an entry to the list of tasks; adjutant does it itself, without a model.
      agent: none, adjutant does it itself
    "#);
    let json = rig.run(["commands", "--json"]).json();
    assert_fits("commands", &json);
    let all = json["commands"].as_array().unwrap();
    let ours: Vec<_> =
        all.iter().filter(|it| it["by_program"] == true).map(|it| &it["name"]).collect();
    assert_eq!(ours, ["task"]);
}

/// An agent that delegates `/task` gets an error instead of delegating an empty prompt.
#[test]
fn an_agent_cannot_delegate_the_task_command() {
    let script = r#"
[[turn]]
agent = "review"
[[turn.call]]
tool = "Task"
args = { agent = "planner", prompt = "/task Add JWT" }
[[turn]]
agent = "review"
[[turn.call]]
tool = "Task"
args = { agent = "reviewer", prompt = "src" }
[[turn]]
agent = "review"
text = "Done."
[[turn]]
agent = "reviewer"
text = '{"status":"completed","summary":"It was read. It is fine.","artifacts":[],"errors":[]}'
"#;
    let rig = Rig::with_script(script);
    let out = run(&rig, "/review", &["--model", rig.model()]);
    assert_eq!(out.code, 0, "{out}");
    let events = rig.events(&rig.only_run());
    let granted: Vec<_> = events.iter().filter(|it| it["type"] == "granted").collect();
    assert_eq!(granted.len(), 1, "{granted:?}");
    assert_eq!(granted[0]["path"].as_array().unwrap().last().unwrap(), "reviewer");
    let told = "/task is carried out by adjutant itself when a person types it";
    assert!(events.iter().any(|it| it.to_string().contains(told)), "{events:?}");
}
