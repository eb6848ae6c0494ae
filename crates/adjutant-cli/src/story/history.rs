//! The earlier runs on the stories of a PRD, from the registry and, where that is not enough, from their journals.
//!
//! Start at [`StoryHistory::load`], which must be called for a story before the other methods.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use adjutant_core::registry::{StoryEnd, StoryRun, StoryRunState};
use adjutant_core::{Registry, RunId};
use adjutant_engine::results::{KeptResults, ResultLocation};
use adjutant_engine::{Archive, RunFiles};
use adjutant_formats::prd::{Prd, Story};
use adjutant_view::{ProcessLiveness, RunView};

use super::earlier_versions::{has_kept, runs_of_earlier_versions, warn_unreadable};
use super::record::{RecordedOutcome, began_later, recorded_outcome};
use super::run_end::{commit_of, last_child_of, story_end};
use crate::exit::{Exit, Failure};
use crate::records::{liveness, numbers};
use crate::results::{open_work, work_failure};

/// The outcome of an earlier run on a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierOutcome {
    /// It completed and the story passed.
    Passed(RunId),
    /// A live process works on it.
    Running(RunId),
    /// It was interrupted, or ended in a way that can be resumed.
    Open(RunId),
    /// It ended because its limits were used up; resuming needs higher limits.
    Spent(RunId),
    /// It ended and cannot be resumed.
    Over,
    /// Its journal cannot be read.
    Unread(RunId),
}

/// The work of other stories that a story builds on.
#[derive(Default)]
pub(super) struct StoryBase {
    /// The commits of its dependencies that are not in the user's files.
    pub(super) commits: Vec<String>,
    /// Sentences about dependencies whose work is unknown.
    pub(super) remarks: Vec<String>,
}

/// A direct or indirect dependency of a story that a run completed.
struct FinishedDependency<'p> {
    id: &'p str,
    done: RecordedOutcome,
    /// For an indirect dependency, the story between, whose work includes the work of this one.
    above: Option<&'p str>,
}

/// An earlier run on the loaded story.
struct EarlierRun {
    /// The digest of the request it was given.
    asked: String,
    came_to: EarlierOutcome,
    /// The highest number of a child of the story, admitted or not.
    last_child: u64,
}

/// The earlier runs on the stories of one PRD.
pub(super) struct StoryHistory<'a> {
    archive: &'a Archive,
    workdir: PathBuf,
    prd: PathBuf,
    /// The runs on the story that was loaded last, newest first.
    runs: Vec<EarlierRun>,
    /// Why some of their journals cannot be read.
    problems: BTreeMap<RunId, String>,
    /// The repository, opened on first use.
    work: OnceCell<KeptResults>,
}

impl<'a> StoryHistory<'a> {
    /// Creates an empty history.
    pub(super) fn new(archive: &'a Archive, workdir: &Path, prd: &Path) -> Self {
        Self {
            archive,
            workdir: workdir.to_owned(),
            prd: prd.to_owned(),
            runs: Vec::new(),
            problems: BTreeMap::new(),
            work: OnceCell::new(),
        }
    }

    /// Loads the runs on a story.
    pub(super) fn load(&mut self, story: &str) -> Result<(), Failure> {
        self.runs.clear();
        for run in self.recorded_runs(story)? {
            let past = self.past(&run);
            self.runs.extend(past);
        }
        Ok(())
    }

    /// Returns the runs on a story from the registry. Imports the runs of versions without a registry first.
    fn recorded_runs(&self, story: &str) -> Result<Vec<StoryRun>, Failure> {
        let registry = self.archive.registry();
        let known = || {
            let known = registry.story_runs(&self.prd, story);
            known.map_err(|error| Failure::from_error(Exit::Failed, &error))
        };
        if let Some(known) = known()? {
            return Ok(known);
        }
        let earlier = runs_of_earlier_versions(self.archive, &self.workdir, &self.prd)?;
        registry
            .import_story_runs(&self.prd, earlier)
            .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        Ok(known()?.unwrap_or_default())
    }

    /// Reads one run. Returns `None` if its records are gone or it worked in another tree.
    fn past(&mut self, recorded: &StoryRun) -> Option<EarlierRun> {
        let run = recorded.run;
        let (files, _) = self.archive.find(&run.to_string()).ok()?;
        // Checked before reading the journal: a run that ends in between must not look interrupted.
        let is_alive = matches!(liveness(&files), Ok(ProcessLiveness::Alive));
        match files.workdir() {
            Some(workdir) if workdir == self.workdir => {}
            Some(_) => return None,
            None if is_alive => {}
            None => {
                warn_unreadable(&files);
                return None;
            }
        }
        let (asked, mut last_child) = (recorded.asked.clone(), recorded.last_child);
        let came_to = match &recorded.state {
            StoryRunState::Running(_) | StoryRunState::Ended(_) if is_alive => {
                EarlierOutcome::Running(run)
            }
            StoryRunState::Ended(StoryEnd::LimitsUsedUp) => EarlierOutcome::Spent(run),
            StoryRunState::Ended(StoryEnd::Over) => EarlierOutcome::Over,
            // The registry may lack the end of a run whose process died, and a pass is verified against the journal.
            StoryRunState::Running(_)
            | StoryRunState::Ended(StoryEnd::Resumable | StoryEnd::Passed) => {
                match numbers(&files) {
                    Ok((view, _)) => {
                        last_child = last_child.max(last_child_of(&view));
                        match story_end(&view) {
                            StoryEnd::Passed => EarlierOutcome::Passed(run),
                            StoryEnd::Resumable => EarlierOutcome::Open(run),
                            StoryEnd::LimitsUsedUp => EarlierOutcome::Spent(run),
                            StoryEnd::Over => EarlierOutcome::Over,
                        }
                    }
                    Err(failure) => {
                        self.problems.insert(run, failure.to_string());
                        EarlierOutcome::Unread(run)
                    }
                }
            }
        };
        Some(EarlierRun { asked, came_to, last_child })
    }

    /// Returns why the journal of a run cannot be read.
    pub(super) fn problem(&self, run: RunId) -> &str {
        self.problems.get(&run).map_or("", String::as_str)
    }

    /// Returns the outcome of the latest run with the same request, or the live run on the story, whatever its request
    /// is.
    pub(super) fn latest_outcome(&self, asked: &str) -> Option<EarlierOutcome> {
        let same = || self.runs.iter().find(|past| past.asked == asked).map(|past| past.came_to);
        self.live_run().map(EarlierOutcome::Running).or_else(same)
    }

    /// Returns the live run on the story.
    pub(super) fn live_run(&self) -> Option<RunId> {
        self.runs.iter().find_map(|past| match past.came_to {
            EarlierOutcome::Running(run) => Some(run),
            EarlierOutcome::Passed(_)
            | EarlierOutcome::Open(_)
            | EarlierOutcome::Spent(_)
            | EarlierOutcome::Over
            | EarlierOutcome::Unread(_) => None,
        })
    }

    /// Returns the latest run, whatever its request was, if it can be resumed.
    pub(super) fn resumable_run(&self) -> Option<RunId> {
        match self.runs.first()?.came_to {
            EarlierOutcome::Open(run) | EarlierOutcome::Spent(run) => Some(run),
            EarlierOutcome::Passed(_)
            | EarlierOutcome::Running(_)
            | EarlierOutcome::Over
            | EarlierOutcome::Unread(_) => None,
        }
    }

    /// Returns the highest number of a child of the story in any run.
    pub(super) fn last_child(&self) -> u64 {
        self.runs.iter().map(|past| past.last_child).max().unwrap_or(0)
    }

    /// Returns why the work of a completed run is lost. `None` if it is there, or the run changed nothing.
    pub(super) fn lost_work(&self, run: RunId) -> Result<Option<String>, Failure> {
        let (files, _) =
            self.archive.find(&run.to_string()).map_err(crate::records::archive_failure)?;
        Ok(match self.work_location(&numbers(&files)?.0)? {
            None | Some(ResultLocation::Merged | ResultLocation::Kept) => None,
            Some(ResultLocation::Dropped) => Some(format!("the work of {run} was discarded")),
            Some(ResultLocation::Gone) => {
                Some(format!("this repository no longer has the commit with the work of {run}"))
            }
        })
    }

    /// Returns where the work of a run is now. `None` if it changed nothing.
    pub(super) fn work_location(&self, view: &RunView) -> Result<Option<ResultLocation>, Failure> {
        let Some(commit) = commit_of(view) else { return Ok(None) };
        Ok(self.locate_commits(&[commit])?.pop())
    }

    /// Returns the work of the dependencies that is not in the tree yet, in dependency order.
    ///
    /// The error says why the story cannot begin.
    pub(super) fn base_of(&self, prd: &Prd, story: &Story) -> Result<StoryBase, String> {
        let mut found = StoryBase::default();
        let before =
            self.finished_dependencies(prd, story).map_err(|failure| unreadable(&failure))?;
        if before.is_empty() {
            return Ok(found);
        }
        let registry = self.archive.registry().read_unlocked();
        let registry =
            registry.map_err(|error| unreadable(&Failure::from_error(Exit::Failed, &error)))?;
        let runs = self
            .archive
            .runs()
            .map_err(|error| unreadable(&crate::records::archive_failure(error)))?;
        let runs: BTreeMap<RunId, RunFiles> =
            runs.into_iter().map(|files| (files.id(), files)).collect();
        let (mut works, mut commits) = (Vec::new(), Vec::new());
        for FinishedDependency { id, done, above } in before {
            let run = done.run;
            let Some(files) = runs.get(&run) else {
                found.remarks.push(format!(
                    "{run}, which completed {id}, is not known here, so your files are assumed to contain that work"
                ));
                continue;
            };
            if let Some(commit) = passing_commit(&registry, files, id, done)? {
                works.push((id, run, above));
                commits.push(commit);
            }
        }
        let places = self.locate_commits(&commits).map_err(|failure| unreadable(&failure))?;
        // Backwards: merged work was merged together with the work below it, whatever a person did with it later.
        let mut merged = BTreeSet::new();
        for (((id, run, above), commit), place) in works.into_iter().zip(commits).zip(places).rev()
        {
            match place {
                _ if above.is_some_and(|above| merged.contains(above)) => _ = merged.insert(id),
                ResultLocation::Merged => _ = merged.insert(id),
                ResultLocation::Kept => found.commits.push(commit),
                ResultLocation::Dropped => {
                    let why = format!("was discarded; `git branch NAME {commit}` brings it back");
                    return Err(lost_work_text(id, run, &why));
                }
                ResultLocation::Gone => {
                    return Err(lost_work_text(id, run, "is not in this repository"));
                }
            }
        }
        found.commits.reverse();
        Ok(found)
    }

    /// Returns all dependencies that a run completed, in dependency order. Cycles are cut.
    fn finished_dependencies<'p>(
        &self,
        prd: &'p Prd,
        story: &'p Story,
    ) -> Result<Vec<FinishedDependency<'p>>, Failure> {
        /// Depth-first search: a story whose dependencies were all visited, or one to visit.
        enum VisitStep<'p> {
            Take(FinishedDependency<'p>),
            Look(&'p str, Option<(&'p str, RunId)>),
        }
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        let direct: BTreeSet<&str> = story.dependencies.iter().map(String::as_str).collect();
        let first = story.dependencies.iter().rev();
        let mut open: Vec<_> = first.map(|id| VisitStep::Look(id, None)).collect();
        while let Some(step) = open.pop() {
            let (id, above) = match step {
                VisitStep::Take(before) => {
                    order.push(before);
                    continue;
                }
                VisitStep::Look(id, above) => (id, above.filter(|_| !direct.contains(id))),
            };
            let Some(story) = prd.story(id).filter(|_| seen.insert(id)) else { continue };
            let done = done_by(prd, id);
            let own = done.as_ref().filter(|done| !done.is_empty).map(|done| (id, done.run));
            if let Some(done) = done {
                // A story that was done again later is not included in the work of its dependent.
                let is_later = match above {
                    Some((_, run)) => began_later(self.archive, done.run, run)?,
                    None => false,
                };
                let above = above.filter(|_| !is_later).map(|(id, _)| id);
                open.push(VisitStep::Take(FinishedDependency { id, done, above }));
            }
            // The work of a child story is part of its parent's work.
            let below = story.dependencies.iter().map(String::as_str).chain(story.parent());
            open.extend(below.map(|id| VisitStep::Look(id, own.or(above))));
        }
        Ok(order)
    }

    /// Returns where each commit is now.
    fn locate_commits(&self, commits: &[String]) -> Result<Vec<ResultLocation>, Failure> {
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        let opened = match self.work.get() {
            Some(work) => work,
            None => {
                let work = open_work(&self.workdir, self.archive);
                let work = work.map_err(|error| work_failure(&error))?;
                self.work.get_or_init(|| work)
            }
        };
        opened.locate_commits(commits).map_err(|error| work_failure(&error))
    }
}

/// Returns the commit with which a run passed a story, even if the run was resumed later and no longer passes.
///
/// `None` if it changed nothing. The error says why the commit is not known.
///
/// A PRD is content of the repository, so a commit that it names is used only if that run made it. Otherwise a PRD
/// could give an agent the content of another branch.
fn passing_commit(
    registry: &Registry,
    files: &RunFiles,
    id: &str,
    recorded: RecordedOutcome,
) -> Result<Option<String>, String> {
    if recorded.is_empty {
        return Ok(None);
    }
    let passed = registry.story_run(recorded.run).filter(|known| !known.passed_with.is_empty());
    let Some(commit) = recorded.commit else {
        let is_passed = |known: &&StoryRun| {
            known.story.id == id && known.state == StoryRunState::Ended(StoryEnd::Passed)
        };
        let why = "is not what it passed with any more, and its entry names no commit";
        let commit = passed.filter(is_passed).and_then(|known| known.passed_with.last());
        return commit.cloned().map(Some).ok_or_else(|| lost_work_text(id, recorded.run, why));
    };
    let is_its_own = match passed {
        Some(known) => known.passed_with.contains(&commit),
        None => has_kept(files, &commit)
            .map_err(|error| unreadable(&crate::records::archive_failure(error)))?,
    };
    let why = "is not the commit that its entry names";
    if is_its_own { Ok(Some(commit)) } else { Err(lost_work_text(id, recorded.run, why)) }
}

fn unreadable(failure: &Failure) -> String {
    format!("the work of its dependencies cannot be read: {failure}")
}

/// Describes lost work of a dependency, and what to do about it.
fn lost_work_text(id: &str, run: RunId, why: &str) -> String {
    format!(
        "the work of {run} on {id}, which it depends on, {why}. Set `passes` of {id} to false to have it done \
         again, or take `adjutant` out of its entry where your files have that work"
    )
}

/// Returns what the entry of a passing story says about its run. An entry without a run was completed by a person, so
/// its work is in the tree.
fn done_by(prd: &Prd, id: &str) -> Option<RecordedOutcome> {
    let is_done = prd.story(id).is_some_and(|story| story.passes);
    recorded_outcome(prd, id).filter(|_| is_done)
}
