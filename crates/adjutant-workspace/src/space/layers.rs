//! The read-only layers below workspaces, named by their content.
//!
//! A layer is made once, under a temporary name, and then only read. A workspace that uses it holds a lock, so that
//! it is not removed meanwhile.
//!
//! Start at [`WorkspacesContext::lower_layers`].

use std::any::Any;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, mknodat};

use super::ignored_files::IgnoredFiles;
use super::record::LayerName;
use super::workspace_dir::{remove_all, upper_in};
use super::workspaces::WorkspacesContext;
use super::{WorkspaceError, gitdir};
use crate::private;
use crate::trees::{CheckoutDates, FileLock, boot_id};
use crate::{BaseCheckouts, BaseLease, Diff, ObjectId};

/// Unused layers that are kept for later workspaces.
const MAX_UNUSED: usize = 4;

/// How long the holder of a killed process may take to end.
const HOLDER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A temporary layer older than this belongs to a process that is gone.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The file in a layer that holds the boot id under which it was made.
const BOOT_ID_FILE: &str = "boot";

/// A lock or lease that keeps a layer from being removed.
type LayerPin = Arc<dyn Any + Send + Sync>;

/// Read-only layers, lowest first, and what keeps them from being removed.
#[derive(Clone, Debug, Default)]
pub(super) struct LowerLayers {
    pub(super) names: Vec<LayerName>,
    pub(super) paths: Vec<PathBuf>,
    pins: Vec<LayerPin>,
    lease: Option<Arc<BaseLease>>,
    /// The file times for layers that are made now; `None` for the present.
    dates: Option<Arc<CheckoutDates>>,
}

impl LowerLayers {
    fn push(&mut self, name: LayerName, path: PathBuf, pin: LayerPin) {
        self.names.push(name);
        self.paths.push(path);
        self.pins.push(pin);
    }
}

impl WorkspacesContext {
    /// Opens these layers, lowest first; layers that can be recreated are.
    pub(super) fn lower_layers(&self, names: &[LayerName]) -> Result<LowerLayers, WorkspaceError> {
        self.dated_layers(names, None)
    }

    /// Opens these layers like [`WorkspacesContext::lower_layers`], with the file times of the user's checkout.
    pub(super) fn dated_layers(
        &self,
        names: &[LayerName],
        dates: Option<&Arc<CheckoutDates>>,
    ) -> Result<LowerLayers, WorkspaceError> {
        let mut lower = LowerLayers { dates: dates.cloned(), ..LowerLayers::default() };
        for name in names {
            self.add_layer(&mut lower, name.clone())?;
        }
        Ok(lower)
    }

    /// Adds a layer on top.
    pub(super) fn add_layer(
        &self,
        lower: &mut LowerLayers,
        name: LayerName,
    ) -> Result<(), WorkspaceError> {
        let (path, pin): (PathBuf, LayerPin) = match &name {
            LayerName::Base(tree) => {
                let bases = BaseCheckouts::open(&self.repository)?.bounded(self.options.disk_bytes);
                let lease = Arc::new(bases.lease_dated(tree, lower.dates.as_deref())?);
                lower.lease = Some(Arc::clone(&lease));
                (lease.path().to_owned(), lease)
            }
            LayerName::Delta(tree, commit) => {
                let lease = base_lease(lower, &name)?;
                // With times, a layer belongs to one capture: the same content may have other times later.
                let capture = lower.dates.as_ref().map_or(String::new(), |it| it.capture_name());
                let name = format!("delta-{tree}-{commit}{capture}");
                let stored = self.stored_layer(&name, |files| {
                    let diff = self.repository.differences(tree, commit)?;
                    self.write_delta(&diff, &lease, commit, files)?;
                    let paths = diff.entries.iter().map(|entry| entry.path.as_path());
                    let dates = lower.dates.as_ref();
                    dates
                        .map_or(Ok(()), |dates| dates.stamp_files(files, paths))
                        .map_err(WorkspaceError::io("setting file times"))
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Meta(tree, commit) => {
                let lease = base_lease(lower, &name)?;
                let stored = self.stored_layer(&format!("meta-{tree}-{commit}"), |files| {
                    gitdir::write_head(&files.join(".git"), commit)
                        .map_err(WorkspaceError::io("creating a private git directory"))?;
                    let diff = self.repository.differences(tree, commit)?;
                    let index = files.join(".git/index");
                    gitdir::write_index(&self.repository, &lease, &diff, &index)
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Ignored(key) => {
                let stored = self.stored_layer(&format!("ignored-{key}"), |files| {
                    let now = IgnoredFiles::scan(&self.repository, &self.options.include_ignored)?;
                    // An empty layer must not be stored under this name: it would be reused as the content of that
                    // key.
                    let gone = || WorkspaceError::Record(format!("layer {name} is gone"));
                    now.ok_or_else(gone)?.copy(files)
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Upper(of, number) => {
                let path = upper_in(&self.dir_path(of), *number);
                let missing = || WorkspaceError::Record(format!("layer {name} is gone"));
                let held = FileLock::open_dir(&path).map_err(|_| missing())?;
                // While it is mounted as the upper layer of another workspace, it must not be used as a lower
                // layer.
                let take =
                    || Ok(held.acquire(FlockOperation::NonBlockingLockShared)?.then_some(()));
                if retry_while_holder_exits(take)?.is_none() {
                    return Err(WorkspaceError::InUse { path });
                }
                (path, Arc::new(held))
            }
        };
        lower.push(name, path, pin);
        Ok(())
    }

    /// Writes the files that differ between the base and a commit, and the private git directory, as a layer.
    fn write_delta(
        &self,
        diff: &Diff,
        lease: &BaseLease,
        commit: &ObjectId,
        files: &Path,
    ) -> Result<(), WorkspaceError> {
        let git = files.join(".git");
        gitdir::write(&self.repository, &git, commit)?;
        let index = git.join("index");
        // In parallel: the index lists every file of the base, so writing it takes as long as the rest.
        std::thread::scope(|scope| {
            let index = scope.spawn(|| gitdir::write_index(&self.repository, lease, diff, &index));
            let written = self.write_files(diff, files);
            let failed = || {
                Err(WorkspaceError::io("copying an index")(io::Error::other("the thread panicked")))
            };
            index.join().unwrap_or_else(|_| failed()).and(written)
        })
    }

    /// Writes the changes of `diff` as a layer, with whiteouts for deleted files.
    pub(super) fn write_files(&self, diff: &Diff, files: &Path) -> Result<(), WorkspaceError> {
        for gone in self.repository.write_layer_of(diff, files)? {
            let at = files.join(&gone);
            let hide = || -> io::Result<()> {
                fs::create_dir_all(at.parent().unwrap_or(files))?;
                mknodat(CWD, &at, FileType::CharacterDevice, Mode::empty(), 0)?;
                Ok(())
            };
            hide().map_err(WorkspaceError::io("marking a deleted file"))?;
        }
        Ok(())
    }

    fn layers_dir(&self) -> PathBuf {
        self.private.join("layers")
    }

    /// Returns the stored layer of this name, making it if it is missing.
    fn stored_layer(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), WorkspaceError>,
    ) -> Result<(PathBuf, FileLock), WorkspaceError> {
        let folder = self.layers_dir();
        let at = folder.join(name);
        if let Some(held) = lock_layer_shared(&at)? {
            return Ok((at.join("files"), held));
        }
        private::ensure_dir(&folder).map_err(WorkspaceError::io("creating a layer"))?;
        // One at a time: if eight workspaces need the same layer, one makes it and seven find it.
        let making = FileLock::open_file(&folder.join("lock"))?;
        making.acquire(FlockOperation::LockExclusive)?;
        if let Some(held) = lock_layer_shared(&at)? {
            return Ok((at.join("files"), held));
        }
        let old = lock_stale_layer(&at)?;
        if let Some(StaleLayer::InUse(held)) = old {
            return Ok((at.join("files"), held));
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".new-{}-{number}", std::process::id()));
        let made = remove_all(&new)
            .and_then(|()| {
                // Workspaces show the content of `files`, with the modes of a checkout.
                let made =
                    private::create_dir(&new).and_then(|()| fs::create_dir(new.join("files")));
                made.map_err(WorkspaceError::io("creating a layer"))
            })
            .and_then(|()| make(&new.join("files")));
        if let Err(error) = made {
            // Best effort: `prune_layers` removes leftovers.
            let _ = remove_all(&new);
            return match (error, old) {
                // Its source is gone: a layer from before the restart is better than no workspace.
                (WorkspaceError::Record(_), Some(StaleLayer::Unused(held))) => {
                    held.acquire(FlockOperation::LockShared)?;
                    Ok((at.join("files"), held))
                }
                (error, _) => Err(error),
            };
        }
        private::write(&new.join(BOOT_ID_FILE), boot_id())
            .map_err(WorkspaceError::io("creating a layer"))?;
        let held = FileLock::open_file(&new.join("lock"))?;
        held.acquire(FlockOperation::LockShared)?;
        if old.is_some() {
            remove_layer(&folder, &at)?;
        }
        fs::rename(&new, &at).map_err(WorkspaceError::io("creating a layer"))?;
        Ok((at.join("files"), held))
    }

    /// Removes unused layers except the newest few.
    pub(super) fn prune_layers(&self) -> Result<(), WorkspaceError> {
        let folder = self.layers_dir();
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
        let making = FileLock::open_file(&folder.join("lock"))?;
        if !making.acquire(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(());
        }
        let mut unused: Vec<(SystemTime, PathBuf, FileLock)> = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
            let changed = fs::metadata(&path).and_then(|found| found.modified());
            let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                if changed.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) {
                    remove_all(&path)?;
                }
                continue;
            }
            let Ok(held) = FileLock::open_file(&path.join("lock")) else { continue };
            if held.acquire(FlockOperation::NonBlockingLockExclusive)? {
                unused.push((changed, path, held));
            }
        }
        unused.sort_by_key(|(changed, ..)| std::cmp::Reverse(*changed));
        for (_, path, _held) in unused.into_iter().skip(MAX_UNUSED) {
            remove_layer(&folder, &path)?;
        }
        Ok(())
    }
}

/// Retries while the holder of a killed process may still be ending.
///
/// The holder ends by itself; this process has nothing to wait on, so it polls.
pub(super) fn retry_while_holder_exits<T>(
    mut attempt: impl FnMut() -> Result<Option<T>, WorkspaceError>,
) -> Result<Option<T>, WorkspaceError> {
    let begun = Instant::now();
    loop {
        match attempt()? {
            None if begun.elapsed() < HOLDER_EXIT_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(2))
            }
            done => return Ok(done),
        }
    }
}

fn base_lease(lower: &LowerLayers, name: &LayerName) -> Result<Arc<BaseLease>, WorkspaceError> {
    lower.lease.clone().ok_or_else(|| {
        WorkspaceError::Record(format!(
            "layer `{name}` needs a base checkout, but the workspace's record lists none before it"
        ))
    })
}

/// Removes a layer that the caller has locked exclusively.
fn remove_layer(folder: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let gone = folder.join(format!(".gone-{}-{number}", std::process::id()));
    fs::rename(path, &gone).map_err(WorkspaceError::io("removing a layer"))?;
    remove_all(&gone)
}

/// A layer from before the last boot, of which parts may never have reached the disk.
enum StaleLayer {
    /// Another process uses it nevertheless, such as a program of another version.
    InUse(FileLock),
    /// No process uses it.
    Unused(FileLock),
}

/// Locks a layer from before the last boot. The caller holds the lock for making layers.
fn lock_stale_layer(at: &Path) -> Result<Option<StaleLayer>, WorkspaceError> {
    if at.symlink_metadata().is_err() || is_from_this_boot(at) {
        return Ok(None);
    }
    let held = FileLock::open_file(&at.join("lock"))?;
    if held.acquire(FlockOperation::NonBlockingLockExclusive)? {
        return Ok(Some(StaleLayer::Unused(held)));
    }
    held.acquire(FlockOperation::LockShared)?;
    Ok(Some(StaleLayer::InUse(held)))
}

/// Says whether a layer was made since the machine booted.
fn is_from_this_boot(at: &Path) -> bool {
    fs::read_to_string(at.join(BOOT_ID_FILE)).is_ok_and(|text| text == boot_id())
}

/// Locks an existing layer; `None` if there is none.
fn lock_layer_shared(at: &Path) -> Result<Option<FileLock>, WorkspaceError> {
    let file = at.join("lock");
    if !file.exists() || !is_from_this_boot(at) {
        return Ok(None);
    }
    let Ok(held) = FileLock::open_file(&file) else { return Ok(None) };
    held.acquire(FlockOperation::LockShared)?;
    // It may have been removed before the lock was acquired.
    let same = fs::metadata(&file).is_ok_and(|there| there.ino() == held.inode());
    Ok(same.then_some(held))
}
