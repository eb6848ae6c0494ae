//! The user's repository: finding it and checking that it can be trusted.
//!
//! Knows the git directory, the common directory and the work tree, and the few configuration values that are
//! copied. Operations are in the sibling files.
//!
//! Start at [`Repository::open`]. Invariant: only configuration values that cannot name a program are used.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::GitError;
use super::change::{FileChange, SkipReason, SkippedPath};
use super::excluded_dirs::{DirOwner, ExcludedDirs, excluded_paths};
use super::id::ObjectId;
use super::run::{Git, GitCall};
use super::trust::{common_dir_of, git_dir_of, open_regular_file, read_pointer};
use crate::git_guard::GitGuard;
use crate::private;

const EMPTY_TREE_SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_TREE_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

/// Configuration values that are copied: how the file system behaves, and the object format.
const COPIED_CONFIG: &str = r"^(core\.(filemode|symlinks|ignorecase|precomposeunicode|sharedrepository)|extensions\.objectformat)$";

/// A lock file older than this was left by a killed git.
const STALE_LOCK: Duration = Duration::from_secs(30);

/// The most bytes of packed references that are read without git.
const PACKED_BYTES: u64 = 256 * 1024;

/// A git repository with a work tree.
#[derive(Clone, Debug)]
pub struct Repository {
    git: Git,
    work_tree: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    state: PathBuf,
    excludes: Option<PathBuf>,
    config: String,
    empty_tree: ObjectId,
    stale_lock: Duration,
    reserved: Vec<PathBuf>,
    /// Absolute paths of Adjutant's own directories and files, which are never captured, kept or merged.
    pub(super) closed: Vec<PathBuf>,
    /// The git directories and the protected paths inside the work tree.
    pub(super) own: Vec<(PathBuf, DirOwner)>,
}

impl Repository {
    /// Opens the repository around `path`; private files are kept in `state`.
    ///
    /// # Errors
    ///
    /// [`GitError::NotARepository`], [`GitError::Untrusted`] if `.git` or an essential part of it is a link,
    /// [`GitError::Foreign`] if it belongs to another directory, or why git failed.
    pub fn open(git: &Git, path: &Path, state: &Path) -> Result<Self, GitError> {
        let start = fs::canonicalize(path).map_err(GitError::io("opening the directory"))?;
        private::ensure_dir(state).map_err(GitError::io("creating the state directory"))?;
        let state = fs::canonicalize(state).map_err(GitError::io("opening the state directory"))?;
        for folder in start.ancestors() {
            if let Some(git_dir) = git_dir_of(git, folder)? {
                return Self::open_at(git, folder, git_dir, &state);
            }
        }
        Err(GitError::NotARepository { path: start })
    }

    /// Opens a work tree whose git directory is known.
    pub(crate) fn open_at(
        git: &Git,
        work_tree: &Path,
        git_dir: PathBuf,
        state: &Path,
    ) -> Result<Self, GitError> {
        let common_dir = common_dir_of(&git_dir)?;
        let mut repository = Self {
            git: git.clone(),
            work_tree: work_tree.to_owned(),
            git_dir,
            common_dir,
            state: state.to_owned(),
            excludes: None,
            config: String::new(),
            empty_tree: well_known(EMPTY_TREE_SHA1)?,
            stale_lock: STALE_LOCK,
            reserved: Vec::new(),
            closed: Vec::new(),
            own: Vec::new(),
        };
        repository.own = excluded_paths(&repository);
        repository.copy_config()?;
        repository.remove_abandoned_scratch();
        Ok(repository)
    }

    /// Returns the repository with another of its work trees.
    pub(crate) fn with_work_tree(&self, work_tree: PathBuf, git_dir: PathBuf) -> Self {
        Self { work_tree, git_dir, ..self.clone() }
    }

    /// Also ignores what the patterns in this file match, like `core.excludesFile`.
    #[must_use]
    pub fn with_excludes(mut self, file: PathBuf) -> Self {
        self.excludes = Some(file);
        self
    }

    /// Leaves these paths out of every commit of work: only Adjutant writes them.
    #[must_use]
    pub fn with_reserved(mut self, paths: Vec<PathBuf>) -> Self {
        self.reserved = paths;
        self
    }

    /// Removes reserved files, git directories and protected paths from changes, and adds them to `skipped`.
    pub(crate) fn without_reserved(
        &self,
        mut changes: Vec<FileChange>,
        skipped: &mut Vec<SkippedPath>,
    ) -> Vec<FileChange> {
        let mut own = self.excluded_dirs();
        changes.retain(|change| {
            let path = change.path().as_path();
            let is_reserved = self.reserved.iter().any(|reserved| reserved == path);
            if is_reserved {
                let (path, reason) = (path.to_owned(), SkipReason::Reserved);
                skipped.push(SkippedPath { path, reason });
            }
            !is_reserved && own.owner_around(path).is_none()
        });
        skipped.extend(own.into_skipped());
        changes
    }

    /// Returns a lookup for paths in git directories and protected paths.
    pub(crate) fn excluded_dirs(&self) -> ExcludedDirs<'_> {
        ExcludedDirs::new(self)
    }

    /// Returns a guard that refuses writes to the git directories of this repository.
    pub(crate) fn git_guard(&self) -> GitGuard {
        GitGuard::for_dirs([&self.git_dir, &self.common_dir])
    }

    /// Returns Adjutant's own directories and files, which are never captured, kept or merged.
    pub(crate) fn protected_paths(&self) -> &[PathBuf] {
        &self.closed
    }

    /// Sets the age from which a lock file of one of our references counts as left by a killed git.
    #[must_use]
    pub const fn with_stale_lock(mut self, age: Duration) -> Self {
        self.stale_lock = age;
        self
    }

    /// Keeps private files in another directory from now on: journals of applied results belong to one work tree,
    /// so each needs a directory of its own.
    ///
    /// # Errors
    ///
    /// When the directory cannot be created.
    pub fn with_state(mut self, state: &Path) -> Result<Self, GitError> {
        private::ensure_dir(state).map_err(GitError::io("creating the state directory"))?;
        let state = fs::canonicalize(state).map_err(GitError::io("opening the state directory"))?;
        self.state = state;
        self.remove_abandoned_scratch();
        Ok(self)
    }

    /// Returns the directory of the repository's files.
    #[must_use]
    pub fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// Returns the git directory of this work tree.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the git directory that all work trees of the repository share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Returns the commit of HEAD; `None` before the first commit.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn head(&self) -> Result<Option<ObjectId>, GitError> {
        match self.read_head_without_git() {
            Some(head) => Ok(Some(head)),
            None => self.resolve("HEAD^{commit}"),
        }
    }

    /// Reads HEAD without git if it is a commit, or a branch in a file or among the packed references.
    fn read_head_without_git(&self) -> Option<ObjectId> {
        let head = read_pointer(&self.git_dir.join("HEAD"), "")?;
        let head = head.to_str()?;
        let Some(name) = head.strip_prefix("ref: ") else { return ObjectId::parse(head) };
        let path = self.common_dir.join(name);
        if !name.starts_with("refs/heads/") || name.contains("..") {
            return None;
        }
        match path.symlink_metadata() {
            // Git packs a reference before it removes the file, never the other way round.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.find_packed_ref(name),
            _ => ObjectId::parse(read_pointer(&path, "")?.to_str()?),
        }
    }

    /// Looks up a packed reference; a large file is left to git, which need not read all of it.
    fn find_packed_ref(&self, name: &str) -> Option<ObjectId> {
        let file = open_regular_file(&self.common_dir.join("packed-refs")).ok()?;
        let mut text = String::new();
        file.take(PACKED_BYTES + 1).read_to_string(&mut text).ok()?;
        if text.len() as u64 > PACKED_BYTES {
            return None;
        }
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(_, packed)| *packed == name).find_map(|(id, _)| ObjectId::parse(id))
    }

    /// Returns the object that a revision names, if it exists.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn resolve(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let call = self.call("rev-parse").args(["--verify", "--quiet", "--end-of-options", name]);
        let output = call.accept(&[0, 1, 128]).run()?;
        Ok(if output.code == 0 { ObjectId::from_bytes(&output.bytes) } else { None })
    }

    /// Returns the objects that several revisions name, with one git call; `None` for each that does not exist.
    pub(super) fn resolve_all(&self, names: &[String]) -> Result<Vec<Option<ObjectId>>, GitError> {
        let call = self.call("cat-file").arg("--batch-check=%(objectname)");
        let output = call.run_with_input((names.join("\n") + "\n").as_bytes())?;
        let lines = output.bytes.split(|byte| *byte == b'\n').map(ObjectId::from_bytes);
        let found: Vec<_> = lines.take(names.len()).collect();
        if found.len() == names.len() {
            Ok(found)
        } else {
            Err(GitError::Unreadable { command: "cat-file".to_owned() })
        }
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] if the commit does not exist.
    pub fn tree_of(&self, commit: &ObjectId) -> Result<ObjectId, GitError> {
        self.resolve(&format!("{commit}^{{tree}}"))?
            .ok_or_else(|| GitError::Missing(format!("commit {commit}")))
    }

    /// Returns a git call on the repository itself: its references and work trees, never content.
    pub(crate) fn call(&self, command: &'static str) -> GitCall<'_> {
        self.git
            .call(command)
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.work_tree)
            .env("GIT_INDEX_FILE", "/dev/null")
            .folder(&self.git_dir)
    }

    pub(crate) const fn git(&self) -> &Git {
        &self.git
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(super) fn excluded_dirs_list(&self) -> &[(PathBuf, DirOwner)] {
        &self.own
    }

    pub(super) const fn stale_lock(&self) -> Duration {
        self.stale_lock
    }

    pub(crate) fn excludes(&self) -> Option<&Path> {
        self.excludes.as_deref()
    }

    /// Returns the id of the tree without entries.
    #[must_use]
    pub const fn empty_tree(&self) -> &ObjectId {
        &self.empty_tree
    }

    pub(crate) fn scratch_config(&self) -> &str {
        &self.config
    }

    fn copy_config(&mut self) -> Result<(), GitError> {
        let call = self.call("config").args(["-z", "--get-regexp", COPIED_CONFIG]).accept(&[0, 1]);
        let output = call.run()?;
        let (mut version, mut core, mut extensions) = (0, String::new(), String::new());
        for item in output.bytes.split(|byte| *byte == 0) {
            let text = String::from_utf8_lossy(item);
            let (key, value) = text.split_once('\n').unwrap_or((&text, "true"));
            match (key, value) {
                ("extensions.objectformat", "sha256") => {
                    version = 1;
                    extensions = "[extensions]\n\tobjectFormat = sha256\n".to_owned();
                    self.empty_tree = well_known(EMPTY_TREE_SHA256)?;
                }
                ("core.sharedrepository", value) if is_sharing(value) => {
                    core.push_str(&format!("\tsharedRepository = {value}\n"));
                }
                (key, "true" | "false") if key.starts_with("core.") => {
                    let name = key.trim_start_matches("core.");
                    core.push_str(&format!("\t{name} = {value}\n"));
                }
                _ => {}
            }
        }
        self.config = format!(
            "[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{core}{extensions}"
        );
        Ok(())
    }
}

/// Says whether a value of `core.sharedRepository` grants access to other accounts: a word or a mode.
fn is_sharing(value: &str) -> bool {
    let own = ["umask", "false", "no", "off", "0"];
    !value.is_empty()
        && !own.iter().any(|word| value.eq_ignore_ascii_case(word))
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn well_known(id: &str) -> Result<ObjectId, GitError> {
    ObjectId::parse(id).ok_or_else(|| GitError::BadObjectId(id.to_owned()))
}

/// Returns the bytes of a path.
pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Converts bytes that git printed to a path.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}
