//! Reading runs from their files: any process can do so, whether or not the run is live.
//!
//! Start at [`Archive::find`] for one run and at [`RunFiles`] for its journal. Except for [`RunFiles::append`] and
//! [`Archive::prune`], nothing here writes to a journal.

pub(crate) mod journal_follower;
pub(crate) mod offline_cancel;
mod read_ahead;
pub(crate) mod run_summaries;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::{Event, RunId, SessionId, Timestamp};
use adjutant_store::{
    CurrentTime, Durability, FileError, FindRunError, JournalError, JournalPosition, JournalReader,
    JournalRecord, JournalStamp, JournalTail, LockError, OpenJournalError, PruneVerdict, ReadError,
    Retention, RunDir, StateDir, StateDirError, WriterLiveness, open_private, prune_run,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::archive::journal_follower::JournalFollower;
use crate::archive::read_ahead::visit_records;
use crate::engine::storage::Storage;
use crate::error_chain::error_chain;
use crate::registry::RegistryHandle;
use crate::runner::clock::wall_now;

/// Why a run's files cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] StateDirError),
    /// No run has this id, or several have an id that starts like this.
    #[error(transparent)]
    Find(FindRunError),
    /// No run contains this session.
    #[error("no run has the session {0}")]
    NoSession(SessionId),
    /// Several session ids start with this text.
    #[error("`{text}` matches {count} sessions: {candidates}")]
    Ambiguous {
        /// The text.
        text: String,
        /// How many sessions match.
        count: usize,
        /// The first matching ids, joined by commas.
        candidates: String,
    },
    /// The journal cannot be read.
    #[error("{run}: the journal cannot be read")]
    Read {
        /// The run.
        run: RunId,
        /// Why.
        source: ReadError,
    },
    /// A live process has locked the run, so no other process may append to its journal.
    #[error("{0} is still running; only its own process may write to it")]
    Live(RunId),
    /// The run's content was pruned, so the run cannot be continued.
    #[error("{0}: not resumable (expired)")]
    Expired(RunId),
    /// A record could not be appended.
    #[error("{run}: the journal cannot be written")]
    Write {
        /// The run.
        run: RunId,
        /// Why.
        source: JournalError,
    },
    /// A file of the run cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<FindRunError> for ArchiveError {
    fn from(error: FindRunError) -> Self {
        match error {
            // The state directory itself cannot be read, so the searched id does not matter.
            FindRunError::File(error) => Self::File(error),
            FindRunError::NoRuns
            | FindRunError::Unknown { .. }
            | FindRunError::Ambiguous { .. } => Self::Find(error),
        }
    }
}

/// Whether a process has a run locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLiveness {
    /// A process has locked it.
    Live {
        /// The process id; unknown for a process in another pid namespace.
        pid: Option<u32>,
    },
    /// No process has locked it.
    Dead,
}

/// Whether a run's content has been pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Everything that was recorded is still there.
    Kept,
    /// Only metadata and costs are left.
    Expired,
}

/// What pruning did to one run.
#[derive(Debug)]
pub enum PruneOutcome {
    /// Its content was removed.
    Expired {
        /// The bytes that became free.
        bytes: u64,
    },
    /// Its journal was never started; its directory was removed.
    Removed,
    /// It was not changed: it is too recent, live, or was pruned before.
    Kept,
    /// It was not changed because of this error.
    Failed(String),
}

/// The runs of one state directory.
#[derive(Clone, Debug)]
pub struct Archive {
    path: PathBuf,
    home: StateDir,
    registry: RegistryHandle,
}

impl Archive {
    /// Opens the state directory and creates it if it is missing.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let (home, registry) = (StateDir::open(path)?, RegistryHandle::at(path));
        Ok(Self { path: path.to_owned(), home, registry })
    }

    /// Returns the registry of this state directory. All clones of the archive share one holder.
    #[must_use]
    pub const fn registry(&self) -> &RegistryHandle {
        &self.registry
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the mode the directory had before it was opened, if other users could read it. Opening it set 0700.
    #[must_use]
    pub const fn open_before(&self) -> Option<u32> {
        self.home.previous_mode()
    }

    /// Returns the storage for new runs of this directory.
    #[must_use]
    pub fn storage(&self) -> Storage {
        Storage::Home(self.home.clone())
    }

    /// Returns every run, the newest first.
    pub fn runs(&self) -> Result<Vec<RunFiles>, ArchiveError> {
        let ids = self.home.list_runs()?;
        Ok(ids.into_iter().map(|id| RunFiles { folder: self.home.run(id) }).collect())
    }

    /// Writes a file derived from all runs, such as `errors.json`, atomically.
    pub fn write_projection(
        &self,
        name: &'static str,
        bytes: &[u8],
    ) -> Result<PathBuf, ArchiveError> {
        Ok(self.home.write_projection(name, bytes)?)
    }

    /// Writes and removes a small file to find out whether runs can be stored.
    pub fn probe(&self) -> Result<(), ArchiveError> {
        Ok(self.home.probe()?)
    }

    /// Finds a run by its id, the word `latest`, or a session it contains. The start of an id is enough.
    pub fn find(&self, text: &str) -> Result<(RunFiles, Option<SessionId>), ArchiveError> {
        if let Ok(session) = text.parse::<SessionId>() {
            return Ok((self.holder(session)?, Some(session)));
        }
        if text.strip_prefix("sess_").is_some_and(|rest| !rest.is_empty()) {
            return self.holder_of_start(text);
        }
        Ok((RunFiles { folder: self.home.find(text)? }, None))
    }

    /// Finds the one session whose id begins with `text`, and its run.
    fn holder_of_start(&self, text: &str) -> Result<(RunFiles, Option<SessionId>), ArchiveError> {
        let mut fitting: Vec<(SessionId, RunFiles)> = Vec::new();
        for run in self.runs()? {
            // An unreadable run must not hide a match in another run.
            let records = run.records().into_iter().flatten().map_while(Result::ok);
            let recorded = records.filter_map(|record| record.event.session());
            let mut sessions: Vec<SessionId> = recorded.chain([run.id().root_session()]).collect();
            sessions.sort_unstable();
            sessions.dedup();
            sessions.retain(|session| session.to_string().starts_with(text));
            fitting.extend(sessions.into_iter().map(|session| (session, run.clone())));
        }
        match fitting.as_slice() {
            [(session, run)] => Ok((run.clone(), Some(*session))),
            // The store has the error for an id that matches nothing.
            [] => Ok((RunFiles { folder: self.home.find(text)? }, None)),
            several => {
                let named = several.iter().take(CANDIDATES).map(|(session, _)| session.to_string());
                let mut named: Vec<String> = named.collect();
                if several.len() > CANDIDATES {
                    named.push("…".to_owned());
                }
                let (text, count) = (text.to_owned(), several.len());
                Err(ArchiveError::Ambiguous { text, count, candidates: named.join(", ") })
            }
        }
    }

    /// Finds the run that contains a session.
    ///
    /// A session starts after its run, so runs older than the session are searched first, newest first.
    /// The others are searched too, because the clock may have been set back.
    fn holder(&self, session: SessionId) -> Result<RunFiles, ArchiveError> {
        self.holder_among(session, |_| true)
    }

    /// Finds the run that contains a session. Only runs for which `is_wanted` returns true are opened.
    pub fn holder_among(
        &self,
        session: SessionId,
        is_wanted: impl Fn(&RunFiles) -> bool,
    ) -> Result<RunFiles, ArchiveError> {
        let wanted = self.runs()?.into_iter().filter(is_wanted);
        let is_older = |run: &RunFiles| run.id().stamp() <= session.stamp();
        let (older, newer): (Vec<_>, Vec<_>) = wanted.partition(is_older);
        for run in older.into_iter().chain(newer) {
            let holds = |record: &JournalRecord<Event>| record.event.session() == Some(session);
            // An unreadable run must not hide the one that contains the session.
            let found = || {
                run.records()
                    .is_ok_and(|mut records| records.any(|record| record.as_ref().is_ok_and(holds)))
            };
            if run.id().root_session() == session || found() {
                return Ok(run);
            }
        }
        Err(ArchiveError::NoSession(session))
    }

    /// Prunes old runs if that was not done in the last 24 hours. Errors are ignored.
    pub fn prune_daily(&self) {
        let marker = self.path.join("pruned");
        let age =
            std::fs::metadata(&marker).and_then(|marker| marker.modified()).map(|at| at.elapsed());
        // `elapsed` fails for a time in the future: a clock that was set back must not stop pruning.
        if matches!(age, Ok(Ok(age)) if age < PRUNE_EVERY) {
            return;
        }
        let marked = open_private(&marker).and_then(|file| file.set_modified(SystemTime::now()));
        // Best effort: the next daily prune tries again.
        let _ = marked.map(|()| self.prune(None));
    }

    /// Removes the content of ended runs that are older than `days`, or older than the retention of each
    /// run's own policy.
    pub fn prune(&self, days: Option<u32>) -> Result<Vec<(RunId, PruneOutcome)>, ArchiveError> {
        let now = CurrentTime::read();
        let mut swept = Vec::new();
        for run in self.runs()? {
            let days = days.unwrap_or_else(|| run.retention_days());
            let retention = Retention { now: now.clone(), days };
            let strip = |event: &Event| Some(event.without_content());
            let verdict = prune_run::<Event>(&self.home, run.id(), &retention, &strip);
            swept.push((run.id(), PruneOutcome::of(verdict)));
        }
        Ok(swept)
    }
}

impl PruneOutcome {
    fn of(verdict: PruneVerdict) -> Self {
        match verdict {
            PruneVerdict::Expired { journal_bytes, .. } => Self::Expired { bytes: journal_bytes },
            PruneVerdict::Removed => Self::Removed,
            PruneVerdict::AlreadyExpired | PruneVerdict::Fresh | PruneVerdict::Live => Self::Kept,
            PruneVerdict::Damaged(error) => Self::Failed(error_chain(&error)),
            PruneVerdict::Failed(error) => Self::Failed(error_chain(&error)),
        }
    }
}

/// The files of one run.
#[derive(Clone, Debug)]
pub struct RunFiles {
    pub(crate) folder: RunDir,
}

impl RunFiles {
    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.folder.id()
    }

    /// Returns the address of the runtime that decides the run; `None` for a run of this machine.
    #[must_use]
    pub fn runtime(&self) -> Option<String> {
        self.folder.runtime()
    }

    /// Returns whether the runtime was asked to continue the run, and its new end may be missing in the journal.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.folder.is_continued()
    }

    /// Returns the run's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the working tree of the run; `None` if its first record is missing or unreadable.
    #[must_use]
    pub fn workdir(&self) -> Option<PathBuf> {
        let first = self.records().ok().and_then(|mut records| records.next()?.ok());
        match first.map(|record| record.event) {
            Some(Event::RunStarted { workdir, .. }) => Some(PathBuf::from(workdir)),
            Some(_) | None => None,
        }
    }

    /// Returns the retention of the run's policy in days, or the default if its first record is unreadable.
    fn retention_days(&self) -> u32 {
        let first = self.records().ok().and_then(|mut records| records.next()?.ok());
        let days = match first.map(|record| record.event) {
            Some(Event::RunStarted { policy, .. }) => policy.retention_days,
            Some(_) | None => adjutant_core::Preset::Scout.policy().retention_days,
        };
        u32::try_from(days).unwrap_or(u32::MAX)
    }

    /// Returns the storage to resume this run.
    #[must_use]
    pub fn storage(&self) -> Storage {
        Storage::Run(self.folder.clone())
    }

    /// Returns whether a process has the run locked.
    pub fn liveness(&self) -> Result<RunLiveness, ArchiveError> {
        Ok(match self.folder.liveness()? {
            WriterLiveness::Live { pid } => RunLiveness::Live { pid },
            WriterLiveness::Dead | WriterLiveness::NeverLocked => RunLiveness::Dead,
        })
    }

    /// Returns the milliseconds since `wall_ms`, at which a record of a live run was written.
    ///
    /// The result is between zero and the time for which the run has been locked, even if the wall
    /// clock was set back or ahead.
    #[must_use]
    pub fn since(&self, wall_ms: u64) -> u64 {
        let now = CurrentTime::read();
        let held = self.folder.ms_since_lock_change(&now).unwrap_or(u64::MAX);
        now.wall_ms.saturating_sub(wall_ms).min(held)
    }

    /// Returns whether the content has been pruned.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        if self.folder.is_expired() { Expiry::Expired } else { Expiry::Kept }
    }

    /// Returns an iterator over the records. It ends before a record that is still being written.
    pub fn records(&self) -> Result<RunRecords, ArchiveError> {
        let run = self.id();
        let reader = self.journal().map_err(|source| ArchiveError::Read { run, source })?;
        Ok(RunRecords { run, reader })
    }

    /// Reads the journal to its end.
    pub fn read(&self) -> Result<LoadedJournal, ArchiveError> {
        // Taken before reading, so that a record written meanwhile counts as a change.
        let stamp = self.folder.journal_stamp();
        let mut reading = self.records()?;
        let records = reading.by_ref().collect::<Result<Vec<_>, _>>()?;
        let position = reading.reader.as_ref().map(JournalReader::position);
        Ok(LoadedJournal { records, torn: reading.torn_bytes(), end: position.zip(stamp) })
    }

    /// Returns whether nothing was recorded since `journal` was read.
    #[must_use]
    pub fn is_unchanged(&self, journal: &LoadedJournal) -> bool {
        self.folder.journal_stamp() == journal.end.map(|(_, stamp)| stamp)
    }

    /// Returns the storage to resume this run, with the journal that was read already.
    ///
    /// Resuming reads the journal again only if it has changed since.
    #[must_use]
    pub fn storage_read(&self, journal: LoadedJournal) -> Storage {
        Storage::Read(self.folder.clone(), journal)
    }

    /// Opens the journal. Returns `None` if the run's process died before it created one.
    fn journal(&self) -> Result<Option<JournalReader<Event>>, ReadError> {
        // If a file derived from the journal exists, the journal existed and was lost: that is an error.
        let never = || !LEFT_BY_JOURNALS.iter().any(|name| self.path().join(name).exists());
        match self.folder.read_journal() {
            Err(ReadError::File(error)) if error.io().kind() == ErrorKind::NotFound && never() => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Folds the journal into a state, starting from the checkpoint of that `version` if there is one.
    /// Writes a new checkpoint after reading many records.
    ///
    /// The returned [`JournalFollower`] reads what is recorded later.
    pub fn fold<T>(
        &self,
        version: u32,
        blank: impl FnOnce() -> T,
        mut visit: impl FnMut(&mut T, &JournalRecord<Event>),
    ) -> Result<(T, JournalFollower), ArchiveError>
    where
        T: Serialize + DeserializeOwned,
    {
        let run = self.id();
        let failed = |source| ArchiveError::Read { run, source };
        let saved = self.folder.load_checkpoint::<T>(version);
        let (mut reader, mut state, from) = match saved {
            Some((position, state)) => (
                self.folder.read_from::<Event>(position).map_err(failed)?,
                state,
                position.seq.get(),
            ),
            None => match self.journal().map_err(failed)? {
                Some(reader) => (reader, blank(), 0),
                None => return Ok((blank(), self.follow())),
            },
        };
        let bytes = self.folder.journal_bytes().saturating_sub(reader.position().offset);
        visit_records(&mut reader, bytes, |record| visit(&mut state, record)).map_err(failed)?;
        let position = reader.position();
        if position.seq.get() - from >= CHECKPOINT_AFTER {
            // Best effort: without a checkpoint the next reader starts at the first record.
            let _ = self.folder.save_checkpoint(version, position, &state);
        }
        Ok((state, JournalFollower::from(self.folder.clone(), position, torn_bytes_of(&reader))))
    }

    /// Appends one record to a run that is not live. The run is locked meanwhile.
    ///
    /// The record has the timestamp of the last one, because the run's own time stands still.
    pub fn append(&self, event: &Event) -> Result<(), ArchiveError> {
        let run = self.id();
        let lock = self.folder.lock().map_err(|error| match error {
            LockError::Held { .. } => ArchiveError::Live(run),
            LockError::File(error) => error.into(),
        })?;
        let mut latest = Timestamp::ZERO;
        let visit = |record: JournalRecord<Event>| latest = record.at;
        let (mut journal, _) =
            lock.resume_journal::<Event>(visit, drop).map_err(|error| match error {
                OpenJournalError::Expired => ArchiveError::Expired(run),
                OpenJournalError::Read(source) => ArchiveError::Read { run, source },
                OpenJournalError::File(error) => error.into(),
            })?;
        let failed = |source| ArchiveError::Write { run, source };
        journal.append(latest, wall_now(), event, Durability::Sync).map_err(failed)?;
        journal.close().map(drop).map_err(failed)
    }

    /// Reads the saved content of a file before a change, by its hash.
    pub(crate) fn kept_before(&self, hash: &str) -> std::io::Result<Vec<u8>> {
        self.folder.read_before_image(hash).map_err(|error| std::io::Error::from(error.io().kind()))
    }

    /// Writes a session's transcript atomically.
    pub fn write_transcript(&self, session: SessionId, json: &[u8]) -> Result<(), ArchiveError> {
        Ok(self.folder.write_transcript(session, json)?)
    }

    /// Writes a session's scratchpad atomically.
    pub fn write_scratch(&self, session: SessionId, text: &str) -> Result<(), ArchiveError> {
        Ok(self.folder.write_scratch(session, text.as_bytes())?)
    }
}

/// The most session ids that an error about an ambiguous id lists.
const CANDIDATES: usize = 8;

/// How often [`Archive::prune_daily`] prunes.
const PRUNE_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Files in a run's directory that exist only after something was recorded.
const LEFT_BY_JOURNALS: [&str; 4] = ["scratch", "transcripts", "checkpoint.json", "expired.json"];

/// An iterator over the records of a run's journal.
pub struct RunRecords {
    run: RunId,
    /// Absent if the run has no journal.
    reader: Option<JournalReader<Event>>,
}

impl RunRecords {
    /// Returns the length of an incomplete record at the end, in bytes. Known once the iterator has ended.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.reader.as_ref().map_or(0, torn_bytes_of)
    }
}

impl Iterator for RunRecords {
    type Item = Result<JournalRecord<Event>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.reader.as_mut()?.next()?;
        Some(record.map_err(|source| ArchiveError::Read { run: self.run, source }))
    }
}

pub(crate) fn torn_bytes_of(reader: &JournalReader<Event>) -> u64 {
    match reader.tail() {
        JournalTail::Clean => 0,
        JournalTail::Torn { bytes, .. } => bytes,
    }
}

/// All records of a journal, in memory.
#[derive(Debug)]
pub struct LoadedJournal {
    pub(crate) records: Vec<JournalRecord<Event>>,
    torn: u64,
    /// The end position, and the file's stamp from before it was read; absent if the run has no journal.
    pub(crate) end: Option<(JournalPosition, JournalStamp)>,
}

impl LoadedJournal {
    /// Returns the records.
    #[must_use]
    pub fn records(&self) -> &[JournalRecord<Event>] {
        &self.records
    }

    /// Returns the length of an incomplete record at the end, in bytes.
    #[must_use]
    pub const fn torn_bytes(&self) -> u64 {
        self.torn
    }
}

/// The records after which a checkpoint is written. Folding fewer again is cheaper than writing one.
const CHECKPOINT_AFTER: u64 = 500;
