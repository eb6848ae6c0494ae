//! `task add`, `list`, `show` and `set`: arguments, output, and files on disk.

use std::os::unix::fs::symlink;

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

fn task(rig: &Rig, args: &[&str]) -> Output {
    rig.call(["task"]).args(args).run()
}

fn read(rig: &Rig, name: &str) -> String {
    std::fs::read_to_string(rig.work().join(name)).unwrap()
}

#[test]
fn a_task_is_added_listed_shown_and_moved() {
    let rig = Rig::new();
    insta::assert_snapshot!(task(&rig, &["list"]), @r#"
    No tasks yet. Add one: adjutant task add "TITLE"
    --- stderr ---
    [exit 0]
    "#);
    assert!(!rig.work().join(".adjutant").exists());
    let full =
        ["add", "Fix the parser", "--language", "Rust", "--priority", "HIGH", "--description"];
    insta::assert_snapshot!(task(&rig, &[&full[..], &["It drops the last line."]].concat()), @r"
    Task 1 added to .adjutant/specs.
    --- stderr ---
    [exit 0]
    ");
    assert_eq!(task(&rig, &["add", "Second"]).code, 0);
    insta::assert_snapshot!(task(&rig, &["set", "1", "researching"]).data(), @"Task 1: [NOT STARTED] → [RESEARCHING]");
    insta::assert_snapshot!(task(&rig, &["set", "1", "[RESEARCHING]"]).data(), @"Task 1 is [RESEARCHING] already.");
    let blocked = task(&rig, &["set", "2", "blocked", "--reason", "waits for 1"]);
    assert_eq!(blocked.code, 0, "{blocked}");
    insta::assert_snapshot!(task(&rig, &["list"]).data(), @r"
    1  [RESEARCHING]  high    rust     Fix the parser
    2  [BLOCKED]      medium  general  Second
    ");
    let shown = task(&rig, &["show", "1"]).stdout;
    for part in [
        "1. Fix the parser\n  status: [RESEARCHING]\n  priority: high\n  language: rust\n  created: 20",
        "\n  next: researched, in_progress, blocked, abandoned\n\nIt drops the last line.\n",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(task(&rig, &["show", "2"]).stdout.contains("\n  reason: waits for 1\n"));
    assert!(read(&rig, ".adjutant/specs/TODO.md").contains("- **Status**: [RESEARCHING]\n"));
    assert!(read(&rig, ".adjutant/specs/state.json").contains("\"status\": \"researching\""));
}

#[test]
fn invalid_task_arguments_are_explained() {
    let rig = Rig::new();
    assert_eq!(task(&rig, &["add", "x"]).code, 0);
    let said = |args: &[&str]| task(&rig, args).talk();
    insta::assert_snapshot!(said(&["show"]), @r"
    adjutant: Task number required for /task command
      `adjutant task list` shows the numbers.
    [exit 2]
    ");
    for typed in ["0", "-1", "abc", "1.5", "01"] {
        let out = said(&["show", typed]);
        let expected = format!("adjutant: Task number must be positive integer, got: {typed}\n");
        assert!(out.starts_with(&expected) && out.ends_with("[exit 2]"), "{out}");
        assert_eq!(said(&["set", typed, "planning"]), out);
    }
    insta::assert_snapshot!(said(&["show", "9"]), @r"
    adjutant: there is no task 9
      `adjutant task list` shows the tasks there are.
    [exit 2]
    ");
    insta::assert_snapshot!(said(&["set", "1", "planing"]), @r"
    adjutant: `planing` is not a status, did you mean `planning`?
      Statuses: not_started, in_progress, blocked, abandoned, completed, researching, researched, planning, planned, revising, revised, implementing, partial.
    [exit 2]
    ");
    assert!(said(&["set", "1"]).starts_with("adjutant: no status is given\n"));
    insta::assert_snapshot!(said(&["set", "1", "completed"]), @r"
    adjutant: task 1: [NOT STARTED] cannot become [COMPLETED]; allowed next: in_progress, researching, planning, implementing, blocked, abandoned
    [exit 4]
    ");
    insta::assert_snapshot!(said(&["set", "1", "abandoned"]), @r"
    adjutant: abandoned needs a reason
      Say why with --reason TEXT.
    [exit 2]
    ");
    insta::assert_snapshot!(said(&["add", "y", "--priority", "urgent"]), @r"
    adjutant: `urgent` is not a priority
      Priorities: low, medium, high, critical.
    [exit 2]
    ");
    insta::assert_snapshot!(said(&["add", " \n"]), @r"
    adjutant: a task needs a title
    [exit 2]
    ");
    assert_eq!(task(&rig, &["add"]).code, 2);
    assert_eq!(task(&rig, &["list", "--json"]).json()["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn every_output_fits_the_schema() {
    let rig = Rig::new();
    let printed = |args: &[&str]| {
        let out = rig.call(["task", "--json"]).args(args).run();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out}");
        assert_fits("task", &out.json());
        out.json()
    };
    assert_eq!(printed(&["list"])["next_number"], 1);
    let added = printed(&["add", "x", "--description", "\u{1b}[31m"]);
    assert_eq!((&added["task"]["number"], &added["changed"]), (&1.into(), &true.into()));
    let set = printed(&["set", "1", "blocked", "--reason", "rain"]);
    assert_eq!((&set["from"], &set["task"]["reason"]), (&"not_started".into(), &"rain".into()));
    assert_eq!(printed(&["show", "1"])["next"][0], "in_progress");
    let todo = read(&rig, ".adjutant/specs/TODO.md").replace("[BLOCKED]", "[EXPANDED]");
    rig.write(".adjutant/specs/TODO.md", todo + "### 7. By hand\n");
    let list = printed(&["list"]);
    assert_eq!(list["disagreements"].as_array().unwrap().len(), 3, "{list}");
    assert_eq!(list["next_number"], 8);
    rig.write(".adjutant/specs/state.json", "{}");
    assert_eq!(printed(&["show", "1"])["task"]["unknown_status"], "[EXPANDED]");
}

#[test]
fn files_that_disagree_or_are_damaged_are_named_and_left_alone() {
    let rig = Rig::new();
    rig.write(
        ".opencode/specs/TODO.md",
        "# Mine\n### 3. By \u{1b}[31mhand\n- **Status**: [PLANNED]\n",
    );
    rig.write(
        ".opencode/specs/state.json",
        r#"{"active_projects":[{"project_number":3,"status":"partial"}]}"#,
    );
    insta::assert_snapshot!(task(&rig, &["list"]), @r"
    3  [PLANNED]  -  general  By ⟨U+001B⟩[31mhand
    --- stderr ---
    adjutant: task 3: TODO.md says [PLANNED], state.json says partial; TODO.md counts
    [exit 0]
    ");
    let half = "{\"active_projects\": [";
    rig.write(".opencode/specs/state.json", half);
    for args in [&["list"][..], &["add", "x"], &["show", "3"], &["set", "3", "revising"]] {
        let out = task(&rig, args);
        assert_eq!((out.code, out.stdout.as_str()), (2, ""), "{out}");
        assert!(out.stderr.contains(".opencode/specs/state.json: not JSON, line 1"), "{out}");
        assert!(out.stderr.contains("Fix it, or move it away"), "{out}");
    }
    assert_eq!(read(&rig, ".opencode/specs/state.json"), half);
}

#[test]
fn a_status_alias_is_read_with_a_warning_and_written_as_the_standard_word() {
    let rig = Rig::new();
    assert_eq!(task(&rig, &["add", "Fix it"]).code, 0);
    let todo = read(&rig, ".adjutant/specs/TODO.md").replace("[NOT STARTED]", "[COMPLETE]");
    let state = read(&rig, ".adjutant/specs/state.json").replace("not_started", "completed");
    rig.write(".adjutant/specs/TODO.md", todo);
    rig.write(".adjutant/specs/state.json", state);
    let list = task(&rig, &["list"]);
    let warning = "adjutant: task 1: TODO.md says [COMPLETE], which counts as [COMPLETED]; its next change writes that\n";
    assert_eq!((list.code, list.stderr.as_str()), (0, warning), "{list}");
    let json = task(&rig, &["show", "1", "--json"]).json();
    assert_eq!(json["task"]["status"], "completed", "{json}");
    assert_eq!(json["disagreements"][0]["field"], "spelling", "{json}");
    assert_fits("task", &json);

    let set = task(&rig, &["set", "1", "complete"]);
    assert_eq!(set.code, 0, "{set}");
    assert!(set.stderr.contains("adjutant: `complete` counts as `completed`\n"), "{set}");
    assert!(read(&rig, ".adjutant/specs/TODO.md").contains("[COMPLETED]"), "{set}");
    assert_eq!(task(&rig, &["list"]).stderr, "");
}

#[test]
fn a_specs_folder_that_is_a_link_elsewhere_is_refused() {
    let rig = Rig::new();
    let elsewhere = rig.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::create_dir(rig.work().join(".opencode")).unwrap();
    symlink(&elsewhere, rig.work().join(".opencode/specs")).unwrap();
    insta::assert_snapshot!(task(&rig, &["add", "x"]), @r"
    --- stderr ---
    adjutant: `.opencode/specs` is a symbolic link; tasks are kept only in files of the project itself, and nothing was written
    [exit 2]
    ");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    let out = rig.run(["task", "list", "--root", "nowhere"]);
    assert_eq!(out.code, 2, "{out}");
}

/// The examples of the help are read by people in a hurry: they must work as they stand.
#[test]
fn the_examples_of_the_help_work() {
    let rig = Rig::new();
    let help = rig.run(["task", "--help"]).stdout;
    let examples: Vec<&str> =
        help.lines().filter_map(|line| line.trim().strip_prefix("adjutant ")).collect();
    assert_eq!(examples.len(), 4, "{help}");
    for example in examples {
        // Quoted words stay together; the help uses nothing else of a shell.
        let mut args = Vec::new();
        for (nth, part) in example.split('"').enumerate() {
            if nth % 2 == 1 {
                args.push(part);
            } else {
                args.extend(part.split_whitespace());
            }
        }
        let out = rig.run(args);
        assert_eq!(out.code, 0, "{example}: {out}");
    }
    for command in ["add", "list", "show", "set"] {
        let out = rig.run(["task", command, "--help"]);
        assert!(out.stdout.contains(&format!("Usage: adjutant task {command}")), "{out}");
    }
}
