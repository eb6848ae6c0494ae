//! A git directory of our own, for one piece of work.
//!
//! It borrows the objects of a repository and nothing else: no configuration, no attributes, no
//! hooks, no references. Whatever is planted in the repository's own folder is not even read where
//! content is hashed, checked out, compared or merged.
//!
//! Invariant: a scratch lies in the state directory and goes away with its value; what a crash
//! leaves is removed by the next one who opens the repository.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::GitError;
use super::id::ObjectId;
use super::repository::Repository;
use super::run::GitCall;
use super::trust::open_plain;
use crate::private;

/// After this long a scratch belongs to nobody: every call of git is bounded by less.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Younger ones stay although their process is not seen: it may be in another namespace.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A private git directory over the objects of a repository.
#[derive(Debug)]
pub(crate) struct ScratchGitDir<'a> {
    repository: &'a Repository,
    folder: PathBuf,
}

impl Repository {
    /// Makes a scratch whose HEAD is `head`.
    pub(crate) fn scratch(&self, head: Option<&ObjectId>) -> Result<ScratchGitDir<'_>, GitError> {
        let folder = new_folder(&self.state().join("scratch"));
        let folder = folder.map_err(GitError::io("making a private git directory"))?;
        let scratch = ScratchGitDir { repository: self, folder };
        let made = || -> io::Result<()> {
            private::create_dir(&scratch.folder.join("refs"))?;
            let head = head.map_or("ref: refs/heads/none".to_owned(), ToString::to_string);
            private::write(&scratch.folder.join("HEAD"), head + "\n")?;
            private::write(&scratch.folder.join("config"), self.scratch_config())
        };
        made().map_err(GitError::io("making a private git directory"))?;
        Ok(scratch)
    }

    /// Removes the scratches of processes that are long gone.
    pub(crate) fn sweep(&self) {
        let Ok(all) = fs::read_dir(self.state().join("scratch")) else { return };
        for entry in all.flatten() {
            let age = entry.metadata().and_then(|found| found.modified()).ok();
            let age = age.and_then(|time: SystemTime| time.elapsed().ok()).unwrap_or_default();
            let owner = entry.file_name().to_string_lossy().split('-').next().map(str::to_owned);
            let gone = owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
            if age > ABANDONED_AFTER || (gone && age > KEPT_FOR) {
                // Best effort: a leftover costs some space and nothing else.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl ScratchGitDir<'_> {
    /// Begins a call with this git directory.
    pub(crate) fn call(&self, command: &'static str) -> GitCall<'_> {
        let repository = self.repository;
        let call = repository
            .git()
            .call(command)
            .option(format!("--attr-source={}", repository.empty_tree()))
            .env("GIT_DIR", &self.folder)
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .env("GIT_INDEX_FILE", self.index())
            .folder(&self.folder);
        let shallow = repository.common_dir().join("shallow");
        if shallow.exists() { call.env("GIT_SHALLOW_FILE", shallow) } else { call }
    }

    /// Begins a call that also sees files.
    pub(crate) fn call_in(&self, command: &'static str, work_tree: &Path) -> GitCall<'_> {
        self.call(command).env("GIT_WORK_TREE", work_tree).folder(work_tree)
    }

    /// Returns the id of the tree without entries.
    pub(crate) const fn empty_tree(&self) -> &ObjectId {
        self.repository.empty_tree()
    }

    /// Returns where objects are.
    pub(crate) fn objects(&self) -> PathBuf {
        self.repository.common_dir().join("objects")
    }

    /// Returns where its index is.
    pub(crate) fn index(&self) -> PathBuf {
        self.folder.join("index")
    }

    /// Returns a path inside it.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.folder.join(name.as_ref())
    }

    /// Copies the index of a checkout, with its time and the parts it is split into.
    ///
    /// The time matters: git trusts the dates of files only where they are older than the index.
    pub(crate) fn copy_index(&self, git_dir: &Path) -> Result<(), GitError> {
        let copy = || -> io::Result<()> {
            let mut from = match open_plain(&git_dir.join("index")) {
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
                    io::copy(&mut open_plain(&entry.path())?, &mut to)?;
                }
            }
            Ok(())
        };
        copy().map_err(GitError::io("copying the index"))
    }
}

/// Makes a folder that is nobody's yet: a process of the same number in another container may have one.
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
        // Best effort: `sweep` finds what stays.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_of_the_same_number_has_is_left_alone() {
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
