//! What earlier runs did for the stories of a PRD, as their journals say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use adjutant_core::prd::{Prd, Story};
use adjutant_core::{Outcome, RunId};
use adjutant_engine::Archive;
use adjutant_engine::work::Work;

use crate::records::numbers;
use crate::work::search;

/// How many of the latest runs of a tree are looked at.
const LOOKED_AT: usize = 500;

/// What the latest run on a story came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// It completed.
    Passed(RunId),
    /// It has not ended, or ended so that it can go on.
    Open(RunId),
    /// It ended otherwise.
    Over,
}

impl Earlier {
    const fn of(run: RunId, outcome: Option<Outcome>) -> Self {
        match outcome {
            Some(Outcome::Completed) => Self::Passed(run),
            None | Some(Outcome::Partial | Outcome::Cancelled | Outcome::Blocked) => {
                Self::Open(run)
            }
            Some(Outcome::Failed | Outcome::Refused) => Self::Over,
        }
    }
}

/// The latest run on each story of one PRD.
pub(super) struct History {
    latest: BTreeMap<String, Earlier>,
    /// The commit that holds the work of each story that completed.
    work: BTreeMap<String, String>,
}

impl History {
    /// Reads what the runs of a tree say of a PRD; one that cannot be read says nothing.
    pub(super) fn of(archive: &Archive, workdir: &Path, prd: &Path) -> Self {
        let (mut latest, mut work) = (BTreeMap::new(), BTreeMap::new());
        let prd = prd.display().to_string();
        let runs = archive.runs().unwrap_or_default().into_iter();
        for files in runs.filter(|it| it.workdir().as_deref() == Some(workdir)).take(LOOKED_AT) {
            let Ok((view, _)) = numbers(&files) else { continue };
            let Some(story) = view.story().filter(|it| it.prd.as_ref() == Some(&prd)) else {
                continue;
            };
            let run = files.id();
            let earlier = Earlier::of(run, view.outcome());
            // The latest comes first.
            latest.entry(story.id.clone()).or_insert(earlier);
            let commit = view.root().and_then(|root| root.kept.as_ref()?.0.commit.clone());
            if let (Earlier::Passed(_), Some(commit)) = (earlier, commit) {
                work.entry(story.id.clone()).or_insert(commit);
            }
        }
        Self { latest, work }
    }

    /// Returns the latest run on a story.
    pub(super) fn find(&self, story: &str) -> Option<Earlier> {
        self.latest.get(story).copied()
    }

    /// Remembers what a run came to that has just ended.
    pub(super) fn add(
        &mut self,
        story: &str,
        run: RunId,
        outcome: Outcome,
        commit: Option<String>,
    ) {
        let earlier = Earlier::of(run, Some(outcome));
        self.latest.insert(story.to_owned(), earlier);
        if let (Earlier::Passed(_), Some(commit)) = (earlier, commit) {
            self.work.insert(story.to_owned(), commit);
        }
    }

    /// Returns the commits of the stories that one depends on, as far as their work is kept and is not
    /// in the tree already: those that others depend on come first.
    pub(super) fn work_before(
        &self,
        prd: &Prd,
        story: &Story,
        tree: &Path,
        archive: &Archive,
    ) -> Vec<String> {
        let commits: Vec<&String> =
            before(prd, story).into_iter().filter_map(|id| self.work.get(id)).collect();
        if commits.is_empty() {
            return Vec::new();
        }
        let Ok(work) = Work::open(&search(), tree, archive.path()) else { return Vec::new() };
        let is_due = |commit: &&&String| work.is_outstanding(commit).unwrap_or(false);
        commits.iter().filter(is_due).map(|commit| (*commit).clone()).collect()
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
