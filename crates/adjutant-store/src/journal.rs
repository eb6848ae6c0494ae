//! Appends records to a journal.
//!
//! Serialises records on the caller's thread and passes batches to a writer thread (see `writer`), so
//! the caller does not wait for the disk. Callers choose the [`Durability`] of each record and wait for
//! the report that it is durable.
//!
//! Start at [`Journal::append`]. Invariant: after the first failed write or sync nothing more is written,
//! and every later call returns that error.
//!
//! A [`Journal`] is open for writing. [`JournalError`] says why a record was not written, and
//! `WriteThread` which thread writes.

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

/// Whether a record must survive a power failure before the caller acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch with the record is synced, then reported as durable.
    Sync,
    /// Written at once, but synced and reported only with the next record that asks for a sync.
    Lazy,
}

/// Why a record could not be written.
///
/// Cloneable because the same error is reported once and then returned by every later call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk is full, or a quota or file size limit is reached.
    #[error("no space left for the journal")]
    DiskFull(#[source] Arc<io::Error>),
    /// Writing failed for another reason.
    #[error("cannot write the journal")]
    Write(#[source] Arc<io::Error>),
    /// The records were written, but it is unknown which of them are on disk.
    #[error("cannot sync the journal")]
    Sync(#[source] Arc<io::Error>),
    /// The event cannot be represented as JSON. Nothing was written; the journal stays usable.
    #[error("cannot serialise the event")]
    Serialize(#[source] Arc<serde_json::Error>),
    /// The record exceeds [`MAX_RECORD_BYTES`]. Nothing was written; the journal stays usable.
    #[error("record of {bytes} bytes exceeds the limit of {max}", max = MAX_RECORD_BYTES)]
    TooLarge {
        /// The length of the line.
        bytes: usize,
    },
    /// The writer thread panicked, because the `report` callback did.
    #[error("the thread that writes the journal ended unexpectedly")]
    WriterGone,
}

impl JournalError {
    /// Returns whether the journal accepts no more records after this error.
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
        // File systems with delayed allocation report a full disk only here.
        if is_full(&error) { Self::DiskFull(error.into()) } else { Self::Sync(error.into()) }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The only writer of a run's journal.
pub struct Journal<E> {
    queue: Arc<WriteQueue>,
    staged: RecordBatch,
    position: JournalPosition,
    reserve: SpaceReserve,
    thread: WriteThread,
    event: PhantomData<fn(&E)>,
}

/// The thread that writes and syncs.
enum WriteThread {
    /// The writer thread; `None` after it was joined.
    Dedicated(Option<JoinHandle<()>>),
    /// The caller's thread, within [`Journal::submit`].
    Caller(Box<dyn FnMut() + Send>),
}

impl<E: Serialize> Journal<E> {
    /// Starts writing at `position`, which must be the end of `disk`.
    ///
    /// `report` is called on the writer thread: after each sync with the last durable record, and once with
    /// the error after which the writer stops. It should be quick and must not close the journal.
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

    /// Like [`Journal::start`], but writes, syncs and reports within [`Journal::submit`].
    ///
    /// For simulated time: the simulated clock advances when all tasks are idle, and it cannot see that
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

    /// Appends one record and passes it to the writer.
    ///
    /// Returns the record's number before the record is durable; `report` says when it is. Blocks only
    /// when the queue is full because the disk is slow.
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

    /// Serialises one record; [`Journal::submit`] passes it to the writer.
    ///
    /// Records that are staged and submitted together, such as the events of one decision, cost one
    /// wake-up and one sync.
    pub fn stage(
        &mut self,
        at: Timestamp,
        wall_ms: u64,
        event: &E,
        durability: Durability,
    ) -> Result<RecordNumber, JournalError> {
        self.stage_record(at, wall_ms, event, durability, GroupMark::Ends)
    }

    /// Like [`Journal::stage`], for a record that is valid only together with the next one: if the
    /// journal ends between the two, readers see neither.
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

    /// Passes all staged records to the writer.
    pub fn submit(&mut self) -> Result<(), JournalError> {
        self.queue.submit(&mut self.staged)?;
        if let WriteThread::Caller(write) = &mut self.thread {
            write();
        }
        Ok(())
    }

    /// Reserves disk space for `bytes` beyond the staged records. Fails if the disk is full.
    ///
    /// Cheap, because each system call reserves space for many later calls.
    pub fn ensure_space(&mut self, bytes: u64) -> Result<(), JournalError> {
        self.reserve.ensure(self.position.offset, bytes).map_err(JournalError::write)
    }

    /// Discards the records staged after `position`, none of which may have been submitted.
    pub fn unstage(&mut self, position: JournalPosition) {
        let bytes = self.position.offset.saturating_sub(position.offset);
        let kept = (self.staged.bytes.len() as u64).saturating_sub(bytes);
        self.staged.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.staged.last = position.seq;
        self.position = position;
    }

    /// Returns the position after the last staged record.
    #[must_use]
    pub const fn position(&self) -> JournalPosition {
        self.position
    }

    /// Writes and syncs all remaining records, joins the writer thread, and returns the end of the journal.
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
        // Any failure was already passed to the `report` callback.
        let _ = self.finish();
    }
}
