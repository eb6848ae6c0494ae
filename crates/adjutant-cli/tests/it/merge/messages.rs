//! Messages about unexpected states of workspaces and results.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

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
fn files_left_out_of_all_workspaces_are_reported_once() {
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
        crate::support::schema::assert_fits("result", &json);
        assert_eq!(json["remarks"], serde_json::json!([said]), "{json}");
    }
    fs::remove_dir_all(repo.rig.work().join("nested")).unwrap();
    let plain = delegate(&repo, &two);
    assert!(!plain.stdout.contains("About the workspaces"), "{plain}");
}

#[test]
fn in_a_sparse_checkout_the_preview_matches_the_merge() {
    let repo = Repo::new();
    repo.rig.write("far/away", "away\n");
    repo.commit("far");
    let ran = repo.ran(&["one", "two"]);
    let far = |tree: &Path| fs::write(tree.join("far/away"), "changed\n").unwrap();
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
        assert!(out.stderr.contains("\n  git sparse-checkout add DIR  "), "{out}");
        assert!(!out.to_string().contains("uncommitted changes it never saw"), "{out}");
    }
    repo.git(["sparse-checkout", "add", "far"]);
    assert_eq!(repo.rig.run(["merge", &ran.sessions[0]]).code, 0);
    assert_eq!(repo.read("far/away"), "changed\n");
}

#[test]
fn the_advice_after_a_conflict_works_with_files_that_were_never_committed() {
    let call = |path: &str| {
        let args = format!("{{ file_path = \"{path}\", content = \"by the agent\\n\" }}");
        format!("[[turn.call]]\ntool = \"Write\"\nargs = {args}\n")
    };
    let calls = [call("file"), call("untracked")].concat();
    let turns =
        format!("[[turn]]\nlabel = \"one\"\n{calls}[[turn]]\nlabel = \"one\"\ntext = \"done\"\n");
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
    let (_, advice) = out.stderr.split_once("\n  adjutant ").unwrap();
    let typed: Vec<&str> = advice.split("   ").next().unwrap().trim_end().split(' ').collect();
    assert_eq!(typed, ["merge", "--resolve", "one"]);
    let begun = repo.rig.run(&typed);
    assert_eq!(begun.code, 0, "{begun}");
    let tree = begun.stdout.lines().next().unwrap().rsplit(": ").next().unwrap();
    let edit = format!("\n    edit {tree}/file, remove the markers\n");
    assert!(begun.stdout.contains(&edit), "{begun}");
    assert!(begun.stderr.contains("  adjutant merge --resolve one --continue   "), "{begun}");
    insta::assert_snapshot!(repo.rig.run::<&str>([]).data(), @"
    A conflict is being resolved:
      adjutant merge --resolve one --continue   [one], when no conflict markers are left

    Results that are not merged; `adjutant diff RUN` shows them:
      adjutant merge run_0000000000_aaaaaa   1 result: one

    `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
    ");
    fs::write(Path::new(tree).join("file"), "by both\n").unwrap();
    let done = repo.rig.run([&typed[..], &["--continue"]].concat());
    assert_eq!(done.code, 0, "{done}");
    assert_eq!((&*repo.read("file"), &*repo.read("untracked")), ("by both\n", "by the agent\n"));
    assert!(!Path::new(tree).exists());
}

#[test]
fn a_git_that_is_too_old_creates_no_workspaces_and_doctor_reports_only_that() {
    let rig = Rig::new();
    let bin = rig.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("git"), "#!/bin/sh\necho git version 2.30.2\n").unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let out = rig.call(["doctor"]).env("PATH", &bin).run();
    let line = |name: &str| {
        let line = out.stdout.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{name}: {out}")).to_owned()
    };
    assert!(line("git").contains("git 2.30.2 is too old; 2.39 or newer is needed"), "{out}");
    assert!(line("workspaces").contains("none without a git that can be used"), "{out}");
    assert!(!out.stdout.contains("made in constant time"), "{out}");
}

#[test]
fn undo_does_not_offer_to_discard_a_discarded_result() {
    let repo = repository();
    assert_eq!(delegate(&repo, &["-t", "one=Do it"]).code, 0);
    let run = repo.rig.only_run();
    let kept = repo.rig.run(["undo"]);
    assert!(kept.stderr.contains("`adjutant discard "), "{kept}");
    assert_eq!(repo.rig.run(["discard", &run, "--yes"]).code, 0);
    let gone = repo.rig.run(["undo"]);
    assert_eq!(gone.code, 0, "{gone}");
    assert!(gone.stderr.contains("its work was discarded"), "{gone}");
    assert!(!gone.stderr.contains("`adjutant discard "), "{gone}");
}

#[test]
fn a_usage_line_shows_no_flags_from_the_environment() {
    let rig = Rig::new();
    let out = rig.call(["discard"]).env("ADJUTANT_MODEL", "x/y").run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("Usage: adjutant discard <RUN|SESSION|LABEL|#N>"), "{out}");
}

#[test]
fn results_in_a_repository_that_was_moved_are_pruned_from_within_it() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    let write = |tree: &Path| fs::write(tree.join("new"), "x\n").unwrap();
    let merged = repo.keep_at(&ran, 0, 1_500_000_000, write);
    repo.git(["merge", "-q", &merged]);
    let moved = repo.rig.path().join("moved");
    fs::rename(repo.rig.work(), &moved).unwrap();
    fs::create_dir(repo.rig.work()).unwrap();
    let away = repo.rig.run(["prune", "--json"]);
    assert_eq!(
        (away.code, away.json()["results_dropped"].as_array().unwrap().len()),
        (0, 0),
        "{away}"
    );
    let within = repo.rig.call(["prune", "--json"]).cwd(&moved).run();
    assert_eq!(within.code, 0, "{within}");
    assert_eq!(
        within.json()["results_dropped"][0]["commit"],
        serde_json::json!(merged),
        "{within}"
    );
}

#[test]
fn a_slow_commit_of_results_is_announced() {
    let repo = repository();
    let path = std::env::var("PATH").unwrap();
    let (bin, gate, open) =
        (repo.rig.path().join("bin"), repo.rig.path().join("gate"), repo.rig.path().join("open"));
    fs::create_dir(&bin).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
    // A git that waits before it prints the status of a workspace.
    let script = format!(
        "#!/bin/sh\ncase \"$GIT_WORK_TREE $*\" in\n*/spaces/*' status '*) [ -e {} ] || read go <{};;\nesac\n\
         PATH={path} exec git \"$@\"\n",
        open.display(),
        gate.display()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let flags = ["--write", "--workspace", "worktree", "-t", "one=Do it"];
    let call = repo.rig.delegating(&flags).env("PATH", format!("{}:{path}", bin.display()));
    let mut running = call.start();
    running.wait_for("[one] keeping its work for 1");
    fs::write(&open, "").unwrap();
    fs::write(&gate, "go\n").unwrap();
    let out = running.finish();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(out.stderr.matches("keeping its work").count(), 1, "{out}");
    assert!(out.stderr.contains("kept 1 file"), "{out}");
}
