//! Writing down in the PRD what came of a story.

use std::path::Path;

use adjutant_core::prd::{ChildOutcome, Outcome as Written, Prd};
use adjutant_core::{Outcome, Policy, RunId, State};
use adjutant_engine::prd::{PrdFile, Saved};
use adjutant_view::{Delegation, RunView};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::say;

/// Writes down what came of a run on a story, where it is one of a PRD; what is in the way is said.
pub(crate) fn record_outcome(view: &RunView) {
    let Some(path) = view.story().and_then(|story| story.prd.as_deref()) else { return };
    let opened =
        PrdFile::open(Path::new(path)).map_err(|error| Failure::caused(Exit::Failed, &error));
    if let Err(failure) = opened.and_then(|mut file| save(&mut file, view)) {
        say(&format!("adjutant: {failure}"));
    }
}

/// Says whether the entry of a story has what came of a run that completed it.
pub(super) fn is_recorded(prd: &Prd, story: &str, run: RunId) -> bool {
    let entry = prd.entry(story).and_then(|text| serde_json::from_str::<Value>(text).ok());
    entry.is_some_and(|entry| {
        let record = &entry["adjutant"];
        record["run"] == run.to_string() && record["status"] == Outcome::Completed.word()
    })
}

/// Writes what came of a run into the file.
pub(super) fn save(file: &mut PrdFile, view: &RunView) -> Result<(), Failure> {
    let (Some(story), Some(outcome)) = (view.story(), written(view)) else { return Ok(()) };
    let saved = file.save(&story.id, &outcome).map_err(|error| {
        Failure::caused(Exit::Partial, &error).hint(format!(
            "What came of it is in {}; `adjutant story` writes it down once the file is in order.",
            outcome.run
        ))
    })?;
    if saved == Saved::Merged {
        say("adjutant: the PRD was changed meanwhile; the outcome is written into that version");
    }
    Ok(())
}

/// Returns what is written of a run that has ended.
fn written(view: &RunView) -> Option<Written> {
    let (root, policy) = (view.root()?, view.policy()?);
    let State::Ended(status) = root.state else { return None };
    let children = view.delegations().filter_map(|child| child_outcome(view, child, policy));
    Some(Written {
        // Every check of the engine is behind this; a claim alone does not complete a story.
        passes: view.outcome() == Some(Outcome::Completed),
        run: view.run()?.to_string(),
        status,
        summary: summary(root),
        branch: root.kept.as_ref().and_then(|kept| kept.0.reference.clone()),
        cost: root.inclusive.usd,
        tokens_in: root.inclusive.usage.input_total(),
        tokens_out: root.inclusive.usage.output,
        finished_ms: root.ended.map(|it| it.wall_ms).unwrap_or_default(),
        children: children.collect(),
    })
}

fn child_outcome(view: &RunView, child: &Delegation, policy: &Policy) -> Option<ChildOutcome> {
    let State::Ended(status) = child.state else { return None };
    // What was never admitted has no entry.
    let status = Some(status).filter(|status| *status != Outcome::Refused)?;
    let parent = view.delegation(child.parent?)?.story.clone()?;
    let can_delegate = policy.enabled && child.depth < policy.max_depth;
    let most = policy.children_per_parent.unwrap_or(policy.tasks_per_call);
    let files = child.kept.iter().flat_map(|kept| &kept.0.files);
    Some(ChildOutcome {
        id: child.story.clone()?,
        parent,
        title: child.label.to_string(),
        description: child.task.clone(),
        hours: child.hours.unwrap_or(1),
        depth: child.depth,
        can_delegate,
        max_delegations: if can_delegate { most } else { 0 },
        passes: status == Outcome::Completed,
        status,
        summary: summary(child),
        files_changed: files.map(|file| file.path.clone()).collect(),
        cost: child.inclusive.usd,
        tokens_in: child.inclusive.usage.input_total(),
        tokens_out: child.inclusive.usage.output,
    })
}

/// Returns what a delegation said it did, or why it did not.
fn summary(of: &Delegation) -> String {
    let said = of.returned.as_ref().map(|returned| returned.summary.clone());
    let why = || of.reason.as_ref().map(|reason| reason.message.clone());
    said.or_else(why).unwrap_or_default()
}
