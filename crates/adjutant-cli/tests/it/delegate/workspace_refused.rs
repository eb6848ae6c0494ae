//! Workspace flags that can never apply are refused before anything starts.

use std::fs;

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

const SCRIPT: &str = "[[turn]]\nlabel = \"one\"\ntext = \"done\"\n";

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

fn delegate(repo: &Repo, flags: &[&str]) -> Output {
    let call = repo.rig.delegating(&["--write", "-t", "one=Do it"]).args(flags);
    call.env("PATH", std::env::var_os("PATH").unwrap()).run()
}

#[test]
fn a_grant_that_commands_would_not_see_is_refused_with_the_reason() {
    let repo = repository();
    fs::create_dir_all(repo.rig.state()).unwrap();
    fs::create_dir_all(repo.rig.home().join("toolchain")).unwrap();
    let (state, home) = (repo.rig.state(), repo.rig.home());
    let (state, home) = (state.to_str().unwrap(), home.to_str().unwrap());
    for (typed, why) in [
        ("/", "that is everything"),
        (".", "agents work in copies of this repository"),
        (".git", "agents work in copies of this repository"),
        (state, "the state directory is never shown"),
        ("/proc", "each command has one of its own"),
        ("/proc/self", "each command has one of its own"),
        ("/dev/shm", "each command has one of its own"),
        (home, "your home directory as a whole is never shown"),
    ] {
        let out = delegate(&repo, &["--grant", typed]);
        assert_eq!(out.code, 2, "{typed}: {out}");
        assert!(out.stderr.contains(&format!("--grant {typed}: {why}")), "{typed}: {out}");
    }
    assert_eq!(repo.rig.runs(), Vec::<String>::new(), "nothing began");
    let below = format!("{home}/toolchain");
    assert_eq!(delegate(&repo, &["--grant", &below]).code, 0);
}

#[test]
fn a_git_directory_cannot_be_included_as_an_ignored_folder() {
    let repo = repository();
    let whole = "that is the whole tree";
    let inside = "a git directory never comes along";
    for (typed, why) in
        [(".git", inside), (".git/hooks", inside), ("sub/.GIT", inside), (".", whole)]
    {
        let out = delegate(&repo, &["--include-ignored", typed]);
        assert_eq!(out.code, 2, "{typed}: {out}");
        let said = format!("--include-ignored {typed}: {why}");
        assert!(out.stderr.contains(&said), "{typed}: {out}");
    }
    assert_eq!(repo.rig.runs(), Vec::<String>::new(), "nothing began");
}

#[test]
fn a_run_does_not_start_without_a_tool_that_it_needs() {
    let repo = repository();
    let out = delegate(&repo, &["--needs", "perl", "--needs", "no-such-tool"]);
    assert_eq!(out.code, 2, "{out}");
    let said =
        "the run needs the tool no-such-tool, which is not among the toolchains of this machine";
    assert!(out.stderr.contains(said), "{out}");
    assert_eq!(repo.rig.runs(), Vec::<String>::new(), "nothing began");
    // Perl is on every machine that has git.
    assert_eq!(delegate(&repo, &["--needs", "perl"]).code, 0);
}
