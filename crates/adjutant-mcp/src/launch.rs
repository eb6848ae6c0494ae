//! Beginning a run in a process of its own.
//!
//! The process leaves our session, so that nothing that ends us ends it. It reads what is asked from its
//! standard input and prints events; the first names the run, and then nobody listens any more: what
//! it does is in its journal.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use adjutant_core::RunId;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::calls::Claim;
use crate::handover::hand;
use crate::jobs::Job;
use crate::owner::Owner;
use crate::{Setup, TOKEN_VARIABLE};

/// How long a process may take to begin a run. A hundredth of it is the rule.
const BEGINS: Duration = Duration::from_secs(20);

/// The most that is read of the first event, and of what a process says that begins nothing.
const SAID_BYTES: u64 = 64 << 10;

/// Begins a run on these further terms; the error says in words why there is none.
///
/// What is returned beside it is true once the process is gone.
pub(crate) async fn launch(
    setup: &Setup,
    terms: Vec<OsString>,
    job: &Job,
    claim: &Claim,
    owner: Option<&Owner>,
) -> Result<(RunId, watch::Receiver<bool>), String> {
    let mut command = Command::new(&setup.program);
    command.args(job.arguments(setup, terms));
    // What runs has no use for the right to begin more of them.
    command.env_remove(TOKEN_VARIABLE);
    let input = job.input();
    let started = |error: io::Error| format!("cannot start a process for the run: {error}");
    let (ours, theirs) = hand(claim, owner, input.len()).map_err(started)?;
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(started)?;
    // It keeps the end of the socket that is the process's.
    drop(command);
    let Ok(first) = tokio::time::timeout(BEGINS, hand_over(&mut child, ours, &input)).await else {
        // It has said nothing of a run, so nothing is known to be lost.
        let _ = child.kill().await;
        return Err("the process for the run did not begin it in time".into());
    };
    let run = serde_json::from_slice::<Value>(&first).ok();
    let run = run.as_ref().and_then(|event| event["run"].as_str()).and_then(|run| run.parse().ok());
    let Some(run) = run else { return Err(last_words(child).await) };
    // What it says later would fill a pipe that nobody empties, and stop it.
    drop(child.stderr.take());
    // Nobody else takes note of its end, and it would stay a zombie.
    let (gone, is_gone) = watch::channel(false);
    tokio::spawn(async move {
        let _ = child.wait().await;
        gone.send_replace(true);
    });
    Ok((run, is_gone))
}

/// Writes what it reads and returns the first line of what comes back.
async fn hand_over(child: &mut Child, stdin: UnixStream, input: &[u8]) -> Vec<u8> {
    let stdout = child.stdout.take();
    let write = async {
        let stdin = stdin.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(stdin));
        if let Ok(mut stdin) = stdin {
            // One that refuses before it has read everything is heard below.
            let _ = stdin.write_all(input).await;
        }
    };
    let read = async {
        let mut line = Vec::new();
        if let Some(stdout) = stdout {
            let mut stdout = BufReader::new(stdout.take(SAID_BYTES));
            let _ = stdout.read_until(b'\n', &mut line).await;
        }
        line
    };
    tokio::join!(write, read).1
}

/// Returns what a process said that began no run.
async fn last_words(mut child: Child) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut stderr = stderr.take(SAID_BYTES);
        let _ = tokio::time::timeout(BEGINS, stderr.read_to_end(&mut said)).await;
    }
    let _ = child.kill().await;
    let said = String::from_utf8_lossy(&said);
    let said = said.trim().strip_prefix("adjutant: ").unwrap_or(said.trim());
    if said.is_empty() {
        "the process for the run ended without a word".into()
    } else {
        said.into()
    }
}
