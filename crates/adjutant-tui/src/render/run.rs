//! One run: its budgets, the tree of its agents with a timeline, the selected agent, and the place in the journal.

use adjutant_view::Delegation;
use adjutant_view::budget_use::{self, BudgetUnit, BudgetUse};
use adjutant_view::layout::{cut, fit, pad_right, right, width};
use adjutant_view::palette::TextStyle;
use adjutant_view::progress::total;
use adjutant_view::time_text::elapsed;
use adjutant_view::timeline::SpanKind;
use ratatui_core::layout::Rect;

use super::{first_row, take_bottom, take_top};
use crate::opened_run::OpenedRun;
use crate::painter::{Painter, StyledText};
use crate::state::WatchState;

/// From this width on, rows of the tree have a timeline.
const TIMELINE_FROM: usize = 60;
/// From this width on, a budget has all its words.
const WIDE_FROM: usize = 80;
/// From this height on, budgets and the selected agent are shown.
const DETAILS_FROM: u16 = 16;

pub(super) fn draw(state: &WatchState, mut area: Rect, painter: &mut Painter<'_>) {
    let Some(run) = &state.opened else { return };
    head(state, run, &mut area, painter);
    let has_details = area.height >= DETAILS_FROM;
    if has_details {
        for budget in budget_use::of_run(run.view()) {
            let row = take_top(&mut area, 1);
            painter.row(row, 0, &budget_row(&budget, area.width.into()));
        }
    }
    if area.height >= 4 {
        place_in_journal(run, take_bottom(&mut area, 1), painter);
    }
    if has_details && let Some(node) = run.selected_agent(&state.run_filter) {
        let rows = detail_rows(run, node, area.width.into());
        let needed = u16::try_from(rows.len() + 1).unwrap_or(u16::MAX);
        let most = area.height / 2;
        let below = take_bottom(&mut area, needed.min(most));
        painter.text(below, 0, &"─".repeat(below.width.into()), Some(TextStyle::Quiet));
        for (line, parts) in rows.iter().enumerate() {
            painter.row(below, line + 1, parts);
        }
    }
    tree(state, run, area, painter);
}

fn head(state: &WatchState, run: &OpenedRun, area: &mut Rect, painter: &mut Painter<'_>) {
    let (look, view) = (run.observed(), run.view());
    let sum = total(view, look.now, look.liveness);
    let parts =
        [(look.state_text(), Some(look.style_of(&view.state()))), (format!("  {sum}"), None)];
    painter.row(take_top(area, 1), 0, &parts);
    let asked = state.runs.iter().find(|it| it.id == run.id).map(|it| state.questions_of(it));
    if let Some(row) = asked.as_ref().and_then(|rows| rows.first()) {
        let text = format!("? {}: press a to answer", row.text);
        painter.text(take_top(area, 1), 0, &text, Some(TextStyle::Warning));
    }
    if let Some(problem) = &run.problem {
        painter.text(take_top(area, 1), 0, problem, Some(TextStyle::Bad));
    }
    if area.height >= 8 {
        let text = format!("{} · {} · {}", run.id, look.goal_or_labels(), view.workdir());
        painter.text(take_top(area, 1), 0, &text, Some(TextStyle::Quiet));
    }
}

/// Returns a budget as a bar and as numbers: spent, reserved, free.
fn budget_row(budget: &BudgetUse, wide: usize) -> Vec<StyledText> {
    let name = match budget.unit {
        BudgetUnit::Usd => "money",
        BudgetUnit::Tokens => "tokens",
    };
    let [reserved, free] = [budget.reserved, budget.free()].map(|amount| budget.text(amount));
    let spent = budget.spent_text();
    let words = if wide < WIDE_FROM {
        format!(" {spent} + {reserved} reserved, {free} free")
    } else {
        format!(" {spent} spent, {reserved} reserved, {free} free of {}", budget.text(budget.cap))
    };
    let bar = wide.saturating_sub(width(&words) + 8).min(wide / 3);
    let [spent, reserved, free] = budget.columns(bar);
    vec![
        (pad_right(name, 7), None),
        ("█".repeat(spent), Some(TextStyle::Active)),
        ("▒".repeat(reserved), Some(TextStyle::Warning)),
        ("░".repeat(free), Some(TextStyle::Quiet)),
        (words, None),
    ]
}

fn tree(state: &WatchState, run: &OpenedRun, mut area: Rect, painter: &mut Painter<'_>) {
    let wide = usize::from(area.width);
    let strip = if wide >= TIMELINE_FROM { (wide / 4).min(60) } else { 0 };
    if strip > 0 && area.height >= 6 {
        let head = take_top(&mut area, 1);
        painter.row(head, 0, &timeline_head(run, wide, strip));
    }
    let rows = run.rows(&state.run_filter);
    if rows.is_empty() {
        let is_read = run.position().1 > 0;
        let text =
            if is_read { "  no agent matches the filter" } else { "  reading the journal …" };
        painter.text(area, 0, text, Some(TextStyle::Quiet));
        return;
    }
    let selected = run.selected_agent(&state.run_filter).map(|node| node.session);
    let place = rows.iter().position(|node| Some(node.session) == selected);
    let first = first_row(place.unwrap_or(0), rows.len(), area.height.into());
    let visible = rows.iter().skip(first).take(area.height.into());
    // A label may take a third of the row; what the agent is doing matters more.
    let most = (wide / 3).clamp(6, 40);
    let names: Vec<String> = visible.clone().map(|node| name(run, node, most)).collect();
    let longest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    for (line, (node, name)) in visible.zip(names).enumerate() {
        let is_selected = place == Some(first + line);
        let start =
            format!("{}{}", if is_selected { "> " } else { "  " }, pad_right(&name, longest));
        painter.row(area, line, &tree_row(run, node, &start, wide, strip));
        if is_selected {
            // The timeline keeps its colours.
            let part = Rect { width: area.width - u16::try_from(strip).unwrap_or(0), ..area };
            painter.select(part, line);
        }
    }
}

/// Returns the heading of the timeline: its beginning, its end, and what its characters mean.
fn timeline_head(run: &OpenedRun, wide: usize, strip: usize) -> Vec<StyledText> {
    let (from, to) = run.time_range();
    let legend = SpanKind::ALL.iter().flat_map(|kind| {
        [
            (kind.mark().to_string(), Some(kind.style())),
            (format!(" {}  ", kind.word()), Some(TextStyle::Quiet)),
        ]
    });
    let mut parts: Vec<StyledText> = legend.collect();
    let taken: usize = parts.iter().map(|(text, _)| width(text)).sum();
    let room = wide - strip;
    if taken > room {
        parts = vec![(" ".repeat(room), None)];
    } else {
        parts.push((" ".repeat(room - taken), None));
    }
    let end = elapsed(to.since(from));
    parts.push((format!("0s{}", right(&end, strip.saturating_sub(2))), Some(TextStyle::Quiet)));
    parts
}

/// Returns the name of an agent, indented by its depth.
fn name(run: &OpenedRun, node: &Delegation, columns: usize) -> String {
    let top = run.view().root().map_or(0, |root| root.depth);
    let depth = usize::try_from(node.depth.saturating_sub(top)).unwrap_or(0).min(8);
    let name = run.observed().name_of(node, columns.saturating_sub(2 * depth).max(4));
    cut(&format!("{}{name}", "  ".repeat(depth)), columns)
}

fn tree_row(
    run: &OpenedRun,
    node: &Delegation,
    start: &str,
    wide: usize,
    strip: usize,
) -> Vec<StyledText> {
    let look = run.observed();
    let mut figures = look.figures_of(node);
    let room = wide.saturating_sub(strip + width(start) + 1);
    // Tokens go first, then the cost, then the time.
    while !figures.is_empty() && width(&figures.join(" ")) + LEAST_ACTIVITY > room {
        figures.pop();
    }
    let figures = figures.join(" ");
    let tail = if figures.is_empty() { String::new() } else { format!(" {figures} ") };
    let room = room.saturating_sub(width(&tail));
    let doing = fit(&look.activity_line(node, room.saturating_sub(2)), room);
    let mut parts = vec![
        (format!("{start} "), None),
        (pad_right(&doing, room), Some(look.style_of(&node.state))),
        (tail, Some(TextStyle::Quiet)),
    ];
    if strip > 0 {
        let taken: usize = parts.iter().map(|(text, _)| width(text)).sum();
        parts.push((" ".repeat((wide - strip).saturating_sub(taken)), None));
        parts.extend(strip_parts(run, node, strip));
    }
    parts
}

/// The least columns of what an agent is doing; beside it, figures are dropped.
const LEAST_ACTIVITY: usize = 18;

/// Returns the timeline of one agent, equal columns joined.
fn strip_parts(run: &OpenedRun, node: &Delegation, columns: usize) -> Vec<StyledText> {
    let now = run.observed().now;
    let strip = run.timeline().strip(node.session, run.time_range(), now, columns);
    let part = |kinds: &[Option<SpanKind>]| match kinds[0] {
        Some(kind) => (kind.mark().to_string().repeat(kinds.len()), Some(kind.style())),
        None => (" ".repeat(kinds.len()), None),
    };
    strip.chunk_by(|a, b| a == b).map(part).collect()
}

/// Returns what is known about the selected agent.
fn detail_rows(run: &OpenedRun, node: &Delegation, wide: usize) -> Vec<Vec<StyledText>> {
    let text = run.observed().delegation_text(node);
    let mut rows = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let style = (place == 0).then_some(TextStyle::Strong);
        rows.push(vec![(line.to_owned(), style)]);
        if place == 0 && node.own.calls > 0 {
            rows.extend(
                budget_use::of_delegation(run.view(), node).iter().map(|it| budget_row(it, wide)),
            );
        }
    }
    rows
}

/// Draws which event is shown, as a scrubber over the journal.
fn place_in_journal(run: &OpenedRun, area: Rect, painter: &mut Painter<'_>) {
    let (shown, all) = run.position();
    if all == 0 {
        return;
    }
    let wide = usize::from(area.width / 4).min(40);
    let done = (shown * wide).div_ceil(all).min(wide);
    let parts = [
        ("─".repeat(done.saturating_sub(1)), Some(TextStyle::Active)),
        ("█".to_owned(), Some(TextStyle::Strong)),
        ("─".repeat(wide.saturating_sub(done.max(1))), Some(TextStyle::Quiet)),
        (format!(" event {shown} of {all} "), None),
        if run.is_in_past() {
            let (from, _) = run.time_range();
            let at = elapsed(run.view().latest().at.since(from));
            let line = run.event_line().unwrap_or_default();
            (format!("at {at}, space: newest · {line}"), Some(TextStyle::Warning))
        } else {
            (run.event_line().unwrap_or_default(), Some(TextStyle::Quiet))
        },
    ];
    painter.row(area, 0, &parts);
}
