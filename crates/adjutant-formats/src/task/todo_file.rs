//! `TODO.md` as a whole: its text and the positions of its entries.

use std::ops::Range;

use super::markdown_lines::{MarkdownLine, front_matter, lines};
use super::number::TaskNumber;
use super::todo_entry::{TodoEntry, heading, numbered};
use crate::document::Splice;

/// The content of a new file.
pub(super) const BEGINNING: &str = "# TODO\n\n## Tasks\n";

/// The heading level of a task; a heading of this or a higher level ends an entry.
const LEVEL: usize = 3;

/// A parsed `TODO.md`.
#[derive(Clone, Debug)]
pub(super) struct TodoFile {
    pub(super) text: String,
    lines: Vec<MarkdownLine>,
    /// In file order; the content of an entry is read on demand.
    pub(super) entries: Vec<TodoEntrySpan>,
    /// The byte range of the digits after `next_project_number:` in the front matter.
    next: Option<Range<usize>>,
}

/// The lines of `TODO.md` that belong to one task.
#[derive(Clone, Debug)]
pub(super) struct TodoEntrySpan {
    pub(super) number: TaskNumber,
    lines: Range<usize>,
}

impl TodoFile {
    /// Parses a text. Any text is a valid `TODO.md`, perhaps without entries.
    pub(super) fn read(text: String) -> Self {
        let lines = lines(&text);
        let mut entries: Vec<TodoEntrySpan> = Vec::new();
        let mut is_open = false;
        for (place, line) in lines.iter().enumerate().filter(|(_, line)| !line.hidden) {
            let bound = heading(&text[line.range()]).filter(|(level, _)| *level <= LEVEL);
            let Some((level, title)) = bound else { continue };
            if let Some(last) = entries.last_mut().filter(|_| is_open) {
                last.lines.end = place;
            }
            let number = numbered(title).filter(|_| level == LEVEL).map(|(number, _)| number);
            is_open = number.is_some();
            entries
                .extend(number.map(|number| TodoEntrySpan { number, lines: place..lines.len() }));
        }
        let front = &lines[..front_matter(&text, &lines)];
        let next = front.iter().find_map(|line| next_number(&text, line));
        Self { text, lines, entries, next }
    }

    /// Reads the entry at a position.
    pub(super) fn entry(&self, spot: &TodoEntrySpan) -> Option<TodoEntry> {
        TodoEntry::read(&self.text, &self.lines[spot.lines.clone()], spot.lines.start + 1)
    }

    /// Returns the next task number named in the front matter.
    pub(super) fn next(&self) -> Option<TaskNumber> {
        TaskNumber::digits(&self.text[self.next.clone()?])
    }

    /// Updates the next task number, if the file has one.
    pub(super) fn set_next(&self, next: TaskNumber) -> Option<Splice> {
        self.next.clone().map(|range| Splice::replace(range, next.to_string()))
    }

    /// Adds an entry after the last one, or at the end of the file.
    pub(super) fn append(&self, entry: &str) -> Splice {
        let at = self
            .entries
            .last()
            .and_then(|last| self.lines.get(last.lines.end))
            .map_or(self.text.len(), |below| below.start);
        let (before, after) = (&self.text[..at], &self.text[at..]);
        let eol = if before.contains("\r\n") { "\r\n" } else { "\n" };
        let entry = entry.replace('\n', eol);
        let gap = match before {
            "" => String::new(),
            _ if before.ends_with("\n\n") || before.ends_with("\n\r\n") => String::new(),
            _ if before.ends_with('\n') => eol.to_owned(),
            _ => format!("{eol}{eol}"),
        };
        let close = if after.is_empty() { "" } else { eol };
        Splice::insert(at, format!("{gap}{entry}{close}"))
    }
}

fn next_number(text: &str, line: &MarkdownLine) -> Option<Range<usize>> {
    let shown = &text[line.range()];
    let value = shown.strip_prefix("next_project_number:")?.trim();
    let start = line.start + (shown.trim_end().len() - value.len());
    TaskNumber::digits(value).map(|_| start..start + value.len())
}
