//! The full text of an approval question.

use std::fmt::Write;
use std::time::Duration;

use adjutant_core::numbers::grouped;
use adjutant_core::{Grant, WriteScope};

use super::whole_run::verify_words;
use super::{ApprovalQuestion, LABEL_COLUMNS, is_priced};
use crate::layout::{bracketed, columns, excerpt, fit, pad_right, width, wrap};
use crate::run::{DelegationWarning, warnings};
use crate::sanitize;
use crate::state_words::count_with_noun;
use crate::time_text::elapsed;

/// The number of characters shown from the start and the end of a goal.
const HEAD_CHARS: usize = 240;
const TAIL_CHARS: usize = 120;
/// The maximum width of the tools that commands see, in columns.
const TOOLS_COLUMNS: usize = 240;
/// The minimum width of a goal, in columns, even on a narrow terminal.
pub(super) const LEAST_COLUMNS: usize = 20;

impl ApprovalQuestion {
    /// Returns the full question for a terminal of `columns_wide` columns.
    #[must_use]
    pub fn text(&self, columns_wide: usize) -> String {
        let mut text = format!("{}\n\n", self.heading());
        text.push_str(&self.goals(columns_wide));
        if !self.grants.is_empty() {
            text.push('\n');
            text.push_str(&wrapped_rows(&self.detail_rows(), columns_wide));
        }
        let wish = |wish: &String| format!("  {}\n", fit(wish, HEAD_CHARS));
        let unallowed = self.unallowed.iter().map(wish).collect();
        for (title, lines) in [
            ("Warnings", self.warnings()),
            ("Refused", self.refusals()),
            ("Requested by the PRD, but ignored because you have not allowed it", unallowed),
        ] {
            if !lines.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n{title}\n{}", lines.concat());
            }
        }
        text
    }

    /// Goals are wrapped and indented here. If the terminal wrapped them, a goal padded with spaces could
    /// place its own words at the start of a line.
    fn goals(&self, columns_wide: usize) -> String {
        let label = |grant: &Grant| bracketed(grant.brief.label.as_str(), LABEL_COLUMNS);
        let to = self.grants.iter().map(|grant| width(&label(grant))).max().unwrap_or(0);
        let room = columns_wide.saturating_sub(to + 4).max(LEAST_COLUMNS);
        let mut text = String::new();
        for grant in &self.grants {
            let mut start = pad_right(&label(grant), to);
            for line in wrap(&head_and_tail(&grant.brief.prompt), room) {
                let _ = writeln!(text, "  {start}  {line}");
                start = " ".repeat(to);
            }
        }
        text
    }

    /// Returns one row each for tools, models, the worst case and the budget.
    fn detail_rows(&self) -> Vec<Vec<String>> {
        let mut rows = grouped_rows("Tools", &self.grants, |grant| {
            let network = if grant.rights.network { "network" } else { "no network" };
            let writes = match &grant.rights.writes {
                WriteScope::Nowhere => String::new(),
                writes @ (WriteScope::Below(_) | WriteScope::Own | WriteScope::Anywhere) => {
                    format!("; writes {writes}")
                }
            };
            format!("{}; {network}{writes}", grant.rights.usable_tools())
        });
        if let Some(tools) = self.tools_of_commands() {
            rows.push(vec!["Commands see".into(), fit(tools, TOOLS_COLUMNS)]);
        }
        rows.extend(grouped_rows("Model", &self.grants, |grant| {
            let name = grant.brief.model.as_ref().map_or("none", |model| model.name.as_str());
            fit(name, 80)
        }));
        if self.grants.iter().any(|grant| grant.brief.verify.is_some()) {
            rows.extend(grouped_rows("Verify", &self.grants, |grant| {
                grant.brief.verify.as_ref().map_or_else(|| "no command".to_owned(), verify_words)
            }));
        }
        rows.push(vec!["Worst case".into(), self.worst_words()]);
        rows.extend(self.expected_rows());
        rows.push(vec!["Budget".into(), self.budget_words()]);
        if let Some(limit) = self.policy.approve_below_usd {
            let words = match self.why_asked() {
                None => format!(
                    "not needed: the worst case is within the {limit} for automatic approval"
                ),
                Some(why) => format!("needed: {why}"),
            };
            rows.push(vec!["Approval".into(), words]);
        }
        if let Some(whole) = &self.whole {
            let base_depth = self.grants.first().map_or(0, |root| root.depth);
            rows.extend(whole.rows(&self.policy, base_depth));
            return rows;
        }
        let places = self.grants.first().map_or(0, |grant| grant.places);
        rows.push(vec!["Parallel".into(), format!("{} at a time", grouped(places))]);
        rows
    }

    /// Returns what the tasks usually consume: one row if all tasks are alike, otherwise one per task.
    fn expected_rows(&self) -> Vec<Vec<String>> {
        let Some(first) = self.expected.first() else { return Vec::new() };
        let tasks = self.expected.len();
        if self.expected.iter().all(|it| it == first) {
            let basis = first.basis(tasks).map(|words| vec![String::new(), words]);
            let row = vec!["Expected".to_owned(), first.text(tasks)];
            return std::iter::once(row).chain(basis).collect();
        }
        let mut expected = self.expected.iter();
        grouped_rows("Expected", &self.grants, |_| {
            let Some(it) = expected.next() else { return String::new() };
            let basis = it.basis(1).map(|words| format!(", {words}")).unwrap_or_default();
            format!("{}{basis}", it.text(1))
        })
    }

    fn worst_words(&self) -> String {
        let (amount, seconds) = self.worst();
        let tokens = token_limit(Some(amount.tokens).filter(|tokens| *tokens < u64::MAX));
        let unpriced = self.grants.iter().filter(|grant| !is_priced(grant)).count();
        let money = if unpriced == self.grants.len() {
            "cost unknown (no price for the model)".into()
        } else if unpriced > 0 {
            format!(
                "{} plus {} without a known price",
                amount.usd,
                count_with_noun(unpriced, "subagent")
            )
        } else {
            amount.usd.to_string()
        };
        let time = seconds.map_or_else(
            || "no time limit".into(),
            |seconds| elapsed(Duration::from_secs(seconds)),
        );
        format!("{tokens}, {money}, {time}")
    }

    fn budget_words(&self) -> String {
        let usd =
            self.policy.budget_usd.map_or_else(|| "no cost limit".into(), |usd| usd.to_string());
        format!(
            "{} per subagent; {} and {usd} for the whole run",
            token_limit(self.policy.budget_tokens),
            token_limit(self.policy.budget_tokens_run),
        )
    }

    fn warnings(&self) -> Vec<String> {
        let of_grant = |grant: &Grant| {
            let label = bracketed(grant.brief.label.as_str(), LABEL_COLUMNS);
            let warnings = warnings(grant).into_iter();
            let line = move |warning: DelegationWarning| {
                format!("  {label} {}\n", fit(&warning.to_string(), 200))
            };
            warnings.map(line).collect::<Vec<_>>()
        };
        self.grants.iter().flat_map(of_grant).collect()
    }

    fn refusals(&self) -> Vec<String> {
        self.refused
            .iter()
            .map(|task| {
                let label = bracketed(task.label.as_str(), LABEL_COLUMNS);
                let reason = &task.reason;
                let message = excerpt(&sanitize::collapsed(&reason.message), HEAD_CHARS);
                let next = excerpt(&sanitize::collapsed(&reason.recommendation), HEAD_CHARS);
                format!("  {label} {}: {message}\n    {next}\n", reason.code)
            })
            .collect()
    }
}

fn token_limit(tokens: Option<u64>) -> String {
    tokens.map_or_else(|| "no token limit".into(), |tokens| format!("{} tokens", grouped(tokens)))
}

/// Formats rows of a title and a value. A value that is too wide is wrapped below itself.
fn wrapped_rows(rows: &[Vec<String>], columns_wide: usize) -> String {
    let titles = rows.iter().filter_map(|row| row.first()).map(|title| width(title)).max();
    let room = columns_wide.saturating_sub(titles.unwrap_or(0) + 2).max(LEAST_COLUMNS);
    let mut lines = Vec::new();
    for row in rows {
        let [title, value] = row.as_slice() else { continue };
        let mut title = title.clone();
        for line in wrap(value, room) {
            lines.push(vec![std::mem::take(&mut title), line]);
        }
    }
    columns(&lines, &[])
}

/// Returns one row if all tasks have the same value, otherwise one row per task.
fn grouped_rows(
    title: &str,
    grants: &[Grant],
    say: impl FnMut(&Grant) -> String,
) -> Vec<Vec<String>> {
    let said: Vec<String> = grants.iter().map(say).collect();
    if said.windows(2).all(|pair| pair[0] == pair[1]) {
        return said.into_iter().take(1).map(|words| vec![title.to_owned(), words]).collect();
    }
    let rows = grants.iter().zip(said).enumerate();
    rows.map(|(place, (grant, words))| {
        let title = if place == 0 { title } else { "" };
        let label = bracketed(grant.brief.label.as_str(), LABEL_COLUMNS);
        vec![title.to_owned(), format!("{label} {words}")]
    })
    .collect()
}

/// Returns a goal on one line. If it is long, returns its start and end and the number of characters between
/// them.
pub(super) fn head_and_tail(goal: &str) -> String {
    let lines: Vec<String> =
        goal.lines().map(sanitize::collapsed).filter(|line| !line.is_empty()).collect();
    let safe = lines.join("⏎");
    let count = safe.chars().count();
    if count <= HEAD_CHARS + TAIL_CHARS {
        return safe;
    }
    let head: String = safe.chars().take(HEAD_CHARS).collect();
    let tail: String = safe.chars().skip(count - TAIL_CHARS).collect();
    let between = grouped((count - HEAD_CHARS - TAIL_CHARS) as u64);
    format!("{head} … {between} characters left out … {tail}")
}
