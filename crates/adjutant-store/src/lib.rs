//! The journal: append, read back, lock, checkpoint, prune.
//!
//! Owns everything Adjutant stores on disk. It does not know what events mean: it is generic over
//! the event type, takes the current time from its callers, and never prints. `journal.jsonl` is
//! the only source of truth of a run; every other file in the run's directory can be rebuilt from it.
//!
//! Start at [`StateDir::open`], then [`StateDir::create_run`], [`RunDir::lock`] and
//! [`RunLock::create_journal`]. Readers need only [`RunDir::read_journal`]. Invariant: a record that
//! was reported durable is read back unchanged, or reading it fails with an error that names the record.

mod checkpoint;
mod control_socket;
mod disk;
mod files;
mod identity;
mod journal;
mod liveness_lock;
mod lock;
mod memory_disk;
mod prune;
mod reader;
mod record;
mod run_dir;
mod run_index;
mod seal;
mod shared_log;
mod space_reserve;
mod state_dir;
mod writer;
mod writer_process;

pub use control_socket::ControlSocket;
pub use disk::{Disk, FileDisk};
pub use files::{FileError, ensure_private_dir, open_private, open_private_existing};
pub use identity::{BootInstant, CurrentTime};
pub use journal::{Durability, Journal, JournalError};
pub use liveness_lock::LivenessLock;
pub use lock::{LockError, OpenJournalError, RunLock, WriterLiveness};
pub use memory_disk::MemoryDisk;
pub use prune::{PruneVerdict, Retention, prune_run};
pub use reader::{JournalReader, JournalTail, ReadError, RecordDamage, read_from, read_journal};
pub use record::{FORMAT, JournalPosition, JournalRecord, MAX_RECORD_BYTES, RecordNumber};
pub use run_dir::{JournalStamp, RunDir};
pub use run_index::RunIndexEntry;
pub use shared_log::{LOCK_TIMEOUT, LockedLog, SharedLog, SharedLogError};
pub use space_reserve::SpaceAllocator;
pub use state_dir::{FindRunError, StateDir, StateDirError};
pub use writer_process::{KillError, WriterProcess};
