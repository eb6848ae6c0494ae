//! Looking after what crashes left.
//!
//! Invariant: of a run that somebody claims, and of a workspace that a process holds, nothing is touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::SpaceError;
use super::slot::Slot;
use super::verify::is_verify_workspace;
use super::workspace::{Space, keep, remove};
use super::workspaces::{BASES, Shared, Workspaces};
use super::worktree::WorktreeSpace;
use crate::{ObjectId, ResultRef, Skipped, Worktrees};

/// What the commit of work says whose process is gone.
const MESSAGE: &str = "Work of a child whose process ended early\n";

/// What became of something that a crash left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Its work is committed to its reference; its files are gone.
    Kept(ResultRef, ObjectId),
    /// It held no work and was removed.
    Removed(ResultRef),
    /// It could not be told; everything is still there.
    Unclear(ResultRef, String),
}

impl Workspaces {
    /// Finds workspaces that no process holds and no live run claims; keeps their work and removes them.
    ///
    /// # Errors
    ///
    /// When the folders cannot be read. What is wrong with a single workspace is in the answer.
    pub fn sweep(
        &self,
        is_live: &dyn Fn(&str) -> bool,
        at: SystemTime,
    ) -> Result<Vec<Swept>, SpaceError> {
        let shared = &self.shared;
        let mut swept = Vec::new();
        for run in names(&shared.folder)?.into_iter().filter(|run| !is_live(run)) {
            let mut open = Vec::new();
            for child in names(&shared.folder.join(&run))? {
                let Ok(reference) = ResultRef::new(&run, &child) else { continue };
                match self.save(&reference, at) {
                    Ok(Some(saved)) => open.push((reference, saved)),
                    Ok(None) => {}
                    Err(error) => swept.push(Swept::Unclear(reference, said(&error))),
                }
            }
            // Only now: some stand on the layers of others.
            let finish = |(reference, saved): (ResultRef, Saved)| saved.finish(reference);
            swept.extend(open.into_iter().map(finish));
            // Best effort: it may still hold what is unclear.
            let _ = fs::remove_dir(shared.folder.join(&run));
        }
        self.sweep_worktrees(is_live, at, &mut swept)?;
        // Nobody worked there.
        swept.retain(|it| !matches!(it, Swept::Removed(of) if is_verify_workspace(of)));
        shared.prune_layers()?;
        Ok(swept)
    }

    /// Lets go of the states that runs began from of which nothing is left: neither a result nor a
    /// workspace.
    ///
    /// The references are shared by all work trees of a repository, and by everyone who uses it, so only
    /// those of runs go that `is_over` knows to be over.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn let_go(&self, is_over: &dyn Fn(&str) -> bool) -> Result<(), SpaceError> {
        self.shared.drop_bases(is_over)
    }

    /// Keeps the work of one workspace; none when it is held or gone.
    fn save(&self, reference: &ResultRef, at: SystemTime) -> Result<Option<Saved>, SpaceError> {
        let shared = &self.shared;
        let slot = match Slot::seize(shared.slot_path(reference)) {
            Ok(Some(slot)) => slot,
            Ok(None) | Err(SpaceError::InUse { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(record) = slot.record()? else { return Ok(Some(Saved::Bare(slot))) };
        if is_verify_workspace(reference) || shared.is_untouched(reference, &record)? {
            return Ok(Some(Saved::Bare(slot)));
        }
        let space = shared.take_up(reference, slot, &record)?;
        self.save_space(reference, Space::Overlay(space), at).map(Some)
    }

    fn save_space(
        &self,
        reference: &ResultRef,
        mut space: Space,
        at: SystemTime,
    ) -> Result<Saved, SpaceError> {
        let kept = keep(&self.shared, reference, &mut space, MESSAGE, at)?;
        if kept.skipped.iter().any(Skipped::is_work) {
            return Err(SpaceError::Unkept { path: space.record().path.into() });
        }
        Ok(Saved::Whole(Box::new(space), kept.commit))
    }

    fn sweep_worktrees(
        &self,
        is_live: &dyn Fn(&str) -> bool,
        at: SystemTime,
        swept: &mut Vec<Swept>,
    ) -> Result<(), SpaceError> {
        let all = Worktrees::open(&self.shared.repository)?;
        let free = |entry: &crate::WorktreeEntry| !entry.live && !is_live(entry.reference.run());
        for entry in all.list()?.into_iter().filter(free) {
            let reference = entry.reference;
            match self.sweep_worktree(&all, &reference, at) {
                Ok(done) => swept.extend(done),
                Err(error) => swept.push(Swept::Unclear(reference, said(&error))),
            }
        }
        Ok(())
    }

    /// Keeps the work of one work tree and removes it; none when there is nothing to remove.
    fn sweep_worktree(
        &self,
        all: &Worktrees<'_>,
        reference: &ResultRef,
        at: SystemTime,
    ) -> Result<Option<Swept>, SpaceError> {
        let removed = |is_removed: bool| is_removed.then(|| Swept::Removed(reference.clone()));
        if is_verify_workspace(reference) {
            return WorktreeSpace::discard_leftover(&self.shared, reference).map(removed);
        }
        match WorktreeSpace::take_up(&self.shared, reference, Vec::new())? {
            Some(space) => {
                let saved = self.save_space(reference, Space::Worktree(Box::new(space)), at)?;
                Ok(Some(saved.finish(reference.clone())))
            }
            None => Ok(removed(all.clear_torn(reference)?)),
        }
    }
}

/// A workspace whose work is safe.
enum Saved {
    /// Nobody worked in it.
    Bare(Slot),
    /// What there was is in the commit.
    Whole(Box<Space>, Option<ObjectId>),
}

impl Saved {
    fn finish(self, reference: ResultRef) -> Swept {
        let (removed, kept) = match self {
            Self::Bare(slot) => (slot.clear(), None),
            Self::Whole(space, kept) => (remove(*space), kept),
        };
        match (removed, kept) {
            (Err(error), _) => Swept::Unclear(reference, said(&error)),
            (Ok(()), Some(commit)) => Swept::Kept(reference, commit),
            (Ok(()), None) => Swept::Removed(reference),
        }
    }
}

impl Shared {
    /// Lets go of the states that runs began from of which nothing is left.
    fn drop_bases(&self, is_over: &dyn Fn(&str) -> bool) -> Result<(), SpaceError> {
        let call = self.repository.call("for-each-ref").arg("--format=%(refname) %(objectname)");
        let output = call.arg(ResultRef::PREFIX).run()?;
        let text = String::from_utf8_lossy(&output.bytes).into_owned();
        let mut with_results: BTreeSet<&str> = BTreeSet::new();
        let mut bases = Vec::new();
        for line in text.lines() {
            let Some((name, id)) = line.split_once(' ') else { continue };
            let rest = name.strip_prefix(ResultRef::PREFIX).unwrap_or_default();
            let Some((run, rest)) = rest.split_once('/') else { continue };
            match rest.strip_prefix(BASES) {
                Some(_) => bases.push((run, name, id)),
                None => {
                    with_results.insert(run);
                }
            }
        }
        // Another work tree of the repository has a folder of its own, and so has one that was moved.
        let all = self.state.join("spaces");
        let folders: Vec<_> = names(&all)?.into_iter().map(|name| all.join(name)).collect();
        let has_work = |run: &str| {
            let in_any = |folder: &PathBuf| {
                holds_any(&folder.join(run))
                    || holds_any(&folder.join(".private/worktrees").join(run))
            };
            folders.iter().any(in_any)
        };
        bases.retain(|(run, ..)| !with_results.contains(run) && is_over(run) && !has_work(run));
        if bases.is_empty() {
            return Ok(());
        }
        let orders = bases.iter().map(|(_, name, id)| format!("delete {name} {id}\n"));
        let call = self.repository.call("update-ref").args(["--no-deref", "--stdin"]);
        call.feed(orders.collect::<String>().as_bytes())?;
        Ok(())
    }
}

/// Says whether a folder for the workspaces of a run holds any; an empty one goes.
fn holds_any(folder: &Path) -> bool {
    fs::remove_dir(folder).is_err() && folder.symlink_metadata().is_ok()
}

fn names(folder: &Path) -> Result<Vec<String>, SpaceError> {
    let entries = fs::read_dir(folder).map_err(SpaceError::io("listing the workspaces"))?;
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}

/// Says an error with what is behind it.
pub(super) fn said(error: &SpaceError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
