//! Text layout by terminal columns instead of bytes or characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::sanitize;

/// Returns the width of `text` in columns.
#[must_use]
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Returns the start of safe `text` that fits into `max` columns, ending in `…` when cut.
#[must_use]
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max || (text.len() <= max.saturating_mul(4) && width(text) <= max) {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut taken = 0;
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        // Zero-width characters could pile up without end, so their number is limited too.
        if taken > max || kept.len() > max.saturating_mul(8) {
            return ellipsis(kept, max);
        }
        kept.push(c);
    }
    // Sequences can be wider than the sum of their characters.
    if width(&kept) > max { ellipsis(kept, max) } else { kept }
}

fn ellipsis(mut kept: String, max: usize) -> String {
    while !kept.is_empty() && width(&kept) + 1 > max {
        kept.pop();
    }
    if max > 0 {
        kept.push('…');
    }
    kept
}

/// Returns untrusted text on one safe line of at most `max` columns.
#[must_use]
pub fn fit(text: &str, max: usize) -> String {
    // Sanitize only what can be visible: a label may be 10 KB of invisible characters.
    let end = text.char_indices().nth(max.saturating_mul(2) + 2).map_or(text.len(), |(end, _)| end);
    let mut safe = sanitize::line(&text[..end]).into_owned();
    if end < text.len() {
        safe.push('…');
    }
    cut(&safe, max)
}

/// Returns untrusted text on one safe line of at most `max` columns, cut in the middle: an error message
/// starts with what was tried and ends with the cause.
#[must_use]
pub fn fit_ends(text: &str, max: usize) -> String {
    let count = text.chars().count();
    let whole = fit(text, max);
    if count <= max.saturating_mul(2) && whole == sanitize::line(text) {
        return whole;
    }
    let head = fit(text, max / 2);
    let last: String = text.chars().skip(count.saturating_sub(max)).collect();
    let last = sanitize::line(&last).into_owned();
    let room = max.saturating_sub(width(&head));
    let starts = last.char_indices().map(|(at, _)| at);
    let start = starts.rev().take_while(|at| width(&last[*at..]) <= room).last();
    cut(&format!("{head}{}", &last[start.unwrap_or(last.len())..]), max)
}

/// Returns a label in brackets, of at most `max` columns including the brackets.
#[must_use]
pub fn bracketed(label: &str, max: usize) -> String {
    let room = max.saturating_sub(2).max(1);
    format!("[{}]", fit(label, room).replace('[', "(").replace(']', ")"))
}

/// Wraps safe `text` into lines of at most `max` columns. Returns at least one line.
#[must_use]
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut taken = 0;
    for word in text.split_inclusive(' ') {
        let wide = width(word);
        if taken > 0 && taken + width(word.trim_end()) > max {
            lines.push(String::new());
            taken = 0;
        }
        for c in word.chars() {
            // A word longer than a line is split at the end of the line.
            let columns = c.width().unwrap_or(0);
            if wide > max && taken + columns > max {
                lines.push(String::new());
                taken = 0;
            }
            taken += columns;
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Wraps the lines of safe `text` that are wider than `max`; their rest is indented below them. A word that is wider,
/// such as a path, stays whole, as does a command in backticks that fits into a line: a person copies them.
#[must_use]
pub fn wrap_lines(text: &str, max: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        if width(line) <= max {
            wrapped.push_str(line);
            wrapped.push('\n');
            continue;
        }
        let rest = line.trim_start_matches(' ');
        let lead = (line.len() - rest.len()).min(max / 2);
        for (place, part) in
            wrap_whole(rest, max.saturating_sub(lead + 2).max(1)).iter().enumerate()
        {
            let indent = if place == 0 { lead } else { lead + 2 };
            wrapped.push_str(&" ".repeat(indent));
            wrapped.push_str(part);
            wrapped.push('\n');
        }
    }
    wrapped
}

/// Wraps safe `text` between words, and not within a command in backticks that fits into a line.
fn wrap_whole(text: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in unbroken_words(text, max) {
        let line = lines.last().map_or(0, |line| width(line));
        if line > 0 && line + width(word.trim_end()) > max {
            lines.push(String::new());
        }
        lines.last_mut().into_iter().for_each(|line| line.push_str(word));
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Splits text after its spaces, but for those in a span in backticks of at most `max` columns.
fn unbroken_words(text: &str, max: usize) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = rest.find(' ').map_or(rest.len(), |at| at + 1);
        let is_opening = rest[..end].matches('`').count() % 2 == 1;
        let closing = rest[end..].find('`').map(|at| {
            let after = end + at;
            rest[after..].find(' ').map_or(rest.len(), |at| after + at + 1)
        });
        let whole = closing.filter(|end| is_opening && width(rest[..*end].trim_end()) <= max);
        let (word, after) = rest.split_at(whole.unwrap_or(end));
        words.push(word);
        rest = after;
    }
    words
}

/// Returns `text` padded with spaces on the right to `to` columns.
#[must_use]
pub fn pad_right(text: &str, to: usize) -> String {
    let missing = to.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(missing))
}

/// Returns `text` padded with spaces on the left to `to` columns.
#[must_use]
pub fn right(text: &str, to: usize) -> String {
    let missing = to.saturating_sub(width(text));
    format!("{}{text}", " ".repeat(missing))
}

/// Returns the first `max` characters of safe text, ending in `…` if something was cut.
#[must_use]
pub fn excerpt(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Formats rows as columns two spaces apart; the columns in `numbers` are right-aligned.
///
/// The last column is not padded, so no line ends in spaces.
#[must_use]
pub fn columns(rows: &[Vec<String>], numbers: &[usize]) -> String {
    let widths = column_widths(rows);
    let mut table = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, to))| {
                    if numbers.contains(&column) { right(cell, *to) } else { pad_right(cell, *to) }
                })
                .collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

/// Returns the width of what [`columns`] returns for these rows.
#[must_use]
pub fn columns_width(rows: &[Vec<String>]) -> usize {
    let widths = column_widths(rows);
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

fn column_widths(rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    widths
}

/// Lists the first few items and the number of the others.
#[must_use]
pub fn some_of(all: &[String]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(|it| fit(it, NAMED_COLUMNS)).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

/// The number of items listed.
const NAMED: usize = 5;
/// The maximum width of each, in columns.
const NAMED_COLUMNS: usize = 80;

/// Returns text for a terminal without UTF-8: our marks become ASCII characters of the same width, and every
/// other character a question mark per column.
#[must_use]
pub fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0'..='\x7f' => plain.push(c),
            '→' => plain.push('>'),
            '✓' => plain.push('+'),
            '✗' | '⊘' => plain.push('x'),
            '⚠' => plain.push('!'),
            '■' => plain.push('#'),
            '◌' => plain.push('o'),
            '·' | '–' | '—' | '−' => plain.push('-'),
            '•' => plain.push('*'),
            '×' => plain.push('x'),
            '≤' => plain.push('<'),
            '≥' => plain.push('>'),
            '…' => plain.push('~'),
            '⟨' => plain.push('<'),
            '⟩' => plain.push('>'),
            '⏎' => plain.push(' '),
            '│' => plain.push('|'),
            '─' => plain.push('-'),
            '├' => plain.push('+'),
            '└' => plain.push('`'),
            '█' => plain.push('#'),
            '▒' => plain.push('='),
            '░' => plain.push('.'),
            '▼' => plain.push('v'),
            '▶' | '›' => plain.push('>'),
            '↑' => plain.push('^'),
            '↓' => plain.push('v'),
            '←' => plain.push('<'),
            c => plain.extend(std::iter::repeat_n('?', c.width().unwrap_or(0))),
        }
    }
    plain
}
