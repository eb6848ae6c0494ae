//! The writing end of a journal.
//!
//! Serialises on the caller's thread into buffers that are used again and hands whole batches to
//! a thread of its own (see `writer`), so the caller never waits for the disk. It does not decide
//! what must be durable: callers say [`Durability`] with each record, and wait for the report.
//!
//! Start at [`Journal::append`]. Invariant: after the first failure nothing more is written, and
//! every later call returns that failure.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use adjutant_core::Timestamp;
use serde::Serialize;

use crate::disk::Disk;
use crate::record::{self, GroupMark, JournalPosition, MAX_RECORD_BYTES, RecordNumber};
use crate::space_reserve::SpaceReserve;
use crate::writer::{JournalWriter, RecordBatch, WriteQueue};

/// Says whether a record must survive a loss of power before anyone builds on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Synced with the batch it falls into, then reported.
    Sync,
    /// Written at once and synced with whatever comes next; not reported on its own.
    Lazy,
}

/// Says why a record could not be kept.
///
/// Cloneable because the same failure is reported once and then returned by every later call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk or the quota is full, or the file may not grow further.
    #[error("no space left for the journal")]
    DiskFull(#[source] Arc<io::Error>),
    /// Writing failed for another reason.
    #[error("cannot write the journal")]
    Write(#[source] Arc<io::Error>),
    /// The records were written, but nobody knows what of them is on the disk.
    #[error("cannot sync the journal")]
    Sync(#[source] Arc<io::Error>),
    /// The event has no JSON form. Nothing was written; the journal goes on.
    #[error("cannot serialise the event")]
    Serialize(#[source] Arc<serde_json::Error>),
    /// The record exceeds [`MAX_RECORD_BYTES`]. Nothing was written; the journal goes on.
    #[error("record of {bytes} bytes exceeds the limit of {max}", max = MAX_RECORD_BYTES)]
    TooLarge {
        /// The length the line would have had.
        bytes: usize,
    },
    /// The writing thread ended without a word: the report given to the journal panicked.
    #[error("the journal's writer is gone")]
    WriterGone,
}

impl JournalError {
    /// Says whether the journal takes no more records after this.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::DiskFull(_) | Self::Write(_) | Self::Sync(_) | Self::WriterGone => true,
            Self::Serialize(_) | Self::TooLarge { .. } => false,
        }
    }

    pub(crate) fn write(error: io::Error) -> Self {
        if is_full(&error) { Self::DiskFull(error.into()) } else { Self::Write(error.into()) }
    }

    pub(crate) fn sync(error: io::Error) -> Self {
        // File systems that allocate late find out here that there is no room.
        if is_full(&error) { Self::DiskFull(error.into()) } else { Self::Sync(error.into()) }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The one writer of a run's journal.
pub struct Journal<E> {
    queue: Arc<WriteQueue>,
    staged: RecordBatch,
    position: JournalPosition,
    reserve: SpaceReserve,
    thread: WriteThread,
    event: PhantomData<fn(&E)>,
}

/// Who writes.
enum WriteThread {
    /// A thread of its own, until it is joined.
    Dedicated(Option<JoinHandle<()>>),
    /// The caller, whenever it submits.
    Caller(Box<dyn FnMut() + Send>),
}

impl<E: Serialize> Journal<E> {
    /// Starts writing at `position`, which is the end of what `disk` holds.
    ///
    /// `report` is called on the writing thread: with the last durable record after each sync, and
    /// once with the error that ends it all. It should be quick, and must not close the journal.
    pub fn start(
        disk: impl Disk + 'static,
        position: JournalPosition,
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(WriteQueue::default());
        let reserve = SpaceReserve::new(disk.space_allocator(), position.offset);
        let writer = JournalWriter::new(disk, Arc::clone(&queue), position.offset, report);
        let thread = thread::Builder::new().name("journal".to_owned());
        let writer = thread.spawn(move || writer.run())?;
        Ok(Self::new(queue, position, reserve, WriteThread::Dedicated(Some(writer))))
    }

    /// Starts like [`Journal::start`], but writes, syncs and reports within [`Journal::submit`].
    ///
    /// For simulated time: a clock that jumps ahead when nothing is left to do cannot see that
    /// another thread is still writing.
    pub fn start_inline(
        disk: impl Disk + 'static,
        position: JournalPosition,
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> Self {
        let queue = Arc::new(WriteQueue::default());
        let reserve = SpaceReserve::new(disk.space_allocator(), position.offset);
        let mut writer = JournalWriter::new(disk, Arc::clone(&queue), position.offset, report);
        Self::new(
            queue,
            position,
            reserve,
            WriteThread::Caller(Box::new(move || writer.write_pending())),
        )
    }

    fn new(
        queue: Arc<WriteQueue>,
        position: JournalPosition,
        reserve: SpaceReserve,
        thread: WriteThread,
    ) -> Self {
        Self {
            queue,
            staged: RecordBatch::default(),
            position,
            reserve,
            thread,
            event: PhantomData,
        }
    }

    /// Appends one record and hands it to the disk.
    ///
    /// Returns the record's place, not its safety: that is reported. Waits only when the disk is
    /// so far behind that the queue is full.
    pub fn append(
        &mut self,
        at: Timestamp,
        wall_ms: u64,
        event: &E,
        durability: Durability,
    ) -> Result<RecordNumber, JournalError> {
        let seq = self.stage(at, wall_ms, event, durability)?;
        self.submit()?;
        Ok(seq)
    }

    /// Prepares one record without handing it over; [`Journal::submit`] does that.
    ///
    /// Records that are born together, as the events of one decision are, cost one wake-up and
    /// one sync when they are staged and submitted together.
    pub fn stage(
        &mut self,
        at: Timestamp,
        wall_ms: u64,
        event: &E,
        durability: Durability,
    ) -> Result<RecordNumber, JournalError> {
        self.stage_record(at, wall_ms, event, durability, GroupMark::Ends)
    }

    /// Prepares a record that counts only together with the next one: a reader who finds the
    /// journal cut between the two sees neither.
    pub fn stage_continued(
        &mut self,
        at: Timestamp,
        wall_ms: u64,
        event: &E,
        durability: Durability,
    ) -> Result<RecordNumber, JournalError> {
        self.stage_record(at, wall_ms, event, durability, GroupMark::Continues)
    }

    fn stage_record(
        &mut self,
        at: Timestamp,
        wall_ms: u64,
        event: &E,
        durability: Durability,
        group_mark: GroupMark,
    ) -> Result<RecordNumber, JournalError> {
        let start = self.staged.bytes.len();
        let after =
            record::encode(&mut self.staged.bytes, self.position, at, wall_ms, event, group_mark)
                .map_err(|error| JournalError::Serialize(error.into()))?;
        let bytes = self.staged.bytes.len() - start;
        if bytes > MAX_RECORD_BYTES {
            self.staged.bytes.truncate(start);
            return Err(JournalError::TooLarge { bytes });
        }
        self.position = after;
        self.staged.last = after.seq;
        self.staged.sync |= durability == Durability::Sync;
        Ok(after.seq)
    }

    /// Hands everything staged to the disk.
    pub fn submit(&mut self) -> Result<(), JournalError> {
        self.queue.submit(&mut self.staged)?;
        if let WriteThread::Caller(write) = &mut self.thread {
            write();
        }
        Ok(())
    }

    /// Makes sure that `bytes` more than what is staged can be written; the disk is full otherwise.
    ///
    /// Cheap: the disk is asked once in a while for much more than is needed now.
    pub fn ensure_space(&mut self, bytes: u64) -> Result<(), JournalError> {
        self.reserve.ensure(self.position.offset, bytes).map_err(JournalError::write)
    }

    /// Takes back what was staged behind `position`, none of which may have been submitted.
    pub fn unstage(&mut self, position: JournalPosition) {
        let bytes = self.position.offset.saturating_sub(position.offset);
        let kept = (self.staged.bytes.len() as u64).saturating_sub(bytes);
        self.staged.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.staged.last = position.seq;
        self.position = position;
    }

    /// Returns the place after the last staged record.
    #[must_use]
    pub const fn position(&self) -> JournalPosition {
        self.position
    }

    /// Writes and syncs what is left, ends the thread, and returns where the journal ends.
    pub fn close(mut self) -> Result<JournalPosition, JournalError> {
        self.finish()?;
        Ok(self.position)
    }
}

impl<E> Journal<E> {
    fn finish(&mut self) -> Result<(), JournalError> {
        let submitted = self.queue.submit(&mut self.staged);
        let joined = match &mut self.thread {
            WriteThread::Caller(write) => {
                write();
                Ok(())
            }
            WriteThread::Dedicated(thread) => {
                let Some(thread) = thread.take() else { return Ok(()) };
                self.queue.close();
                thread.join().map_err(|_panic| JournalError::WriterGone)
            }
        };
        submitted.and(joined).and_then(|()| self.queue.failure().map_or(Ok(()), Err))
    }
}

impl<E> fmt::Debug for Journal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<E> Drop for Journal<E> {
    fn drop(&mut self) {
        // Nobody is left to tell; the report has already heard of any failure.
        let _ = self.finish();
    }
}
