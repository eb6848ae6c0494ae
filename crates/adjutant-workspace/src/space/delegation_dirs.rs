//! The private directories of a delegation beside its workspace: its home, its temporary files, its view of caches.
//!
//! They lie in the directory of the workspace and live as long as it does, so that a resumed delegation finds them.
//! Start at [`DelegationDirs::in_folder`].

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use super::ignored_files::Fnv1aHash;
use super::workspace_dir::remove_all;
use crate::git::bytes_of;
use crate::overlay::CacheLayers;
use crate::private;
use crate::sandbox::MountedDir;

/// The private directories of one delegation.
#[derive(Clone, Debug)]
pub(super) struct DelegationDirs {
    folder: PathBuf,
}

impl DelegationDirs {
    /// Names the directories of the workspace whose files lie in `folder`; nothing is created.
    pub(super) fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Creates the home directory and the one for temporary files, and says where programs see them. Without a home
    /// directory of the user, programs use `/tmp` as their home.
    pub(super) fn make(&self, home: Option<&Path>) -> Result<Vec<MountedDir>, WorkspaceError> {
        let tmp = self.folder.join("tmp");
        let make = || -> io::Result<()> {
            private::ensure_dir(&tmp)?;
            // As programs expect it; the directory around it is private.
            fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))?;
            if home.is_some() {
                private::ensure_dir(&self.folder.join("home"))?;
            }
            Ok(())
        };
        make().map_err(WorkspaceError::io("creating a home directory"))?;
        let mut dirs = vec![MountedDir { from: tmp, at: PathBuf::from("/tmp") }];
        dirs.extend(
            home.map(|at| MountedDir { from: self.folder.join("home"), at: at.to_owned() }),
        );
        Ok(dirs)
    }

    /// Creates the layers that take what programs write to these caches.
    pub(super) fn make_caches(
        &self,
        caches: &[PathBuf],
    ) -> Result<Vec<CacheLayers>, WorkspaceError> {
        let layers = caches.iter().map(|cache| {
            let folder = self.folder.join("caches").join(cache_name(cache));
            let [upper, work, at] = ["upper", "work", "at"].map(|name| folder.join(name));
            for directory in [&upper, &work, &at] {
                private::ensure_dir(directory)?;
            }
            Ok(CacheLayers { cache: cache.clone(), upper, work, at })
        });
        layers
            .collect::<io::Result<_>>()
            .map_err(WorkspaceError::io("creating a layer for a package cache"))
    }

    /// Removes the directories and everything in them.
    pub(super) fn remove(&self) -> Result<(), WorkspaceError> {
        ["home", "tmp", "caches"].iter().try_for_each(|name| remove_all(&self.folder.join(name)))
    }
}

/// Names the layers of a cache after its path, because the list of caches can change before a resume.
fn cache_name(cache: &Path) -> String {
    let mut hash = Fnv1aHash::default();
    hash.add(bytes_of(cache));
    let name = cache.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
    let plain = name.chars().filter(char::is_ascii_alphanumeric).take(16).collect::<String>();
    format!("{plain}-{:016x}", hash.0)
}
