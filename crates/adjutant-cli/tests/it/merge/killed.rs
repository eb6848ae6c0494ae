//! What a killed process leaves of workspaces and merges, and that later commands clean it up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::repository::Repo;
use crate::support::rig::Rig;

const SCRIPT: &str = r#"
[[turn]]
label = "two"
[[turn.call]]
tool = "Write"
args = { file_path = "other", content = "other\n" }
[[turn]]
label = "two"
text = "done"

[[turn]]
label = "one"
[[turn.call]]
tool = "Write"
args = { file_path = "made", content = "made\n" }
[[turn]]
label = "one"
text = "done"
"#;

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

#[test]
fn a_run_killed_during_a_git_command_resumes_at_once() {
    let repo = repository();
    let path = std::env::var("PATH").unwrap();
    // A git that reports when it writes the files of a work tree, and then never ends.
    let bin = repo.rig.path().join("bin");
    let said = repo.rig.path().join("said");
    fs::create_dir(&bin).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &said, 0o600.into()).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*' read-tree -u '*) echo \"$$\" >{}; exec sleep 3600;;\nesac\nPATH={path} exec git \"$@\"\n",
        said.display()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();

    let flags = ["--write", "--workspace", "worktree", "-t", "one=Do it"];
    let call = repo.rig.delegating(&flags).env("PATH", format!("{}:{path}", bin.display()));
    let mut running = call.start();
    let git = fs::read_to_string(&said).unwrap();
    let run = repo.rig.only_run();
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);

    let out = repo.rig.call(["resume", &run, "--yes"]).env("PATH", &path).run();
    assert_eq!(out.code, 0, "{out}");
    let git = Pid::from_raw(git.trim().parse().unwrap()).unwrap();
    // If it has a parent-death signal, it ended with the process that started it.
    let _ = kill_process(git, Signal::KILL);
    assert_eq!(repo.json(&["diff", &run], 0)["results"][0]["files"][0]["path"], "made");
}

#[test]
fn files_of_a_killed_merge_are_not_captured_and_prune_restores_them() {
    let repo = repository();
    let delegate = |task: &str| {
        let call = repo.rig.delegating(&["--write", "-t", task]);
        let out = call.env("PATH", std::env::var_os("PATH").unwrap()).run();
        assert_eq!(out.code, 0, "{out}");
    };
    delegate("one=Do it");
    let before = repo.state();
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    // The state of a merge that was killed just before it was marked as complete.
    let merges = repo.rig.state().join("merges");
    let tree =
        fs::read_dir(merges).unwrap().flatten().find(|it| it.path().join("applies").exists());
    let applies = tree.unwrap().path().join("applies");
    let journal = fs::read_dir(&applies).unwrap().flatten().find(|it| it.path().is_dir()).unwrap();
    fs::remove_file(journal.path().join("done")).unwrap();
    let temp = format!(".adjutant-{}-0.new", journal.file_name().to_str().unwrap());
    repo.rig.write(&temp, "half");
    repo.rig.write("new", "untracked\n");

    delegate("two=Do it");
    let result = repo.json(&["diff"], 0)["results"][0]["commit"].as_str().unwrap().to_owned();
    let captured = format!("{result}^");
    let files = repo.git(["ls-tree", "-r", "--name-only", &captured]);
    assert!(files.contains("new") && !files.contains(&temp), "{files}");

    fs::remove_file(repo.rig.work().join("new")).unwrap();
    let pruned = repo.rig.run(["prune"]);
    assert_eq!(pruned.code, 0, "{pruned}");
    assert!(pruned.to_string().contains("an interrupted merge"), "{pruned}");
    assert_eq!(repo.state(), before);
}
