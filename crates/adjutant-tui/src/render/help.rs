//! All keys of the screen, from the same table that reads them.

use adjutant_view::layout;
use adjutant_view::palette::TextStyle;
use ratatui_core::layout::Rect;

use crate::key_bindings::{BINDINGS, KeyBinding};
use crate::painter::{Painter, StyledText};
use crate::state::WatchState;

/// The columns of the keys.
const KEY_COLUMNS: usize = 8;
/// The rows that are not for keys: the heading and the last row.
const OTHER_ROWS: u16 = 2;

pub(super) fn draw(state: &WatchState, top: usize, area: Rect, painter: &mut Painter<'_>) {
    painter.text(area, 0, "Keys", Some(TextStyle::Strong));
    let rest =
        Rect { y: area.y + area.height.min(1), height: area.height.saturating_sub(1), ..area };
    let rows = usize::from(rest.height).max(1);
    if let Some(columns) = fitting_columns(state) {
        let wide = rest.width / columns;
        for (place, binding) in bindings(state).enumerate() {
            let column = u16::try_from(place / rows).unwrap_or(0);
            let part = Rect { x: rest.x + column * wide, width: wide, ..rest };
            painter.row(part, place % rows, &[keys_part(binding), (binding.long.to_owned(), None)]);
        }
        return;
    }
    let lines = wrapped(state);
    for (line, parts) in lines.iter().skip(top.min(last_top(state))).take(rows).enumerate() {
        painter.row(rest, line, parts);
    }
}

/// Returns the row from which on the keys can be scrolled no further; zero if all are shown.
pub(crate) fn last_top(state: &WatchState) -> usize {
    let rows = usize::from(state.size.1.saturating_sub(OTHER_ROWS)).max(1);
    if fitting_columns(state).is_some() { 0 } else { wrapped(state).len().saturating_sub(rows) }
}

fn bindings(state: &WatchState) -> impl Iterator<Item = &'static KeyBinding> {
    BINDINGS.iter().filter(|it| it.is_for(state.screen))
}

/// Returns in how many columns all keys fit; `None` if these would cut what the keys do. Then there is one that can be
/// scrolled.
fn fitting_columns(state: &WatchState) -> Option<u16> {
    let rows = usize::from(state.size.1.saturating_sub(OTHER_ROWS)).max(1);
    let columns = u16::try_from(bindings(state).count().div_ceil(rows)).unwrap_or(1).max(1);
    let longest = bindings(state).map(|it| layout::width(it.long)).max().unwrap_or(0);
    let needed = KEY_COLUMNS + 3 + longest;
    (usize::from(state.size.0 / columns) >= needed).then_some(columns)
}

fn keys_part(binding: &KeyBinding) -> StyledText {
    let text = layout::pad_right(&format!("  {}", binding.keys), KEY_COLUMNS + 2);
    (text, Some(TextStyle::Strong))
}

/// Returns all keys in one column, with what they do wrapped beside them.
fn wrapped(state: &WatchState) -> Vec<Vec<StyledText>> {
    let room = usize::from(state.size.0).saturating_sub(KEY_COLUMNS + 2).max(1);
    let lines_of = |binding: &'static KeyBinding| {
        let lines = layout::wrap(binding.long, room).into_iter().enumerate();
        lines.map(move |(line, text)| {
            let blank = || (" ".repeat(KEY_COLUMNS + 2), None);
            vec![if line == 0 { keys_part(binding) } else { blank() }, (text, None)]
        })
    };
    bindings(state).flat_map(lines_of).collect()
}
