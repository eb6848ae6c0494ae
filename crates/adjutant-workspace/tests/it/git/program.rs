//! A git program that is missing, too old, too slow, or prints too much.

use std::time::Instant;

use adjutant_workspace::GitError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;

/// A directory with a program called git that answers `version` and then does this.
fn pretend(version: &str, then: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("git");
    let text = format!(
        "#!/bin/sh\nfor word; do\n  if [ \"$word\" = version ]; then echo 'git version {version}'; exit; fi\ndone\n{then}\n"
    );
    fs::write(&program, text).unwrap();
    make_executable(&program);
    folder
}

fn open_with(folder: &TempDir, user: &User, within: Duration) -> Result<Repository, GitError> {
    let mut search = folder.path().as_os_str().to_owned();
    search.push(":/usr/bin:/bin");
    let git = Git::find(&search)?.with_timeout(within);
    Repository::open(&git, &user.tree, &user.state())
}

/// Waits for the end of a killed process.
fn ends(pid: &str, within: Timespec) -> bool {
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&within)).unwrap() == 1
}

#[test]
fn a_missing_or_old_git_is_reported() {
    assert!(matches!(Git::find(OsStr::new("/nonexistent")), Err(GitError::NoGit)));
    for old in ["2.38.9", "1.9", "2", "nonsense"] {
        let folder = pretend(old, "exit 0");
        let error = Git::find(folder.path().as_os_str()).unwrap_err();
        assert!(matches!(error, GitError::TooOld { .. }), "{old}: {error}");
        assert!(error.to_string().contains("2.39"), "{error}");
    }
    for new in ["2.39.0", "2.47.3.windows.1", "3.0", "2.100"] {
        assert!(Git::find(pretend(new, "exit 0").path().as_os_str()).is_ok(), "{new}");
    }
}

#[test]
fn a_git_that_never_ends_is_killed_with_its_children() {
    let user = User::new();
    let pid = user.outer.path().join("pid");
    let folder = pretend("2.47", &format!("sleep 1000 & echo $! > '{}'; wait", pid.display()));
    let begun = Instant::now();
    let error = open_with(&folder, &user, Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(100));
    let pid = fs::read_to_string(pid).unwrap();
    assert!(ends(&pid, Timespec { tv_sec: 60, tv_nsec: 0 }), "{pid} is still there");
}

#[test]
fn the_error_of_a_failed_git_is_one_short_line() {
    let user = User::new();
    let folder =
        pretend("2.47", "echo 'fatal: \u{1b}[31mred\u{1b}[0m' >&2; echo 'second' >&2; exit 77");
    let error = open_with(&folder, &user, Duration::from_secs(20)).unwrap_err().to_string();
    assert!(error.contains("status 77") && error.contains("second"), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
}

/// The git of this machine.
fn real() -> PathBuf {
    let search = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&search).map(|folder| folder.join("git")).find(|it| it.is_file()).unwrap()
}

/// A git that runs `then` with the real status output in `$said`.
fn with_status(user: &User, then: &str) -> TempDir {
    let said = user.outer.path().join("said");
    let (real, said) = (real().display().to_string(), said.display().to_string());
    let status = format!("said='{said}'; '{real}' \"$@\" > \"$said\"; {then}; exit");
    pretend(
        "2.47",
        &format!(
            "for word; do if [ \"$word\" = status ]; then {status}; fi; done\nexec '{real}' \"$@\""
        ),
    )
}

#[test]
fn a_status_that_git_prints_in_pieces_is_captured_whole() {
    let user = User::new();
    for number in 0..5 {
        user.write(format!("untracked-{number}"), &number.to_string());
    }
    user.write("README", "changed\n");
    let whole = user.open().capture(now()).unwrap();
    assert_eq!(whole.changes.len(), 6);
    let said = user.outer.path().join("said");
    // Split in the middle of a path, and after a whole record.
    let record = "? untracked-0".len() + 1;
    for cut in [record / 2, record, 3 * record] {
        // Not for synchronisation: the result must not depend on the timing.
        let then = format!(
            "tail -c {cut} \"$said\" > \"$said.end\"; head -c -{cut} \"$said\"; sleep 0.1; cat \"$said.end\""
        );
        let folder = with_status(&user, &then);
        let repository = open_with(&folder, &user, Duration::from_secs(60)).unwrap();
        let pieces = repository.capture(now()).unwrap();
        assert!(fs::read(&said).unwrap().len() > 5 * record);
        assert_eq!((pieces.tree, pieces.changes), (whole.tree.clone(), whole.changes.clone()));
    }
}

#[test]
fn the_output_of_a_failed_git_is_not_stored() {
    let user = User::new();
    user.write("README", "changed\n");
    let folder = with_status(&user, "cat \"$said\"; exit 3");
    let repository = open_with(&folder, &user, Duration::from_secs(60)).unwrap();
    let before = on_disk(&user.tree.join(".git/objects"));
    let error = repository.capture(now()).unwrap_err();
    assert!(error.to_string().contains("status 3"), "{error}");
    assert_eq!(on_disk(&user.tree.join(".git/objects")), before);
}
