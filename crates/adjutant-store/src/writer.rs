//! The writer thread of a journal, and its queue.
//!
//! The thread takes all queued records as one batch: one write, and one sync if any record in it asks
//! for one (group commit). It never waits for more records to join a batch. It handles bytes, not events.
//!
//! Invariant: after a failed write or sync the thread truncates the incomplete record and stops.
//!
//! `JournalWriter` does the writing, `WriteQueue` connects it to the caller, a `RecordBatch` is
//! what it writes at once, and `PanicNotice` makes waiting callers fail if the thread panics.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::disk::Disk;
use crate::journal::JournalError;
use crate::record::RecordNumber;

/// How many bytes may be queued before an append blocks.
///
/// The engine waits for durability before it acts, so a queue this long means that the disk hangs, and
/// queueing more would only lose more in a crash. A larger record is accepted when the queue is empty.
const QUEUE_BYTES: usize = 16 << 20;

/// Buffers are shrunk to this size before they are reused for the next batch.
const MAX_KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Serialised records to be written together.
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

    /// Moves the records of `later` to the end of this batch. Swaps the buffers if this one is empty.
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

/// The queue between the caller's thread and the writer thread.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    room: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: RecordBatch,
    // `notify_one` is a system call even if no thread waits, so each side records that it waits.
    writer_waits: bool,
    caller_waits: bool,
    closing: bool,
    failed: Option<JournalError>,
}

impl WriteQueue {
    /// Appends `staged` to the queue and clears it. Blocks while the queue is full.
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

    /// Tells the writer that no more records will be submitted.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Returns the error that stopped the writer, if any.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.lock().failed.clone()
    }

    fn fail(&self, error: JournalError) {
        self.lock().failed = Some(error);
        self.room.notify_one();
    }

    /// Waits for records and takes all of them. Returns `false` once the queue is closed and empty.
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

    /// Takes all queued records without waiting. Returns `false` if there are none.
    fn take_pending(&self, batch: &mut RecordBatch) -> bool {
        let mut state = self.lock();
        batch.append_from(&mut state.pending);
        !batch.bytes.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Only this module's code runs under the lock, and it leaves the state consistent at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn is_full_for(&self, staged: &RecordBatch) -> bool {
        let waiting = self.pending.bytes.len();
        self.failed.is_none() && waiting > 0 && waiting + staged.bytes.len() > QUEUE_BYTES
    }
}

/// Writes queued records to the disk; owned by the writer thread.
pub(crate) struct JournalWriter<D, R> {
    disk: D,
    queue: Arc<WriteQueue>,
    report: R,
    written: u64,
    synced: u64,
}

impl<D: Disk, R: FnMut(Result<RecordNumber, JournalError>)> JournalWriter<D, R> {
    /// Prepares to write after the first `len` bytes of `disk`.
    pub(crate) fn new(disk: D, queue: Arc<WriteQueue>, len: u64, report: R) -> Self {
        Self { disk, queue, report, written: len, synced: len }
    }

    /// Writes records until the queue is closed or the disk fails.
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
            // Best effort: space that stays allocated is used when the run is resumed.
            Ok(()) => drop(self.disk.free_unused_space(self.written)),
            Err(error) => self.fail(error),
        }
    }

    /// Writes and syncs all queued records on the calling thread.
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
            // Earlier records are complete, and no record of this batch was reported.
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
            // After a failed sync Linux marks the lost pages clean: they read back fine until the next
            // power failure. A resumed run that appended after them could then find a hole in its
            // journal, so everything that was never durable is truncated.
            self.truncate_best_effort(self.synced);
            return Err(JournalError::sync(error));
        }
        self.synced = self.written;
        Ok(())
    }

    /// Truncates the records that may not be on disk.
    fn truncate_best_effort(&mut self, len: u64) {
        // Best effort on a disk that has just failed. An incomplete record that stays is a torn tail;
        // a complete one is valid, only not known to be durable.
        let _ = self.disk.truncate(len);
    }

    fn fail(&mut self, error: JournalError) {
        // Set the state before reporting, so that the receiver of the report finds the journal closed.
        self.queue.fail(error.clone());
        (self.report)(Err(error));
    }
}

/// Fails the queue when the writer thread panics, so that no append blocks for ever.
struct PanicNotice(Arc<WriteQueue>);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(JournalError::WriterGone);
        }
    }
}
