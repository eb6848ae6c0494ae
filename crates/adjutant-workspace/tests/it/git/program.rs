//! A git program that is missing, too old, too slow or too talkative.

use std::time::Instant;

use adjutant_workspace::GitError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;

/// A folder with a program called git that answers `version` and then does this.
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

/// Waits for a process that was killed, which the kernel does not end at once.
fn ends(pid: &str, within: Timespec) -> bool {
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&within)).unwrap() == 1
}

#[test]
fn a_missing_or_old_git_is_named() {
    assert!(matches!(Git::find(OsStr::new("/nonexistent")), Err(GitError::NoGit)));
    for old in ["2.40.9", "1.9", "2", "nonsense"] {
        let folder = pretend(old, "exit 0");
        let error = Git::find(folder.path().as_os_str()).unwrap_err();
        assert!(matches!(error, GitError::TooOld { .. }), "{old}: {error}");
        assert!(error.to_string().contains("2.41"), "{error}");
    }
    for new in ["2.41.0", "2.47.3.windows.1", "3.0", "2.100"] {
        assert!(Git::find(pretend(new, "exit 0").path().as_os_str()).is_ok(), "{new}");
    }
}

#[test]
fn a_git_that_never_ends_is_ended_with_what_it_started() {
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
fn a_git_that_fails_is_quoted_in_one_short_line() {
    let user = User::new();
    let folder =
        pretend("2.47", "echo 'fatal: \u{1b}[31mred\u{1b}[0m' >&2; echo 'second' >&2; exit 77");
    let error = open_with(&folder, &user, Duration::from_secs(20)).unwrap_err().to_string();
    assert!(error.contains("status 77") && error.contains("second"), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
}
