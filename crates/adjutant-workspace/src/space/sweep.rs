//! Cleaning up workspaces that crashed processes left behind.
//!
//! Invariant: workspaces of live runs and workspaces locked by a process are not touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::WorkspaceError;
use super::verify::is_verify_workspace;
use super::workspace::{WorkspaceFiles, keep, remove};
use super::workspace_dir::WorkspaceDir;
use super::workspaces::{BASES_REF_DIR, Workspaces, WorkspacesContext};
use super::worktree::WorktreeWorkspace;
use crate::{ObjectId, ResultRef, SkippedPath, Worktrees};

/// The commit message for work whose process is gone.
const MESSAGE: &str = "Work of a child whose process ended early\n";

/// What was done with a leftover workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepOutcome {
    /// Its work was committed to its reference, and its files were removed.
    Kept(ResultRef, ObjectId),
    /// It held no work and was removed.
    Removed(ResultRef),
    /// It could not be examined or removed; nothing was deleted.
    Unclear(ResultRef, String),
}

impl Workspaces {
    /// Finds workspaces that no process has locked and no live run owns, keeps their work and removes them.
    ///
    /// # Errors
    ///
    /// When the directories cannot be read. Problems with a single workspace are part of the result.
    pub fn sweep(
        &self,
        is_live: &dyn Fn(&str) -> bool,
        at: SystemTime,
    ) -> Result<Vec<SweepOutcome>, WorkspaceError> {
        let shared = &self.shared;
        let mut swept = Vec::new();
        for run in names(&shared.folder)?.into_iter().filter(|run| !is_live(run)) {
            let mut open = Vec::new();
            for child in names(&shared.folder.join(&run))? {
                let Ok(reference) = ResultRef::new(&run, &child) else { continue };
                match self.keep_work(&reference, at) {
                    Ok(Some(saved)) => open.push((reference, saved)),
                    Ok(None) => {}
                    Err(error) => swept.push(SweepOutcome::Unclear(reference, with_causes(&error))),
                }
            }
            // Removed only after all are saved: some use the layers of others.
            let finish =
                |(reference, saved): (ResultRef, RemovableWorkspace)| saved.finish(reference);
            swept.extend(open.into_iter().map(finish));
            // Best effort: it may still contain workspaces that could not be removed.
            let _ = fs::remove_dir(shared.folder.join(&run));
        }
        self.sweep_worktrees(is_live, at, &mut swept)?;
        // Verify workspaces hold no work, so their removal is not reported.
        swept.retain(|it| !matches!(it, SweepOutcome::Removed(of) if is_verify_workspace(of)));
        shared.prune_layers()?;
        Ok(swept)
    }

    /// Deletes the references that keep base commits of runs that have neither a result nor a workspace.
    ///
    /// All work trees and users of a repository share these references, so only those of runs that `is_over`
    /// confirms as over are deleted.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn drop_base_refs(&self, is_over: &dyn Fn(&str) -> bool) -> Result<(), WorkspaceError> {
        self.shared.drop_base_refs(is_over)
    }

    /// Keeps the work of one workspace; `None` if it is locked or gone.
    fn keep_work(
        &self,
        reference: &ResultRef,
        at: SystemTime,
    ) -> Result<Option<RemovableWorkspace>, WorkspaceError> {
        let shared = &self.shared;
        let dir = match WorkspaceDir::lock_existing(shared.dir_path(reference)) {
            Ok(Some(dir)) => dir,
            Ok(None) | Err(WorkspaceError::InUse { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(record) = dir.record()? else { return Ok(Some(RemovableWorkspace::Bare(dir))) };
        if is_verify_workspace(reference) || shared.is_untouched(reference, &record)? {
            return Ok(Some(RemovableWorkspace::Bare(dir)));
        }
        let space = shared.reopen(reference, dir, &record)?;
        self.keep_workspace(reference, WorkspaceFiles::Overlay(space), at).map(Some)
    }

    fn keep_workspace(
        &self,
        reference: &ResultRef,
        mut space: WorkspaceFiles,
        at: SystemTime,
    ) -> Result<RemovableWorkspace, WorkspaceError> {
        let kept = keep(&self.shared, reference, &mut space, MESSAGE, at)?;
        if kept.skipped.iter().any(SkippedPath::is_work) {
            return Err(WorkspaceError::Unkept { path: space.record().path.into() });
        }
        Ok(RemovableWorkspace::Whole(Box::new(space), kept.commit))
    }

    fn sweep_worktrees(
        &self,
        is_live: &dyn Fn(&str) -> bool,
        at: SystemTime,
        swept: &mut Vec<SweepOutcome>,
    ) -> Result<(), WorkspaceError> {
        let all = Worktrees::open(&self.shared.repository)?;
        let free = |entry: &crate::WorktreeEntry| !entry.live && !is_live(entry.reference.run());
        for entry in all.list()?.into_iter().filter(free) {
            let reference = entry.reference;
            match self.sweep_worktree(&all, &reference, at) {
                Ok(done) => swept.extend(done),
                Err(error) => swept.push(SweepOutcome::Unclear(reference, with_causes(&error))),
            }
        }
        Ok(())
    }

    /// Keeps the work of one work tree and removes it; `None` if there was nothing to remove.
    fn sweep_worktree(
        &self,
        all: &Worktrees<'_>,
        reference: &ResultRef,
        at: SystemTime,
    ) -> Result<Option<SweepOutcome>, WorkspaceError> {
        let removed =
            |is_removed: bool| is_removed.then(|| SweepOutcome::Removed(reference.clone()));
        if is_verify_workspace(reference) {
            return WorktreeWorkspace::discard_leftover(&self.shared, reference).map(removed);
        }
        match WorktreeWorkspace::reopen(&self.shared, reference, Vec::new())? {
            Some(space) => {
                let saved =
                    self.keep_workspace(reference, WorkspaceFiles::Worktree(Box::new(space)), at)?;
                Ok(Some(saved.finish(reference.clone())))
            }
            None => Ok(removed(all.remove_unfinished(reference)?)),
        }
    }
}

/// A leftover workspace that can be removed: its work is committed, or it has none.
enum RemovableWorkspace {
    /// It holds no work.
    Bare(WorkspaceDir),
    /// Its work, if any, is in the commit.
    Whole(Box<WorkspaceFiles>, Option<ObjectId>),
}

impl RemovableWorkspace {
    fn finish(self, reference: ResultRef) -> SweepOutcome {
        let (removed, kept) = match self {
            Self::Bare(dir) => (dir.remove(), None),
            Self::Whole(space, kept) => (remove(*space), kept),
        };
        match (removed, kept) {
            (Err(error), _) => SweepOutcome::Unclear(reference, with_causes(&error)),
            (Ok(()), Some(commit)) => SweepOutcome::Kept(reference, commit),
            (Ok(()), None) => SweepOutcome::Removed(reference),
        }
    }
}

impl WorkspacesContext {
    /// Implements [`Workspaces::drop_base_refs`].
    fn drop_base_refs(&self, is_over: &dyn Fn(&str) -> bool) -> Result<(), WorkspaceError> {
        let call = self.repository.call("for-each-ref").arg("--format=%(refname) %(objectname)");
        let output = call.arg(ResultRef::PREFIX).run()?;
        let text = String::from_utf8_lossy(&output.bytes).into_owned();
        let mut with_results: BTreeSet<&str> = BTreeSet::new();
        let mut bases = Vec::new();
        for line in text.lines() {
            let Some((name, id)) = line.split_once(' ') else { continue };
            let rest = name.strip_prefix(ResultRef::PREFIX).unwrap_or_default();
            let Some((run, rest)) = rest.split_once('/') else { continue };
            match rest.strip_prefix(BASES_REF_DIR) {
                Some(_) => bases.push((run, name, id)),
                None => {
                    with_results.insert(run);
                }
            }
        }
        // Other work trees of the repository have their own directories, also after a move.
        let all = self.state.join("spaces");
        let folders: Vec<_> = names(&all)?.into_iter().map(|name| all.join(name)).collect();
        let has_work = |run: &str| {
            let in_any = |folder: &PathBuf| {
                has_workspaces(&folder.join(run))
                    || has_workspaces(&folder.join(".private/worktrees").join(run))
            };
            folders.iter().any(in_any)
        };
        bases.retain(|(run, ..)| !with_results.contains(run) && is_over(run) && !has_work(run));
        if bases.is_empty() {
            return Ok(());
        }
        let orders = bases.iter().map(|(_, name, id)| format!("delete {name} {id}\n"));
        let call = self.repository.call("update-ref").args(["--no-deref", "--stdin"]);
        call.run_with_input(orders.collect::<String>().as_bytes())?;
        Ok(())
    }
}

/// Says whether the directory of a run contains workspaces; removes it if it is empty.
fn has_workspaces(folder: &Path) -> bool {
    fs::remove_dir(folder).is_err() && folder.symlink_metadata().is_ok()
}

fn names(folder: &Path) -> Result<Vec<String>, WorkspaceError> {
    let entries = fs::read_dir(folder).map_err(WorkspaceError::io("listing the workspaces"))?;
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}

/// Formats an error with its causes.
pub(super) fn with_causes(error: &WorkspaceError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
