//! The directory of one workspace: its lock, its record, its own layers.
//!
//! Invariant: a directory without a record holds no work. The record is written before any program can work there
//! and removed after the work is kept.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::delegation_dirs::DelegationDirs;
use super::record::LayerName;
use super::{WorkspaceError, WorkspaceRecord};
use crate::private;
use crate::trees::FileLock;
use crate::{GitError, ResultRef};

/// Attempts to create a directory that other processes remove meanwhile.
const MAX_ATTEMPTS: usize = 1000;

/// The directory of one workspace, locked by this process.
#[derive(Debug)]
pub(super) struct WorkspaceDir {
    path: PathBuf,
    _lock: FileLock,
}

impl WorkspaceDir {
    /// Locks the directory, creating it if it is missing.
    pub(super) fn lock_or_create(path: PathBuf) -> Result<Self, WorkspaceError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match private::ensure_dir(&path) {
                // The process that closed the last workspace of the run removed the run's directory just now.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && attempts < MAX_ATTEMPTS =>
                {
                    continue;
                }
                made => made.map_err(WorkspaceError::io("creating a workspace"))?,
            }
            if let Some(dir) = Self::lock_existing(path.clone())? {
                return Ok(dir);
            }
        }
    }

    /// Locks an existing directory; `None` if it disappeared meanwhile.
    pub(super) fn lock_existing(path: PathBuf) -> Result<Option<Self>, WorkspaceError> {
        let file = path.join("lock");
        let held = match FileLock::open_file(&file) {
            Ok(held) => held,
            // The lock file is gone: another process is removing the directory, or creating it again.
            Err(GitError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return if path.exists() { Err(WorkspaceError::InUse { path }) } else { Ok(None) };
            }
            Err(error) => return Err(error.into()),
        };
        if !held.acquire(FlockOperation::NonBlockingLockExclusive)? {
            return Err(WorkspaceError::InUse { path });
        }
        // If the directory was removed meanwhile, the lock is on a file that no longer has a name.
        let same = fs::metadata(&file).is_ok_and(|there| there.ino() == held.inode());
        Ok(same.then_some(Self { path, _lock: held }))
    }

    /// Returns the mount point of the merged tree.
    pub(super) fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    /// Returns the private directories of the delegation that works here.
    pub(super) fn delegation_dirs(&self) -> DelegationDirs {
        DelegationDirs::in_folder(&self.path)
    }

    pub(super) fn upper(&self, number: usize) -> PathBuf {
        upper_in(&self.path, number)
    }

    pub(super) fn work(&self, number: usize) -> PathBuf {
        self.path.join(format!("work-{number}"))
    }

    /// Creates the directories of an upper layer.
    pub(super) fn make_upper(&self, number: usize) -> Result<(), WorkspaceError> {
        for folder in [self.tree(), self.upper(number), self.work(number)] {
            private::ensure_dir(&folder).map_err(WorkspaceError::io("creating a layer"))?;
        }
        Ok(())
    }

    /// Writes the record atomically: after a power cut, either the old or the new one is complete.
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

    /// Returns the record. If a power cut left it unreadable and there are layers, returns `other`, completed.
    ///
    /// `other` may lack layers of `reference` that exist on disk; they are added.
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

    /// Removes everything in the directory; the directory stays.
    pub(super) fn remove_contents(&self) -> Result<(), WorkspaceError> {
        clear_files(&self.path)?;
        if holds_layers(&self.path) {
            return Err(WorkspaceError::InUse { path: self.path.clone() });
        }
        Ok(())
    }

    /// Removes everything but layers that other workspaces still use, then the directory.
    pub(super) fn remove(&self) -> Result<(), WorkspaceError> {
        clear_files(&self.path)?;
        // While a layer remains, the directory stays; a later sweep removes it.
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
    // The record goes first: a directory without one is known to hold no work.
    paths.sort_by_key(|path| !path.ends_with("record"));
    for path in paths.into_iter().filter(|path| !path.ends_with("lock")) {
        let is_upper = name_of(&path).starts_with("upper-");
        // Workspaces that use a layer hold a lock on it. This lock is kept until the layer is removed.
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

/// Reads the record in the directory of a workspace.
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

/// Returns the path of a layer of changes in the directory of a workspace.
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

/// Says whether a directory is empty or missing.
pub(super) fn is_empty(folder: &Path) -> Result<bool, WorkspaceError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // Only a program in the workspace can have removed the permissions.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(WorkspaceError::io("reading a layer")(error)),
    }
}

/// Removes a file or directory, even if a program removed its permissions.
pub(super) fn remove_all(path: &Path) -> Result<(), WorkspaceError> {
    crate::trees::remove_all(path).map_err(WorkspaceError::io("removing a workspace"))
}
