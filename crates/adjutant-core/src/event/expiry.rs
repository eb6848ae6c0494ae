//! What remains of an event once its content has expired.
//!
//! Start at [`Event::without_content`]. Invariant: no word of a person or a model stays, and what a run
//! is counted and cleaned up by does.

use super::Event;
use crate::outcome::Reason;
use adjutant_formats::contract::Return;

impl Event {
    /// Drops what people and models said, keeping who, when, how and how much.
    #[must_use]
    pub fn without_content(&self) -> Self {
        let mut event = self.clone();
        match &mut event {
            Self::RunStarted { goal, .. } => goal.clear(),
            Self::AgentDefined { system, tools, .. } => {
                system.clear();
                tools.clear();
            }
            Self::Granted(grant) => {
                grant.brief.prompt.clear();
                grant.brief.opening = None;
                grant.preface = None;
                grant.brief.context.clear();
            }
            Self::Reopened(reopening) => {
                reopening.text = None;
                for (_, output) in &mut reopening.looked {
                    output.content.clear();
                    output.touched.clear();
                }
            }
            // An agent chose the name.
            Self::WritePrepared { change, .. } | Self::Undone { change } => {
                EXPIRED.clone_into(&mut change.path);
            }
            Self::Replied { text, tool_calls, opaque, .. } => {
                text.clear();
                *opaque = None;
                for call in tool_calls {
                    call.arguments = serde_json::Value::Null;
                }
            }
            Self::Judged { returned, errors, warnings, .. } => {
                if let Some(returned) = returned {
                    expire_return(returned);
                }
                let complaints = errors.iter_mut().chain(warnings);
                complaints.for_each(|complaint| EXPIRED.clone_into(&mut complaint.message));
            }
            // What lies where, and which commit holds it, is needed to clean up; names of files are not.
            Self::SpaceMade { space, .. } => space.remarks.clear(),
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
                story.verify.iter_mut().for_each(|it| EXPIRED.clone_into(it));
                for planned in &mut story.plan {
                    EXPIRED.clone_into(&mut planned.description);
                    planned.verify.iter_mut().for_each(|it| EXPIRED.clone_into(it));
                }
            }
            Self::Checking { command, .. } => command.clear(),
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
            Self::Told { text, .. }
            | Self::Checked { text, .. }
            | Self::Printed { text, .. }
            | Self::Messaged { text, .. }
            | Self::Late { text, .. }
            | Self::ToolRefused { text, .. } => text.clear(),
            // A reason may quote a task or be a model's own word; its code is enough to count by.
            Self::Refused { reason, .. } | Self::Ended { reason: Some(reason), .. } => {
                expire_reason(reason);
            }
            // An agent chose whom to ask.
            Self::DomainAsked { host, .. }
            | Self::DomainAllowed { host }
            | Self::DomainDenied { host, .. } => EXPIRED.clone_into(host),
            Self::AttemptFailed { error, .. } => EXPIRED.clone_into(&mut error.message),
            Self::Crashed { message, backtrace, .. } => {
                EXPIRED.clone_into(message);
                backtrace.clear();
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
            | Self::Resumed { .. }
            | Self::Started { .. }
            | Self::Reserved { .. }
            | Self::Settled { .. }
            | Self::Overran { .. }
            | Self::Progressed { .. }
            | Self::Paused { .. }
            | Self::ToolCalled { .. }
            | Self::Ended { reason: None, .. }
            | Self::RunEnded { .. }
            | Self::ResultMerged { .. }
            | Self::ErrorFixed { .. } => {}
        }
        event
    }
}

fn expire_reason(reason: &mut Reason) {
    EXPIRED.clone_into(&mut reason.message);
    EXPIRED.clone_into(&mut reason.recommendation);
}

/// Drops the words of a return; its status, who worked and how long stay.
fn expire_return(returned: &mut Return) {
    EXPIRED.clone_into(&mut returned.summary);
    returned.artifacts.clear();
    returned.next_steps = None;
    for error in &mut returned.errors {
        EXPIRED.clone_into(&mut error.message);
        EXPIRED.clone_into(&mut error.recommendation);
    }
}

/// What stands where a text has expired.
const EXPIRED: &str = "(expired)";
