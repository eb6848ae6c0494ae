//! A terminal screen as an SVG picture. Start at [`picture`].

use vt100::{Cell, Color, Screen};

/// The size of a character cell, in pixels.
const CELL: (u16, u16) = (8, 18);
/// The space around the text, in pixels.
const MARGIN: u16 = 16;

const TEXT: &str = "#c9d1d9";
const BACKGROUND: &str = "#0d1117";

/// The sixteen palette colours of a terminal, legible on [`BACKGROUND`].
const PALETTE: [&str; 16] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
    "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
];

/// How the characters of a run of cells look.
#[derive(Clone, PartialEq, Eq)]
struct CellStyle {
    colour: String,
    background: Option<String>,
    is_bold: bool,
}

/// Returns the screen as SVG, without the empty lines at its end. `label` describes it for people who do not see it.
pub(crate) fn picture(screen: &Screen, label: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let is_empty = |row: &u16| {
        screen.rows(0, columns).nth((*row).into()).is_none_or(|text| text.trim().is_empty())
    };
    let rows = (0..rows).rev().find(|row| !is_empty(row)).map_or(1, |row| row + 1);
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"{}\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g xml:space=\"preserve\" font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"13\">\n",
        escaped(label)
    );
    for row in 0..rows {
        svg += &row_of_text(screen, row, columns);
    }
    svg + "</g>\n</svg>\n"
}

/// Returns the text of a row, one element per run of cells with the same style.
fn row_of_text(screen: &Screen, row: u16, columns: u16) -> String {
    let mut runs: Vec<(u16, u16, CellStyle, String)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let style = CellStyle::of(cell);
        let wide = if cell.is_wide() { 2 } else { 1 };
        match runs.last_mut() {
            Some((_, cells, last, written)) if *last == style => {
                *cells += wide;
                written.push_str(text);
            }
            Some(_) | None => runs.push((column, wide, style, text.to_owned())),
        }
    }
    let mut svg = String::new();
    for (column, cells, style, text) in runs {
        let (left, top) = (MARGIN + column * CELL.0, MARGIN + row * CELL.1);
        let width = cells * CELL.0;
        if let Some(background) = &style.background {
            svg += &format!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{}\" fill=\"{background}\"/>\n",
                CELL.1
            );
        }
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        let width = unicode_width::UnicodeWidthStr::width(text) * usize::from(CELL.0);
        let bold = if style.is_bold { " font-weight=\"bold\"" } else { "" };
        // Every run has the width of its cells, whatever font the reader has.
        let fit = format!("textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\"");
        svg += &format!(
            "<text x=\"{left}\" y=\"{}\" {fit} fill=\"{}\"{bold}>{}</text>\n",
            top + 13,
            style.colour,
            // Viewers fold ordinary spaces.
            escaped(text).replace(' ', "\u{a0}")
        );
    }
    svg
}

impl CellStyle {
    fn of(cell: &Cell) -> Self {
        let text = if cell.dim() { "#8b949e".to_owned() } else { TEXT.to_owned() };
        let background = colour(cell.bgcolor());
        let colour = colour(cell.fgcolor()).unwrap_or(text);
        if cell.inverse() {
            let behind = background.unwrap_or_else(|| BACKGROUND.to_owned());
            return Self { colour: behind, background: Some(colour), is_bold: cell.bold() };
        }
        Self { colour, background, is_bold: cell.bold() }
    }
}

/// Returns a colour as SVG knows it; `None` is the terminal's default.
fn colour(colour: Color) -> Option<String> {
    match colour {
        Color::Default => None,
        Color::Idx(index) => PALETTE.get(usize::from(index)).map(|it| (*it).to_owned()),
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
