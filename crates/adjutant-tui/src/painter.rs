//! Draws text into cells: sanitized, cut to its space, and in ASCII if the terminal shows nothing else.

use adjutant_view::palette::TextStyle;
use adjutant_view::{Palette, layout};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

/// A part of a row and its style.
pub(crate) type StyledText = (String, Option<TextStyle>);

/// Draws rows of text into a rectangle.
pub(crate) struct Painter<'a> {
    buffer: &'a mut Buffer,
    palette: Palette,
}

impl<'a> Painter<'a> {
    pub(crate) const fn new(buffer: &'a mut Buffer, palette: Palette) -> Self {
        Self { buffer, palette }
    }

    /// Draws the parts of a row one after another, at most to the right edge of `area`. `row` counts from its top.
    pub(crate) fn row(&mut self, area: Rect, row: usize, parts: &[StyledText]) {
        let Some(y) = u16::try_from(row).ok().filter(|row| *row < area.height) else { return };
        let (mut x, y) = (area.x, area.y + y);
        for (text, style) in parts {
            let room = usize::from(area.right().saturating_sub(x));
            if room == 0 {
                return;
            }
            let text = layout::fit(text, room);
            (x, _) = self.buffer.set_stringn(x, y, text, room, self.style(*style));
        }
    }

    /// Draws a row of one style.
    pub(crate) fn text(&mut self, area: Rect, row: usize, text: &str, style: Option<TextStyle>) {
        self.row(area, row, &[(text.to_owned(), style)]);
    }

    /// Marks a row as selected. A mark in the text says so too.
    pub(crate) fn select(&mut self, area: Rect, row: usize) {
        if let Some(y) = u16::try_from(row).ok().filter(|row| *row < area.height) {
            let line = Rect { x: area.x, y: area.y + y, width: area.width, height: 1 };
            self.buffer.set_style(line, Modifier::REVERSED);
        }
    }

    fn style(&self, style: Option<TextStyle>) -> Style {
        let plain = Style::new();
        let coloured = |color| if self.palette == Palette::Ansi { plain.fg(color) } else { plain };
        match style {
            None => plain,
            Some(TextStyle::Good) => coloured(Color::Green),
            Some(TextStyle::Warning) => coloured(Color::Yellow),
            Some(TextStyle::Bad) => coloured(Color::Red),
            Some(TextStyle::Active) => coloured(Color::Cyan),
            Some(TextStyle::Quiet) => plain.add_modifier(Modifier::DIM),
            Some(TextStyle::Strong) => plain.add_modifier(Modifier::BOLD),
        }
    }
}

/// Replaces what a terminal without UTF-8 cannot show.
pub(crate) fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let plain = layout::ascii(cell.symbol());
            cell.set_symbol(&plain);
        }
    }
}
