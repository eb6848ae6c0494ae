//! The table of an evaluation, as text.

use adjutant_core::numbers::format_rounded;

use super::{AttemptStatistics, EvalReport};
use crate::layout::{fit, width};
use crate::time_text::elapsed;

/// The maximum width of a task's name, in columns.
const NAME_COLUMNS: usize = 32;

/// The maximum width of a model's name, in columns.
const MODEL_COLUMNS: usize = 60;

/// The headings of the columns of one configuration.
const HEADINGS: [&str; 7] = ["solved", "95 %", "cost", "tokens", "time (range)", "errors", "false"];

impl EvalReport<'_> {
    /// Returns the table: a line for each task and one for all, with two configurations side by side.
    #[must_use]
    pub fn text(&self) -> String {
        let outline = self.outline;
        let mut text = String::new();
        for it in &outline.configurations {
            let model = fit(&it.model, MODEL_COLUMNS);
            text += &format!(
                "{}: {model}, preset {}, {}\n",
                it.name,
                fit(&it.preset, NAME_COLUMNS),
                it.mode
            );
        }
        let count = outline.configurations.len();
        let mut rows: Vec<Vec<String>> = Vec::new();
        if count > 1 {
            let names = outline.configurations.iter();
            let blocks = names.flat_map(|it| {
                [it.name.clone()].into_iter().chain(HEADINGS.iter().skip(1).map(|_| String::new()))
            });
            rows.push([String::new()].into_iter().chain(blocks).collect());
        }
        let headings = (0..count).flat_map(|_| HEADINGS.iter().map(|it| (*it).to_owned()));
        rows.push(["task".to_owned()].into_iter().chain(headings).collect());
        let line = |name: &str, results: &[AttemptStatistics]| -> Vec<String> {
            let cells = results.iter().flat_map(cells);
            [fit(name, NAME_COLUMNS)].into_iter().chain(cells).collect()
        };
        rows.extend(outline.tasks.iter().zip(&self.tasks).map(|(it, all)| line(&it.name, all)));
        rows.push(line("all", &self.total));
        text.push('\n');
        text += &columns(&rows);
        text += &self.foot();
        text
    }

    /// Returns the lines below the table: what was skipped, spent and left.
    fn foot(&self) -> String {
        let mut text = String::new();
        let skipped: usize = self.total.iter().map(|it| it.skipped).sum();
        if skipped > 0 {
            text += &format!("\nskipped: {skipped} (a toolchain is missing)");
        }
        let budget = self.outline.budget_usd.map(|usd| format!(" of {usd}")).unwrap_or_default();
        text += &format!("\nspent: {}{budget}", self.spent());
        if self.left() > 0 {
            text += &format!("\nnot attempted yet: {}", self.left());
        }
        text.push('\n');
        text
    }
}

/// Returns the cells of one configuration in a line.
fn cells(it: &AttemptStatistics) -> [String; 7] {
    let Some([median, min, max]) = it.times() else {
        let why = if it.skipped > 0 { "skipped" } else { "-" };
        return [why, "", "", "", "", "", ""].map(str::to_owned);
    };
    let interval = it.interval.map(|it| format!("{}-{} %", percent(it.low), percent(it.high)));
    [
        format!("{}/{}", it.solved, it.attempts),
        interval.unwrap_or_default(),
        it.usd.map_or_else(|| "no price".to_owned(), |usd| usd.to_string()),
        format_rounded(it.tokens),
        format!("{} ({}-{})", elapsed(median), elapsed(min), elapsed(max)),
        it.tool_errors.to_string(),
        it.false_claims.to_string(),
    ]
}

fn percent(rate: f64) -> u32 {
    (rate * 100.0).round() as u32
}

/// Returns lines whose cells are aligned: the first column to the left, the others to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|it| width(it)).max();
    let widths: Vec<usize> = (0..count).map(|column| widest(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (number, (cell, wide)) in row.iter().zip(&widths).enumerate() {
            let fill = " ".repeat(wide - width(cell));
            match number {
                0 => line += &format!("{cell}{fill}"),
                _ => line += &format!("  {fill}{cell}"),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
