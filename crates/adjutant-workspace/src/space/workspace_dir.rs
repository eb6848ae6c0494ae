//! The folder of one workspace: its lock, its record, its own layers.
//!
//! Invariant: a folder without a record holds no work. The record is written before anyone can work
//! there and removed after the work is kept.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::record::LayerName;
use super::{WorkspaceError, WorkspaceRecord};
use crate::private;
use crate::trees::FileLock;
use crate::{GitError, ResultRef};

/// How often a folder that others remove meanwhile is made again.
const MAX_ATTEMPTS: usize = 1000;

/// The folder of one workspace, held by this process.
#[derive(Debug)]
pub(super) struct WorkspaceDir {
    path: PathBuf,
    _lock: FileLock,
}

impl WorkspaceDir {
    /// Takes the folder, making it where there is none.
    pub(super) fn lock_or_create(path: PathBuf) -> Result<Self, WorkspaceError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match private::ensure_dir(&path) {
                // Whoever closed the last one of the run removed its folder just now.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && attempts < MAX_ATTEMPTS =>
                {
                    continue;
                }
                made => made.map_err(WorkspaceError::io("making a workspace"))?,
            }
            if let Some(dir) = Self::lock_existing(path.clone())? {
                return Ok(dir);
            }
        }
    }

    /// Takes the folder that is there; none when it went away meanwhile.
    pub(super) fn lock_existing(path: PathBuf) -> Result<Option<Self>, WorkspaceError> {
        let file = path.join("lock");
        let held = match FileLock::open_file(&file) {
            Ok(held) => held,
            // Whoever removes the folder has taken the file away; or somebody makes it anew.
            Err(GitError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return if path.exists() { Err(WorkspaceError::InUse { path }) } else { Ok(None) };
            }
            Err(error) => return Err(error.into()),
        };
        if !held.acquire(FlockOperation::NonBlockingLockExclusive)? {
            return Err(WorkspaceError::InUse { path });
        }
        // Whoever removed the folder meanwhile held the lock of a file that is gone.
        let same = fs::metadata(&file).is_ok_and(|there| there.ino() == held.inode());
        Ok(same.then_some(Self { path, _lock: held }))
    }

    /// Where the merged tree appears.
    pub(super) fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    pub(super) fn upper(&self, number: usize) -> PathBuf {
        upper_in(&self.path, number)
    }

    pub(super) fn work(&self, number: usize) -> PathBuf {
        self.path.join(format!("work-{number}"))
    }

    /// Makes the folders of a layer that takes changes.
    pub(super) fn make_upper(&self, number: usize) -> Result<(), WorkspaceError> {
        for folder in [self.tree(), self.upper(number), self.work(number)] {
            private::ensure_dir(&folder).map_err(WorkspaceError::io("making a layer"))?;
        }
        Ok(())
    }

    /// Writes the record; after a power cut there is the one before or this one, whole.
    pub(super) fn write_record(&self, record: &WorkspaceRecord) -> Result<(), WorkspaceError> {
        let next = self.path.join("record.next");
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(record)?;
            let mut file = private::create_file(&next)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&next, self.path.join("record"))?;
            fs::File::open(&self.path)?.sync_all()
        };
        write().map_err(WorkspaceError::io("recording a workspace"))
    }

    pub(super) fn record(&self) -> Result<Option<WorkspaceRecord>, WorkspaceError> {
        read_record(&self.path)
    }

    /// Returns the record, or `other` where a power cut left one that cannot be read and there is work.
    ///
    /// The other one may know fewer of the layers of `reference` than there are.
    pub(super) fn record_or(
        &self,
        reference: &ResultRef,
        other: &WorkspaceRecord,
    ) -> Result<Option<WorkspaceRecord>, WorkspaceError> {
        match self.record() {
            Err(WorkspaceError::Io { source, .. })
                if source.kind() == io::ErrorKind::InvalidData && self.upper(0).is_dir() =>
            {
                let mut record = other.clone();
                let there = (0..).take_while(|number| self.upper(*number).is_dir());
                let names = there.map(|it| LayerName::Upper(reference.clone(), it).to_string());
                let names: Vec<String> =
                    names.filter(|name| !record.layers.contains(name)).collect();
                record.layers.extend(names);
                Ok(Some(record))
            }
            done => done,
        }
    }

    /// Removes everything that is left in the folder, which stays.
    pub(super) fn remove_contents(&self) -> Result<(), WorkspaceError> {
        clear_files(&self.path)?;
        if holds_layers(&self.path) {
            return Err(WorkspaceError::InUse { path: self.path.clone() });
        }
        Ok(())
    }

    /// Removes everything in the folder but layers that others still stand on, and then the folder.
    pub(super) fn remove(&self) -> Result<(), WorkspaceError> {
        clear_files(&self.path)?;
        // Fails while a layer is left; then a later look removes it.
        if !holds_layers(&self.path) {
            let _ = fs::remove_file(self.path.join("lock"));
            let _ = fs::remove_dir(&self.path);
            if let Some(run) = self.path.parent() {
                let _ = fs::remove_dir(run);
            }
        }
        Ok(())
    }
}

fn clear_files(dir: &Path) -> Result<(), WorkspaceError> {
    let entries = fs::read_dir(dir).map_err(WorkspaceError::io("removing a workspace"))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // The record goes first: what is left of a folder without one holds no work.
    paths.sort_by_key(|path| !path.ends_with("record"));
    for path in paths.into_iter().filter(|path| !path.ends_with("lock")) {
        let is_upper = name_of(&path).starts_with("upper-");
        // Others who stand on it hold a lock on it; it is held here until it is gone.
        let held = if is_upper { Some(FileLock::open_dir(&path)?) } else { None };
        if let Some(held) = &held
            && !held.acquire(FlockOperation::NonBlockingLockExclusive)?
        {
            continue;
        }
        remove_all(&path)?;
    }
    Ok(())
}

/// Reads what is recorded in the folder of a workspace.
pub(super) fn read_record(dir: &Path) -> Result<Option<WorkspaceRecord>, WorkspaceError> {
    match fs::read(dir.join("record")) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let source = io::Error::new(io::ErrorKind::InvalidData, error);
            WorkspaceError::Io { doing: "reading a record", source }
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(WorkspaceError::io("reading a record")(error)),
    }
}

/// Returns where a layer of changes lies in the folder of a workspace.
pub(super) fn upper_in(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("upper-{number}"))
}

fn holds_layers(dir: &Path) -> bool {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| name_of(&entry.path()).starts_with("upper-"))
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Says whether nothing is in a folder, or there is none.
pub(super) fn is_empty(folder: &Path) -> Result<bool, WorkspaceError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // Only a program at work there closes it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(WorkspaceError::io("looking into a layer")(error)),
    }
}

/// Removes a file or folder, also where a program took its own rights away.
pub(super) fn remove_all(path: &Path) -> Result<(), WorkspaceError> {
    crate::trees::remove_all(path).map_err(WorkspaceError::io("removing a workspace"))
}
