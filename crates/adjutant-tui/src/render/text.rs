//! The transcript or the diff of an agent.

use adjutant_view::palette::TextStyle;
use ratatui_core::layout::Rect;

use super::take_top;
use crate::painter::Painter;
use crate::state::WatchState;

pub(super) fn draw(state: &WatchState, mut area: Rect, painter: &mut Painter<'_>) {
    let Some(pane) = &state.text else { return };
    let title = take_top(&mut area, 1);
    let Some(rows) = pane.rows() else {
        painter.text(title, 0, &format!("{} · reading …", pane.title), Some(TextStyle::Strong));
        return;
    };
    let visible = usize::from(area.height);
    let last = (pane.top + visible).min(rows.len());
    let place = format!("{} · rows {} to {last} of {}", pane.title, pane.top + 1, rows.len());
    painter.text(title, 0, &place, Some(TextStyle::Strong));
    let is_diff = pane.args.first().is_some_and(|verb| verb == "diff");
    for (row, text) in rows.iter().skip(pane.top).take(visible).enumerate() {
        painter.text(area, row, text, if is_diff { diff_style(text) } else { None });
    }
}

/// Returns the style of a line of a diff; its first character says the same.
fn diff_style(line: &str) -> Option<TextStyle> {
    match line.chars().next() {
        Some('+') => Some(TextStyle::Good),
        Some('-') => Some(TextStyle::Bad),
        Some('@') => Some(TextStyle::Active),
        Some(_) | None => None,
    }
}
