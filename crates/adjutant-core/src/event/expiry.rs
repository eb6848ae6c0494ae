//! Removes the content of events whose retention time is over.
//!
//! Start at [`Event::without_content`]. Invariant: no text of a person or a model remains, but
//! everything that counts usage or cleans up does.

use super::Event;
use crate::outcome::OutcomeReason;
use crate::tool_call::TranslatedCall;
use crate::verify::VerifyCommand;
use crate::worker::{CallRefusal, WorkerAction, WorkerCallEnd};
use adjutant_formats::contract::Return;

impl Event {
    /// Removes what people and models wrote; keeps ids, times, outcomes and amounts.
    #[must_use]
    pub fn without_content(&self) -> Self {
        let mut event = self.clone();
        match &mut event {
            Self::RunStarted { goal, terms, environment, .. } => {
                goal.clear();
                *environment = None;
                let verify = terms.iter_mut().flat_map(|terms| &mut terms.verify);
                verify.for_each(expire_verify);
            }
            Self::AgentDefined { system, tools, .. } => {
                system.clear();
                tools.clear();
            }
            Self::Granted(grant) => {
                grant.brief.prompt.clear();
                grant.brief.opening = None;
                grant.brief.instructions = None;
                grant.preface = None;
                grant.brief.context.clear();
                grant.brief.verify.iter_mut().for_each(expire_verify);
            }
            Self::Reopened(reopening) => {
                reopening.text = None;
                for (_, output) in &mut reopening.looked {
                    output.content.clear();
                    output.touched.clear();
                }
            }
            Self::Continued { brief, handover, .. } => {
                brief.clear();
                handover.clear();
            }
            // The path is content: an agent chose it.
            Self::WritePrepared { intent, .. } => {
                let changes = std::iter::once(&mut intent.change).chain(&mut intent.others);
                changes.for_each(|change| EXPIRED.clone_into(&mut change.path));
            }
            Self::Undone { change } => EXPIRED.clone_into(&mut change.path),
            Self::Replied { text, tool_calls, translations, opaque, .. } => {
                text.clear();
                *opaque = None;
                for call in tool_calls {
                    call.arguments = serde_json::Value::Null;
                }
                for translation in translations {
                    match &mut translation.reading {
                        TranslatedCall::RunAs { arguments, remarks, .. } => {
                            *arguments = serde_json::Value::Null;
                            remarks.clear();
                        }
                        TranslatedCall::Refused { text } => EXPIRED.clone_into(text),
                    }
                }
            }
            Self::Judged { returned, errors, warnings, .. } => {
                if let Some(returned) = returned {
                    expire_return(returned);
                }
                let complaints = errors.iter_mut().chain(warnings);
                complaints.for_each(|complaint| EXPIRED.clone_into(&mut complaint.message));
            }
            // Workspace paths and commits are needed for cleanup; file names are not.
            Self::SpaceMade { space, project, .. } => {
                space.remarks.clear();
                *project = None;
            }
            Self::SpaceKept { kept, problem, .. } => {
                kept.files.clear();
                kept.skipped.clear();
                kept.left.iter_mut().for_each(|path| EXPIRED.clone_into(path));
                if let Some(problem) = problem {
                    EXPIRED.clone_into(problem);
                }
            }
            Self::Merged { merged, problem, .. } => {
                merged.files.clear();
                merged.conflicts.clear();
                if let Some(problem) = problem {
                    EXPIRED.clone_into(problem);
                }
            }
            Self::MarkersRead { rejected, refused, .. } => {
                rejected.clear();
                if let Some(reason) = refused {
                    expire_reason(reason);
                }
            }
            Self::StoryTaken { story, .. } => {
                story.title.clear();
                story.verify.iter_mut().for_each(expire_verify);
                for planned in &mut story.plan {
                    EXPIRED.clone_into(&mut planned.description);
                    planned.verify.iter_mut().for_each(expire_verify);
                }
            }
            Self::Checking { command, .. } => command.clear(),
            Self::Checked { text, facts, .. } => {
                text.clear();
                facts.from_base.clear();
            }
            Self::Marked { mark, problem, .. } => {
                mark.reason = None;
                mark.links.clear();
                if let Some(problem) = problem {
                    EXPIRED.clone_into(problem);
                }
            }
            Self::ToolReturned { output, .. } => {
                output.content.clear();
                output.note = None;
                output.touched.clear();
            }
            Self::WorkerActed { action, .. } => expire_action(action),
            Self::WorkerCallSettled { end: WorkerCallEnd::Failed { message }, .. } => {
                EXPIRED.clone_into(message)
            }
            Self::WorkerCallRefused { refusal: CallRefusal::Request { problem }, .. } => {
                EXPIRED.clone_into(problem);
            }
            Self::Told { text, .. }
            | Self::Printed { text, .. }
            | Self::Messaged { text, .. }
            | Self::Late { text, .. }
            | Self::ToolRefused { text, .. } => text.clear(),
            // A reason may quote a task or a model; its code is enough for statistics.
            Self::Refused { reason, .. } | Self::Ended { reason: Some(reason), .. } => {
                expire_reason(reason);
            }
            // The host is content: an agent chose it.
            Self::DomainAsked { host, .. }
            | Self::DomainAllowed { host }
            | Self::DomainDenied { host, .. } => EXPIRED.clone_into(host),
            Self::AttemptFailed { error, .. } => EXPIRED.clone_into(&mut error.message),
            Self::Crashed { message, backtrace, .. } => {
                EXPIRED.clone_into(message);
                backtrace.clear();
            }
            Self::Resumed { terms, .. } => {
                let verify = terms.iter_mut().flat_map(|terms| &mut terms.verify);
                verify.for_each(expire_verify);
            }
            Self::Assigned(assignment) => {
                assignment.sent = None;
                assignment.facts.iter_mut().for_each(|facts| facts.description = None);
            }
            Self::Delegated { .. }
            | Self::ApprovalAsked { .. }
            | Self::AutoApproved { .. }
            | Self::Approved { .. }
            | Self::Denied { .. }
            | Self::Started { .. }
            | Self::Reserved { .. }
            | Self::Settled { .. }
            | Self::Overran { .. }
            | Self::WorkerCallReserved { .. }
            | Self::WorkerCallRefused { .. }
            | Self::WorkerCallSettled { .. }
            | Self::WorkerSessionOpened { .. }
            | Self::WorkerReported { .. }
            | Self::Progressed { .. }
            | Self::Paused { .. }
            | Self::ToolCalled { .. }
            | Self::Ended { reason: None, .. }
            | Self::RunEnded { .. }
            | Self::ResultMerged { .. }
            | Self::NoteSkipped { .. }
            | Self::ErrorFixed { .. } => {}
        }
        event
    }
}

fn expire_reason(reason: &mut OutcomeReason) {
    EXPIRED.clone_into(&mut reason.message);
    EXPIRED.clone_into(&mut reason.recommendation);
}

/// Removes what a worker wrote; keeps that it acted.
fn expire_action(action: &mut WorkerAction) {
    match action {
        WorkerAction::Said { text } => text.clear(),
        WorkerAction::Tool { title, .. } | WorkerAction::Permission { title, .. } => {
            EXPIRED.clone_into(title);
        }
    }
}

fn expire_verify(verify: &mut VerifyCommand) {
    EXPIRED.clone_into(&mut verify.command);
    verify.keep.clear();
}

/// Removes the texts of a return; keeps status, agent and duration.
fn expire_return(returned: &mut Return) {
    EXPIRED.clone_into(&mut returned.summary);
    returned.artifacts.clear();
    returned.next_steps = None;
    for error in &mut returned.errors {
        EXPIRED.clone_into(&mut error.message);
        EXPIRED.clone_into(&mut error.recommendation);
    }
}

/// Replaces an expired text that must not be empty.
const EXPIRED: &str = "(expired)";
