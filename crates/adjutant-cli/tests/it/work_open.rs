//! Work of runs that are not over, and what is typed in vain: nobody is told that nothing was changed while it
//! may yet be.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::rig::{Call, Rig};
use crate::running::Running;
use crate::work_rig::Repo;

/// One subagent changes a file and is done, the other changes one and thinks for longer than any test waits.
const SCRIPT: &str = r#"
[[turn]]
label = "quick"
[[turn.call]]
tool = "Write"
args = { file_path = "quick", content = "quick\n" }

[[turn]]
label = "quick"
text = "done"

[[turn]]
label = "slow"
[[turn.call]]
tool = "Write"
args = { file_path = "slow", content = "slow\n" }

[[turn]]
label = "slow"
delay_ms = 300000
text = "too late"
"#;

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

fn with_path(call: Call<'_>) -> Call<'_> {
    call.env("PATH", std::env::var_os("PATH").unwrap())
}

/// Starts a run that never ends by itself.
fn start<'rig>(repo: &'rig Repo, labels: &[&str]) -> Running<'rig> {
    let tasks = labels.iter().flat_map(|label| ["-t".to_owned(), format!("{label}=Do it")]);
    let mut running = with_path(repo.rig.delegating(&["--write"])).args(tasks).start();
    if labels.contains(&"quick") {
        running.wait_for("kept 1 file");
    }
    running.wait_for("[slow] Write slow");
    running
}

#[test]
fn a_run_that_is_not_over_is_said_to_be_so_and_how_to_go_on() {
    for labels in [&["slow"][..], &["quick", "slow"]] {
        let repo = repository();
        let mut running = start(&repo, labels);
        let run = repo.rig.only_run();
        let check = |word: &str, advice: &str| {
            let commands = [&["diff", &run][..], &["diff"], &["merge", &run, "--dry-run"]];
            for args in commands {
                let out = repo.rig.run(args);
                assert_eq!(out.code, 3, "{args:?} {out}");
                for words in [&format!("{run} {word}"), advice] {
                    assert!(out.stderr.contains(words), "{args:?} {words}\n{out}");
                }
                assert!(!out.stderr.contains("nothing was changed"), "{out}");
                assert!(!out.stderr.contains("nothing to merge"), "{out}");
                let is_shown = out.stdout.contains("quick");
                assert_eq!(is_shown, labels.contains(&"quick"), "{args:?} {out}");
            }
            if labels == ["slow"] {
                let out = repo.rig.run(["discard", &run, "--yes"]);
                assert_eq!(out.code, 3, "{out}");
                assert!(out.stderr.contains(advice), "{out}");
            }
        };
        check("is still running", &format!("`adjutant wait {run}`"));
        assert_eq!(repo.json(&["diff"], 3)["unfinished"], "running");

        running.signal(Signal::KILL);
        assert_eq!(running.finish().code, 128 + 9);
        check("was interrupted", &format!("`adjutant resume {run}`"));
        let json = repo.json(&["merge"], 3);
        assert_eq!(json["unfinished"], "interrupted");
        assert_eq!(repo.rig.work().join("quick").exists(), labels.contains(&"quick"));
        if let Some(session) = json["results"][0]["session"].as_str() {
            // One that has ended is whole, whatever became of the others.
            assert_eq!(repo.json(&["diff", session], 0)["unfinished"], json!(null));
        }
        assert_eq!(repo.json(&["discard", &run, "--yes"], 3)["unfinished"], "interrupted");
    }
}

#[test]
fn what_is_said_about_workspaces_needs_agents_that_have_them() {
    let repo = repository();
    for flags in [
        ["--merge", "apply"],
        ["--merge", "report"],
        ["--workspace", "worktree"],
        ["--grant", "/usr"],
        ["--include-ignored", "target"],
        ["--sandbox", "off"],
        ["--sandbox", "on"],
    ] {
        for command in [&["delegate", "-t", "quick=Do it"][..], &["run", "Do it"]] {
            let call = repo.rig.call(command).args(flags).args(["--yes", "--model"]);
            let out = with_path(call.arg(repo.rig.model())).run();
            assert_eq!(out.code, 2, "{flags:?} {out}");
            let words = format!("{}: no agent has a workspace of its own here", flags[0]);
            assert!(out.stderr.contains(&words), "{out}");
            assert!(out.stderr.contains("Add --write"), "{out}");
        }
        let preset = ["--preset", "story", "--enable-delegation"];
        let out = with_path(repo.rig.delegating(&["-t", "quick=Do it"]).args(preset).args(flags));
        let out = out.run();
        assert!(!out.stderr.contains("--write"), "agents of this preset write anyway: {out}");
        assert!(out.stderr.contains("kept 1 file"), "{out}");
    }
}

#[test]
fn an_ignored_folder_that_cannot_come_along_is_said() {
    let repo = repository();
    repo.rig.write(".gitignore", "target\n");
    repo.rig.write("target/made", "made\n");
    repo.rig.write("src/file", "file\n");
    fs::create_dir(repo.rig.path().join("out")).unwrap();
    let here = repo.rig.work().canonicalize().unwrap().join("target");
    for (typed, said) in [
        ("nosuch", Some("there is no nosuch that could come along")),
        ("src", Some("src is not ignored and comes along anyway")),
        ("../out", Some("../out does not lie in ")),
        ("/usr/lib", Some("/usr/lib does not lie in ")),
        ("target", None),
        ("./target/", None),
        (here.to_str().unwrap(), None),
    ] {
        let flags = ["--write", "--include-ignored", typed, "-t", "quick=Do it"];
        let out = with_path(repo.rig.delegating(&flags)).run();
        assert_eq!(out.code, 0, "{typed}: {out}");
        assert_eq!(out.stderr.contains("--include-ignored"), said.is_some(), "{typed}: {out}");
        assert!(out.stderr.contains(said.unwrap_or_default()), "{typed}: {out}");
    }
}
