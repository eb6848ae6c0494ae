//! The progress display of a live terminal.
//!
//! A [`ProgressFrame`] has what is needed to draw it once (width, time, colours); a `FrameRow` is
//! the content of one line before it is cut to the width.

use adjutant_core::{DelegationState, Outcome, Timestamp};

use super::budget::{own_budget_share, spent_percentage};
use super::words::{doing_text, total_in_columns, usage_of};
use crate::layout::{bracketed, cut, pad_right, width};
use crate::palette::{Palette, TextStyle};
use crate::run::{Delegation, OutcomeCounts, RunView};
use crate::state_words::{count_with_noun, mark};
use crate::time_text::elapsed;

/// How the display is drawn. The caller knows the terminal.
#[derive(Clone, Copy, Debug)]
pub struct ProgressFrame {
    /// The terminal's width in columns. No line is wider.
    pub width: usize,
    /// The terminal's height in lines; `None` for no limit.
    pub height: Option<usize>,
    /// The time that is shown.
    pub now: Timestamp,
    /// Whether the display is coloured.
    pub palette: Palette,
}

/// The parts of a row before layout.
struct FrameRow<'a> {
    delegation: &'a Delegation,
    indent: usize,
}

impl ProgressFrame {
    /// Draws the run: a heading, a line per subagent, and a total.
    #[must_use]
    pub fn render(&self, view: &RunView) -> String {
        let rows = Self::rows(view);
        let count = view.delegations().count();
        let heading = if count == 0 && rows.is_empty() {
            "Delegate [no subagents]".to_owned()
        } else if count == 0 {
            // The row of the root agent says everything.
            String::new()
        } else if self.height.is_some_and(|height| height < 4) {
            // The rows below say more.
            String::new()
        } else {
            format!("Delegate [{}]", count_with_noun(count, "subagent"))
        };
        let mut lines = vec![self.palette.paint(TextStyle::Strong, &cut(&heading, self.width))];
        let (shown, hidden) = self.choose(rows);
        // A label may take a third of the line; what the subagent is doing matters more.
        let label_columns = (self.width / 3).clamp(5, 34);
        let labels: Vec<String> = shown
            .iter()
            .map(|row| bracketed(row.delegation.label.as_str(), label_columns))
            .collect();
        let widths = shown.iter().zip(&labels).map(|(row, label)| row.indent + width(label));
        let column = widths.max().unwrap_or(0);
        lines.extend(
            shown.iter().zip(&labels).map(|(row, label)| self.row(view, row, label, column)),
        );
        if !hidden.is_empty() {
            let others = OutcomeCounts::of(hidden.iter().map(|row| row.delegation)).words();
            lines.push(cut(&format!("  … {} more: {others}", hidden.len()), self.width));
        }
        let room = self.width.saturating_sub(2);
        let sum = total_in_columns(view, self.now, spent_percentage(view), room);
        lines.push(self.palette.paint(TextStyle::Quiet, &cut(&format!("  {sum}"), self.width)));
        lines.retain(|line| !line.is_empty());
        if let Some(height) = self.height {
            // The total is the last line, and the first to go.
            lines.truncate(height.max(1));
        }
        lines.join("\n") + "\n"
    }

    fn rows(view: &RunView) -> Vec<FrameRow<'_>> {
        let above = view.root().map_or(0, |root| root.depth) + 1;
        view.preorder()
            .into_iter()
            .filter(|delegation| {
                // The root of a `delegate` call has no model and only waits.
                delegation.parent.is_some()
                    || delegation.model.is_some()
                    || delegation.own.calls > 0
            })
            .map(|delegation| FrameRow {
                delegation,
                indent: usize::try_from(delegation.depth.saturating_sub(above)).unwrap_or(0).min(8)
                    * 2,
            })
            .collect()
    }

    /// Chooses the rows that fit: those that wait for a person first, then running, then failed ones.
    fn choose<'a>(&self, rows: Vec<FrameRow<'a>>) -> (Vec<FrameRow<'a>>, Vec<FrameRow<'a>>) {
        // Three lines are taken: heading, total, and the count of hidden rows.
        let Some(room) = self.height.map(|height| height.saturating_sub(3).max(1)) else {
            return (rows, Vec::new());
        };
        if rows.len() <= room + 1 {
            return (rows, Vec::new());
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&place| (display_rank(rows[place].delegation), place));
        let mut is_shown = vec![false; rows.len()];
        for &place in order.iter().take(room) {
            is_shown[place] = true;
        }
        let (mut shown, mut hidden) = (Vec::new(), Vec::new());
        for (row, is_shown) in rows.into_iter().zip(is_shown) {
            if is_shown { shown.push(row) } else { hidden.push(row) }
        }
        (shown, hidden)
    }

    fn row(&self, view: &RunView, row: &FrameRow<'_>, label: &str, column: usize) -> String {
        let delegation = row.delegation;
        let start = pad_right(&format!("  {}{label}", " ".repeat(row.indent)), column + 2);
        let state = mark(&delegation.state);
        let mut tail = self.tail(view, delegation);
        let taken = |tail: &str| width(&start) + 2 + width(state) + 1 + width(tail);
        // What the subagent is doing needs some space; budget, cost, time and tokens are dropped in this order.
        let is_too_wide = |tail: &str| {
            taken(tail) + width(separator(tail)) + LEAST_DOING > self.width && !tail.is_empty()
        };
        while is_too_wide(&tail.join(" ")) {
            tail.pop();
        }
        let tail = tail.join(" ");
        let space = separator(&tail);
        let room = self.width.saturating_sub(taken(&tail) + width(space));
        let doing = cut(&doing_text(view, delegation, self.now, room), room);
        let line = format!("{start}  {state} {doing}");
        if width(&line) > self.width || room == 0 {
            return cut(&line, self.width);
        }
        let painted =
            self.palette.paint(TextStyle::of(&delegation.state), &format!("{state} {doing}"));
        let tail = if tail.is_empty() { tail } else { self.palette.paint(TextStyle::Quiet, &tail) };
        let space = self.palette.paint(TextStyle::Quiet, space);
        format!("{start}  {painted}{space}{tail}").trim_end().to_owned()
    }

    /// Returns tokens, time, cost and the share of its own budget, the most important first.
    fn tail(&self, view: &RunView, delegation: &Delegation) -> Vec<String> {
        let mut parts = Vec::new();
        if delegation.own.calls > 0 {
            parts.push(usage_of(&delegation.own));
        }
        if let Some(time) = delegation.elapsed(self.now) {
            parts.push(elapsed(time));
        }
        if delegation.own.calls > 0 {
            parts.push(delegation.own.money());
        }
        parts.extend(own_budget_share(view, delegation));
        parts
    }
}

/// Returns what separates the figures of a row from the text before them. Without parentheses, a figure would read like
/// a part of the text.
fn separator(figures: &str) -> &'static str {
    match figures.chars().next() {
        None => "",
        Some('(') => " ",
        Some(_) => " · ",
    }
}

/// The minimum width of what the subagent is doing, in columns.
const LEAST_DOING: usize = 12;

/// Ranks delegations by how interesting they are; lower is more interesting.
fn display_rank(delegation: &Delegation) -> u8 {
    match delegation.state {
        DelegationState::AwaitingApproval => 0,
        DelegationState::Running if !delegation.hosts.is_empty() => 0,
        DelegationState::Running => 1,
        DelegationState::Ended(
            Outcome::Failed
            | Outcome::Blocked
            | Outcome::Refused
            | Outcome::Partial
            | Outcome::Cancelled,
        ) => 2,
        DelegationState::Queued => 3,
        DelegationState::Ended(Outcome::Completed) => 4,
    }
}
