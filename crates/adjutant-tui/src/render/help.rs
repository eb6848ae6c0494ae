//! All keys of the screen, from the same table that reads them.

use adjutant_view::layout;
use adjutant_view::palette::TextStyle;
use ratatui_core::layout::Rect;

use crate::key_bindings::{BINDINGS, KeyBinding};
use crate::painter::Painter;
use crate::state::WatchState;

/// The columns of the keys.
const KEY_COLUMNS: usize = 8;

pub(super) fn draw(state: &WatchState, area: Rect, painter: &mut Painter<'_>) {
    painter.text(area, 0, "Keys", Some(TextStyle::Strong));
    let rest =
        Rect { y: area.y + area.height.min(1), height: area.height.saturating_sub(1), ..area };
    let shown: Vec<&KeyBinding> = BINDINGS.iter().filter(|it| it.is_for(state.screen)).collect();
    // On a low terminal the keys stand in two columns.
    let rows = usize::from(rest.height).max(1);
    let columns = u16::try_from(shown.len().div_ceil(rows)).unwrap_or(1).max(1);
    let wide = rest.width / columns;
    for (place, binding) in shown.into_iter().enumerate() {
        let column = u16::try_from(place / rows).unwrap_or(0);
        let part = Rect { x: rest.x + column * wide, width: wide, ..rest };
        let parts = [
            (
                layout::pad_right(&format!("  {}", binding.keys), KEY_COLUMNS + 2),
                Some(TextStyle::Strong),
            ),
            (binding.long.to_owned(), None),
        ];
        painter.row(part, place % rows, &parts);
    }
}
