//! The journal: append, read back, lock, checkpoint, prune.
//!
//! Owns everything Adjutant keeps on disk and knows nothing of what an event means: it is generic
//! over the event type, never asks the clock on its own account (callers say what time it is), and
//! never prints. One file per run is the truth, `journal.jsonl`; all else in a run's folder can be
//! rebuilt from it.
//!
//! Start at [`Home::open`], then [`Home::create_run`], [`RunDir::lock`] and
//! [`RunLock::create_journal`]. Readers need only [`RunDir::read_journal`]. Invariant: whatever
//! was reported durable is read back unchanged, or its damage is named.

mod checkpoint;
mod disk;
mod files;
mod holder;
mod holder_lock;
mod home;
mod identity;
mod journal;
mod lock;
mod memory;
mod prune;
mod reader;
mod record;
mod reserve;
mod run_dir;
mod seal;
mod shared_log;
mod socket;
mod writer;

pub use disk::{Disk, FileDisk};
pub use files::{FileError, ensure_private_dir, open_private, open_private_existing};
pub use holder::{KillError, RunWriter};
pub use holder_lock::HolderLock;
pub use home::{FindError, Home, HomeError};
pub use identity::{BootInstant, Now};
pub use journal::{Durability, Journal, JournalError};
pub use lock::{Liveness, LockError, OpenError, RunLock};
pub use memory::MemoryDisk;
pub use prune::{Retention, Verdict, prune_one};
pub use reader::{Damage, JournalReader, ReadError, Tail, read_from, read_journal};
pub use record::{FORMAT, MAX_RECORD_BYTES, Position, Record, Seq};
pub use reserve::Space;
pub use run_dir::{JournalStamp, RunDir};
pub use shared_log::{LockedLog, SharedLog, SharedLogError};
pub use socket::ControlSocket;
