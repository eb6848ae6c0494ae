//! What agents left in results: which results are meant, and how they are named to a person.
//!
//! The repository says what is kept, the journal who made it. Start at [`ResultSelection::find`]; the commands are in the
//! files beside this one.

mod after_run;
mod diff;
mod discard;
mod doctor;
mod merge;
mod prune_merges;
mod prune_results;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use adjutant_core::space::KeptWork;
use adjutant_core::{Outcome, RunId, SessionId, State};
use adjutant_engine::results::{
    Conflict, ConflictKind, ConflictSide, Diff, DiffEntry, DiffStatus, GitError, KeptResult,
    KeptResults, ResultLocation, ResultsError, SharedFile,
};
use adjutant_engine::{Archive, RunFiles, why_no_repository};
use adjutant_view::{Delegation, Liveness, RunView, sanitize};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;
use crate::records::{self, ViewDetail, counted, failed};
use crate::run_lookup::{self, ProjectTree};
use crate::settings::user_config_dir;

pub(crate) use after_run::{MergeScope, WorkPlacement, after_run};
pub(crate) use diff::run_diff;
pub(crate) use discard::run_discard;
pub(crate) use doctor::findings;
pub(crate) use merge::run_merge;
pub(crate) use prune_merges::prune_merges;
pub(crate) use prune_results::prune_results;

/// Where git is looked for when nothing says it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns where programs are looked for.
pub(crate) fn search() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into())
}

/// Opens the repository that `tree` lies in, to look at results and to merge them.
pub(crate) fn open_work(tree: &Path, archive: &Archive) -> Result<KeptResults, ResultsError> {
    let work = KeptResults::open(&search(), tree, archive.path())?;
    Ok(match user_config_dir() {
        Some(config) => work.protecting(&config),
        None => work,
    })
}

/// One result and who made it.
pub(crate) struct SelectedResult {
    /// The result.
    pub(crate) kept: KeptResult,
    /// What its agent was called; empty where no journal says it.
    pub(crate) label: String,
    /// How the delegation ended; nothing where it did not, or nobody knows.
    pub(crate) outcome: Option<Outcome>,
    /// What is no part of it, each with the reason.
    pub(crate) left_out: Vec<String>,
}

/// A result that was kept once and is not there any more.
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

/// The results that a command is about.
pub(crate) struct ResultSelection {
    /// Where they are.
    pub(crate) work: KeptResults,
    /// Whose they are.
    pub(crate) run: RunId,
    /// What was named on the command line or stands for it: a run or a session.
    pub(crate) name: String,
    /// Those that are there, parents before their children.
    pub(crate) picked: Vec<SelectedResult>,
    /// Those that are not.
    pub(crate) gone: Vec<MissingResult>,
    /// Those that could not be made yet.
    pub(crate) unkept: Vec<UnsavedWork>,
    /// Why there may be more to come.
    pub(crate) unfinished: Option<UnfinishedReason>,
    /// The commits of earlier runs that it began with, first things first.
    stands_on: Vec<String>,
}

/// Whether work counts by itself that is part of what the one above made of it, or left aside: the
/// children of a story, and whatever was merged into the workspace above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergedChildren {
    /// It counts, as every result does.
    Include,
    /// It counts only where it is named.
    Exclude,
}

/// Why what there is of a run is not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnfinishedReason {
    /// Somebody works on it.
    Running,
    /// Nobody does any more, and it never ended.
    Interrupted,
}

impl UnfinishedReason {
    /// Looks at what is meant of a run: one session, or all.
    fn of(view: &RunView, liveness: Liveness, session: Option<SessionId>) -> Option<Self> {
        let is_open = |it: &Delegation| it.state.is_live() || it.is_keeping();
        let is_open = match session.and_then(|session| view.delegation(session)) {
            Some(one) => is_open(one),
            None => view.outcome().is_none(),
        };
        is_open.then_some(match liveness {
            Liveness::Alive => Self::Running,
            Liveness::Dead => Self::Interrupted,
        })
    }

    /// Returns the word that programs are told.
    const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted => "interrupted",
        }
    }
}

impl ResultSelection {
    /// Finds the results of a run or session; of the latest run of this folder where none is named.
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
            let work = moved_here(archive, files.id(), workdir)?;
            return Self::of(work, &view, liveness, session, parts);
        }
        let work = open_work(workdir, archive);
        let work = work.map_err(|error| work_failure(&error))?;
        say_elsewhere(&work, files.id());
        Self::of(work, &view, liveness, session, parts)
    }

    /// Takes the results of a run whose view is at hand.
    pub(crate) fn of(
        work: KeptResults,
        view: &RunView,
        liveness: Liveness,
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
                State::Ended(outcome) => Some(outcome),
                State::AwaitingApproval | State::Queued | State::Running => None,
            };
            let is_part = session.is_none() && view.is_part_of_parent(delegation);
            if !is_meant(Some(delegation.session)) || (is_part && parts == MergedChildren::Exclude)
            {
                continue;
            }
            let label = delegation.label.as_str().to_owned();
            let commit = delegation.kept.as_ref().and_then(|it| it.0.commit.clone());
            match (found, commit) {
                (Some(_), _) if outcome.is_none() && liveness == Liveness::Alive => {
                    say(&format!("adjutant: {} is still at work", delegation.session));
                }
                (Some(mut kept), _) => {
                    if let Some(name) = &delegation.story {
                        work.name_branch(&mut kept, name);
                    }
                    let recorded = delegation.kept.as_ref().map(|it| &it.0);
                    let left_out = recorded.map(|it| [&it.left[..], &it.skipped].concat());
                    let left_out = left_out.unwrap_or_default();
                    picked.push(SelectedResult { kept, label, outcome, left_out });
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
        // What no journal tells of is somebody's work all the same.
        for kept in kept.into_iter().filter(|it| is_meant(it.session)) {
            let (label, left_out) = (String::new(), Vec::new());
            picked.push(SelectedResult { kept, label, outcome: None, left_out });
        }
        let name = session.map_or_else(|| run.to_string(), |session| session.to_string());
        let unfinished = UnfinishedReason::of(view, liveness, session);
        let stands_on = view.begun_upon().to_vec();
        Ok(Self { work, run, name, picked, gone, unkept, unfinished, stands_on })
    }

    /// Returns the runs whose work this one began with and the files do not have, first things first.
    pub(crate) fn unmerged_before(&self) -> Vec<String> {
        // Where git cannot be asked, there is nothing to say about it.
        let kept = if self.stands_on.is_empty() { Ok(Vec::new()) } else { self.work.all_results() };
        let kept = kept.unwrap_or_default();
        let places = self.work.whereabouts(&self.stands_on).unwrap_or_default();
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

    /// Says whether nothing came of it that anything could be said about.
    pub(crate) fn is_nothing(&self) -> bool {
        self.picked.is_empty() && self.unkept.is_empty() && self.unfinished.is_none()
    }

    /// Says what could not be kept, and how it is.
    pub(crate) fn say_unkept(&self) {
        for it in &self.unkept {
            let (title, problem) = (title(&it.session.to_string(), &it.label), &it.problem);
            let problem = sanitize::line(problem);
            say(&format!(
                "adjutant: the work of {title} could not be kept and is still in its workspace: {problem}"
            ));
        }
        if !self.unkept.is_empty() {
            advise(&format!(
                "Once that is solved, `adjutant prune` keeps it; `adjutant diff {}` then shows it.",
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

    /// Says that there may be more to come, and how to go on.
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
                    "`adjutant wait {run}` waits for its end, `adjutant status {run}` shows it."
                ));
            }
            Some(UnfinishedReason::Interrupted) => {
                say(&format!("adjutant: {name} was interrupted: {rest}"));
                advise(&format!(
                    "`adjutant resume {run}` goes on with it, in the workspaces as they were left."
                ));
            }
            None => {}
        }
    }

    /// Returns how a command ends that did `well` with all there is: not so while there may be more.
    pub(crate) fn exit(&self, well: Exit) -> Exit {
        let is_all = self.unfinished.is_none() && self.unkept.is_empty();
        if well == Exit::Completed && !is_all { Exit::Partial } else { well }
    }

    fn unfinished_json(&self) -> Option<&'static str> {
        self.unfinished.map(UnfinishedReason::word)
    }

    /// Compares every result with what its agent began from.
    pub(crate) fn diffs(&self, paths: &[PathBuf]) -> Result<Vec<Diff>, Failure> {
        let diff = |it: &SelectedResult| self.work.diff(&it.kept, paths);
        self.picked.iter().map(diff).collect::<Result<_, _>>().map_err(|error| work_failure(&error))
    }

    /// Fails when everything that was kept is gone, and says which of it is where only some is.
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
            return Err(Failure::new(Exit::Failed, format!("{}: no result is left", self.name)));
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

    /// Names the files that several results touch, with who touches them.
    pub(crate) fn say_shared(&self, shared: &[SharedFile]) {
        for one in shared.iter().take(LISTED) {
            let by: Vec<String> = one
                .by
                .iter()
                .filter_map(|place| self.picked.get(*place))
                .map(SelectedResult::title)
                .collect();
            let path = sanitize::line(&one.path.to_string_lossy()).into_owned();
            say(&format!("adjutant: {path} is touched by {}", by.join(" and ")));
        }
        if shared.len() > LISTED {
            let more = counted(shared.len() - LISTED, "more file");
            say(&format!("adjutant: {more} are touched by several"));
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
    /// Returns the session, or the reference where its name is no session's.
    pub(crate) fn id(&self) -> String {
        self.kept.session.map_or_else(|| self.kept.reference.clone(), |it| it.to_string())
    }

    /// Returns who made it, for a person.
    pub(crate) fn title(&self) -> String {
        title(&self.id(), &self.label)
    }

    /// Returns what every JSON says of a result.
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

/// Files of one kind that a person is shown; programs are told all.
pub(crate) const LISTED: usize = 20;

fn title(id: &str, label: &str) -> String {
    if label.is_empty() { id.to_owned() } else { format!("{id} [{}]", sanitize::label(label)) }
}

/// Finds the latest run in the work tree around the current folder that kept something.
fn latest_here(archive: &Archive) -> Result<RunFiles, Failure> {
    let work = open_work(Path::new("."), archive);
    let work = work.map_err(|error| work_failure(&error))?;
    let with_results = work.runs().map_err(|error| work_failure(&error))?;
    let here = ProjectTree::around(work.tree());
    for files in archive.runs().map_err(failed)? {
        // One that cannot be read is passed over here; naming it says why.
        let Some(workdir) = files.workdir() else { continue };
        let has_moved = || !workdir.is_dir() && with_results.contains(&files.id());
        if !here.has(&workdir) && !has_moved() {
            continue;
        }
        let kept = |view: &RunView| {
            let is_open = view.outcome().is_none();
            view.delegations().any(|it| {
                // Of one that has not ended there is something to say, if only that.
                let is_at_work = is_open && it.space.is_some();
                // What could not be kept must not have an older run taken in its place.
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
    Err(Failure::usage(format!("no run in {tree} has kept work"))
        .hint("Name a run of another folder; `adjutant status` lists the runs."))
}

/// Says what of a run could not be kept and is still in its workspace, and how it is kept; nothing where all is.
pub(crate) fn unkept_of(archive: &Archive, run: RunId) -> Option<String> {
    let chosen =
        ResultSelection::find(archive, Some(&run.to_string()), MergedChildren::Include).ok()?;
    let first = chosen.unkept.first()?;
    Some(format!(
        "The work of {} could not be kept and is still in its workspace; once the cause is gone, `adjutant prune` \
         keeps it.",
        title(&first.session.to_string(), &first.label)
    ))
}

/// Finds the work of a run whose folder is gone in the repository around the current folder: it moves with it.
fn moved_here(archive: &Archive, run: RunId, workdir: &Path) -> Result<KeptResults, Failure> {
    let gone = format!("{run} worked in {}, which is not there any more", workdir.display());
    let here = open_work(Path::new("."), archive);
    let is_kept = |work: &KeptResults| work.results(run).is_ok_and(|kept| !kept.is_empty());
    match here.ok().filter(is_kept) {
        Some(work) => {
            say(&format!("adjutant: {gone}; its work is in {}", work.tree().display()));
            Ok(work)
        }
        None => Err(Failure::new(Exit::Failed, gone)
            .hint("Where the repository was moved, go to its folder and type this again there.")),
    }
}

/// Says where a run worked when that is not here.
fn say_elsewhere(work: &KeptResults, run: RunId) {
    let here = std::env::current_dir().and_then(std::fs::canonicalize);
    if here.is_ok_and(|here| !here.starts_with(work.tree())) {
        say(&format!("adjutant: {run} worked in {}", work.tree().display()));
    }
}

/// Returns the failure of something with a repository.
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
    Failure::caused(exit, error)
}

/// Returns how a file differs, as JSON.
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
    let kind = clash(conflict.kind);
    json!({
        "path": conflict.path.to_string_lossy(), "kind": kind, "base": side(&conflict.base),
        "target": side(&conflict.ours), "result": side(&conflict.theirs),
    })
}

/// Returns a conflict in words, with what each side has.
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
    let (target, result) = (side(&conflict.ours), side(&conflict.theirs));
    format!("  {}: {words} (target {target}, result {result})\n", sanitize::line(&path))
}

/// Returns the name of a kind of conflict, for programs.
const fn clash(kind: ConflictKind) -> &'static str {
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
    }
}

/// Returns the lines and files of a difference in words: `3 files, +10 -2`.
pub(crate) fn size(diff: &Diff) -> String {
    let lines = diff.lines();
    format!("{}, +{} -{}", counted(diff.entries.len(), "file"), lines.added, lines.removed)
}
