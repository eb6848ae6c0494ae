//! Creating a commit from a base and changed files.
//!
//! One `git fast-import` receives everything: contents, deletions, the tree and the commit. It reads only the
//! directories of the base in which something changes, so the cost depends on the change and not on the size of the
//! repository. Content is stored as it is on disk, without filters or line-ending conversion.
//!
//! Git packs the objects in a [`Quarantine`]. Those of a small commit become loose objects, so that the repository
//! does not fill up with small packs.
//!
//! Start at [`Repository::commit`]. Invariant: a reference is moved only after everything it points to is on disk.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, statat};

use super::GitError;
use super::change::{
    FileChange, OpenedContent, SkipReason, SkippedPath, content_at, has_only_normal_components,
    is_in_dot_git, is_too_deep,
};
use super::id::{ObjectId, ResultRef};
use super::quarantine::Quarantine;
use super::repository::{Repository, bytes_of};
use super::scratch::ScratchGitDir;
use crate::{RelPath, Root};

/// The author and committer of all commits.
pub(super) const IDENTITY: &str = "Adjutant <adjutant@localhost>";

/// Files up to this size are read into memory first, so that a file that shrinks meanwhile does no harm.
const BUFFERED_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The largest file that is committed; a sparse file can be larger than the disk.
pub(crate) const FILE_BYTES: u64 = 512 * 1024 * 1024;

/// The most bytes of one commit; files beyond that are left out.
const MAX_COMMIT_BYTES: u64 = 4 * FILE_BYTES;

/// Bytes of a larger file that are streamed at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// Attempts to create a commit if a large file shrinks while it is read.
const MAX_ATTEMPTS: usize = 3;

/// The most changes of a small commit.
const SMALL_CHANGES: usize = 200;

/// The most bytes of a small commit.
const SMALL_BYTES: u64 = 1024 * 1024;

/// Small commits with more objects stay packed; git uses the same limit for fetches.
const MAX_LOOSE_OBJECTS: u32 = 100;

/// Small commits are not compressed: that would take half of the time, and `git gc` does it later.
const NO_COMPRESSION: &str = "core.compression=0";

/// Keeps glibc from returning memory to the kernel after each object, which takes half of the time of an import.
const KEEP_MEMORY: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=67108864");

/// No fsync by git: the quarantine fsyncs all objects before they are moved into place.
const NO_SYNC: &str = "core.fsync=none";

/// What happens to the objects of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectStorage {
    /// They are stored and fsynced.
    Durable,
    /// They are discarded; only their ids are needed.
    Nothing,
}

/// The content of a commit to create: parent, changed files, message and date. The reference to move is an argument
/// of [`Repository::commit`].
#[derive(Clone, Copy, Debug)]
pub struct NewCommit<'a> {
    /// Its parent; `None` for a first commit.
    pub base: Option<&'a ObjectId>,
    /// The directory with the content of written paths.
    pub root: &'a Root,
    /// The differences from the parent.
    pub changes: &'a [FileChange],
    /// The commit message.
    pub message: &'a str,
    /// The commit date.
    pub at: SystemTime,
}

impl<'a> NewCommit<'a> {
    /// Says whether the commit is small; files that grow meanwhile may make it larger.
    fn is_small(&self) -> bool {
        let size = |change: &FileChange| {
            let path = change.path().as_path();
            let found = statat(self.root.handle(), path, AtFlags::SYMLINK_NOFOLLOW);
            found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or_default())
        };
        self.changes.len() <= SMALL_CHANGES
            && self.changes.iter().map(size).sum::<u64>() <= SMALL_BYTES
    }

    /// Returns the directories in which something is written, as far as git can be asked about them.
    fn folders(&self) -> BTreeSet<&'a Path> {
        let mut all = BTreeSet::new();
        for change in self.changes {
            let FileChange::Written(path) = change else { continue };
            let path = path.as_path();
            if is_in_dot_git(path) || !has_only_normal_components(path) || is_too_deep(path) {
                continue;
            }
            let above = path.ancestors().skip(1).filter(|at| !at.as_os_str().is_empty());
            for folder in above {
                if !all.insert(folder) {
                    break;
                }
            }
        }
        all
    }
}

/// A commit that was created, with the paths that are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedCommit {
    /// The commit.
    pub commit: ObjectId,
    /// Its tree.
    pub tree: ObjectId,
    /// Paths that were left out.
    pub skipped: Vec<SkippedPath>,
}

impl Repository {
    /// Commits the changes and moves `reference` from `expected` to the commit.
    ///
    /// Returns `None` without a commit if nothing differs.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] if the reference has another value; otherwise why the commit could not be created. The
    /// reference is then unchanged.
    pub fn commit(
        &self,
        commit: NewCommit<'_>,
        reference: &ResultRef,
        expected: Option<&ObjectId>,
    ) -> Result<Option<CreatedCommit>, GitError> {
        if commit.changes.is_empty() {
            return Ok(None);
        }
        let scratch = self.scratch(None)?;
        let ImportedCommit { made, base_tree } = scratch.import(commit, ObjectStorage::Durable)?;
        if made.tree == base_tree {
            return Ok(None);
        }
        self.update_ref(&reference.to_string(), &made.commit, expected)?;
        Ok(Some(made))
    }
}

/// A created commit, and the tree of its base.
pub(crate) struct ImportedCommit {
    pub(crate) made: CreatedCommit,
    /// The tree of the base, or the empty one.
    pub(crate) base_tree: ObjectId,
}

/// A commit that git created in a quarantine.
struct ImportAttempt {
    imported: ImportedCommit,
    quarantine: Quarantine,
    is_small: bool,
    /// The submodules of the base in which files were written.
    submodules: BTreeSet<PathBuf>,
}

impl ScratchGitDir<'_> {
    /// Creates the commit, or only computes its ids; no reference points to it yet.
    pub(crate) fn import(
        &self,
        commit: NewCommit<'_>,
        storing: ObjectStorage,
    ) -> Result<ImportedCommit, GitError> {
        let mut attempt = 1;
        let mut submodules = BTreeSet::new();
        let attempted = loop {
            match self.import_once(commit, &submodules) {
                Err(GitError::Changed { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
                // Repeats without files in submodules: they would replace the submodule in the tree.
                Ok(again) if submodules.is_empty() && !again.submodules.is_empty() => {
                    submodules = again.submodules;
                }
                done => break done?,
            }
        };
        if storing == ObjectStorage::Durable {
            self.store(attempted.quarantine, attempted.is_small)?;
        }
        Ok(attempted.imported)
    }

    /// Moves the packed objects into the repository.
    fn store(&self, quarantine: Quarantine, is_small: bool) -> Result<(), GitError> {
        let failed = || GitError::io("storing the objects of a commit");
        let pack = quarantine.pack_of_at_most(MAX_LOOSE_OBJECTS).map_err(failed())?;
        let Some(pack) = pack.filter(|_| is_small) else {
            return quarantine.release_packs().map_err(failed());
        };
        // Without access to the repository's objects: git would skip existing objects, and those may not be on disk
        // yet.
        let loose = quarantine.make_loose().map_err(failed())?;
        let unpack = self.call("unpack-objects").env("GIT_OBJECT_DIRECTORY", &loose);
        unpack.config(NO_SYNC).config(NO_COMPRESSION).arg("-q").input(pack).run()?;
        quarantine.release_loose().map_err(failed())
    }

    /// Creates the commit in a quarantine, without the files in `submodules`.
    fn import_once(
        &self,
        commit: NewCommit<'_>,
        submodules: &BTreeSet<PathBuf>,
    ) -> Result<ImportAttempt, GitError> {
        let mut stream = ImportStream::new(commit, submodules);
        let quarantine = Quarantine::new(self.objects())
            .map_err(GitError::io("creating a directory for the objects of a commit"))?;
        let is_small = commit.is_small();
        let mut call = self.call("fast-import");
        if is_small {
            call = call.config(NO_COMPRESSION);
        }
        let output = call
            .env(KEEP_MEMORY.0, KEEP_MEMORY.1)
            .env("GIT_OBJECT_DIRECTORY", quarantine.folder())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.objects()))
            .args(["--quiet", "--done", "--force", "--date-format=raw"])
            .config("fastimport.unpackLimit=0")
            .config(NO_SYNC)
            .config("core.protectNTFS=false")
            .config("core.protectHFS=false")
            .stream(&mut |buffer| stream.next(buffer))?;
        let unreadable = || GitError::Unreadable { command: "fast-import".to_owned() };
        let mut lines = output.bytes.split(|byte| *byte == b'\n');
        let base_tree = match commit.base {
            Some(_) => {
                lines.next().and_then(|line| self.parse_tree_line(line)).ok_or_else(unreadable)?
            }
            None => self.empty_tree().clone(),
        };
        let folders = if commit.base.is_some() { commit.folders() } else { BTreeSet::new() };
        let answers: Vec<_> = lines.by_ref().take(folders.len()).zip(folders).collect();
        let made = lines.next().and_then(ObjectId::from_bytes).ok_or_else(unreadable)?;
        let tree =
            lines.next().and_then(|line| self.parse_tree_line(line)).ok_or_else(unreadable)?;
        let found = answers.into_iter().filter(|(line, _)| line.starts_with(b"160000 "));
        let submodules = found.map(|(_, folder)| folder.to_owned()).collect();
        let made = CreatedCommit { commit: made, tree, skipped: stream.skipped };
        let imported = ImportedCommit { made, base_tree };
        Ok(ImportAttempt { imported, quarantine, is_small, submodules })
    }

    /// Parses the tree id from git's `ls` answer.
    fn parse_tree_line(&self, line: &[u8]) -> Option<ObjectId> {
        if line.starts_with(b"missing") {
            return Some(self.empty_tree().clone());
        }
        let rest = line.strip_prefix(b"040000 tree ")?;
        rest.split(|byte| *byte == b'\t').next().and_then(ObjectId::from_bytes)
    }
}

/// What to commit at a path.
enum PathToCommit {
    Gone,
    Skipped(SkipReason),
    Link(Vec<u8>),
    File { file: File, len: u64, mode: &'static str },
}

impl PathToCommit {
    /// Opens a path; `bytes` is the size of the files before it.
    fn open(root: &Root, path: &RelPath, bytes: u64) -> Result<Self, GitError> {
        if is_too_deep(path.as_path()) {
            return Ok(Self::Skipped(SkipReason::TooDeep));
        }
        let opened = content_at(root, path)
            .map_err(|source| GitError::Path { path: path.as_path().to_owned(), source })?;
        Ok(match opened {
            Ok(OpenedContent::Nothing) => Self::Gone,
            Ok(OpenedContent::Link(target)) => Self::Link(target),
            Ok(OpenedContent::File { len, .. })
                if len > FILE_BYTES || bytes.saturating_add(len) > MAX_COMMIT_BYTES =>
            {
                Self::Skipped(SkipReason::TooLarge(len))
            }
            Ok(OpenedContent::File { file, len, executable }) => {
                Self::File { file, len, mode: if executable { "100755" } else { "100644" } }
            }
            Err(reason) => Self::Skipped(reason),
        })
    }
}

/// Says whether a path may be part of a commit.
fn is_allowed(path: &Path) -> bool {
    !is_in_dot_git(path) && has_only_normal_components(path) && !path.as_os_str().is_empty()
}

/// Returns a time as seconds since 1970.
pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Generates the input of `git fast-import` piece by piece.
struct ImportStream<'a> {
    commit: NewCommit<'a>,
    /// Submodules, whose files are left out.
    submodules: &'a BTreeSet<PathBuf>,
    /// What to generate next.
    stage: ImportStage,
    /// A large file that is being streamed.
    large: Option<(File, u64, PathBuf)>,
    /// The number of bytes generated so far.
    bytes: u64,
    skipped: Vec<SkippedPath>,
}

/// The part of the `fast-import` input that comes next, with the index of the next change.
enum ImportStage {
    Head,
    Deleted(usize),
    Written(usize),
    End,
    Done,
}

impl<'a> ImportStream<'a> {
    const fn new(commit: NewCommit<'a>, submodules: &'a BTreeSet<PathBuf>) -> Self {
        let skipped = Vec::new();
        Self { commit, submodules, stage: ImportStage::Head, large: None, bytes: 0, skipped }
    }

    /// Adds the next piece to the buffer. Returns false at the end.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool, GitError> {
        if let Some((file, left, path)) = self.large.take() {
            self.large = add_file_piece(file, left, path, buffer)?;
            return Ok(true);
        }
        match self.stage {
            ImportStage::Head => {
                self.add_header(buffer);
                self.stage = ImportStage::Deleted(0);
            }
            ImportStage::Deleted(at) => {
                self.stage = match self.commit.changes.get(at) {
                    Some(FileChange::Deleted(path)) => {
                        self.add_deletion(path, buffer);
                        ImportStage::Deleted(at + 1)
                    }
                    Some(FileChange::Written(_)) => ImportStage::Deleted(at + 1),
                    None => ImportStage::Written(0),
                };
            }
            ImportStage::Written(at) => {
                self.stage = match self.commit.changes.get(at) {
                    Some(FileChange::Written(path)) => {
                        self.add_written(path, buffer)?;
                        ImportStage::Written(at + 1)
                    }
                    Some(FileChange::Deleted(_)) => ImportStage::Written(at + 1),
                    None => ImportStage::End,
                };
            }
            ImportStage::End => {
                buffer.extend_from_slice(b"\nget-mark :1\nls :1 \ndone\n");
                self.stage = ImportStage::Done;
            }
            ImportStage::Done => return Ok(false),
        }
        Ok(true)
    }

    fn add_header(&self, buffer: &mut Vec<u8>) {
        let seconds = seconds(self.commit.at);
        let message = self.commit.message;
        let lines = format!(
            "commit refs/heads/result\nmark :1\ncommitter {IDENTITY} {seconds} +0000\ndata {}\n{message}\n",
            message.len()
        );
        buffer.extend_from_slice(lines.as_bytes());
        if let Some(base) = self.commit.base {
            buffer.extend_from_slice(format!("from {base}\n").as_bytes());
            // At this point git answers with the directories of the base.
            let folders = self.commit.folders();
            for folder in std::iter::once(Path::new("")).chain(folders) {
                buffer.extend_from_slice(b"ls ");
                quote(folder, buffer);
                buffer.push(b'\n');
            }
        }
    }

    fn add_deletion(&mut self, path: &RelPath, buffer: &mut Vec<u8>) {
        if self.check_allowed(path.as_path()) {
            buffer.extend_from_slice(b"D ");
            quote(path.as_path(), buffer);
            buffer.push(b'\n');
        }
    }

    fn add_written(&mut self, path: &RelPath, buffer: &mut Vec<u8>) -> Result<(), GitError> {
        if !self.check_allowed(path.as_path()) {
            return Ok(());
        }
        match PathToCommit::open(self.commit.root, path, self.bytes)? {
            PathToCommit::Gone => self.add_deletion(path, buffer),
            PathToCommit::Skipped(reason) => self.skip(path, reason),
            PathToCommit::Link(target) => {
                add_inline_file("120000", path.as_path(), &target, buffer)
            }
            PathToCommit::File { file, len, mode } => {
                self.bytes += len;
                if len > BUFFERED_FILE_BYTES {
                    add_file_header(mode, path.as_path(), len, buffer);
                    self.large = Some((file, len, path.as_path().to_owned()));
                } else {
                    let mut bytes = Vec::new();
                    // If the file grows, only its size at opening is read.
                    file.take(len)
                        .read_to_end(&mut bytes)
                        .map_err(GitError::io("reading a changed file"))?;
                    add_inline_file(mode, path.as_path(), &bytes, buffer);
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, path: &RelPath, reason: SkipReason) {
        self.skipped.push(SkippedPath { path: path.as_path().to_owned(), reason });
    }

    fn check_allowed(&mut self, path: &Path) -> bool {
        let in_submodule = || path.ancestors().skip(1).any(|at| self.submodules.contains(at));
        let fine = is_allowed(path) && (self.submodules.is_empty() || !in_submodule());
        if !fine {
            let reason = SkipReason::NestedRepository;
            self.skipped.push(SkippedPath { path: path.to_owned(), reason });
        }
        fine
    }
}

/// Adds a piece of a large file; returns the rest, if any.
fn add_file_piece(
    mut file: File,
    left: u64,
    path: PathBuf,
    buffer: &mut Vec<u8>,
) -> Result<Option<(File, u64, PathBuf)>, GitError> {
    let want = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
    let start = buffer.len();
    buffer.resize(start + want, 0);
    let into = buffer.get_mut(start..).unwrap_or_default();
    let count = file.read(into).map_err(GitError::io("reading a changed file"))?;
    if count == 0 {
        return Err(GitError::Changed { path });
    }
    buffer.truncate(start + count);
    let left = left.saturating_sub(count as u64);
    if left == 0 {
        buffer.push(b'\n');
        return Ok(None);
    }
    Ok(Some((file, left, path)))
}

fn add_file_header(mode: &str, path: &Path, len: u64, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(format!("M {mode} inline ").as_bytes());
    quote(path, buffer);
    buffer.extend_from_slice(format!("\ndata {len}\n").as_bytes());
}

fn add_inline_file(mode: &str, path: &Path, bytes: &[u8], buffer: &mut Vec<u8>) {
    add_file_header(mode, path, bytes.len() as u64, buffer);
    buffer.extend_from_slice(bytes);
    buffer.push(b'\n');
}

/// Quotes a path for a list of object directories.
pub(super) fn quoted(path: &Path) -> OsString {
    let mut text = Vec::new();
    quote(path, &mut text);
    OsString::from_vec(text)
}

/// Quotes a path for `git fast-import`.
fn quote(path: &Path, buffer: &mut Vec<u8>) {
    buffer.push(b'"');
    for byte in bytes_of(path) {
        match byte {
            b'"' => buffer.extend_from_slice(b"\\\""),
            b'\\' => buffer.extend_from_slice(b"\\\\"),
            b'\n' => buffer.extend_from_slice(b"\\n"),
            other => buffer.push(*other),
        }
    }
    buffer.push(b'"');
}
