//! Reading what ran: by any process, at any time, from the files alone.

pub(crate) mod journal_follower;
pub(crate) mod offline_cancel;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::{Event, RunId, SessionId, Timestamp};
use adjutant_store::{
    Durability, FileError, FindError, Home, HomeError, JournalError, JournalReader, JournalStamp,
    Liveness, LockError, Now, OpenError, Position, ReadError, Record, Retention, RunDir, Tail,
    Verdict, open_private, prune_one,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::archive::journal_follower::JournalFollower;
use crate::engine::storage::Storage;
use crate::error_chain::error_chain;
use crate::registry::RegistryHandle;
use crate::runner::clock::wall_now;

/// Says why something that ran cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// No run is called that.
    #[error(transparent)]
    Find(FindError),
    /// No run holds that session.
    #[error("no run holds the session {0}")]
    NoSession(SessionId),
    /// Several sessions begin like that.
    #[error("`{text}` may be any of {count} sessions: {candidates}")]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// How many sessions fit.
        count: usize,
        /// Some of them.
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
    /// Somebody works on the run, so nobody else may write to it.
    #[error("{0} goes on; only its own process may write to it")]
    Live(RunId),
    /// The run's content was pruned, so nothing can be added to it.
    #[error("{0}: not resumable (expired)")]
    Expired(RunId),
    /// A record could not be added.
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

impl From<FindError> for ArchiveError {
    fn from(error: FindError) -> Self {
        match error {
            // The directory cannot be read, whatever was looked for in it.
            FindError::File(error) => Self::File(error),
            FindError::NoRuns | FindError::Unknown { .. } | FindError::Ambiguous { .. } => {
                Self::Find(error)
            }
        }
    }
}

/// Whether somebody is writing a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLiveness {
    /// A process holds it.
    Live {
        /// Its id, where it can be known.
        pid: Option<u32>,
    },
    /// Nobody does.
    Dead,
}

/// Whether a run's content is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// All of it.
    Kept,
    /// Only metadata and cost.
    Expired,
}

/// What pruning did to one run.
#[derive(Debug)]
pub enum PruneOutcome {
    /// Its content was removed; so many bytes became free.
    Expired {
        /// Bytes.
        bytes: u64,
    },
    /// It never began; its folder was removed.
    Removed,
    /// It was left alone: fresh, live or expired before.
    Kept,
    /// It was left alone because something is wrong with it.
    Failed(String),
}

/// The runs of one state directory.
#[derive(Clone, Debug)]
pub struct Archive {
    path: PathBuf,
    home: Home,
    registry: RegistryHandle,
}

impl Archive {
    /// Opens the state directory, making it when it is missing.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let (home, registry) = (Home::open(path)?, RegistryHandle::at(path));
        Ok(Self { path: path.to_owned(), home, registry })
    }

    /// Returns what outlives the runs of this directory. All clones of the archive share one holder.
    #[must_use]
    pub const fn registry(&self) -> &RegistryHandle {
        &self.registry
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the mode that the directory had when it was opened, where others could look into it; it is 0700 now.
    #[must_use]
    pub const fn open_before(&self) -> Option<u32> {
        self.home.open_before()
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

    /// Writes a projection over all runs, such as `errors.json`, whole or not at all.
    pub fn write_projection(
        &self,
        name: &'static str,
        bytes: &[u8],
    ) -> Result<PathBuf, ArchiveError> {
        Ok(self.home.write_projection(name, bytes)?)
    }

    /// Writes and removes a small file, which tells whether a run could be kept.
    pub fn probe(&self) -> Result<(), ArchiveError> {
        Ok(self.home.probe()?)
    }

    /// Finds a run by its id, the word `latest`, or a session it holds; ids by their start as well.
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
            // What cannot be read must not hide what can.
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
            // The store says it as it does of any name that fits nothing.
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

    /// A session is made after its run began, so older runs are asked first, the newest of them
    /// before the others; the clock may have been set back in between, so all are asked.
    fn holder(&self, session: SessionId) -> Result<RunFiles, ArchiveError> {
        self.holder_among(session, |_| true)
    }

    /// Finds the run that holds a session among those that are wanted; no other is opened.
    pub fn holder_among(
        &self,
        session: SessionId,
        is_wanted: impl Fn(&RunFiles) -> bool,
    ) -> Result<RunFiles, ArchiveError> {
        let wanted = self.runs()?.into_iter().filter(is_wanted);
        let is_older = |run: &RunFiles| run.id().stamp() <= session.stamp();
        let (older, newer): (Vec<_>, Vec<_>) = wanted.partition(is_older);
        for run in older.into_iter().chain(newer) {
            let holds = |record: &Record<Event>| record.event.session() == Some(session);
            // A neighbour that cannot be read must not hide the run that can.
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

    /// Removes the content of old runs if nobody has done so for a day; quiet about what it finds.
    pub fn prune_daily(&self) {
        let marker = self.path.join("pruned");
        let age =
            std::fs::metadata(&marker).and_then(|marker| marker.modified()).map(|at| at.elapsed());
        // A time in the future is no age: a clock that jumped back must not stop the cleaning.
        if matches!(age, Ok(Ok(age)) if age < PRUNE_EVERY) {
            return;
        }
        let marked = open_private(&marker).and_then(|file| file.set_modified(SystemTime::now()));
        // What cannot be cleaned today is cleaned another day; the run itself went well.
        let _ = marked.map(|()| self.prune(None));
    }

    /// Removes the content of runs older than `days`, or than each run's own policy says; never
    /// that of a live or fresh one.
    pub fn prune(&self, days: Option<u32>) -> Result<Vec<(RunId, PruneOutcome)>, ArchiveError> {
        let now = Now::read();
        let mut swept = Vec::new();
        for run in self.runs()? {
            let days = days.unwrap_or_else(|| run.retention_days());
            let retention = Retention { now: now.clone(), days };
            let strip = |event: &Event| Some(event.without_content());
            let verdict = prune_one::<Event>(&self.home, run.id(), &retention, &strip);
            swept.push((run.id(), PruneOutcome::of(verdict)));
        }
        Ok(swept)
    }
}

impl PruneOutcome {
    fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Expired { journal_bytes, .. } => Self::Expired { bytes: journal_bytes },
            Verdict::Removed => Self::Removed,
            Verdict::AlreadyExpired | Verdict::Fresh | Verdict::Live => Self::Kept,
            Verdict::Damaged(error) => Self::Failed(error_chain(&error)),
            Verdict::Failed(error) => Self::Failed(error_chain(&error)),
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

    /// Returns the run's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the tree the run works in; none where that cannot be read, or it never began.
    #[must_use]
    pub fn workdir(&self) -> Option<PathBuf> {
        let first = self.records().ok().and_then(|mut records| records.next()?.ok());
        match first.map(|record| record.event) {
            Some(Event::RunStarted { workdir, .. }) => Some(PathBuf::from(workdir)),
            Some(_) | None => None,
        }
    }

    /// Returns for how many days the run was promised to be kept; the usual ones if it cannot say.
    fn retention_days(&self) -> u32 {
        let first = self.records().ok().and_then(|mut records| records.next()?.ok());
        let days = match first.map(|record| record.event) {
            Some(Event::RunStarted { policy, .. }) => policy.retention_days,
            Some(_) | None => adjutant_core::Preset::Scout.policy().retention_days,
        };
        u32::try_from(days).unwrap_or(u32::MAX)
    }

    /// Returns the storage to go on with this run.
    #[must_use]
    pub fn storage(&self) -> Storage {
        Storage::Run(self.folder.clone())
    }

    /// Says whether somebody is writing it.
    pub fn liveness(&self) -> Result<RunLiveness, ArchiveError> {
        Ok(match self.folder.liveness()? {
            Liveness::Live { pid } => RunLiveness::Live { pid },
            Liveness::Dead | Liveness::NeverLocked => RunLiveness::Dead,
        })
    }

    /// Returns the milliseconds since a record of a live run was written at `wall_ms`.
    ///
    /// A wall clock that was set back gives none, and one that was set ahead no more than the time
    /// for which the run has been held.
    #[must_use]
    pub fn since(&self, wall_ms: u64) -> u64 {
        let now = Now::read();
        let held = self.folder.held_ms(&now).unwrap_or(u64::MAX);
        now.wall_ms.saturating_sub(wall_ms).min(held)
    }

    /// Says whether its content is still there.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        if self.folder.is_expired() { Expiry::Expired } else { Expiry::Kept }
    }

    /// Returns the records one by one; what is being written right now ends the list.
    pub fn records(&self) -> Result<RunRecords, ArchiveError> {
        let run = self.id();
        let reader = self.journal().map_err(|source| ArchiveError::Read { run, source })?;
        Ok(RunRecords { run, reader })
    }

    /// Reads the journal to its end.
    pub fn read(&self) -> Result<LoadedJournal, ArchiveError> {
        // Looked at first: what is written meanwhile counts as a change.
        let stamp = self.folder.journal_stamp();
        let mut reading = self.records()?;
        let records = reading.by_ref().collect::<Result<Vec<_>, _>>()?;
        let position = reading.reader.as_ref().map(JournalReader::position);
        Ok(LoadedJournal { records, torn: reading.torn(), end: position.zip(stamp) })
    }

    /// Says whether nothing was recorded since the journal was read.
    #[must_use]
    pub fn is_unchanged(&self, journal: &LoadedJournal) -> bool {
        self.folder.journal_stamp() == journal.end.map(|(_, stamp)| stamp)
    }

    /// Returns the storage to go on with this run, of which the journal was read already.
    ///
    /// It is read again only if it has changed since.
    #[must_use]
    pub fn storage_read(&self, journal: LoadedJournal) -> Storage {
        Storage::Read(self.folder.clone(), journal)
    }

    /// Opens the journal; there is none when its writer died before it made one.
    fn journal(&self) -> Result<Option<JournalReader<Event>>, ReadError> {
        // Where something follows from a journal, one was there and is lost.
        let never = || !LEFT_BY_JOURNALS.iter().any(|name| self.path().join(name).exists());
        match self.folder.read_journal() {
            Err(ReadError::File(error)) if error.io().kind() == ErrorKind::NotFound && never() => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Hands every record to `visit`, starting from a checkpoint of `fold` where there is one, and
    /// leaves a new checkpoint when it read much.
    ///
    /// What is recorded later is read on from there, see [`JournalFollower`]; a torn last line is there too.
    pub fn fold<T>(
        &self,
        version: u32,
        blank: impl FnOnce() -> T,
        mut visit: impl FnMut(&mut T, &Record<Event>),
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
        for record in &mut reader {
            visit(&mut state, &record.map_err(failed)?);
        }
        let position = reader.position();
        if position.seq.get() - from >= CHECKPOINT_AFTER {
            // A checkpoint only saves time; without it the next reader folds from the start.
            let _ = self.folder.save_checkpoint(version, position, &state);
        }
        Ok((state, JournalFollower::from(self.folder.clone(), position, torn(&reader))))
    }

    /// Adds one record to a run that nobody works on, through its lock.
    ///
    /// The run's own time does not go on by it.
    pub fn append(&self, event: &Event) -> Result<(), ArchiveError> {
        let run = self.id();
        let lock = self.folder.lock().map_err(|error| match error {
            LockError::Held { .. } => ArchiveError::Live(run),
            LockError::File(error) => error.into(),
        })?;
        let mut latest = Timestamp::ZERO;
        let visit = |record: Record<Event>| latest = record.at;
        let (mut journal, _) =
            lock.resume_journal::<Event>(visit, drop).map_err(|error| match error {
                OpenError::Expired => ArchiveError::Expired(run),
                OpenError::Read(source) => ArchiveError::Read { run, source },
                OpenError::File(error) => error.into(),
            })?;
        let failed = |source| ArchiveError::Write { run, source };
        journal.append(latest, wall_now(), event, Durability::Sync).map_err(failed)?;
        journal.close().map(drop).map_err(failed)
    }

    /// Reads what a file held before it was changed, by the hash of that.
    pub(crate) fn kept_before(&self, hash: &str) -> std::io::Result<Vec<u8>> {
        self.folder.before(hash).map_err(|error| std::io::Error::from(error.io().kind()))
    }

    /// Writes a session's transcript, whole or not at all.
    pub fn write_transcript(&self, session: SessionId, json: &[u8]) -> Result<(), ArchiveError> {
        Ok(self.folder.write_transcript(session, json)?)
    }

    /// Writes a session's scratchpad, whole or not at all.
    pub fn write_scratch(&self, session: SessionId, text: &str) -> Result<(), ArchiveError> {
        Ok(self.folder.write_scratch(session, text.as_bytes())?)
    }
}

/// How many sessions an ambiguous name is answered with.
const CANDIDATES: usize = 8;

/// How often old runs are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a run's folder holds only once something was recorded.
const LEFT_BY_JOURNALS: [&str; 4] = ["scratch", "transcripts", "checkpoint.json", "expired.json"];

/// The records of a run, in order.
pub struct RunRecords {
    run: RunId,
    /// Absent where nothing was ever written.
    reader: Option<JournalReader<Event>>,
}

impl RunRecords {
    /// Returns how many bytes at the end were passed over; known once the last record was taken.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.reader.as_ref().map_or(0, torn)
    }
}

impl Iterator for RunRecords {
    type Item = Result<Record<Event>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.reader.as_mut()?.next()?;
        Some(record.map_err(|source| ArchiveError::Read { run: self.run, source }))
    }
}

pub(crate) fn torn(reader: &JournalReader<Event>) -> u64 {
    match reader.tail() {
        Tail::Clean => 0,
        Tail::Torn { bytes, .. } => bytes,
    }
}

/// A journal that was read to its end.
#[derive(Debug)]
pub struct LoadedJournal {
    pub(crate) records: Vec<Record<Event>>,
    torn: u64,
    /// Where it ends, and what it looked like before it was read; absent where nothing was ever written.
    pub(crate) end: Option<(Position, JournalStamp)>,
}

impl LoadedJournal {
    /// Returns the records.
    #[must_use]
    pub fn records(&self) -> &[Record<Event>] {
        &self.records
    }

    /// Returns how many bytes at the end were passed over.
    #[must_use]
    pub const fn torn(&self) -> u64 {
        self.torn
    }
}

/// Records worth a checkpoint: below this, folding again costs less than writing.
const CHECKPOINT_AFTER: u64 = 2_000;
