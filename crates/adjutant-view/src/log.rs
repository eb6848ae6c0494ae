//! The journal as text: one line per event, without exception.

use std::collections::BTreeMap;

use adjutant_core::budget::Settlement;
use adjutant_core::numbers::grouped;
use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::workspace::MergeRequest;
use adjutant_core::{
    AddedMessageReason, ContentChange, Event, SessionId, WorkerAction, WorkerCallEnd,
    WorkerSessionStart, WorkerToolStatus,
};
use serde_json::Value;

use crate::layout::{bracketed, fit};
use crate::progress::{kept_words, list_update_text, merged_words};
use crate::run::{Delegation, RunView};
use crate::sanitize;
use crate::state_words::{code_words, complaints, count_with_noun};
use crate::time_text::{elapsed, rfc3339_ms};
use crate::timed_event::TimedEvent;
use crate::worker_text::report_text;

/// The maximum width of an untrusted text within a line, in columns.
const TEXT_COLUMNS: usize = 120;

/// Renders one event: time, delegation, what happened. A backtrace follows, indented.
///
/// `view` must already include the event. The result has no line break at the end.
#[must_use]
pub fn line(view: &RunView, entry: &TimedEvent<'_>) -> String {
    let time = rfc3339_ms(entry.wall_ms);
    let who = entry
        .event
        .session()
        .map_or_else(String::new, |session| format!("{} ", name(view, session)));
    format!("{time}  {who}{}", describe_event(view, entry))
}

/// Renders a complete history.
#[must_use]
pub fn render<'a>(entries: impl IntoIterator<Item = TimedEvent<'a>>) -> String {
    let mut view = RunView::default();
    let mut text = String::new();
    for entry in entries {
        view.apply(entry);
        text.push_str(&line(&view, &entry));
        text.push('\n');
    }
    text
}

fn name(view: &RunView, session: SessionId) -> String {
    view.delegation(session).map_or_else(
        || format!("[{session}]"),
        |delegation| bracketed(delegation.label.as_str(), 34),
    )
}

fn describe_event(view: &RunView, entry: &TimedEvent<'_>) -> String {
    match entry.event {
        Event::RunStarted { run, agent, goal, version, .. } => {
            let (agent, version) = (fit(agent.as_str(), 32), fit(version, 32));
            let goal = if goal.is_empty() { String::new() } else { format!(": {}", safe(goal)) };
            format!("{run} started by {agent}, version {version}{goal}")
        }
        Event::AgentDefined { agent, tools, worker, .. } => {
            let worker = worker.as_ref().map(|it| format!(", worker {}", fit(&it.name, 32)));
            format!(
                "agent {} defined, {}{}",
                fit(agent.as_str(), 32),
                count_with_noun(tools.len(), "tool"),
                worker.unwrap_or_default()
            )
        }
        Event::Delegated { call, .. } => format!("delegates, call {call}"),
        Event::Assigned(assignment) => {
            let tasks: Vec<String> = assignment.tasks.iter().map(u64::to_string).collect();
            let about =
                if tasks.is_empty() { String::new() } else { format!(" {}", tasks.join(", ")) };
            format!("runs /{}{about}", safe(&assignment.command))
        }
        Event::Judged { returned: Some(returned), warnings, .. } => {
            let warned = count_with_noun(warnings.len(), "warning");
            format!("return accepted, {}, {warned}: {}", returned.status, safe(&returned.summary))
        }
        Event::Judged { returned: None, errors, .. } => {
            format!("return rejected: {}", safe(&complaints(errors)))
        }
        Event::Marked { mark, problem, .. } => list_update_text(mark, problem.as_deref()),
        Event::Printed { text, .. } => format!("prints: {}", safe(text)),
        Event::StoryTaken { story, .. } => {
            format!("works on {}: {}", safe(&story.id), safe(&story.title))
        }
        Event::MarkersRead { rejected, refused, .. } => {
            let refused =
                refused.as_ref().map(|it| format!(", refused {}: {}", it.code, safe(&it.message)));
            let unread = count_with_noun(rejected.len(), "marker");
            format!("markers read, {unread} not understood{}", refused.unwrap_or_default())
        }
        Event::Checking { command, .. } => format!("verifying: {}", safe(command)),
        Event::Checked { passed, text, .. } => {
            let how = if *passed { "verified" } else { "verify command failed" };
            format!("{how}: {}", safe(text))
        }
        Event::Merged { merged, problem, .. } => merged_words(merged, problem.as_deref()),
        Event::SpaceMade { space, .. } => {
            format!("works in an {} of its own: {}", space.kind.word(), safe(&space.path))
        }
        Event::SpaceKept { kept, problem, .. } => kept_words(kept, problem.as_deref()),
        Event::ApprovalAsked { call: WHOLE_RUN, hash, .. } => {
            format!("approval asked for the whole run ({})", fit(hash, 12))
        }
        Event::ApprovalAsked { parent, call, hash, .. } => {
            format!("approval asked for call {call} of {} ({})", name(view, *parent), fit(hash, 12))
        }
        Event::AutoApproved { parent, call, hash, amount } => format!(
            "approved without asking: call {call} of {} ({}), {amount} at most",
            name(view, *parent),
            fit(hash, 12)
        ),
        Event::DomainAsked { host, .. } => format!("asks a person about {}", safe(host)),
        Event::DomainAllowed { host } => format!("allowed {}", safe(host)),
        Event::DomainDenied { host, reason } => {
            format!("not allowed {}: {}", safe(host), safe(reason))
        }
        Event::Approved { hash, up_to: None, .. } => format!("approved ({})", fit(hash, 12)),
        Event::Approved { hash, up_to: Some(amount), .. } => {
            format!("approved, and further calls up to {amount} ({})", fit(hash, 12))
        }
        Event::Denied { hash, reason } => format!("denied ({}): {}", fit(hash, 12), safe(reason)),
        Event::Resumed { version, limits, .. } => {
            format!("run resumed by {}{}", safe(version), set_limits(limits))
        }
        Event::Reopened(reopening) => {
            let how = if reopening.afresh { "resumed from its notes" } else { "resumed" };
            let said = reopening.text.as_ref().map(|text| format!(": {}", safe(text)));
            format!("{how}{}", said.unwrap_or_default())
        }
        Event::RunEnded { outcome } => format!("run ended: {}", outcome.word()),
        Event::WritePrepared { intent, .. } => {
            let changes = intent.changes().map(|change| {
                let done = if change.before.is_some() { "changes" } else { "creates" };
                format!("{done} {}{}", safe(&change.path), hashes(change))
            });
            changes.collect::<Vec<_>>().join(", ")
        }
        Event::ResultMerged { commit, merge: MergeRequest::Apply, .. } => {
            format!("merged into the files ({})", fit(commit, 12))
        }
        Event::ResultMerged { commit, merge: MergeRequest::Branch, .. } => {
            format!("made a branch ({})", fit(commit, 12))
        }
        Event::Undone { change } => {
            let done = if change.after.is_some() { "put back" } else { "removed" };
            format!("{done} {}{}", safe(&change.path), hashes(change))
        }
        Event::ErrorFixed { id } => format!("{} is fixed", fit(id, 40)),
        Event::Granted(grant) => {
            let agent = fit(grant.brief.agent.as_str(), 32);
            let model = grant.brief.model.as_ref().map_or("no model", |model| model.name.as_str());
            let (depth, model) = (grant.depth, fit(model, 60));
            format!("granted to {agent} at depth {depth}, {model}: {}", safe(&grant.brief.prompt))
        }
        Event::Refused { reason, .. } => {
            format!("refused {}: {}", reason.code, safe(&reason.message))
        }
        Event::Started { deadline, bound, .. } => deadline.map_or_else(
            || "started without a deadline".into(),
            |at| format!("started, time limit {} ({})", elapsed(at.since(entry.at)), bound.noun()),
        ),
        Event::NoteSkipped { .. } => "context full, continues without a handover note".into(),
        Event::Continued { handover, .. } => {
            format!("continues in a fresh conversation: {}", safe(handover))
        }
        Event::Reserved { session, .. }
        | Event::Replied { session, .. }
        | Event::AttemptFailed { session, .. }
        | Event::Settled { session, .. } => {
            let is_worker = view.delegation(*session).is_some_and(|it| it.worker.is_some());
            if is_worker { prompt_words(entry) } else { model_words(entry) }
        }
        Event::Overran { .. }
        | Event::Progressed { .. }
        | Event::Paused { .. }
        | Event::Messaged { .. }
        | Event::Told { .. } => model_words(entry),
        Event::WorkerCallReserved { session, .. }
        | Event::WorkerCallRefused { session, .. }
        | Event::WorkerCallSettled { session, .. }
        | Event::WorkerSessionOpened { session, .. }
        | Event::WorkerActed { session, .. }
        | Event::WorkerReported { session, .. } => {
            let worker = view.delegation(*session).and_then(|it| it.worker.as_ref());
            worker_words(worker.map_or("the worker", |it| &it.name), entry.event)
        }
        Event::ToolCalled { .. } | Event::ToolRefused { .. } | Event::ToolReturned { .. } => {
            let delegation = entry.event.session().and_then(|session| view.delegation(session));
            tool_words(delegation, entry.event)
        }
        Event::Crashed { message, backtrace, .. } => {
            format!("crashed: {}{}", safe(message), indent_lines(backtrace))
        }
        Event::Late { what, text, .. } => format!("late {}: {}", safe(what), safe(text)),
        Event::Ended { outcome, reason, .. } => match reason {
            Some(reason) => {
                format!("ended {}, {}: {}", outcome.word(), reason.code, safe(&reason.message))
            }
            None => format!("ended {}", outcome.word()),
        },
    }
}

/// Returns the start of the file's hash before and after a change.
fn hashes(change: &ContentChange) -> String {
    let short = |hash: &Option<String>| hash.as_deref().map_or("none".into(), |hash| fit(hash, 12));
    format!(" ({} → {})", short(&change.before), short(&change.after))
}

fn model_words(entry: &TimedEvent<'_>) -> String {
    match entry.event {
        Event::Reserved { reservation, .. } => {
            let last = if reservation.last_call { " (last call)" } else { "" };
            format!(
                "turn {} attempt {} reserved{last}: {} tokens, {}",
                reservation.turn,
                reservation.attempt,
                grouped(reservation.amount.tokens),
                reservation.amount.usd
            )
        }
        Event::Replied { turn, text, tool_calls, settlement, .. } => {
            let calls = count_with_noun(tool_calls.len(), "tool call");
            let said = if text.is_empty() { String::new() } else { format!(": {}", safe(text)) };
            format!("turn {turn} replied, {calls} {}{said}", settled(settlement))
        }
        Event::AttemptFailed { turn, attempt, error, settlement, retry_at, .. } => {
            let next = retry_at.map_or_else(
                || "not retried".into(),
                |at| format!("retried in {}", elapsed(at.since(entry.at))),
            );
            let error = safe(&error.to_string());
            format!("turn {turn} attempt {attempt} failed, {next} {}: {error}", settled(settlement))
        }
        Event::Settled { turn, settlement, .. } => {
            format!(
                "turn {turn} ended without reported usage, counted at the reserved amount {}",
                settled(settlement)
            )
        }
        Event::Overran { amount, .. } => {
            format!(
                "the provider billed more than was reserved: {} tokens and {} over",
                grouped(amount.tokens),
                amount.usd
            )
        }
        Event::Progressed { bytes, .. } => format!("{} bytes arrived", grouped(*bytes)),
        Event::Paused { provider, until, .. } => {
            format!(
                "waiting {}: {} asked for a pause",
                elapsed(until.since(entry.at)),
                safe(provider)
            )
        }
        Event::Messaged { text, .. } => format!("a person says: {}", safe(text)),
        Event::Told { nudge, text, .. } => {
            let why = match nudge {
                AddedMessageReason::LastCall(code) => format!("last call, {}", code_words(*code)),
                AddedMessageReason::Shorten => "shorten".into(),
                AddedMessageReason::Repair => "repair".into(),
                AddedMessageReason::Person => "person".into(),
                AddedMessageReason::Results => "results".into(),
                AddedMessageReason::Check => "check".into(),
                AddedMessageReason::HandoverNote => "handover note".into(),
            };
            format!("told ({why}): {}", safe(text))
        }
        Event::RunStarted { .. }
        | Event::Resumed { .. }
        | Event::Reopened(_)
        | Event::AgentDefined { .. }
        | Event::Delegated { .. }
        | Event::Granted(_)
        | Event::Refused { .. }
        | Event::ApprovalAsked { .. }
        | Event::AutoApproved { .. }
        | Event::DomainAsked { .. }
        | Event::DomainAllowed { .. }
        | Event::DomainDenied { .. }
        | Event::Approved { .. }
        | Event::Denied { .. }
        | Event::Started { .. }
        | Event::NoteSkipped { .. }
        | Event::Continued { .. }
        | Event::ToolCalled { .. }
        | Event::ToolRefused { .. }
        | Event::ToolReturned { .. }
        | Event::Assigned(_)
        | Event::StoryTaken { .. }
        | Event::MarkersRead { .. }
        | Event::Checking { .. }
        | Event::Checked { .. }
        | Event::Merged { .. }
        | Event::Judged { .. }
        | Event::Marked { .. }
        | Event::SpaceMade { .. }
        | Event::Printed { .. }
        | Event::SpaceKept { .. }
        | Event::Crashed { .. }
        | Event::Late { .. }
        | Event::Ended { .. }
        | Event::RunEnded { .. }
        | Event::WritePrepared { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::WorkerCallReserved { .. }
        | Event::WorkerCallRefused { .. }
        | Event::WorkerCallSettled { .. }
        | Event::WorkerSessionOpened { .. }
        | Event::WorkerActed { .. }
        | Event::WorkerReported { .. }
        | Event::ErrorFixed { .. } => String::new(),
    }
}

/// Describes an event of a prompt to a worker, whose model calls have their own lines.
fn prompt_words(entry: &TimedEvent<'_>) -> String {
    if let Event::Reserved { reservation, .. } = entry.event {
        return format!("prompt {} attempt {} sent", reservation.turn, reservation.attempt);
    }
    if let Event::Replied { turn, text, .. } = entry.event {
        let said = if text.is_empty() { String::new() } else { format!(": {}", safe(text)) };
        return format!("prompt {turn} answered{said}");
    }
    if let Event::Settled { turn, .. } = entry.event {
        return format!("prompt {turn} ended without an answer");
    }
    let Event::AttemptFailed { turn, attempt, error, .. } = entry.event else {
        return String::new();
    };
    format!("prompt {turn} attempt {attempt} failed: {}", safe(&error.to_string()))
}

fn worker_words(name: &str, event: &Event) -> String {
    if let Event::WorkerCallReserved { call, model, amount, removed, .. } = event {
        let removed = match removed.as_slice() {
            [] => String::new(),
            some => format!(", without {}", safe(&some.join(", "))),
        };
        let (tokens, usd, model) = (grouped(amount.tokens), amount.usd, fit(model, 60));
        return format!("model call {call} reserved: {tokens} tokens, {usd}, {model}{removed}");
    }
    if let Event::WorkerCallRefused { refusal, needed, .. } = event {
        let needed = needed
            .map(|it| format!(", it needs at least {} tokens, {}", grouped(it.tokens), it.usd));
        let why = safe(&refusal.to_string());
        return format!("model call refused: {why}{}", needed.unwrap_or_default());
    }
    if let Event::WorkerCallSettled { call, settlement, end, .. } = event {
        let how = match end {
            WorkerCallEnd::Complete => "answered".to_owned(),
            WorkerCallEnd::Cut => "cut off at the output limit".to_owned(),
            WorkerCallEnd::Failed { message } => {
                return format!(
                    "model call {call} failed {}: {}",
                    settled(settlement),
                    safe(message)
                );
            }
            WorkerCallEnd::Abandoned => "abandoned".to_owned(),
        };
        return format!("model call {call} {how} {}", settled(settlement));
    }
    if let Event::WorkerSessionOpened { id, start, .. } = event {
        let id = fit(id, 40);
        return match start {
            WorkerSessionStart::New => format!("opened session {id}"),
            WorkerSessionStart::Loaded => format!("loaded session {id}"),
            WorkerSessionStart::Retold => {
                format!("opened session {id}, which was told the earlier work")
            }
        };
    }
    if let Event::WorkerReported { report, .. } = event {
        return report_text(name, *report);
    }
    let Event::WorkerActed { action, .. } = event else { return String::new() };
    match action {
        WorkerAction::Said { text } => format!("says: {}", safe(text.trim())),
        WorkerAction::Tool { title, status, .. } => {
            let status = match status {
                WorkerToolStatus::Begun => "begun",
                WorkerToolStatus::Completed => "completed",
                WorkerToolStatus::Failed => "failed",
            };
            format!("tool {status}: {}", safe(title))
        }
        WorkerAction::Permission { title, allowed } => {
            let answer = if *allowed { "allowed" } else { "not allowed" };
            format!("{answer}: {}", safe(title))
        }
    }
}

/// Returns the limits that a person changed on resume.
fn set_limits(limits: &BTreeMap<String, Value>) -> String {
    let set: Vec<String> = limits.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if set.is_empty() { String::new() } else { format!(", with {}", safe(&set.join(", "))) }
}

fn settled(settlement: &Settlement) -> String {
    let usage = settlement.usage;
    let about = if settlement.estimated { ", estimated" } else { "" };
    let (input, output) = (grouped(usage.input_total()), grouped(usage.output));
    format!("(in={input} out={output} {}{about})", settlement.usd)
}

fn tool_words(delegation: Option<&Delegation>, event: &Event) -> String {
    let named = |number: u32| {
        let call = delegation.and_then(|delegation| delegation.requested_call(number));
        call.map_or_else(
            || format!("call {number}"),
            |call| safe(format!("{} {}", call.tool, call.arguments).trim_end()),
        )
    };
    if let Event::ToolRefused { call, text, .. } = event {
        return format!("{} not run: {}", named(*call), safe(text));
    }
    let Event::ToolReturned { call, output, .. } = event else {
        return if let Event::ToolCalled { call, .. } = event {
            format!("calls {}", named(*call))
        } else {
            String::new()
        };
    };
    if let Some(note) = &output.note {
        return format!("note: {}", safe(note));
    }
    if output.is_error {
        return format!("{} failed: {}", named(*call), safe(&output.content));
    }
    format!("{} returned {} bytes", named(*call), grouped(output.content.len() as u64))
}

fn indent_lines(backtrace: &str) -> String {
    let safe = sanitize::block(backtrace.trim_end());
    safe.lines().map(|line| format!("\n    {line}")).collect()
}

fn safe(text: &str) -> String {
    fit(text, TEXT_COLUMNS)
}
