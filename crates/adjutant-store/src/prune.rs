//! Pruning: removes the content of old runs and keeps their metadata, such as costs.
//!
//! An expired run loses its transcripts, scratchpads, projections and checkpoint, and its journal is
//! rewritten without content; the caller decides what counts as content. The marker `expired.json` is written
//! before anything is removed and completed afterwards, so that the next prune finishes an interrupted one.
//!
//! Start at [`prune_run`]. Invariant: the content of a run that is live, damaged, or young by any clock stays;
//! the directory of a run without records is removed.
//!
//! A [`PruneVerdict`] says what was done with one run, `PruneStop` why nothing was done, and
//! [`Retention`] how long content is kept.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use adjutant_core::RunId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext, TEMP_SUFFIX};
use crate::identity::CurrentTime;
use crate::lock::{self, LockError, WriterLiveness};
use crate::reader::ReadError;
use crate::record::{self, GroupMark, JournalPosition};
use crate::run_dir::{CONTENT_DIRS, RunDir};
use crate::state_dir::StateDir;

/// The age at which a temporary file is considered left over from a crash.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// The format version of the marker file `expired.json`.
const MARKER_FORMAT: u32 = 1;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How long content is kept, and the current time.
#[derive(Clone, Debug)]
pub struct Retention {
    /// The current time.
    pub now: CurrentTime,
    /// The age in days at which a run's content is removed. Inclusive; 0 removes the content of every ended run.
    pub days: u32,
}

/// What pruning did with one run.
#[derive(Debug)]
pub enum PruneVerdict {
    /// Its content was removed.
    Expired {
        /// By how many bytes the journal shrank.
        journal_bytes: u64,
    },
    /// Its content had been removed earlier.
    AlreadyExpired,
    /// It had no records; its directory was removed.
    Removed,
    /// It is too young by at least one clock.
    Fresh,
    /// A process holds its lock.
    Live,
    /// Its journal cannot be read. It was left unchanged for the user to inspect.
    Damaged(ReadError),
    /// A file could not be changed. The next prune tries again.
    Failed(FileError),
}

/// Removes the content of a run that is older than the retention.
///
/// `strip` returns an event without its content, or `None` to drop the record. A run's age is the age of
/// its newest record or of its journal file, whichever is younger; a time in the future counts as young.
/// A wall clock that jumped ahead would make every run old, so a run that was locked since the last boot
/// must also be old by the boot clock, which no user can set.
pub fn prune_run<E: Serialize + DeserializeOwned>(
    home: &StateDir,
    id: RunId,
    retention: &Retention,
    strip: &impl Fn(&E) -> Option<E>,
) -> PruneVerdict {
    try_prune(&home.run(id), retention, strip).unwrap_or_else(PruneStop::verdict)
}

/// Why pruning stopped and left the run unchanged.
enum PruneStop {
    Held,
    Read(ReadError),
    File(FileError),
}

impl PruneStop {
    fn verdict(self) -> PruneVerdict {
        match self {
            Self::Held => PruneVerdict::Live,
            Self::Read(error) => PruneVerdict::Damaged(error),
            Self::File(error) => PruneVerdict::Failed(error),
        }
    }
}

impl From<FileError> for PruneStop {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<ReadError> for PruneStop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::File(error) => Self::File(error),
            ReadError::Io(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Unknown { .. }
            | ReadError::TooShort { .. } => Self::Read(error),
        }
    }
}

impl From<LockError> for PruneStop {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { .. } => Self::Held,
            LockError::File(error) => Self::File(error),
        }
    }
}

/// The content of `expired.json`, which marks a run whose content is or was being removed.
#[derive(Serialize, Deserialize)]
struct ExpiryMarker {
    v: u32,
    /// When the run was found to be expired, in Unix milliseconds.
    wall: u64,
    /// Whether all content was removed.
    done: bool,
}

fn try_prune<E: Serialize + DeserializeOwned>(
    run: &RunDir,
    retention: &Retention,
    strip: &impl Fn(&E) -> Option<E>,
) -> Result<PruneVerdict, PruneStop> {
    let marker = read_marker(run);
    if marker.as_ref().is_some_and(|marker| marker.done) {
        return Ok(PruneVerdict::AlreadyExpired);
    }
    if let WriterLiveness::Live { .. } = run.liveness()? {
        return Ok(PruneVerdict::Live);
    }
    if marker.is_none() && remove_without_records(run)? {
        return Ok(PruneVerdict::Removed);
    }
    // An interrupted prune has decided already, and the journal that it rewrote looks young.
    let was_judged = marker.is_some();
    let old = was_judged
        || (retention.is_past_by_boot_clock(run) && retention.is_past(modified_ms(run)?));
    if !old {
        remove_abandoned(run)?;
        return Ok(PruneVerdict::Fresh);
    }
    // The lock file must keep its last entry, which says when the run was last locked.
    let _lock = lock::lock_without_holder(run)?;
    let last_wall_ms = newest_record_ms::<E>(run)?;
    let both = last_wall_ms.max(modified_ms(run)?);
    if !was_judged && !retention.is_past(both) {
        return Ok(PruneVerdict::Fresh);
    }
    expire(run, retention, strip)
}

/// Removes the directory of a run whose process died before its first record, however young it is. Returns
/// whether it did.
fn remove_without_records(run: &RunDir) -> Result<bool, PruneStop> {
    if run.has_records() {
        return Ok(false);
    }
    // An empty directory may belong to a run that is just being created; its process then retries with another id.
    if fs::remove_dir(run.path()).is_ok() {
        return Ok(true);
    }
    let _lock = lock::lock_without_holder(run)?;
    Ok(run.remove_without_records()?)
}

/// Removes the content of a run, which must be locked, readable and old.
fn expire<E: Serialize + DeserializeOwned>(
    run: &RunDir,
    retention: &Retention,
    strip: &impl Fn(&E) -> Option<E>,
) -> Result<PruneVerdict, PruneStop> {
    write_marker(run, retention, false)?;
    let verdict = strip_journal(run, strip)?;
    for name in CONTENT_DIRS {
        let path = run.path().join(name);
        files::remove(&path).during("remove", &path)?;
    }
    files::remove(&run.checkpoint_path()).during("remove", &run.checkpoint_path())?;
    remove_leftovers(run.path())?;
    write_marker(run, retention, true)?;
    Ok(verdict)
}

impl Retention {
    /// Returns whether `wall_ms` is at least the retention time ago. Times in the future are not.
    fn is_past(&self, wall_ms: u64) -> bool {
        self.now.wall_ms.checked_sub(wall_ms).is_some_and(|age| age >= self.retention_ms())
    }

    /// Returns whether the run is old by the boot clock too, or was not locked since the last boot.
    fn is_past_by_boot_clock(&self, run: &RunDir) -> bool {
        run.ms_since_lock_change(&self.now).is_none_or(|age| age >= self.retention_ms())
    }

    fn retention_ms(&self) -> u64 {
        u64::from(self.days) * DAY_MS
    }
}

/// Reads the whole journal and returns the wall time of its newest record; 0 without a journal.
///
/// That need not be the last record: the clock may have been set back during the run.
fn newest_record_ms<E: DeserializeOwned>(run: &RunDir) -> Result<u64, PruneStop> {
    if !run.journal_path().exists() {
        return Ok(0);
    }
    let mut youngest = 0;
    for record in run.read_journal::<E>()? {
        youngest = record?.wall_ms.max(youngest);
    }
    Ok(youngest)
}

/// Rewrites the journal without content, with new record numbers and checksums.
fn strip_journal<E: Serialize + DeserializeOwned>(
    run: &RunDir,
    strip: &impl Fn(&E) -> Option<E>,
) -> Result<PruneVerdict, PruneStop> {
    let path = run.journal_path();
    if !path.exists() {
        return Ok(PruneVerdict::Expired { journal_bytes: 0 });
    }
    let before = fs::metadata(&path).during("examine", &path)?.len();
    let (temp, file) = files::create_temp(&path).during("replace", &path)?;
    let mut output = BufWriter::new(&file);
    let (mut line, mut end) = (Vec::new(), JournalPosition::start(run.id()));
    for record in run.read_journal::<E>()? {
        let record = record?;
        let Some(event) = strip(&record.event) else {
            continue;
        };
        line.clear();
        end = record::encode(&mut line, end, record.at, record.wall_ms, &event, GroupMark::Ends)
            .during("strip", &path)?;
        output.write_all(&line).during("write", &temp)?;
    }
    output.flush().during("write", &temp)?;
    drop(output);
    // Synced before the rename, so that a power failure leaves the old or the new journal intact.
    file.sync_all().during("sync", &temp)?;
    fs::rename(&temp, &path).during("replace", &path)?;
    files::sync_dir(run.path()).during("sync", run.path())?;
    Ok(PruneVerdict::Expired { journal_bytes: before.saturating_sub(end.offset) })
}

/// Removes all temporary files in a directory; the run must be locked.
fn remove_leftovers(folder: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).during("list", folder)? {
        let entry = entry.during("list", folder)?;
        if is_temporary(&entry) {
            files::remove(&entry.path()).during("remove", &entry.path())?;
        }
    }
    Ok(())
}

/// Removes old temporary files of a run whose content stays.
///
/// Other processes may be writing transcripts at this moment, which takes milliseconds. So only files older
/// than [`ABANDONED_AFTER`] are removed.
fn remove_abandoned(run: &RunDir) -> Result<(), FileError> {
    let folders = CONTENT_DIRS.map(|name| run.path().join(name));
    for folder in folders.iter().map(PathBuf::as_path).chain([run.path()]) {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.during("list", folder)?,
        };
        for entry in entries.flatten().filter(is_temporary) {
            let age = entry.metadata().and_then(|it| it.modified()).map(|at| at.elapsed());
            if matches!(age, Ok(Ok(age)) if age >= ABANDONED_AFTER) {
                files::remove(&entry.path()).during("remove", &entry.path())?;
            }
        }
    }
    Ok(())
}

fn is_temporary(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    name.starts_with('.') && name.ends_with(TEMP_SUFFIX)
}

/// Returns when the journal was last modified, or the run's directory if there is no journal.
fn modified_ms(run: &RunDir) -> Result<u64, FileError> {
    let metadata = match fs::metadata(run.journal_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::metadata(run.path()),
        other => other,
    };
    let modified =
        metadata.and_then(|metadata| metadata.modified()).during("examine", run.path())?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the marker. A marker that cannot be parsed counts as one of an interrupted prune.
fn read_marker(run: &RunDir) -> Option<ExpiryMarker> {
    let text = match fs::read(run.expired_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        other => other.unwrap_or_default(),
    };
    let unfinished = ExpiryMarker { v: MARKER_FORMAT, wall: 0, done: false };
    Some(serde_json::from_slice(&text).unwrap_or(unfinished))
}

fn write_marker(run: &RunDir, retention: &Retention, done: bool) -> Result<(), FileError> {
    let path = run.expired_path();
    let marker = ExpiryMarker { v: MARKER_FORMAT, wall: retention.now.wall_ms, done };
    let mut line = serde_json::to_vec(&marker).during("serialise", &path)?;
    line.push(b'\n');
    run.write(&path, &line)?;
    // Synced before anything is removed: a journal without content must never look resumable.
    files::sync_dir(run.path()).during("sync", run.path())
}
