//! What agents left behind in results: compared, merged, taken back, branched off, discarded.
//!
//! A result is a commit under `refs/adjutant/<run>/<session>`; the repository holds it, whatever became of the
//! run. This knows runs and sessions and asks `adjutant-workspace` for the rest; it prints nothing and decides
//! nothing for a person.
//!
//! Start at [`KeptResults::open`] and [`KeptResults::results`]. Invariant: no file of the user changes but in [`KeptResults::apply`]
//! and [`KeptResults::take_back`], and each of them changes all its files or none.

mod branches;
mod disk_usage;
mod machine;
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

pub use disk_usage::{DiskUsage, disk_usage};
pub use machine::{MachineCapabilities, probe_machine};

/// The folder of the state directory that holds workspaces.
const SPACES: &str = "spaces";

/// The folder of the state directory that holds what is needed to take merges back.
const MERGES: &str = "merges";

/// Says why something could not be done with a result.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Git failed, or there is no repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The user's files could not be looked at or replaced.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// A result that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptResult {
    /// Who made it, where the name is one of a session.
    pub session: Option<SessionId>,
    /// The run, as the reference has it.
    pub run: String,
    /// The reference that keeps it.
    pub reference: String,
    /// The branch that is made of it when one is wanted.
    pub branch: String,
    /// The commit, by its id.
    pub commit: String,
    /// When it was committed.
    pub at: SystemTime,
    /// Whether HEAD or a branch already has all of it.
    pub merged: bool,
}

/// What became of a result, or would become of it.
#[derive(Debug)]
pub enum MergeOutcome {
    /// It is merged, or would be, and this changes.
    Merges {
        /// The files.
        diff: Diff,
        /// Submodules it changes; they are left as they are.
        submodules: Vec<PathBuf>,
        /// Directories it writes in that git takes for git directories: their configuration and hooks are run.
        git_like: Vec<PathBuf>,
    },
    /// Everything in it is there already.
    Already,
    /// These files cannot be merged; nothing changes.
    Conflicts(Vec<Conflict>),
    /// These files hold uncommitted changes that the agent never saw; nothing changes.
    Dirty(Vec<PathBuf>),
    /// It could not be done; the error says whether anything changed.
    Failed(ApplyError),
}

/// Where work is by now that was kept once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultLocation {
    /// The user's files have it, or what the user made of it; or their commit has it.
    Merged,
    /// A branch or a reference of ours keeps it, and the user's files do not have it yet.
    Kept,
    /// Git still has the commit, and nothing keeps it: it was discarded or pruned.
    Dropped,
    /// This repository has no such commit.
    Gone,
}

/// What became of a merge that was to be taken back.
#[derive(Debug)]
pub enum UnmergeOutcome {
    /// The files are what they were before.
    Done,
    /// It was not merged into the files, so there is nothing to take back.
    Nothing,
    /// These files changed since; nothing was taken back.
    Changed(Vec<PathBuf>),
    /// It could not be done.
    Failed(ApplyError),
}

/// What became of merges that were cut short.
#[derive(Debug, Default)]
pub struct MergeRecovery {
    /// How many there were that could be put back.
    pub merges: usize,
    /// Files that somebody changed meanwhile and that were left as they are.
    pub left: Vec<UnrestoredFile>,
    /// Why one of them could not be put back.
    pub stuck: Option<ResultsError>,
}

/// A file that several results touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// The file.
    pub path: PathBuf,
    /// The places of the results that touch it.
    pub by: Vec<usize>,
}

/// The results kept in one repository, and the user's files they can be merged into.
#[derive(Clone, Debug)]
pub struct KeptResults {
    repository: Repository,
}

impl KeptResults {
    /// Opens the repository that `tree` lies in. Git is looked for in `search`, as in the value of `PATH`;
    /// `state` is the state directory.
    ///
    /// # Errors
    ///
    /// [`GitError::NotARepository`], [`GitError::NoGit`], or why git could not be asked.
    pub fn open(search: &OsStr, tree: &Path, state: &Path) -> Result<Self, ResultsError> {
        Ok(Self { repository: repository_at(search, tree, state)? })
    }

    /// Merges nothing into the directory with the person's configuration, nor into the files that links in it lead to.
    #[must_use]
    pub fn protecting(mut self, config: &Path) -> Self {
        self.repository = self.repository.with_protected(&with_link_targets(config));
        self
    }

    /// Returns the folder that the repository's files lie in.
    #[must_use]
    pub fn tree(&self) -> &Path {
        self.repository.work_tree()
    }

    /// Returns the git directory that all work trees of the repository share.
    #[must_use]
    pub fn shared_folder(&self) -> &Path {
        self.repository.common_dir()
    }

    /// Lists what is kept of a run, oldest first.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn results(&self, run: RunId) -> Result<Vec<KeptResult>, ResultsError> {
        let kept = self.repository.results_of(&run.to_string())?;
        Ok(kept.into_iter().map(KeptResult::of).collect())
    }

    /// Lists everything that is kept, oldest first.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn all_results(&self) -> Result<Vec<KeptResult>, ResultsError> {
        Ok(self.repository.results()?.into_iter().map(KeptResult::of).collect())
    }

    /// Says which runs have something kept here.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn runs(&self) -> Result<Vec<RunId>, ResultsError> {
        let names = self.repository.result_names()?;
        let mut runs: Vec<RunId> =
            names.iter().filter_map(|name| name.run().parse().ok()).collect();
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }

    /// Says whether git still has a commit, though nothing may keep it.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn has_commit(&self, commit: &str) -> Result<bool, ResultsError> {
        match ObjectId::parse(commit) {
            Some(id) => Ok(self.repository.resolve(&format!("{id}^{{commit}}"))?.is_some()),
            None => Ok(false),
        }
    }

    /// Compares a result with what its agent began from, at and below `paths` or everywhere.
    ///
    /// # Errors
    ///
    /// Why git could not compare them.
    pub fn diff(&self, result: &KeptResult, paths: &[PathBuf]) -> Result<Diff, ResultsError> {
        let (base, commit) = self.ends(result)?;
        Ok(self.repository.diff_within(&base, &commit, paths)?)
    }

    /// Returns the same as a patch, and whether there is more of it.
    ///
    /// # Errors
    ///
    /// Why git could not compare them.
    pub fn patch(
        &self,
        result: &KeptResult,
        what: PatchOptions<'_>,
    ) -> Result<(Vec<u8>, bool), ResultsError> {
        let (base, commit) = self.ends(result)?;
        Ok(self.repository.patch_of(&base, &commit, what)?)
    }

    /// Says what would become of each result if they were merged in this order.
    ///
    /// # Errors
    ///
    /// Why the user's files could not be looked at.
    pub fn preview(&self, results: &[KeptResult]) -> Result<Vec<MergeOutcome>, ResultsError> {
        let ids = results.iter().map(id_of).collect::<Result<Vec<_>, _>>()?;
        let rehearsed = self.repository.rehearse(&ids, SystemTime::now())?;
        // What the results before one leave is not on disk yet.
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

    /// Puts back what merges that were cut short had replaced, and removes what they had prepared.
    ///
    /// # Errors
    ///
    /// Why the journals could not be read.
    pub fn recover(&self) -> Result<MergeRecovery, ResultsError> {
        let done = self.repository.recover()?;
        let merges = done.put_back.len();
        let left = done.put_back.into_iter().flat_map(|one| one.left).collect();
        Ok(MergeRecovery { merges, left, stuck: done.stuck.map(ResultsError::Apply) })
    }

    /// Takes merges back, by the commits that were merged; later ones before earlier ones.
    ///
    /// # Errors
    ///
    /// Why the journals could not be read.
    pub fn take_back(&self, commits: &[String]) -> Result<Vec<UnmergeOutcome>, ResultsError> {
        let mut done: Vec<UnmergeOutcome> =
            commits.iter().map(|_| UnmergeOutcome::Nothing).collect();
        // One that another was merged over can be taken back only after it.
        loop {
            let mut went_on = false;
            let names = self.repository.applied()?;
            for (commit, fate) in commits.iter().zip(&mut done) {
                for name in applications(&names, commit) {
                    match (self.repository.undo(name), &*fate) {
                        (Ok(()), _) => {
                            went_on = true;
                            *fate = UnmergeOutcome::Done;
                        }
                        // Of one that was merged twice, this merge is part of what was there before.
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

    /// Says whether a commit is merged into the files and can be taken back.
    ///
    /// # Errors
    ///
    /// Why the journals could not be read.
    pub fn is_applied(&self, commit: &str) -> Result<bool, ResultsError> {
        Ok(!applications(&self.repository.applied()?, commit).is_empty())
    }

    /// Says where work is by now that was kept as these commits, in their order; what it costs does not grow with them.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn whereabouts(&self, commits: &[String]) -> Result<Vec<ResultLocation>, ResultsError> {
        let asked: Vec<ObjectId> = commits.iter().filter_map(|it| ObjectId::parse(it)).collect();
        // First, for another repository may lie by now where one was that work was merged into.
        let present = self.repository.existing_commits(&asked)?;
        let applied = self.repository.applied()?;
        let is_applied = |it: &ObjectId| !applications(&applied, it.as_str()).is_empty();
        let there = asked.iter().filter(|it| present.contains(it));
        let (recorded, mut open): (Vec<_>, Vec<_>) = there.cloned().partition(is_applied);
        // A record does not know of a checkout or a stash since.
        open.extend(self.repository.undone(&recorded, &applied)?);
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

    /// Says whether the branch of a result is there and at it.
    #[must_use]
    pub fn has_branch(&self, result: &KeptResult) -> bool {
        let tip = self.repository.branch_tip(&result.branch);
        matches!(tip, Ok(Some(tip)) if tip.to_string() == result.commit)
    }

    /// Makes a branch at a result and returns its name.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] when a branch of that name is elsewhere.
    pub fn branch(&self, result: &KeptResult) -> Result<String, ResultsError> {
        Ok(self.repository.branch_as(&reference_of(result)?, result.branch.clone())?)
    }

    /// Says whether a branch at a result also holds files that were not committed when its agent, or one whose
    /// work it stands on, began.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn holds_uncommitted(&self, result: &KeptResult) -> Result<bool, ResultsError> {
        Ok(self.repository.contains_capture(&id_of(result)?)?)
    }

    /// Says whether HEAD and a result have a commit in common; also where HEAD has no commit yet, since git then takes
    /// any branch.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn shares_history(&self, result: &KeptResult) -> Result<bool, ResultsError> {
        Ok(self.repository.shares_history(&id_of(result)?)?)
    }

    /// Forgets a result; its commit stays until git collects it.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] when it is another one by now, [`GitError::Missing`] when it is gone.
    pub fn discard(&self, result: &KeptResult) -> Result<(), ResultsError> {
        Ok(self.repository.discard(&reference_of(result)?, &id_of(result)?)?)
    }

    fn ends(&self, result: &KeptResult) -> Result<(ObjectId, ObjectId), ResultsError> {
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

/// Drops what is needed to take merges back that were made before `before`; returns how many, and what went
/// wrong.
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

/// Returns the names of a commit's applications, newest first.
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

/// Finds the files that more than one of the differences touch.
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

/// Opens the repository that `tree` lies in, with a folder of the state directory for that work tree alone:
/// what is merged into one tree must never be put back in another.
fn repository_at(search: &OsStr, tree: &Path, state: &Path) -> Result<Repository, GitError> {
    let git = Git::find(search)?;
    // Where there is no repository, nothing is made in the state directory either.
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
    fn the_newest_application_comes_first_by_its_number() {
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
    fn a_file_that_one_renames_and_another_changes_is_shared() {
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
