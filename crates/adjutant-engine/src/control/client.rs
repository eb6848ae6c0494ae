//! The other end: asking a run from another process, and ending one that answers nobody.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::{Outcome, SessionId};
use adjutant_store::{FileError, KillError, RunDir, RunWriter};

use super::wire::{Answer, Complaint, MAX_LINE, Request};
use crate::archive::recover::{self, Recovered};
use crate::archive::{ArchiveError, Life, RunFiles};
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
    Refused(Complaint),
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
pub enum Cancelled {
    /// The run's process did it.
    Obeyed,
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
    pub fn ping(&self) -> Result<Answer, ControlError> {
        self.ask(&Request::Ping, Instant::now() + ACKNOWLEDGED)?.ok_or(ControlError::NotLive)
    }

    /// Says something to an agent; returns once it is recorded.
    pub fn tell(&self, session: SessionId, text: String) -> Result<(), ControlError> {
        let request = Request::Tell { session, text };
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
        let request = Request::Decide { hash: hash.to_owned(), yes, reason, after_ms };
        let answer = self.ask(&request, Instant::now() + HEARD)?.ok_or(ControlError::NotLive)?;
        answer.error.map_or(Ok(()), |complaint| Err(ControlError::Refused(complaint)))
    }

    /// Ends a delegation and all below it, or the whole run, within two seconds.
    ///
    /// A process that does not say so within one is killed and its end recorded for it. That also
    /// stops whatever else it carries, which can be resumed.
    pub fn cancel(&self, session: Option<SessionId>) -> Result<Cancelled, ControlError> {
        let start = Instant::now();
        let session = session.filter(|session| *session != self.id().root_session());
        let writer = self.folder.writer()?;
        match self.ask(&Request::Cancel { session }, start + ACKNOWLEDGED) {
            Ok(Some(Answer { error: None, .. })) if session.is_some() => {
                return Ok(Cancelled::Obeyed);
            }
            Ok(Some(Answer { error: None, .. })) => {
                if self.leaves(writer.as_ref(), start + OVER)? {
                    return Ok(Cancelled::Obeyed);
                }
            }
            Ok(Some(Answer { error: Some(complaint), .. })) => {
                let ended = self.ended_before(session, start + ACKNOWLEDGED)?;
                return ended.map(Cancelled::EndedBefore).ok_or(ControlError::Refused(complaint));
            }
            Ok(None) | Err(ControlError::Silent(_)) => {}
            Err(error) => return Err(error),
        }
        let killed = self.kill(writer.as_ref())?;
        if killed.is_none() && self.records().is_ok_and(|mut records| records.next().is_none()) {
            return Err(ControlError::NeverBegan);
        }
        match (recover::cancel(&self.folder, session)?, killed) {
            (Recovered::EndedBefore(outcome), None) => Ok(Cancelled::EndedBefore(outcome)),
            (Recovered::EndedBefore(_) | Recovered::Recorded, Some(pid)) => {
                Ok(Cancelled::Killed { pid })
            }
            (Recovered::Recorded, None) => Ok(Cancelled::Recorded),
        }
    }

    /// Asks until there is an answer; nothing when nobody carries the run.
    fn ask(&self, request: &Request, until: Instant) -> Result<Option<Answer>, ControlError> {
        // What was asked once must not be done twice, unless that is the same.
        let is_repeatable = !matches!(request, Request::Tell { .. } | Request::Decide { .. });
        loop {
            let Life::Live { pid } = self.life()? else { return Ok(None) };
            match exchange(&self.folder, request, until) {
                Ok(answer) => return Ok(Some(answer)),
                Err(Unanswered::NotHeard) => {}
                Err(Unanswered::CutOff) if is_repeatable => {}
                Err(Unanswered::CutOff) => return Err(ControlError::Silent(pid)),
            }
            if Instant::now() >= until {
                return Err(ControlError::Silent(pid));
            }
            // It may be starting, busy or leaving.
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the run is given back and, for a little, until its process is gone.
    fn leaves(&self, writer: Option<&RunWriter>, until: Instant) -> Result<bool, ControlError> {
        while matches!(self.life()?, Life::Live { .. }) {
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
        let Life::Live { .. } = self.life()? else { return Ok(None) };
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
            follow.more(|record| recover::note_end(&mut ended, &record.event, session))?;
            if ended.is_some() || Instant::now() >= until {
                return Ok(ended);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Why there is no answer.
enum Unanswered {
    /// Nothing was asked.
    NotHeard,
    /// It was asked, and may have been done.
    CutOff,
}

/// Asks once.
fn exchange(folder: &RunDir, request: &Request, until: Instant) -> Result<Answer, Unanswered> {
    let mut stream = folder.connect_control().map_err(|_| Unanswered::NotHeard)?;
    let left = until.saturating_duration_since(Instant::now()).max(PAUSE);
    let patient =
        stream.set_write_timeout(Some(left)).and_then(|()| stream.set_read_timeout(Some(left)));
    patient.map_err(|_| Unanswered::NotHeard)?;
    // Half a line is not an order.
    stream.write_all(&request.line()).map_err(|_| Unanswered::NotHeard)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while !answer.ends_with(b"\n") && answer.len() < MAX_LINE {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(Unanswered::CutOff),
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Unanswered::CutOff),
        }
        if Instant::now() >= until {
            return Err(Unanswered::CutOff);
        }
    }
    serde_json::from_slice(&answer).map_err(|_| Unanswered::CutOff)
}
