//! Capturing the current state of a work tree as a commit.
//!
//! `git status` with a copy of the user's index finds what differs from HEAD; only those files are read and stored,
//! see `import`. Files whose timestamps and sizes match the index count as unchanged. A file with a content filter
//! (large file storage, line endings) has other content in HEAD than on disk: if unchanged, it stays as in HEAD; if
//! changed, it is stored as it is on disk.
//!
//! Start at [`Repository::capture`]; `GitLikeDirPolicy` says whether untracked directories that look like git
//! directories are captured. Invariant: the user's index, files, stash and references are only read.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::GitError;
use super::change::{FileChange, SkipReason, SkippedPath};
use super::excludes::has_patterns;
use super::id::ObjectId;
use super::import::{IDENTITY, ImportedCommit, NewCommit, ObjectStorage, seconds};
use super::repository::{Repository, path_of};
use super::run::{GitCall, RunningGit};
use super::scratch::ScratchGitDir;
use super::trust::open_regular_file;
use crate::private;
use crate::trees::is_temp_of_replacement;
use crate::{FileKind, PathError, RelPath, Root};

/// Files that git reads in every directory while it examines a work tree. Before 2.41, git reads attributes even if
/// `GIT_ATTR_SOURCE` is set.
pub(crate) const READ_IN_EVERY_DIR: [&str; 2] = [".gitattributes", ".gitignore"];

/// The message of commits of captured states.
const MESSAGE: &str = "State of the working tree before the work\n";

/// The most bytes of the attributes file that are read.
const ATTRIBUTE_BYTES: u64 = 1024 * 1024;

/// The captured state of a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTreeSnapshot {
    /// The commit of HEAD; `None` before the first commit.
    pub head: Option<ObjectId>,
    /// The tree of that commit, or the empty one.
    pub head_tree: ObjectId,
    /// The commit of the captured state: HEAD itself if nothing differs.
    pub commit: ObjectId,
    /// The tree of that commit.
    pub tree: ObjectId,
    /// The differences from HEAD, deletions first: changed, untracked and deleted files.
    pub changes: Vec<FileChange>,
    /// Paths that were left out.
    pub skipped: Vec<SkippedPath>,
    /// Files with merge conflicts, captured as they are on disk, with conflict markers.
    pub unmerged: Vec<PathBuf>,
    /// Submodules, which are empty directories in everything made from this state.
    pub submodules: Vec<PathBuf>,
    /// Whether the top-level attributes name content filters, such as large file storage: changed files are then
    /// stored as they are on disk, without the filter.
    pub filtered: bool,
}

impl WorkTreeSnapshot {
    /// Says whether the work tree differed from HEAD.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }
}

/// The parsed output of `git status`.
#[derive(Debug, Default)]
pub(crate) struct WorkTreeStatus {
    pub(crate) changes: Vec<FileChange>,
    pub(crate) skipped: Vec<SkippedPath>,
    /// Files with merge conflicts.
    pub(crate) unmerged: Vec<PathBuf>,
    /// The directories with an untracked file `HEAD`, which may be git directories.
    pub(crate) untracked_heads: Vec<PathBuf>,
}

impl Repository {
    /// Captures the state of the work tree: changed, untracked and deleted files included, ignored ones left out.
    ///
    /// # Errors
    ///
    /// Why it could not be captured; nothing was changed.
    pub fn capture(&self, at: SystemTime) -> Result<WorkTreeSnapshot, GitError> {
        let head = self.head()?;
        self.capture_state(head, GitLikeDirPolicy::LeaveOut, |_| Ok(at))
    }

    /// Captures the state reproducibly: the same files on top of the same commit give the same commit, whenever
    /// they are captured, so that all work that starts from it shares its history.
    ///
    /// # Errors
    ///
    /// Why it could not be captured; nothing was changed.
    pub(crate) fn capture_reproducibly(&self) -> Result<WorkTreeSnapshot, GitError> {
        let head = self.head()?;
        // The commit gets the date of its parent.
        let dated = |head: Option<&_>| head.map_or(Ok(UNIX_EPOCH), |head| self.commit_date(head));
        self.capture_state(head, GitLikeDirPolicy::LeaveOut, dated)
    }

    fn commit_date(&self, commit: &ObjectId) -> Result<SystemTime, GitError> {
        let call = self.call("rev-list").args(["--max-count=1", "--timestamp", commit.as_str()]);
        let output = call.run()?;
        let text = String::from_utf8_lossy(&output.bytes);
        let seconds = text.split(' ').next().and_then(|text| text.parse().ok());
        let seconds: u64 =
            seconds.ok_or_else(|| GitError::Unreadable { command: "rev-list".to_owned() })?;
        // Git accepts timestamps outside SystemTime's range.
        let date = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        Ok(date.unwrap_or(UNIX_EPOCH))
    }

    /// Says whether the history of a commit contains a captured state that HEAD does not: files that were
    /// uncommitted when the work, or work it is based on, started.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn contains_capture(&self, commit: &ObjectId) -> Result<bool, GitError> {
        let call = self.call("rev-list").args(["--no-commit-header", "--format=%B%x00"]);
        let mut call = call.arg(commit.as_str());
        if let Some(head) = self.head()? {
            call = call.args(["--not", head.as_str()]);
        }
        let output = call.accept(&[0, 128]).run()?;
        let mut said = output.bytes.split(|byte| *byte == 0).map(<[u8]>::trim_ascii);
        Ok(output.code == 0 && said.any(|said| said == MESSAGE.trim_end().as_bytes()))
    }

    /// Creates a commit for a stored tree; no reference points to it yet.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub(crate) fn commit_tree(
        &self,
        parents: &[&ObjectId],
        tree: &ObjectId,
        message: &str,
        at: SystemTime,
    ) -> Result<ObjectId, GitError> {
        let date = format!("@{} +0000", seconds(at));
        let (name, email) = IDENTITY.split_once(" <").unwrap_or((IDENTITY, ""));
        let email = email.trim_end_matches('>');
        let parents = parents.iter().flat_map(|parent| ["-p", parent.as_str()]);
        let mut call = self.call("commit-tree").args(parents).args(["-m", message]);
        for (variable, value) in [
            ("GIT_AUTHOR_NAME", name),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_AUTHOR_EMAIL", email),
            ("GIT_COMMITTER_EMAIL", email),
            ("GIT_AUTHOR_DATE", &date),
            ("GIT_COMMITTER_DATE", &date),
        ] {
            call = call.env(variable, value);
        }
        let call = call.config("core.fsync=committed,loose-object").arg(tree.as_str());
        let made = call.run()?;
        ObjectId::from_bytes(made.bytes.trim_ascii_end())
            .ok_or_else(|| GitError::Unreadable { command: "commit-tree".to_owned() })
    }

    /// Captures the state of an agent's work tree relative to a commit that need not be HEAD.
    pub(crate) fn capture_from(
        &self,
        head: Option<ObjectId>,
        at: impl FnOnce(Option<&ObjectId>) -> Result<SystemTime, GitError>,
    ) -> Result<WorkTreeSnapshot, GitError> {
        self.capture_state(head, GitLikeDirPolicy::Take, at)
    }

    fn capture_state(
        &self,
        head: Option<ObjectId>,
        git_like: GitLikeDirPolicy,
        at: impl FnOnce(Option<&ObjectId>) -> Result<SystemTime, GitError>,
    ) -> Result<WorkTreeSnapshot, GitError> {
        let scratch = self.scratch(head.as_ref())?;
        let status = scratch.begin_status(self)?;
        // Runs in parallel to `git status`.
        let at = at(head.as_ref())?;
        let status = finish_status(status)?;
        let mut left_out = Vec::new();
        let changes = self.captured_changes(&status, git_like, &mut left_out);
        let WorkTreeStatus { mut skipped, unmerged, .. } = status;
        skipped.extend(left_out);
        let (commit, tree, head_tree) = match &head {
            Some(head) if changes.is_empty() => {
                let tree = self.tree_of(head)?;
                (head.clone(), tree.clone(), tree)
            }
            Some(_) | None => {
                let path = self.work_tree();
                let root = Root::open(path)
                    .map_err(|source| GitError::Path { path: path.to_owned(), source })?;
                let base = head.as_ref();
                let commit =
                    NewCommit { base, root: &root, changes: &changes, message: MESSAGE, at };
                let ImportedCommit { made, base_tree } =
                    scratch.import(commit, ObjectStorage::Durable)?;
                skipped.extend(made.skipped);
                (made.commit, made.tree, base_tree)
            }
        };
        let (submodules, filtered) =
            (self.submodules(&scratch, &head_tree)?, self.has_content_filters());
        Ok(WorkTreeSnapshot {
            head,
            head_tree,
            commit,
            tree,
            changes,
            skipped,
            unmerged,
            submodules,
            filtered,
        })
    }

    /// Returns the changes to capture, and adds the paths that are left out to `left_out`.
    fn captured_changes(
        &self,
        status: &WorkTreeStatus,
        git_like: GitLikeDirPolicy,
        left_out: &mut Vec<SkippedPath>,
    ) -> Vec<FileChange> {
        let mut changes = self.without_reserved(status.changes.clone(), left_out);
        if git_like == GitLikeDirPolicy::LeaveOut {
            for folder in self.git_like_on_disk(&status.untracked_heads) {
                changes.retain(|change| !change.path().as_path().starts_with(&folder));
                if !left_out.iter().any(|known| folder.starts_with(&known.path)) {
                    left_out
                        .push(SkippedPath { path: folder, reason: SkipReason::NestedRepository });
                }
            }
        }
        changes
    }

    /// Lists ignored directories and files; an ignored directory is one entry.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn ignored(&self) -> Result<Vec<PathBuf>, GitError> {
        let scratch = self.scratch(None)?;
        scratch.copy_index(self.git_dir())?;
        let call = scratch.call_in("ls-files", self.work_tree());
        let call = call.args(["-z", "--others", "--ignored", "--exclude-standard", "--directory"]);
        let output = self.with_ignore_patterns(&scratch, call)?.run()?;
        let paths = output.bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| path_of(path.strip_suffix(b"/").unwrap_or(path))).collect())
    }

    /// Adds the ignore patterns that git would use here to a call.
    pub(crate) fn with_ignore_patterns<'c>(
        &self,
        scratch: &ScratchGitDir<'_>,
        call: GitCall<'c>,
    ) -> Result<GitCall<'c>, GitError> {
        let own = self.common_dir().join("info/exclude");
        if own.is_file() {
            let copy = || -> io::Result<()> {
                let mut text = Vec::new();
                open_regular_file(&own)?.read_to_end(&mut text)?;
                if !has_patterns(&text) {
                    return Ok(());
                }
                private::write(&scratch.path("info").join("exclude"), text)
            };
            copy().map_err(GitError::io("copying the exclude file"))?;
        }
        self.with_user_patterns(scratch, call)
    }

    fn has_content_filters(&self) -> bool {
        let path = self.work_tree().join(".gitattributes");
        let plain = path.symlink_metadata().is_ok_and(|found| found.is_file());
        let mut text = Vec::new();
        let read = open_regular_file(&path)
            .and_then(|file| file.take(ATTRIBUTE_BYTES).read_to_end(&mut text));
        plain && read.is_ok() && text.windows(7).any(|word| word == b"filter=")
    }

    /// Lists the submodules of a tree, if the work tree has any.
    pub(crate) fn submodules(
        &self,
        scratch: &ScratchGitDir<'_>,
        tree: &ObjectId,
    ) -> Result<Vec<PathBuf>, GitError> {
        if !self.work_tree().join(".gitmodules").is_file() {
            return Ok(Vec::new());
        }
        let blob = format!("--blob={tree}:.gitmodules");
        let call = scratch.call("config").args([blob.as_str(), "-z", "--get-regexp"]);
        // Git fails if HEAD has no `.gitmodules`; then there are no submodules yet.
        let output = call.arg(r"^submodule\..*\.path$").accept(&[0, 1, 128]).run()?;
        let items = output.bytes.split(|byte| *byte == 0);
        let value = |item: &[u8]| {
            let at = item.iter().position(|byte| *byte == b'\n')?;
            item.get(at + 1..).map(path_of)
        };
        Ok(items.filter_map(value).collect())
    }
}

impl ScratchGitDir<'_> {
    /// Runs `git status` on a work tree with a copy of its index; differences are relative to the HEAD of this git
    /// directory.
    pub(crate) fn status(&self, repository: &Repository) -> Result<WorkTreeStatus, GitError> {
        finish_status(self.begin_status(repository)?)
    }

    /// Starts `git status`; [`finish_status`] waits for the result.
    fn begin_status(&self, repository: &Repository) -> Result<RunningGit<'_>, GitError> {
        refuse_pipes(repository.work_tree())?;
        self.copy_index(repository.git_dir())?;
        let call = self.call_in("status", repository.work_tree()).args([
            "--porcelain=v2",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",
        ]);
        repository.with_ignore_patterns(self, call)?.begin()
    }
}

/// Refuses a pipe at the top of a work tree on which git would block.
fn refuse_pipes(work_tree: &Path) -> Result<(), GitError> {
    let paths = READ_IN_EVERY_DIR.map(|name| work_tree.join(name));
    let is_pipe =
        |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.file_type().is_fifo());
    match paths.into_iter().find(is_pipe) {
        Some(path) => Err(GitError::Path { path, source: PathError::NotRegular(FileKind::Fifo) }),
        None => Ok(()),
    }
}

fn finish_status(status: RunningGit<'_>) -> Result<WorkTreeStatus, GitError> {
    read_status(&status.wait_output()?.bytes)
        .ok_or_else(|| GitError::Unreadable { command: "status".to_owned() })
}

/// Whether untracked directories that look like git directories are part of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitLikeDirPolicy {
    /// They are left out like repositories with a `.git`: their configuration may contain credentials.
    LeaveOut,
    /// They are included: an agent created them.
    Take,
}

fn read_status(bytes: &[u8]) -> Option<WorkTreeStatus> {
    let mut found: BTreeMap<RelPath, bool> = BTreeMap::new();
    let (mut skipped, mut unmerged) = (Vec::new(), Vec::new());
    let mut untracked_heads = Vec::new();
    for record in bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
        let (kind, rest) = record.split_first()?;
        let rest = rest.strip_prefix(b" ")?;
        match kind {
            b'1' | b'u' => {
                // `XY sub mH mI mW …` or `XY sub m1 m2 m3 mW …`, then the path.
                let (fields, work) = if *kind == b'1' { (8, 4) } else { (10, 5) };
                let parts: Vec<&[u8]> = rest.splitn(fields, |byte| *byte == b' ').collect();
                let path = RelPath::new(path_of(parts.last()?)).ok()?;
                if *kind == b'u' {
                    unmerged.push(path.as_path().to_owned());
                }
                if parts.len() == fields && !parts.get(1)?.starts_with(b"S") {
                    let there = *parts.get(work)? != b"000000";
                    found.entry(path).and_modify(|known| *known |= there).or_insert(there);
                }
            }
            // Git lists a directory as a whole only if it is a separate repository.
            b'?' if rest.ends_with(b"/") => skipped.push(SkippedPath {
                path: path_of(rest.strip_suffix(b"/")?),
                reason: SkipReason::NestedRepository,
            }),
            // Left by a killed merge; the next one removes it.
            b'?' if is_temp_of_replacement(&path_of(rest)) => {}
            b'?' => {
                let path = RelPath::new(path_of(rest)).ok()?;
                if path.as_path().file_name().is_some_and(|name| name == "HEAD") {
                    untracked_heads.extend(path.as_path().parent().map(Path::to_owned));
                }
                found.insert(path, true);
            }
            _ => {}
        }
    }
    let as_change =
        |(path, there)| if there { FileChange::Written(path) } else { FileChange::Deleted(path) };
    let mut changes: Vec<FileChange> = found.into_iter().map(as_change).collect();
    changes.sort();
    Some(WorkTreeStatus { changes, skipped, unmerged, untracked_heads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_every_kind_of_record_is_parsed() {
        let text = "1 .M N... 100644 100644 100755 a b dir/a file\0\
            1 D. N... 100644 000000 000000 a b gone\0\
            1 D. N... 100644 000000 000000 a b kept\0? kept\0? new\nline\0? nested/\0\
            1 .M SC.. 160000 160000 160000 a b module\0\
            u UU N... 100644 100644 100644 100644 a b c both\0";
        let status = read_status(text.as_bytes()).unwrap();
        let written = |path| FileChange::Written(RelPath::new(path).unwrap());
        assert_eq!(
            status.changes,
            [
                FileChange::Deleted(RelPath::new("gone").unwrap()),
                written("both"),
                written("dir/a file"),
                written("kept"),
                written("new\nline"),
            ]
        );
        let nested = SkippedPath { path: "nested".into(), reason: SkipReason::NestedRepository };
        assert_eq!(status.skipped, [nested]);
        assert_eq!(status.unmerged, [PathBuf::from("both")]);
    }

    #[test]
    fn an_incomplete_record_is_not_accepted_as_a_status() {
        assert!(read_status(b"1\0").is_none());
    }
}
