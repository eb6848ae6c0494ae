//! `TODO.md` as a whole: a text whose entries are known by their bytes.

use std::ops::Range;

use super::entry::{Entry, heading};
use super::lines::{Line, front_matter, lines};
use super::number::TaskNumber;
use super::patch::Splice;

/// What a new file begins with.
pub(super) const BEGINNING: &str = "# TODO\n\n## Tasks\n";

/// The level of a task's heading; a heading of this level or above ends an entry.
const LEVEL: usize = 3;

/// A `TODO.md`.
#[derive(Clone, Debug)]
pub(super) struct Todo {
    pub(super) text: String,
    /// In the order of the file.
    pub(super) entries: Vec<Entry>,
    /// The digits behind `next_project_number:` in the front matter.
    next: Option<Range<usize>>,
}

impl Todo {
    /// Reads a text; every text is a `TODO.md`, perhaps one without entries.
    pub(super) fn read(text: &str) -> Self {
        let all = lines(text);
        let is_bound = |line: &Line| {
            !line.hidden && heading(&text[line.range()]).is_some_and(|(level, _)| level <= LEVEL)
        };
        let bounds: Vec<usize> = all
            .iter()
            .enumerate()
            .filter(|(_, line)| is_bound(line))
            .map(|(place, _)| place)
            .collect();
        let mut entries = Vec::new();
        for (nth, place) in bounds.iter().copied().enumerate() {
            let end = bounds.get(nth + 1).copied().unwrap_or(all.len());
            let level = heading(&text[all[place].range()]).map(|(level, _)| level);
            if level == Some(LEVEL) {
                entries.extend(Entry::read(text, &all[place..end], place + 1));
            }
        }
        let next = all[..front_matter(text, &all)].iter().find_map(|line| next_number(text, line));
        Self { text: text.to_owned(), entries, next }
    }

    /// Returns the number the front matter names as the next.
    pub(super) fn next(&self) -> Option<TaskNumber> {
        TaskNumber::digits(&self.text[self.next.clone()?])
    }

    /// Writes the next number where the file has one.
    pub(super) fn set_next(&self, next: TaskNumber) -> Option<Splice> {
        self.next.clone().map(|range| Splice::replace(range, next.to_string()))
    }

    /// Adds an entry behind the last one, or at the end.
    pub(super) fn append(&self, entry: &str) -> Splice {
        let at = self.entries.iter().map(|entry| entry.range.end).max().unwrap_or(self.text.len());
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

fn next_number(text: &str, line: &Line) -> Option<Range<usize>> {
    let shown = &text[line.range()];
    let value = shown.strip_prefix("next_project_number:")?.trim();
    let start = line.start + (shown.trim_end().len() - value.len());
    TaskNumber::digits(value).map(|_| start..start + value.len())
}
