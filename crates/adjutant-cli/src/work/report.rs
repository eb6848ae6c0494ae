//! What is said and done with results when a run has ended.

use std::path::Path;

use adjutant_core::Outcome;
use adjutant_engine::Archive;
use adjutant_engine::work::{Verdict, Work, shared_files};
use adjutant_view::story::StoryReport;
use adjutant_view::{Liveness, RunView};

use super::merge::{Fate, carry_out, exit, line, outlook, preview, say_next};
use super::{Chosen, Parts, Picked, explained, search};
use crate::args::{MergeAfter, MergeAs};
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;

/// Where the work of a run was put.
pub(crate) struct Placed {
    /// Whether all of it is where it was to be.
    pub(crate) exit: Exit,
    /// The branch that the work of the run's own agent is on; nothing where none was made.
    pub(crate) branch: Option<String>,
    /// Whether that work is in the files, merged now or before.
    pub(crate) is_in_files: bool,
    /// Whether it was merged into them now, which can be taken back.
    pub(crate) is_applied: bool,
    /// What stood in the way, a sentence each.
    pub(crate) problems: Vec<String>,
}

impl Placed {
    /// Says that nothing had to be put anywhere.
    pub(crate) const fn nowhere() -> Self {
        Self {
            exit: Exit::Completed,
            branch: None,
            is_in_files: false,
            is_applied: false,
            problems: Vec::new(),
        }
    }
}

/// Looks at what a run left, and merges it where a person said so beforehand; all of it is talk.
///
/// A run that kept nothing is not mentioned. What goes wrong here does not change how the run ended.
pub(crate) fn after_run(archive: &Archive, view: &RunView, how: MergeAfter) -> Placed {
    let kept = |commit: Option<&String>| commit.is_some();
    let any = view
        .preorder()
        .iter()
        .any(|it| it.kept.as_ref().is_some_and(|it| kept(it.0.commit.as_ref())));
    if !any {
        return Placed::nowhere();
    }
    look(archive, view, how).unwrap_or_else(|failure| {
        say(&format!("adjutant: {failure}"));
        // A report that could not be made changes nothing about the work.
        let exit = if how == MergeAfter::Report { Exit::Completed } else { Exit::Failed };
        Placed { exit, problems: vec![failure.to_string()], ..Placed::nowhere() }
    })
}

fn look(archive: &Archive, view: &RunView, how: MergeAfter) -> Result<Placed, Failure> {
    let work = Work::open(&search(), Path::new(view.workdir()), archive.path());
    let work = work.map_err(|error| explained(&error))?;
    let mut chosen = Chosen::of(work, view, Liveness::Dead, None, Parts::Without)?;
    let how = match how {
        MergeAfter::Report => return report(&chosen).map(|()| Placed::nowhere()),
        MergeAfter::Apply => MergeAs::Apply,
        MergeAfter::Branch => MergeAs::Branch,
    };
    let is_root = |it: &Picked| it.kept.session == Some(chosen.run.root_session());
    // What decides about a story decides about its work too.
    let passes = StoryReport::of(view).is_none_or(|report| report.passes);
    let is_done = |it: &Picked| it.outcome == Some(Outcome::Completed) && (passes || !is_root(it));
    let (done, others) = std::mem::take(&mut chosen.picked).into_iter().partition(is_done);
    chosen.picked = done;
    chosen.say_shared(&shared_files(&chosen.diffs(&[])?));
    let fates = carry_out(&chosen, how);
    let mut placed = Placed::nowhere();
    for (picked, fate) in chosen.picked.iter().zip(&fates) {
        let line = line(picked, fate, false);
        say(line.trim_end());
        if exit(std::slice::from_ref(fate), 0) != Exit::Completed {
            placed.problems.extend(line.lines().next().map(str::to_owned));
        }
        if !is_root(picked) {
            continue;
        }
        if let Fate::Branched { name, .. } = fate {
            placed.branch = Some(name.clone());
        }
        placed.is_applied = matches!(fate, Fate::Judged(Verdict::Merges { .. }));
        placed.is_in_files = placed.is_applied || matches!(fate, Fate::Judged(Verdict::Already));
    }
    say_next(&chosen, &fates, false);
    for picked in others {
        let is_completed = picked.outcome == Some(Outcome::Completed);
        let what = if is_completed { "does not pass" } else { "did not complete" };
        advise(&format!(
            "{} {what}, so its work is only kept: `adjutant diff {}`.",
            picked.title(),
            picked.id()
        ));
    }
    Ok(Placed { exit: exit(&fates, 0), ..placed })
}

fn report(chosen: &Chosen) -> Result<(), Failure> {
    let previews = preview(chosen)?;
    chosen.say_shared(&shared_files(&chosen.diffs(&[])?));
    say(&outlook(chosen, &previews));
    let fates: Vec<Fate> = previews.into_iter().map(Fate::Judged).collect();
    let merges = |it: &Fate| matches!(it, Fate::Judged(Verdict::Merges { .. } | Verdict::Already));
    for (picked, fate) in chosen.picked.iter().zip(&fates) {
        say(line(picked, fate, true).trim_end());
    }
    let name = &chosen.name;
    let merge = if fates.iter().any(merges) {
        format!("`adjutant merge {name}` merges it")
    } else {
        format!("`adjutant merge {name} --as branch` makes branches of it")
    };
    advise(&format!(
        "`adjutant diff {name}` shows the work, {merge}, `adjutant discard {name}` drops it."
    ));
    Ok(())
}
