//! Opening the journal of a run: in a directory of the state directory, or in memory for tests.

use std::io;
use std::path::Path;

use adjutant_core::{Event, RunId};
use adjutant_store::{
    Journal, JournalError, JournalPosition, JournalReader, JournalRecord, MemoryDisk,
    OpenJournalError, RecordNumber, RunDir, RunLock, StateDir, StateDirError,
};
use tokio::sync::watch;

use crate::archive::LoadedJournal;
use crate::engine::EngineError;

/// The last durable record, or why the journal can no longer be written.
#[derive(Clone, Debug)]
pub(crate) enum SyncProgress {
    Through(RecordNumber),
    Failed(JournalError),
}

/// A run whose journal is open for writing.
pub struct OpenRun {
    pub(crate) id: RunId,
    pub(crate) folder: Option<RunDir>,
    pub(crate) journal: Journal<Event>,
    pub(crate) durable: watch::Receiver<SyncProgress>,
    /// Held while this process works on the run.
    pub(crate) lock: Option<RunLock>,
}

/// The callback of [`crate::Engine::on_created`].
pub(crate) type CreatedCallback = Box<dyn FnOnce(RunId, &Path) -> io::Result<()>>;

impl OpenRun {
    /// Calls the callback. If it fails, the run's directory is removed again.
    pub(crate) fn call_created_callback(
        self,
        note: Option<CreatedCallback>,
    ) -> Result<Self, EngineError> {
        let (Some(note), Some(folder)) = (note, &self.folder) else { return Ok(self) };
        if let Err(error) = note(self.id, folder.path()) {
            let folder = folder.clone();
            drop(self);
            folder.remove_if_no_records();
            return Err(EngineError::OnCreated(error));
        }
        Ok(self)
    }
}

/// How often creating a run is tried again with another id.
pub(crate) const ID_ATTEMPTS: usize = 8;

/// Where a run's journal is.
pub enum Storage {
    /// A state directory, in which a new run gets a directory.
    Home(StateDir),
    /// The directory of a run to resume.
    Run(RunDir),
    /// The directory of a run to resume, with its journal already in memory.
    Read(RunDir, LoadedJournal),
    /// A journal in memory, with the write errors that a test injects.
    Memory(MemoryDisk),
}

impl Storage {
    /// Creates a new run. Fails if the id is taken.
    pub(crate) fn open(&self, id: RunId) -> Result<OpenRun, EngineError> {
        match self {
            Self::Home(home) => open_in(home, id),
            Self::Run(folder) | Self::Read(folder, _) => {
                Err(StateDirError::RunExists(folder.id()).into())
            }
            Self::Memory(disk) => {
                let (report, durable) = reports();
                let journal =
                    Journal::start_inline(disk.clone(), JournalPosition::start(id), report);
                Ok(OpenRun { id, folder: None, journal, durable, lock: None })
            }
        }
    }
}

impl Storage {
    /// Opens an existing run and passes its records to `visit`.
    pub(crate) fn reopen(
        self,
        run: RunId,
        mut visit: impl FnMut(JournalRecord<Event>),
    ) -> Result<OpenRun, EngineError> {
        match self {
            Self::Home(home) => reopen_in(home.run(run), visit),
            Self::Run(folder) => reopen_in(folder, visit),
            Self::Read(folder, journal) => reopen_read(folder, journal, visit),
            Self::Memory(disk) => {
                let (report, durable) = reports();
                let bytes = disk.bytes();
                let mut reader = JournalReader::new(bytes.as_slice(), JournalPosition::start(run));
                for record in &mut reader {
                    visit(record.map_err(OpenJournalError::Read)?);
                }
                let journal = Journal::start_inline(disk, reader.position(), report);
                Ok(OpenRun { id: run, folder: None, journal, durable, lock: None })
            }
        }
    }
}

fn reopen_in(
    folder: RunDir,
    visit: impl FnMut(JournalRecord<Event>),
) -> Result<OpenRun, EngineError> {
    let (report, durable) = reports();
    let lock = folder.lock()?;
    let (journal, _tail) = lock.resume_journal(visit, report)?;
    Ok(OpenRun { id: folder.id(), folder: Some(folder), journal, durable, lock: Some(lock) })
}

fn reopen_read(
    folder: RunDir,
    read: LoadedJournal,
    visit: impl FnMut(JournalRecord<Event>),
) -> Result<OpenRun, EngineError> {
    let Some((position, stamp)) = read.end else { return reopen_in(folder, visit) };
    let (report, durable) = reports();
    let lock = folder.lock()?;
    let Some(journal) = lock.continue_journal(position, stamp, report)? else {
        drop(lock);
        return reopen_in(folder, visit);
    };
    read.records.into_iter().for_each(visit);
    Ok(OpenRun { id: folder.id(), folder: Some(folder), journal, durable, lock: Some(lock) })
}

fn open_in(home: &StateDir, id: RunId) -> Result<OpenRun, EngineError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let folder = home.create_run(id)?;
        match open_new(&folder) {
            // Another process pruned at this moment and removed the empty directory.
            Err(_) if attempts < ID_ATTEMPTS && !folder.path().exists() => {}
            Err(error) => {
                folder.remove_if_no_records();
                return Err(error);
            }
            opened => return opened,
        }
    }
}

fn open_new(folder: &RunDir) -> Result<OpenRun, EngineError> {
    let lock = folder.lock()?;
    let (report, durable) = reports();
    let journal = lock.create_journal(report)?;
    let id = folder.id();
    Ok(OpenRun { id, folder: Some(folder.clone()), journal, durable, lock: Some(lock) })
}

fn reports()
-> (impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static, watch::Receiver<SyncProgress>)
{
    let (sender, receiver) = watch::channel(SyncProgress::Through(RecordNumber::ZERO));
    let report = move |result: Result<RecordNumber, JournalError>| {
        let durable = match result {
            Ok(seq) => SyncProgress::Through(seq),
            Err(error) => SyncProgress::Failed(error),
        };
        // Without a receiver the run has ended; the journal is closed next.
        let _ = sender.send(durable);
    };
    (report, receiver)
}
