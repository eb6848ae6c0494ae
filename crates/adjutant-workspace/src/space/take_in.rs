//! Taking the result of a child into the live workspace of its parent.
//!
//! The parent's state as it is, committed nowhere, is merged in the object store with what the child
//! did; only a merge without conflicts is written. Which results were taken in is noted beside the
//! files, so that whoever asks again after a crash gets the same answer and nothing is merged twice:
//! merging once more could find the child's lines in another place.
//!
//! Start at [`Workspace::take_in`]. Invariant: between two calls a workspace shows all of a result or
//! nothing of it. What a killed process left half done is put back when the workspace is taken up.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::WorkspaceError;
use super::workspace::{AnyWorkspace, STATE, Workspace};
use crate::git::{DirOwner, Storing};
use crate::private;
use crate::trees::{recover_replacement, remove_journal};
use crate::{
    Conflict, Diff, DiffEntry, GitError, ObjectId, PathError, Preview, Repository, Root,
    SkipReason, Skipped,
};

/// The mode of a submodule's entry.
const SUBMODULE: u32 = 0o160_000;

/// The journal of what is being replaced. No child is called so: names do not begin with a dot.
const TAKING: &str = ".taking";

/// The list of what was taken in.
const TAKEN: &str = ".taken";

/// What became of a result that was to be taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakeInOutcome {
    /// What changed in the workspace; nothing where there are conflicts.
    pub diff: Diff,
    /// What could not be merged. With any, nothing in the workspace changed.
    pub conflicts: Vec<Conflict>,
    /// What the result has and no workspace takes: submodules, and what git keeps for itself.
    pub left_out: Vec<Skipped>,
    /// Whether it was taken in before: the rest is what changed then, and this call changed nothing.
    pub already: bool,
}

/// A result that was taken in, and the states before and after.
struct TakenResult {
    result: ObjectId,
    before: ObjectId,
    after: ObjectId,
}

impl Workspace {
    /// Merges the kept result of a child into the files of this workspace as they are now.
    ///
    /// Everything that was written here stays; where the child changed the same, it is a conflict. A
    /// file that git does not know of and that is in the way is one too. Asking again for a result
    /// that was taken in changes nothing, also when its changes were edited or undone since.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Closed`]; [`WorkspaceError::Path`] or [`WorkspaceError::Git`] with the path when a file
    /// could not be replaced. The workspace is then as it was.
    pub fn take_in(
        &self,
        result: &ObjectId,
        at: SystemTime,
    ) -> Result<TakeInOutcome, WorkspaceError> {
        self.with(|shared, space| {
            let folder = space.folder();
            space.recover_take_in()?;
            let repository = &shared.repository;
            if let Some(taken) = read_taken(&folder)?.into_iter().find(|it| it.result == *result) {
                // Nothing holds the two states for good; that there is no more to do is sure.
                let (diff, left_out) = diff_of(repository, &taken).unwrap_or_default();
                return Ok(TakeInOutcome {
                    diff,
                    left_out,
                    already: true,
                    ..TakeInOutcome::default()
                });
            }
            let ours = space.import(STATE, at, Storing::Durable)?.0.made;
            let Preview { tree, conflicts } = repository.preview(result, &ours.commit)?;
            if !conflicts.is_empty() {
                return Ok(TakeInOutcome { conflicts, ..TakeInOutcome::default() });
            }
            let now = TakenResult { result: result.clone(), before: ours.tree, after: tree };
            let (diff, left_out) = diff_of(repository, &now)?;
            let journal = folder.join(TAKING);
            if !diff.entries.is_empty() {
                let root = space.root()?;
                let conflicts = repository.replace_files(&root, &diff, &journal, &now.to_line())?;
                if !conflicts.is_empty() {
                    return Ok(TakeInOutcome { conflicts, ..TakeInOutcome::default() });
                }
            }
            record_taken(&folder, &now.to_line())?;
            remove_journal(&journal).map_err(WorkspaceError::io("removing a journal"))?;
            Ok(TakeInOutcome { diff, left_out, ..TakeInOutcome::default() })
        })
    }
}

impl AnyWorkspace {
    /// The folder that the workspace and everything about it lies in.
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

    /// Puts back what a killed process had begun to take in, or notes that it was done.
    fn recover_take_in(&mut self) -> Result<(), WorkspaceError> {
        let folder = self.folder();
        recover_take_in_at(&folder, || self.root())
    }
}

/// Puts back what was being taken in when the process of a workspace ended; `folder` is the one that
/// everything about the workspace lies in.
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

/// Compares the two states for people: with renames, lines counted, and what is left out apart.
fn diff_of(repository: &Repository, taken: &TakenResult) -> Result<(Diff, Vec<Skipped>), GitError> {
    let mut diff = repository.diff(&taken.before, &taken.after)?;
    let left_out = leave_out(repository, &mut diff);
    Ok((diff, left_out))
}

/// Takes out what no workspace takes.
fn leave_out(repository: &Repository, diff: &mut Diff) -> Vec<Skipped> {
    let (mut left_out, mut own) = (Vec::new(), repository.own_dirs());
    diff.entries.retain(|entry: &DiffEntry| {
        let is_submodule = [entry.old_mode, entry.new_mode].contains(&SUBMODULE);
        let submodule = is_submodule.then_some(SkipReason::NestedRepository);
        let reason = submodule.or_else(|| own.guards(&entry.path).map(DirOwner::skip_reason));
        if let Some(reason) = reason {
            left_out.push(Skipped { path: entry.path.clone(), reason });
        }
        reason.is_none()
    });
    left_out
}

fn read_taken(folder: &Path) -> Result<Vec<TakenResult>, WorkspaceError> {
    match fs::read_to_string(folder.join(TAKEN)) {
        Ok(text) => Ok(text.lines().filter_map(TakenResult::parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(WorkspaceError::io("reading what was taken in")(error)),
    }
}

/// Adds a line to what was taken in, whole or not at all.
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
    add().map_err(WorkspaceError::io("noting what was taken in"))
}
