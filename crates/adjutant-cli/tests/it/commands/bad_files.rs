//! Slash commands in a project whose tasks or command files are wrong: a clear error, nothing
//! started, nothing overwritten.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::rig::{COMMANDS, Output, Rig};

const SPECS: &str = ".adjutant/specs";

/// A place with one task, and a model that does what commands ask.
fn rig() -> Rig {
    let rig = Rig::with_script(COMMANDS);
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    rig
}

fn run(rig: &Rig, goal: &str) -> Output {
    rig.run(["run", goal, "--model", rig.model()])
}

/// What lies in the specs folder, with its bytes.
fn files(rig: &Rig) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(rig.work().join(SPECS)).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_task_number_that_is_not_in_the_list_starts_nothing() {
    let rig = rig();
    for goal in ["/research 9", "/plan 9", "/revise 9 soon", "/implement 9", "/implement 1-9"] {
        let out = run(&rig, goal);
        assert_eq!((out.code, out.stdout.as_str()), (2, ""), "{goal}: {out}");
        assert!(out.stderr.contains("not found in .adjutant/specs/TODO.md"), "{goal}: {out}");
    }
    insta::assert_snapshot!(run(&rig, "/plan 9").talk(), @r#"
    adjutant: Task 9 not found in .adjutant/specs/TODO.md
      `adjutant task list` shows the tasks there are; `adjutant run '/task "TEXT"'` adds one.
    [exit 2]
    "#);
    for goal in ["/plan", "/plan 0", "/plan -1", "/plan one", "/plan 1.5"] {
        let out = run(&rig, goal);
        assert_eq!(out.code, 2, "{goal}: {out}");
        assert!(out.stderr.starts_with("adjutant: Task number "), "{goal}: {out}");
        assert!(out.stderr.contains("adjutant run '/plan N [PROMPT]'"), "{goal}: {out}");
    }
    assert!(rig.runs().is_empty());
}

#[test]
fn without_a_task_list_a_command_calls_no_model_and_says_how_to_add_a_task() {
    let rig = Rig::with_script(COMMANDS);
    insta::assert_snapshot!(run(&rig, "/plan 99 the whole thing"), @r#"
    --- stderr ---
    adjutant: Task 99 not found: the project has no tasks yet
      `adjutant run '/task "TEXT"'` adds the first one.
    [exit 2]
    "#);
    assert!(rig.runs().is_empty());
}

#[test]
fn files_that_disagree_are_named_and_the_work_continues() {
    let rig = rig();
    let state = rig.work().join(SPECS).join("state.json");
    let text = fs::read_to_string(&state).unwrap();
    fs::write(&state, text.replace("\"language\": \"general\"", "\"language\": \"lean\"")).unwrap();
    let before = files(&rig);
    let out = run(&rig, "/review");
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(files(&rig), before, "a command without a task looks at none");
    let out = run(&rig, "/research 1");
    assert_eq!(out.code, 0, "{out}");
    let said =
        "adjutant: task 1: language: TODO.md says general, state.json says lean; state.json counts";
    assert!(out.stderr.contains(said), "{out}");
    assert!(out.stderr.contains("there is no agent `lean-research-agent`"), "{out}");
}

#[test]
fn half_written_files_are_named_and_left_alone() {
    for (name, text, said) in [
        (
            "state.json",
            &b"{\"active_projects\": ["[..],
            ".adjutant/specs/state.json: not JSON, line 1",
        ),
        ("state.json", b"[]", ".adjutant/specs/state.json: not a JSON object"),
        (
            "state.json",
            b"{\"next_project_number\": \"soon\"}",
            "`next_project_number` is not a positive whole number",
        ),
        ("TODO.md", b"### 1. Add\xff", "`.adjutant/specs/TODO.md` is not UTF-8 text (byte 10)"),
        (
            ".adjutant-pending.json",
            b"{\"v\":",
            "`.adjutant/specs/.adjutant-pending.json` is not a valid record of an interrupted change",
        ),
    ] {
        let rig = rig();
        fs::write(rig.work().join(SPECS).join(name), text).unwrap();
        let before = files(&rig);
        for goal in ["/research 1", "/implement 1", "/task Another"] {
            let out = run(&rig, goal);
            assert_eq!((out.code, out.stdout.as_str()), (2, ""), "{goal}: {out}");
            assert!(out.stderr.contains(said), "{goal}: {out}");
        }
        assert_eq!(files(&rig), before);
        assert!(rig.runs().is_empty());
    }
}

#[test]
fn a_truncated_todo_entry_is_completed_from_state_json() {
    let rig = rig();
    let todo = rig.work().join(SPECS).join("TODO.md");
    for half in ["# TODO\n\n### 1. Ad", ""] {
        fs::write(&todo, half).unwrap();
        let out = run(&rig, "/research 1");
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stderr.contains("adjutant: task 1: "), "{out}");
        assert!(out.stderr.contains("state.json"), "{out}");
    }
}

#[test]
fn a_specs_folder_that_is_an_outward_link_starts_no_run_and_is_not_written() {
    for link in [".adjutant", ".adjutant/specs", ".opencode/specs"] {
        let rig = Rig::with_script("[[turn]]\nerror = 'bad_request'\nmessage = 'no'");
        let elsewhere = rig.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("specs")).unwrap();
        let place = rig.work().join(link);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(&elsewhere, &place).unwrap();
        for goal in ["/plan 1", "/task Add JWT"] {
            let out = run(&rig, goal);
            assert_eq!(out.code, 2, "{link} {goal}: {out}");
            assert!(out.stderr.contains(&format!("`{link}` is a symbolic link")), "{out}");
        }
        assert!(rig.runs().is_empty());
        // A command without a task runs; what went wrong is kept in the journal alone.
        let out = run(&rig, "/review");
        assert_eq!(out.code, 1, "{link}: {out}");
        assert!(out.stderr.contains("errors.json is not up to date"), "{link}: {out}");
        let names = |path| fs::read_dir(path).unwrap().count();
        assert_eq!((names(elsewhere.join("specs")), names(elsewhere)), (0, 1), "{link}");
    }
}

#[test]
fn a_file_in_place_of_the_specs_folder_is_reported() {
    let rig = Rig::with_script("[[turn]]\ntext = 'Done.'");
    let file = rig.write(SPECS, "mine");
    for goal in ["/plan 1", "/task Add JWT"] {
        let out = run(&rig, goal);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("`.adjutant/specs` is not a folder"), "{out}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[test]
fn command_files_that_cannot_be_used_are_named_with_the_reason() {
    let rig = Rig::with_script(COMMANDS);
    for (name, text) in [
        ("open", &b"---\ndescription: x\n"[..]),
        ("words", b"---\njust text\n---\nDo it."),
        ("twice", b"---\nagent: a\nagent: b\n---\nDo it."),
        ("bytes", b"\xff\xfe"),
        ("empty", b"---\ndescription: x\n---\n"),
    ] {
        rig.write(&format!(".opencode/command/{name}.md"), text);
    }
    rig.write(".opencode/command/near.md", "---\nagent: reviwer\n---\nDo it.");
    let said: String = ["/open", "/words", "/twice", "/bytes", "/empty", "/near"]
        .iter()
        .map(|goal| run(&rig, goal).talk() + "\n")
        .collect();
    insta::assert_snapshot!(said, @"
    adjutant: /open is described by .opencode/command/open.md, which cannot be used: its front matter has no end: a second line of --- is missing
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    adjutant: /words is described by .opencode/command/words.md, which cannot be used: its front matter is not a list of keys
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    adjutant: /twice is described by .opencode/command/twice.md, which cannot be used: it holds `agent` twice
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    adjutant: /bytes is described by .opencode/command/bytes.md, which cannot be used: it is not UTF-8
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    adjutant: /empty is described by .opencode/command/empty.md, which cannot be used: its body is empty
      `adjutant commands` lists the commands, and the files that cannot be used.
    [exit 2]
    adjutant: /near (.opencode/command/near.md) delegates to `reviwer`, but there is no agent `reviwer`, did you mean `reviewer`?; known are researcher, planner, implementer, reviewer, error-diagnostics-agent, specialist, helper
      `adjutant agents` lists the agents; --agent NAME chooses one.
    [exit 2]
    ");
    assert!(rig.runs().is_empty());
    let out = run(&rig, "/review");
    assert_eq!(out.code, 0, "{out}");
    assert!(
        out.stderr.contains("5 command files cannot be used; `adjutant commands` says why"),
        "{out}"
    );
}
