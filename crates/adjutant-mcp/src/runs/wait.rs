//! Waits for a run on behalf of a call, and sends progress messages meanwhile.

use std::pin::Pin;
use std::time::Duration;

use adjutant_core::Timestamp;
use adjutant_view::progress::ProgressFrame;
use adjutant_view::{Palette, RunView, sanitize};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::Instant;

use super::run_processes::RunProcesses;
use super::{RunWatch, VisibleRuns};
use crate::client_call::{Cancellation, ClientCall};

/// The maximum time between progress messages. Some clients take ten seconds of silence for a failure.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// The minimum time between progress messages.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How long an answer waits for the progress message sent before it.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// The width of a progress message in columns.
const COLUMNS: usize = 100;

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The event that the call waited for has happened, or the run has ended.
    Over,
    /// The call ran out of time, the client disconnected, or the server shuts down. The run continues.
    Detached,
    /// The client cancelled its call.
    Cancelled(Cancellation),
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitFor<'a> {
    /// The end of the run.
    End,
    /// A question that is not in this list, or the end of the run.
    Next(&'a [String]),
    /// An answer from anywhere to the question with this hash, or the end of the run.
    Answer(&'a str),
}

impl WaitFor<'_> {
    fn is_met(self, view: &RunView) -> bool {
        match self {
            Self::End => false,
            Self::Next(known) => view.approvals().iter().any(|open| !known.contains(&open.hash)),
            Self::Answer(hash) => !view.approvals().iter().any(|open| open.hash == hash),
        }
    }
}

/// Waits for runs on behalf of calls.
#[derive(Clone)]
pub(crate) struct RunWaiter {
    runs: VisibleRuns,
    processes: RunProcesses,
    closing: watch::Receiver<bool>,
}

impl RunWaiter {
    /// Creates a waiter. Waits end when `closing` becomes true, which happens at shutdown.
    pub(crate) fn new(
        runs: VisibleRuns,
        processes: RunProcesses,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self { runs, processes, closing }
    }

    /// Waits for something in a run, and sends progress messages meanwhile.
    pub(crate) async fn wait_for(
        &self,
        run: &str,
        what: WaitFor<'_>,
        call: &mut ClientCall<'_>,
    ) -> Result<WaitOutcome, String> {
        let run = run.to_owned();
        let mut watch = self.runs.blocking(move |runs| runs.watch(&run)).await?;
        let waited = self.wait_with_progress(&mut watch, what, call).await;
        call.progress.finish_sending().await;
        waited
    }

    async fn wait_with_progress(
        &self,
        run: &mut RunWatch,
        what: WaitFor<'_>,
        call: &mut ClientCall<'_>,
    ) -> Result<WaitOutcome, String> {
        let mut abandoned = std::pin::pin!(call.wait_until_abandoned());
        let mut closing = self.closing.clone();
        let mut is_due = true;
        loop {
            let looked = run.check().await?;
            let is_met = what.is_met(&run.known().view);
            if looked.is_over || is_met {
                return Ok(WaitOutcome::Over);
            }
            call.progress.report(looked.grew || is_due, || {
                let known = run.known();
                draw_progress(&known.view, known.now())
            });
            is_due = false;
            let due = call.progress.due();
            tokio::select! {
                () = run.changed() => {}
                () = call.progress.wait_until_sent() => {}
                () = tokio::time::sleep_until(due) => is_due = true,
                () = tokio::time::sleep_until(call.until) => return Ok(WaitOutcome::Detached),
                _ = closing.wait_for(|is_closing| *is_closing) => return Ok(WaitOutcome::Detached),
                waited = &mut abandoned => return Ok(waited),
            }
        }
    }

    /// Waits for work of this server, and sends `message` as progress meanwhile.
    ///
    /// # Errors
    ///
    /// How the wait ended, if it ended before the work.
    pub(crate) async fn wait_for_work<T>(
        &self,
        work: &mut (impl Future<Output = T> + Unpin),
        message: &str,
        call: &mut ClientCall<'_>,
    ) -> Result<T, WaitOutcome> {
        let mut abandoned = std::pin::pin!(call.wait_until_abandoned());
        let mut closing = self.closing.clone();
        let mut is_due = false;
        let done = loop {
            call.progress.report(is_due, || message.to_owned());
            is_due = false;
            let due = call.progress.due();
            tokio::select! {
                done = &mut *work => break Ok(done),
                () = call.progress.wait_until_sent() => {}
                () = tokio::time::sleep_until(due) => is_due = true,
                () = tokio::time::sleep_until(call.until) => break Err(WaitOutcome::Detached),
                _ = closing.wait_for(|is_closing| *is_closing) => break Err(WaitOutcome::Detached),
                waited = &mut abandoned => break Err(waited),
            }
        };
        call.progress.finish_sending().await;
        done
    }

    /// Waits until the process of a run has exited, if this server started it, but not beyond `until`.
    pub(crate) async fn wait_for_exit(&self, run: &str, until: Instant) {
        self.processes.wait_for_exit(run, until).await;
    }
}

/// Sends the progress messages of one call.
///
/// At most one message is being sent at a time: a client that does not read must not keep the wait from
/// ending.
pub(crate) struct ProgressReporter {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    count: u32,
    last_sent: Option<Instant>,
    /// Whether there is news that was not sent yet.
    is_behind: bool,
    sending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ProgressReporter {
    /// Creates a reporter. It sends nothing if the client gave no progress token.
    pub(crate) fn new(peer: &Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        let to = token.map(|token| (peer.clone(), token));
        Self { to, count: 0, last_sent: None, is_behind: false, sending: None }
    }

    /// Returns when the next message is due.
    pub(crate) fn due(&self) -> Instant {
        let wait = if self.is_behind && self.to.is_some() { MIN_INTERVAL } else { MAX_SILENCE };
        let next = self.last_sent.unwrap_or_else(Instant::now) + wait;
        // While a message is still being sent, the next one is not due yet.
        if self.sending.is_some() { next.max(Instant::now() + MIN_INTERVAL) } else { next }
    }

    /// Starts sending a message if there is news and the last message was not just sent.
    pub(crate) fn report(&mut self, is_news: bool, how: impl FnOnce() -> String) {
        self.is_behind |= is_news;
        let is_too_soon =
            self.last_sent.is_some_and(|last_sent| last_sent.elapsed() < MIN_INTERVAL);
        if is_too_soon || self.sending.is_some() || !self.is_behind {
            return;
        }
        (self.last_sent, self.is_behind) = (Some(Instant::now()), false);
        let Some((peer, token)) = &self.to else { return };
        self.count += 1;
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(self.count));
        let (peer, progress) = (peer.clone(), progress.with_message(how()));
        self.sending = Some(Box::pin(async move {
            // The reader of the connection notices a client that is gone.
            let _ = peer.notify_progress(progress).await;
        }));
    }

    /// Waits until the current message is sent; forever if there is none.
    pub(crate) async fn wait_until_sent(&mut self) {
        match &mut self.sending {
            Some(sending) => sending.await,
            None => std::future::pending().await,
        }
        self.sending = None;
    }

    /// Waits briefly for the current message, because progress must not arrive after the answer. A client
    /// that does not read may still see it late.
    pub(crate) async fn finish_sending(&mut self) {
        if self.sending.is_some() {
            let _ = tokio::time::timeout(SEND_TIMEOUT, self.wait_until_sent()).await;
        }
    }
}

/// Draws one line per subagent that says what it is doing.
pub(crate) fn draw_progress(view: &RunView, now: Timestamp) -> String {
    let frame = ProgressFrame { width: COLUMNS, height: None, now, palette: Palette::Plain };
    sanitize::block(frame.render(view).trim_end()).into_owned()
}
