//! What a killed process leaves around workspaces and merges, and that nobody stumbles over it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::rig::Rig;
use crate::work_rig::Repo;

const SCRIPT: &str = r#"
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
fn a_run_goes_on_at_once_although_git_was_at_work_when_it_was_killed() {
    let repo = repository();
    let path = std::env::var("PATH").unwrap();
    // A git that says when it writes the files of a work tree, and is never done with it.
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
    fs::read_to_string(&said).unwrap();
    let run = repo.rig.only_run();
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);

    let out = repo.rig.call(["resume", &run, "--yes"]).env("PATH", &path).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.json(&["diff", &run], 0)["results"][0]["files"][0]["path"], "made");
}
