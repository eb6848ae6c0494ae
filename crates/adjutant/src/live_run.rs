//! A run that is at work.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use adjutant_core::{RunId, SessionId};
use adjutant_engine::ControlCommand;
use futures_core::Stream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{Error, ProgressEvent, Report};

/// A run that is at work on a thread of its own.
///
/// It is a [`Stream`] of progress events. Events that are not read do not slow the run down: at most
/// [`LiveRun::MAX_WAITING_EVENTS`] wait, and later ones are dropped. The report is always complete. Dropping a `LiveRun`
/// cancels the run.
pub struct LiveRun {
    pub(crate) id: RunId,
    pub(crate) events: mpsc::Receiver<ProgressEvent>,
    pub(crate) commands: mpsc::Sender<ControlCommand>,
    /// Set once the run is cancelled. Separate from `commands`, so that a full queue cannot lose it.
    pub(crate) is_cancelled: watch::Sender<bool>,
    /// Taken when the report was received.
    pub(crate) report: Option<oneshot::Receiver<Result<Report, Error>>>,
}

impl LiveRun {
    /// The most events that wait to be read: some minutes of a busy run, in less than a megabyte.
    pub const MAX_WAITING_EVENTS: usize = 4_096;

    /// The most commands that wait to be executed. The run takes them at once, between two steps of its loop.
    pub const MAX_WAITING_COMMANDS: usize = 16;

    /// Returns the id, with which [`crate::Adjutant::resume`] continues the run if this process is killed.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Waits for the next progress event. Returns `None` when the run has ended.
    pub async fn next_event(&mut self) -> Option<ProgressEvent> {
        self.events.recv().await
    }

    /// Cancels the run. Its tasks end as cancelled, with what they have found; the report follows within seconds.
    ///
    /// Overtakes commands that still wait, and cannot be lost. Has no effect on a run that has ended.
    pub fn cancel(&self) {
        self.is_cancelled.send_replace(true);
    }

    /// Cancels one task and everything that it delegated.
    ///
    /// # Errors
    ///
    /// If the run has ended, or [`LiveRun::MAX_WAITING_COMMANDS`] commands already wait.
    pub fn cancel_task(&self, session: SessionId) -> Result<(), Error> {
        self.send(ControlCommand::Cancel(session))
    }

    /// Gives an agent a message before its next turn.
    ///
    /// # Errors
    ///
    /// If the run has ended, or [`LiveRun::MAX_WAITING_COMMANDS`] commands already wait.
    pub fn tell(&self, session: SessionId, message: impl Into<String>) -> Result<(), Error> {
        self.send(ControlCommand::Tell(session, message.into()))
    }

    fn send(&self, command: ControlCommand) -> Result<(), Error> {
        self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => Error::TooManyCommands,
            TrySendError::Closed(_) => Error::RunEnded,
        })
    }

    /// Waits until everything has ended. Dropping the future cancels the run.
    ///
    /// # Errors
    ///
    /// If the call was refused as a whole, or the run could not be recorded to its end.
    pub async fn report(mut self) -> Result<Report, Error> {
        // Unread events would only wait in vain.
        self.events.close();
        let Some(report) = &mut self.report else { return Err(Error::ThreadGone) };
        let received = report.await.unwrap_or(Err(Error::ThreadGone));
        self.report = None;
        received
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        if self.report.is_some() {
            self.cancel();
        }
    }
}

impl Stream for LiveRun {
    type Item = ProgressEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ProgressEvent>> {
        self.events.poll_recv(cx)
    }
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun").field("id", &self.id).finish_non_exhaustive()
    }
}
