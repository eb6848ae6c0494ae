//! Kills a run with `--merge` after its end: `resume` merges the results completely and once, at whatever step the
//! merge was killed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::cast::{Inject, under};
use super::sweep::has_strace;
use super::tell;
use crate::support::repository::Repo;
use crate::support::rig::{BINARY, Output, Rig};

/// The system calls that make files durable and put them in their places; each one is hit.
const CALLS: [&str; 3] = ["fdatasync", "fsync", "/^rename"];

/// Calls that git makes many of; each one is hit when `ADJUTANT_KILLS` is set, some of them otherwise.
const FREQUENT_CALLS: [&str; 3] = ["write", "/^unlink", "/^mkdir"];

/// Which of the frequent calls are hit.
const SOME: [u64; 2] = [1, 8];

/// The signal that a kill sends, as a shell reports it.
const KILLED: i32 = 128 + 9;

/// Two agents: one changes a line of a file, the other makes a file in a new folder.
const SCRIPT: &str = r#"
[[turn]]
label = "one"
[[turn.call]]
tool = "Edit"
args = { file_path = "list", old_string = "END", new_string = "added\nEND" }
[[turn]]
label = "one"
text = "the list is longer"

[[turn]]
label = "two"
[[turn.call]]
tool = "Write"
args = { file_path = "new/file", content = "new\n" }
[[turn]]
label = "two"
text = "the file is there"
"#;

/// A repository in which a run has ended and its process was killed before it merged anything.
struct EndedRun {
    repo: Repo,
    run: String,
    /// A copy of everything in the rig as the kill left it.
    saved: TempDir,
}

impl EndedRun {
    fn new(merge: &str) -> Self {
        let repo = Repo { rig: Rig::with_script(SCRIPT) };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("list", "END\n");
        repo.commit("first");
        repo.rig.write("mine", "untracked\n");
        let before = repo.state();

        let path = std::env::var("PATH").unwrap();
        let bin = repo.rig.path().join("bin");
        let journals = repo.rig.state().join("runs/*/journal.jsonl");
        fs::create_dir(&bin).unwrap();
        // The first git command after the end of the run kills the process that started it.
        let script = format!(
            "#!/bin/sh\nif grep -qs '\"run_ended\"' {}; then kill -9 $PPID; exit 1; fi\n\
             PATH={path} exec git \"$@\"\n",
            journals.display()
        );
        fs::write(bin.join("git"), script).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        let flags = ["--write", "--merge", merge, "-t", "one=Do it", "-t", "two=Do it"];
        let call = repo.rig.delegating(&flags).env("PATH", format!("{}:{path}", bin.display()));
        let out = call.run();
        assert_eq!(out.code, KILLED, "{out}");
        assert_eq!(repo.state(), before, "something was merged before the kill");

        let run = repo.rig.only_run();
        let saved = TempDir::new().unwrap();
        copy(repo.rig.path(), saved.path());
        Self { repo, run, saved }
    }

    /// Puts everything back to what the first kill left.
    fn restore(&self) {
        for entry in fs::read_dir(self.repo.rig.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        copy(self.saved.path(), self.repo.rig.path());
    }

    /// Resumes the run after a kill.
    fn resume_after_kill(&self) -> Output {
        let out = self.resume();
        // A git command that was killed itself leaves its lock on a branch, which only the user may remove.
        let locks = self.repo.rig.work().join(".git/refs/heads/adjutant");
        let mut has_lock = false;
        for entry in fs::read_dir(locks).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "lock") {
                fs::remove_file(path).unwrap();
                has_lock = true;
            }
        }
        if has_lock {
            assert!(out.stderr.contains("remove the file manually"), "{out}");
            return self.resume();
        }
        out
    }

    fn resume(&self) -> Output {
        let call = self.repo.rig.call(["resume", &self.run]);
        call.env("PATH", std::env::var_os("PATH").unwrap()).run()
    }

    /// Resumes the run under strace; says whether a process was killed, this one or a git command of it.
    fn resume_killed_at(&self, inject: Inject) -> bool {
        let mut command = under(Some(inject), BINARY.as_ref());
        command.args(["resume", &self.run]).env_clear().envs(self.repo.rig.environment());
        command.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(self.repo.rig.work());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().unwrap();
        !status.success()
    }
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(to);
    assert!(command.status().unwrap().success(), "{} was not copied", from.display());
}

#[test]
fn a_merge_that_a_kill_prevented_is_done_once_by_resume() {
    for merge in ["apply", "branch"] {
        let ended = EndedRun::new(merge);
        let out = ended.resume();
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stdout.contains("the list is longer"), "{out}");
        let merged = ended.repo.state();
        if merge == "apply" {
            assert_eq!(ended.repo.read("list"), "added\nEND\n", "{out}");
            assert_eq!(ended.repo.read("new/file"), "new\n", "{out}");
        } else {
            assert_eq!(merged.matches("refs/heads/adjutant/").count(), 2, "{merged}");
        }

        let again = ended.resume();
        assert_eq!((again.code, ended.repo.state()), (0, merged), "{again}");
        assert_eq!(again.stdout, out.stdout);
    }
}

#[test]
fn resume_does_not_repeat_a_merge_that_the_user_undid() {
    let ended = EndedRun::new("apply");
    let before = ended.repo.state();
    assert_eq!(ended.resume().code, 0);
    let call = ended.repo.rig.call(["merge", "--undo", &ended.run]);
    let undone = call.env("PATH", std::env::var_os("PATH").unwrap()).run();
    assert_eq!((undone.code, ended.repo.state()), (0, before.clone()), "{undone}");
    let again = ended.resume();
    assert_eq!((again.code, ended.repo.state()), (0, before), "{again}");
    insta::assert_snapshot!(again.talk(), @r"
    merged before  sess_0000000000_aaaaaa [one]
    merged before  sess_0000000000_bbbbbb [two]
    [exit 0]
    ");
}

/// The process was killed between a merge and its entry in the journal of the run, and the files were restored since.
#[test]
fn resume_merges_nothing_when_the_records_of_merges_cannot_be_read() {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no record of a merge was unreadable");
        return;
    }
    let ended = EndedRun::new("apply");
    let before = ended.repo.state();
    let rig = &ended.repo.rig;
    let journal = rig.state().join("runs").join(&ended.run).join("journal.jsonl");
    let without_merge = fs::read(&journal).unwrap();
    assert_eq!(ended.resume().code, 0);
    let restore = || {
        fs::write(&journal, &without_merge).unwrap();
        ended.repo.git(["checkout", "-q", "list"]);
        let _ = fs::remove_dir_all(rig.work().join("new"));
        assert_eq!(ended.repo.state(), before);
    };
    let mut unread = 0;
    for nth in 1.. {
        restore();
        let mut command = Command::new("strace");
        let inject = format!("inject=flock:error=ENOLCK:when={nth}");
        let log = rig.path().join("strace");
        command.args(["-f", "-qq", "-o"]).arg(&log).args(["-e", "trace=flock", "-e", &inject]);
        command.args([BINARY, "resume", &ended.run]).env_clear().envs(rig.environment());
        command.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(rig.work());
        let out = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(ended.repo.state(), before, "flock {nth}: {said}");
        if said.contains("not merged: cannot read whether it was merged before") {
            assert_eq!(out.status.code(), Some(3), "flock {nth}: {said}");
            unread += 1;
        }
        if !fs::read_to_string(log).unwrap().contains("INJECTED") {
            assert!(out.status.success() && said.contains("merged before"), "{said}");
            break;
        }
    }
    assert_eq!(unread, 2, "one read of the records for each result");
}

fn survives_kills_while_it_merges(merge: &str) {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no kill was aimed at a merge");
        return;
    }
    let ended = EndedRun::new(merge);
    assert_eq!(ended.resume().code, 0);
    let expected = ended.repo.state();
    let every_call = std::env::var_os("ADJUTANT_KILLS").is_some();
    let frequent = FREQUENT_CALLS.map(|call| (call, every_call));
    for (call, every) in CALLS.map(|call| (call, true)).into_iter().chain(frequent) {
        let nths: Box<dyn Iterator<Item = u64>> =
            if every { Box::new(1..) } else { Box::new(SOME.into_iter()) };
        let mut kills = 0;
        for nth in nths {
            ended.restore();
            if !ended.resume_killed_at(Inject { call, nth }) {
                // There are fewer of these calls.
                break;
            }
            kills += 1;
            let out = ended.resume_after_kill();
            let state = ended.repo.state();
            assert_eq!((out.code, &state), (0, &expected), "{call} {nth}: {out}");
        }
        assert!(kills > 0, "{call} was never made");
        tell(&format!("--merge {merge}, {call}: {kills} kills"));
    }
}

#[test]
fn a_kill_at_any_write_sync_or_rename_of_a_merge_into_files_is_survived() {
    survives_kills_while_it_merges("apply");
}

#[test]
fn a_kill_at_any_write_sync_or_rename_of_a_merge_onto_branches_is_survived() {
    survives_kills_while_it_merges("branch");
}
