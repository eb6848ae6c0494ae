//! A temporary private git directory for one operation.
//!
//! It uses the objects of a repository and nothing else: no configuration, hooks or references. So where content is
//! hashed, checked out, compared or merged, nothing planted in the repository's own git directory is even read.
//! Attributes in the files themselves have no effect, see [`NO_ATTRIBUTES`].
//!
//! Invariant: it lies in the state directory and is removed on drop; what a crash leaves is removed when the
//! repository is next opened.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::GitError;
use super::id::ObjectId;
use super::repository::Repository;
use super::run::GitCall;
use super::trust::open_regular_file;
use crate::private;

/// Resets all attributes that git knows, for all paths.
///
/// Git reads `.gitattributes` from the index when it writes files and from the work tree when it hashes them. This
/// text in `info/attributes` takes precedence over both, whatever macros they define, so content is never
/// converted, marked as binary or merged in another way. Without configuration, attributes cannot name a program in
/// any case.
const NO_ATTRIBUTES: &str = "* !text !crlf !eol !ident !filter !working-tree-encoding !diff !merge \
     !conflict-marker-size !whitespace !delta !encoding !export-ignore !export-subst\n";

/// The age from which a directory is abandoned: every git call has a shorter timeout.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Younger directories stay even if their process is not visible: it may run in another namespace.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary private git directory with the objects of a repository.
#[derive(Debug)]
pub(crate) struct ScratchGitDir<'a> {
    repository: &'a Repository,
    folder: PathBuf,
}

impl Repository {
    /// Creates one whose HEAD is `head`.
    pub(crate) fn scratch(&self, head: Option<&ObjectId>) -> Result<ScratchGitDir<'_>, GitError> {
        let folder = new_folder(&self.state().join("scratch"));
        let folder = folder.map_err(GitError::io("creating a private git directory"))?;
        let scratch = ScratchGitDir { repository: self, folder };
        let made = || -> io::Result<()> {
            private::create_dir(&scratch.folder.join("info"))?;
            // Git requires `refs`; a link is removed faster than a second directory.
            symlink("info", scratch.folder.join("refs"))?;
            let head = head.map_or("ref: refs/heads/none".to_owned(), ToString::to_string);
            private::write(&scratch.folder.join("HEAD"), head + "\n")?;
            private::write(&scratch.folder.join("config"), self.scratch_config())?;
            private::write(&scratch.folder.join("info/attributes"), NO_ATTRIBUTES)
        };
        made().map_err(GitError::io("creating a private git directory"))?;
        Ok(scratch)
    }

    /// Removes the directories of processes that are long gone.
    pub(crate) fn remove_abandoned_scratch(&self) {
        let Ok(all) = fs::read_dir(self.state().join("scratch")) else { return };
        for entry in all.flatten() {
            let age = entry.metadata().and_then(|found| found.modified()).ok();
            let age = age.and_then(|time: SystemTime| time.elapsed().ok()).unwrap_or_default();
            let owner = entry.file_name().to_string_lossy().split('-').next().map(str::to_owned);
            let gone = owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
            if age > ABANDONED_AFTER || (gone && age > KEPT_FOR) {
                // Best effort: a leftover only uses some space.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl ScratchGitDir<'_> {
    /// Returns a git call with this git directory.
    pub(crate) fn call(&self, command: &'static str) -> GitCall<'_> {
        let repository = self.repository;
        let call = repository
            .git()
            .call(command)
            .env("GIT_DIR", &self.folder)
            // From 2.41 on, git then does not even read `.gitattributes`, which a program may have made very large.
            .env("GIT_ATTR_SOURCE", repository.empty_tree().as_str())
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .env("GIT_INDEX_FILE", self.index())
            .folder(&self.folder);
        let shallow = repository.common_dir().join("shallow");
        if shallow.exists() { call.env("GIT_SHALLOW_FILE", shallow) } else { call }
    }

    /// Returns a git call with this git directory and a work tree.
    pub(crate) fn call_in(&self, command: &'static str, work_tree: &Path) -> GitCall<'_> {
        self.call(command).env("GIT_WORK_TREE", work_tree).folder(work_tree)
    }

    /// Returns the id of the tree without entries.
    pub(crate) const fn empty_tree(&self) -> &ObjectId {
        self.repository.empty_tree()
    }

    /// Returns the object directory.
    pub(crate) fn objects(&self) -> PathBuf {
        self.repository.common_dir().join("objects")
    }

    /// Returns the directory itself.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of its index.
    pub(crate) fn index(&self) -> PathBuf {
        self.folder.join("index")
    }

    /// Returns a path inside it.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.folder.join(name.as_ref())
    }

    /// Copies the index of a checkout with its timestamp, and its parts if it is split.
    ///
    /// Git trusts the timestamps of files only if they are older than the index.
    pub(crate) fn copy_index(&self, git_dir: &Path) -> Result<(), GitError> {
        let copy = || -> io::Result<()> {
            let mut from = match open_regular_file(&git_dir.join("index")) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let modified = from.metadata()?.modified()?;
            let mut to = private::create_file(&self.index())?;
            io::copy(&mut from, &mut to)?;
            to.set_modified(modified)?;
            for entry in fs::read_dir(git_dir)?.flatten() {
                if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
                    let mut to = private::create_file(&self.folder.join(entry.file_name()))?;
                    io::copy(&mut open_regular_file(&entry.path())?, &mut to)?;
                }
            }
            Ok(())
        };
        copy().map_err(GitError::io("copying the index"))
    }
}

/// Creates a new directory: a process with the same pid in another container may already have one of the same name.
fn new_folder(all: &Path) -> io::Result<PathBuf> {
    private::ensure_dir(all)?;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = all.join(format!("{}-{number}", std::process::id()));
        match private::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

impl Drop for ScratchGitDir<'_> {
    fn drop(&mut self) {
        // Best effort: `remove_abandoned_scratch` removes leftovers.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_another_process_with_the_same_pid_are_not_reused() {
        let all = tempfile::tempdir().unwrap();
        let next = NEXT.load(Ordering::Relaxed);
        let others: Vec<PathBuf> = (next..next + 100)
            .map(|number| all.path().join(format!("{}-{number}/index", std::process::id())))
            .collect();
        for other in &others {
            fs::create_dir(other.parent().unwrap()).unwrap();
            fs::write(other, "live").unwrap();
        }
        let ours = new_folder(all.path()).unwrap();
        assert!(others.iter().all(|other| other.is_file() && !other.starts_with(&ours)));
    }
}
