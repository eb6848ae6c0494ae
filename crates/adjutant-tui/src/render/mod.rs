//! Draws the state. Only visible rows are formatted.
//!
//! Start at [`render`]. Each screen has its own file. Invariant: any size can be drawn, down to nothing.

mod help;
mod list;
mod run;
mod text;

pub(crate) use help::last_top;

use adjutant_view::layout;
use adjutant_view::palette::TextStyle;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use crate::key_bindings::{BINDINGS, KeyBinding};
use crate::obstacle::{SelectedWork, is_offered};
use crate::painter::{Painter, StyledText, to_ascii};
use crate::state::{WatchOverlay, WatchScreen, WatchState};

/// Draws the state into `area`.
pub fn render(state: &WatchState, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    let mut painter = Painter::new(buffer, state.palette);
    let body = Rect { height: area.height.saturating_sub(1), ..area };
    match (state.screen, &state.overlay) {
        (_, Some(WatchOverlay::Help(top))) => help::draw(state, *top, body, &mut painter),
        (WatchScreen::List, _) => list::draw(state, body, &mut painter),
        (WatchScreen::Run, _) => run::draw(state, body, &mut painter),
        (WatchScreen::Text, _) => text::draw(state, body, &mut painter),
    }
    let bottom = Rect { y: area.y + body.height, height: area.height.min(1), ..area };
    painter.row(bottom, 0, &bottom_line(state, area.width.into()));
    if !state.is_utf8 {
        to_ascii(buffer);
    }
}

/// Returns the last row: a question, a message, or the keys.
fn bottom_line(state: &WatchState, wide: usize) -> Vec<StyledText> {
    let filter = match state.screen {
        WatchScreen::Run => &state.run_filter,
        WatchScreen::List | WatchScreen::Text => &state.list_filter,
    };
    match (&state.overlay, &state.message) {
        (Some(WatchOverlay::Confirm(command)), _) => {
            let typed = format!("adjutant {}", command.args.join(" "));
            let text = format!("Run `{typed}`? y runs it, any other key goes back");
            // On a narrow terminal the keys are more important than the whole id.
            let text = if layout::width(&text) > wide {
                let verb = command.args.first().map_or("", |verb| verb);
                let room = wide.saturating_sub(layout::width(verb) + " ? y/n".len());
                format!("{verb} {}? y/n", layout::cut(&command.target, room))
            } else {
                text
            };
            vec![(text, Some(TextStyle::Warning))]
        }
        (Some(WatchOverlay::Filter), _) => {
            vec![
                (format!("/{filter}_"), None),
                ("  enter keeps it, esc clears it".to_owned(), Some(TextStyle::Quiet)),
            ]
        }
        (Some(WatchOverlay::Help(_)), _) => {
            let text =
                if last_top(state) > 0 { "down: more esc: back" } else { "any key goes back" };
            vec![(text.to_owned(), Some(TextStyle::Quiet))]
        }
        (None, Some(message)) => vec![(message.clone(), Some(TextStyle::Warning))],
        (None, None) => key_line(state, filter, wide),
    }
}

/// Returns the keys that apply to what is selected, as far as they fit; help and quit always do.
fn key_line(state: &WatchState, filter: &str, wide: usize) -> Vec<StyledText> {
    let filter = if filter.is_empty() || state.screen == WatchScreen::Text {
        String::new()
    } else {
        format!("filter: {filter}  ")
    };
    let work = SelectedWork::of(state);
    let is_of_use =
        |it: &&KeyBinding| !it.short.is_empty() && is_offered(state, work.as_ref(), it.command);
    let shown = BINDINGS.iter().filter(|it| it.is_for(state.screen)).filter(is_of_use);
    let (last, first): (Vec<_>, Vec<_>) =
        shown.partition(|it| ["help", "quit"].contains(&it.short));
    let columns = |key: &str, word: &str| layout::width(key) + layout::width(word) + 3;
    // The last word needs no blanks behind it.
    let mut room = (wide + 2).saturating_sub(
        layout::width(&filter) + last.iter().map(|it| columns(it.keys, it.short)).sum::<usize>(),
    );
    let fits = |it: &&&KeyBinding| {
        let needed = columns(it.keys, it.short);
        let fits = needed <= room;
        room = if fits { room - needed } else { 0 };
        fits
    };
    let first: Vec<_> = first.iter().filter(fits).copied().collect();
    let parts = first.into_iter().chain(last).flat_map(|it| {
        [
            (it.keys.to_owned(), Some(TextStyle::Strong)),
            (format!(" {}  ", it.short), Some(TextStyle::Quiet)),
        ]
    });
    [(filter, Some(TextStyle::Warning))].into_iter().chain(parts).collect()
}

/// Returns the first row to show so that the selected one is visible, as near to the middle as possible.
fn first_row(selected: usize, count: usize, visible: usize) -> usize {
    selected.saturating_sub(visible / 2).min(count.saturating_sub(visible))
}

/// Takes rows from the top of an area.
fn take_top(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let top = Rect { height: rows, ..*area };
    (area.y, area.height) = (area.y + rows, area.height - rows);
    top
}

/// Takes rows from the bottom of an area.
fn take_bottom(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    area.height -= rows;
    Rect { y: area.y + area.height, height: rows, ..*area }
}
