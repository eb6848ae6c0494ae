//! The writing thread of a journal, and the queue that feeds it.
//!
//! The thread takes everything that waits as one batch: one write, and one sync when any record
//! in it asked for one (group commit). It never waits for more to come. It knows bytes, not events.
//!
//! Invariant: a failed write or sync is the last thing the thread does, and leaves no half record.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::disk::Disk;
use crate::journal::JournalError;
use crate::record::RecordNumber;

/// The bytes that may wait for the disk before an append has to wait too.
///
/// The engine waits for durability before it acts, so a queue this long means that the disk has
/// stopped, and going on would only move the loss into memory. A larger record goes alone.
const QUEUE_BYTES: usize = 16 << 20;

/// A buffer that grew beyond this is given back instead of being kept for the next batch.
const MAX_KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Whole records on their way to the disk.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) last: RecordNumber,
    pub(crate) sync: bool,
}

impl RecordBatch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_KEPT_BUFFER_BYTES);
        self.sync = false;
    }

    /// Moves the records of `later` behind our own; by a swap when there are none yet.
    fn append_from(&mut self, later: &mut Self) {
        if self.bytes.is_empty() {
            std::mem::swap(self, later);
        } else {
            self.bytes.extend_from_slice(&later.bytes);
            self.last = later.last;
            self.sync |= later.sync;
        }
        later.clear();
    }
}

/// What the caller's thread and the writing thread share.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    room: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: RecordBatch,
    // A notify is a system call even when nobody waits, so each side says when it does.
    writer_waits: bool,
    caller_waits: bool,
    closing: bool,
    failed: Option<JournalError>,
}

impl WriteQueue {
    /// Puts `staged` behind what waits and leaves it empty.
    pub(crate) fn submit(&self, staged: &mut RecordBatch) -> Result<(), JournalError> {
        let mut state = self.lock();
        while state.is_full_for(staged) {
            state.caller_waits = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if staged.bytes.is_empty() {
            return Ok(());
        }
        state.pending.append_from(staged);
        let wake = std::mem::take(&mut state.writer_waits);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Tells the writer that nothing more will come.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Returns the failure that ended the writer, if one did.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.lock().failed.clone()
    }

    fn fail(&self, error: JournalError) {
        self.lock().failed = Some(error);
        self.room.notify_one();
    }

    /// Waits for records and takes them all; says no when none will come any more.
    fn wait_for_records(&self, batch: &mut RecordBatch) -> bool {
        let mut state = self.lock();
        while state.pending.bytes.is_empty() {
            if state.closing {
                return false;
            }
            state.writer_waits = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writer_waits = false;
        batch.append_from(&mut state.pending);
        let wake = std::mem::take(&mut state.caller_waits);
        drop(state);
        if wake {
            self.room.notify_one();
        }
        true
    }

    /// Takes what waits; says no when nothing does.
    fn take_pending(&self, batch: &mut RecordBatch) -> bool {
        let mut state = self.lock();
        batch.append_from(&mut state.pending);
        !batch.bytes.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Only this module runs under the lock and leaves the state whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn is_full_for(&self, staged: &RecordBatch) -> bool {
        let waiting = self.pending.bytes.len();
        self.failed.is_none() && waiting > 0 && waiting + staged.bytes.len() > QUEUE_BYTES
    }
}

/// The thread's own side.
pub(crate) struct JournalWriter<D, R> {
    disk: D,
    queue: Arc<WriteQueue>,
    report: R,
    written: u64,
    synced: u64,
}

impl<D: Disk, R: FnMut(Result<RecordNumber, JournalError>)> JournalWriter<D, R> {
    /// Prepares to write behind the first `len` bytes of `disk`.
    pub(crate) fn new(disk: D, queue: Arc<WriteQueue>, len: u64, report: R) -> Self {
        Self { disk, queue, report, written: len, synced: len }
    }

    /// Writes what comes until nothing more will, or until the disk fails.
    pub(crate) fn run(mut self) {
        let _panic_notice = PanicNotice(Arc::clone(&self.queue));
        let mut batch = RecordBatch::default();
        while self.queue.wait_for_records(&mut batch) {
            if let Err(error) = self.commit(&batch) {
                return self.fail(error);
            }
            if batch.sync {
                (self.report)(Ok(batch.last));
            }
            batch.clear();
        }
        match self.sync() {
            // Best effort: space that stays allocated is found again by whoever resumes the run.
            Ok(()) => drop(self.disk.free_unused_space(self.written)),
            Err(error) => self.fail(error),
        }
    }

    /// Writes and syncs what waits, on the caller's own thread.
    pub(crate) fn write_pending(&mut self) {
        let mut batch = RecordBatch::default();
        if self.queue.failure().is_some() || !self.queue.take_pending(&mut batch) {
            return;
        }
        match self.commit(&batch).and_then(|()| self.sync()) {
            Ok(()) => (self.report)(Ok(batch.last)),
            Err(error) => self.fail(error),
        }
    }

    fn commit(&mut self, batch: &RecordBatch) -> Result<(), JournalError> {
        if let Err(error) = self.disk.write_all_at_end(&batch.bytes) {
            // What was written before is whole; of this batch nobody was told anything.
            self.truncate_best_effort(self.written);
            return Err(JournalError::write(error));
        }
        self.written += batch.bytes.len() as u64;
        if batch.sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if self.synced == self.written {
            return Ok(());
        }
        if let Err(error) = self.disk.sync() {
            // After a failed sync Linux calls the lost pages clean: they read back fine until the
            // power goes. A resumed run that wrote behind them could find a hole in its past, so
            // nothing that was never durable stays.
            self.truncate_best_effort(self.synced);
            return Err(JournalError::sync(error));
        }
        self.synced = self.written;
        Ok(())
    }

    /// Cuts what the journal cannot vouch for.
    fn truncate_best_effort(&mut self, len: u64) {
        // Best effort on a disk that has just failed. A half record that stays is a torn tail,
        // which readers cut; a whole one was handed in and is true, only not known to be durable.
        let _ = self.disk.truncate(len);
    }

    fn fail(&mut self, error: JournalError) {
        // First the state, then the word: who hears of it finds the journal closed.
        self.queue.fail(error.clone());
        (self.report)(Err(error));
    }
}

/// Leaves word when the thread ends by a panic, so that no append waits for it.
struct PanicNotice(Arc<WriteQueue>);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(JournalError::WriterGone);
        }
    }
}
