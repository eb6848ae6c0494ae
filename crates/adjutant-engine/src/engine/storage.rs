//! Where a run is written: a folder of the state directory, or a test's memory.

use std::io;
use std::path::Path;

use adjutant_core::{Event, RunId};
use adjutant_store::{
    Home, HomeError, Journal, JournalError, JournalReader, MemoryDisk, OpenError, Position, Record,
    RunDir, RunLock, Seq,
};
use tokio::sync::watch;

use crate::archive::LoadedJournal;
use crate::engine::EngineError;

/// How far the journal is safe, or why it no longer is.
#[derive(Clone, Debug)]
pub(crate) enum SyncProgress {
    Through(Seq),
    Failed(JournalError),
}

/// A run that is open for writing.
pub struct OpenRun {
    pub(crate) id: RunId,
    pub(crate) folder: Option<RunDir>,
    pub(crate) journal: Journal<Event>,
    pub(crate) durable: watch::Receiver<SyncProgress>,
    /// Held for as long as the run is written.
    pub(crate) lock: Option<RunLock>,
}

/// Notes which run it is and where.
pub(crate) type CreatedCallback = Box<dyn FnOnce(RunId, &Path) -> io::Result<()>>;

impl OpenRun {
    /// Has it noted that the run is there; takes it back where that fails.
    pub(crate) fn noted(self, note: Option<CreatedCallback>) -> Result<Self, EngineError> {
        let (Some(note), Some(folder)) = (note, &self.folder) else { return Ok(self) };
        if let Err(error) = note(self.id, folder.path()) {
            let folder = folder.clone();
            drop(self);
            folder.take_back();
            return Err(EngineError::OnCreated(error));
        }
        Ok(self)
    }
}

/// Attempts at finding an id that is not taken.
pub(crate) const ID_ATTEMPTS: usize = 8;

/// Where runs are written.
pub enum Storage {
    /// A folder per run below a state directory.
    Home(Home),
    /// The folder of one run, to go on with it.
    Run(RunDir),
    /// The folder of one run whose journal was read, to go on with it.
    Read(RunDir, LoadedJournal),
    /// One journal in memory, with faults where a test wants them.
    Memory(MemoryDisk),
}

impl Storage {
    /// Opens a new run under an id that no other run may have.
    pub(crate) fn open(&self, id: RunId) -> Result<OpenRun, EngineError> {
        match self {
            Self::Home(home) => open_in(home, id),
            Self::Run(folder) | Self::Read(folder, _) => {
                Err(HomeError::RunExists(folder.id()).into())
            }
            Self::Memory(disk) => {
                let (report, durable) = reports();
                let journal = Journal::start_inline(disk.clone(), Position::start(id), report);
                Ok(OpenRun { id, folder: None, journal, durable, lock: None })
            }
        }
    }
}

impl Storage {
    /// Opens a run that exists, handing everything recorded so far to `visit`.
    pub(crate) fn reopen(
        self,
        run: RunId,
        mut visit: impl FnMut(Record<Event>),
    ) -> Result<OpenRun, EngineError> {
        match self {
            Self::Home(home) => reopen_in(home.run(run), visit),
            Self::Run(folder) => reopen_in(folder, visit),
            Self::Read(folder, journal) => reopen_read(folder, journal, visit),
            Self::Memory(disk) => {
                let (report, durable) = reports();
                let bytes = disk.bytes();
                let mut reader = JournalReader::new(bytes.as_slice(), Position::start(run));
                for record in &mut reader {
                    visit(record.map_err(OpenError::Read)?);
                }
                let journal = Journal::start_inline(disk, reader.position(), report);
                Ok(OpenRun { id: run, folder: None, journal, durable, lock: None })
            }
        }
    }
}

fn reopen_in(folder: RunDir, visit: impl FnMut(Record<Event>)) -> Result<OpenRun, EngineError> {
    let (report, durable) = reports();
    let lock = folder.lock()?;
    let (journal, _tail) = lock.resume_journal(visit, report)?;
    Ok(OpenRun { id: folder.id(), folder: Some(folder), journal, durable, lock: Some(lock) })
}

fn reopen_read(
    folder: RunDir,
    read: LoadedJournal,
    visit: impl FnMut(Record<Event>),
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

fn open_in(home: &Home, id: RunId) -> Result<OpenRun, EngineError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let folder = home.create_run(id)?;
        match open_new(&folder) {
            // Somebody cleaned up at this very moment, and took the folder for a leftover.
            Err(_) if attempts < ID_ATTEMPTS && !folder.path().exists() => {}
            Err(error) => {
                folder.take_back();
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
-> (impl FnMut(Result<Seq, JournalError>) + Send + 'static, watch::Receiver<SyncProgress>) {
    let (sender, receiver) = watch::channel(SyncProgress::Through(Seq::ZERO));
    let report = move |result: Result<Seq, JournalError>| {
        let durable = match result {
            Ok(seq) => SyncProgress::Through(seq),
            Err(error) => SyncProgress::Failed(error),
        };
        // Nobody listening means the run is over; the journal closes next.
        let _ = sender.send(durable);
    };
    (report, receiver)
}
