//! The lines of a terminal that the live view redraws in place.
//!
//! A terminal has one such region per process, because a question has to remove it before it is printed. Start
//! at [`draw`]. Invariant: the cursor is at the start of the line below the region.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use adjutant_view::layout::width;

/// The region as it was last drawn.
struct ScreenRegion {
    lines: Vec<String>,
    columns: usize,
}

static REGION: Mutex<ScreenRegion> = Mutex::new(ScreenRegion { lines: Vec::new(), columns: 0 });

/// Begins and ends a synchronized update, during which no line wraps: a character that the terminal shows wider
/// than we think is cut off then.
const BEGIN: &str = "\x1b[?2026h\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?2026l";

/// Draws `text` over the previous region. Writes nothing if nothing changed.
pub(crate) fn draw(text: &str, columns: usize) {
    with_region(|region| {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if region.lines == lines && region.columns == columns {
            return String::new();
        }
        let output = region.replace(&lines, columns);
        *region = ScreenRegion { lines, columns };
        output
    });
}

/// Removes the region; what is printed next takes its place.
pub(crate) fn erase() {
    with_region(|region| {
        let output = region.replace(&[], crate::live::columns(io::stderr()));
        region.lines.clear();
        output
    });
}

/// Leaves the region on the screen; the next one is drawn below.
pub(crate) fn leave() {
    with_region(|region| {
        region.lines.clear();
        String::new()
    });
}

/// Returns whether the region is on the screen.
pub(crate) fn is_drawn() -> bool {
    !REGION.lock().unwrap_or_else(PoisonError::into_inner).lines.is_empty()
}

fn with_region(change: impl FnOnce(&mut ScreenRegion) -> String) {
    let mut region = REGION.lock().unwrap_or_else(PoisonError::into_inner);
    let output = change(&mut region);
    if !output.is_empty() {
        let mut stderr = io::stderr().lock();
        // Errors are ignored: the terminal is gone.
        let _ = stderr.write_all(output.as_bytes()).and_then(|()| stderr.flush());
    }
}

impl ScreenRegion {
    /// Returns what turns the region into `lines`. Every line is erased on its own: some terminals keep a copy of
    /// what is cleared from the top of the screen in their scrollback.
    fn replace(&self, lines: &[String], columns: usize) -> String {
        let old_rows = self.rows_at(columns);
        if old_rows == 0 && lines.is_empty() {
            return String::new();
        }
        let mut output = BEGIN.to_owned();
        if old_rows > 0 {
            output += &format!("\r\x1b[{old_rows}A");
        }
        for line in lines {
            // Erased before it is written: after a line of full width the cursor is still on its last character.
            output += &format!("\r\x1b[K{line}\n");
        }
        let surplus = old_rows.saturating_sub(lines.len());
        output += &"\r\x1b[K\n".repeat(surplus);
        // The line with the cursor: it may hold typed characters.
        output += "\r\x1b[K";
        if surplus > 0 {
            output += &format!("\x1b[{surplus}A");
        }
        output + END
    }

    /// Returns how many rows the region takes after a resize.
    fn rows_at(&self, columns: usize) -> usize {
        if columns >= self.columns || columns == 0 || !wraps_again() {
            return self.lines.len();
        }
        self.lines.iter().map(|line| visible_width(line).div_ceil(columns).max(1)).sum()
    }
}

/// Returns whether the terminal wraps lines again when it gets narrower. Most do; some older ones cut them.
fn wraps_again() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let cuts = ["linux", "vt", "screen"].iter().any(|name| term.starts_with(name));
    is_set("TMUX") || !(cuts || is_set("XTERM_VERSION"))
}

/// Returns the width of a line without its colours.
fn visible_width(line: &str) -> usize {
    let mut parts = line.split('\x1b');
    let plain = parts.next().map_or(0, width);
    let coloured = parts.map(|part| part.split_once('m').map_or(0, |(_, text)| width(text)));
    plain + coloured.sum::<usize>()
}
