//! Beginning a run in a process of its own.
//!
//! The process leaves our session, so that nothing that ends us ends it. It reads what is asked from its
//! standard input, with the claim on the call, and notes its run there; once it prints an event that run has
//! begun, and then nobody listens any more: what it does is in its journal.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use adjutant_core::RunId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::watch;

use crate::calls::Claim;
use crate::handover::hand;
use crate::jobs::Job;
use crate::owner::Owner;
use crate::{Setup, TOKEN_VARIABLE};

/// How long a process may take to begin a run. A hundredth of it is the rule.
const BEGINS: Duration = Duration::from_secs(20);

/// The most that is kept of what a process says that begins nothing.
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
    let earlier = claim.run();
    // What it prints may be as long as what it was asked; the claim says shortly which run it is.
    let noted = || claim.run().filter(|run| Some(*run) != earlier);
    let input = job.input();
    let (mut child, ours) = start(setup, terms, job, claim, owner, input.len())
        .map_err(|error| format!("cannot start a process for the run: {error}"))?;
    let mut said = Vec::new();
    let mut listening = Box::pin(listen(child.stderr.take(), &mut said));
    let has_begun = hand_over(child.stdout.take(), ours, &input);
    let mut has_begun = pin!(tokio::time::timeout(BEGINS, has_begun));
    let mut is_silent = false;
    let has_begun = tokio::select! {
        has_begun = &mut has_begun => has_begun,
        () = &mut listening => {
            is_silent = true;
            has_begun.await
        }
    };
    let run = noted();
    if let (Some(run), Ok(true) | Err(_)) = (run, &has_begun) {
        // What it says later would fill a pipe that nobody empties, and stop it: that pipe is closed.
        drop(listening);
        return Ok((run, follow(child)));
    }
    if has_begun.is_ok() && !is_silent {
        let _ = tokio::time::timeout(BEGINS, &mut listening).await;
    }
    drop(listening);
    if noted().is_some() {
        // A run that is noted is not ours to kill.
        follow(child);
    } else {
        let _ = child.kill().await;
    }
    Err(match has_begun {
        Ok(_) => last_words(&said),
        Err(_) => "the process for the run did not begin it in time; make the call again".into(),
    })
}

/// Starts the process; beside it is our end of its standard input.
fn start(
    setup: &Setup,
    terms: Vec<OsString>,
    job: &Job,
    claim: &Claim,
    owner: Option<&Owner>,
    bytes: usize,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = hand(claim, owner, bytes)?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(&setup.program);
    command.args(job.arguments(setup, terms));
    // What runs has no use for the right to begin more of them.
    command.env_remove(TOKEN_VARIABLE);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command.spawn()?, ours))
}

/// Takes note of the end of a process: nobody else does, and it would stay a zombie.
fn follow(mut child: Child) -> watch::Receiver<bool> {
    let (gone, is_gone) = watch::channel(false);
    tokio::spawn(async move {
        let _ = child.wait().await;
        gone.send_replace(true);
    });
    is_gone
}

/// Writes what the process reads; says whether anything came back.
async fn hand_over(stdout: Option<ChildStdout>, stdin: UnixStream, input: &[u8]) -> bool {
    let write = async {
        if let Ok(mut stdin) = tokio::net::UnixStream::from_std(stdin) {
            // One that refuses before it has read everything is heard below.
            let _ = stdin.write_all(input).await;
        }
    };
    let read = async {
        let Some(mut stdout) = stdout else { return false };
        stdout.read_u8().await.is_ok()
    };
    tokio::join!(write, read).1
}

/// Takes in what a process says until it says nothing more.
async fn listen(stderr: Option<ChildStderr>, said: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let _ = (&mut stderr).take(SAID_BYTES).read_to_end(said).await;
    // Whoever talks on is not kept from going on.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}

/// Returns what a process said that began no run.
fn last_words(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let said = said.trim().strip_prefix("adjutant: ").unwrap_or(said.trim());
    if said.is_empty() {
        "the process for the run ended without a word".into()
    } else {
        said.into()
    }
}
