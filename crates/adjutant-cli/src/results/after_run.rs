//! Reports the results of a run that has ended, or merges them if `--merge` was given.

use std::path::Path;

use adjutant_core::workspace::MergeRequest;
use adjutant_core::{Event, Outcome};
use adjutant_engine::Archive;
use adjutant_engine::results::{MergeOutcome, shared_files};
use adjutant_view::{ProcessLiveness, RunView};

use super::merge::{
    ResultMergeOutcome, branched, exit, is_registered, line, merge_one, preview,
    say_conflict_advice, say_next, summarize_previews,
};
use super::{MergedChildren, ResultSelection, SelectedResult, open_work, work_failure};
use crate::args::{MergeAfterRun, MergeMode};
use crate::exit::{Exit, Failure};
use crate::hints::{advise, advise_commands};
use crate::output::say;

/// Where the work of a run is after it ended.
pub(crate) struct WorkPlacement {
    /// `Completed` if everything was merged as requested.
    pub(crate) exit: Exit,
    /// The branch with the work of the root agent, if one was created.
    pub(crate) branch: Option<String>,
    /// Whether the work of the root agent is in the files, merged now or earlier.
    pub(crate) is_in_files: bool,
    /// Whether it was merged into the files now, so that `merge --undo` applies.
    pub(crate) is_applied: bool,
    /// What prevented merging, one sentence each.
    pub(crate) problems: Vec<String>,
}

impl WorkPlacement {
    /// Returns the placement of a run without work to merge.
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

/// Which results are merged after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeScope {
    /// All that completed, even if they were merged before: the caller knows that the files lack them.
    EveryResult,
    /// Those that were not merged before, according to the journal and the records of merges.
    PendingResults,
}

/// Reports the results of a run, or merges them as `how` says. Prints to standard error only.
///
/// Prints nothing for a run without results. An error here does not change the outcome of the run.
pub(crate) fn after_run(
    archive: &Archive,
    view: &RunView,
    how: MergeAfterRun,
    scope: MergeScope,
) -> WorkPlacement {
    let kept = |commit: Option<&String>| commit.is_some();
    let any = view
        .preorder()
        .iter()
        .any(|it| it.kept.as_ref().is_some_and(|it| kept(it.0.commit.as_ref())));
    if !any {
        return WorkPlacement::nowhere();
    }
    merge_or_report(archive, view, how, scope).unwrap_or_else(|failure| {
        say(&format!("adjutant: {failure}"));
        // A failed report is no failure: nothing was to be merged.
        let exit = if how == MergeAfterRun::Report { Exit::Completed } else { Exit::Failed };
        WorkPlacement { exit, problems: vec![failure.to_string()], ..WorkPlacement::nowhere() }
    })
}

fn merge_or_report(
    archive: &Archive,
    view: &RunView,
    how: MergeAfterRun,
    scope: MergeScope,
) -> Result<WorkPlacement, Failure> {
    let work = open_work(Path::new(view.workdir()), archive);
    let work = work.map_err(|error| work_failure(&error))?;
    let mut chosen =
        ResultSelection::of(work, view, ProcessLiveness::Dead, None, MergedChildren::Exclude)?;
    let Some(request) = how.request() else {
        return report(archive, &chosen).map(|()| WorkPlacement::nowhere());
    };
    let is_root = |it: &SelectedResult| it.kept.session == Some(chosen.run.root_session());
    let passes = view.is_root_work_accepted();
    let is_done =
        |it: &SelectedResult| it.outcome == Some(Outcome::Completed) && (passes || !is_root(it));
    let (done, others) = std::mem::take(&mut chosen.picked).into_iter().partition(is_done);
    chosen.picked = done;
    chosen.say_shared(&shared_files(&chosen.diffs(&[])?));
    let merge =
        |picked: &SelectedResult| merge_and_record(archive, view, &chosen, picked, request, scope);
    let fates: Vec<ResultMergeOutcome> = chosen.picked.iter().map(merge).collect();
    let mut placed = WorkPlacement::nowhere();
    for (picked, fate) in chosen.picked.iter().zip(&fates) {
        let line = line(picked, fate, false);
        say(line.trim_end());
        if exit(std::slice::from_ref(fate), 0) != Exit::Completed {
            placed.problems.extend(line.lines().next().map(str::to_owned));
        }
        if !is_root(picked) {
            continue;
        }
        if let ResultMergeOutcome::Branched { name, .. } = fate {
            placed.branch = Some(name.clone());
        }
        placed.is_applied = matches!(fate, ResultMergeOutcome::Judged(MergeOutcome::Merges { .. }));
        placed.is_in_files = placed.is_applied
            || matches!(
                fate,
                ResultMergeOutcome::Judged(MergeOutcome::Already)
                    | ResultMergeOutcome::MergedBefore
            );
    }
    say_next(archive, &chosen, &fates, false);
    for picked in others {
        let is_completed = picked.outcome == Some(Outcome::Completed);
        let what = if is_completed { "does not pass" } else { "did not complete" };
        advise(&format!(
            "{} {what}, so its work is only kept: `adjutant diff {}`.",
            picked.title(),
            picked.id()
        ));
    }
    Ok(WorkPlacement { exit: exit(&fates, 0), ..placed })
}

/// Merges a result and records that in the journal of its run, so that `resume` does not merge it again.
fn merge_and_record(
    archive: &Archive,
    view: &RunView,
    chosen: &ResultSelection,
    picked: &SelectedResult,
    request: MergeRequest,
    scope: MergeScope,
) -> ResultMergeOutcome {
    let commit = picked.kept.commit.clone();
    let delegation = picked.kept.session.and_then(|session| view.delegation(session));
    let recorded = delegation.and_then(|it| it.merged_after_run.as_ref());
    let is_recorded = recorded.is_some_and(|(merged, how)| *merged == commit && *how == request);
    let is_pending = scope == MergeScope::PendingResults;
    let fate = match request {
        MergeRequest::Branch if is_recorded && is_pending => {
            branched(chosen, picked, picked.kept.branch.clone())
        }
        MergeRequest::Branch => merge_one(archive, chosen, picked, MergeMode::Branch),
        MergeRequest::Apply if is_recorded && is_pending => ResultMergeOutcome::MergedBefore,
        // A merge that was killed after its last file is recorded by `Work`, not in the journal.
        MergeRequest::Apply if is_pending => match chosen.work.is_applied(&commit) {
            Ok(true) => ResultMergeOutcome::MergedBefore,
            Ok(false) if is_registered(archive, chosen, &commit) => {
                ResultMergeOutcome::MergedBefore
            }
            Ok(false) => merge_one(archive, chosen, picked, MergeMode::Apply),
            Err(error) => ResultMergeOutcome::UnreadRecords(error),
        },
        MergeRequest::Apply => merge_one(archive, chosen, picked, MergeMode::Apply),
    };
    let is_merged = exit(std::slice::from_ref(&fate), 0) == Exit::Completed;
    if let Some(session) = picked.kept.session.filter(|_| is_merged && !is_recorded) {
        let event = Event::ResultMerged { session, commit, merge: request };
        let found = archive.find(&chosen.run.to_string());
        if let Err(error) = found.and_then(|(files, _)| files.append(&event)) {
            let failure = Failure::from_error(Exit::Failed, &error);
            say(&format!(
                "adjutant: {session} was merged, but this could not be recorded in the journal: {failure}"
            ));
        }
    }
    fate
}

/// Previews the merge. The report before it names the files that several results change.
fn report(archive: &Archive, chosen: &ResultSelection) -> Result<(), Failure> {
    let fates = preview(archive, chosen)?;
    say(&summarize_previews(chosen, &fates));
    let merges = |it: &ResultMergeOutcome| {
        matches!(
            it,
            ResultMergeOutcome::Judged(MergeOutcome::Merges { .. } | MergeOutcome::Already)
        )
    };
    for (picked, fate) in chosen.picked.iter().zip(&fates) {
        say(line(picked, fate, true).trim_end());
    }
    let name = &chosen.name;
    let merge = if fates.iter().any(merges) {
        (format!("`adjutant merge {name}`"), "merges it")
    } else {
        (format!("`adjutant merge {name} --as branch`"), "makes branches of it")
    };
    let diff = (format!("`adjutant diff {name}`"), "shows the work");
    advise_commands(&[diff, merge, (format!("`adjutant discard {name}`"), "drops it")]);
    say_conflict_advice(archive, chosen, &fates);
    Ok(())
}
