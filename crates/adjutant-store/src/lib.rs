//! The journal: append, read back, lock, checkpoint, prune.
//!
//! Owns everything Adjutant keeps on disk and knows nothing of what an event means: it is generic
//! over the event type, never asks the clock on its own account (callers say what time it is), and
//! never prints. One file per run is the truth, `journal.jsonl`; all else in a run's folder can be
//! rebuilt from it.
//!
//! Start at [`StateDir::open`], then [`StateDir::create_run`], [`RunDir::lock`] and
//! [`RunLock::create_journal`]. Readers need only [`RunDir::read_journal`]. Invariant: whatever
//! was reported durable is read back unchanged, or its damage is named.

mod checkpoint;
mod control_socket;
mod disk;
mod files;
mod holder_lock;
mod identity;
mod journal;
mod lock;
mod memory_disk;
mod prune;
mod reader;
mod record;
mod run_dir;
mod seal;
mod shared_log;
mod space_reserve;
mod state_dir;
mod writer;
mod writer_process;

pub use control_socket::ControlSocket;
pub use disk::{Disk, FileDisk};
pub use files::{FileError, ensure_private_dir, open_private, open_private_existing};
pub use holder_lock::HolderLock;
pub use identity::{BootInstant, CurrentTime};
pub use journal::{Durability, Journal, JournalError};
pub use lock::{Liveness, LockError, OpenJournalError, RunLock};
pub use memory_disk::MemoryDisk;
pub use prune::{PruneVerdict, Retention, prune_run};
pub use reader::{JournalReader, JournalTail, ReadError, RecordDamage, read_from, read_journal};
pub use record::{FORMAT, JournalPosition, JournalRecord, MAX_RECORD_BYTES, RecordNumber};
pub use run_dir::{JournalStamp, RunDir};
pub use shared_log::{LockedLog, SharedLog, SharedLogError};
pub use space_reserve::SpaceAllocator;
pub use state_dir::{FindRunError, StateDir, StateDirError};
pub use writer_process::{KillError, WriterProcess};
