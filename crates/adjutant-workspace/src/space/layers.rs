//! The layers that workspaces stand on, named by what they hold.
//!
//! A layer is made once, under another name, and then only read. Whoever stands on it holds a lock,
//! so that it is not removed meanwhile.
//!
//! Start at [`Shared::ground`].

use std::any::Any;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, mknodat};

use super::ignored::Included;
use super::record::LayerName;
use super::slot::{remove_all, upper_in};
use super::workspaces::Shared;
use super::{SpaceError, gitdir};
use crate::private;
use crate::trees::{Held, boot};
use crate::{Bases, Diff, Lease, ObjectId};

/// Layers nobody uses that are kept for the next one.
const KEPT: usize = 4;

/// How long the holder of a process that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is being made longer than this belongs to a process that is gone.
const STALE: Duration = Duration::from_secs(60 * 60);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The file of a layer that says since which start of the machine it is there.
const BOOT: &str = "boot";

/// Something that keeps a layer from being removed.
type Pin = Arc<dyn Any + Send + Sync>;

/// Layers that are only read, in order, and what keeps them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ground {
    pub(super) names: Vec<LayerName>,
    pub(super) paths: Vec<PathBuf>,
    pins: Vec<Pin>,
    lease: Option<Arc<Lease>>,
}

impl Ground {
    fn push(&mut self, name: LayerName, path: PathBuf, pin: Pin) {
        self.names.push(name);
        self.paths.push(path);
        self.pins.push(pin);
    }
}

impl Shared {
    /// Has these layers ready, lowest first; what can be made again is made.
    pub(super) fn ground(&self, names: &[LayerName]) -> Result<Ground, SpaceError> {
        let mut ground = Ground::default();
        for name in names {
            self.add_layer(&mut ground, name.clone())?;
        }
        Ok(ground)
    }

    /// Puts one more layer on top.
    pub(super) fn add_layer(&self, ground: &mut Ground, name: LayerName) -> Result<(), SpaceError> {
        let (path, pin): (PathBuf, Pin) = match &name {
            LayerName::Base(tree) => {
                let lease = Arc::new(Bases::open(&self.repository)?.lease(tree)?);
                ground.lease = Some(Arc::clone(&lease));
                (lease.path().to_owned(), lease)
            }
            LayerName::Delta(tree, commit) => {
                let lease = leased(ground, &name)?;
                let stored = self.stored(&format!("delta-{tree}-{commit}"), |files| {
                    let diff = self.repository.differences(tree, commit)?;
                    self.write_delta(&diff, &lease, commit, files)
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Meta(tree, commit) => {
                let lease = leased(ground, &name)?;
                let stored = self.stored(&format!("meta-{tree}-{commit}"), |files| {
                    gitdir::write_head(&files.join(".git"), commit)
                        .map_err(SpaceError::io("making a private git directory"))?;
                    let diff = self.repository.differences(tree, commit)?;
                    let index = files.join(".git/index");
                    gitdir::write_index(&self.repository, &lease, &diff, &index)
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Ignored(key) => {
                let stored = self.stored(&format!("ignored-{key}"), |files| {
                    let now = Included::look(&self.repository, &self.options.include_ignored)?;
                    // Nothing under this name would be taken for what it was made of from then on.
                    let gone = || SpaceError::Record(format!("{name}, which is gone"));
                    now.ok_or_else(gone)?.copy(files)
                })?;
                (stored.0, Arc::new(stored.1))
            }
            LayerName::Upper(of, number) => {
                let path = upper_in(&self.slot_path(of), *number);
                let missing = || SpaceError::Record(format!("{name}, which is gone"));
                let held = Held::folder(&path).map_err(|_| missing())?;
                // Mounted as the top of another workspace, it must not be stood upon.
                let take = || Ok(held.take(FlockOperation::NonBlockingLockShared)?.then_some(()));
                if patiently(take)?.is_none() {
                    return Err(SpaceError::InUse { path });
                }
                (path, Arc::new(held))
            }
        };
        ground.push(name, path, pin);
        Ok(())
    }

    /// Writes what a commit has differently from the base, and git's own folder, as a layer.
    fn write_delta(
        &self,
        diff: &Diff,
        lease: &Lease,
        commit: &ObjectId,
        files: &Path,
    ) -> Result<(), SpaceError> {
        let git = files.join(".git");
        gitdir::write(&self.repository, &git, commit)?;
        let index = git.join("index");
        // The index has every file of the base: writing it takes as long as all of the rest.
        std::thread::scope(|scope| {
            let index = scope.spawn(|| gitdir::write_index(&self.repository, lease, diff, &index));
            let written = self.write_files(diff, files);
            let failed = || Err(SpaceError::io("copying an index")(io::Error::other("it failed")));
            index.join().unwrap_or_else(|_| failed()).and(written)
        })
    }

    /// Writes what a commit has differently from what lies below as a layer.
    pub(super) fn write_files(&self, diff: &Diff, files: &Path) -> Result<(), SpaceError> {
        for gone in self.repository.write_layer_of(diff, files)? {
            let at = files.join(&gone);
            let hide = || -> io::Result<()> {
                fs::create_dir_all(at.parent().unwrap_or(files))?;
                mknodat(CWD, &at, FileType::CharacterDevice, Mode::empty(), 0)?;
                Ok(())
            };
            hide().map_err(SpaceError::io("marking a deleted file"))?;
        }
        Ok(())
    }

    fn layers_folder(&self) -> PathBuf {
        self.private.join("layers")
    }

    /// Returns a layer that is kept under a name, making it where there is none.
    fn stored(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), SpaceError>,
    ) -> Result<(PathBuf, Held), SpaceError> {
        let folder = self.layers_folder();
        let at = folder.join(name);
        if let Some(held) = take_shared(&at)? {
            return Ok((at.join("files"), held));
        }
        private::ensure_dir(&folder).map_err(SpaceError::io("making a layer"))?;
        // One at a time: of eight who need the same layer, one makes it and seven find it.
        let making = Held::file(&folder.join("lock"))?;
        making.take(FlockOperation::LockExclusive)?;
        if let Some(held) = take_shared(&at)? {
            return Ok((at.join("files"), held));
        }
        let old = hold_old(&at)?;
        if let Some(Old::InUse(held)) = old {
            return Ok((at.join("files"), held));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".new-{}-{number}", std::process::id()));
        let made = remove_all(&new)
            .and_then(|()| {
                // What is in `files` is seen in workspaces, with the modes of a checkout.
                let made =
                    private::create_dir(&new).and_then(|()| fs::create_dir(new.join("files")));
                made.map_err(SpaceError::io("making a layer"))
            })
            .and_then(|()| make(&new.join("files")));
        if let Err(error) = made {
            // Best effort: `prune_layers` removes what is left.
            let _ = remove_all(&new);
            return match (error, old) {
                // What it was made of is gone: the one from before is better than no workspace.
                (SpaceError::Record(_), Some(Old::Unused(held))) => {
                    held.take(FlockOperation::LockShared)?;
                    Ok((at.join("files"), held))
                }
                (error, _) => Err(error),
            };
        }
        private::write(&new.join(BOOT), boot()).map_err(SpaceError::io("making a layer"))?;
        let held = Held::file(&new.join("lock"))?;
        held.take(FlockOperation::LockShared)?;
        if old.is_some() {
            discard(&folder, &at)?;
        }
        fs::rename(&new, &at).map_err(SpaceError::io("making a layer"))?;
        Ok((at.join("files"), held))
    }

    /// Removes layers that nobody stands on, but for the newest few.
    pub(super) fn prune_layers(&self) -> Result<(), SpaceError> {
        let folder = self.layers_folder();
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
        let making = Held::file(&folder.join("lock"))?;
        if !making.take(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(());
        }
        let mut unused: Vec<(SystemTime, PathBuf, Held)> = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
            let changed = fs::metadata(&path).and_then(|found| found.modified());
            let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                if changed.elapsed().is_ok_and(|age| age > STALE) {
                    remove_all(&path)?;
                }
                continue;
            }
            let Ok(held) = Held::file(&path.join("lock")) else { continue };
            if held.take(FlockOperation::NonBlockingLockExclusive)? {
                unused.push((changed, path, held));
            }
        }
        unused.sort_by_key(|(changed, ..)| std::cmp::Reverse(*changed));
        for (_, path, _held) in unused.into_iter().skip(KEPT) {
            discard(&folder, &path)?;
        }
        Ok(())
    }
}

/// Tries for as long as the holder of a process that was killed may take to let go of a layer.
///
/// It ends by itself; there is nothing to wait on.
pub(super) fn patiently<T>(
    mut attempt: impl FnMut() -> Result<Option<T>, SpaceError>,
) -> Result<Option<T>, SpaceError> {
    let begun = Instant::now();
    loop {
        match attempt()? {
            None if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            done => return Ok(done),
        }
    }
}

fn leased(ground: &Ground, name: &LayerName) -> Result<Arc<Lease>, SpaceError> {
    ground.lease.clone().ok_or_else(|| SpaceError::Record(format!("{name} without a base")))
}

/// Removes a layer that nobody may be standing on just now.
fn discard(folder: &Path, path: &Path) -> Result<(), SpaceError> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let gone = folder.join(format!(".gone-{}-{number}", std::process::id()));
    fs::rename(path, &gone).map_err(SpaceError::io("removing a layer"))?;
    remove_all(&gone)
}

/// A layer from before the last start of the machine, of which nobody knows what reached the disk.
enum Old {
    /// Somebody stands on it all the same, such as a program of another version.
    InUse(Held),
    /// Nobody does.
    Unused(Held),
}

/// Takes a layer from before the last start of the machine; whoever asks holds the lock of the makers.
fn hold_old(at: &Path) -> Result<Option<Old>, SpaceError> {
    if at.symlink_metadata().is_err() || is_of_now(at) {
        return Ok(None);
    }
    let held = Held::file(&at.join("lock"))?;
    if held.take(FlockOperation::NonBlockingLockExclusive)? {
        return Ok(Some(Old::Unused(held)));
    }
    held.take(FlockOperation::LockShared)?;
    Ok(Some(Old::InUse(held)))
}

/// Says whether a layer was made since the machine started.
fn is_of_now(at: &Path) -> bool {
    fs::read_to_string(at.join(BOOT)).is_ok_and(|text| text == boot())
}

/// Takes a layer that is there; none where there is none.
fn take_shared(at: &Path) -> Result<Option<Held>, SpaceError> {
    let file = at.join("lock");
    if !file.exists() || !is_of_now(at) {
        return Ok(None);
    }
    let Ok(held) = Held::file(&file) else { return Ok(None) };
    held.take(FlockOperation::LockShared)?;
    // It may have been removed before the lock was taken.
    let same = fs::metadata(&file).is_ok_and(|there| there.ino() == held.number());
    Ok(same.then_some(held))
}
