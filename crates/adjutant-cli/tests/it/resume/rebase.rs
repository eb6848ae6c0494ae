//! `resume --rebase`: a subagent goes on with the user's present files.

use std::fs;

use crate::support::repository::{Repo, lines};
use crate::support::rig::{Output, Rig};

/// How a subagent ends after its work was moved: it runs `command` first.
fn script(command: &str) -> String {
    let run = |command: &str| {
        format!("[[turn]]\n[[turn.call]]\ntool = \"Run\"\nargs = {{ command = '''{command}''' }}\n")
    };
    let done = "[[turn]]\ntext = \"done\"\n";
    format!(
        "{}{done}{}{done}",
        run("sed -i 's/line 2$/by the agent/' long; echo new > added"),
        run(command)
    )
}

/// A repository in which a subagent has changed line 2 of `long` and added a file.
fn repo(after: &str, kind: &str) -> Repo {
    let repo = Repo { rig: Rig::with_script(&script(after)) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("long", lines(&[]));
    repo.commit("first");
    let out =
        with_path(&repo, &["delegate", "--yes", "--write", "--model", repo.rig.model(), "-t"])
            .args(["fix=Fix it", "--workspace", kind])
            .run();
    assert_eq!(out.code, 0, "{out}");
    repo
}

fn with_path<'a>(repo: &'a Repo, args: &[&str]) -> crate::support::rig::Call<'a> {
    repo.rig.call(args).env("PATH", std::env::var_os("PATH").unwrap())
}

fn rebase(repo: &Repo) -> Output {
    with_path(repo, &["resume", "fix", "--rebase", "--yes"]).run()
}

const RESOLVE: &str =
    "grep '^by\\|^mine' long; sed -i '/^<<<<<<< /d; /^|||||||/,/^=======/d; /^>>>>>>> /d' long";

#[test]
fn an_agent_resolves_the_conflicts_of_its_work_with_the_present_files() {
    for kind in ["overlay", "worktree"] {
        let repo = repo(RESOLVE, kind);
        // The same line as the agent, uncommitted; another file; and a commit.
        repo.rig.write("other", "by the user\n");
        repo.commit("second");
        repo.rig.write("long", lines(&[(2, "mine"), (18, "mine too")]));
        assert_ne!(repo.rig.run(["merge", "fix"]).code, 0);
        assert_eq!(repo.read("long"), lines(&[(2, "mine"), (18, "mine too")]));

        let out = rebase(&repo);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let transcript = repo.rig.run(["transcript", "fix"]).stdout;
        assert!(transcript.contains("long: both changed the same lines"), "{kind}: {transcript}");
        assert!(transcript.contains("mine\n  by the agent"), "{kind}: {transcript}");

        let out = repo.rig.run(["merge", "fix"]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let resolved = lines(&[(2, "mine\nby the agent"), (18, "mine too")]);
        assert_eq!(repo.read("long"), resolved, "{kind}");
        assert_eq!(repo.read("other"), "by the user\n", "{kind}");
        assert_eq!(repo.read("added"), "new\n", "{kind}");
    }
}

#[test]
fn conflict_markers_that_an_agent_left_are_never_merged() {
    let repo = repo("true", "overlay");
    repo.rig.write("long", lines(&[(2, "mine")]));
    repo.commit("second");
    assert_eq!(rebase(&repo).code, 0);
    let out = repo.rig.run(["merge", "fix"]);
    assert_eq!(out.code, 1, "{out}");
    assert!(out.stdout.contains("long: the result still has conflict markers\n"), "{out}");
    assert_eq!(repo.read("long"), lines(&[(2, "mine")]));
    assert!(!repo.rig.work().join("added").exists());
    // A person can resolve them.
    let out = repo.rig.run(["merge", "--resolve", "fix"]);
    assert_eq!(out.code, 0, "{out}");
    let tree =
        std::path::PathBuf::from(out.stdout.lines().next().unwrap().rsplit(": ").next().unwrap());
    assert_eq!(repo.rig.run(["merge", "--resolve", "fix", "--continue"]).code, 1);
    fs::write(tree.join("long"), "solved\n").unwrap();
    let out = repo.rig.run(["merge", "--resolve", "fix", "--continue"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.read("long"), "solved\n");
    assert_eq!(repo.read("added"), "new\n");
}

#[test]
fn rebasing_twice_loses_nothing() {
    // The agent fails after the first rebase, because the script is at its end in the second.
    let repo = repo("true", "overlay");
    repo.rig.write("long", lines(&[(18, "mine")]));
    repo.commit("second");
    assert_eq!(rebase(&repo).code, 0);
    repo.rig.write("long", lines(&[(12, "again"), (18, "mine")]));
    repo.commit("third");
    let out = rebase(&repo);
    assert_ne!(out.code, 0, "{out}");
    let out = repo.rig.run(["merge", "fix"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.read("long"), lines(&[(2, "by the agent"), (12, "again"), (18, "mine")]));
}

#[test]
fn what_cannot_be_rebased_is_refused_with_the_reason() {
    let repo = Repo::new();
    let out = repo.rig.delegate(&["-t", "one=Read it"]);
    assert_eq!(out.code, 0, "{out}");
    let out = repo.rig.run(["resume", "--rebase"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("wrote in its own workspace"), "{out}");
    let out = repo.rig.run(["resume", "one", "--rebase", "--yes"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("it did not write in a workspace of its own"), "{out}");
}
