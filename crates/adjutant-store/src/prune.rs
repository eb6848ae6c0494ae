//! Pruning: what was said goes after a while, what it cost stays.
//!
//! An expired run loses its transcripts, scratchpads, projections and checkpoint, and its journal
//! is rewritten with each event in the content-free form the caller gives. What counts as content
//! is the caller's to say. The marker `expired.json` appears before anything is removed and is
//! completed after everything is, so a prune that was cut short is taken up by the next one.
//!
//! Start at [`prune`]. Invariant: the content of a run that is live, fresh by any clock, or damaged is not touched;
//! a folder in which nothing ever began is removed.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use adjutant_core::RunId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext, TEMP_SUFFIX};
use crate::identity::CurrentTime;
use crate::lock::{self, Liveness, LockError};
use crate::reader::ReadError;
use crate::record::{self, GroupMark, JournalPosition};
use crate::run_dir::{CONTENT_DIRS, RunDir};
use crate::state_dir::StateDir;

/// How old a half-written replacement is that no process works on any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// The format of the marker.
const MARKER_FORMAT: u32 = 1;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How long content stays, and what time it is.
#[derive(Clone, Debug)]
pub struct Retention {
    /// The present, as the caller has it.
    pub now: CurrentTime,
    /// The age in days from which a run's content goes. Inclusive; with 0 every ended run's does.
    pub days: u32,
}

/// What became of one run.
#[derive(Debug)]
pub enum PruneVerdict {
    /// Its content is gone now.
    Expired {
        /// How much smaller the journal became.
        journal_bytes: u64,
    },
    /// Its content was gone before.
    AlreadyExpired,
    /// It never began and left nothing; its folder is gone now.
    Removed,
    /// It is too young, or some clock says so.
    Fresh,
    /// A writer holds it.
    Live,
    /// Its journal cannot be read, so it was left for a person to look at.
    Damaged(ReadError),
    /// A file could not be changed; the next prune tries again.
    Failed(FileError),
}

/// Removes the content of a run that is older than the retention.
///
/// `strip` returns an event without its content, or nothing to drop the record. A run's age is
/// that of its last record or of its file, whichever is younger; a time that lies ahead counts as
/// fresh. A wall clock that jumped ahead would make every run old, so a run last held since the
/// machine's boot must also be old by the clock that nobody can set.
pub fn prune_run<E: Serialize + DeserializeOwned>(
    home: &StateDir,
    id: RunId,
    retention: &Retention,
    strip: &impl Fn(&E) -> Option<E>,
) -> PruneVerdict {
    try_prune(&home.run(id), retention, strip).unwrap_or_else(PruneStop::verdict)
}

/// Why a run is left as it is.
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

/// What `expired.json` says.
#[derive(Serialize, Deserialize)]
struct ExpiryMarker {
    v: u32,
    /// When the run was judged to be expired, in Unix milliseconds.
    wall: u64,
    /// Whether everything that had to go is gone.
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
    if let Liveness::Live { .. } = run.liveness()? {
        return Ok(PruneVerdict::Live);
    }
    if marker.is_none() && remove_without_records(run)? {
        return Ok(PruneVerdict::Removed);
    }
    // A prune that was cut short has judged already, and the journal it wrote looks young.
    let was_judged = marker.is_some();
    let old = was_judged
        || (retention.is_past_by_boot_clock(run) && retention.is_past(modified_ms(run)?));
    if !old {
        remove_abandoned(run)?;
        return Ok(PruneVerdict::Fresh);
    }
    // Unnamed: the name in the lock file is the evidence of when the run was last held.
    let _lock = lock::lock_without_holder(run)?;
    let last_wall_ms = newest_record_ms::<E>(run)?;
    let both = last_wall_ms.max(modified_ms(run)?);
    if !was_judged && !retention.is_past(both) {
        return Ok(PruneVerdict::Fresh);
    }
    expire(run, retention, strip)
}

/// Removes the folder of a run that died before its first step, however young: there is nothing in
/// it to keep.
fn remove_without_records(run: &RunDir) -> Result<bool, PruneStop> {
    if run.has_records() {
        return Ok(false);
    }
    // One that is just being made is empty for a moment; whoever makes it then takes another.
    if fs::remove_dir(run.path()).is_ok() {
        return Ok(true);
    }
    let _lock = lock::lock_without_holder(run)?;
    Ok(run.remove_without_records()?)
}

/// Removes the content of a run that is locked, whole and old.
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
    /// Says whether `wall_ms` is so long ago that content goes. What lies ahead is not.
    fn is_past(&self, wall_ms: u64) -> bool {
        self.now.wall_ms.checked_sub(wall_ms).is_some_and(|age| age >= self.retention_ms())
    }

    /// Says whether the clock that nobody can set agrees, or has nothing to say.
    fn is_past_by_boot_clock(&self, run: &RunDir) -> bool {
        run.ms_since_lock_change(&self.now).is_none_or(|age| age >= self.retention_ms())
    }

    fn retention_ms(&self) -> u64 {
        u64::from(self.days) * DAY_MS
    }
}

/// Reads the whole journal; returns the wall time of its youngest record.
///
/// The youngest and not the last: the clock may have been set back while the run went on.
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

/// Replaces the journal by its content-free form, numbered and chained anew.
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
    // Durable before it takes the old one's place: a loss of power leaves one of the two.
    file.sync_all().during("sync", &temp)?;
    fs::rename(&temp, &path).during("replace", &path)?;
    files::sync_dir(run.path()).during("sync", run.path())?;
    Ok(PruneVerdict::Expired { journal_bytes: before.saturating_sub(end.offset) })
}

/// Removes half-written replacements, which a crash may have left.
fn remove_leftovers(folder: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).during("list", folder)? {
        let entry = entry.during("list", folder)?;
        if is_temporary(&entry) {
            files::remove(&entry.path()).during("remove", &entry.path())?;
        }
    }
    Ok(())
}

/// Removes replacements that a kill left half-written in a run whose content stays.
///
/// Other processes may render transcripts at this moment, which takes milliseconds: only what is older than
/// [`ABANDONED_AFTER`] goes.
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

/// Returns when the journal was last written, or the folder changed where there is none.
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

/// Reads the marker. One that cannot be read counts as unfinished: the run was judged.
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
    // Durable before anything is removed: a stripped journal must never look resumable.
    files::sync_dir(run.path()).during("sync", run.path())
}
