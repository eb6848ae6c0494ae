//! Merging the result of a child into the live workspace of its parent.
//!
//! The parent's current state is merged with the child's work in the object store; only a merge without conflicts
//! is written to the files. The merged results are listed in a file beside the workspace: asking again after a
//! crash gives the same answer, and nothing is merged twice, which could apply the child's lines a second time
//! elsewhere.
//!
//! Start at [`Workspace::take_in`]. Invariant: between two calls a workspace contains all of a result or nothing of
//! it. A merge that a killed process left incomplete is undone when the workspace is reopened.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::WorkspaceError;
use super::workspace::{STATE, Workspace, WorkspaceFiles};
use crate::git::{DirOwner, ObjectStorage};
use crate::private;
use crate::trees::{recover_replacement, remove_journal};
use crate::{
    Conflict, Diff, DiffEntry, GitError, MergePreview, ObjectId, PathError, Repository, Root,
    SkipReason, SkippedPath,
};

/// Git's mode of a submodule entry.
const SUBMODULE: u32 = 0o160_000;

/// The journal of the files that are being replaced. Names of children never begin with a dot.
const TAKING: &str = ".taking";

/// The list of merged results.
const TAKEN: &str = ".taken";

/// The outcome of merging a child's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildMergeOutcome {
    /// What changed in the workspace; empty if there are conflicts.
    pub diff: Diff,
    /// The conflicts. If there are any, the workspace is unchanged.
    pub conflicts: Vec<Conflict>,
    /// Parts of the result that workspaces never contain: submodules and git's own files.
    pub left_out: Vec<SkippedPath>,
    /// Whether it was merged before: then `diff` is what changed then, and this call changed nothing.
    pub already: bool,
}

/// A merged result, and the trees before and after.
struct TakenResult {
    result: ObjectId,
    before: ObjectId,
    after: ObjectId,
}

impl Workspace {
    /// Merges the kept result of a child into the current files of this workspace.
    ///
    /// Nothing that was written here is lost: changes to the same lines are conflicts, and so are files unknown to
    /// git that are in the way. Asking again for a merged result changes nothing, even if its changes were edited
    /// or undone since.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Closed`]; [`WorkspaceError::Path`] or [`WorkspaceError::Git`] with the path if a file
    /// could not be replaced. The workspace is then unchanged.
    pub fn take_in(
        &self,
        result: &ObjectId,
        at: SystemTime,
    ) -> Result<ChildMergeOutcome, WorkspaceError> {
        self.with_open(|shared, space| {
            let folder = space.folder();
            space.recover_take_in()?;
            let repository = &shared.repository;
            if let Some(taken) = read_taken(&folder)?.into_iter().find(|it| it.result == *result) {
                // The two trees may have been garbage collected; the result is merged nevertheless.
                let (diff, left_out) = diff_of(repository, &taken).unwrap_or_default();
                return Ok(ChildMergeOutcome {
                    diff,
                    left_out,
                    already: true,
                    ..ChildMergeOutcome::default()
                });
            }
            let ours = space.import(STATE, at, ObjectStorage::Durable)?.0.made;
            let MergePreview { tree, conflicts } = repository.preview(result, &ours.commit)?;
            if !conflicts.is_empty() {
                return Ok(ChildMergeOutcome { conflicts, ..ChildMergeOutcome::default() });
            }
            let now = TakenResult { result: result.clone(), before: ours.tree, after: tree };
            let (diff, left_out) = diff_of(repository, &now)?;
            let journal = folder.join(TAKING);
            if !diff.entries.is_empty() {
                let root = space.root()?;
                let conflicts = repository.replace_files(&root, &diff, &journal, &now.to_line())?;
                if !conflicts.is_empty() {
                    return Ok(ChildMergeOutcome { conflicts, ..ChildMergeOutcome::default() });
                }
            }
            record_taken(&folder, &now.to_line())?;
            remove_journal(&journal).map_err(WorkspaceError::io("removing a journal"))?;
            Ok(ChildMergeOutcome { diff, left_out, ..ChildMergeOutcome::default() })
        })
    }
}

impl WorkspaceFiles {
    /// Returns the directory that contains the workspace and its records.
    pub(super) fn folder(&self) -> PathBuf {
        Path::new(&self.record().path).parent().unwrap_or(Path::new("/")).to_owned()
    }

    pub(super) fn root(&mut self) -> Result<Root, WorkspaceError> {
        match self {
            Self::Overlay(space) => space.root(),
            Self::Worktree(space) => {
                let path = space.worktree.path();
                Root::open(path).map_err(WorkspaceError::path(path))
            }
        }
    }

    /// Undoes a merge that a killed process left incomplete, or records it if it was complete.
    fn recover_take_in(&mut self) -> Result<(), WorkspaceError> {
        let folder = self.folder();
        recover_take_in_at(&folder, || self.root())
    }
}

/// Undoes or records an interrupted merge in the workspace in `folder`.
pub(super) fn recover_take_in_at(
    folder: &Path,
    root: impl FnOnce() -> Result<Root, WorkspaceError>,
) -> Result<(), WorkspaceError> {
    let journal = folder.join(TAKING);
    let root = || root().map_err(|error| PathError::Io(io::Error::other(error)));
    if let Some(line) = recover_replacement(&journal, root)? {
        record_taken(folder, &line)?;
        remove_journal(&journal).map_err(WorkspaceError::io("removing a journal"))?;
    }
    Ok(())
}

impl TakenResult {
    fn to_line(&self) -> String {
        format!("{} {} {}\n", self.result, self.before, self.after)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut ids = line.split(' ').map(ObjectId::parse);
        Some(Self { result: ids.next()??, before: ids.next()??, after: ids.next()?? })
    }
}

/// Compares the two trees for display: with renames and line counts, and with excluded paths listed separately.
fn diff_of(
    repository: &Repository,
    taken: &TakenResult,
) -> Result<(Diff, Vec<SkippedPath>), GitError> {
    let mut diff = repository.diff(&taken.before, &taken.after)?;
    let left_out = remove_excluded(repository, &mut diff);
    Ok((diff, left_out))
}

/// Removes the entries that workspaces never contain.
fn remove_excluded(repository: &Repository, diff: &mut Diff) -> Vec<SkippedPath> {
    let (mut left_out, mut own) = (Vec::new(), repository.excluded_dirs());
    diff.entries.retain(|entry: &DiffEntry| {
        let is_submodule = [entry.old_mode, entry.new_mode].contains(&SUBMODULE);
        let submodule = is_submodule.then_some(SkipReason::NestedRepository);
        let reason =
            submodule.or_else(|| own.guarding_owner(&entry.path).map(DirOwner::skip_reason));
        if let Some(reason) = reason {
            left_out.push(SkippedPath { path: entry.path.clone(), reason });
        }
        reason.is_none()
    });
    left_out
}

fn read_taken(folder: &Path) -> Result<Vec<TakenResult>, WorkspaceError> {
    match fs::read_to_string(folder.join(TAKEN)) {
        Ok(text) => Ok(text.lines().filter_map(TakenResult::parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(WorkspaceError::io("reading the list of merged results")(error)),
    }
}

/// Adds a line to the list of merged results atomically.
fn record_taken(folder: &Path, line: &str) -> Result<(), WorkspaceError> {
    let add = || -> io::Result<()> {
        let (list, next) = (folder.join(TAKEN), folder.join(".taken.next"));
        let mut text = match fs::read_to_string(&list) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            read => read.unwrap_or_default(),
        };
        if text.lines().any(|known| known == line.trim_end()) {
            return Ok(());
        }
        text.push_str(line);
        let mut file = private::create_file(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(next, list)
    };
    add().map_err(WorkspaceError::io("writing the list of merged results"))
}
