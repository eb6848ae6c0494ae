//! The report on stories as text.

use std::fmt::Write;
use std::time::Duration;

use adjutant_core::{DelegationState, ErrorCode, Outcome};

use super::{ChildMerge, ChildReport, StoryReport, total, worked_on_now};
use crate::layout::{bracketed, fit, fit_ends, some_of};
use crate::run::{ESTIMATE_NOTE, Spend};
use crate::sanitize;
use crate::state_words::{code_words_of, count_with_noun, ended_word, mark};
use crate::time_text::elapsed;

/// The maximum width of an untrusted text within a line, in columns.
const TEXT_COLUMNS: usize = 160;
/// The maximum width of the reason why a story ended, in columns; it names the file that is in the way at its
/// end.
const WHY_COLUMNS: usize = 600;
/// The number of files listed.
const FILES_NAMED: usize = 10;

/// Renders the outcomes of stories, with the totals in the last line. Commands are in backticks.
#[must_use]
pub fn render(reports: &[StoryReport]) -> String {
    let mut text = String::new();
    for report in reports {
        text.push_str(&story(report));
        text.push('\n');
    }
    let passed = reports.iter().filter(|report| report.passes).count();
    let took = worked_on_now(reports).map(|report| report.elapsed_s).sum();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "{} of {}: {} · {}{}",
        passed,
        counted_stories(reports.len()),
        spend_text(&total(reports)),
        time(took),
        uncounted_stories_text(reports)
    );
    if total(reports).is_estimated() {
        let _ = writeln!(text, "{ESTIMATE_NOTE}");
    }
    text
}

fn counted_stories(count: usize) -> String {
    if count == 1 { "1 story passes".into() } else { format!("{count} stories pass") }
}

/// Returns how many stories are not included in the spending.
fn uncounted_stories_text(reports: &[StoryReport]) -> String {
    match (reports.len() - worked_on_now(reports).count(), reports.len()) {
        (0, _) => String::new(),
        (all, of) if all == of => " (finished earlier, nothing was spent now)".into(),
        (some, _) => format!(" (cost and time without {some} finished earlier)"),
    }
}

fn story(report: &StoryReport) -> String {
    let state = report.outcome.map_or(DelegationState::Running, DelegationState::Ended);
    let sign = if report.outcome.is_none() { "!" } else { mark(&state) };
    let id = fit(&report.id, 48);
    let mut text = format!("{sign} {id} {}: {}\n", fit(&report.title, 80), verdict(report));
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "{}", format!("  {title:<9}{value}").trim_end());
    };
    let is_why = report.reason.as_ref().is_some_and(|reason| reason.message == report.summary);
    let columns = if is_why { WHY_COLUMNS } else { TEXT_COLUMNS };
    line("summary", &fit(&sanitize::collapsed(&report.summary), columns));
    if let Some(reason) = report.reason.as_ref().filter(|reason| reason.message != report.summary) {
        line("why", &fit_ends(&sanitize::collapsed(&reason.message), TEXT_COLUMNS));
    }
    line("receipt", &report.receipt.line());
    if let Some(files) = report.receipt.check_line() {
        line("check", &format!("changed files of the check: {files}"));
    }
    line("work", &work(report));
    for file in report.files.iter().take(FILES_NAMED) {
        let lines = match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!(" +{added} -{removed}"),
            _ => String::new(),
        };
        line("", &format!("{} {}{lines}", fit(&file.how, 40), fit(&file.path, 100)));
    }
    if let more @ 1.. = report.files.len().saturating_sub(FILES_NAMED) {
        line("", &format!("and {more} more"));
    }
    if !report.left_out.is_empty() {
        line("", &format!("left out: {}", some_of(&report.left_out)));
    }
    if let Some(branch) = &report.branch {
        line("branch", &fit(branch, 120));
    }
    for child in &report.children {
        line("child", &child_words(child));
        // A refusal names the attempt and the limit, so it is shown completely.
        let refusal = child.reason.as_ref().filter(|_| child.outcome == Some(Outcome::Refused));
        for said in refusal.iter().flat_map(|reason| reason.message.lines()) {
            line("", format!("  {}", fit(said, TEXT_COLUMNS)).trim_end());
        }
        for conflict in &child.conflicts {
            line("", &format!("  {}", fit(conflict, TEXT_COLUMNS)));
        }
    }
    for marker in &report.unread_markers {
        line("not run", &fit(&sanitize::collapsed(marker), TEXT_COLUMNS));
    }
    for remark in &report.remarks {
        line("note", &sanitize::collapsed(remark));
    }
    line("spent", &spent_words(report));
    if let Some(command) = &report.resume {
        line("resume", &format!("`{command}`"));
    }
    if let Some(command) = &report.again {
        line("restart", &format!("`{command}`"));
        let reason = report.reason.as_ref();
        let advice = reason.map(|reason| reason.recommendation.as_str()).unwrap_or_default();
        // The command that raises a budget is shown above.
        if report.resume.is_none() {
            line("", &fit(&sanitize::collapsed(advice), TEXT_COLUMNS));
        }
        if reason.is_some_and(|reason| reason.code == ErrorCode::ContextExhausted.as_str()) {
            line("", "To raise the limit, add --set context_tokens=N.");
        }
    }
    if let Some(command) = &report.merge {
        line("merge", &format!("`{command}`"));
    }
    if let Some(command) = &report.undo {
        line("merged", &format!("into your files; `{command}` undoes it"));
    }
    text
}

/// Returns whether a story passes, and how that was decided.
fn verdict(report: &StoryReport) -> String {
    if report.passes {
        let how = match (report.verified, &report.verify) {
            (Some(true), _) => "verified",
            (Some(false) | None, Some(_)) => "not verified",
            (Some(false) | None, None) => "not verified: no verify command",
        };
        return format!("passes, {how}");
    }
    let word = report.outcome.map_or("interrupted", ended_word);
    let why = report.reason.as_ref().map(|reason| format!(" ({})", code_words_of(reason.code)));
    let checked = match (report.verified, &report.verify) {
        _ if report.unallowed => ", its verify command was not allowed: --trust-prd allows it",
        (Some(false), _) if is_of_check(report) => ", does not pass its verify command",
        // The agent's later work was not verified.
        (Some(false), _) => ", did not pass its verify command when that was last run",
        (None, Some(_)) if report.outcome == Some(Outcome::Completed) => {
            ", its verify command was not run"
        }
        (Some(true) | None, _) => "",
    };
    format!("{word}{}{checked}", why.unwrap_or_default())
}

/// Returns whether the story ended because of its verify command, so that the result applies to its work.
fn is_of_check(report: &StoryReport) -> bool {
    report.reason.as_ref().is_none_or(|reason| reason.code == ErrorCode::BuildError.as_str())
}

fn work(report: &StoryReport) -> String {
    if let Some(problem) = &report.problem {
        return format!(
            "could not be committed and is still in its workspace: {}",
            fit_ends(problem, TEXT_COLUMNS)
        );
    }
    let Some(reference) = &report.reference else { return "nothing was changed".into() };
    format!(
        "{}, +{} -{}, in {}",
        count_with_noun(report.files.len(), "file"),
        report.added,
        report.removed,
        fit(reference, 120)
    )
}

fn child_words(child: &ChildReport) -> String {
    let state = child.outcome.map_or(DelegationState::Running, DelegationState::Ended);
    let sign = if child.outcome.is_none() { "!" } else { mark(&state) };
    let indent = "  ".repeat(usize::try_from(child.depth.saturating_sub(1)).unwrap_or(0).min(8));
    let id = child.id.as_ref().map(|id| format!("{} ", fit(id, 48))).unwrap_or_default();
    let done = child.outcome == Some(Outcome::Completed);
    let why = child.reason.as_ref().filter(|_| !done);
    let word = child.outcome.map_or("interrupted", ended_word);
    let code = why.map(|reason| format!(" ({})", code_words_of(reason.code)));
    let mut parts = vec![format!("{word}{}", code.unwrap_or_default())];
    if let Some(work) = &child.work {
        // The kind of a workspace is irrelevant once it is gone.
        parts.extend(work.words().into_iter().filter(|word| Some(word.as_str()) != work.workspace));
    }
    if child.inclusive.calls > 0 {
        parts.push(money(&child.own, &child.inclusive));
    }
    if let Some(reason) = why.filter(|_| child.outcome != Some(Outcome::Refused)) {
        parts.push(fit_ends(&sanitize::collapsed(&reason.message), TEXT_COLUMNS));
    }
    let is_above = child.work.as_ref().is_some_and(|work| work.merge == Some(ChildMerge::Merged));
    let left = child.work.as_ref().and_then(|work| work.reference.as_ref()).filter(|_| !is_above);
    parts.extend(left.map(|reference| format!("its work is in {}", fit(reference, 120))));
    format!("{indent}{sign} {id}{} {}", bracketed(&child.label, 34), parts.join(" · "))
}

fn spent_words(report: &StoryReport) -> String {
    let tokens = report.inclusive.tokens_full();
    let money = money(&report.own, &report.inclusive);
    let when = if report.earlier { ", by an earlier command" } else { "" };
    format!("{tokens} · {money} · {}{when}", time(report.elapsed_s))
}

fn money(own: &Spend, all: &Spend) -> String {
    let (own_money, money) = (own.money(), all.money());
    if own.calls == 0 || own_money == money {
        return money;
    }
    format!("{money} ({own_money} own)")
}

fn spend_text(spend: &Spend) -> String {
    format!("{} · {}", spend.tokens_full(), spend.money())
}

fn time(seconds: f64) -> String {
    elapsed(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
