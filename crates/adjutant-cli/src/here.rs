//! Which run is meant where none is named: the latest of the folder one stands in.
//!
//! What changes files or ends work must not reach into another project because it ran last. Commands
//! that only read show the latest run wherever it worked.

use std::path::Path;

use adjutant_core::RunId;
use adjutant_engine::{Archive, RunFiles};
use adjutant_view::{Liveness, sanitize};

use crate::delegate::absolute;
use crate::exit::Failure;
use crate::records::{failed, liveness, numbers};

/// What a command does with a run, for its hints.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    /// How it is typed, such as `undo`.
    pub(crate) typed: &'static str,
    /// What the run is called, such as `run`.
    pub(crate) noun: &'static str,
}

/// Finds the latest run of the tree at `root` that fits; one elsewhere is named and left alone.
pub(crate) fn latest(
    archive: &Archive,
    root: &Path,
    verb: Verb,
    fits: impl Fn(&RunFiles) -> bool,
) -> Result<RunFiles, Failure> {
    let root = absolute(root)?;
    let mut elsewhere = None;
    for files in archive.runs().map_err(failed)?.into_iter().filter(fits) {
        // One that cannot be read is passed over here; naming it says why.
        match files.workdir() {
            Some(workdir) if workdir == root => return Ok(files),
            workdir => elsewhere = elsewhere.or(workdir.map(|workdir| (files.id(), workdir))),
        }
    }
    let Verb { typed, noun } = verb;
    let folder = sanitize::line(&root.display().to_string()).into_owned();
    let failure = Failure::usage(format!("no {noun} worked in {folder}"));
    Err(match elsewhere {
        Some((run, workdir)) => failure.hint(format!(
            "The latest elsewhere is {run}, in {}: `adjutant {typed} {run}` names it.",
            sanitize::line(&workdir.display().to_string())
        )),
        None => failure.hint("`adjutant status` lists the runs."),
    })
}

/// How many of the latest runs are asked who works on a task.
const ASKED: usize = 20;

/// Finds the latest run of the tree at `root` that was given the task and has not ended.
pub(crate) fn at_work_on(archive: &Archive, root: &Path, task: u64) -> Option<(RunId, Liveness)> {
    let runs = archive.runs().unwrap_or_default();
    let mut here = runs.into_iter().take(ASKED).filter(|it| it.workdir().as_deref() == Some(root));
    here.find_map(|files| {
        // Asked first: a run that ends while it is read must not look interrupted.
        let alive = liveness(&files).ok()?;
        let (view, _) = numbers(&files).ok()?;
        let is_given = view.assignment().is_some_and(|it| it.tasks.contains(&task));
        (is_given && view.outcome().is_none()).then_some((files.id(), alive))
    })
}
