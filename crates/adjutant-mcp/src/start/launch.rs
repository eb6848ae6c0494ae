//! Beginning a run in a process of its own.
//!
//! The process is not a descendant of the server (see `detach`), so that nothing that ends the server ends
//! the run, unless a person wants just that. It reads from its standard input which run it begins, and what is asked.
//! Once it prints an event, that run has begun, and the server stops
//! listening: what the run does is in its journal. The socket that is its standard input tells when it exits.

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

/// How long a process may take to begin a run. A hundredth of it is the rule.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The most that is kept of what a process says that begins nothing.
const MAX_STDERR_BYTES: u64 = 64 << 10;

/// Why a run was not begun.
#[derive(Debug)]
pub(crate) struct LaunchFailure {
    /// The reason, in words.
    pub(crate) problem: String,
    /// Becomes true once the process is gone, where it may still begin the run.
    pub(crate) may_begin_until: Option<watch::Receiver<bool>>,
}

impl LaunchFailure {
    fn new(problem: String) -> Self {
        Self { problem, may_begin_until: None }
    }
}

/// Begins a run on these further terms. What is returned becomes true once its process is gone.
pub(crate) async fn launch(
    setup: &ServerSetup,
    terms: Vec<OsString>,
    job: &RequestedRun,
    handover: &LaunchHandover,
) -> Result<watch::Receiver<bool>, LaunchFailure> {
    // What it prints may be as long as what it was asked; its folder says shortly that it is there.
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
        // Output that the server does not read would fill the pipe and stop the run: the pipe is closed.
        drop(collecting);
        reap(child);
        return Ok(watch_exit(socket));
    }
    if begun.is_ok() && !is_stderr_closed {
        let _ = tokio::time::timeout(START_TIMEOUT, &mut collecting).await;
    }
    drop(collecting);
    if !has_folder() {
        // A detached process cannot be killed here.
        let _ = child.start_kill();
    }
    reap(child);
    match begun {
        Ok(_) => Err(LaunchFailure::new(stderr_message(&stderr_bytes))),
        Err(_) => Err(LaunchFailure {
            problem: too_slow_message(setup.ends_with_server),
            may_begin_until: Some(watch_exit(socket)),
        }),
    }
}

/// Says that a process has not begun its run in time. Only one that ends with the server was killed.
fn too_slow_message(is_killed: bool) -> String {
    let seconds = START_TIMEOUT.as_secs();
    if is_killed {
        return format!(
            "the process for the run did not begin it within {seconds} s and was killed; make the call again"
        );
    }
    format!(
        "the process for the run has not begun it within {seconds} s and may still do so; make the same call \
         again, and it is answered with that run; delegate_status lists what runs"
    )
}

fn cannot_start_message(error: io::Error) -> String {
    format!("cannot start a process for the run: {error}")
}

/// Starts the process; beside it are our end of its standard input, and what is to be written there.
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
    // What runs has no use for the right to begin more of them.
    command.env_remove(TOKEN_VARIABLE);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command.spawn()?, ours, input))
}

/// Waits for a child of ours in the background, so that it does not stay a zombie.
fn reap(mut child: Child) {
    tokio::spawn(async move { child.wait().await });
}

/// Returns what becomes true once the process of a run is gone, which closes its end of the socket.
fn watch_exit(mut socket: UnixStream) -> watch::Receiver<bool> {
    let (gone, is_gone) = watch::channel(false);
    tokio::spawn(async move {
        // A process that has not read all of its input when it exits shows as an error.
        let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
        gone.send_replace(true);
    });
    is_gone
}

/// Writes what the process reads; says whether anything came back.
///
/// A detached process must have left our process tree by then: its parent, the child, has exited.
async fn hand_over(
    child: &mut Child,
    socket: &mut UnixStream,
    input: &[u8],
    is_own_child: bool,
) -> bool {
    let stdout = child.stdout.take();
    let write = async {
        // A process that refuses before it has read everything is heard below.
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

/// Takes in what a process says until it says nothing more.
async fn collect_stderr(stderr: Option<ChildStderr>, stderr_bytes: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let _ = (&mut stderr).take(MAX_STDERR_BYTES).read_to_end(stderr_bytes).await;
    // Whoever talks on is not kept from going on.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}

/// Returns what a process said that began no run.
fn stderr_message(stderr_bytes: &[u8]) -> String {
    let stderr_bytes = String::from_utf8_lossy(stderr_bytes);
    let stderr_bytes =
        stderr_bytes.trim().strip_prefix("adjutant: ").unwrap_or(stderr_bytes.trim());
    if stderr_bytes.is_empty() {
        "the process for the run ended without a word".into()
    } else {
        stderr_bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use adjutant_core::registry::CallKey;
    use adjutant_core::schema::CallLimits;
    use adjutant_engine::{Archive, new_run_id};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::ApprovalMode;
    use crate::tools::McpTool;

    fn setup(home: &Path, program: &Path, ends_with_server: bool) -> ServerSetup {
        ServerSetup {
            archive: Archive::open(home).unwrap(),
            root: home.to_owned(),
            program: program.to_owned(),
            arguments: Vec::new(),
            task_arguments: Vec::new(),
            ends_with_server,
            search: OsString::new(),
            limits: CallLimits::default(),
            approval: ApprovalMode::Inbox,
            asks_client: false,
            detach_after: None,
            result_bytes: None,
            command_folders: Default::default(),
            program_name: "adjutant".into(),
            refusal: None,
            version: "1".into(),
        }
    }

    /// A detached process is out of the server's reach: it may begin its run, and spend, after the call was answered.
    #[tokio::test(start_paused = true)]
    async fn a_call_is_told_that_a_slow_detached_process_may_still_begin_its_run() {
        let home = TempDir::new().unwrap();
        let program = home.path().join("slow");
        // It waits for a writer that never comes. The shell makes the file: one that this process had open for writing
        // could not be executed while another test forks.
        let made = "mkfifo fifo && printf '#!/bin/sh\\nexec cat \"${0%%/*}/fifo\"\\n' >slow && chmod +x slow";
        let mut shell = std::process::Command::new("sh");
        let made = shell.args(["-c", made]).current_dir(home.path()).status().unwrap();
        assert!(made.success());
        let arguments = json!({ "tasks": [{ "label": "a", "prompt": "Look around" }] });
        let job =
            RequestedRun::parse(McpTool::Delegate, &arguments, &CallLimits::default()).unwrap();
        for (ends_with_server, stderr_bytes) in
            [(true, "was killed; make the call"), (false, "may still do so")]
        {
            let (run, call) = (new_run_id().unwrap(), CallKey::new(stderr_bytes));
            let handover = LaunchHandover { run, call, owner: None, bytes: 0 };
            let setup = setup(home.path(), &program, ends_with_server);
            let LaunchFailure { problem, may_begin_until } =
                launch(&setup, Vec::new(), &job, &handover).await.map(|_| ()).unwrap_err();
            assert!(may_begin_until.is_some());
            assert!(problem.contains("within 20 s") && problem.contains(stderr_bytes), "{problem}");
        }
    }
}
