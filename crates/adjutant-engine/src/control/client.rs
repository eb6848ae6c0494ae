//! The client of a run's control socket: sends requests to a live run from another process.
//!
//! Start at [`RunFiles::cancel`], which kills a process that does not answer in time and records the end for it.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::{Outcome, SessionId};
use adjutant_store::{FileError, KillError, RunDir, WriterProcess};

use super::wire::{ControlAnswer, ControlRefusal, ControlRequest, MAX_LINE};
use crate::archive::offline_cancel::{self, OfflineCancel};
use crate::archive::{ArchiveError, RunFiles, RunLiveness};
use crate::engine::EngineError;

/// The time a run's process has to confirm a cancellation before it is killed.
const ACKNOWLEDGED: Duration = Duration::from_secs(1);
/// The time from the request until a cancelled run must have released its lock.
const OVER: Duration = Duration::from_millis(1_700);
/// The time a process has to exit after it released the run's lock or was killed.
const LEAVES: Duration = Duration::from_millis(400);
/// The time a run's process has to record a message or an answer.
const HEARD: Duration = Duration::from_millis(1_500);
/// The pause between two polls.
const PAUSE: Duration = Duration::from_millis(5);

/// Why a request to a run was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The run refused the request.
    #[error("{}", .0.message)]
    Refused(ControlRefusal),
    /// No process works on the run.
    #[error("the run is not in progress")]
    NotLive,
    /// The runtime that decides the run has not confirmed the request.
    #[error("the cluster of the run has not confirmed it")]
    NotConfirmed,
    /// The run's process is gone and its journal is empty.
    #[error("nothing is recorded: the run never began")]
    NeverBegan,
    /// The run's process does not answer; its pid where it is known.
    #[error("the run's process{} does not answer", .0.map(|pid| format!(" {pid}")).unwrap_or_default())]
    Silent(Option<u32>),
    /// The run's process does not answer and cannot be killed, because it is in another pid namespace.
    #[error(
        "the run's process does not answer and cannot be killed, because it is in another pid namespace (a container)"
    )]
    Unseen,
    /// Killing the run's process failed.
    #[error(transparent)]
    Kill(#[from] KillError),
    /// The run's process was killed and has not exited yet.
    #[error("process {0} was killed and has not ended yet")]
    Stays(u32),
    /// The run's files cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The end cannot be appended to the journal.
    #[error(transparent)]
    Record(#[from] EngineError),
}

impl From<FileError> for ControlError {
    fn from(error: FileError) -> Self {
        Self::Archive(error.into())
    }
}

/// How a cancellation was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The run's own process cancelled it.
    ByItsProcess,
    /// The run's process did not answer and was killed; this process recorded the end.
    Killed {
        /// The pid of the killed process.
        pid: u32,
    },
    /// The run's process was gone; this process recorded the end.
    Recorded,
    /// It had ended before.
    EndedBefore(Outcome),
}

impl RunFiles {
    /// Asks the run's process for its pid and state.
    pub fn ping(&self) -> Result<ControlAnswer, ControlError> {
        self.ask(&ControlRequest::Ping, Instant::now() + ACKNOWLEDGED)?.ok_or(ControlError::NotLive)
    }

    /// Sends a message to an agent. Returns once it is recorded.
    pub fn tell(&self, session: SessionId, text: String) -> Result<(), ControlError> {
        let request = ControlRequest::Tell { session, text };
        let answer = self.ask(&request, Instant::now() + HEARD)?.ok_or(ControlError::NotLive)?;
        answer.error.map_or(Ok(()), |complaint| Err(ControlError::Refused(complaint)))
    }

    /// Answers a question that waits for a person. Returns once the answer is recorded.
    ///
    /// The hash binds the answer to one call. The run refuses an answer that is late, repeated, or for another
    /// call. `after_ms` is the time since an MCP client was asked, if it relays the answer; the run refuses an
    /// answer that came faster than a person can read.
    pub fn decide(
        &self,
        hash: &str,
        verdict: Result<(), String>,
        after_ms: Option<u64>,
    ) -> Result<(), ControlError> {
        let (yes, reason) = (verdict.is_ok(), verdict.err().unwrap_or_default());
        let request = ControlRequest::Decide { hash: hash.to_owned(), yes, reason, after_ms };
        let answer = self.ask(&request, Instant::now() + HEARD)?.ok_or(ControlError::NotLive)?;
        answer.error.map_or(Ok(()), |complaint| Err(ControlError::Refused(complaint)))
    }

    /// Cancels a delegation and its descendants, or the whole run, within two seconds.
    ///
    /// A process that does not confirm within one second is killed, and this process records the end. Other
    /// delegations of a killed run stop too and can be resumed.
    pub fn cancel(&self, session: Option<SessionId>) -> Result<CancelOutcome, ControlError> {
        let start = Instant::now();
        let session = session.filter(|session| *session != self.id().root_session());
        let writer = self.folder.writer()?;
        match self.ask(&ControlRequest::Cancel { session }, start + ACKNOWLEDGED) {
            Ok(Some(ControlAnswer { error: None, .. })) if session.is_some() => {
                return Ok(CancelOutcome::ByItsProcess);
            }
            Ok(Some(ControlAnswer { error: None, .. })) => {
                if self.wait_until_released(writer.as_ref(), start + OVER)? {
                    return Ok(CancelOutcome::ByItsProcess);
                }
            }
            Ok(Some(ControlAnswer { error: Some(complaint), .. })) => {
                let ended = self.ended_before(session, start + ACKNOWLEDGED)?;
                return ended
                    .map(CancelOutcome::EndedBefore)
                    .ok_or(ControlError::Refused(complaint));
            }
            Ok(None) | Err(ControlError::Silent(_)) => {}
            Err(error) => return Err(error),
        }
        if self.runtime().is_some() {
            // The run goes on there, whatever happens to the process that follows it.
            let ended = self.ended_before(session, start + ACKNOWLEDGED)?;
            return ended.map(CancelOutcome::EndedBefore).ok_or(ControlError::NotConfirmed);
        }
        let killed = self.kill(writer.as_ref())?;
        if killed.is_none() && self.records().is_ok_and(|mut records| records.next().is_none()) {
            return Err(ControlError::NeverBegan);
        }
        match (offline_cancel::cancel(&self.folder, session)?, killed) {
            (OfflineCancel::EndedBefore(outcome), None) => Ok(CancelOutcome::EndedBefore(outcome)),
            (OfflineCancel::EndedBefore(_) | OfflineCancel::Recorded, Some(pid)) => {
                Ok(CancelOutcome::Killed { pid })
            }
            (OfflineCancel::Recorded, None) => Ok(CancelOutcome::Recorded),
        }
    }

    /// Sends a request until the run's process answers. Returns `None` if no process works on the run.
    fn ask(
        &self,
        request: &ControlRequest,
        until: Instant,
    ) -> Result<Option<ControlAnswer>, ControlError> {
        // A message or an answer must not be recorded twice; ping and cancel have the same effect when repeated.
        let is_repeatable =
            !matches!(request, ControlRequest::Tell { .. } | ControlRequest::Decide { .. });
        loop {
            let RunLiveness::Live { pid } = self.liveness()? else { return Ok(None) };
            match exchange(&self.folder, request, until) {
                Ok(answer) => return Ok(Some(answer)),
                Err(ExchangeError::NotSent) => {}
                Err(ExchangeError::NoReply) if is_repeatable => {}
                Err(ExchangeError::NoReply) => return Err(ControlError::Silent(pid)),
            }
            if Instant::now() >= until {
                return Err(ControlError::Silent(pid));
            }
            // The process may be starting, busy or about to exit.
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the run's lock is released, then briefly until its process has exited. Returns whether the
    /// lock was released in time.
    fn wait_until_released(
        &self,
        writer: Option<&WriterProcess>,
        until: Instant,
    ) -> Result<bool, ControlError> {
        while matches!(self.liveness()?, RunLiveness::Live { .. }) {
            if Instant::now() >= until {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        // The run is over; its process may still be printing the results.
        let _ = writer.is_none_or(|writer| writer.wait(LEAVES));
        Ok(true)
    }

    /// Kills the run's process if it still has the run locked. Returns its pid.
    fn kill(&self, writer: Option<&WriterProcess>) -> Result<Option<u32>, ControlError> {
        let RunLiveness::Live { .. } = self.liveness()? else { return Ok(None) };
        let writer = writer.ok_or(ControlError::Unseen)?;
        writer.kill()?;
        if writer.wait(LEAVES) {
            Ok(Some(writer.pid()))
        } else {
            Err(ControlError::Stays(writer.pid()))
        }
    }

    /// Reads the journal until it has an end: a run may answer before its last record is on disk.
    fn ended_before(
        &self,
        session: Option<SessionId>,
        until: Instant,
    ) -> Result<Option<Outcome>, ControlError> {
        let (mut follow, mut ended) = (self.follow(), None);
        loop {
            follow
                .read_new(|record| offline_cancel::track_end(&mut ended, &record.event, session))?;
            if ended.is_some() || Instant::now() >= until {
                return Ok(ended);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Why a request on the control socket got no answer, and whether the run may have carried it out.
enum ExchangeError {
    /// The request was not sent completely, so it was not carried out.
    NotSent,
    /// The request was sent and may have been carried out.
    NoReply,
}

/// Sends one request over a new connection and reads the answer.
fn exchange(
    folder: &RunDir,
    request: &ControlRequest,
    until: Instant,
) -> Result<ControlAnswer, ExchangeError> {
    let mut stream = folder.connect_control().map_err(|_| ExchangeError::NotSent)?;
    let left = until.saturating_duration_since(Instant::now()).max(PAUSE);
    let patient =
        stream.set_write_timeout(Some(left)).and_then(|()| stream.set_read_timeout(Some(left)));
    patient.map_err(|_| ExchangeError::NotSent)?;
    // The server ignores an incomplete line.
    stream.write_all(&request.line()).map_err(|_| ExchangeError::NotSent)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while !answer.ends_with(b"\n") && answer.len() < MAX_LINE {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ExchangeError::NoReply),
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(ExchangeError::NoReply),
        }
        if Instant::now() >= until {
            return Err(ExchangeError::NoReply);
        }
    }
    serde_json::from_slice(&answer).map_err(|_| ExchangeError::NoReply)
}
