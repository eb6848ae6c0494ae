//! What is said and done with results when a run has ended.

use std::path::Path;

use adjutant_core::Outcome;
use adjutant_engine::Archive;
use adjutant_engine::work::{Verdict, Work, shared_files};
use adjutant_view::{Liveness, RunView};

use super::merge::{Fate, carry_out, exit, line, outlook, preview, say_next};
use super::{Chosen, Parts, explained, search};
use crate::args::{MergeAfter, MergeAs};
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;

/// Looks at what a run left, and merges it where a person said so beforehand; all of it is talk.
///
/// A run that kept nothing is not mentioned. What goes wrong here does not change how the run ended.
pub(crate) fn after_run(archive: &Archive, view: &RunView, how: MergeAfter) -> Exit {
    let kept = |commit: Option<&String>| commit.is_some();
    let any = view
        .preorder()
        .iter()
        .any(|it| it.kept.as_ref().is_some_and(|it| kept(it.0.commit.as_ref())));
    if !any {
        return Exit::Completed;
    }
    look(archive, view, how).unwrap_or_else(|failure| {
        say(&format!("adjutant: {failure}"));
        // A report that could not be made changes nothing about the work.
        if how == MergeAfter::Report { Exit::Completed } else { Exit::Failed }
    })
}

fn look(archive: &Archive, view: &RunView, how: MergeAfter) -> Result<Exit, Failure> {
    let work = Work::open(&search(), Path::new(view.workdir()), archive.path());
    let work = work.map_err(|error| explained(&error))?;
    let mut chosen = Chosen::of(work, view, Liveness::Dead, None, Parts::Without)?;
    let how = match how {
        MergeAfter::Report => return report(&chosen).map(|()| Exit::Completed),
        MergeAfter::Apply => MergeAs::Apply,
        MergeAfter::Branch => MergeAs::Branch,
    };
    let (completed, others) = std::mem::take(&mut chosen.picked)
        .into_iter()
        .partition(|it| it.outcome == Some(Outcome::Completed));
    chosen.picked = completed;
    chosen.say_shared(&shared_files(&chosen.diffs(&[])?));
    let fates = carry_out(&chosen, how);
    for (picked, fate) in chosen.picked.iter().zip(&fates) {
        say(line(picked, fate, false).trim_end());
    }
    say_next(&chosen, &fates, false);
    for picked in others {
        advise(&format!(
            "{} did not complete, so its work is only kept: `adjutant diff {}`.",
            picked.title(),
            picked.id()
        ));
    }
    Ok(exit(&fates, 0))
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
