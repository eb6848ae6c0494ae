//! The five stages of a delegation under the standard contract: prepare, invoke, receive, validate, process.
//! Each is reported when it ends, with its input and output.
//!
//! Stages are not recorded; they are derived from the recorded events, in the words of the delegation guide.
//! Start at [`stages`].
//!
//! A [`CompletedStage`] is one [`DelegationStage`] that has ended.

use adjutant_core::assignment::UpdateTrigger;
use adjutant_core::policy::ContractKind;
use adjutant_core::{DelegationState, ErrorCode, Event, OutcomeReason};
use adjutant_formats::contract::ReturnFinding;
use serde::Serialize;
use serde_json::{Value, json};

use crate::run::{Delegation, RunView};
use crate::state_words::code_key;
use crate::timed_event::TimedEvent;

/// A stage of a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationStage {
    /// The delegation was admitted or refused.
    Prepare,
    /// It was started, and its model answers.
    Invoke,
    /// A return arrived.
    Receive,
    /// The return was judged.
    Validate,
    /// The task list was updated from it.
    Process,
}

/// A stage that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompletedStage {
    /// The stage.
    pub stage: DelegationStage,
    /// Whether it succeeded.
    pub ok: bool,
    /// Its input and output.
    pub detail: Value,
}

/// Returns the stages that an event ends.
#[must_use]
pub fn stages(
    view: &RunView,
    delegation: &Delegation,
    entry: &TimedEvent<'_>,
) -> Vec<CompletedStage> {
    let asks = view.policy().is_some_and(|policy| policy.contract == ContractKind::Standard);
    if !asks || delegation.parent.is_none() {
        return Vec::new();
    }
    if let Event::Granted(grant) = entry.event {
        let detail = json!({
            "agent": delegation.agent, "depth": grant.depth, "path": grant.path,
            "timeout_s": grant.timeout_s, "task": grant.task,
        });
        return vec![completed_stage(DelegationStage::Prepare, true, detail)];
    }
    if let Event::Refused { reason, .. } = entry.event {
        return vec![fault(DelegationStage::Prepare, reason)];
    }
    if let Event::Started { .. } = entry.event {
        let detail = json!({ "agent": delegation.agent, "model": delegation.model });
        return vec![completed_stage(DelegationStage::Invoke, true, detail)];
    }
    if let Event::Judged { call, returned, errors, warnings, .. } = entry.event {
        let by = if call.is_some() { "tool" } else { "message" };
        let detail = json!({
            "status": returned.as_ref().map(|returned| returned.status),
            "errors": complaints(errors), "warnings": complaints(warnings),
        });
        return vec![
            completed_stage(DelegationStage::Receive, true, json!({ "by": by })),
            completed_stage(DelegationStage::Validate, returned.is_some(), detail),
        ];
    }
    if let Event::Marked { mark, problem, .. } = entry.event
        && mark.work == UpdateTrigger::Ended
    {
        let links: Vec<&str> = mark.links.iter().map(|link| link.path.as_str()).collect();
        let mut detail = json!({ "task": mark.task, "status": mark.status, "links": links });
        if let Some(problem) = problem {
            detail["reason"] = json!(code_key(ErrorCode::StatusSyncFailed));
            detail["message"] = json!(problem);
        }
        return vec![completed_stage(DelegationStage::Process, problem.is_none(), detail)];
    }
    stages_at_end(view, delegation, entry.event)
}

/// An end without a return fails the stage it was in. An end with a return and without a task to update
/// completes the last stage.
fn stages_at_end(view: &RunView, delegation: &Delegation, event: &Event) -> Vec<CompletedStage> {
    let Event::Ended { outcome, reason, .. } = event else { return Vec::new() };
    if delegation.returned.is_some() && delegation.state == DelegationState::Ended(*outcome) {
        let is_below_root = delegation.parent == view.root().map(|root| root.session);
        let is_work = view.assignment().is_some_and(|it| it.is_work_of(&delegation.agent));
        let is_marked = delegation.number.is_some() && is_below_root && is_work;
        let detail = json!({ "status": outcome.return_status() });
        return (!is_marked)
            .then(|| completed_stage(DelegationStage::Process, true, detail))
            .into_iter()
            .collect();
    }
    reason.as_ref().map(|reason| fault(stage_of(reason.code), reason)).into_iter().collect()
}

fn stage_of(code: ErrorCode) -> DelegationStage {
    let elsewhere = [
        (ErrorCode::ApprovalDenied, DelegationStage::Prepare),
        (ErrorCode::ProviderError, DelegationStage::Invoke),
        (ErrorCode::ValidationFailed, DelegationStage::Validate),
    ];
    elsewhere
        .iter()
        .find(|(of, _)| *of == code)
        .map_or(DelegationStage::Receive, |(_, stage)| *stage)
}

fn complaints(complaints: &[ReturnFinding]) -> Vec<String> {
    complaints.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
}

fn fault(stage: DelegationStage, reason: &OutcomeReason) -> CompletedStage {
    let detail = json!({ "reason": code_key(reason.code), "message": reason.message });
    completed_stage(stage, false, detail)
}

const fn completed_stage(stage: DelegationStage, ok: bool, detail: Value) -> CompletedStage {
    CompletedStage { stage, ok, detail }
}
