//! `/implement` with several tasks and with `--in-place`, as a person types it.

use std::fs;

use crate::support::rig::{Output, Rig};

/// A command that hands its work to an agent, which writes below the specs folder and beside it.
const WRITES: &str = r#"
[[turn]]
agent = "implement"
[[turn.call]]
tool = "Task"
args = { agent = "implementer", prompt = "Task: 1" }
[[turn]]
agent = "implement"
text = "Done."
[[turn]]
agent = "implementer"
[[turn.call]]
tool = "Write"
args = { file_path = ".adjutant/specs/new.md", content = "new" }
[[turn.call]]
tool = "Write"
args = { file_path = "src/new.rs", content = "new" }
[[turn]]
agent = "implementer"
text = '{"status":"completed","summary":"It is written. It is short.","artifacts":[{"type":"implementation","path":".adjutant/specs/new.md"}],"errors":[]}'
"#;

fn run(rig: &Rig, args: &[&str]) -> Output {
    rig.call(["run"]).args(args).arg("--model").arg(rig.model()).run()
}

/// Runs with the script; returns what was said and whether the file was written.
fn written(script: &str, args: &[&str]) -> (Output, bool) {
    let rig = Rig::with_script(script);
    rig.tasks(".adjutant/specs", &[1]);
    let out = run(&rig, args);
    let is_written = fs::read_to_string(rig.work().join("src/new.rs")).is_ok();
    (out, is_written)
}

#[test]
fn in_place_inside_a_slash_command_acts_as_the_flag() {
    for (args, expected) in [
        (&["/implement 1 --in-place"][..], true),
        (&["/implement --in-place 1 keep it small"], true),
        (&["/implement 1", "--in-place"], true),
        (&["/implement 1"], false),
        (&["/implement 1 keep it --in-place"], false),
        (&["/implement 1 -- --in-place"], false),
    ] {
        let (out, is_written) = written(WRITES, args);
        assert_eq!(out.code, 0, "{args:?}: {out}");
        assert_eq!(is_written, expected, "{args:?}: {out}");
        let is_text = out.stderr.contains("--in-place is part of the prompt here");
        assert_eq!(is_text, !expected && args[0].contains("in-place"), "{args:?}: {out}");
    }
    let refused = "--in-place: agents of the preset scout only read";
    for args in [
        &["--preset", "scout", "/implement 1 --in-place"][..],
        &["--preset", "scout", "/implement 1", "--in-place"],
    ] {
        let (out, _) = written(WRITES, args);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains(refused), "{out}");
    }
}

#[test]
fn a_command_gets_its_text_without_the_in_place_flag() {
    let rig = Rig::with_script(WRITES);
    rig.tasks(".adjutant/specs", &[1]);
    let out = run(&rig, &["/implement 1 --in-place keep  it"]);
    assert_eq!(out.code, 0, "{out}");
    let events = serde_json::to_string(&rig.events(&rig.only_run())).unwrap();
    assert!(events.contains("/implement 1 keep  it"), "{events}");
    assert!(!events.contains("--in-place"), "{events}");
}

#[test]
fn agents_and_files_cannot_set_in_place() {
    let by_agent = WRITES.replace("\"Task: 1\"", "\"/implement 1 --in-place\"");
    let (out, is_written) = written(&by_agent, &["/implement 1"]);
    assert!(!is_written, "{out}");
    let by_agent = WRITES.replace("\"Task: 1\"", "\"/review --in-place src\"");
    let (out, is_written) = written(&by_agent, &["/implement 1"]);
    assert!(!is_written, "{out}");
    let rig = Rig::with_script(WRITES);
    rig.write(
        ".claude/commands/implement.md",
        "---\nagent: implementer\nargument-hint: --in-place\n---\n/implement 1 --in-place\n--in-place $ARGUMENTS",
    );
    let out = run(&rig, &["/implement 1"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(!rig.work().join("src/new.rs").exists(), "{out}");
}

#[test]
fn a_task_that_was_not_delegated_is_named_and_the_command_is_partial() {
    let rig = Rig::with_script(WRITES);
    for title in ["One", "Two"] {
        assert_eq!(rig.run(["task", "add", title]).code, 0);
    }
    let out = run(&rig, &["/implement 1,2"]);
    assert_eq!(out.code, 3, "{out}");
    let end = "Task 1 is [COMPLETED]\n\nTask 2: nothing was done\n";
    assert!(out.stdout.ends_with(end), "{out}");
    let shown = rig.run(["task", "show", "2", "--json"]).json();
    assert_eq!(shown["task"]["status"], "not_started", "{shown}");
}

#[test]
fn lists_and_ranges_pass_each_task_once_and_a_missing_task_is_named() {
    let rig = Rig::with_script(WRITES);
    for title in ["One", "Two", "Three", "Four", "Five"] {
        assert_eq!(rig.run(["task", "add", title]).code, 0);
    }
    let out = run(&rig, &["/implement 3-5,1,4 all of it"]);
    // The script delegates only the last task, so only that one is marked.
    assert_eq!(out.code, 3, "{out}");
    insta::assert_snapshot!(out.stdout, @r"
    Task: 3, 4, 5, 1

    Done.

    **Why** (VALIDATION_FAILED):

    > Tasks 3, 4, 5 were not handed to `implementer`.

    **Next step**: Run the command again for what is left.

    Implementation: .adjutant/specs/new.md
    Task 1 is [COMPLETED]

    Task 3: nothing was done

    Task 4: nothing was done

    Task 5: nothing was done
    ");
    for (task, status) in [("1", "completed"), ("3", "not_started"), ("4", "not_started")] {
        let shown = rig.run(["task", "show", task, "--json"]).json();
        assert_eq!(shown["task"]["status"], status, "{shown}");
    }
    let events = serde_json::to_string(&rig.events(&rig.only_run())).unwrap();
    for (title, count) in [("1. One", 1), ("2. Two", 0), ("3. Three", 1), ("4. Four", 1)] {
        assert_eq!(events.matches(&format!("### {title}")).count(), count, "{title}: {events}");
    }
    for (typed, expected) in [
        ("3-5,9", "Task 9 not found in .adjutant/specs/TODO.md"),
        ("4-7", "Task 6 not found in .adjutant/specs/TODO.md"),
        ("5-3", "Task range must ascend, got: 5-3"),
        ("1-51", "Too many tasks (51). Maximum: 50"),
        ("1-99999999999", "Too many tasks (99999999999). Maximum: 50"),
        ("3-,4", "Task number must be positive integer, got: 3-"),
    ] {
        let out = run(&rig, &[&format!("/implement {typed}")]);
        assert_eq!(out.code, 2, "{typed}: {out}");
        assert!(out.stderr.contains(expected), "{typed}: {out}");
    }
    assert_eq!(rig.runs().len(), 1);
}
