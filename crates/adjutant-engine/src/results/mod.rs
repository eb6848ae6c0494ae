//! The kept results of agents: comparing, merging, undoing merges, making branches, discarding.
//!
//! A result is a commit under `refs/adjutant/<run>/<session>`, which stays when the run is pruned. This module maps
//! runs and sessions to commits; `adjutant-workspace` does the git work.
//!
//! Start at [`KeptResults::open`] and [`KeptResults::results`]. Invariant: only [`KeptResults::apply`],
//! [`KeptResults::recover`] and [`KeptResults::take_back`] change files of the user, each all its files or none.

mod branches;
mod disk_usage;
mod machine;
mod resolve;
pub(crate) mod undo;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adjutant_core::{RunId, SessionId, content_hash};
pub use adjutant_workspace::{
    ApplyError, BinaryContent, Conflict, ConflictKind, ConflictSide, Diff, DiffEntry, DiffStatus,
    GitError, LineCounts, PatchOptions, UnrestoredFile,
};
use adjutant_workspace::{
    Git, KeptRef, ObjectId, Repository, ResultRef, forget_applied, with_link_targets,
};

pub use adjutant_workspace::{ConflictResolution, DiskUsage, ResolveError};
pub use disk_usage::{disk_usage, merges_disk_usage};
pub use machine::{MachineCapabilities, UserNamespaceObstacle, probe_machine};

/// The directory of workspaces below the state directory.
const SPACES: &str = "spaces";

/// The directory below the state directory with the data to undo merges.
const MERGES: &str = "merges";

/// Why an operation on results failed.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Git failed, or there is no repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The user's files could not be read or replaced.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// A subagent's committed work: its ref, its commit, and whether HEAD or a branch contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptResult {
    /// The session that made it; `None` if the ref is not named after a session.
    pub session: Option<SessionId>,
    /// The run's id, as in the ref.
    pub run: String,
    /// The ref that keeps it.
    pub reference: String,
    /// The name for a branch at this result.
    pub branch: String,
    /// The commit id.
    pub commit: String,
    /// The commit time.
    pub at: SystemTime,
    /// Whether HEAD or a branch contains it.
    pub merged: bool,
}

/// What merging a result into the user's files came to, or would come to.
#[derive(Debug)]
pub enum MergeOutcome {
    /// It is merged, or can be.
    Merges {
        /// The changed files.
        diff: Diff,
        /// Submodules it changes, which are not merged.
        submodules: Vec<PathBuf>,
        /// Directories it changes that git would take for git directories, and whose hooks it would run.
        git_like: Vec<PathBuf>,
    },
    /// The files already have all its changes.
    Already,
    /// These files conflict; nothing changes.
    Conflicts(Vec<Conflict>),
    /// These files have uncommitted changes that the agent did not see; nothing changes.
    Dirty(Vec<PathBuf>),
    /// Merging failed; the error says whether anything changed.
    Failed(ApplyError),
}

/// Where the work of a once kept result is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultLocation {
    /// In the user's files, possibly edited since, or in HEAD.
    Merged,
    /// Only in a branch or one of our refs.
    Kept,
    /// In git's object database without a ref: it was discarded or pruned.
    Dropped,
    /// Nowhere: this repository has no such commit.
    Gone,
}

/// What `merge --undo` did with one result.
#[derive(Debug)]
pub enum UnmergeOutcome {
    /// The files have the content from before the merge.
    Done,
    /// It was not merged, so there is nothing to undo.
    Nothing,
    /// These files changed since the merge; nothing was undone.
    Changed(Vec<PathBuf>),
    /// Undoing it failed.
    Failed(ApplyError),
}

/// What recovering interrupted merges came to.
#[derive(Debug, Default)]
pub struct MergeRecovery {
    /// The number of merges that were rolled back.
    pub merges: usize,
    /// Files that were edited since and therefore not restored.
    pub left: Vec<UnrestoredFile>,
    /// Why one of the merges could not be rolled back.
    pub stuck: Option<ResultsError>,
}

/// A file that several results change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// The file.
    pub path: PathBuf,
    /// The indices of the results that change it.
    pub by: Vec<usize>,
}

/// The kept results of one repository, and its work tree into which they can be merged.
#[derive(Clone, Debug)]
pub struct KeptResults {
    repository: Repository,
}

impl KeptResults {
    /// Opens the repository that contains `tree`. `search` is a `PATH` to find git in, `state` the state directory.
    ///
    /// # Errors
    ///
    /// [`GitError::NotARepository`], [`GitError::NoGit`], or why git could not be asked.
    pub fn open(search: &OsStr, tree: &Path, state: &Path) -> Result<Self, ResultsError> {
        Ok(Self { repository: repository_at(search, tree, state)? })
    }

    /// Protects the person's configuration directory, and the targets of links in it, from merges.
    #[must_use]
    pub fn protecting(mut self, config: &Path) -> Self {
        self.repository = self.repository.with_protected(&with_link_targets(config));
        self
    }

    /// Returns the top directory of the work tree.
    #[must_use]
    pub fn tree(&self) -> &Path {
        self.repository.work_tree()
    }

    /// Returns the git directory that is common to all work trees of the repository.
    #[must_use]
    pub fn shared_folder(&self) -> &Path {
        self.repository.common_dir()
    }

    /// Lists the kept results of a run, oldest first.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn results(&self, run: RunId) -> Result<Vec<KeptResult>, ResultsError> {
        let kept = self.repository.results_of(&run.to_string())?;
        Ok(kept.into_iter().map(KeptResult::of).collect())
    }

    /// Lists all kept results, oldest first.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn all_results(&self) -> Result<Vec<KeptResult>, ResultsError> {
        Ok(self.repository.results()?.into_iter().map(KeptResult::of).collect())
    }

    /// Lists the runs that have kept results.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn runs(&self) -> Result<Vec<RunId>, ResultsError> {
        let names = self.repository.result_names()?;
        let mut runs: Vec<RunId> =
            names.iter().filter_map(|name| name.run().parse().ok()).collect();
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }

    /// Returns whether the repository has a commit, even if no ref keeps it.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn has_commit(&self, commit: &str) -> Result<bool, ResultsError> {
        match ObjectId::parse(commit) {
            Some(id) => Ok(self.repository.resolve(&format!("{id}^{{commit}}"))?.is_some()),
            None => Ok(false),
        }
    }

    /// Compares a result with the commit its agent started from, limited to `paths` unless that is empty.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn diff(&self, result: &KeptResult, paths: &[PathBuf]) -> Result<Diff, ResultsError> {
        let (base, commit) = self.base_and_tip(result)?;
        Ok(self.repository.diff_within(&base, &commit, paths)?)
    }

    /// Like [`KeptResults::diff`], as a patch. Also returns whether the patch was cut.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn patch(
        &self,
        result: &KeptResult,
        what: PatchOptions<'_>,
    ) -> Result<(Vec<u8>, bool), ResultsError> {
        let (base, commit) = self.base_and_tip(result)?;
        Ok(self.repository.patch_of(&base, &commit, what)?)
    }

    /// Returns what merging the results in this order would come to.
    ///
    /// # Errors
    ///
    /// The user's files could not be read.
    pub fn preview(&self, results: &[KeptResult]) -> Result<Vec<MergeOutcome>, ResultsError> {
        let ids = results.iter().map(id_of).collect::<Result<Vec<_>, _>>()?;
        let rehearsed = self.repository.rehearse(&ids, SystemTime::now())?;
        // The files of the earlier results are not on disk yet, so their diffs are combined.
        let mut before = Diff::default();
        let verdict = |one: Result<adjutant_workspace::ApplyRehearsal, _>| match one {
            Ok(done) => {
                before.entries.extend(done.diff.entries.iter().cloned());
                let mut git_like = self.repository.git_like(&before);
                let is_in = |folder: &PathBuf| {
                    done.diff.entries.iter().any(|it| it.path.starts_with(folder))
                };
                git_like.retain(is_in);
                MergeOutcome::of(done.diff, done.submodules, git_like)
            }
            Err(error) => MergeOutcome::refused(error),
        };
        Ok(rehearsed.into_iter().map(verdict).collect())
    }

    /// Merges a result into the user's files, all of it or nothing.
    #[must_use]
    pub fn apply(&self, result: &KeptResult) -> MergeOutcome {
        let id = match id_of(result) {
            Ok(id) => id,
            Err(error) => return MergeOutcome::Failed(error.into()),
        };
        match self.repository.apply(&id, SystemTime::now()) {
            Ok(done) => {
                let git_like = self.repository.git_like(&done.diff);
                MergeOutcome::of(done.diff, done.submodules, git_like)
            }
            Err(error) => MergeOutcome::refused(error),
        }
    }

    /// Rolls back interrupted merges: restores the files they replaced and removes temporary files.
    ///
    /// # Errors
    ///
    /// The journals of merges could not be read.
    pub fn recover(&self) -> Result<MergeRecovery, ResultsError> {
        let done = self.repository.recover()?;
        let merges = done.put_back.len();
        let left = done.put_back.into_iter().flat_map(|one| one.left).collect();
        Ok(MergeRecovery { merges, left, stuck: done.stuck.map(ResultsError::Apply) })
    }

    /// Undoes the merges of these commits, later merges before earlier ones.
    ///
    /// # Errors
    ///
    /// The journals of merges could not be read.
    pub fn take_back(&self, commits: &[String]) -> Result<Vec<UnmergeOutcome>, ResultsError> {
        let mut done: Vec<UnmergeOutcome> =
            commits.iter().map(|_| UnmergeOutcome::Nothing).collect();
        // A merge that another merge changed again can be undone only after that one, so this repeats.
        loop {
            let mut went_on = false;
            let names = self.repository.applied_results()?;
            for (commit, fate) in commits.iter().zip(&mut done) {
                for name in applications(&names, commit) {
                    match (self.repository.undo(name), &*fate) {
                        (Ok(()), _) => {
                            went_on = true;
                            *fate = UnmergeOutcome::Done;
                        }
                        // The commit was merged twice and the second merge is undone; the first is part of the old files.
                        (Err(ApplyError::ChangedSince { .. }), UnmergeOutcome::Done) => {}
                        (Err(ApplyError::ChangedSince { paths }), _) => {
                            *fate = UnmergeOutcome::Changed(paths);
                        }
                        (Err(error), _) => *fate = UnmergeOutcome::Failed(error),
                    }
                }
            }
            if !went_on {
                return Ok(done);
            }
        }
    }

    /// Returns whether a commit is merged and its merge can be undone.
    ///
    /// # Errors
    ///
    /// The journals of merges could not be read.
    pub fn is_applied(&self, commit: &str) -> Result<bool, ResultsError> {
        Ok(!applications(&self.repository.applied_results()?, commit).is_empty())
    }

    /// Returns where the work of each of these commits is now. The number of git calls does not depend on theirs.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn locate_commits(&self, commits: &[String]) -> Result<Vec<ResultLocation>, ResultsError> {
        let asked: Vec<ObjectId> = commits.iter().filter_map(|it| ObjectId::parse(it)).collect();
        // First, because another repository may be at this path now.
        let present = self.repository.existing_commits(&asked)?;
        let applied = self.repository.applied_results()?;
        let is_applied = |it: &ObjectId| !applications(&applied, it.as_str()).is_empty();
        let there = asked.iter().filter(|it| present.contains(it));
        let (recorded, mut open): (Vec<_>, Vec<_>) = there.cloned().partition(is_applied);
        // A merge that is recorded may have been reverted by a checkout or stash since.
        open.extend(self.repository.fully_undone(&recorded, &applied)?);
        let merged = self.repository.merged_in_head(&open)?;
        let open: Vec<ObjectId> = open.into_iter().filter(|it| !merged.contains(it)).collect();
        let kept = self.repository.kept_commits(&open)?;
        Ok(commits
            .iter()
            .map(|commit| match ObjectId::parse(commit).filter(|it| present.contains(it)) {
                None => ResultLocation::Gone,
                Some(id) if kept.contains(&id) => ResultLocation::Kept,
                Some(id) if open.contains(&id) => ResultLocation::Dropped,
                Some(_) => ResultLocation::Merged,
            })
            .collect())
    }

    /// Returns whether the branch of a result exists and is at its commit.
    #[must_use]
    pub fn has_branch(&self, result: &KeptResult) -> bool {
        let tip = self.repository.branch_tip(&result.branch);
        matches!(tip, Ok(Some(tip)) if tip.to_string() == result.commit)
    }

    /// Creates a branch at a result and returns its name.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] if a branch of that name is at another commit.
    pub fn branch(&self, result: &KeptResult) -> Result<String, ResultsError> {
        Ok(self.repository.branch_as(&reference_of(result)?, result.branch.clone())?)
    }

    /// Returns whether the history of a result contains uncommitted files of the user, captured when an agent
    /// started.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn holds_uncommitted(&self, result: &KeptResult) -> Result<bool, ResultsError> {
        Ok(self.repository.contains_capture(&id_of(result)?)?)
    }

    /// Deletes the ref of a result. Its commit stays until git's garbage collection.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] if the ref is at another commit, [`GitError::Missing`] if it is gone.
    pub fn discard(&self, result: &KeptResult) -> Result<(), ResultsError> {
        Ok(self.repository.discard(&reference_of(result)?, &id_of(result)?)?)
    }

    fn base_and_tip(&self, result: &KeptResult) -> Result<(ObjectId, ObjectId), ResultsError> {
        let commit = id_of(result)?;
        Ok((self.repository.base_of(&commit)?, commit))
    }
}

impl KeptResult {
    fn of(kept: KeptRef) -> Self {
        Self {
            session: kept.reference.child().parse().ok(),
            run: kept.reference.run().to_owned(),
            reference: kept.reference.to_string(),
            branch: kept.reference.branch(),
            commit: kept.commit.to_string(),
            at: kept.at,
            merged: kept.merged,
        }
    }
}

impl MergeOutcome {
    fn of(diff: Diff, submodules: Vec<PathBuf>, git_like: Vec<PathBuf>) -> Self {
        if diff.entries.is_empty() && submodules.is_empty() {
            return Self::Already;
        }
        Self::Merges { diff, submodules, git_like }
    }

    fn refused(error: ApplyError) -> Self {
        match error {
            ApplyError::Conflicts { preview } => Self::Conflicts(preview.conflicts),
            ApplyError::Dirty { paths } => Self::Dirty(paths),
            ApplyError::Sparse { .. }
            | ApplyError::Stuck { .. }
            | ApplyError::ChangedMeanwhile { .. }
            | ApplyError::Unfinished { .. }
            | ApplyError::ChangedSince { .. }
            | ApplyError::Unknown(_)
            | ApplyError::Git(_) => Self::Failed(error),
        }
    }
}

/// Deletes the data to undo merges that were made before `before`. Returns how many, and the errors.
#[must_use]
pub fn forget_merges(state: &Path, before: SystemTime) -> (usize, Vec<GitError>) {
    let (mut count, mut problems) = (0, Vec::new());
    for tree in std::fs::read_dir(state.join(MERGES)).into_iter().flatten().flatten() {
        match forget_applied(&tree.path(), before) {
            Ok(forgotten) => count += forgotten,
            Err(error) => problems.push(error),
        }
    }
    (count, problems)
}

/// Returns the names of a commit's merges in the journal, newest first.
fn applications<'a>(names: &'a [String], commit: &str) -> Vec<&'a str> {
    let start = format!("{}-", commit.get(..12).unwrap_or(commit));
    let number = |name: &'a String| {
        let number: u64 = name.strip_prefix(&start)?.parse().ok()?;
        Some((number, name.as_str()))
    };
    let mut found: Vec<(u64, &str)> = names.iter().filter_map(number).collect();
    found.sort_unstable();
    found.into_iter().rev().map(|(_, name)| name).collect()
}

/// Returns the files that more than one diff changes.
#[must_use]
pub fn shared_files(diffs: &[Diff]) -> Vec<SharedFile> {
    let mut touched: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
    for (place, diff) in diffs.iter().enumerate() {
        for entry in &diff.entries {
            let old = match &entry.status {
                DiffStatus::Renamed(old) => Some(old.as_path()),
                DiffStatus::Added
                | DiffStatus::Deleted
                | DiffStatus::Modified
                | DiffStatus::TypeChanged => None,
            };
            for path in [Some(entry.path.as_path()), old].into_iter().flatten() {
                let by = touched.entry(path).or_default();
                if by.last() != Some(&place) {
                    by.push(place);
                }
            }
        }
    }
    let shared = touched.into_iter().filter(|(_, by)| by.len() > 1);
    shared.map(|(path, by)| SharedFile { path: path.to_owned(), by }).collect()
}

/// Opens the repository that contains `tree`. Each work tree has its own directory below the state directory, so
/// that a merge into one tree is never undone in another.
fn repository_at(search: &OsStr, tree: &Path, state: &Path) -> Result<Repository, GitError> {
    let git = Git::find(search)?;
    // Checked first, so that nothing is created in the state directory if there is no repository.
    let missing = |source| GitError::Io { doing: "opening the directory", source };
    let start = tree.canonicalize().map_err(missing)?;
    if !start.ancestors().any(|folder| folder.join(".git").symlink_metadata().is_ok()) {
        return Err(GitError::NotARepository { path: start });
    }
    let merges = state.join(MERGES);
    let found = Repository::open(&git, tree, &merges)?.with_user_excludes()?;
    let found = found.with_protected(&[state.to_owned()]);
    let key = content_hash(found.work_tree().as_os_str().as_bytes());
    found.with_state(&merges.join(key.get(..16).unwrap_or(&key)))
}

fn id_of(result: &KeptResult) -> Result<ObjectId, GitError> {
    ObjectId::parse(&result.commit).ok_or_else(|| GitError::Missing(result.commit.clone()))
}

fn reference_of(result: &KeptResult) -> Result<ResultRef, GitError> {
    ResultRef::parse(&result.reference).ok_or_else(|| GitError::BadName(result.reference.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(entries: &[(&str, DiffStatus)]) -> Diff {
        let id = ObjectId::parse(&"0".repeat(40)).unwrap();
        let entry = |(path, status): &(&str, DiffStatus)| DiffEntry {
            status: status.clone(),
            path: PathBuf::from(path),
            old_mode: 0o100_644,
            new_mode: 0o100_644,
            old_id: id.clone(),
            new_id: id.clone(),
            lines: None,
        };
        Diff { entries: entries.iter().map(entry).collect() }
    }

    #[test]
    fn merges_of_a_commit_are_ordered_newest_first() {
        let (commit, other) = ("a".repeat(40), "b".repeat(40));
        let short = &commit[..12];
        let names = [2, 10, 1, 9].map(|number| format!("{short}-{number}"));
        assert_eq!(
            applications(&names, &commit),
            [10, 9, 2, 1].map(|number| format!("{short}-{number}"))
        );
        assert!(applications(&names, &other).is_empty());
    }

    #[test]
    fn file_renamed_by_one_and_changed_by_another_is_shared() {
        let renamed = DiffStatus::Renamed("old".into());
        let diffs = [
            diff(&[("new", renamed), ("own", DiffStatus::Added)]),
            diff(&[("alone", DiffStatus::Deleted)]),
            diff(&[("old", DiffStatus::Modified)]),
        ];
        let shared = shared_files(&diffs);
        assert_eq!(shared, [SharedFile { path: "old".into(), by: vec![0, 2] }]);
        assert_eq!(shared_files(&diffs[..2]), []);
    }
}
