//! The words of progress messages, shared by the display and the lines.

use std::time::Duration;

use adjutant_core::workspace::{KeptWork, MergedWork};
use adjutant_core::{DelegationState, ErrorCode, Outcome, TaskListUpdate, Timestamp};

use crate::layout::{cut, fit, fit_ends, some_of, width};
use crate::run::{Activity, Delegation, ESTIMATE_NOTE, ProcessLiveness, RunView, Spend};
use crate::sanitize;
use crate::state_words::{code_words, count_with_noun, ended_word};
use crate::time_text::elapsed;

/// The maximum width of an untrusted text within a line, in columns.
pub(super) const TEXT_COLUMNS: usize = 120;

/// Returns what a delegation is doing: `Read src/lib.rs`, `partial: context exhausted`. Of the text that an agent is
/// writing, the end that fits into `columns` is shown; all else is for the caller to cut.
pub(crate) fn activity_text(delegation: &Delegation, now: Timestamp, columns: usize) -> String {
    match delegation.activity() {
        Activity::AwaitingApproval => "waiting for approval".into(),
        Activity::Queued => "waiting for a free slot".into(),
        Activity::Thinking { since, bytes, text_end } => {
            if let Some(silent) = delegation.silence(now) {
                return format!("stalled? no output for {}", elapsed(silent));
            }
            if let Some(preparing) = delegation.preparing_text() {
                return preparing.to_owned();
            }
            if !text_end.trim().is_empty() {
                return written_text(text_end, columns);
            }
            // Before the first answer, the elapsed time beside it says the same.
            let thought = if delegation.own.calls > 0 { now.since(since) } else { Duration::ZERO };
            thinking(thought, bytes)
        }
        Activity::Tool { call, more } => {
            let others = if more > 0 { format!(" (+{more})") } else { String::new() };
            let printed = delegation.printed.as_ref().map(|line| format!(": {}", fit(line, 60)));
            let printed = printed.unwrap_or_default();
            format!("{}{others}{printed}", tool(&call.tool, &call.arguments))
        }
        Activity::WaitingForModel(_) | Activity::Writing(_)
            if delegation.silence(now).is_some() =>
        {
            let silent = delegation.silence(now).unwrap_or_default();
            format!("stalled? no output for {}", elapsed(silent))
        }
        Activity::WaitingForModel(1) => "waiting for its model".into(),
        Activity::WaitingForModel(calls) => format!("waiting for its model, {calls} calls"),
        Activity::Writing(words) => written_text(words, columns),
        Activity::Retrying(retry) => {
            let wait = elapsed(retry.at.since(now));
            format!("retrying in {wait}: {}", retry.kind)
        }
        Activity::Paused(pause) if pause.until > now => {
            pause_text(pause.until.since(now), &pause.provider)
        }
        Activity::Paused(_) => thinking(Duration::ZERO, 0),
        Activity::AwaitingDomain(host) => {
            format!("waiting for approval of {}", fit(host, TEXT_COLUMNS))
        }
        Activity::Delegating => "waiting for its subagents".into(),
        Activity::Ended(outcome) => end_text(outcome, delegation),
    }
}

/// Like [`activity_text`], with the place in the queue, and that work is being saved if that takes long.
pub(crate) fn doing_text(
    view: &RunView,
    delegation: &Delegation,
    now: Timestamp,
    columns: usize,
) -> String {
    slow_commit_text(delegation, now)
        .or_else(|| queue_text(view, delegation))
        .unwrap_or_else(|| activity_text(delegation, now, columns))
}

/// Returns the place of a queued delegation, if others wait before it.
fn queue_text(view: &RunView, delegation: &Delegation) -> Option<String> {
    let place = Some(delegation).filter(|it| it.state == DelegationState::Queued);
    let place = place.and_then(|it| view.queue_place(it)).filter(|place| *place > 1)?;
    Some(format!("waiting for a free slot, place {place}"))
}

/// The maximum width of what an agent is writing, in columns.
pub(crate) const WORDS_COLUMNS: usize = 80;

/// Returns the end of the text that an agent is writing. JSON is its result, whose end says nothing to a person.
fn written_text(text: &str, columns: usize) -> String {
    let start = text.trim_start();
    if start.starts_with('{') || start.starts_with("```json") {
        return "writing its result".into();
    }
    last_columns(text, columns.min(WORDS_COLUMNS))
}

/// Returns the end of untrusted text on one safe line of at most `max` columns.
fn last_columns(text: &str, max: usize) -> String {
    let text = sanitize::collapsed(text);
    if width(&text) <= max {
        return text;
    }
    let starts = text.char_indices().map(|(at, _)| at).rev();
    let start = starts.take_while(|at| width(&text[*at..]) < max).last().unwrap_or(text.len());
    cut(&format!("…{}", &text[start..]), max)
}

/// How long committing an ended delegation's work may take before it is shown.
const KEEPS_LONG: Duration = Duration::from_secs(1);

/// Returns a message while an ended delegation's work is being committed, if that takes long.
#[must_use]
pub fn slow_commit_text(delegation: &Delegation, now: Timestamp) -> Option<String> {
    let ended = delegation.ended.filter(|_| delegation.is_keeping())?;
    let since = now.since(ended.at);
    (since >= KEEPS_LONG).then(|| format!("keeping its work for {}", elapsed(since)))
}

/// Describes the committed work of a workspace: `kept 2 files, +10 -3`.
pub(crate) fn kept_words(kept: &KeptWork, problem: Option<&str>) -> String {
    kept_and(kept, problem, |skipped| format!(": {}", some_of(skipped)))
}

/// Like [`kept_words`], without the files that were left out.
pub(crate) fn kept_counts(kept: &KeptWork, problem: Option<&str>) -> String {
    kept_and(kept, problem, |_| String::new())
}

fn kept_and(kept: &KeptWork, problem: Option<&str>, named: fn(&[String]) -> String) -> String {
    if let Some(problem) = problem {
        // The workspace stays as it is; a later sweep retries.
        let problem = fit_ends(problem, TEXT_COLUMNS);
        return format!(
            "its work could not be committed and is still in its workspace: {problem}; fix the cause, then \
             `adjutant prune` commits it"
        );
    }
    let skipped = match kept.skipped.len() {
        0 => String::new(),
        some => format!(", {} left out{}", count_with_noun(some, "path"), named(&kept.skipped)),
    };
    let left = match kept.left.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "; {} could not be kept and stays in the workspace: {}",
            count_with_noun(kept.left.len(), "path"),
            fit(first, TEXT_COLUMNS)
        ),
    };
    if kept.files.is_empty() && kept.left.is_empty() {
        return format!("changed nothing{skipped}");
    }
    let (added, removed) = kept.lines();
    format!(
        "kept {}, +{added} -{removed}{skipped}{left}",
        count_with_noun(kept.files.len(), "file")
    )
}

/// Describes a merge into the parent's workspace: `merged, 2 files`.
pub(crate) fn merged_words(merged: &MergedWork, problem: Option<&str>) -> String {
    if let Some(problem) = problem {
        return format!("could not be merged: {}", fit_ends(problem, TEXT_COLUMNS));
    }
    if merged.conflicts.is_empty() {
        return format!("merged, {}", count_with_noun(merged.files.len(), "file"));
    }
    let said: Vec<String> =
        merged.conflicts.iter().map(|it| format!("{} ({})", it.path, it.what)).collect();
    format!("not merged, in conflict: {}", fit(&said.join(", "), TEXT_COLUMNS))
}

/// Describes how the task list was updated: `task 12 is [RESEARCHED], report.md linked`.
pub(crate) fn list_update_text(mark: &TaskListUpdate, problem: Option<&str>) -> String {
    let task = mark.task;
    if let Some(problem) = problem {
        return format!(
            "task {task} could not be updated in the task list: {}",
            fit(problem, TEXT_COLUMNS)
        );
    }
    let status = mark.status.map(|status| format!("is {}", status.marker()));
    let links: Vec<&str> = mark.links.iter().map(|link| link.path.as_str()).collect();
    let linked =
        (!links.is_empty()).then(|| format!("{} linked", fit(&links.join(", "), TEXT_COLUMNS)));
    let said: Vec<String> = status.into_iter().chain(linked).collect();
    if said.is_empty() {
        return format!("task {task} is not in the task list");
    }
    format!("task {task} {}", said.join(", "))
}

/// Explains why a model call is delayed: `waiting 12s: anthropic asked for a pause`.
pub(super) fn pause_text(wait: Duration, provider: &str) -> String {
    format!("waiting {}: {} asked for a pause", elapsed(wait), fit(provider, 32))
}

fn thinking(thought: Duration, bytes: u64) -> String {
    // Most turns are shorter; only a noticeable wait is shown.
    if thought.as_secs() >= 10 {
        return format!("thinking for {}", elapsed(thought));
    }
    if bytes > 0 { "writing".into() } else { "thinking".into() }
}

/// Returns a tool call in a few sanitized words.
pub(super) fn tool(name: &str, arguments: &str) -> String {
    let name = fit(name, 32);
    let arguments = fit(arguments, TEXT_COLUMNS);
    if arguments.is_empty() { name } else { format!("{name} {arguments}") }
}

/// Returns how a delegation ended: `complete`, `partial: context exhausted`.
pub(crate) fn end_text(outcome: Outcome, delegation: &Delegation) -> String {
    let word = ended_word(outcome);
    if let Some(question) = delegation.open_question() {
        return format!("asks: {}", fit(question, TEXT_COLUMNS));
    }
    match &delegation.reason {
        // A code without information is omitted.
        Some(reason)
            if outcome != Outcome::Completed
                && ![ErrorCode::Cancelled, ErrorCode::UnknownError].contains(&reason.code) =>
        {
            format!("{word}: {}", code_words(reason.code))
        }
        Some(_) | None => word.into(),
    }
}

/// Returns the tokens in brackets, or an empty string before the first call.
pub(super) fn usage_of(spend: &Spend) -> String {
    if spend.calls == 0 { String::new() } else { format!("({})", spend.tokens_short()) }
}

/// Returns the summary of a run in one line: states, tokens, cost, time.
#[must_use]
pub fn total(view: &RunView, now: Timestamp, liveness: ProcessLiveness) -> String {
    let mut parts = states_of(view, liveness);
    let spent = view.total();
    let in_parts = spent.money_in_parts();
    // Estimates beside the measured cost explain themselves.
    let note = spent.is_estimated() && in_parts.is_none();
    if spent.calls > 0 {
        parts.push(spent.tokens_short());
        parts.push(in_parts.unwrap_or_else(|| spent.money()));
    }
    parts.push(time(view, now, liveness));
    parts.extend(note.then(|| ESTIMATE_NOTE.to_owned()));
    parts.join(" · ")
}

/// Like [`total`] for a live run, with the share of its budget, in at most `columns`. What matters least is left out
/// first; the cost always stays.
pub(super) fn total_in_columns(
    view: &RunView,
    now: Timestamp,
    share: Option<String>,
    columns: usize,
) -> String {
    let liveness = ProcessLiveness::Alive;
    let (states, spent) = (states_of(view, liveness), view.total());
    let has_calls = spent.calls > 0;
    let tokens = has_calls.then(|| spent.tokens_short());
    let cost = has_calls.then(|| spent.money());
    let time = Some(time(view, now, liveness));
    let joined = |parts: &[&Option<String>]| {
        let parts = states.iter().cloned().chain(parts.iter().filter_map(|it| (*it).clone()));
        parts.collect::<Vec<_>>().join(" · ")
    };
    let shorter = [
        joined(&[&tokens, &cost, &time, &share]),
        joined(&[&cost, &time, &share]),
        joined(&[&cost, &time]),
        joined(&[&cost]),
    ];
    if let Some(text) = shorter.into_iter().find(|text| width(text) <= columns) {
        return text;
    }
    let first = cost.into_iter().chain(states);
    cut(&first.collect::<Vec<_>>().join(" · "), columns)
}

/// Returns what the subagents of a run are doing, after a warning that it has no sandbox, which is to be seen even in a
/// narrow window.
fn states_of(view: &RunView, liveness: ProcessLiveness) -> Vec<String> {
    let all = view.outcomes();
    let off = (view.sandbox() == Some("off")).then(|| "sandbox off".to_owned());
    let states = (all.total() > 0).then(|| {
        format!("{}: {}", count_with_noun(all.total(), "subagent"), all.words_in(liveness))
    });
    off.into_iter().chain(states).collect()
}

/// Shorter waits for a person are not shown separately.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Returns how long a run took, with the time it waited for a person shown separately.
pub(crate) fn time(view: &RunView, now: Timestamp, liveness: ProcessLiveness) -> String {
    let (all, waited) = (view.elapsed(now, liveness), view.waited(now, liveness));
    if waited < SHORT_WAIT {
        return elapsed(all);
    }
    let worked = elapsed(all.saturating_sub(waited));
    format!("{worked} at work, {} waiting for a person", elapsed(waited))
}
