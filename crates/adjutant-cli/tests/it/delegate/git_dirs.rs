//! A git directory under another name than `.git`, through the real binary: in place, with `--write` and `merge`.

use std::fs;

use serde_json::json;

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

/// A subagent that plants a hook and a configuration, and does some work.
fn script(paths: &[&str]) -> String {
    let call = |path: &&str| {
        format!(
            "[[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = {}, content = \"planted\\n\" }}\n",
            json!(path)
        )
    };
    let calls: String = paths.iter().map(call).collect();
    format!("[[turn]]\ntext = \"I write.\"\n{calls}\n[[turn]]\ntext = \"done\"\n")
}

/// A repository whose git directory is `gitdata`, among its files.
fn repository(script: &str) -> Repo {
    let repo = Repo { rig: Rig::with_script(script) };
    let work = repo.rig.work();
    let git_dir = work.join("gitdata").display().to_string();
    repo.git(["init", "-q", "-b", "main", "--separate-git-dir", &git_dir, "."]);
    repo.git(["config", "core.worktree", work.to_str().unwrap()]);
    repo.rig.write("src/a", "a\n");
    repo.git(["add", "src"]);
    repo.git(["commit", "-q", "-m", "first"]);
    repo
}

fn in_place(rig: &Rig) -> Output {
    rig.delegate(&[
        "--preset",
        "command",
        "--set",
        "contract=report",
        "--in-place",
        "-t",
        "w=Write",
    ])
}

#[test]
fn agents_cannot_write_in_place_to_a_git_directory_of_any_name() {
    let repo = repository(&script(&["gitdata/hooks/pre-commit", "gitdata/config", "src/b"]));
    let config = repo.read("gitdata/config");
    let out = in_place(&repo.rig);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.read("src/b"), "planted\n");
    assert_eq!(repo.read("gitdata/config"), config);
    assert!(!repo.rig.work().join("gitdata/hooks/pre-commit").exists());
    let transcript = repo.rig.run(["transcript"]).stdout;
    let refused =
        "`gitdata/config` is in a git directory, or would make one; agents do not write there";
    assert!(transcript.contains(refused), "{transcript}");
}

#[test]
fn undo_restores_nothing_into_a_directory_that_became_a_git_directory() {
    let repo = repository(&script(&["data/config", "src/b"]));
    repo.rig.write("data/config", "before\n");
    assert_eq!(in_place(&repo.rig).code, 0);
    // The person makes the folder their git directory, and keeps the file that the agent wrote.
    let planted = repo.rig.work().join("data/config");
    fs::rename(&planted, repo.rig.work().join("gitdata/config.agent")).unwrap();
    fs::remove_dir(repo.rig.work().join("data")).unwrap();
    fs::rename(repo.rig.work().join("gitdata"), repo.rig.work().join("data")).unwrap();
    fs::rename(repo.rig.work().join("data/config.agent"), &planted).unwrap();
    repo.rig.write(".git", "gitdir: data\n");
    let out = repo.rig.run(["undo"]);
    assert_eq!(repo.read("data/config"), "planted\n", "{out}");
    assert!(out.stdout.contains("git directory"), "{out}");
    assert!(!repo.rig.work().join("src/b").exists(), "{out}");
}

#[test]
fn merge_writes_to_no_git_directory_and_names_files_that_look_like_one() {
    let made = ["made.git/HEAD", "made.git/objects/a", "made.git/refs/a", "made.git/config"];
    let planted = ["gitdata/hooks/pre-commit", "gitdata/config", "src/b"];
    let repo = repository(&script(&[&planted[..], &made].concat()));
    let config = repo.read("gitdata/config");
    let path = std::env::var_os("PATH").unwrap();
    let out = repo.rig.delegating(&["--write", "-t", "w=Write"]).env("PATH", &path).run();
    assert_eq!(out.code, 0, "{out}");
    let warning =
        "warning: made.git looks like a git directory: git reads its config and runs its hooks";
    let dry = repo.rig.call(["merge", "--dry-run"]).env("PATH", &path).run();
    assert!(dry.stdout.contains(warning), "{dry}");
    let json = repo.json(&["merge"], 0);
    assert_eq!(json["results"][0]["git_like"], json!(["made.git"]));
    assert_eq!(repo.read("src/b"), "planted\n");
    assert_eq!(repo.read("gitdata/config"), config);
    assert!(!repo.rig.work().join("gitdata/hooks/pre-commit").exists());
}

#[test]
fn a_git_directory_cannot_be_included_or_granted() {
    let repo = repository(&script(&[]));
    for flags in [["--include-ignored", "gitdata"], ["--grant", "gitdata/hooks"]] {
        let out = repo.rig.delegating(&["--write", "-t", "w=Write"]).args(flags).run();
        assert_eq!(out.code, 2, "{flags:?} {out}");
        assert!(out.stderr.contains(flags[0]), "{out}");
    }
}
