//! `diff` and `merge` on real repositories: what is shown, what is changed, and what never is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::repository::{Repo, fates, lines};
use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

#[test]
fn two_results_for_one_file_are_merged_in_turn_and_undone() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    repo.keep_lines(&ran, 1, &[(18, "by two")]);
    repo.rig.write("mine", "untracked\n");
    let before = repo.state();

    let tried = repo.json(&["merge", "--dry-run"], 0);
    assert_eq!(fates(&tried), ["would_merge", "would_merge"]);
    assert_eq!(tried["shared"][0]["path"], "long");
    assert_eq!(tried["shared"][0]["by"], json!(ran.sessions));
    assert_eq!(repo.state(), before, "only tried");

    let out = repo.rig.run(["merge"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.read("long"), lines(&[(2, "by one"), (18, "by two")]));
    assert!(out.stderr.contains("long was changed by sess_"), "{out}");
    assert!(out.stderr.contains(&format!("adjutant merge --undo {}", ran.run)), "{out}");
    assert_eq!(out.stdout.matches("merged  sess_").count(), 2, "{out}");
    assert_eq!(repo.git(["diff", "--cached"]), "", "the index is the user's");
    // A second merge has nothing to do, and a second undo neither.
    assert_eq!(fates(&repo.json(&["merge"], 0)), ["already", "already"]);

    let undone = repo.json(&["merge", "--undo", &ran.run], 0);
    assert_eq!(fates(&undone), ["taken_back", "taken_back"]);
    assert_eq!(repo.state(), before);
    let again = repo.rig.run(["merge", "--undo"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again}");
    assert!(again.stderr.contains("nothing of"), "{again}");
}

#[test]
fn a_result_that_was_merged_is_not_in_conflict_with_what_came_later() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    assert_eq!(fates(&repo.json(&["merge"], 0)), ["merged"]);
    repo.rig.write("long", lines(&[(2, "by one and by me")]));
    for arguments in [&["merge", "--dry-run"][..], &["merge"]] {
        assert_eq!(fates(&repo.json(arguments, 0)), ["already"], "{arguments:?}");
        let out = repo.rig.run(arguments);
        assert!(out.stdout.starts_with("merged before  sess_"), "{out}");
    }
    assert_eq!(repo.read("long"), lines(&[(2, "by one and by me")]));
    let out = repo.rig.run(["merge", "--resolve"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("was merged before"), "{out}");
    // Once undone it is a result like any other.
    repo.rig.write("long", lines(&[(2, "by one")]));
    assert_eq!(fates(&repo.json(&["merge", "--undo"], 0)), ["taken_back"]);
    repo.rig.write("long", lines(&[(2, "mine")]));
    assert_eq!(fates(&repo.json(&["merge", "--dry-run"], 4)), ["refused"]);
}

#[test]
fn merge_and_its_dry_run_refuse_to_overwrite_edits_that_git_status_hides() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let repo = Repo::new();
        let ran = repo.ran(&["one"]);
        repo.keep_lines(&ran, 0, &[(2, "by one")]);
        repo.git(["update-index", flag, "long"]);
        repo.rig.write("long", "mine\n");
        for arguments in [&["merge", "--dry-run"][..], &["merge"]] {
            let judged = repo.json(arguments, 4);
            assert_eq!(fates(&judged), ["refused"], "{flag}");
            assert_eq!(judged["results"][0]["dirty"], json!(["long"]), "{flag}");
        }
        assert_eq!(repo.read("long"), "mine\n");
    }
}

#[test]
fn a_merge_is_not_undone_over_later_edits() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    repo.rig.write("long", "mine\n");
    let undone = repo.json(&["merge", "--undo"], 4);
    assert_eq!(fates(&undone), ["refused"]);
    assert_eq!(undone["results"][0]["dirty"], json!(["long"]));
    assert_eq!(repo.read("long"), "mine\n");
}

#[test]
fn a_result_that_was_merged_twice_is_undone_newest_merge_first() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    for _ in 0..2 {
        repo.rig.write("long", lines(&[]));
        assert_eq!(fates(&repo.json(&["merge"], 0)), ["merged"]);
    }
    assert_eq!(fates(&repo.json(&["merge", "--undo"], 0)), ["taken_back"]);
    assert_eq!(repo.read("long"), lines(&[]));
}

#[test]
fn an_undo_that_fails_midway_does_not_report_that_nothing_changed() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    let merges = fs::read_dir(repo.rig.state().join("merges")).unwrap();
    let tree = merges.flatten().find(|entry| entry.path().join("applies").is_dir()).unwrap().path();
    let journals = fs::read_dir(tree.join("applies")).unwrap().flatten();
    let journal = journals.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    let image = journal.join("before/0");
    fs::rename(&image, journal.join("away")).unwrap();
    for arguments in [["merge", "--undo"], ["merge", "--as=apply"]] {
        let out = repo.rig.run(arguments);
        assert_ne!(out.code, 0, "{out}");
        let said = format!("{}{}", out.stdout, out.stderr);
        assert!(said.contains("some of the files are replaced"), "{out}");
        assert!(said.contains(journal.to_str().unwrap()), "{out}");
        assert!(!said.contains("nothing was changed"), "{out}");
    }
    fs::rename(journal.join("away"), &image).unwrap();
    assert_eq!(repo.rig.run(["merge", "--undo"]).code, 0);
    assert_eq!(repo.read("long"), lines(&[]));
}

/// The change of the target, the change of the result, and git's name for the conflict.
type Clash = (&'static str, fn(&Path), fn(&Path));

const CLASHES: [Clash; 6] = [
    (
        "both_modified",
        |tree| fs::write(tree.join("long"), lines(&[(2, "mine")])).unwrap(),
        |tree| fs::write(tree.join("long"), lines(&[(2, "theirs")])).unwrap(),
    ),
    (
        "deleted_by_target",
        |tree| fs::remove_file(tree.join("long")).unwrap(),
        |tree| fs::write(tree.join("long"), lines(&[(2, "theirs")])).unwrap(),
    ),
    (
        "deleted_by_result",
        |tree| fs::write(tree.join("long"), lines(&[(2, "mine")])).unwrap(),
        |tree| fs::remove_file(tree.join("long")).unwrap(),
    ),
    (
        "mode",
        |tree| fs::write(tree.join("long"), lines(&[(2, "mine")])).unwrap(),
        |tree| {
            fs::remove_file(tree.join("long")).unwrap();
            symlink("src/short", tree.join("long")).unwrap();
        },
    ),
    (
        "rename",
        |tree| fs::rename(tree.join("long"), tree.join("mine")).unwrap(),
        |tree| fs::rename(tree.join("long"), tree.join("theirs")).unwrap(),
    ),
    (
        "both_added",
        |tree| fs::write(tree.join("new"), "mine\n").unwrap(),
        |tree| fs::write(tree.join("new"), "theirs\n").unwrap(),
    ),
];

#[test]
fn a_conflict_with_an_unrelated_history_is_solved_by_the_command_that_is_printed() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(3, "by one")]);
    repo.git(["checkout", "-q", "--orphan", "other"]);
    repo.rig.write("long", lines(&[(3, "mine")]));
    repo.commit("a beginning of its own");

    let out = repo.rig.run(["merge"]);
    assert_eq!(out.code, 1, "{out}");
    let one = &ran.sessions[0];
    assert!(out.stderr.contains("\n  adjutant merge --resolve one  "), "{out}");
    let tree = resolve(&repo, one);
    assert!(fs::read_to_string(tree.join("long")).unwrap().contains("<<<<<<< yours\n"));
    fs::write(tree.join("long"), "solved\n").unwrap();
    assert_eq!(repo.rig.run(["merge", "--resolve", one, "--continue"]).code, 0);
    assert_eq!(repo.read("long"), "solved\n");
}

/// Begins to resolve the conflicts of a result and returns the worktree.
fn resolve(repo: &Repo, session: &str) -> PathBuf {
    let out = repo.rig.run(["merge", "--resolve", session]);
    assert_eq!(out.code, 0, "{out}");
    out.stdout.lines().next().unwrap().rsplit(": ").next().unwrap().into()
}

#[test]
fn every_kind_of_conflict_is_resolved_in_a_worktree_or_given_up() {
    for (kind, target, result) in CLASHES {
        let repo = Repo::new();
        let ran = repo.ran(&["one"]);
        repo.keep(&ran, 0, result);
        target(&repo.rig.work());
        // Uncommitted files are a side of the merge too.
        repo.rig.write("draft", "not committed\n");
        let (one, before) = (&ran.sessions[0], repo.state());
        let (go_on, abort) =
            (["merge", "--resolve", one, "--continue"], ["merge", "--resolve", one, "--abort"]);
        assert_eq!(repo.rig.run(abort).code, 2, "{kind}");
        let tree = resolve(&repo, one);
        assert_eq!(resolve(&repo, one), tree, "{kind}");
        // The printed commands are typed in the user's own checkout, and change only the worktree.
        let printed = repo.rig.run(["merge", "--resolve", one]).stdout;
        for line in printed.lines().map(str::trim) {
            let side = line.strip_prefix("yours: ").or_else(|| line.strip_prefix("result: "));
            let Some(command) = side else { continue };
            let mut shell = std::process::Command::new("sh");
            let status = shell.args(["-c", command]).current_dir(repo.rig.work()).status();
            assert!(status.unwrap().success(), "{kind}: {command}");
        }
        assert_eq!(repo.state(), before, "{kind}");
        assert_eq!(fs::read_to_string(tree.join("draft")).unwrap(), "not committed\n", "{kind}");
        assert_eq!(repo.rig.run(abort).code, 0, "{kind}");
        assert!(!tree.exists(), "{kind}");
        // A worktree that was deleted by hand is made again.
        fs::remove_dir_all(resolve(&repo, one)).unwrap();
        assert_eq!(repo.rig.run(go_on).code, 1, "{kind}");
        let tree = resolve(&repo, one);
        assert_eq!(repo.state(), before, "{kind}");

        if ["both_modified", "both_added", "mode"].contains(&kind) {
            let out = repo.rig.run(go_on);
            assert_eq!(out.code, 1, "{kind}: {out}");
            assert!(out.stderr.contains("conflicts are not resolved in 1 file"), "{kind}: {out}");
            assert_eq!(repo.state(), before, "{kind}");
        }
        for name in ["long", "new", "long~yours", "long~result", "mine", "theirs"] {
            let _ = fs::remove_file(tree.join(name));
        }
        fs::write(tree.join("solved"), "by the person\n").unwrap();
        let out = repo.rig.run(go_on);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(repo.read("solved"), "by the person\n", "{kind}");
        assert!(!repo.rig.work().join("long").exists(), "{kind}");
        assert!(!tree.exists(), "{kind}");
        assert_eq!(repo.git(["worktree", "list"]).lines().count(), 1, "{kind}");
    }
}

#[test]
fn a_conflict_skips_that_result_names_its_files_and_merges_the_others() {
    for (kind, target, result) in CLASHES {
        let repo = Repo::new();
        let ran = repo.ran(&["one", "two"]);
        repo.keep(&ran, 0, result);
        repo.keep(&ran, 1, |tree| fs::write(tree.join("src/short"), "by two\n").unwrap());
        target(&repo.rig.work());
        repo.commit("mine");
        let before = repo.state();

        let one = &ran.sessions[0];
        let alone = repo.json(&["merge", one], 1);
        assert_eq!(fates(&alone), ["conflict"], "{kind}");
        let conflicts = alone["results"][0]["conflicts"].as_array().unwrap();
        assert!(conflicts.iter().any(|it| it["kind"] == kind), "{kind}: {conflicts:?}");
        assert_eq!(repo.state(), before, "{kind}");

        let out = repo.rig.run(["merge"]);
        assert_eq!(out.code, 3, "{kind}: {out}");
        let words = format!("conflict  {one} [one]: ");
        assert!(out.stdout.contains(&words), "{kind}: {out}");
        assert!(out.stdout.contains("(target "), "{kind}: {out}");
        let way = "\n  adjutant merge --resolve one  ";
        assert!(out.stderr.contains(way), "{kind}: {out}");
        assert_eq!(repo.read("src/short"), "by two\n", "{kind}");
        assert_eq!(repo.git(["status", "--porcelain"]), " M src/short", "{kind}");
    }
}

#[test]
fn merge_combines_content_changes_with_renames_and_mode_changes() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep(&ran, 0, |tree| {
        fs::write(tree.join("long"), lines(&[(2, "by one")])).unwrap();
        fs::set_permissions(tree.join("src/short"), fs::Permissions::from_mode(0o755)).unwrap();
    });
    fs::rename(repo.rig.work().join("long"), repo.rig.work().join("moved")).unwrap();
    repo.rig.write("src/short", "mine\n");
    repo.commit("mine");
    assert_eq!(fates(&repo.json(&["merge"], 0)), ["merged"]);
    assert_eq!(repo.read("moved"), lines(&[(2, "by one")]));
    assert_eq!(repo.read("src/short"), "mine\n");
    let mode = fs::metadata(repo.rig.work().join("src/short")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
}

#[test]
fn merge_refuses_to_overwrite_uncommitted_changes_that_the_agent_did_not_start_from() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    repo.rig.write("long", lines(&[(18, "mine")]));
    let before = repo.state();
    for args in [&["merge"][..], &["merge", "--dry-run"]] {
        let json = repo.json(args, 4);
        assert_eq!(fates(&json), ["refused"]);
        assert_eq!(json["results"][0]["dirty"], json!(["long"]));
        assert_eq!(repo.state(), before);
    }
    let out = repo.rig.run(["merge"]);
    assert_eq!(out.code, 4, "{out}");
    assert!(out.stdout.contains("refused  sess_") && out.stdout.contains("\n  long\n"), "{out}");
    assert!(out.stderr.contains("Commit or stash those files"), "{out}");
    repo.commit("mine");
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    assert_eq!(repo.read("long"), lines(&[(2, "by one"), (18, "mine")]));
}

#[test]
fn merging_to_a_branch_leaves_the_files_unchanged() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    let commit = repo.keep_lines(&ran, 0, &[(2, "by one")]);
    repo.rig.write("long", "dirty, in the same file\n");
    let json = repo.json(&["merge", "--as", "branch"], 0);
    let name = json["results"][0]["branch"].as_str().unwrap();
    assert_eq!(name, format!("adjutant/{}-{}", ran.run, ran.sessions[0]));
    assert_eq!(json["results"][0]["holds_uncommitted"], false);
    assert_eq!(repo.git(["rev-parse", name]), commit);
    assert_eq!(repo.read("long"), "dirty, in the same file\n");
    // A repeated merge finds the same branch; a branch that has moved is left unchanged.
    assert_eq!(fates(&repo.json(&["merge", "--as", "branch"], 0)), ["branched"]);
    repo.git(["branch", "-f", name, "HEAD"]);
    let moved = repo.json(&["merge", "--as", "branch"], 1);
    assert_eq!(fates(&moved), ["failed"]);
    assert_eq!(repo.git(["rev-parse", name]), repo.git(["rev-parse", "HEAD"]));
}

#[test]
fn a_diff_saved_to_a_file_can_be_applied() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    let odd = "src/ü \u{1b}[31m\tb\u{202e}";
    repo.keep(&ran, 0, |tree| {
        fs::write(tree.join(odd), b"\x1b[2J\xff\r\n").unwrap();
        fs::write(tree.join("bin"), b"\0\x01\x02").unwrap();
        fs::write(tree.join("long"), lines(&[(2, "by one")])).unwrap();
    });
    let to = repo.rig.path().join("work.patch");
    let running = repo.rig.call(["diff", &ran.sessions[0]]).stdout(fs::File::create(&to).unwrap());
    assert_eq!(running.finish().code, 0);
    let patch = fs::read(&to).unwrap();
    assert!(patch.windows(7).any(|it| it == b"+\x1b[2J\xff\r"), "the bytes as they are");
    repo.git(["apply", to.to_str().unwrap()]);
    assert_eq!(fs::read(repo.rig.work().join(odd)).unwrap(), b"\x1b[2J\xff\r\n");
    assert_eq!(fs::read(repo.rig.work().join("bin")).unwrap(), b"\0\x01\x02");
    assert_eq!(repo.read("long"), lines(&[(2, "by one")]));

    let stat = repo.rig.run(["diff", "--stat"]);
    assert!(stat.stdout.contains("src/ü ⟨U+001B⟩[31m b⟨U+202E⟩\n"), "{stat}");
    assert!(stat.stdout.contains("A    not text  bin\n"), "{stat}");
    assert!(stat.stdout.contains("M    +1    -1  long\n"), "{stat}");
    assert!(stat.stderr.contains(&format!("{} [one]: 3 files", ran.sessions[0])), "{stat}");
    let json = repo.json(&["diff"], 0);
    assert_eq!(json["results"][0]["files"][2]["path"], odd);
}

#[test]
fn on_a_terminal_a_diff_is_coloured_and_escaped() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep(&ran, 0, |tree| {
        fs::write(tree.join("ü\u{1b}[2J"), "\u{1b}[2J\u{7}\n").unwrap();
        fs::write(tree.join("bin"), b"\0\x01").unwrap();
    });
    let shown = |env: &[(&str, &str)]| {
        let mut terminal = Terminal::start(&repo.rig, 100, env, &["diff"]);
        assert_eq!(terminal.finish(), 0);
        terminal.raw.clone()
    };
    let coloured = shown(&[]);
    assert!(coloured.contains("\u{1b}[32m+⟨U+001B⟩[2J⟨U+0007⟩"), "{coloured:?}");
    assert!(coloured.contains("Binary files"), "{coloured:?}");
    let plain = shown(&[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}') && plain.contains("+⟨U+001B⟩[2J"), "{plain:?}");
}

#[test]
fn diff_resolves_paths_relative_to_the_current_directory() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep(&ran, 0, |tree| {
        fs::write(tree.join("src/short"), "by one\n").unwrap();
        fs::write(tree.join("long"), lines(&[(2, "by one")])).unwrap();
    });
    let sub = repo.rig.work().join("src");
    for (args, cwd) in [
        (&["diff", "latest", "src"][..], repo.rig.work()),
        (&["diff", "src/short"], repo.rig.work()),
        (&["diff", "short"], sub.clone()),
        (&["diff", &ran.run, "."], sub.clone()),
    ] {
        let out = repo.rig.call(args).cwd(&cwd).run();
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stdout.contains("src/short") && !out.stdout.contains("long"), "{args:?} {out}");
    }
    let all = repo.rig.call(["diff", &ran.run, ".."]).cwd(&sub).run();
    assert!(all.stdout.contains("long"), "{all}");
    let outside = repo.rig.run(["diff", &ran.run, "../other"]);
    assert_eq!(outside.code, 2, "{outside}");
}

#[test]
fn a_folder_without_a_repository_says_how_to_create_one() {
    let rig = Rig::new();
    for args in [["diff"], ["merge"]] {
        let out = rig.run(args);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("is not in a git repository; run `git init`"), "{out}");
    }
    assert_eq!(rig.run(["diff", "run_17"]).code, 2);
}
