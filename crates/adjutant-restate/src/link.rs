//! Following a run: fetching its batches, and sending commands to it, several at once and each exactly once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adjutant_core::{Event, RunId};
use adjutant_engine::portable::{ResultImporter, StoreError};
use adjutant_engine::{RecordedDecision, RunLink, RunUpdate, SentCommand};
use tokio::sync::mpsc;

use crate::client::{CallError, Ingress};
use crate::store::ClusterStore;
use crate::wire::{DecisionBatch, RunInput, StoredBase, Submission, TimedCommand};

/// The most commands of one call.
const COMMANDS: usize = 256;

/// The updates that a follower has not taken yet. Fetching waits beyond that.
const UPDATES: usize = 16;

/// How long a front end waits for the next batch in one call.
const LONG_POLL: Duration = Duration::from_secs(10);

/// How long a front end waits for a store that cannot be reached.
const STORE_WAIT: Duration = Duration::from_secs(600);

/// The pause between two calls of such a store.
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// The sender's side of a [`RunLink`].
pub(crate) struct LinkEnds {
    pub(crate) commands: mpsc::UnboundedReceiver<SentCommand>,
    pub(crate) updates: mpsc::Sender<RunUpdate>,
}

/// Makes a link and its other side.
pub(crate) fn link() -> (RunLink, LinkEnds) {
    let (sender, commands) = mpsc::unbounded_channel();
    let (updates, receiver) = mpsc::channel(UPDATES);
    (RunLink { commands: sender, updates: receiver }, LinkEnds { commands, updates })
}

/// Sends the commands of one follower to a run.
pub(crate) struct CommandSender {
    pub(crate) ingress: Ingress,
    pub(crate) run: String,
    /// The name of the follower, which makes the keys of its calls unique.
    pub(crate) follower: String,
    /// The worker that follows; `None` for a front end.
    pub(crate) worker: Option<String>,
    /// How many batches the follower has.
    pub(crate) known: Arc<AtomicU64>,
    /// Whether a call is under way, whose answer may bring a batch.
    pub(crate) is_calling: Arc<AtomicBool>,
    /// Receives the number of batches and the last batch after a call.
    pub(crate) recorded: mpsc::UnboundedSender<(u64, Option<DecisionBatch>)>,
}

impl CommandSender {
    /// Sends commands in order until the follower has ended.
    pub(crate) async fn send_all(
        self,
        mut commands: mpsc::UnboundedReceiver<SentCommand>,
    ) -> Result<(), CallError> {
        let mut calls = 0_u64;
        while let Some(first) = commands.recv().await {
            let mut sent = vec![first];
            while let (true, Ok(next)) = (sent.len() < COMMANDS, commands.try_recv()) {
                sent.push(next);
            }
            calls += 1;
            let wall_ms = sent.last().map_or(0, |it| it.wall_ms);
            let (timed, answers): (Vec<_>, Vec<_>) = sent
                .into_iter()
                .map(|it| (TimedCommand { at: it.at, command: it.command }, it.answer))
                .unzip();
            let known = self.known.load(Ordering::Relaxed);
            let (worker, input) = (self.worker.clone(), RunInput::Commands(timed));
            let submission = Submission { wall_ms, known, worker, input };
            let idempotency_key = format!("{}-{}-{calls}", self.run, self.follower);
            self.is_calling.store(true, Ordering::Relaxed);
            let result = self.ingress.submit(&self.run, &submission, &idempotency_key).await;
            self.is_calling.store(false, Ordering::Relaxed);
            let result = result?;
            let refusals = result.refusals.into_iter().chain(std::iter::repeat(None));
            for (answer, refusal) in answers.into_iter().zip(refusals) {
                if let Some(answer) = answer {
                    // The caller may have dropped the receiver.
                    let _ = answer.send(refusal.map_or(Ok(()), Err));
                }
            }
            let _ = self.recorded.send((result.batches, result.last));
        }
        Ok(())
    }
}

/// The user's side of a run whose work is in a store.
pub(crate) struct UserCheckout {
    pub(crate) run: RunId,
    /// The user's checkout.
    pub(crate) tree: PathBuf,
    /// A directory of this user.
    pub(crate) state: PathBuf,
    /// The number of events whose results are there already, or were there and the user has removed them.
    pub(crate) imported: u64,
}

impl UserCheckout {
    /// Opens the store of the run and prepares fetching its results. Blocks.
    fn importer(&self, base: &StoredBase) -> Result<ResultImporter, StoreError> {
        let store = Arc::new(ClusterStore::open(&base.store)?);
        ResultImporter::new(store, &self.tree, &self.state, self.run)
    }
}

/// Passes all batches of a run to a front end, from the first on, until the run has ended. Results that are in a store
/// are in the user's repository before the front end learns of them.
pub(crate) async fn mirror(ingress: Ingress, user: UserCheckout, updates: mpsc::Sender<RunUpdate>) {
    let run = user.run.to_string();
    let user = Arc::new(user);
    let (mut from, mut importer, mut is_over) = (0, None, false);
    let mut imported_events = usize::try_from(user.imported).unwrap_or(usize::MAX);
    loop {
        let page = match ingress.batches(&run, from, LONG_POLL).await {
            Ok(page) => page,
            Err(error) => {
                let _ = updates.send(RunUpdate::Lost(error.to_string())).await;
                return;
            }
        };
        if page.total < from.max(1) {
            let text = "the cluster no longer keeps this run; its records here are all there is";
            let _ = updates.send(RunUpdate::Lost(text.to_owned())).await;
            return;
        }
        from += page.batches.len() as u64;
        let base = page.batches.iter().find_map(|batch| batch.base.clone());
        let decisions = decisions(page.batches);
        is_over = has_ended(&decisions).unwrap_or(is_over);
        let (before, user) = (importer.take(), Arc::clone(&user));
        let count: usize = decisions.iter().map(|decision| decision.events.len()).sum();
        let skipped = imported_events.min(count);
        imported_events -= skipped;
        // Blocks while objects are fetched.
        let imported = tokio::task::spawn_blocking(move || {
            let importer = match (before, base) {
                (Some(importer), _) => Some(importer),
                (None, Some(base)) => Some(until_reachable(|| user.importer(&base))?),
                (None, None) => None,
            };
            if let Some(importer) = &importer {
                let events = decisions.iter().flat_map(|decision| &decision.events);
                for event in events.skip(skipped) {
                    until_reachable(|| importer.import(event))?;
                }
            }
            Ok::<_, StoreError>((importer, decisions))
        });
        let decisions = match imported.await {
            Ok(Ok((used, decisions))) => {
                importer = used;
                decisions
            }
            Ok(Err(error)) => {
                let _ = updates.send(RunUpdate::Lost(error.to_string())).await;
                return;
            }
            Err(error) => {
                let _ = updates.send(RunUpdate::Lost(error.to_string())).await;
                return;
            }
        };
        if !decisions.is_empty() && updates.send(RunUpdate::Recorded(decisions)).await.is_err() {
            return;
        }
        // A run that was continued has an end before its last batch.
        if is_over && from >= page.total {
            // The follower may have ended by itself; a closed channel would be an error for it.
            let _ = updates.send(RunUpdate::Over).await;
            updates.closed().await;
            return;
        }
        if updates.is_closed() {
            return;
        }
    }
}

/// Repeats a call while the store cannot be reached, for ten minutes at most. Blocks.
fn until_reachable<T>(mut call: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let began = std::time::Instant::now();
    loop {
        match call() {
            Err(StoreError::Unavailable(_)) if began.elapsed() < STORE_WAIT => {
                std::thread::sleep(STORE_PAUSE);
            }
            result => return result,
        }
    }
}

/// Returns the decisions of batches.
pub(crate) fn decisions(batches: Vec<DecisionBatch>) -> Vec<RecordedDecision> {
    batches.into_iter().flat_map(|batch| batch.decisions).collect()
}

/// Returns whether a run has ended with these decisions; `None` if they neither end it nor continue it.
pub(crate) fn has_ended(decisions: &[RecordedDecision]) -> Option<bool> {
    let events = decisions.iter().flat_map(|decision| &decision.events);
    let mut ends = events.filter_map(|event| {
        let is_end = matches!(event, Event::RunEnded { .. });
        (is_end || matches!(event, Event::Resumed { .. })).then_some(is_end)
    });
    ends.next_back()
}
