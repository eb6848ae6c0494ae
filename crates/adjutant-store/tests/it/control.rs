//! Reaching the process that writes a run: its control socket and its pidfd.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use adjutant_store::{ControlSocket, KillError, StateDir};
use tempfile::TempDir;

use crate::fixture::run_id;

#[test]
fn a_socket_is_private_replaces_a_stale_one_and_is_removed_with_the_lock() {
    let dir = TempDir::new().unwrap();
    // Longer than the maximum of a socket address.
    let home = StateDir::open(&dir.path().join("deep/".repeat(40))).unwrap();
    let run = home.create_run(run_id(0)).unwrap();
    assert_eq!(run.connect_control().unwrap_err().kind(), ErrorKind::NotFound);
    let lock = run.lock().unwrap();
    drop(lock.control_socket().bind().unwrap());
    assert_eq!(run.connect_control().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let listener = lock.control_socket().bind().unwrap();
    let mode = fs::metadata(run.control_socket_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut ours = run.connect_control().unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    ours.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    theirs.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    drop(lock);
    assert!(!run.control_socket_path().exists());
}

#[test]
fn connecting_to_a_full_queue_fails_without_blocking() {
    let dir = TempDir::new().unwrap();
    let run = StateDir::open(dir.path()).unwrap().create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let _listener = lock.control_socket().bind().unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        match run.connect_control() {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1_000, "no end of room");
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
}

#[test]
fn only_the_current_user_and_root_may_send_requests() {
    let us = rustix::process::geteuid().as_raw();
    assert!(ControlSocket::allows_user(us) && ControlSocket::allows_user(0));
    assert!(!ControlSocket::allows_user(us + 1));
}

#[test]
fn the_writer_is_found_while_it_holds_the_run_and_cannot_kill_itself() {
    let dir = TempDir::new().unwrap();
    let run = StateDir::open(dir.path()).unwrap().create_run(run_id(0)).unwrap();
    assert!(run.writer().unwrap().is_none());
    let lock = run.lock().unwrap();
    let writer = run.writer().unwrap().unwrap();
    assert_eq!(writer.pid(), std::process::id());
    assert!(matches!(writer.kill(), Err(KillError::Ours)));
    assert!(!writer.wait(Duration::ZERO));
    drop(lock);
    assert!(run.writer().unwrap().is_none(), "given back, though the process lives");
}

/// A pid that now belongs to another process, or never belonged to the writer.
#[test]
fn a_reused_pid_is_not_the_writer() {
    let dir = TempDir::new().unwrap();
    let run = StateDir::open(dir.path()).unwrap().create_run(run_id(0)).unwrap();
    drop(run.lock().unwrap());
    let path = run.path().join("lock");
    let held =
        fs::read_to_string(&path).unwrap().replace("\"released\":true", "\"released\":false");
    for (field, other) in [("start", 1.into()), ("boot", "another boot".into())] {
        let mut holder: serde_json::Value = serde_json::from_str(&held).unwrap();
        holder[field] = other;
        fs::write(&path, holder.to_string()).unwrap();
        assert!(run.writer().unwrap().is_none(), "{field}");
    }
}
