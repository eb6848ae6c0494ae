//! A result within a story, as its parent reads it: the facts first, then as much of the text as fits, then
//! where the rest is.
//!
//! Invariant: no section is longer than the tokens of one result, counted as four bytes each.
//!
//! `QuotedTexts` are the texts of the child that are quoted: summary and report, or summary, notes and last text if
//! it did not complete.

use adjutant_core::numbers::grouped;
use adjutant_core::workspace::MergeConflict;
use adjutant_core::{DelegationState, Outcome};

use super::ResultOptions;
use super::bounded_text::{BoundedText, bytes};
use super::markdown::{findings, one_line, why_code, why_word};
use crate::layout::fit;
use crate::receipt::{Receipt, verified_outcome};
use crate::run::Delegation;
use crate::sanitize;
use crate::state_words::{count_with_noun, mark};
use crate::story::{ChildMerge, files, kept_work, merge};

/// The maximum number of files listed.
const FILES_NAMED: usize = 30;
/// The maximum width of a path, a side's change or a reference, in columns.
const COLUMNS: usize = 200;

const SETTLE: &str = "**Merge**: in conflict, nothing of it is in your workspace. Settle it in your \
                      workspace: change each of these files so that both sides are served, or keep \
                      your side and say so.\n";

/// Renders the section of one child.
pub(super) fn section(
    item: &Delegation,
    advice: Option<&str>,
    options: &ResultOptions<'_>,
) -> String {
    let mut out = BoundedText::new(bytes(options.result_tokens));
    let said = QuotedTexts::of(item);
    let rest = rest(item, options);
    // Reserve room for the longest possible last line.
    let tail = out.position_leaving(cut_line(said.len(), said.len(), &rest).len());
    out.push_cut(&title(item));
    head(&mut out, item, tail);
    let quarter = out.share(1, 4).min(tail);
    changed(&mut out, item, quarter);
    let three = out.share(3, 4).min(tail);
    push_merge_state(&mut out, item, three);
    if let (Some(reason), DelegationState::Ended(outcome)) = (&item.reason, &item.state) {
        let code = why_code(reason, *outcome);
        if out.push(&format!("\n**{}**{code}:\n", why_word(*outcome)), three) {
            out.quote(reason.message.trim_end(), three);
        }
        if let Some(next) = advice {
            out.push(&format!("\n**Next step**: {}\n", fit(next, 2 * COLUMNS)), tail);
        }
    }
    for warning in &item.warnings {
        out.push(&format!("**Warning**: {}\n", fit(&warning.to_string(), COLUMNS)), tail);
    }
    let mut shown = 0;
    for (title, text) in &said.parts {
        if text.is_empty() || !out.push(&format!("\n**{title}**:\n"), tail) {
            continue;
        }
        shown += out.quote(text, tail);
    }
    if shown < said.len() {
        out.push_cut(&cut_line(shown, said.len(), &rest));
    }
    out.text
}

fn title(item: &Delegation) -> String {
    let label = sanitize::label(item.label.as_str());
    let id = item.story.as_ref().map(|id| format!("{} ", fit(id, 60))).unwrap_or_default();
    format!("### {id}[{label}] {}\n", mark(&item.state))
}

/// Renders the outcome, its code and the cost.
fn head(out: &mut BoundedText, item: &Delegation, end: usize) {
    let word = match &item.state {
        DelegationState::Ended(outcome) => outcome.word(),
        live @ (DelegationState::AwaitingApproval
        | DelegationState::Queued
        | DelegationState::Running) => live.word(),
    };
    let done = item.state == DelegationState::Ended(Outcome::Completed);
    let code = item.reason.as_ref().filter(|_| !done).map(|reason| format!(" ({})", reason.code));
    let verified = match &item.state {
        DelegationState::Ended(outcome) => verified_outcome(item, *outcome),
        DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running => {
            None
        }
    };
    let (word, code) = (verified.unwrap_or_else(|| word.to_owned()), code.unwrap_or_default());
    out.push(&format!("**Outcome**: {word}{code}\n"), end);
    if item.started.is_some() {
        let receipt = Receipt::of(item);
        out.push(&format!("**Receipt**: {}\n", receipt.line()), end);
        if let Some(files) = receipt.check_line() {
            out.push(&format!("**Changed files of the check**: {files}\n"), end);
        }
    }
    let usage = if item.own.calls > 0 {
        let (tokens, money) = (item.own.tokens_full(), item.own.money());
        format!("**Usage**: {tokens} · {money}{} · {}\n", item.own.estimate_mark(), item.session)
    } else {
        format!("**Session**: {}\n", item.session)
    };
    out.push(&usage, end);
}

/// Lists as many of the changed files as fit.
fn changed(out: &mut BoundedText, item: &Delegation, end: usize) {
    let Some(work) = kept_work(item) else { return };
    let files = files(item);
    let (added, removed) = work.lines();
    let sum = match files.len() {
        0 => "**Files changed**: none\n".to_owned(),
        some => {
            format!("**Files changed**: {}, +{added} -{removed}\n", count_with_noun(some, "file"))
        }
    };
    out.push(&sum, end);
    // Leave room for the line that counts the others.
    let last = end.saturating_sub(40);
    let mut named = 0;
    for file in files.iter().take(FILES_NAMED) {
        let lines = match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!(" +{added} -{removed}"),
            _ => String::new(),
        };
        let line = format!("- {} `{}`{lines}\n", fit(&file.how, 60), fit(&file.path, COLUMNS));
        if !out.push(&line, last) {
            break;
        }
        named += 1;
    }
    if let more @ 1.. = files.len() - named {
        out.push(&format!("- and {} more\n", grouped(more as u64)), end);
    }
    for left in work.left.iter().chain(&work.skipped).take(FILES_NAMED) {
        out.push(&format!("- left out: {}\n", fit(left, COLUMNS)), last);
    }
}

/// Returns whether the work is merged into the parent's workspace and, if not, what to do.
fn push_merge_state(out: &mut BoundedText, item: &Delegation, end: usize) {
    let files = item.merged.as_ref().map_or(0, |it| it.0.files.len());
    let kept_problem = item.kept.as_ref().and_then(|it| it.1.as_deref());
    let reference = kept_work(item).and_then(|work| work.reference.as_deref());
    match (merge(item), kept_problem) {
        (Some(ChildMerge::Merged), _) => {
            let count = count_with_noun(files, "file");
            out.push(&format!("**Merge**: merged into your workspace, {count}\n"), end);
            return;
        }
        (Some(ChildMerge::Conflict), _) => {
            out.push(SETTLE, end);
        }
        (Some(ChildMerge::Failed), _) => {
            let problem = item.merged.as_ref().and_then(|it| it.1.as_deref()).unwrap_or_default();
            let problem = fit(problem, COLUMNS);
            let text = format!("**Merge**: not merged into your workspace: {problem}\n");
            out.push(&text, end);
        }
        (None, Some(problem)) => {
            out.push(
                &format!(
                    "**Work**: could not be committed and is still in its workspace: {}\n",
                    fit(problem, COLUMNS)
                ),
                end,
            );
        }
        (None, None) if reference.is_some() => {
            out.push("**Merge**: not merged into your workspace\n", end);
        }
        (None, None) => {}
    }
    if let Some(reference) = reference {
        out.push(&format!("**Its work is in**: `{}`\n", fit(reference, COLUMNS)), end);
    }
    let clashes = item.merged.iter().flat_map(|it| &it.0.conflicts);
    let clashes: Vec<&MergeConflict> = clashes.collect();
    conflicts(out, &clashes, end);
}

/// Lists every conflict first, then quotes the child's changes; each patch gets an equal share of the room.
fn conflicts(out: &mut BoundedText, clashes: &[&MergeConflict], end: usize) {
    let mut named = 0;
    for clash in clashes {
        let line = format!("- `{}`: {}\n", fit(&clash.path, COLUMNS), fit(&clash.what, COLUMNS));
        if !out.push(&line, end.saturating_sub(40)) {
            break;
        }
        named += 1;
    }
    if let more @ 1.. = clashes.len() - named {
        out.push(&format!("- and {} more\n", grouped(more as u64)), end);
    }
    let patched = clashes.iter().filter_map(|clash| Some((clash, clash.patch.as_deref()?)));
    let patched: Vec<_> = patched.collect();
    for (place, (clash, patch)) in patched.iter().enumerate() {
        let left = end.saturating_sub(out.text.len()) / (patched.len() - place);
        let stop = out.text.len().saturating_add(left);
        let path = fit(&clash.path, COLUMNS);
        if left > path.len() + 60 && out.push(&format!("\nIts patch of `{path}`:\n"), stop) {
            out.quote(patch.trim_end(), stop);
        }
    }
}

/// The texts of a child that its result quotes, each with its heading, in reading order.
struct QuotedTexts<'a> {
    parts: Vec<(&'static str, std::borrow::Cow<'a, str>)>,
}

impl<'a> QuotedTexts<'a> {
    fn of(item: &'a Delegation) -> Self {
        let summary = item.returned.as_ref().map_or("", |it| it.summary.trim());
        let text = item.last_text.trim_end();
        // The text form of a return starts with its summary.
        let more = text.strip_prefix(summary).unwrap_or(text).trim_start_matches(['\n', '\r']);
        let mut parts = vec![("Summary", summary.into())];
        if item.state == DelegationState::Ended(Outcome::Completed) {
            parts.push(("Report", more.into()));
        } else {
            let notes = item.scratchpad();
            let differs = more.trim() != notes.trim();
            parts.push((findings(item), notes.trim_end().to_owned().into()));
            parts.push(("Last text", if differs { more } else { "" }.into()));
        }
        Self { parts }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|(_, text)| text.len()).sum()
    }
}

fn rest(item: &Delegation, options: &ResultOptions<'_>) -> String {
    options.transcript(item.session).map_or_else(
        || format!("`adjutant transcript {}`", item.session),
        |path| format!("`{}`", one_line(&path)),
    )
}

fn cut_line(shown: usize, total: usize, rest: &str) -> String {
    let (shown, total) = (grouped(shown as u64), grouped(total as u64));
    format!("\n**Cut**: {shown} of {total} bytes are shown; full text: {rest}\n")
}
