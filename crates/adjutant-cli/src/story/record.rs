//! Reads and writes the `adjutant` entry of a story in its PRD: the outcome of its latest run.

use std::path::Path;

use adjutant_core::story::StoryAssignment;
use adjutant_core::{DelegationState, Outcome, Policy, RunId};
use adjutant_engine::Archive;
use adjutant_engine::prd::{PrdFile, SaveOutcome};
use adjutant_formats::prd::{Prd, PrdChildOutcome, PrdOutcome as Written, story_digest};
use adjutant_view::story::{ChildMerge, StoryNode, StoryReport};
use adjutant_view::{Delegation, RunView};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::results::WorkPlacement;

/// Writes the outcome of a run into the PRD, if it ran a story of one. A failure is printed.
pub(crate) fn record_outcome(archive: &Archive, view: &RunView, branch: Option<String>) -> Exit {
    let Some(path) = view.story().and_then(|story| story.prd.as_deref()) else {
        return Exit::Completed;
    };
    let opened =
        PrdFile::open(Path::new(path)).map_err(|error| Failure::from_error(Exit::Failed, &error));
    match opened.and_then(|mut file| save(&mut file, archive, view, branch)) {
        Ok(()) => Exit::Completed,
        Err(failure) => {
            say(&format!("adjutant: {failure}"));
            Exit::Partial
        }
    }
}

/// Adds to the report of a story where its work is, and why the branch does not have the usual name.
pub(super) fn report_placement(report: &mut StoryReport, placed: WorkPlacement) {
    report.remarks.extend(placed.problems);
    if let Some(branch) = &placed.branch {
        let usual = format!("adjutant/{}", report.id);
        if branch.starts_with(&format!("{usual}-")) {
            report.remarks.push(format!("`{usual}` already has other work, which was left there"));
        } else if branch.starts_with("adjutant-") {
            report
                .remarks
                .push(format!("a branch called `adjutant` prevents a branch called `{usual}`"));
        } else if *branch != usual {
            report.remarks.push(format!(
                "the branch has another name because git does not allow one called `{usual}`"
            ));
        }
    }
    report.branch = placed.branch;
    report.merge.take_if(|_| placed.is_in_files);
    let undone = report.run.filter(|_| placed.is_applied);
    report.undo = undone.map(|run| format!("adjutant merge --undo {run}"));
}

/// The run that was recorded last in the entry of a story.
pub(super) struct RecordedOutcome {
    /// Its id.
    pub(super) run: RunId,
    /// Whether it completed the story.
    pub(super) is_completed: bool,
    /// The commit with its work. Entries of earlier versions have none.
    pub(super) commit: Option<String>,
    /// Whether it completed the story and changed nothing.
    pub(super) is_empty: bool,
    /// Its outcome, as the PRD spells it.
    pub(super) status: String,
}

/// Reads the recorded outcome from the entry of a story.
pub(super) fn recorded_outcome(prd: &Prd, story: &str) -> Option<RecordedOutcome> {
    let entry: Value = serde_json::from_str(prd.entry(story)?).ok()?;
    let record = &entry["adjutant"];
    let is_completed = record["status"] == Outcome::Completed.word();
    let commit = record["commit"].as_str().map(str::to_owned);
    let is_empty = is_completed && commit.is_none() && record["reference"].is_null();
    let status = record["status"].as_str().unwrap_or_default().to_owned();
    let run = record["run"].as_str()?.parse().ok()?;
    Some(RecordedOutcome { run, is_completed, commit, is_empty, status })
}

/// Returns whether run `one` began after run `other`.
pub(super) fn began_later(archive: &Archive, one: RunId, other: RunId) -> Result<bool, Failure> {
    if one.stamp() != other.stamp() {
        return Ok(one.stamp() > other.stamp());
    }
    // Ids have a resolution of one second. Within a second the archive's order decides: newest first.
    let runs = archive.runs().map_err(crate::records::archive_failure)?;
    let place = |run: RunId| runs.iter().position(|files| files.id() == run);
    Ok(matches!((place(one), place(other)), (Some(one), Some(other)) if one < other))
}

/// Writes the outcome of a run into the PRD. `branch` is the branch with its work, if one was created.
pub(super) fn save(
    file: &mut PrdFile,
    archive: &Archive,
    view: &RunView,
    branch: Option<String>,
) -> Result<(), Failure> {
    let (Some(story), Some(outcome)) = (view.story(), outcome_to_write(view, branch)) else {
        return Ok(());
    };
    if let Some(why) = write_conflict(file.prd(), archive, view, &outcome)? {
        let (path, id, run) = (file.path().display(), &story.id, &outcome.run);
        return Err(Failure::new(
            Exit::Partial,
            format!(
                "`{path}`: story `{id}` {why}; nothing was written; the outcome is kept in {run}"
            ),
        ));
    }
    let saved = file.save(&story.id, &outcome).map_err(|error| {
        Failure::from_error(Exit::Partial, &error).hint(format!(
            "The outcome is kept in {}; `adjutant story` writes it once the file is valid and the story \
             is unchanged.",
            outcome.run
        ))
    })?;
    if saved == SaveOutcome::Merged {
        say("adjutant: the PRD has changed; the outcome was written into the new version");
    }
    Ok(())
}

/// Returns why an outcome must not replace what the PRD says now.
fn write_conflict(
    prd: &Prd,
    archive: &Archive,
    view: &RunView,
    outcome: &Written,
) -> Result<Option<String>, Failure> {
    let (Some(work), Some(run)) = (view.story(), view.run()) else { return Ok(None) };
    entry_conflict(prd, archive, work, (run, outcome.passes))
}

/// Returns why the outcome of a resumed run could not be written. `None` also if the PRD cannot be read.
pub(super) fn resume_conflict(
    archive: &Archive,
    work: &StoryAssignment,
    run: RunId,
) -> Result<Option<String>, Failure> {
    let Some(file) = work.prd.as_deref().and_then(|path| PrdFile::open(path).ok()) else {
        return Ok(None);
    };
    let is_its_own = recorded_outcome(file.prd(), &work.id).is_some_and(|it| it.run == run);
    entry_conflict(file.prd(), archive, work, (run, is_its_own))
}

/// Returns what in the PRD conflicts with the outcome `passes` of a run: a changed request, a later run, or a pass.
fn entry_conflict(
    prd: &Prd,
    archive: &Archive,
    work: &StoryAssignment,
    (run, passes): (RunId, bool),
) -> Result<Option<String>, Failure> {
    let Some(entry) = prd.story(&work.id) else { return Ok(None) };
    if story_digest(entry, work.verify.as_ref().map(|it| it.command.as_str())) != work.asked {
        return Ok(Some("has changed since the run started".to_owned()));
    }
    if let Some(recorded) = recorded_outcome(prd, &work.id).map(|it| it.run)
        && began_later(archive, recorded, run)?
    {
        return Ok(Some(format!("has the outcome of {recorded}, which began later")));
    }
    Ok((entry.passes && !passes).then(|| "passes already".to_owned()))
}

/// Returns what is written about an ended run.
fn outcome_to_write(view: &RunView, branch: Option<String>) -> Option<Written> {
    let (root, policy) = (view.root()?, view.policy()?);
    let DelegationState::Ended(status) = root.state else { return None };
    // A run that was never approved has no outcome.
    root.started?;
    let children = view.delegations().filter_map(|child| child_outcome(view, child, policy));
    // Only the report decides whether a story passes; the agent's claim is not enough.
    let passes = StoryReport::of(view)?.passes;
    let kept = root.kept.as_deref().map(|(kept, _)| kept);
    Some(Written {
        passes,
        run: view.run()?.to_string(),
        status,
        summary: summary(root, status),
        branch,
        reference: kept.and_then(|kept| kept.reference.clone()),
        // The git reference moves when the run is resumed; the commit that passed does not.
        commit: kept.and_then(|kept| kept.commit.clone()).filter(|_| passes),
        cost: root.inclusive.usd,
        estimated: root.inclusive.is_estimated(),
        tokens_in: root.inclusive.usage.input_total(),
        tokens_out: root.inclusive.usage.output,
        finished_ms: root.ended.map(|it| it.wall_ms).unwrap_or_default(),
        children: children.collect(),
    })
}

fn child_outcome(view: &RunView, child: &Delegation, policy: &Policy) -> Option<PrdChildOutcome> {
    let DelegationState::Ended(status) = child.state else { return None };
    // A refused child gets no entry.
    let status = Some(status).filter(|status| *status != Outcome::Refused)?;
    let parent = view.delegation(child.parent?)?.story.clone()?;
    let can_delegate = policy.judge_depth(child.depth, || child.label.to_string()).is_ok();
    let most = policy.children_per_parent.unwrap_or(policy.tasks_per_call);
    let files = child.kept.iter().flat_map(|kept| &kept.0.files);
    Some(PrdChildOutcome {
        id: child.story.clone()?,
        parent,
        title: child.label.to_string(),
        description: child.task.clone(),
        hours: child.hours.unwrap_or(1),
        depth: child.depth,
        can_delegate,
        max_delegations: if can_delegate { most } else { 0 },
        passes: is_in_story(view, child),
        status,
        summary: summary(child, status),
        files_changed: files.map(|file| file.path.clone()).collect(),
        cost: child.inclusive.usd,
        estimated: child.inclusive.is_estimated(),
        tokens_in: child.inclusive.usage.input_total(),
        tokens_out: child.inclusive.usage.output,
    })
}

/// Returns whether a child completed and its work is part of the story: it and every ancestor was merged or changed
/// nothing.
fn is_in_story(view: &RunView, child: &Delegation) -> bool {
    let mut node = child;
    // The root agent has no parent; its workspace is the work of the story.
    while let Some(parent) = node.parent {
        let (is_kept, is_lost) = node
            .kept
            .as_deref()
            .map_or((false, false), |(kept, problem)| (kept.commit.is_some(), problem.is_some()));
        let is_merged = || {
            let merge = StoryNode::of(view, node).and_then(|node| node.merge);
            merge == Some(ChildMerge::Merged)
        };
        let is_completed = node.state == DelegationState::Ended(Outcome::Completed);
        if !is_completed || is_lost || (is_kept && !is_merged()) {
            return false;
        }
        let Some(above) = view.delegation(parent) else { return false };
        node = above;
    }
    true
}

/// Returns the summary of a delegation. If it did not complete, the reason comes first.
fn summary(of: &Delegation, status: Outcome) -> String {
    let said = of.returned.as_ref().map(|returned| returned.summary.clone());
    let why = of.reason.as_ref().map(|reason| reason.message.clone());
    match (said, why) {
        (Some(said), Some(why)) if status != Outcome::Completed => {
            format!("{why}\nIts agent said: {said}")
        }
        (said, why) => said.or(why).unwrap_or_default(),
    }
}
