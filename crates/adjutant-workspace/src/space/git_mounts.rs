//! What git inside a sandbox needs besides the workspace: the objects of the user's repository.
//!
//! They are mounted read-only outside the checkout's path, at which programs see the workspace, and the workspace's list
//! of alternates names them there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use super::workspaces::WorkspacesContext;
use crate::sandbox::MountedDir;

/// The directory inside the sandbox below which git's directories are mounted.
const MOUNTED_AT: &str = "/.adjutant-git";

/// Mounts for git, and files with the paths that are valid inside the sandbox.
#[derive(Debug, Default)]
pub(super) struct GitMounts {
    pub(super) mounted: Vec<MountedDir>,
    /// Entries of object directories that are not objects.
    pub(super) hidden: Vec<PathBuf>,
    pub(super) replaced: Vec<(PathBuf, OsString)>,
    alternates: OsString,
}

impl GitMounts {
    /// Finds the object directories of the repository. The list of alternates comes from the repository, so only
    /// directories below a grant are used.
    pub(super) fn find(
        shared: &WorkspacesContext,
        grants: &[PathBuf],
    ) -> Result<Self, WorkspaceError> {
        let is_granted = |folder: &Path| {
            let real = |grant: &PathBuf| grant.canonicalize().unwrap_or_else(|_| grant.clone());
            grants.iter().any(|grant| folder.starts_with(real(grant)))
        };
        let objects = shared.object_dirs.find(&shared.repository, &is_granted)?;
        // A grant may show the same directories at their own paths.
        let mut mounts = Self { hidden: objects.hidden.clone(), ..Self::default() };
        for (number, from) in objects.folders.into_iter().enumerate() {
            let at = Path::new(MOUNTED_AT).join(format!("objects-{number}"));
            let below = |path: &PathBuf| path.strip_prefix(&from).ok().map(|rest| at.join(rest));
            mounts.hidden.extend(objects.hidden.iter().filter_map(below));
            // Names directories by paths that do not exist inside; all of them are in the workspace's own list.
            mounts.replaced.push((at.join("info/alternates"), OsString::new()));
            mounts.alternates.push(&at);
            mounts.alternates.push("\n");
            mounts.mounted.push(MountedDir { from, at });
        }
        Ok(mounts)
    }

    /// Lets the git directory at this path inside the sandbox use the objects.
    pub(super) fn lend_to(&mut self, git_dir: &Path) {
        let list = git_dir.join("objects/info/alternates");
        self.replaced.push((list, self.alternates.clone()));
    }

    /// Mounts the git directory of a work tree, to which the file `pointer` refers, and lets it use the objects.
    pub(super) fn show_git_dir(&mut self, from: PathBuf, pointer: &Path) {
        let at = Path::new(MOUNTED_AT).join("dir");
        let mut text = OsString::from("gitdir: ");
        text.push(&at);
        text.push("\n");
        self.replaced.push((pointer.to_owned(), text));
        self.lend_to(&at);
        self.mounted.push(MountedDir { from, at });
    }
}
