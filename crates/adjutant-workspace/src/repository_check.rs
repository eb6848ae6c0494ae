//! Explanations why agents cannot write in a directory: it is in no usable repository, or results cannot be stored.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::Repository;

/// Explains why a directory is in no usable repository and what to do; `None` if there is simply no repository.
#[must_use]
pub fn why_no_repository(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let below = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    if let Some(folder) = path.ancestors().find(below) {
        let git = folder.join(".git");
        let what = if access(&git, Access::READ_OK | Access::EXEC_OK).is_err() {
            "is not readable for you; ask its owner for access"
        } else {
            "is not a git directory; run `git init` there to create one"
        };
        return Some(format!("{} {what}", git.display()));
    }
    let bare = path.ancestors().find(|folder| is_bare(folder))?;
    Some(format!(
        "{} is a bare repository without a work tree; run `git worktree add DIRECTORY` there and work in that \
         directory",
        bare.display()
    ))
}

fn is_bare(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

/// Explains why results cannot be stored as commits in a repository; `None` if they can.
#[must_use]
pub fn why_results_cannot_be_kept(repository: &Repository) -> Option<String> {
    let common = repository.common_dir();
    let places: [PathBuf; 3] = [common.to_owned(), common.join("objects"), common.join("refs")];
    // A missing directory is no obstacle: git creates it.
    let closed = |place: &&PathBuf| {
        let may = access(*place, Access::WRITE_OK | Access::EXEC_OK);
        may.is_err_and(|error| error != Errno::NOENT)
    };
    let closed = places.iter().find(closed)?;
    Some(format!(
        "{} is not writable for you, and results are stored in the repository; ask its owner for access, or work \
         in your own clone",
        closed.display()
    ))
}
