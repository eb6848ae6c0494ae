//! Starts a run in its own process.
//!
//! The process is not a descendant of the server (see `detach`), so that the run survives the end of the
//! server unless a person configured otherwise. It reads its id and the request from standard input, which is
//! a socket. Once it prints an event, the run has started, and the server stops reading: everything else is
//! in the journal. The socket closes when the process exits.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;

use super::detach;
use super::handover::LaunchHandover;
use super::requested_run::RequestedRun;
use crate::{ServerSetup, TOKEN_VARIABLE};

/// How long a process may take to start its run. A hundredth of this is typical.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of a failing process's standard error is kept.
const MAX_STDERR_BYTES: u64 = 64 << 10;

/// Why a launch was not confirmed: the process failed, or it did not start the run in time and may still do so (see
/// `may_still_start_until_exit`).
#[derive(Debug)]
pub(crate) struct LaunchFailure {
    /// The reason, as shown to the client.
    pub(crate) problem: String,
    /// Becomes true once the process has exited. Set if the process may still start the run.
    pub(crate) may_still_start_until_exit: Option<watch::Receiver<bool>>,
}

impl LaunchFailure {
    fn new(problem: String) -> Self {
        Self { problem, may_still_start_until_exit: None }
    }
}

/// Starts a run with the additional arguments `terms`. The returned receiver becomes true once the process
/// has exited.
pub(crate) async fn launch(
    setup: &ServerSetup,
    terms: Vec<OsString>,
    job: &RequestedRun,
    handover: &LaunchHandover,
) -> Result<watch::Receiver<bool>, LaunchFailure> {
    // The first event may be as long as the request. The run's directory appears earlier.
    let has_folder = || setup.archive.find(&handover.run.to_string()).is_ok();
    let started = start(setup, terms, job, handover);
    let (mut child, mut socket, input) =
        started.map_err(|error| LaunchFailure::new(cannot_start_message(error)))?;
    let mut stderr_bytes = Vec::new();
    let mut collecting = Box::pin(collect_stderr(child.stderr.take(), &mut stderr_bytes));
    let has_begun = hand_over(&mut child, &mut socket, &input, setup.ends_with_server);
    let mut has_begun = Box::pin(tokio::time::timeout(START_TIMEOUT, has_begun));
    let mut is_stderr_closed = false;
    let begun = tokio::select! {
        begun = &mut has_begun => begun,
        () = &mut collecting => {
            is_stderr_closed = true;
            (&mut has_begun).await
        }
    };
    drop(has_begun);
    if has_folder() && matches!(begun, Ok(true) | Err(_)) {
        // Close the pipe instead of leaving it unread: a full pipe would block the run.
        drop(collecting);
        reap(child);
        return Ok(watch_exit(socket));
    }
    if begun.is_ok() && !is_stderr_closed {
        let _ = tokio::time::timeout(START_TIMEOUT, &mut collecting).await;
    }
    drop(collecting);
    if !has_folder() {
        // This has no effect on a detached process, which is not a child of the server.
        let _ = child.start_kill();
    }
    reap(child);
    match begun {
        Ok(_) => Err(LaunchFailure::new(stderr_message(&stderr_bytes))),
        Err(_) => Err(LaunchFailure {
            problem: too_slow_message(setup.ends_with_server),
            may_still_start_until_exit: Some(watch_exit(socket)),
        }),
    }
}

/// Explains that a process did not start its run in time. A process that ends with the server was killed.
fn too_slow_message(is_killed: bool) -> String {
    let seconds = START_TIMEOUT.as_secs();
    if is_killed {
        return format!(
            "the run's process did not start the run within {seconds} s and was killed; call again"
        );
    }
    format!(
        "the run's process did not start the run within {seconds} s and may still do so; repeat the same \
            call to get that run, or list runs with delegate_status"
    )
}

fn cannot_start_message(error: io::Error) -> String {
    format!("cannot start the run's process: {error}")
}

/// Starts the process. Returns it with our end of its standard input and the bytes to write there.
fn start(
    setup: &ServerSetup,
    terms: Vec<OsString>,
    job: &RequestedRun,
    handover: &LaunchHandover,
) -> io::Result<(Child, UnixStream, Vec<u8>)> {
    let input = [handover.to_line()?, job.input()].concat();
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    let mut command = Command::new(&setup.program);
    if !setup.ends_with_server {
        command.arg(detach::SUBCOMMAND);
    }
    command.args(job.arguments(setup, terms));
    // A run must not be able to start further runs through the server.
    command.env_remove(TOKEN_VARIABLE);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command.spawn()?, ours, input))
}

/// Waits for a child process in the background, so that it does not stay a zombie.
fn reap(mut child: Child) {
    tokio::spawn(async move { child.wait().await });
}

/// Returns a receiver that becomes true once the process has exited and thereby closed the socket.
fn watch_exit(mut socket: UnixStream) -> watch::Receiver<bool> {
    let (gone, is_gone) = watch::channel(false);
    tokio::spawn(async move {
        // Reading fails if the process exits without having read all of its input. It has exited either way.
        let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
        gone.send_replace(true);
    });
    is_gone
}

/// Writes the process's input. Returns whether the process printed anything.
///
/// A detached process has left our process tree by then, because its parent has exited.
async fn hand_over(
    child: &mut Child,
    socket: &mut UnixStream,
    input: &[u8],
    is_own_child: bool,
) -> bool {
    let stdout = child.stdout.take();
    let write = async {
        // A process may fail before it has read everything. Its standard error tells why.
        let _ = socket.write_all(input).await;
        let _ = socket.shutdown().await;
    };
    let read = async {
        let Some(mut stdout) = stdout else { return false };
        stdout.read_u8().await.is_ok()
    };
    let leave = async {
        if !is_own_child {
            let _ = child.wait().await;
        }
    };
    tokio::join!(write, read, leave).1
}

/// Collects standard error until it is closed.
async fn collect_stderr(stderr: Option<ChildStderr>, stderr_bytes: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let _ = (&mut stderr).take(MAX_STDERR_BYTES).read_to_end(stderr_bytes).await;
    // Keep reading, so that a full pipe does not block the process.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}

/// Returns the standard error of a process that did not start its run, as an error message.
fn stderr_message(stderr_bytes: &[u8]) -> String {
    let stderr_bytes = String::from_utf8_lossy(stderr_bytes);
    let stderr_bytes =
        stderr_bytes.trim().strip_prefix("adjutant: ").unwrap_or(stderr_bytes.trim());
    if stderr_bytes.is_empty() {
        "the run's process exited without an error message".into()
    } else {
        stderr_bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use adjutant_core::Preset;
    use adjutant_core::registry::CallKey;
    use adjutant_core::schema::CallLimits;
    use adjutant_engine::{Archive, new_run_id};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::tools::McpTool;
    use crate::{ApprovalMode, MergeApproval};

    fn setup(home: &Path, program: &Path, ends_with_server: bool) -> ServerSetup {
        ServerSetup {
            archive: Archive::open(home).unwrap(),
            root: home.to_owned(),
            program: program.to_owned(),
            arguments: Vec::new(),
            task_arguments: Vec::new(),
            write_arguments: Vec::new(),
            ends_with_server,
            search: OsString::new(),
            limits: CallLimits::default(),
            approval: ApprovalMode::Inbox,
            merge_approval: MergeApproval::Asked,
            policy: Preset::Scout.policy(),
            asks_client: false,
            detach_after: None,
            result_bytes: None,
            command_folders: Default::default(),
            program_name: "adjutant".into(),
            refusal: None,
            version: "1".into(),
        }
    }

    /// The server cannot kill a detached process: it may start its run, and spend money, after the call was
    /// answered.
    #[tokio::test(start_paused = true)]
    async fn a_call_is_told_that_a_slow_detached_process_may_still_begin_its_run() {
        let home = TempDir::new().unwrap();
        let program = home.path().join("slow");
        // The program waits for a writer that never comes. The shell creates it, because a file that this
        // process has open for writing could not be executed while another test forks.
        let made = "mkfifo fifo && printf '#!/bin/sh\\nexec cat \"${0%%/*}/fifo\"\\n' >slow && chmod +x slow";
        let mut shell = std::process::Command::new("sh");
        let made = shell.args(["-c", made]).current_dir(home.path()).status().unwrap();
        assert!(made.success());
        let arguments = json!({ "tasks": [{ "label": "a", "prompt": "Look around" }] });
        let job =
            RequestedRun::parse(McpTool::Delegate, &arguments, &CallLimits::default()).unwrap();
        for (ends_with_server, stderr_bytes) in
            [(true, "was killed; call again"), (false, "may still do so")]
        {
            let (run, call) = (new_run_id().unwrap(), CallKey::new(stderr_bytes));
            let handover = LaunchHandover { run, call, owner: None, bytes: 0 };
            let setup = setup(home.path(), &program, ends_with_server);
            let LaunchFailure { problem, may_still_start_until_exit } =
                launch(&setup, Vec::new(), &job, &handover).await.map(|_| ()).unwrap_err();
            assert!(may_still_start_until_exit.is_some());
            assert!(problem.contains("within 20 s") && problem.contains(stderr_bytes), "{problem}");
        }
    }
}
