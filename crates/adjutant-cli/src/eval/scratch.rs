//! A temporary git repository with a fresh copy of a task's files.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::task::TaskFile;
use crate::delegate::absolute;
use crate::exit::{Exit, Failure};

/// The start of the names of scratch directories.
const PREFIX: &str = "adjutant-eval-";

/// How many names are tried; an earlier process with the same pid may have left some.
const NAMES: u32 = 1_000;

/// A directory with a repository and the state of its workspaces, deleted on drop.
pub(super) struct ScratchRepository(PathBuf);

impl ScratchRepository {
    /// Makes a repository without commits that has these files.
    pub(super) fn create(files: &[TaskFile]) -> Result<Self, Failure> {
        let place = std::env::temp_dir();
        let wrong = |error: io::Error| {
            let text = format!("cannot make a repository in {}: {error}", place.display());
            Failure::new(Exit::Failed, text)
        };
        // `create` fails if the name exists, so another process's directory is never used.
        let made = |nth: u32| {
            let path = place.join(format!("{PREFIX}{}-{nth}", std::process::id()));
            fs::DirBuilder::new().mode(0o700).create(&path).map(|()| path)
        };
        let free = (1..NAMES).find_map(|nth| made(nth).ok());
        let path = free.map_or_else(|| made(NAMES), Ok).map_err(wrong)?;
        let scratch = Self(absolute(&path)?);
        scratch.fill(files).map_err(wrong)?;
        Ok(scratch)
    }

    fn fill(&self, files: &[TaskFile]) -> io::Result<()> {
        let git = self.tree().join(".git");
        fs::create_dir_all(git.join("objects/info"))?;
        fs::create_dir_all(git.join("refs/heads"))?;
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
        fs::write(git.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")?;
        for (path, bytes) in files {
            let path = self.tree().join(path);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, bytes)?;
        }
        Ok(())
    }

    /// Returns the directory of all of it.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the work tree.
    pub(super) fn tree(&self) -> PathBuf {
        self.0.join("project")
    }

    /// Returns the state directory of its workspaces, which are deleted with it.
    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for ScratchRepository {
    fn drop(&mut self) {
        // Best effort: at worst a small temporary directory stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Deletes the directory that an interrupted attempt left.
pub(super) fn remove_leftover(path: &Path) {
    let is_ours =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.starts_with(PREFIX));
    if is_ours && path.parent() == std::env::temp_dir().canonicalize().ok().as_deref() {
        // Best effort, as above.
        let _ = fs::remove_dir_all(path);
    }
}
