//! What a person is told about workspaces and work that are not as they might expect.

use std::process::Command;

use crate::rig::{Output, Rig};
use crate::work_rig::Repo;

fn writes(label: &str) -> String {
    format!(
        "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = \"{label}\", content = \"new\\n\" }}\n\
         [[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n"
    )
}

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(&["one", "two"].map(writes).concat()) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

fn delegate(repo: &Repo, flags: &[&str]) -> Output {
    let call = repo.rig.delegating(&["--write"]).args(flags);
    call.env("PATH", std::env::var_os("PATH").unwrap()).run()
}

#[test]
fn what_the_workspaces_lack_is_said_once_for_all_of_them() {
    let repo = repository();
    repo.rig.write("nested/file", "nested\n");
    repo.git(["init", "-q", "nested"]);
    let said = "repositories inside the repository are left out: nested";
    let two = ["-t", "one=Do it", "-t", "two=Do it"];
    for kind in ["overlay", "worktree"] {
        let out = delegate(&repo, &[&two[..], &["--workspace", kind]].concat());
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(out.stdout.matches(said).count(), 1, "{out}");
        assert_eq!(out.stderr.matches(said).count(), 1, "{out}");
        let json = delegate(&repo, &[&two[..], &["--workspace", kind, "--json"]].concat()).json();
        crate::schema::assert_fits("result", &json);
        assert_eq!(json["remarks"], serde_json::json!([said]), "{json}");
    }
    std::fs::remove_dir_all(repo.rig.work().join("nested")).unwrap();
    let plain = delegate(&repo, &two);
    assert!(!plain.stdout.contains("Not as in your tree"), "{plain}");
}

#[test]
fn in_a_sparse_checkout_the_preview_and_the_merge_say_the_same() {
    let repo = Repo::new();
    repo.rig.write("far/away", "away\n");
    repo.commit("far");
    let ran = repo.ran(&["one", "two"]);
    let far = |tree: &std::path::Path| std::fs::write(tree.join("far/away"), "changed\n").unwrap();
    repo.keep(&ran, 0, far);
    repo.keep_lines(&ran, 1, &[(2, "near")]);
    repo.git(["sparse-checkout", "set", "src"]);
    assert!(!repo.rig.work().join("far").exists());
    let before = repo.state();

    let preview = repo.rig.run(["merge", "--dry-run"]);
    assert_eq!(repo.state(), before);
    let merged = repo.rig.run(["merge"]);
    for (out, word) in [(&preview, "would merge"), (&merged, "merged")] {
        assert_eq!(out.code, 3, "{out}");
        let failed = format!("failed  {} [one]: 1 files are not checked out here", ran.sessions[0]);
        assert!(out.stdout.contains(&failed), "{out}");
        assert!(out.stdout.contains(&format!("{word}  {}", ran.sessions[1])), "{out}");
        assert!(out.stderr.contains("`git sparse-checkout add DIR`"), "{out}");
        assert!(!out.to_string().contains("uncommitted changes it never saw"), "{out}");
    }
    repo.git(["sparse-checkout", "add", "far"]);
    assert_eq!(repo.rig.run(["merge", &ran.sessions[0]]).code, 0);
    assert_eq!(repo.read("far/away"), "changed\n");
}

/// Runs git as the person would, whatever comes of it; returns what it complained about.
fn try_git(repo: &Repo, typed: &[&str]) -> String {
    let git = Command::new("git")
        .args(["-c", "user.name=U", "-c", "user.email=u@localhost"])
        .args(typed)
        .current_dir(repo.rig.work())
        .output()
        .unwrap();
    String::from_utf8_lossy(&git.stderr).into_owned()
}

#[test]
fn the_advice_after_a_conflict_works_with_files_that_were_never_committed() {
    let call = |path: &str| {
        let args = format!("{{ file_path = \"{path}\", content = \"by the agent\\n\" }}");
        format!("[[turn.call]]\ntool = \"Write\"\nargs = {args}\n")
    };
    let calls = [call("file"), call("untracked")].concat();
    let turns = format!("[[turn]]\nlabel = \"one\"\n{calls}[[turn]]\nlabel = \"one\"\ntext = \"done\"\n");
    let repo = Repo { rig: Rig::with_script(&turns) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo.rig.write("untracked", "never committed\n");
    let out = delegate(&repo, &["-t", "one=Do it"]);
    assert_eq!(out.code, 0, "{out}");
    repo.rig.write("file", "by the person\n");
    repo.git(["commit", "-q", "-m", "mine", "file"]);

    let out = repo.rig.run(["merge"]);
    assert_eq!(out.code, 1, "{out}");
    assert!(out.stderr.contains("commit what is not committed here, then"), "{out}");
    let (_, advice) = out.stderr.split_once("then `git ").unwrap();
    let typed: Vec<&str> = advice.split('`').next().unwrap().split(' ').collect();
    // The way that is advised elsewhere does not work here.
    let branch = repo.json(&["merge", "--as", "branch"], 0);
    let branch = branch["results"][0]["branch"].as_str().unwrap().to_owned();
    assert!(try_git(&repo, &["merge", &branch]).contains("would be overwritten"));
    repo.commit("the rest");
    let said = try_git(&repo, &typed);
    assert_eq!(repo.git(["diff", "--name-only", "--diff-filter=U"]), "file", "{typed:?} {said}");
    assert_eq!(repo.read("untracked"), "by the agent\n", "{typed:?} {said}");
}
