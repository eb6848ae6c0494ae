//! From `delegate --write` to the user's files: agents work in workspaces, and their work is merged as `--merge` says.

use std::fs;

use serde_json::json;

use crate::support::repository::{Repo, fates, lines};
use crate::support::rig::{Output, Rig};

/// Two subagents that change different lines of the same file, and one that never gets to an end.
fn script() -> String {
    let edit = |label: &str, n: usize| {
        format!(
            "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Edit\"\n\
             args = {{ file_path = \"long\", old_string = \"line {n}\\n\", new_string = \"by {label}\\n\" }}\n\
             [[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n"
        )
    };
    // The script of the third ends in the middle of its work, and with it the subagent.
    let third = "[[turn]]\nlabel = \"three\"\n[[turn.call]]\ntool = \"Write\"\n\
                 args = { file_path = \"half\", content = \"half done\\n\" }\n";
    edit("one", 2) + &edit("two", 18) + third
}

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(&script()) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("long", lines(&[]));
    repo.commit("first");
    repo.rig.write("mine", "untracked\n");
    repo
}

fn delegate(repo: &Repo, labels: &[&str], flags: &[&str]) -> Output {
    let tasks: Vec<String> =
        labels.iter().flat_map(|label| ["-t".to_owned(), format!("{label}=Do it")]).collect();
    repo.rig
        .delegating(&["--write"])
        .args(tasks)
        .args(flags)
        .env("PATH", std::env::var_os("PATH").unwrap())
        .run()
}

#[test]
fn results_are_reported_shown_merged_and_undone() {
    for kind in ["overlay", "worktree"] {
        let repo = repository();
        let before = repo.state();
        let out = delegate(&repo, &["one", "two"], &["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(repo.state(), before, "{kind}: nothing changes unless it is said");
        let run = repo.rig.only_run();
        for words in [
            "2 results of run_",
            "2 to merge",
            &format!("\n  adjutant diff {run}      shows the work\n"),
            &format!("\n  adjutant merge {run}     merges it\n"),
        ] {
            assert!(out.stderr.contains(words), "{kind}: {words}\n{out}");
        }
        assert!(out.stdout.contains("- `long` by [one] and [two]"), "{kind}: {out}");
        let diff = repo.json(&["diff"], 0);
        assert_eq!(diff["results"][0]["files"][0]["path"], "long");
        assert_eq!(diff["results"][1]["added"], 1);
        assert_eq!(diff["results"][0]["outcome"], "completed");
        assert_eq!(fates(&repo.json(&["merge"], 0)), ["merged", "merged"], "{kind}");
        assert_eq!(repo.read("long"), lines(&[(2, "by one"), (18, "by two")]), "{kind}");
        assert_eq!(repo.rig.run(["merge", "--undo"]).code, 0);
        assert_eq!(repo.state(), before, "{kind}");
    }
}

#[test]
fn only_completed_results_are_merged_automatically() {
    let repo = repository();
    let out = delegate(&repo, &["one", "three"], &["--merge", "apply"]);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(repo.read("long"), lines(&[(2, "by one")]));
    assert!(out.stderr.contains("merged  sess_"), "{out}");
    assert!(out.stderr.contains("[three] did not complete, so its work is only kept"), "{out}");
    assert!(!repo.rig.work().join("half").exists());
    let half = repo.json(&["diff"], 0);
    assert_eq!(half["results"][1]["files"][0]["path"], "half");
    assert_eq!(half["results"][1]["outcome"], json!("failed"));
    // The user can merge a failed result explicitly.
    let three = half["results"][1]["session"].as_str().unwrap();
    assert_eq!(fates(&repo.json(&["merge", three], 0)), ["merged"]);
    assert_eq!(repo.read("half"), "half done\n");
}

#[test]
fn merge_branch_creates_a_branch_and_reports_included_uncommitted_files() {
    let repo = repository();
    let before = repo.read("long");
    let out = delegate(&repo, &["one"], &["--merge", "branch"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains(": adjutant/run_"), "{out}");
    assert!(out.stderr.contains("also holds the uncommitted files"), "{out}");
    let branches = repo.git(["branch", "--list", "adjutant/*", "--format=%(refname:short)"]);
    assert_eq!(repo.git(["show", &format!("{branches}:long")]) + "\n", lines(&[(2, "by one")]));
    assert_eq!(repo.read("long"), before);
}

#[test]
fn a_conflict_at_the_end_of_a_run_is_reported_and_changes_nothing() {
    let repo = repository();
    // Both change the same line.
    fs::write(repo.rig.path().join("script.toml"), script().replace("line 18\\n", "line 2\\n"))
        .unwrap();
    let out = delegate(&repo, &["one", "two"], &["--json"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("1 to merge, 1 in conflict"), "{out}");
    assert!(out.stderr.contains("long: both changed the same lines (target "), "{out}");
    out.json();
    let applied = repo.rig.run(["merge"]);
    assert_eq!(applied.code, 3, "{applied}");
    assert_eq!(repo.read("long"), lines(&[(2, "by one")]));
}

#[test]
fn a_run_with_an_unmerged_result_exits_with_partial_success() {
    let repo = repository();
    fs::write(repo.rig.path().join("script.toml"), script().replace("line 18\\n", "line 2\\n"))
        .unwrap();
    let out = delegate(&repo, &["one", "two"], &["--merge", "apply"]);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(repo.read("long"), lines(&[(2, "by one")]));
}

#[test]
fn undo_names_the_reference_of_workspace_results_and_changes_no_user_file() {
    for kind in ["overlay", "worktree"] {
        let repo = repository();
        assert_eq!(delegate(&repo, &["one", "two"], &["--workspace", kind]).code, 0, "{kind}");
        // The user happens to have written exactly what the first agent did.
        repo.rig.write("long", lines(&[(2, "by one")]));
        let before = repo.state();
        let undone = repo.json(&["undo"], 0);
        assert_eq!(undone["files"], json!([]), "{kind}");
        let elsewhere = undone["elsewhere"].as_array().unwrap();
        assert_eq!(elsewhere.len(), 2, "{kind}: {undone}");
        let session = elsewhere[0]["session"].as_str().unwrap();
        let reference = elsewhere[0]["reference"].as_str().unwrap();
        repo.git(["rev-parse", "--verify", reference]);

        let out = repo.rig.run(["undo", session]);
        assert_eq!((out.code, out.stdout.as_str()), (0, ""), "{kind}: {out}");
        for words in [
            &format!("its work is in {reference}"),
            &format!("`adjutant discard {session}` drops it"),
        ] {
            assert!(out.stderr.contains(words), "{kind}: {words}\n{out}");
        }
        assert_eq!(repo.state(), before, "{kind}: the user's file stays");
        assert_eq!(
            repo.json(&["discard", session, "--yes"], 0)["results"][0]["discarded"],
            true,
            "{kind}"
        );
    }
}

#[test]
fn discarding_the_last_result_of_a_run_removes_its_base() {
    for kind in ["overlay", "worktree"] {
        let repo = repository();
        assert_eq!(delegate(&repo, &["one", "two"], &["--workspace", kind]).code, 0, "{kind}");
        let held = || repo.git(["for-each-ref", "--format=%(refname)", "refs/adjutant"]);
        let results = repo.json(&["diff"], 0);
        let session = |at: usize| results["results"][at]["session"].as_str().unwrap().to_owned();
        assert_eq!(repo.rig.run(["discard", "--yes", session(0).as_str()]).code, 0, "{kind}");
        assert!(held().contains("/_bases/"), "{kind}: the other one stands on it: {}", held());
        assert_eq!(repo.rig.run(["discard", "--yes", session(1).as_str()]).code, 0, "{kind}");
        assert_eq!(held(), "", "{kind}");
    }
}

#[test]
fn undo_after_a_merge_names_the_command_that_undoes_the_merge() {
    let repo = repository();
    assert_eq!(delegate(&repo, &["one"], &[]).code, 0);
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    let out = repo.rig.run(["undo"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(!out.stderr.contains("changed nothing here"), "{out}");
    let (_, advised) = out.stderr.split_once("`adjutant ").unwrap();
    let typed: Vec<&str> = advised.split('`').next().unwrap().split(' ').collect();
    assert_eq!(&typed[..2], ["merge", "--undo"]);
    assert_eq!(repo.rig.run(&typed).code, 0);
    assert_eq!(repo.read("long"), lines(&[]));
}

#[test]
fn unfinished_work_is_marked_and_the_question_of_a_subagent_comes_last() {
    let done = json!({ "status": "completed", "summary": "The line is changed, and nothing else was touched.",
        "artifacts": [], "errors": [] });
    let error = json!({ "type": "validation", "message": "Warm or cold?", "code": "VALIDATION_FAILED",
        "recoverable": true, "recommendation": "Answer warm or cold" });
    let asks = json!({ "status": "blocked", "summary": "I wrote a draft and need to know the colours.",
        "artifacts": [], "errors": [error] });
    let turns = script().replace("text = \"done\"", &format!("text = '{done}'"));
    let colors = "[[turn]]\nlabel = \"colors\"\n[[turn.call]]\ntool = \"Write\"\n\
                  args = { file_path = \"draft\", content = \"warm?\\n\" }\n";
    let colors = format!("{colors}[[turn]]\nlabel = \"colors\"\ntext = '{asks}'\n");
    let repo = repository();
    fs::write(repo.rig.path().join("script.toml"), turns + &colors).unwrap();
    let out = delegate(&repo, &["one", "colors"], &["--set", "contract=standard"]);
    let end = repo.rig.redacted(&out.stderr[out.stderr.find("2 results of ").unwrap()..]);
    insta::assert_snapshot!(end, @"
    2 results of run_0000000000_aaaaaa: 2 to merge
    would merge  sess_0000000000_bbbbbb [one]: 1 file, +1 -1
    would merge  sess_0000000000_cccccc [colors]: 1 file, +1 -0 (unfinished: blocked)
      adjutant diff run_0000000000_aaaaaa      shows the work
      adjutant merge run_0000000000_aaaaaa     merges it
      adjutant discard run_0000000000_aaaaaa   drops it
    [colors] asks: Warm or cold?
      adjutant resume colors --say
    ");
}
