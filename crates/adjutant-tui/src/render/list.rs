//! The list of runs, and below it what the selected run is doing.

use std::time::Duration;

use adjutant_view::layout::{pad_right, right, width};
use adjutant_view::palette::TextStyle;
use adjutant_view::progress::total;
use adjutant_view::time_text::age;
use adjutant_view::{Delegation, ProcessLiveness};
use ratatui_core::layout::Rect;

use super::{first_row, take_bottom, take_top};
use crate::painter::{Painter, StyledText};
use crate::run_list::{ListRow, ListedRun};
use crate::state::WatchState;

/// From this height on, the selected run is described below the list.
const PREVIEW_FROM: u16 = 16;
/// From this width on, a row has the cost of its run.
const COST_FROM: u16 = 50;
/// The least columns of a state.
const STATE_COLUMNS: usize = 13;

pub(super) fn draw(state: &WatchState, mut area: Rect, painter: &mut Painter<'_>) {
    let rows = state.list_rows();
    let head = take_top(&mut area, 1);
    painter.row(head, 0, &heading(state));
    if area.height >= PREVIEW_FROM {
        let below = take_bottom(&mut area, PREVIEW_FROM / 2);
        preview(state, below, painter);
    }
    if state.runs.is_empty() && rows.is_empty() {
        let text = if state.is_loading {
            "  reading …"
        } else {
            "  No runs yet. `adjutant demo` makes one."
        };
        painter.text(area, 0, text, Some(TextStyle::Quiet));
        return;
    }
    let states = state.runs.iter().map(|run| width(&run.observed().state_text()));
    let state_columns = states.max().unwrap_or(0).max(STATE_COLUMNS);
    let selected = state.selected_id();
    let place = rows.iter().position(|row| row.key().is_some() && row.key() == selected);
    let first = first_row(place.unwrap_or(0), rows.len(), area.height.into());
    let has_run = rows.iter().any(|row| matches!(row, ListRow::Run(_)));
    if !has_run && !state.list_filter.is_empty() {
        painter.text(area, rows.len(), "  no run matches the filter", Some(TextStyle::Quiet));
    }
    for (line, row) in rows.iter().skip(first).take(area.height.into()).enumerate() {
        let is_selected = place == Some(first + line);
        let mark = if is_selected { "> " } else { "  " };
        let parts = match row {
            ListRow::Heading(text) => vec![(text.clone(), Some(TextStyle::Strong))],
            ListRow::Question(row) => {
                vec![(format!("{mark}? {}", row.text), Some(TextStyle::Warning))]
            }
            ListRow::Run(run) => run_row(state, run, mark, (area.width, state_columns)),
        };
        painter.row(area, line, &parts);
        if is_selected {
            painter.select(area, line);
        }
    }
}

fn heading(state: &WatchState) -> Vec<StyledText> {
    let live = state.runs.iter().filter(|run| run.liveness == ProcessLiveness::Alive).count();
    let mut said = vec![format!("{live} live")];
    let waiting = state.inbox().len();
    if waiting > 0 {
        said.push(format!("{waiting} waiting for you"));
    }
    if state.hidden_runs > 0 {
        said.push(format!("{} older runs not shown", state.hidden_runs));
    }
    if state.unreadable_runs > 0 {
        said.push(format!("{} cannot be read", state.unreadable_runs));
    }
    vec![("Runs".to_owned(), Some(TextStyle::Strong)), (format!("  {}", said.join(" · ")), None)]
}

fn run_row(
    state: &WatchState,
    run: &ListedRun,
    mark: &str,
    (wide, state_columns): (u16, usize),
) -> Vec<StyledText> {
    let look = run.observed();
    let began = run.view.started_at().map_or(state.wall_ms, |moment| moment.wall_ms);
    let age = age(Duration::from_millis(state.wall_ms.saturating_sub(began)));
    let style = look.style_of(&run.view.state());
    let mut parts = vec![
        (mark.to_owned(), None),
        (pad_right(&look.state_text(), state_columns), Some(style)),
        (format!(" {}", right(&age, 4)), Some(TextStyle::Quiet)),
    ];
    if wide >= COST_FROM {
        parts.push((format!(" {}", right(&run.view.total().money(), 9)), None));
    }
    parts.push((format!("  {}", look.goal_or_labels()), None));
    parts
}

/// Draws what the selected run is doing: the agents that work or wait, then the others.
fn preview(state: &WatchState, mut area: Rect, painter: &mut Painter<'_>) {
    let wide = usize::from(area.width);
    painter.text(area, 0, &"─".repeat(wide), Some(TextStyle::Quiet));
    take_top(&mut area, 1);
    let Some(run) = state.selected_run() else { return };
    let look = run.observed();
    let text = format!("{} · {}", run.id, total(&run.view, run.now, run.liveness));
    painter.text(area, 0, &text, None);
    take_top(&mut area, 1);
    let mut nodes = run.view.preorder();
    nodes.retain(|node| node.parent.is_some() || node.model.is_some());
    // Stable, so that agents keep their order while they work.
    nodes.sort_by_key(|node| !node.state.is_live());
    let room = usize::from(area.height);
    let shown = if nodes.len() > room { room.saturating_sub(1) } else { room };
    for (line, node) in nodes.iter().take(shown).enumerate() {
        painter.row(area, line, &agent_row(&look, node, wide));
    }
    if nodes.len() > shown {
        let text = format!("  … {} more; enter shows all", nodes.len() - shown);
        painter.text(area, shown, &text, Some(TextStyle::Quiet));
    }
}

fn agent_row(
    look: &adjutant_view::status::ObservedRun<'_>,
    node: &Delegation,
    wide: usize,
) -> Vec<StyledText> {
    let name = look.name_of(node, (wide / 3).clamp(8, 34));
    let doing = look.activity_line(node, wide);
    vec![
        (format!("  {name} "), None),
        (format!("{doing}  "), Some(look.style_of(&node.state))),
        (look.figures_of(node).join(" "), Some(TextStyle::Quiet)),
    ]
}
