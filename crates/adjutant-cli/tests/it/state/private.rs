//! The state directory is private: its modes, and links or pipes in place of lock files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::merge::open::repository;
use crate::support::rig::{BINARY, Output, Rig};
use crate::support::running::Running;

/// Lists the entries below a directory that are not private, and all entries. Files in a checkout are skipped:
/// they have the modes of git.
fn open_below(folder: &Path, found: &mut Vec<String>, looked_at: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let metadata = path.symlink_metadata().unwrap();
        let is_dir = metadata.is_dir();
        let is_layer = |kind: &str| {
            name.strip_prefix(kind)
                .is_some_and(|number| number.len() < 4 && number.parse::<u8>().is_ok())
        };
        let is_checkout = ["tree", "files"].contains(&name.as_str())
            || is_layer("upper-")
            || is_layer("work-")
            || (name.starts_with("sess_") && path.join(".git").is_file());
        if is_dir && is_checkout {
            continue;
        }
        looked_at.push(path.clone());
        let mode = metadata.permissions().mode() & 0o777;
        // Git makes its own files in a private git directory, which other users cannot look into.
        if metadata.is_file() && mode & 0o077 != 0 || is_dir && mode != 0o700 {
            found.push(format!("{mode:o} {}", path.display()));
        }
        if is_dir {
            open_below(&path, found, looked_at);
        }
    }
}

#[test]
fn everything_in_the_state_directory_is_private_whatever_the_umask() {
    for kind in ["overlay", "worktree"] {
        let repo = repository();
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("umask 0; exec {line}")]).current_dir(repo.rig.work());
            command.env_clear().envs(repo.rig.environment());
            command.env("PATH", std::env::var_os("PATH").unwrap()).env("BINARY", BINARY);
            command
        };
        // The first command in a new state directory looks at the machine.
        assert!(shell("\"$BINARY\" doctor").output().is_ok());
        let flags = format!("--write --yes --workspace {kind} --model {}", repo.rig.model());
        let line = format!("\"$BINARY\" delegate {flags} -t slow=Do -t quick=Do");
        let mut command = shell(&line);
        command.stdout(Stdio::piped());
        let mut running = Running::start(&repo.rig, command, None);
        running.wait_for("[slow] Write slow").wait_for("kept 1 file");
        let (mut found, mut looked_at) = (Vec::new(), Vec::new());
        open_below(&repo.rig.state(), &mut found, &mut looked_at);
        running.signal(Signal::KILL);
        drop(running);
        assert!(shell("\"$BINARY\" merge").output().is_ok());
        open_below(&repo.rig.state(), &mut found, &mut looked_at);
        assert_eq!(found, Vec::<String>::new(), "{kind}");
        assert_eq!(repo.read("quick"), "quick\n", "{kind}");
        // The rig's tree is called `work`, and so is the folder of its workspaces.
        let private = |path: &&PathBuf| path.to_string_lossy().contains("/spaces/work-");
        let own: &[&str] = match kind {
            "overlay" => &["record"],
            _ => &[
                "git/config",
                "git/HEAD",
                "git/objects/info/alternates",
                "git/info/exclude",
                "git/refs",
            ],
        };
        for name in own {
            let is_found = looked_at.iter().filter(private).any(|path| path.ends_with(name));
            assert!(is_found, "{kind}: {name} was not looked at: {looked_at:#?}");
        }
    }
}

#[test]
fn a_state_directory_that_others_can_read_is_made_private_with_one_line() {
    let rig = Rig::new();
    fs::create_dir(rig.state()).unwrap();
    fs::set_permissions(rig.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let first = rig.run(["status"]);
    insta::assert_snapshot!(
        rig.redacted(first.stderr.lines().next().unwrap()),
        @"adjutant: other users could read the state directory $PLACE/state (mode 0755); it is 0700 now"
    );
    assert_eq!(fs::metadata(rig.state()).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!rig.run(["status"]).stderr.contains("could read"));
}

/// Runs a command that fails the test where it hangs.
fn bounded(rig: &Rig, args: &[&str]) -> Output {
    rig.call(args).env("PATH", std::env::var_os("PATH").unwrap()).start().finish()
}

#[test]
fn a_link_or_pipe_in_place_of_a_lock_is_refused_without_blocking() {
    let repo = repository();
    let path = std::env::var_os("PATH").unwrap();
    let out = repo.rig.delegating(&["--write", "-t", "quick=Do"]).env("PATH", path).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(bounded(&repo.rig, &["merge"]).code, 0);
    let mut locks = vec![repo.rig.state().join("pruned")];
    let mut open = vec![repo.rig.state()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else if entry.file_name() == "lock" {
                locks.push(entry.path());
            }
        }
    }
    assert!(locks.len() > 4, "{locks:?}");
    let victim = repo.rig.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    for plant in ["link", "pipe"] {
        for lock in &locks {
            let _ = fs::remove_file(lock);
            match plant {
                "link" => symlink(&victim, lock).unwrap(),
                _ => mknodat(CWD, lock, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            }
        }
        for args in [
            &["prune"][..],
            &["prune", "--days", "0"],
            &["merge", "--undo"],
            &["merge"],
            &["status"],
            &["delegate", "--yes", "--model", "script:../script.toml", "-t", "quick=Do"],
        ] {
            let out = bounded(&repo.rig, args);
            assert!(!out.to_string().contains("panicked"), "{plant} {args:?} {out}");
        }
        let write = ["--yes", "--write", "--model", "script:../script.toml", "-t", "quick=Do"];
        let out = bounded(&repo.rig, &[&["delegate"][..], &write].concat());
        assert_ne!(out.code, 0, "{plant} {out}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{plant}");
    }
}
