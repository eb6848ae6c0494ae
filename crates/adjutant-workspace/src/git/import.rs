//! Making a commit out of a base and what differs from it.
//!
//! A few small changes are put into the repository singly (`graft`). For all others one process of git takes
//! everything: contents, deletions, the tree and the commit. It reads only
//! the folders of the base that something changes in, so the cost follows the change and not the
//! size of the repository. Content is stored as it lies there: no filter, no line ending touched.
//!
//! Start at [`Repository::commit`]. Invariant: a reference moves only after all it leads to is on disk.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::GitError;
use super::change::{Change, Content, SkipReason, Skipped, content, guarded, plain, too_deep};
use super::folders::Folders;
use super::id::{ObjectId, ResultRef};
use super::object::Storing;
use super::quarantine::Quarantine;
use super::repository::{Repository, bytes_of};
use super::scratch::Scratch;
use super::sync::sync_folders;
use crate::{RelPath, Root};

/// Who commits.
pub(super) const IDENTITY: &str = "Adjutant <adjutant@localhost>";

/// Files up to this size are read whole first, so that one that shrinks meanwhile does no harm.
pub(super) const WHOLE_BYTES: u64 = 4 * 1024 * 1024;

/// The largest file that is kept; a file may have a size without having content.
pub(crate) const FILE_BYTES: u64 = 512 * 1024 * 1024;

/// The most bytes of one commit; files beyond it are left out.
const ALL_BYTES: u64 = 4 * FILE_BYTES;

/// How much of a larger file is passed on at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// How often a commit begins again because a large file shrank while it was read.
const ATTEMPTS: usize = 3;

/// Everything stays in the pack that git writes and syncs: taken out of it, objects are files in folders
/// whose names nobody syncs.
const ONE_PACK: &str = "fastimport.unpackLimit=0";

/// A commit that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The commit it is made upon; none for the first one.
    pub base: Option<&'a ObjectId>,
    /// The folder that what is written lies in.
    pub root: &'a Root,
    /// What differs from the base.
    pub changes: &'a [Change],
    /// What the commit says.
    pub message: &'a str,
    /// When.
    pub at: SystemTime,
}

impl<'a> Commit<'a> {
    /// Returns the folders that something is written in, of those that git can be asked about.
    fn folders(&self) -> BTreeSet<&'a Path> {
        let mut all = BTreeSet::new();
        for change in self.changes {
            let Change::Written(path) = change else { continue };
            let path = path.as_path();
            if guarded(path) || !plain(path) || too_deep(path) {
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

/// A commit that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The commit.
    pub commit: ObjectId,
    /// Its tree.
    pub tree: ObjectId,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

impl Repository {
    /// Commits what changed and keeps it under `reference`, which must be at `expected`.
    ///
    /// Nothing is committed when nothing differs; then there is no answer.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] when the reference is elsewhere; otherwise why it could not be made. The
    /// reference is then as it was.
    pub fn commit(
        &self,
        commit: Commit<'_>,
        reference: &ResultRef,
        expected: Option<&ObjectId>,
    ) -> Result<Option<Committed>, GitError> {
        if commit.changes.is_empty() {
            return Ok(None);
        }
        let scratch = self.scratch(None)?;
        let Imported { made, base_tree } = scratch.import(commit, Storing::Durable)?;
        if made.tree == base_tree {
            return Ok(None);
        }
        self.point(&reference.to_string(), &made.commit, expected)?;
        Ok(Some(made))
    }
}

/// A commit that was made, and what it was made upon.
pub(crate) struct Imported {
    pub(crate) made: Committed,
    /// The tree of the base, or the empty one.
    pub(crate) base_tree: ObjectId,
}

impl Scratch<'_> {
    /// Makes the commit, or says what it would be; no reference leads to it yet.
    pub(crate) fn import(
        &self,
        commit: Commit<'_>,
        storing: Storing,
    ) -> Result<Imported, GitError> {
        self.import_upon(commit, None, storing)
    }

    /// Makes the commit upon folders that may have been read already.
    pub(super) fn import_upon(
        &self,
        commit: Commit<'_>,
        folders: Option<Folders>,
        storing: Storing,
    ) -> Result<Imported, GitError> {
        if let Some(imported) = self.graft(commit, folders, storing)? {
            return Ok(imported);
        }
        let mut attempt = 1;
        let mut submodules = BTreeSet::new();
        loop {
            match self.import_once(commit, &submodules) {
                Err(GitError::Changed { .. }) if attempt < ATTEMPTS => attempt += 1,
                // Files in the folder of one would take its place in the tree.
                Ok((_, found)) if submodules.is_empty() && !found.is_empty() => submodules = found,
                done => return done.map(|(imported, _)| imported),
            }
        }
    }

    /// Makes the commit without what lies in `submodules`; returns those of the base that something
    /// was written in.
    pub(super) fn import_once(
        &self,
        commit: Commit<'_>,
        submodules: &BTreeSet<PathBuf>,
    ) -> Result<(Imported, BTreeSet<PathBuf>), GitError> {
        let mut stream = Stream::new(commit, submodules);
        let quarantine = Quarantine::new(self.objects()).map_err(GitError::io("storing a pack"))?;
        let mut others = Vec::new();
        quote(&self.objects(), &mut others);
        let output = self
            .call("fast-import")
            .env("GIT_OBJECT_DIRECTORY", quarantine.folder())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", OsString::from_vec(others))
            .args(["--quiet", "--done", "--force", "--date-format=raw"])
            .config(ONE_PACK)
            .config("core.fsync=committed,loose-object")
            .config("core.fsyncMethod=fsync")
            .config("core.protectNTFS=false")
            .config("core.protectHFS=false")
            .stream(&mut |buffer| stream.next(buffer))?;
        quarantine.release().map_err(GitError::io("storing a pack"))?;
        // The folder of packs may be new.
        sync_folders([self.objects().join("pack").as_path(), &self.objects()])
            .map_err(GitError::io("storing a pack"))?;
        let unreadable = || GitError::Unreadable { command: "fast-import".to_owned() };
        let mut lines = output.bytes.split(|byte| *byte == b'\n');
        let made = lines.next().and_then(ObjectId::from_bytes).ok_or_else(unreadable)?;
        let mut tree = || match lines.next()? {
            line if line.starts_with(b"missing") => Some(self.empty_tree().clone()),
            line => {
                let rest = line.strip_prefix(b"040000 tree ")?;
                rest.split(|byte| *byte == b'\t').next().and_then(ObjectId::from_bytes)
            }
        };
        let new = tree().ok_or_else(unreadable)?;
        let base_tree = match commit.base {
            Some(_) => tree().ok_or_else(unreadable)?,
            None => self.empty_tree().clone(),
        };
        let answers = lines.zip(commit.folders());
        let found = answers.filter(|(line, _)| line.starts_with(b"160000 "));
        let found = found.map(|(_, folder)| folder.to_owned()).collect();
        let made = Committed { commit: made, tree: new, skipped: stream.skipped };
        Ok((Imported { made, base_tree }, found))
    }
}

/// What is committed at a path.
pub(super) enum Taken {
    Gone,
    Skipped(SkipReason),
    Link(Vec<u8>),
    File { file: File, len: u64, mode: &'static str },
}

impl Taken {
    /// Looks at a path, after so many bytes of others.
    pub(super) fn look(root: &Root, path: &RelPath, bytes: u64) -> Result<Self, GitError> {
        if too_deep(path.as_path()) {
            return Ok(Self::Skipped(SkipReason::TooDeep));
        }
        let opened = content(root, path)
            .map_err(|source| GitError::Path { path: path.as_path().to_owned(), source })?;
        Ok(match opened {
            Ok(Content::Nothing) => Self::Gone,
            Ok(Content::Link(target)) => Self::Link(target),
            Ok(Content::File { len, .. })
                if len > FILE_BYTES || bytes.saturating_add(len) > ALL_BYTES =>
            {
                Self::Skipped(SkipReason::TooLarge(len))
            }
            Ok(Content::File { file, len, executable }) => {
                Self::File { file, len, mode: if executable { "100755" } else { "100644" } }
            }
            Err(reason) => Self::Skipped(reason),
        })
    }
}

/// Says whether a path may be in a commit of ours.
pub(super) fn is_allowed(path: &Path) -> bool {
    !guarded(path) && plain(path) && !path.as_os_str().is_empty()
}

/// Returns the seconds that a commit is dated with.
pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// What git reads, made piece by piece.
struct Stream<'a> {
    commit: Commit<'a>,
    /// Folders that nothing is taken from.
    submodules: &'a BTreeSet<PathBuf>,
    /// What is passed on next.
    stage: Stage,
    /// A large file that is being passed on.
    large: Option<(File, u64, PathBuf)>,
    /// The bytes that were passed on.
    bytes: u64,
    skipped: Vec<Skipped>,
}

enum Stage {
    Head,
    Deleted(usize),
    Written(usize),
    End,
    Done,
}

impl<'a> Stream<'a> {
    const fn new(commit: Commit<'a>, submodules: &'a BTreeSet<PathBuf>) -> Self {
        let skipped = Vec::new();
        Self { commit, submodules, stage: Stage::Head, large: None, bytes: 0, skipped }
    }

    /// Adds the next piece; says whether there was one.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool, GitError> {
        if let Some((file, left, path)) = self.large.take() {
            self.large = piece(file, left, path, buffer)?;
            return Ok(true);
        }
        match self.stage {
            Stage::Head => {
                self.head(buffer);
                self.stage = Stage::Deleted(0);
            }
            Stage::Deleted(at) => {
                self.stage = match self.commit.changes.get(at) {
                    Some(Change::Deleted(path)) => {
                        self.deleted(path, buffer);
                        Stage::Deleted(at + 1)
                    }
                    Some(Change::Written(_)) => Stage::Deleted(at + 1),
                    None => Stage::Written(0),
                };
            }
            Stage::Written(at) => {
                self.stage = match self.commit.changes.get(at) {
                    Some(Change::Written(path)) => {
                        self.written(path, buffer)?;
                        Stage::Written(at + 1)
                    }
                    Some(Change::Deleted(_)) => Stage::Written(at + 1),
                    None => Stage::End,
                };
            }
            Stage::End => {
                buffer.extend_from_slice(b"\nget-mark :1\nls :1 \n");
                if let Some(base) = self.commit.base {
                    buffer.extend_from_slice(format!("ls {base} \n").as_bytes());
                    for folder in self.commit.folders() {
                        buffer.extend_from_slice(format!("ls {base} ").as_bytes());
                        quote(folder, buffer);
                        buffer.push(b'\n');
                    }
                }
                buffer.extend_from_slice(b"done\n");
                self.stage = Stage::Done;
            }
            Stage::Done => return Ok(false),
        }
        Ok(true)
    }

    fn head(&self, buffer: &mut Vec<u8>) {
        let seconds = seconds(self.commit.at);
        let message = self.commit.message;
        let lines = format!(
            "commit refs/heads/result\nmark :1\ncommitter {IDENTITY} {seconds} +0000\ndata {}\n{message}\n",
            message.len()
        );
        buffer.extend_from_slice(lines.as_bytes());
        if let Some(base) = self.commit.base {
            buffer.extend_from_slice(format!("from {base}\n").as_bytes());
        }
    }

    fn deleted(&mut self, path: &RelPath, buffer: &mut Vec<u8>) {
        if self.allowed(path.as_path()) {
            buffer.extend_from_slice(b"D ");
            quote(path.as_path(), buffer);
            buffer.push(b'\n');
        }
    }

    fn written(&mut self, path: &RelPath, buffer: &mut Vec<u8>) -> Result<(), GitError> {
        if !self.allowed(path.as_path()) {
            return Ok(());
        }
        match Taken::look(self.commit.root, path, self.bytes)? {
            Taken::Gone => self.deleted(path, buffer),
            Taken::Skipped(reason) => self.skip(path, reason),
            Taken::Link(target) => inline("120000", path.as_path(), &target, buffer),
            Taken::File { file, len, mode } => {
                self.bytes += len;
                if len > WHOLE_BYTES {
                    entry(mode, path.as_path(), len, buffer);
                    self.large = Some((file, len, path.as_path().to_owned()));
                } else {
                    let mut bytes = Vec::new();
                    // A file that grows is taken as far as it was when it was opened.
                    file.take(len)
                        .read_to_end(&mut bytes)
                        .map_err(GitError::io("reading a changed file"))?;
                    inline(mode, path.as_path(), &bytes, buffer);
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, path: &RelPath, reason: SkipReason) {
        self.skipped.push(Skipped { path: path.as_path().to_owned(), reason });
    }

    fn allowed(&mut self, path: &Path) -> bool {
        let in_submodule = || path.ancestors().skip(1).any(|at| self.submodules.contains(at));
        let fine = is_allowed(path) && (self.submodules.is_empty() || !in_submodule());
        if !fine {
            let reason = SkipReason::NestedRepository;
            self.skipped.push(Skipped { path: path.to_owned(), reason });
        }
        fine
    }
}

/// Passes on a piece of a large file; what is left of it stays.
fn piece(
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

fn entry(mode: &str, path: &Path, len: u64, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(format!("M {mode} inline ").as_bytes());
    quote(path, buffer);
    buffer.extend_from_slice(format!("\ndata {len}\n").as_bytes());
}

fn inline(mode: &str, path: &Path, bytes: &[u8], buffer: &mut Vec<u8>) {
    entry(mode, path, bytes.len() as u64, buffer);
    buffer.extend_from_slice(bytes);
    buffer.push(b'\n');
}

/// Writes a path the way git reads one that may hold anything.
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
