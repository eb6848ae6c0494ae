//! The other end: asking a run from another process, and ending one that answers nobody.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::{Outcome, SessionId};
use adjutant_store::{FileError, KillError, RunDir, RunWriter};

use super::wire::{ControlAnswer, ControlRefusal, ControlRequest, MAX_LINE};
use crate::archive::offline_cancel::{self, OfflineCancel};
use crate::archive::{ArchiveError, RunFiles, RunLiveness};
use crate::engine::EngineError;

/// How long a run may take to say that it cancelled something before its process is killed.
const ACKNOWLEDGED: Duration = Duration::from_secs(1);
/// How long after that everything must be over, from the start.
const OVER: Duration = Duration::from_millis(1_700);
/// How long a process that gave its run back may still take to leave: it prints what it found.
const LEAVES: Duration = Duration::from_millis(400);
/// How long a word to an agent may take to be recorded.
const HEARD: Duration = Duration::from_millis(1_500);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Says why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The run said no.
    #[error("{}", .0.message)]
    Refused(ControlRefusal),
    /// Nobody carries the run.
    #[error("nobody works on this run")]
    NotLive,
    /// Its process is gone and left nothing.
    #[error("nothing is recorded: the run never began")]
    NeverBegan,
    /// Its process does not answer.
    #[error("the run's process{} does not answer", .0.map(|pid| format!(" {pid}")).unwrap_or_default())]
    Silent(Option<u32>),
    /// Its process does not answer and cannot be seen from here.
    #[error("the run's process does not answer and cannot be seen from here")]
    Unseen,
    /// Its process cannot be killed.
    #[error(transparent)]
    Kill(#[from] KillError),
    /// Its process was killed and the kernel still holds it.
    #[error("process {0} was killed and has not ended yet")]
    Stays(u32),
    /// The run's files cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The end cannot be recorded.
    #[error(transparent)]
    Record(#[from] EngineError),
}

impl From<FileError> for ControlError {
    fn from(error: FileError) -> Self {
        Self::Archive(error.into())
    }
}

/// How something came to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The run's process did it.
    ByItsProcess,
    /// The run's process did not answer, was killed, and the end was recorded in its place.
    Killed {
        /// Its number.
        pid: u32,
    },
    /// The run's process was gone already; the end was recorded in its place.
    Recorded,
    /// It had ended before.
    EndedBefore(Outcome),
}

impl RunFiles {
    /// Asks the run's process who it is.
    pub fn ping(&self) -> Result<ControlAnswer, ControlError> {
        self.ask(&ControlRequest::Ping, Instant::now() + ACKNOWLEDGED)?.ok_or(ControlError::NotLive)
    }

    /// Says something to an agent; returns once it is recorded.
    pub fn tell(&self, session: SessionId, text: String) -> Result<(), ControlError> {
        let request = ControlRequest::Tell { session, text };
        let answer = self.ask(&request, Instant::now() + HEARD)?.ok_or(ControlError::NotLive)?;
        answer.error.map_or(Ok(()), |complaint| Err(ControlError::Refused(complaint)))
    }

    /// Answers a question that waits for a person; returns once the answer is recorded.
    ///
    /// The answer is bound to the call by its hash. The run refuses one that comes too late, a
    /// second time, or for a call that it did not make, and one that a client brings (`after_ms` is the time since
    /// that was asked) before a person can have given it.
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

    /// Ends a delegation and all below it, or the whole run, within two seconds.
    ///
    /// A process that does not say so within one is killed and its end recorded for it. That also
    /// stops whatever else it carries, which can be resumed.
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

    /// Asks until there is an answer; nothing when nobody carries the run.
    fn ask(
        &self,
        request: &ControlRequest,
        until: Instant,
    ) -> Result<Option<ControlAnswer>, ControlError> {
        // What was asked once must not be done twice, unless that is the same.
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
            // It may be starting, busy or leaving.
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the run is given back and, for a little, until its process is gone.
    fn wait_until_released(
        &self,
        writer: Option<&RunWriter>,
        until: Instant,
    ) -> Result<bool, ControlError> {
        while matches!(self.liveness()?, RunLiveness::Live { .. }) {
            if Instant::now() >= until {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        // It has done its part; if it still prints, that is no work of the run.
        let _ = writer.is_none_or(|writer| writer.wait(LEAVES));
        Ok(true)
    }

    /// Kills the run's process if it still carries it; returns its number.
    fn kill(&self, writer: Option<&RunWriter>) -> Result<Option<u32>, ControlError> {
        let RunLiveness::Live { .. } = self.liveness()? else { return Ok(None) };
        let writer = writer.ok_or(ControlError::Unseen)?;
        writer.kill()?;
        if writer.wait(LEAVES) {
            Ok(Some(writer.pid()))
        } else {
            Err(ControlError::Stays(writer.pid()))
        }
    }

    /// Finds an end that a run speaks of but may have yet to write.
    fn ended_before(
        &self,
        session: Option<SessionId>,
        until: Instant,
    ) -> Result<Option<Outcome>, ControlError> {
        let (mut follow, mut ended) = (self.follow(), None);
        loop {
            follow
                .read_new(|record| offline_cancel::note_end(&mut ended, &record.event, session))?;
            if ended.is_some() || Instant::now() >= until {
                return Ok(ended);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Why there is no answer.
enum ExchangeError {
    /// Nothing was asked.
    NotSent,
    /// It was asked, and may have been done.
    NoReply,
}

/// Asks once.
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
    // Half a line is not an order.
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
