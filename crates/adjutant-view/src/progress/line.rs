//! One plain line per event worth reporting, for pipes and logs.

use adjutant_core::numbers::grouped;
use adjutant_core::policy::ContractKind;
use adjutant_core::tree::{CALLS_PER_TURN, WHOLE_RUN};
use adjutant_core::workspace::OwnWorkspace;
use adjutant_core::write::{EDIT, WRITE};
use adjutant_core::{
    AddedMessageReason, DelegationState, Event, SessionId, ToolOutput, WorkerAction, WorkerCallEnd,
    WorkerToolStatus,
};

use super::budget::threshold_warning;
use super::words::{
    TEXT_COLUMNS, end_text, kept_words, list_update_text, merged_words, pause_text, tool, total,
    usage_of,
};
use crate::layout::{bracketed, fit};
use crate::palette::{Palette, TextStyle};
use crate::run::{Delegation, DelegationWarning, ProcessLiveness, RunView, WorkerRecord};
use crate::state_words::{code_words, complaints, count_with_noun, mark};
use crate::time_text::elapsed;
use crate::timed_event::TimedEvent;
use crate::worker_text::{name_text, resumed_text};

/// The maximum width of a label, in columns.
const LABEL_COLUMNS: usize = 34;

/// The number of the first call in a turn that exceeds the limit.
const SURPLUS: u32 = CALLS_PER_TURN as u32;

/// Returns what an event means to a person, or `None` if it is not worth reporting.
///
/// `view` must already include the event.
#[must_use]
pub fn line(view: &RunView, entry: &TimedEvent<'_>, palette: Palette) -> Option<String> {
    let warning =
        threshold_warning(view, entry.event).map(|text| palette.paint(TextStyle::Warning, &text));
    let said = event_line(view, entry, palette).into_iter().chain(warning).collect::<Vec<_>>();
    (!said.is_empty()).then(|| said.join("\n"))
}

fn event_line(view: &RunView, entry: &TimedEvent<'_>, palette: Palette) -> Option<String> {
    match entry.event {
        Event::RunStarted { .. } => {
            let held = if view.sandbox() == Some("off") { ", sandbox off" } else { "" };
            view.run().map(|run| format!("{run} started{held}"))
        }
        Event::RunEnded { .. } => Some(total(view, entry.at, ProcessLiveness::Alive)),
        Event::ApprovalAsked { parent, call, .. } => Some(approval_wait_text(view, *parent, *call)),
        Event::AutoApproved { amount, .. } => Some(format!(
            "Approved without asking: at most {amount}; {} of the {} limit is used",
            view.auto_approved(),
            view.approve_below()
        )),
        Event::DomainAllowed { host } => Some(format!("New host allowed: {}", safe(host))),
        Event::DomainDenied { host, reason } => {
            Some(format!("Host not allowed: {}: {}", safe(host), safe(reason)))
        }
        Event::Denied { reason, .. } => {
            Some(format!("Not approved: {}", fit(reason, TEXT_COLUMNS)))
        }
        Event::Granted(grant) => {
            let warnings = &view.delegation(grant.session)?.warnings;
            let said: Vec<String> = warnings.iter().map(DelegationWarning::to_string).collect();
            let text = format!("⚠ {}", fit(&said.join("; "), 2 * TEXT_COLUMNS));
            (!said.is_empty()).then(|| labelled_line(view, grant.session, &text)).flatten()
        }
        Event::Refused { session, .. } => {
            let delegation = view.delegation(*session)?;
            let reason = delegation.reason.as_ref()?;
            let next = fit(&reason.recommendation, TEXT_COLUMNS);
            let what = format!("⊘ refused: {}. {next}", code_words(reason.code));
            Some(labelled(delegation, &palette.paint(TextStyle::Bad, &what)))
        }
        // Reported once the work is committed, because only then it is known to be a success.
        Event::Ended { session, .. } if is_to_be_kept(view, *session) => None,
        Event::Ended { session, .. } => end(view, *session, palette),
        Event::SpaceMade { session, space, .. } => {
            let said = new_remarks(view, *session, space);
            let text = format!("⚠ workspace: {}", fit(&said.join("; "), 2 * TEXT_COLUMNS));
            (!said.is_empty()).then(|| labelled_line(view, *session, &text)).flatten()
        }
        Event::SpaceKept { session, kept, problem } => {
            let kept = kept_words(kept, problem.as_deref());
            match end(view, *session, palette) {
                Some(end) => Some(format!("{end} · {kept}")),
                None => labelled_line(view, *session, &kept),
            }
        }
        Event::Resumed { timeout_s, clamped, .. } => {
            let run = view.run().map(|run| run.to_string()).unwrap_or_default();
            let wish = grouped(timeout_s.filter(|_| *clamped).unwrap_or_default());
            let cut = format!(
                " ⚠ the time limit of {wish} s is more than allowed and was lowered to the maximum"
            );
            Some(format!("Resuming {run}{}", if *clamped { &cut } else { "" }))
        }
        Event::Started { .. }
        | Event::Replied { .. }
        | Event::AttemptFailed { .. }
        | Event::Overran { .. }
        | Event::Messaged { .. }
        | Event::Told { .. }
        | Event::Continued { .. }
        | Event::Paused { .. }
        | Event::Printed { .. }
        | Event::DomainAsked { .. }
        | Event::ToolCalled { .. }
        | Event::ToolRefused { .. }
        | Event::ToolReturned { .. }
        | Event::Judged { .. }
        | Event::MarkersRead { .. }
        | Event::Checking { .. }
        | Event::Checked { .. }
        | Event::Merged { .. }
        | Event::Marked { .. }
        | Event::Crashed { .. }
        | Event::WorkerCallReserved { .. }
        | Event::WorkerCallRefused { .. }
        | Event::WorkerCallSettled { .. }
        | Event::WorkerSessionOpened { .. }
        | Event::WorkerActed { .. }
        | Event::WorkerReported { .. }
        | Event::Reopened(_)
        | Event::Late { .. } => {
            let session = entry.event.session()?;
            labelled_line(view, session, &delegation_line(view.delegation(session)?, view, entry)?)
        }
        Event::AgentDefined { .. }
        | Event::Assigned(_)
        | Event::StoryTaken { .. }
        | Event::Delegated { .. }
        | Event::Approved { .. }
        | Event::Reserved { .. }
        | Event::Settled { .. }
        | Event::Progressed { .. }
        | Event::NoteSkipped { .. }
        | Event::WritePrepared { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::ErrorFixed { .. } => None,
    }
}

fn delegation_line(
    delegation: &Delegation,
    view: &RunView,
    entry: &TimedEvent<'_>,
) -> Option<String> {
    let called = |number: u32| delegation.requested_call(number);
    match entry.event {
        // The start of the run was already reported.
        Event::Started { .. } if delegation.parent.is_none() => None,
        Event::Started { .. } => {
            Some(format!("started ({}/{})", delegation.index + 1, view.call_size(delegation)))
        }
        Event::AttemptFailed { error, retry_at: Some(at), .. } => Some(format!(
            "retrying in {}: {}",
            elapsed(at.since(entry.at)),
            safe(&error.to_string())
        )),
        Event::AttemptFailed { error, retry_at: None, .. } => Some(safe(&error.to_string())),
        Event::Paused { provider, until, .. } => Some(pause_text(until.since(entry.at), provider)),
        Event::DomainAsked { host, .. } => Some(format!("waiting for approval of {}", safe(host))),
        Event::Overran { amount, .. } => Some(format!(
            "the provider billed more than was reserved: {} tokens and {} over",
            grouped(amount.tokens),
            amount.usd
        )),
        Event::Told { nudge: AddedMessageReason::LastCall(code), .. } => {
            Some(format!("told to report now: {}", code_words(*code)))
        }
        Event::Told { nudge: AddedMessageReason::Shorten, .. } => {
            Some("told to answer shorter".into())
        }
        // The reason was already reported when the return was judged.
        Event::Told { nudge: AddedMessageReason::Repair, .. } if is_judged(view, delegation) => {
            None
        }
        Event::Told { nudge: AddedMessageReason::Repair, .. } => {
            Some("told to correct its answer".into())
        }
        Event::Told { nudge: AddedMessageReason::Person, .. } => {
            Some("received your message".into())
        }
        Event::Told { nudge: AddedMessageReason::Results, .. } => {
            Some("received the results of its subagents".into())
        }
        Event::Told { nudge: AddedMessageReason::HandoverNote, .. } => {
            Some("context full: asked for a handover note".into())
        }
        Event::Continued { .. } => {
            Some(format!("continues in a fresh conversation ({})", delegation.continuations))
        }
        Event::Told { nudge: AddedMessageReason::Check, .. } => Some("told to fix its work".into()),
        Event::MarkersRead { rejected, refused, .. } => {
            let unread = rejected.first().map(|it| it.reason.as_str());
            let why = refused.as_ref().map(|reason| reason.message.as_str()).or(unread)?;
            Some(format!("markers not run: {}", safe(why)))
        }
        Event::Checking { command, .. } => Some(format!("verifying: {}", safe(command))),
        Event::Checked { passed: true, .. } => Some("verified".into()),
        Event::Checked { text, .. } => Some(format!("verify command failed: {}", safe(text))),
        Event::Merged { merged, problem, .. } => Some(merged_words(merged, problem.as_deref())),
        Event::Messaged { text, .. } => {
            Some(format!("your message, delivered before its next turn: {}", safe(text)))
        }
        // A note is reported when it is written.
        Event::ToolCalled { call, .. } => called(*call)
            .filter(|call| call.tool != "Note")
            .map(|call| tool(&call.tool, &call.arguments)),
        Event::ToolRefused { call, text, .. } => {
            let name = match called(*call) {
                Some(call) if !call.tool.is_empty() => fit(&call.tool, 32),
                // A thousand surplus calls are reported once.
                None if *call > SURPLUS => return None,
                None if *call == SURPLUS => "further calls".into(),
                Some(_) | None => "tool".into(),
            };
            Some(format!("{name}: {}", safe(text)))
        }
        Event::ToolReturned { output: ToolOutput { note: Some(note), .. }, .. } => {
            Some(format!("note: {}", safe(note)))
        }
        Event::Judged { returned: None, errors, .. } => {
            Some(format!("return rejected: {}", safe(&complaints(errors))))
        }
        // A task that is not in the list was reported before the run started.
        Event::Marked { mark, problem: None, .. }
            if mark.status.is_none() && mark.links.is_empty() =>
        {
            None
        }
        Event::Marked { mark, problem, .. } => Some(list_update_text(mark, problem.as_deref())),
        // The attempt was already reported, so its failure must be too.
        Event::ToolReturned { call, output, .. } if output.is_error => called(*call)
            .filter(|call| [WRITE, EDIT].contains(&call.tool.as_str()))
            .map(|call| format!("{} failed: {}", call.tool, safe(&output.content))),
        // The output of commands is not repeated here.
        Event::Printed { .. } => delegation.preparing_text().map(safe),
        Event::WorkerCallReserved { .. }
        | Event::WorkerCallRefused { .. }
        | Event::WorkerCallSettled { .. }
        | Event::WorkerSessionOpened { .. }
        | Event::WorkerActed { .. }
        | Event::WorkerReported { .. } => worker_line(delegation.worker.as_deref()?, entry.event),
        Event::Crashed { message, .. } => Some(format!("crashed: {}", safe(message))),
        Event::Reopened(reopening) if reopening.afresh => Some("resumed from its notes".into()),
        Event::Reopened(_) => Some("resumed".into()),
        Event::Late { what, .. } => {
            Some(format!("ignored a late {}; `adjutant log` shows it", safe(what)))
        }
        Event::RunStarted { .. }
        | Event::Assigned(_)
        | Event::StoryTaken { .. }
        | Event::SpaceMade { .. }
        | Event::SpaceKept { .. }
        | Event::Judged { .. }
        | Event::Resumed { .. }
        | Event::AgentDefined { .. }
        | Event::Delegated { .. }
        | Event::Granted(_)
        | Event::Refused { .. }
        | Event::ApprovalAsked { .. }
        | Event::AutoApproved { .. }
        | Event::DomainAllowed { .. }
        | Event::DomainDenied { .. }
        | Event::Approved { .. }
        | Event::Denied { .. }
        | Event::Reserved { .. }
        | Event::Replied { .. }
        | Event::Settled { .. }
        | Event::Progressed { .. }
        | Event::NoteSkipped { .. }
        | Event::ToolReturned { .. }
        | Event::Ended { .. }
        | Event::RunEnded { .. }
        | Event::WritePrepared { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::ErrorFixed { .. } => None,
    }
}

/// Returns what an event of an external worker means to a person.
fn worker_line(worker: &WorkerRecord, event: &Event) -> Option<String> {
    if let Event::WorkerCallReserved { removed, .. } = event {
        // A worker asks for the same with every call, which is reported once.
        let removed = safe(&removed.join(", "));
        return worker.is_news().then(|| format!("removed from its model calls: {removed}"));
    }
    if let Event::WorkerCallRefused { refusal, .. } = event {
        return Some(format!("model call refused: {}", safe(&refusal.to_string())));
    }
    if let Event::WorkerCallSettled { end, .. } = event {
        return match end {
            WorkerCallEnd::Failed { message } => {
                Some(format!("model call failed: {}", safe(message)))
            }
            WorkerCallEnd::Cut => Some("model call cut off at the output limit".to_owned()),
            WorkerCallEnd::Complete | WorkerCallEnd::Abandoned => None,
        };
    }
    if let Event::WorkerSessionOpened { start, .. } = event {
        let how = resumed_text(Some(*start))?;
        return Some(format!("{} goes on: {how}", name_text(worker)));
    }
    let Event::WorkerActed { action, .. } = event else { return None };
    match action {
        // Its words are in the transcript.
        WorkerAction::Said { .. } => None,
        WorkerAction::Tool { title, status, .. } => {
            let title = safe(title);
            let failed = if *status == WorkerToolStatus::Failed { " failed" } else { "" };
            worker.is_news().then(|| format!("{title}{failed}"))
        }
        WorkerAction::Permission { title, allowed } => {
            (!allowed).then(|| format!("not allowed: {}", safe(title)))
        }
    }
}

/// Returns the remarks about a workspace that were not made about an earlier one.
fn new_remarks(view: &RunView, session: SessionId, space: &OwnWorkspace) -> Vec<String> {
    let is_new = |remark: &&String| view.is_first_to_say(session, remark);
    space.remarks.iter().filter(is_new).cloned().collect()
}

/// Returns whether the return of a delegation is judged: under the standard contract always, except for a
/// root that only delegates.
fn is_judged(view: &RunView, delegation: &Delegation) -> bool {
    let is_standard = view.policy().is_some_and(|policy| policy.contract == ContractKind::Standard);
    is_standard && (delegation.parent.is_some() || view.story().is_some())
}

fn approval_wait_text(view: &RunView, parent: SessionId, call: u32) -> String {
    if call == WHOLE_RUN {
        return "Waiting for approval of the whole run".to_owned();
    }
    let waits = |child: &&Delegation| {
        child.call == call && child.state == DelegationState::AwaitingApproval
    };
    let parent = view.delegation(parent);
    let count = parent.map_or(0, |parent| view.children(parent).filter(waits).count());
    format!("Waiting for approval of {}", count_with_noun(count, "subagent"))
}

fn is_to_be_kept(view: &RunView, session: SessionId) -> bool {
    view.delegation(session).is_some_and(Delegation::is_keeping)
}

/// The root's end is reported as the end of the run.
fn end(view: &RunView, session: SessionId, palette: Palette) -> Option<String> {
    let delegation = view.delegation(session).filter(|delegation| delegation.parent.is_some())?;
    let DelegationState::Ended(outcome) = delegation.state else { return None };
    let what = format!("{} {}", mark(&delegation.state), end_text(outcome, delegation));
    let mut parts = vec![palette.paint(TextStyle::of(&delegation.state), &what)];
    if delegation.own.calls > 0 {
        parts.push(usage_of(&delegation.own));
    }
    parts.extend(delegation.ended.and_then(|end| delegation.elapsed(end.at)).map(elapsed));
    if delegation.own.calls > 0 {
        parts.push(delegation.own.money());
    }
    Some(labelled(delegation, &parts.join(" ")))
}

fn labelled_line(view: &RunView, session: SessionId, text: &str) -> Option<String> {
    view.delegation(session).map(|delegation| labelled(delegation, text))
}

fn labelled(delegation: &Delegation, text: &str) -> String {
    format!("{} {text}", bracketed(delegation.label.as_str(), LABEL_COLUMNS))
}

fn safe(text: &str) -> String {
    fit(text, TEXT_COLUMNS)
}
