//! Which run a command uses if none is named, and whether a task can be started in its current status.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::rig::{COMMANDS, Output, Rig};
use crate::support::schema::assert_fits;

/// Where the first turn of the planner begins.
const PLANS: &str = "[[turn]]\nagent = \"planner\"\n";

/// A place whose script plays the built-in commands, with the task `Add JWT`.
fn rig() -> Rig {
    let rig = Rig::with_script(COMMANDS);
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    rig
}

fn run(rig: &Rig, command: &str, flags: &[&str]) -> Output {
    rig.call(["run", command, "--model", rig.model()]).args(flags).run()
}

fn todo(rig: &Rig) -> String {
    fs::read_to_string(rig.work().join(".adjutant/specs/TODO.md")).unwrap()
}

#[test]
fn commands_that_change_something_use_the_latest_run_of_this_tree() {
    let rig = rig();
    assert_eq!(run(&rig, "/research 1", &[]).code, 0);
    let first = rig.only_run();
    let other = rig.path().join("other");
    fs::create_dir(&other).unwrap();
    for command in ["undo", "resume", "cancel"] {
        let out = rig.call([command]).cwd(&other).run();
        assert_eq!(out.code, 2, "{command}: {out}");
        if command == "cancel" {
            assert!(out.stderr.contains("no run is in progress"), "{out}");
            continue;
        }
        let place = format!("no run in {}\n", other.display());
        assert!(out.stderr.contains(&place), "{out}");
        let named = format!("{first}, in {}: `adjutant {command} {first}`", rig.work().display());
        assert!(out.stderr.contains(&named), "{out}");
    }
    // The latest run of all works elsewhere; that of this tree is meant from here, and with --root.
    let script = ["--model", "script:../script.toml"];
    let out = rig.call(["delegate", "--yes", "-t", "a=b"]).args(script).cwd(&other).run();
    assert_eq!(rig.runs().len(), 2, "{out}");
    let work = rig.work();
    for call in [
        rig.call(["undo", "--dry-run", "--json"]),
        rig.call(["undo", "--dry-run", "--json", "--root"]).arg(&work).cwd(&other),
    ] {
        let out = call.run();
        let json = out.json();
        assert_fits("undo", &json);
        assert_eq!(json["run"], first.as_str(), "{out}");
        assert_eq!(json["root"], work.to_str().unwrap());
    }
    let out = rig.call(["undo", "--dry-run", &first]).cwd(&other).run();
    assert!(out.stderr.contains(&format!("{first} worked in {}\n", work.display())), "{out}");
    let out = rig.call(["undo", "--dry-run", &first]).run();
    assert!(!out.stderr.contains("worked in"), "{out}");
}

#[test]
fn every_command_uses_the_latest_run_of_the_surrounding_work_tree() {
    let rig = Rig::with_script(&"[[turn]]\ntext = 'done'\n".repeat(3));
    let (work, other) = (rig.work(), rig.path().join("other"));
    let below = work.join("src/deep");
    for folder in [&work.join(".git"), &below, &other] {
        fs::create_dir_all(folder).unwrap();
    }
    rig.write(
        ".git/HEAD",
        "ref: refs/heads/main
",
    );
    let delegate = |folder| {
        let before = rig.runs();
        let args = ["delegate", "--yes", "-t", "a=b", "--model", rig.model()];
        let out = rig.call(args).cwd(folder).run();
        assert_eq!(out.code, 0, "{out}");
        rig.runs().into_iter().find(|run| !before.contains(run)).unwrap()
    };
    let (here, _) = (delegate(&work), delegate(&other));
    let elsewhere = delegate(&other);
    let commands = [
        vec!["tree", "--json"],
        vec!["status", "--tree", "--json"],
        vec!["result", "--json"],
        vec!["cost", "--json"],
        vec!["log", "--json"],
        vec!["watch", "--json"],
        vec!["wait", "--json"],
        vec!["undo", "--dry-run", "--json"],
    ];
    for (folder, run) in [(&work, &here), (&below, &here), (&other, &elsewhere)] {
        for command in &commands {
            for latest in [&[][..], &["latest"]] {
                let out = rig.call(command).args(latest).cwd(folder).run();
                assert!(out.stdout.contains(run), "{command:?} in {}: {out}", folder.display());
                assert!(!out.stderr.contains("no run in this directory"), "{command:?}: {out}");
            }
        }
    }
    // Where nothing ran, what looks shows the latest of all and says so; what acts, and what scripts rely on, does not.
    for command in &commands {
        let out = rig.call(command).cwd(rig.path()).run();
        if ["undo", "wait", "result", "cost"].contains(&command[0]) {
            assert_eq!(out.code, 2, "{out}");
            assert_eq!(out.stdout, "", "{out}");
            let named = format!(
                "{elsewhere}, in {}: `adjutant {} {elsewhere}`",
                other.display(),
                command[0]
            );
            assert!(out.stderr.contains(&named), "{out}");
            continue;
        }
        let said = format!(
            "no run in this directory; showing {elsewhere}, the latest, from {}\n",
            other.display()
        );
        assert!(out.stderr.contains(&said), "{command:?}: {out}");
        assert!(out.stdout.contains(&elsewhere), "{command:?}: {out}");
    }
}

#[test]
fn wait_result_and_cost_accept_a_run_of_another_folder_by_id_or_with_anywhere() {
    let rig = Rig::with_script("[[turn]]\ntext = 'done'\n");
    assert_eq!(rig.delegate(&["-t", "a=b"]).code, 0);
    let run = rig.only_run();
    for command in ["wait", "result", "cost"] {
        let here = rig.run([command, "--json"]);
        assert_eq!(here.code, 0, "{command}: {here}");
        let elsewhere =
            |args: &[&str]| rig.call([command, "--json"]).args(args).cwd(rig.path()).run();
        for args in [&["--anywhere"][..], &["latest", "--anywhere"], &[&run]] {
            let out = elsewhere(args);
            assert_eq!((out.code, &out.stdout), (0, &here.stdout), "{command} {args:?}: {out}");
        }
        assert_eq!(elsewhere(&["a", "--anywhere"]).code, 0, "a label of that run");
        let said = elsewhere(&["--anywhere"]).stderr;
        assert_eq!(said, format!("adjutant: {run} worked in {}\n", rig.work().display()));
        let out = elsewhere(&[]);
        assert_eq!(out.code, 2, "{command}: {out}");
        assert!(out.stderr.contains("(or the flag --anywhere) selects it"), "{out}");
    }
    let empty = Rig::new();
    insta::assert_snapshot!(empty.run(["wait"]).talk(), @"
    adjutant: no run in $WORK
      `adjutant status` lists the runs.
    [exit 2]
    ");
    insta::assert_snapshot!(empty.run(["wait", "--anywhere"]).talk(), @"
    adjutant: there are no runs yet
      `adjutant status` lists the runs.
    [exit 2]
    ");
}

#[test]
fn an_invalid_git_directory_makes_no_work_tree_and_a_removed_folder_belongs_to_none() {
    let rig = Rig::with_script(
        "[[turn]]
text = 'done'
",
    );
    let work = rig.work();
    let (one, other) = (work.join("a"), work.join("b"));
    for folder in [&one, &other] {
        fs::create_dir(folder).unwrap();
    }
    let args = ["delegate", "--yes", "-t", "a=b", "--model", "script:../../script.toml"];
    let out = rig.call(args).cwd(&one).run();
    assert_eq!(out.code, 0, "{out}");
    let undo = |case: &str, code| {
        let out = rig.call(["undo", "--dry-run"]).cwd(&other).run();
        assert_eq!(out.code, code, "{case}: {out}");
    };
    let git = work.join(".git");
    fs::create_dir(&git).unwrap();
    undo("an empty folder", 2);
    fs::remove_dir(&git).unwrap();
    fs::write(&git, "notes").unwrap();
    undo("a file of something else", 2);
    fs::write(
        &git,
        "gitdir: /elsewhere
",
    )
    .unwrap();
    undo("another work tree", 0);
    fs::remove_dir_all(&one).unwrap();
    undo("the run's folder is gone", 2);
}

#[test]
fn cancel_names_a_live_run_of_another_folder_and_does_not_cancel_it() {
    let rig = Rig::with_script("[[turn]]\ndelay_ms = 300000\ntext = 'late'\n");
    let mut live = rig.delegating(&["-t", "slow=x"]).start();
    live.wait_for("[slow] started");
    let run = rig.only_run();
    let out = rig.call(["cancel"]).cwd(rig.path()).run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains(&format!("`adjutant cancel {run}` selects it")), "{out}");
    let out = rig.call(["cancel", "--root"]).arg(rig.work()).cwd(rig.path()).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(live.finish().code, 130);
}

#[test]
fn resume_clamps_a_timeout_above_the_maximum_with_a_notice() {
    let script = COMMANDS.replacen(PLANS, &format!("{PLANS}delay_ms = 300000\n"), 1);
    assert_ne!(script, COMMANDS);
    let rig = Rig::with_script(&script);
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    let mut live = rig.call(["run", "/plan 1", "--model", rig.model()]).start();
    live.wait_for("[planner] started").signal(Signal::INT);
    assert_eq!(live.finish().code, 130);
    fs::write(rig.path().join("script.toml"), COMMANDS).unwrap();
    let out = rig.run(["resume", "--timeout", "99999999"]);
    assert!(out.stderr.contains("99,999,999 s is more than allowed"), "{out}");
    let run = rig.only_run();
    let events = rig.events(&run);
    let again: Vec<&Value> = events.iter().filter(|it| it["type"] == "reopened").collect();
    assert!(!again.is_empty(), "{out}");
    assert!(again.iter().all(|it| it["timeout_s"] == 3_600), "{again:?}");
    let resumed = events.iter().find(|it| it["type"] == "resumed").unwrap();
    assert_eq!(resumed["clamped"], true);
}

#[test]
fn a_description_above_the_size_limit_is_refused_and_nothing_is_written() {
    let rig = Rig::new();
    let big = |bytes: usize| "x".repeat(bytes);
    let out = rig.call(["run", "/task \"big\""]).stdin(big(16 * 1024 + 1)).run();
    insta::assert_snapshot!(out.talk(), @r"
    adjutant: the description has 16385 bytes, limit 16384; put it into a file and name the file
    [exit 2]
    ");
    assert!(!rig.work().join(".adjutant").exists());
    let out = rig.call(["run", "/task \"big\""]).stdin(big(16 * 1024)).run();
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn a_task_list_cannot_grow_beyond_the_size_limit() {
    let rig = Rig::new();
    assert_eq!(rig.run(["task", "add", "first"]).code, 0);
    let limit = 16 * 1024 * 1024;
    let list = format!("{}\n{}", todo(&rig), "y".repeat(limit - todo(&rig).len() - 1));
    let path = rig.write(".adjutant/specs/TODO.md", &list);
    let out = rig.run(["task", "add", "second"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("TODO.md` would have more than 16777216 bytes"), "{out}");
    assert!(fs::read_to_string(path).unwrap() == list);
}

#[test]
fn only_the_user_can_reopen_a_completed_task() {
    let rig = rig();
    for command in ["/research 1", "/plan 1"] {
        assert_eq!(run(&rig, command, &[]).code, 0);
    }
    assert_eq!(run(&rig, "/implement 1", &["--in-place"]).code, 0);
    let runs = rig.runs().len();
    let out = run(&rig, "/plan 1", &[]);
    insta::assert_snapshot!(out.talk(), @r"
    adjutant: task 1: [COMPLETED] cannot become [PLANNING]; allowed next: in_progress
      `adjutant task set 1 in_progress` opens it again.
    [exit 4]
    ");
    assert_eq!(rig.runs().len(), runs, "nothing was begun");
    let out = rig.run(["undo"]);
    assert!(
        out.stderr.ends_with("adjutant: task 1 is still [COMPLETED] and links src/token.txt\n"),
        "{out}"
    );
    assert!(todo(&rig).contains("- **Completed**: "));
    assert_eq!(rig.run(["task", "set", "1", "in_progress"]).code, 0);
    assert!(!todo(&rig).contains("Completed"), "{}", todo(&rig));
    assert_eq!(run(&rig, "/plan 1", &[]).code, 0);
}

#[test]
fn the_directory_where_agents_may_write_is_printed_once() {
    const WORDS: &str = "adjutant: in this run the agents may write only below .adjutant/specs; to let them \
                         change all of the working tree, start it with --in-place\n";
    let rig = rig();
    let count = |out: &Output| out.stderr.matches(WORDS).count();
    assert_eq!(count(&run(&rig, "/research 1", &[])), 0);
    assert_eq!(count(&run(&rig, "/implement 1", &[])), 1);
    assert_eq!(count(&run(&rig, "/implement 1", &["--in-place"])), 0);
}

#[test]
fn a_run_that_may_work_on_the_task_is_named_before_another_starts() {
    let rig = rig();
    assert_eq!(rig.run(["task", "set", "1", "planning"]).code, 0);
    let out = run(&rig, "/plan 1", &[]);
    assert!(
        out.stderr.contains("adjutant: task 1 is [PLANNING]: a run may be working on it, or was interrupted; `adjutant status` shows it"),
        "{out}"
    );
    let first = rig.only_run();
    // One that is killed leaves the task as it is marked.
    let script = COMMANDS.replacen(PLANS, &format!("{PLANS}delay_ms = 300000\n"), 1);
    assert_ne!(script, COMMANDS);
    fs::write(rig.path().join("script.toml"), script).unwrap();
    let mut live = rig.call(["run", "/plan 1", "--model", rig.model()]).start();
    live.wait_for("[planner] started").wait_for("[PLANNING]");
    let slow = rig.runs().into_iter().find(|run| *run != first).unwrap();
    fs::write(rig.path().join("script.toml"), COMMANDS).unwrap();
    let out = run(&rig, "/plan 1", &[]);
    let said = format!("task 1 is [PLANNING]: {slow} is working on it; `adjutant status {slow}`");
    assert!(out.stderr.contains(&said), "{out}");
    assert_eq!(rig.run(["task", "set", "1", "planning"]).code, 0);
    live.signal(Signal::KILL);
    let _ = live.finish();
    let out = run(&rig, "/plan 1", &[]);
    let said = format!("task 1 is [PLANNING]: {slow} was interrupted; `adjutant resume {slow}`");
    assert!(out.stderr.contains(&said), "{out}");
}

#[test]
fn a_slash_command_in_separate_arguments_is_shown_quoted() {
    let rig = Rig::new();
    for (args, expected) in [
        (vec!["run", "/plan", "1"], "quote it: adjutant run '/plan 1'\n"),
        (
            vec!["run", "--root", ".", "/implement", "1", "--in-place"],
            "quote it: adjutant run '/implement 1' --in-place\n",
        ),
        (
            vec!["run", "/task", "Add it", "--yes"],
            "quote it: adjutant run '/task \"Add it\"' --yes\n",
        ),
    ] {
        let out = rig.run(&args);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains(expected), "{out}");
    }
    let out = rig.run(["run", "a", "goal"]);
    assert!(out.stderr.contains("unexpected argument 'goal'"), "{out}");
}

#[test]
fn status_shows_the_typed_command_and_not_its_expanded_prompt() {
    let rig = rig();
    assert_eq!(run(&rig, "/research 1 and be brief", &[]).code, 0);
    for args in [vec!["status"], vec!["status", "latest"]] {
        let out = rig.run(&args);
        assert!(out.stdout.contains("/research 1 and be brief\n"), "{out}");
        assert!(!out.stdout.contains("quoted"), "{out}");
    }
}

#[test]
fn a_built_in_command_with_a_broken_file_is_listed_as_unusable() {
    let rig = Rig::new();
    rig.write(".adjutant/commands/plan.md", "---\nagent: a\nagent: b\n---\nDo it.");
    const WORDS: &str =
        "\n  cannot be used: .adjutant/commands/plan.md overrides this command and has an error";
    for args in [vec!["commands"], vec!["commands", "plan"]] {
        let out = rig.run(&args);
        assert_eq!(out.stdout.matches(WORDS).count(), 1, "{out}");
        assert!(out.stdout.contains("Cannot be used:\n  .adjutant/commands/plan.md: "), "{out}");
    }
    let json = rig.run(["commands", "--json"]).json();
    assert_fits("commands", &json);
    let unusable = |it: &&Value| it.get("unusable_because_of").is_some();
    let named: Vec<&Value> = json["commands"].as_array().unwrap().iter().filter(unusable).collect();
    assert_eq!(named.len(), 1);
    assert_eq!(named[0]["name"], "plan");
}

#[test]
fn recommended_commands_repeat_the_root_that_was_given() {
    let rig = Rig::new();
    let at = rig.path().to_owned();
    let out = rig.call(["run", "/task \"x\"", "--root", "work"]).cwd(&at).run();
    assert!(out.stdout.ends_with("\nNext: adjutant run \"/research 1\" --root work\n"), "{out}");
    let out = rig.call(["task", "show", "7", "--root", "work"]).cwd(&at).run();
    assert!(out.stderr.contains("`adjutant task list --root work`"), "{out}");
    let out = rig.run(["task", "show", "7"]);
    assert!(out.stderr.contains("`adjutant task list` shows"), "{out}");
}
