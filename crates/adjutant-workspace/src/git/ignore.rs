//! Finding the changes of an overlay layer that the repository ignores.
//!
//! The upper layer of an overlay also contains build results and caches. Git cannot see the merged tree from
//! outside the child's namespace, so the `.gitignore` files that apply are collected in a separate directory: those
//! of the layer, otherwise those of the base.
//!
//! Start at [`Repository::leave_out_ignored`]. Invariant: a file the base tracks is never ignored.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::GitError;
use super::change::{
    FileChange, OpenedContent, SkipReason, SkippedPath, content_at, has_only_normal_components,
    is_in_dot_git,
};
use super::id::ObjectId;
use super::repository::{Repository, bytes_of, path_of};
use super::scratch::ScratchGitDir;
use crate::private;
use crate::{PathError, RelPath, Root};

/// The name of pattern files.
const PATTERNS: &str = ".gitignore";

/// The most bytes of a pattern file that are used.
const PATTERN_BYTES: u64 = 1024 * 1024;

/// The prefix of every path passed to git.
const PREFIX: &[u8] = b"./";

/// The number of paths on one command line.
const AT_ONCE: usize = 500;

/// If there are more paths, the whole tree is listed once instead of many git calls.
const MAX_NAMED: usize = 10 * AT_ONCE;

impl Repository {
    /// Splits changes into those to keep and those that are ignored.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn leave_out_ignored(
        &self,
        base: &ObjectId,
        layer: &Root,
        changes: Vec<FileChange>,
    ) -> Result<(Vec<FileChange>, Vec<SkippedPath>), GitError> {
        let written = changes.iter().filter_map(|change| match change {
            FileChange::Written(path) => Some(path.as_path()),
            FileChange::Deleted(_) => None,
        });
        let written: Vec<&Path> = written
            .filter(|path| has_only_normal_components(path) && !is_in_dot_git(path))
            .collect();
        if written.is_empty() {
            return Ok((changes, Vec::new()));
        }
        let scratch = self.scratch(None)?;
        self.gather_patterns(&scratch, base, layer, &changes)?;
        let mut ignored = self.match_patterns(&scratch, written)?;
        if ignored.is_empty() {
            return Ok((changes, Vec::new()));
        }
        for path in scratch.tracked(base, &ignored)? {
            ignored.remove(&path);
        }
        let kept = |change: &FileChange| {
            matches!(change, FileChange::Deleted(_)) || !ignored.contains(change.path().as_path())
        };
        let kept: Vec<FileChange> = changes.into_iter().filter(kept).collect();
        let left =
            ignored.into_iter().map(|path| SkippedPath { path, reason: SkipReason::Ignored });
        Ok((kept, left.collect()))
    }

    /// Returns those of the paths that the collected patterns match.
    fn match_patterns(
        &self,
        scratch: &ScratchGitDir<'_>,
        some: Vec<&Path>,
    ) -> Result<BTreeSet<PathBuf>, GitError> {
        let mut list = Vec::new();
        for path in some {
            // `check-ignore` does not support literal pathspecs; after the prefix no character in a path is
            // special.
            list.extend_from_slice(PREFIX);
            list.extend_from_slice(bytes_of(path));
            list.push(0);
        }
        let call = scratch.call_in("check-ignore", &scratch.path("patterns"));
        let call = call.args(["-z", "--stdin", "--no-index"]).accept(&[0, 1]);
        let call = call.env("GIT_LITERAL_PATHSPECS", "0");
        let output = self.with_ignore_patterns(scratch, call)?.run_with_input(&list)?;
        Ok(paths(&output.bytes))
    }

    /// Collects the pattern files of every parent directory of a change in one directory.
    fn gather_patterns(
        &self,
        scratch: &ScratchGitDir<'_>,
        base: &ObjectId,
        layer: &Root,
        changes: &[FileChange],
    ) -> Result<(), GitError> {
        let into = scratch.path("patterns");
        private::create_dir(&into).map_err(GitError::io("collecting ignore patterns"))?;
        let above = |change: &FileChange| -> Vec<PathBuf> {
            change
                .path()
                .as_path()
                .ancestors()
                .skip(1)
                .map(|folder| folder.join(PATTERNS))
                .collect()
        };
        let files: BTreeSet<PathBuf> = changes.iter().flat_map(above).collect();
        let changed: BTreeSet<&Path> =
            changes.iter().map(|change| change.path().as_path()).collect();
        let of_base: Vec<&PathBuf> =
            files.iter().filter(|file| !changed.contains(file.as_path())).collect();
        let mut entries = Vec::new();
        for some in of_base.chunks(AT_ONCE) {
            let call = scratch.call("ls-tree").args(["-z", "--full-tree", base.as_str(), "--"]);
            entries.extend_from_slice(&call.args(some.iter().map(OsString::from)).run()?.bytes);
        }
        // `mode type id TAB path`, which `update-index --index-info` accepts.
        check_out_patterns(scratch, &into, &entries)?;
        for file in files.iter().filter(|file| changed.contains(file.as_path())) {
            copy_patterns(layer, file, &into)?;
        }
        Ok(())
    }
}

impl ScratchGitDir<'_> {
    /// Returns those of the paths that are files of a tree.
    fn tracked(
        &self,
        tree: &ObjectId,
        some: &BTreeSet<PathBuf>,
    ) -> Result<BTreeSet<PathBuf>, GitError> {
        let list = |options: &[&str]| {
            self.call("ls-tree").args(["-z", "--full-tree"]).args(options).arg(tree.as_str())
        };
        if some.len() > MAX_NAMED {
            return Ok(paths(&list(&["-r", "--name-only"]).run()?.bytes));
        }
        let some: Vec<&PathBuf> = some.iter().collect();
        let mut found = BTreeSet::new();
        for some in some.chunks(AT_ONCE) {
            let listed = list(&[]).arg("--").args(some.iter().map(OsString::from)).run()?;
            for line in listed.bytes.split(|byte| *byte == 0) {
                // `mode type id TAB path`; directories are skipped.
                let Some(tab) = line.iter().position(|byte| *byte == b'\t') else { continue };
                if !line.starts_with(b"040000 ") {
                    found.extend(line.get(tab + 1..).map(path_of));
                }
            }
        }
        Ok(found)
    }
}

fn check_out_patterns(
    scratch: &ScratchGitDir<'_>,
    into: &Path,
    entries: &[u8],
) -> Result<(), GitError> {
    if !entries.is_empty() {
        scratch.call("update-index").args(["-z", "--index-info"]).run_with_input(entries)?;
        scratch.call_in("checkout-index", into).args(["--all", "--quiet"]).run()?;
    }
    Ok(())
}

fn write_patterns(into: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let to = into.join(file);
    private::ensure_dir(to.parent().unwrap_or(into))?;
    private::write(&to, bytes)
}

/// Copies a pattern file of the layer, if it is a regular file.
fn copy_patterns(layer: &Root, file: &Path, into: &Path) -> Result<(), GitError> {
    let at = |source| GitError::Path { path: file.to_owned(), source };
    let named = RelPath::new(file).map_err(at)?;
    let Some(bytes) = read_patterns(layer, &named).map_err(at)? else { return Ok(()) };
    write_patterns(into, file, &bytes).map_err(GitError::io("collecting ignore patterns"))
}

/// Reads a pattern file, if it is a regular file.
fn read_patterns(root: &Root, file: &RelPath) -> Result<Option<Vec<u8>>, PathError> {
    // Like git, does not follow links here.
    let Ok(OpenedContent::File { file: opened, .. }) = content_at(root, file)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    opened.take(PATTERN_BYTES).read_to_end(&mut bytes).map_err(PathError::Io)?;
    Ok(Some(bytes))
}

fn paths(bytes: &[u8]) -> BTreeSet<PathBuf> {
    let paths = bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| path_of(path.strip_prefix(PREFIX).unwrap_or(path))).collect()
}
