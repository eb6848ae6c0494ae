//! The results of runs: commits with the work of agents, kept as references in the user's repository.
//!
//! This file selects the results that a command is about; the repository knows what is kept, the journal which agent
//! made it. Start at [`ResultSelection::find`]. Each command has its own file.

mod after_run;
mod diff;
mod discard;
mod disk_usage;
mod doctor;
mod merge;
mod merge_questions;
mod prune_merges;
mod prune_results;
mod resolve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use adjutant_core::workspace::KeptWork;
use adjutant_core::{DelegationState, Outcome, RunId, SessionId};
use adjutant_engine::results::{
    Conflict, ConflictKind, ConflictSide, Diff, DiffEntry, DiffStatus, GitError, KeptResult,
    KeptResults, ResultLocation, ResultsError, SharedFile,
};
use adjutant_engine::{Archive, RunFiles, why_no_repository};
use adjutant_view::{Delegation, ProcessLiveness, RunView, sanitize};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;
use crate::records::{self, ViewDetail, archive_failure, count_with_noun};
use crate::run_lookup::{self, ProjectTree};
use crate::settings::user_config_dir;

pub(crate) use after_run::{MergeScope, WorkPlacement, after_run};
pub(crate) use diff::run_diff;
pub(crate) use discard::run_discard;
pub(crate) use disk_usage::{disk_usage_json, disk_usage_text};
pub(crate) use doctor::findings;
pub(crate) use merge::run_merge;
pub(crate) use merge_questions::PendingMerge;
pub(crate) use prune_merges::prune_merges;
pub(crate) use prune_results::prune_results;

/// The search path for git if `PATH` is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the search path for programs.
pub(crate) fn search() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into())
}

/// Opens the repository around `tree`, to inspect and merge results.
pub(crate) fn open_work(tree: &Path, archive: &Archive) -> Result<KeptResults, ResultsError> {
    let work = KeptResults::open(&search(), tree, archive.path())?;
    Ok(match user_config_dir() {
        Some(config) => work.protecting(&config),
        None => work,
    })
}

/// A result that a command selected, with the label and outcome of the delegation that made it.
pub(crate) struct SelectedResult {
    /// The result.
    pub(crate) kept: KeptResult,
    /// The label of its task; empty if no journal has it.
    pub(crate) label: String,
    /// Its label if no other task of the run has it, for commands.
    pub(crate) unique_label: Option<String>,
    /// The outcome of its delegation; `None` if it has not ended or is unknown.
    pub(crate) outcome: Option<Outcome>,
    /// Files that are not part of it, each with the reason.
    pub(crate) left_out: Vec<String>,
}

/// A result that the journal records and the repository no longer has.
pub(crate) struct MissingResult {
    session: SessionId,
    label: String,
    commit: String,
}

/// Work that could not be kept and is still in its workspace.
pub(crate) struct UnsavedWork {
    session: SessionId,
    label: String,
    problem: String,
}

/// The results that `diff`, `merge` or `discard` is about, with those that no longer exist.
pub(crate) struct ResultSelection {
    /// The repository.
    pub(crate) work: KeptResults,
    /// The run that made them.
    pub(crate) run: RunId,
    /// The id of the run or session that the command is about.
    pub(crate) name: String,
    /// The results that exist, parents before children.
    pub(crate) picked: Vec<SelectedResult>,
    /// The results that no longer exist.
    pub(crate) gone: Vec<MissingResult>,
    /// The work that could not be committed.
    pub(crate) unkept: Vec<UnsavedWork>,
    /// Set if the run or session has not ended, so more results may follow.
    pub(crate) unfinished: Option<UnfinishedReason>,
    /// The commits of earlier runs that this run started from, in order.
    stands_on: Vec<String>,
}

/// Whether a selection includes the results of children whose work belongs to the parent's result.
///
/// Such work was merged into the parent's workspace, or (all children of a story) can be used only through the
/// parent, even if it was not merged. Other results are always selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergedChildren {
    /// Such a result is selected like every other one.
    Include,
    /// Such a result is selected only if its session is named.
    Exclude,
}

/// Why more results may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnfinishedReason {
    /// A live process works on it.
    Running,
    /// Its process is gone, and it never ended.
    Interrupted,
}

impl UnfinishedReason {
    /// Judges one session, or the whole run.
    fn of(view: &RunView, liveness: ProcessLiveness, session: Option<SessionId>) -> Option<Self> {
        let is_open = |it: &Delegation| it.state.is_live() || it.is_keeping();
        let is_open = match session.and_then(|session| view.delegation(session)) {
            Some(one) => is_open(one),
            None => view.outcome().is_none(),
        };
        is_open.then_some(match liveness {
            ProcessLiveness::Alive => Self::Running,
            ProcessLiveness::Dead => Self::Interrupted,
        })
    }

    /// Returns the word in JSON output.
    const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted => "interrupted",
        }
    }
}

impl ResultSelection {
    /// Finds the results of a run or session, or of the latest run of this directory if none is named.
    pub(crate) fn find(
        archive: &Archive,
        text: Option<&str>,
        parts: MergedChildren,
    ) -> Result<Self, Failure> {
        let (files, session) = match run_lookup::typed_name(text) {
            Some(text) => run_lookup::resolve(archive, text, || latest_here(archive))?,
            None => (latest_here(archive)?, None),
        };
        let (view, liveness) = records::fold(&files, ViewDetail::Numbers)?;
        let workdir = Path::new(view.workdir());
        if !workdir.is_dir() {
            let work = find_moved_repository(archive, files.id(), workdir)?;
            return Self::of(work, &view, liveness, session, parts);
        }
        let work = open_work(workdir, archive);
        let work = work.map_err(|error| work_failure(&error))?;
        say_workdir(&work, files.id());
        Self::of(work, &view, liveness, session, parts)
    }

    /// Selects the results of a run whose journal is already folded.
    pub(crate) fn of(
        work: KeptResults,
        view: &RunView,
        liveness: ProcessLiveness,
        session: Option<SessionId>,
        parts: MergedChildren,
    ) -> Result<Self, Failure> {
        let run = view.run().ok_or_else(|| Failure::new(Exit::Failed, "the run never began"))?;
        let mut kept = work.results(run).map_err(|error| work_failure(&error))?;
        let session = session.filter(|session| *session != run.root_session());
        let is_meant = |it: Option<SessionId>| session.is_none() || it == session;
        let (mut picked, mut gone, mut unkept) = (Vec::new(), Vec::new(), Vec::new());
        for delegation in view.preorder() {
            let found = kept.iter().position(|it| it.session == Some(delegation.session));
            let found = found.map(|place| kept.remove(place));
            let outcome = match delegation.state {
                DelegationState::Ended(outcome) => Some(outcome),
                DelegationState::AwaitingApproval
                | DelegationState::Queued
                | DelegationState::Running => None,
            };
            let is_part = session.is_none() && view.is_part_of_parent(delegation);
            if !is_meant(Some(delegation.session)) || (is_part && parts == MergedChildren::Exclude)
            {
                continue;
            }
            let label = delegation.label.as_str().to_owned();
            let commit = delegation.kept.as_ref().and_then(|it| it.0.commit.clone());
            match (found, commit) {
                (Some(_), _) if outcome.is_none() && liveness == ProcessLiveness::Alive => {
                    say(&format!("adjutant: {} is still running", delegation.session));
                }
                (Some(mut kept), _) => {
                    if let Some(name) = &delegation.story {
                        work.name_branch(&mut kept, name);
                    }
                    let recorded = delegation.kept.as_ref().map(|it| &it.0);
                    let left_out = recorded.map(|it| [&it.left[..], &it.skipped].concat());
                    let left_out = left_out.unwrap_or_default();
                    let unique_label = run_lookup::unique_label(view, delegation);
                    picked.push(SelectedResult { kept, label, unique_label, outcome, left_out });
                }
                (None, Some(commit)) => {
                    gone.push(MissingResult { session: delegation.session, label, commit });
                }
                (None, None) => {
                    let session = delegation.session;
                    let problem = delegation.kept.as_ref().and_then(|it| it.1.clone());
                    unkept.extend(problem.map(|problem| UnsavedWork { session, label, problem }));
                }
            }
        }
        // A result that the journal does not mention is still an agent's work.
        for kept in kept.into_iter().filter(|it| is_meant(it.session)) {
            let (label, left_out) = (String::new(), Vec::new());
            let unique_label = None;
            picked.push(SelectedResult { kept, label, unique_label, outcome: None, left_out });
        }
        let name = session.map_or_else(|| run.to_string(), |session| session.to_string());
        let unfinished = UnfinishedReason::of(view, liveness, session);
        let stands_on = view.begun_upon().to_vec();
        Ok(Self { work, run, name, picked, gone, unkept, unfinished, stands_on })
    }

    /// Returns the earlier runs that this run builds on and whose work is not merged, in order.
    pub(crate) fn unmerged_before(&self) -> Vec<String> {
        // If git fails, this advice is omitted.
        let kept = if self.stands_on.is_empty() { Ok(Vec::new()) } else { self.work.all_results() };
        let kept = kept.unwrap_or_default();
        let places = self.work.locate_commits(&self.stands_on).unwrap_or_default();
        let mut runs: Vec<String> = Vec::new();
        for (commit, place) in self.stands_on.iter().zip(places) {
            let found = kept.iter().find(|it| it.commit == *commit && !runs.contains(&it.run));
            if let Some(found) = found
                && place == ResultLocation::Kept
            {
                runs.push(found.run.clone());
            }
        }
        runs
    }

    /// Returns whether there is no result, no unsaved work, and none to come.
    pub(crate) fn is_nothing(&self) -> bool {
        self.picked.is_empty() && self.unkept.is_empty() && self.unfinished.is_none()
    }

    /// Prints which work could not be committed, and what to do.
    pub(crate) fn say_unkept(&self) {
        for it in &self.unkept {
            let (title, problem) = (title(&it.session.to_string(), &it.label), &it.problem);
            let problem = sanitize::line(problem);
            say(&format!(
                "adjutant: the work of {title} could not be committed and is still in its workspace: {problem}"
            ));
        }
        if !self.unkept.is_empty() {
            advise(&format!(
                "Fix the cause, then `adjutant prune` commits it; `adjutant diff {}` then shows it.",
                self.name
            ));
        }
    }

    fn unkept_json(&self) -> Vec<Value> {
        let one = |it: &UnsavedWork| {
            let session = it.session.to_string();
            json!({ "session": session, "label": it.label, "problem": it.problem })
        };
        self.unkept.iter().map(one).collect()
    }

    /// Prints that more results may follow, and what to do.
    pub(crate) fn say_unfinished(&self) {
        let (name, run) = (&self.name, self.run);
        let rest = if self.picked.is_empty() {
            "nothing of it is kept yet"
        } else {
            "not all of it is kept yet"
        };
        match self.unfinished {
            Some(UnfinishedReason::Running) => {
                say(&format!("adjutant: {name} is still running: {rest}"));
                advise(&format!(
                    "`adjutant wait {run}` waits until it ends, `adjutant status {run}` shows it."
                ));
            }
            Some(UnfinishedReason::Interrupted) => {
                say(&format!("adjutant: {name} was interrupted: {rest}"));
                advise(&format!("`adjutant resume {run}` continues it in its workspaces."));
            }
            None => {}
        }
    }

    /// Returns the exit code: `well`, or `Partial` instead of `Completed` while results are missing.
    pub(crate) fn exit(&self, well: Exit) -> Exit {
        let is_all = self.unfinished.is_none() && self.unkept.is_empty();
        if well == Exit::Completed && !is_all { Exit::Partial } else { well }
    }

    fn unfinished_json(&self) -> Option<&'static str> {
        self.unfinished.map(UnfinishedReason::word)
    }

    /// Returns the diff of every result against the state its agent started from.
    pub(crate) fn diffs(&self, paths: &[PathBuf]) -> Result<Vec<Diff>, Failure> {
        let diff = |it: &SelectedResult| self.work.diff(&it.kept, paths);
        self.picked.iter().map(diff).collect::<Result<_, _>>().map_err(|error| work_failure(&error))
    }

    /// Prints which results no longer exist. Fails if none is left.
    pub(crate) fn say_gone(&self) -> Result<(), Failure> {
        for gone in &self.gone {
            let there = self.work.has_commit(&gone.commit).unwrap_or(false);
            let rest = if there {
                format!("its commit {} is still there: `git show {}`", gone.commit, gone.commit)
            } else {
                format!("git has no commit {} any more", gone.commit)
            };
            let text = format!("the result of {} was discarded or pruned; {rest}", gone.title());
            if self.picked.is_empty() && self.gone.len() == 1 {
                return Err(Failure::new(Exit::Failed, text));
            }
            say(&format!("adjutant: {text}"));
        }
        if self.picked.is_empty() && !self.gone.is_empty() {
            return Err(Failure::new(
                Exit::Failed,
                format!("{}: all results were discarded or pruned", self.name),
            ));
        }
        Ok(())
    }

    fn gone_json(&self) -> Vec<Value> {
        let one = |it: &MissingResult| {
            let session = it.session.to_string();
            json!({ "session": session, "label": it.label, "commit": it.commit })
        };
        self.gone.iter().map(one).collect()
    }

    /// Prints the files that several results change, with the results.
    pub(crate) fn say_shared(&self, shared: &[SharedFile]) {
        for one in shared.iter().take(LISTED) {
            let by: Vec<String> = one
                .by
                .iter()
                .filter_map(|place| self.picked.get(*place))
                .map(SelectedResult::title)
                .collect();
            let path = sanitize::line(&one.path.to_string_lossy()).into_owned();
            say(&format!("adjutant: {path} was changed by {}", by.join(" and ")));
        }
        if shared.len() > LISTED {
            let more = count_with_noun(shared.len() - LISTED, "more file");
            say(&format!("adjutant: several results changed {more}"));
        }
    }

    fn shared_json(&self, shared: &[SharedFile]) -> Vec<Value> {
        let names = |it: &SharedFile| -> Vec<String> {
            it.by
                .iter()
                .filter_map(|place| self.picked.get(*place))
                .map(SelectedResult::id)
                .collect()
        };
        let one = |it: &SharedFile| json!({ "path": it.path.to_string_lossy(), "by": names(it) });
        shared.iter().map(one).collect()
    }
}

impl SelectedResult {
    /// Returns the session id, or the git reference if that does not name a session.
    pub(crate) fn id(&self) -> String {
        self.kept.session.map_or_else(|| self.kept.reference.clone(), |it| it.to_string())
    }

    /// Returns the session and label for a person.
    pub(crate) fn title(&self) -> String {
        title(&self.id(), &self.label)
    }

    /// Returns what a person types for it: its label in the latest run here, otherwise its id.
    pub(crate) fn name(&self, archive: &Archive, run: RunId) -> String {
        let label = self.unique_label.clone();
        label.filter(|_| run_lookup::is_latest_here(archive, run)).unwrap_or_else(|| self.id())
    }

    /// Returns a remark for work that its agent did not complete.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let outcome = self.outcome.filter(|outcome| *outcome != Outcome::Completed)?;
        Some(format!(" (unfinished: {})", outcome.word()))
    }

    /// Returns the fields that every JSON output has about a result.
    pub(crate) fn json(&self) -> Value {
        json!({
            "session": self.kept.session.map(|it| it.to_string()), "label": self.label,
            "outcome": self.outcome, "reference": self.kept.reference, "commit": self.kept.commit,
            "merged": self.kept.merged,
        })
    }
}

impl MissingResult {
    fn title(&self) -> String {
        title(&self.session.to_string(), &self.label)
    }
}

/// The most files of a kind that are printed. JSON output has all of them.
pub(crate) const LISTED: usize = 20;

fn title(id: &str, label: &str) -> String {
    if label.is_empty() { id.to_owned() } else { format!("{id} [{}]", sanitize::label(label)) }
}

/// Finds the latest run in the work tree around the current directory that has results or unsaved work.
fn latest_here(archive: &Archive) -> Result<RunFiles, Failure> {
    let work = open_work(Path::new("."), archive);
    let work = work.map_err(|error| work_failure(&error))?;
    let with_results = work.runs().map_err(|error| work_failure(&error))?;
    let here = ProjectTree::around(work.tree());
    for files in archive.runs().map_err(archive_failure)? {
        // An unreadable run is skipped here. Naming it prints the error.
        let Some(workdir) = files.workdir() else { continue };
        let has_moved = || !workdir.is_dir() && with_results.contains(&files.id());
        if !here.has(&workdir) && !has_moved() {
            continue;
        }
        let kept = |view: &RunView| {
            let is_open = view.outcome().is_none();
            view.delegations().any(|it| {
                // A run that has not ended is selected too, to say so.
                let is_at_work = is_open && it.space.is_some();
                // A run with unsaved work is selected, rather than an older run.
                let is_work =
                    |it: &(KeptWork, Option<String>)| it.0.commit.is_some() || it.1.is_some();
                is_at_work || it.kept.as_deref().is_some_and(is_work)
            })
        };
        if with_results.contains(&files.id())
            || records::numbers(&files).is_ok_and(|(view, _)| kept(&view))
        {
            return Ok(files);
        }
    }
    let tree = work.tree().display();
    Err(Failure::usage(format!("no run in {tree} has results"))
        .hint("Name a run of another folder; `adjutant status` lists the runs."))
}

/// Describes work of a run that could not be committed, and what to do. `None` if there is none.
pub(crate) fn unkept_of(archive: &Archive, run: RunId) -> Option<String> {
    let chosen =
        ResultSelection::find(archive, Some(&run.to_string()), MergedChildren::Include).ok()?;
    let first = chosen.unkept.first()?;
    Some(format!(
        "The work of {} could not be committed and is still in its workspace; fix the cause, then `adjutant prune` \
         commits it.",
        title(&first.session.to_string(), &first.label)
    ))
}

/// Opens the repository around the current directory for a run whose directory is gone, if it has results of that
/// run: the repository was moved.
fn find_moved_repository(
    archive: &Archive,
    run: RunId,
    workdir: &Path,
) -> Result<KeptResults, Failure> {
    let gone = format!("{run} worked in {}, which is not there any more", workdir.display());
    let here = open_work(Path::new("."), archive);
    let is_kept = |work: &KeptResults| work.results(run).is_ok_and(|kept| !kept.is_empty());
    match here.ok().filter(is_kept) {
        Some(work) => {
            say(&format!("adjutant: {gone}; its work is in {}", work.tree().display()));
            Ok(work)
        }
        None => Err(Failure::new(Exit::Failed, gone).hint(
            "If the repository was moved, change to its directory and run the command again there.",
        )),
    }
}

/// Prints where a run worked if that is not the current directory.
fn say_workdir(work: &KeptResults, run: RunId) {
    let here = std::env::current_dir().and_then(std::fs::canonicalize);
    if here.is_ok_and(|here| !here.starts_with(work.tree())) {
        say(&format!("adjutant: {run} worked in {}", work.tree().display()));
    }
}

/// Turns an error of a repository into a failure.
pub(crate) fn work_failure(error: &ResultsError) -> Failure {
    let exit = match error {
        ResultsError::Git(GitError::NotARepository { path }) => {
            if let Some(why) = why_no_repository(path) {
                return Failure::usage(why);
            }
            Exit::Usage
        }
        ResultsError::Git(_) | ResultsError::Apply(_) => Exit::Failed,
    };
    Failure::from_error(exit, error)
}

/// Returns a changed file as JSON.
pub(crate) fn file_json(entry: &DiffEntry) -> Value {
    let mut file = json!({
        "path": entry.path.to_string_lossy(), "status": word(&entry.status),
        "old_mode": mode(entry.old_mode), "new_mode": mode(entry.new_mode),
        "added": entry.lines.map(|lines| lines.added),
        "removed": entry.lines.map(|lines| lines.removed),
    });
    if let DiffStatus::Renamed(from) = &entry.status {
        file["from"] = json!(from.to_string_lossy());
    }
    file
}

const fn word(status: &DiffStatus) -> &'static str {
    match status {
        DiffStatus::Added => "added",
        DiffStatus::Deleted => "deleted",
        DiffStatus::Modified => "modified",
        DiffStatus::TypeChanged => "type_changed",
        DiffStatus::Renamed(_) => "renamed",
    }
}

fn mode(mode: u32) -> Option<String> {
    (mode != 0).then(|| format!("{mode:06o}"))
}

/// Returns a conflict as JSON, with every side.
pub(crate) fn conflict_json(conflict: &Conflict) -> Value {
    let side = |side: &Option<ConflictSide>| {
        side.as_ref().map(|it| json!({ "mode": format!("{:06o}", it.mode), "id": it.id.as_str() }))
    };
    let kind = conflict_word(conflict.kind);
    json!({
        "path": conflict.path.to_string_lossy(), "kind": kind, "base": side(&conflict.base),
        "target": side(&conflict.ours), "result": side(&conflict.theirs),
    })
}

/// Describes a conflict, with what each side has.
pub(crate) fn conflict_line(conflict: &Conflict) -> String {
    let side = |side: &Option<ConflictSide>| match side {
        Some(side) => {
            let id = side.id.as_str().get(..8).unwrap_or_default();
            let mode =
                if side.mode == 0o100_644 { String::new() } else { format!(" {:06o}", side.mode) };
            format!("{id}{mode}")
        }
        None => "nothing".to_owned(),
    };
    let words = conflict.kind.describe();
    let path = conflict.path.to_string_lossy();
    if conflict.kind == ConflictKind::Markers {
        return format!("  {}: {words}\n", sanitize::line(&path));
    }
    let (target, result) = (side(&conflict.ours), side(&conflict.theirs));
    format!("  {}: {words} (target {target}, result {result})\n", sanitize::line(&path))
}

/// Returns the word for a kind of conflict in JSON output.
const fn conflict_word(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::BothModified => "both_modified",
        ConflictKind::Binary => "binary",
        ConflictKind::BothAdded => "both_added",
        ConflictKind::DeletedByTarget => "deleted_by_target",
        ConflictKind::DeletedByChild => "deleted_by_result",
        ConflictKind::Rename => "rename",
        ConflictKind::Mode => "mode",
        ConflictKind::FileAndFolder => "file_and_folder",
        ConflictKind::Submodule => "submodule",
        ConflictKind::Markers => "markers",
    }
}

/// Returns the size of a diff: `3 files, +10 -2`.
pub(crate) fn size(diff: &Diff) -> String {
    let lines = diff.lines();
    format!("{}, +{} -{}", count_with_noun(diff.entries.len(), "file"), lines.added, lines.removed)
}
