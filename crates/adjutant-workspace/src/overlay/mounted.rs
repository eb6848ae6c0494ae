//! A mounted overlay, as the engine sees it.
//!
//! The mount lives in a holder process; this type has a handle to its root and to that process. Dropping it ends
//! the holder and thereby the mount; open files stay valid until they are closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::io::Errno;

use crate::private;
use crate::sandbox::{
    HolderPlan, NamespaceHolder, NetworkAccess, OsText, OverlayPlan, SandboxHelper, SetupFailure,
};
use crate::trees::remove_all;

/// The `statfs` type of overlayfs.
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;

/// The most lower layers the kernel accepts in one overlay.
const MAX_LOWERS: usize = 500;

/// The directories of an overlay, and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayLayers {
    /// Read-only directories, lowest first. At least one.
    pub lowers: Vec<PathBuf>,
    /// The directory that receives every change. Mounted by one holder at a time.
    pub upper: PathBuf,
    /// An empty directory on the same file system as `upper`, for the kernel's own use (`workdir`).
    pub work: PathBuf,
    /// An existing directory on which the overlay is mounted, visible inside the holder only.
    pub at: PathBuf,
    /// Whether programs that run there may use the network.
    pub network: NetworkAccess,
    /// The package caches that programs use copy-on-write.
    pub caches: Vec<CacheLayers>,
}

/// A package cache of the user, and the private directories that take what programs write to it.
///
/// If it cannot be mounted as an overlay, programs see it read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayers {
    /// The cache. Programs see it at the same path.
    pub cache: PathBuf,
    /// The directory that receives every change.
    pub upper: PathBuf,
    /// An empty directory on the same file system as `upper`, for the kernel's own use.
    pub work: PathBuf,
    /// An existing directory on which the overlay is mounted, visible inside the holder only.
    pub at: PathBuf,
}

impl CacheLayers {
    pub(crate) fn plan(&self) -> OverlayPlan {
        OverlayPlan {
            lowers: vec![OsText::new(&self.cache)],
            upper: OsText::new(&self.upper),
            work: OsText::new(&self.work),
            at: OsText::new(&self.at),
        }
    }
}

impl OverlayLayers {
    /// Removes the work directory. The kernel leaves subdirectories in it without permissions.
    ///
    /// # Errors
    ///
    /// When it cannot be removed, for instance because it is still mounted.
    pub fn remove_work(&self) -> io::Result<()> {
        remove_all(&self.work)
    }
}

/// Overlay workspaces on this machine.
#[derive(Debug)]
pub struct Overlay;

/// A mounted overlay; dropping it ends the mount.
#[derive(Debug)]
pub struct MountedOverlay {
    root: OwnedFd,
    holder: NamespaceHolder,
    /// Shares the holder's lock on the upper directory: while the root is in use, no process can mount the
    /// directory again.
    _upper_lock: UpperLock,
    layers: OverlayLayers,
}

/// The lock on an upper directory. Declared after the holder, so it is released after the holder has ended.
#[derive(Debug)]
struct UpperLock(OwnedFd);

impl Drop for UpperLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that another thread is forking holds a copy of the descriptor
        // until it execs, and the lock would stay with that copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Says why an overlay was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The kernel or its administrator does not allow user namespaces.
    #[error("this machine does not allow user namespaces ({0})")]
    NoUserNamespaces(String),
    /// The layers lie on overlayfs, which cannot be the upper layer of another.
    #[error("{} is on overlayfs, which cannot contain another overlay", path.display())]
    OnOverlay {
        /// The directory in question.
        path: PathBuf,
    },
    /// The file system or the kernel refused the mount.
    #[error("the kernel refused to mount the overlay ({0})")]
    Refused(String),
    /// There are more lower layers than the kernel accepts.
    #[error("the overlay has {count} lower layers; the kernel accepts {MAX_LOWERS}")]
    TooManyLayers {
        /// The number of layers.
        count: usize,
    },
    /// There is no lower layer.
    #[error("an overlay needs a lower layer")]
    NoLayers,
    /// Another holder has mounted the upper directory.
    #[error("{} is mounted by another process", path.display())]
    InUse {
        /// The upper directory.
        path: PathBuf,
    },
    /// The holder process could not be started or ended early.
    #[error("the namespace holder failed")]
    Holder(#[source] io::Error),
}

impl Overlay {
    /// Mounts `layers` in a new holder process.
    ///
    /// # Errors
    ///
    /// Why the overlay was not mounted; see [`OverlayError`].
    pub fn mount(
        helper: &SandboxHelper,
        layers: OverlayLayers,
    ) -> Result<MountedOverlay, OverlayError> {
        match layers.lowers.len() {
            0 => return Err(OverlayError::NoLayers),
            1..=MAX_LOWERS => {}
            count => return Err(OverlayError::TooManyLayers { count }),
        }
        let overlay = OverlayPlan {
            lowers: layers.lowers.iter().map(OsText::new).collect(),
            upper: OsText::new(&layers.upper),
            work: OsText::new(&layers.work),
            at: OsText::new(&layers.at),
        };
        let network = layers.network == NetworkAccess::Granted;
        let caches = layers.caches.iter().map(CacheLayers::plan).collect();
        let plan = HolderPlan { overlay: Some(overlay), caches, network };
        let (holder, answer) =
            NamespaceHolder::start(helper, &plan).map_err(OverlayError::Holder)?;
        let files = answer.map_err(|failure| overlay_error(&failure, &layers))?;
        let mut files = files.into_iter();
        let (Some(root), Some(lock)) = (files.next(), files.next()) else {
            return Err(OverlayError::Holder(io::ErrorKind::InvalidData.into()));
        };
        Ok(MountedOverlay { root, holder, _upper_lock: UpperLock(lock), layers })
    }

    /// Checks whether overlays with layers below `state` can be mounted.
    ///
    /// Mounts one in a temporary directory there and removes it again.
    ///
    /// # Errors
    ///
    /// Why they cannot. The caller then chooses another kind of workspace and shows the reason.
    pub fn probe(helper: &SandboxHelper, state: &Path) -> Result<(), OverlayError> {
        let trial = state.join(format!(".overlay-probe-{}", std::process::id()));
        let part = |name: &str| trial.join(name);
        let layers = OverlayLayers {
            lowers: vec![part("lower")],
            upper: part("upper"),
            work: part("work"),
            at: part("at"),
            network: NetworkAccess::Off,
            caches: Vec::new(),
        };
        let parts = ["lower", "upper", "work", "at"];
        let made = parts.iter().try_for_each(|name| private::ensure_dir(&part(name)));
        let result = made
            .map_err(OverlayError::Holder)
            .and_then(|()| Self::mount(helper, layers.clone()))
            .map(MountedOverlay::unmount);
        let _ = layers.remove_work();
        // Best effort: leftovers are empty, and the next probe uses another name.
        let _ = std::fs::remove_dir_all(&trial);
        result
    }
}

impl MountedOverlay {
    /// Returns the merged root. Opening files beneath it works from outside the namespaces.
    #[must_use]
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns the layers it was mounted from.
    #[must_use]
    pub fn layers(&self) -> &OverlayLayers {
        &self.layers
    }

    /// Ends the holder and waits until the mount is gone.
    pub fn unmount(self) {
        let Self { root, holder, _upper_lock: lock, layers: _ } = self;
        drop(root);
        holder.end();
        drop(lock);
    }

    pub(crate) fn holder(&self) -> &NamespaceHolder {
        &self.holder
    }
}

fn overlay_error(failure: &SetupFailure, layers: &OverlayLayers) -> OverlayError {
    let said = failure.to_string();
    match failure.step.as_str() {
        "lock upper" if failure.errno == Some(Errno::WOULDBLOCK.raw_os_error()) => {
            OverlayError::InUse { path: layers.upper.clone() }
        }
        "create user namespace" | "give up changing groups" | "map the user" | "map the group" => {
            OverlayError::NoUserNamespaces(said)
        }
        _ if is_on_overlayfs(&layers.upper) => {
            OverlayError::OnOverlay { path: layers.upper.clone() }
        }
        _ => OverlayError::Refused(said),
    }
}

fn is_on_overlayfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.f_type == OVERLAYFS_MAGIC)
}
