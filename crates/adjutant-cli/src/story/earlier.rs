//! What earlier runs did for the stories of a PRD, as their journals say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use adjutant_core::prd::{Prd, Story, child_number};
use adjutant_core::{Outcome, RunId};
use adjutant_engine::prd::resolved;
use adjutant_engine::work::Work;
use adjutant_engine::{Archive, RunFiles};
use adjutant_view::story::StoryReport;
use adjutant_view::{Liveness, RunView};

use super::record::recorded;
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::records::{liveness, numbers};
use crate::work::search;

/// How many of the latest runs of a tree are looked at.
const LOOKED_AT: usize = 500;

/// What the latest run on a story came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// It completed.
    Passed(RunId),
    /// Somebody works on it now.
    Running(RunId),
    /// It was interrupted, or ended so that it can go on.
    Open(RunId),
    /// It ended because its limits were used up, which are what they are.
    Spent(RunId),
    /// It ended otherwise.
    Over,
}

/// What a run did for a story of the PRD.
struct Past {
    story: String,
    /// The digest of what was asked then.
    asked: String,
    came_to: Earlier,
    /// The highest number that a child of the story had, whether it was admitted or not.
    last_child: u64,
}

/// What is known of a run and does not change.
enum Seen {
    /// It worked in another tree.
    Elsewhere,
    /// It has nothing to do with the PRD.
    Other,
    /// It worked on a story.
    On(Past),
}

/// The runs on the stories of one PRD.
pub(super) struct History<'a> {
    archive: &'a Archive,
    workdir: PathBuf,
    prd: PathBuf,
    runs: BTreeMap<RunId, Seen>,
    /// Those on stories of the PRD, the latest first.
    order: Vec<RunId>,
}

impl<'a> History<'a> {
    /// Makes one that knows nothing yet.
    pub(super) fn new(archive: &'a Archive, workdir: &Path, prd: &Path) -> Self {
        let prd = resolved(prd);
        Self { archive, workdir: workdir.to_owned(), prd, runs: BTreeMap::new(), order: Vec::new() }
    }

    /// Reads what the runs of the tree say of a story by now; one that cannot be read says nothing.
    pub(super) fn look(&mut self, story: &str) {
        let mut looked_at = 0;
        self.order.clear();
        for files in self.archive.runs().unwrap_or_default() {
            let run = files.id();
            let is_known = match self.runs.get(&run) {
                None => false,
                Some(Seen::Elsewhere) => continue,
                Some(Seen::Other) => true,
                // What came of it may be another thing by now.
                Some(Seen::On(past)) => past.story != story,
            };
            if !is_known {
                match self.see(&files) {
                    Some(seen) => _ = self.runs.insert(run, seen),
                    None => continue,
                }
            }
            match self.runs.get(&run) {
                Some(Seen::On(_)) => self.order.push(run),
                Some(Seen::Other) => {}
                Some(Seen::Elsewhere) | None => continue,
            }
            looked_at += 1;
            if looked_at == LOOKED_AT {
                break;
            }
        }
    }

    /// Looks at one run; nothing where it cannot be told yet.
    fn see(&self, files: &RunFiles) -> Option<Seen> {
        // Asked first: a run that ends while it is read must not look interrupted.
        let is_alive = liveness(files).ok()? == Liveness::Alive;
        match files.workdir() {
            None if is_alive => return None,
            found if found.as_ref() != Some(&self.workdir) => return Some(Seen::Elsewhere),
            _ => {}
        }
        let (view, _) = numbers(files).ok()?;
        // A run of another day may have been given another spelling of the same path.
        let is_ours = |prd: &String| resolved(Path::new(prd)) == self.prd;
        let story = view.story().filter(|it| it.prd.as_ref().is_some_and(is_ours));
        let Some(story) = story else { return (!is_alive).then_some(Seen::Other) };
        let ids = view.delegations().filter_map(|child| child.story.as_deref());
        let numbers = ids.filter_map(|id| child_number(&story.id, id));
        Some(Seen::On(Past {
            story: story.id.clone(),
            asked: story.asked.clone(),
            came_to: came_to(files.id(), &view, is_alive),
            last_child: numbers.max().unwrap_or(0).into(),
        }))
    }

    fn on<'h>(&'h self, story: &'h str) -> impl Iterator<Item = &'h Past> {
        let seen = self.order.iter().filter_map(|run| self.runs.get(run));
        seen.filter_map(move |seen| match seen {
            Seen::On(past) => Some(past).filter(|past| past.story == story),
            Seen::Elsewhere | Seen::Other => None,
        })
    }

    /// Returns what the latest run on a story came to of which the same was asked; whoever works on
    /// the story comes first, whatever it was asked.
    pub(super) fn find(&self, story: &str, asked: &str) -> Option<Earlier> {
        let same = || self.on(story).find(|past| past.asked == asked).map(|past| past.came_to);
        self.at_work(story).map(Earlier::Running).or_else(same)
    }

    /// Returns the run that works on a story now.
    pub(super) fn at_work(&self, story: &str) -> Option<RunId> {
        self.on(story).find_map(|past| match past.came_to {
            Earlier::Running(run) => Some(run),
            Earlier::Passed(_) | Earlier::Open(_) | Earlier::Spent(_) | Earlier::Over => None,
        })
    }

    /// Returns the highest number that a child of a story had in any run.
    pub(super) fn last_child(&self, story: &str) -> u64 {
        self.on(story).map(|past| past.last_child).max().unwrap_or(0)
    }

    /// Returns the commits of the stories that one depends on, as far as their work is kept and is not
    /// in the tree already: those that others depend on come first.
    pub(super) fn work_before(&self, prd: &Prd, story: &Story) -> Result<Vec<String>, Failure> {
        let mut commits = Vec::new();
        for id in before(prd, story) {
            commits.extend(self.work_of(prd, id)?);
        }
        if commits.is_empty() {
            return Ok(commits);
        }
        let failed = |error| Failure::caused(Exit::Failed, &error);
        let work = Work::open(&search(), &self.workdir, self.archive.path()).map_err(failed)?;
        let mut due = Vec::new();
        for commit in commits {
            if work.is_outstanding(&commit).map_err(failed)? {
                due.push(commit);
            }
        }
        Ok(due)
    }

    /// Returns the commit that holds the work of a story, by the run that its entry names.
    fn work_of(&self, prd: &Prd, id: &str) -> Result<Option<String>, Failure> {
        let is_done = prd.story(id).is_some_and(|story| story.passes);
        // An entry without a run was done by a person, in the tree.
        let Some(run) = recorded(prd, id).map(|it| it.run).filter(|_| is_done) else {
            return Ok(None);
        };
        let runs = self.archive.runs().map_err(crate::records::failed)?;
        let Some(files) = runs.into_iter().find(|files| files.id() == run) else {
            say(&format!("adjutant: {run} is gone, which did {id}: what it left is not taken in"));
            return Ok(None);
        };
        let (view, _) = numbers(&files)?;
        let passes = StoryReport::of(&view).is_some_and(|report| report.passes && report.id == id);
        let commit = view.root().and_then(|root| root.kept.as_ref()?.0.commit.clone());
        Ok(commit.filter(|_| passes))
    }
}

fn came_to(run: RunId, view: &RunView, is_alive: bool) -> Earlier {
    if is_alive {
        return Earlier::Running(run);
    }
    let is = |what: fn(&StoryReport) -> bool| StoryReport::of(view).is_some_and(|it| what(&it));
    match view.outcome() {
        Some(Outcome::Completed) if is(|report| report.passes) => Earlier::Passed(run),
        Some(Outcome::Partial) if is(|report| report.again.is_some()) => Earlier::Spent(run),
        None | Some(Outcome::Partial | Outcome::Cancelled | Outcome::Blocked) => Earlier::Open(run),
        Some(Outcome::Completed | Outcome::Failed | Outcome::Refused) => Earlier::Over,
    }
}

/// Returns all that a story depends on, each after what it depends on itself; cycles are left out.
fn before<'a>(prd: &'a Prd, story: &'a Story) -> Vec<&'a str> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open: Vec<(&str, bool)> =
        story.dependencies.iter().rev().map(|id| (id.as_str(), false)).collect();
    while let Some((id, is_done)) = open.pop() {
        if is_done {
            order.push(id);
        } else if seen.insert(id) {
            open.push((id, true));
            let Some(story) = prd.story(id) else { continue };
            // The work of a child is in that of the story it is a part of.
            let more = story.dependencies.iter().map(String::as_str).chain(story.parent());
            open.extend(more.map(|id| (id, false)));
        }
    }
    order
}
