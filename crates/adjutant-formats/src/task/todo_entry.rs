//! One entry of `TODO.md`: its heading, its fields, and edits of them.
//!
//! Invariant: an edit replaces the value of a field or inserts a whole line in the style of its neighbours;
//! nothing else in the entry changes.

use std::ops::Range;

use super::markdown_lines::MarkdownLine;
use super::number::TaskNumber;
use super::status::TaskStatus;
use crate::document::Splice;

/// The maximum length of a field name; a longer text before a colon is prose.
const MAX_NAME_CHARS: usize = 40;

/// An entry: a heading `### N. Title` and everything up to the next heading.
#[derive(Clone, Debug)]
pub(super) struct TodoEntry {
    pub(super) number: TaskNumber,
    pub(super) title: String,
    /// The line number of the heading, from 1.
    pub(super) line: usize,
    pub(super) range: Range<usize>,
    /// The line ending of the heading.
    eol: &'static str,
    heading: MarkdownLine,
    fields: Vec<TodoFieldLine>,
    /// The byte range of the text after `**Description**:`.
    pub(super) description: Option<Range<usize>>,
}

/// A line such as `- **TaskStatus**: [PLANNED]`.
#[derive(Clone, Debug)]
struct TodoFieldLine {
    /// The name in lower case.
    name: String,
    line: MarkdownLine,
    name_range: Range<usize>,
    value: Range<usize>,
}

/// Returns the level of a heading and its text.
pub(super) fn heading(line: &str) -> Option<(usize, &str)> {
    let body = line.trim_start_matches(' ');
    if line.len() - body.len() > 3 {
        return None;
    }
    let level = body.bytes().take_while(|byte| *byte == b'#').count();
    let rest = &body[level..];
    let is_heading = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t']));
    is_heading.then(|| (level, rest.trim()))
}

/// Parses `N. Title` in a heading; `N)`, `N:` and `Task N:` are accepted too.
pub(super) fn numbered(text: &str) -> Option<(TaskNumber, &str)> {
    let text = text.strip_prefix("Task ").unwrap_or(text).trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = TaskNumber::digits(&text[..digits]).filter(|_| digits > 0)?;
    let rest = text[digits..].strip_prefix(['.', ')', ':'])?;
    // `### 3.5 Release` is a heading about a version, not task 3.
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| (number, rest.trim()))
}

impl TodoEntry {
    /// Parses the entry whose heading is the first of `lines`; `None` if it is not the heading of a task.
    pub(super) fn read(text: &str, lines: &[MarkdownLine], first_line: usize) -> Option<Self> {
        let heading_line = *lines.first()?;
        let (_, title) = heading(&text[heading_line.range()])?;
        let (number, title) = numbered(title)?;
        let end = lines.last().map_or(heading_line.next, |line| line.next);
        let mut entry = Self {
            number,
            title: title.to_owned(),
            line: first_line,
            range: heading_line.start..end,
            eol: if text[heading_line.end..heading_line.next].starts_with('\r') {
                "\r\n"
            } else {
                "\n"
            },
            heading: heading_line,
            fields: Vec::new(),
            description: None,
        };
        entry.read_fields(text, &lines[1..]);
        Some(entry)
    }

    fn read_fields(&mut self, text: &str, lines: &[MarkdownLine]) {
        for line in lines.iter().filter(|line| !line.hidden) {
            let shown = &text[line.range()];
            if heading(shown).is_some() {
                return;
            }
            let Some(field) = field(text, *line) else { continue };
            if field.name == "description" {
                self.description = Some(field.value.start..self.range.end);
                return;
            }
            if !self.fields.iter().any(|known| known.name == field.name) {
                self.fields.push(field);
            }
        }
    }

    fn field(&self, name: &str) -> Option<&TodoFieldLine> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// Returns the value of a field; `None` if it is empty.
    pub(super) fn value<'a>(&self, text: &'a str, name: &str) -> Option<&'a str> {
        self.field(name).map(|field| &text[field.value.clone()]).filter(|value| !value.is_empty())
    }

    /// Returns the status marker as written.
    pub(super) fn marker<'a>(&self, text: &'a str) -> Option<&'a str> {
        let range = marker_range(text, self.field("status")?.value.clone());
        Some(&text[range]).filter(|marker| !marker.is_empty())
    }

    /// Returns the status, if it is known.
    pub(super) fn status(&self, text: &str) -> Option<TaskStatus> {
        self.marker(text).and_then(TaskStatus::read)
    }

    /// Returns the text after `**Description**:`, without a horizontal rule at its end.
    pub(super) fn description_text<'a>(&self, text: &'a str) -> Option<&'a str> {
        let whole = text[self.description.clone()?].trim();
        let body = whole.strip_suffix("---").filter(|body| body.is_empty() || body.ends_with('\n'));
        Some(body.unwrap_or(whole).trim_end()).filter(|body| !body.is_empty())
    }

    /// Replaces the status marker and nothing else on its line.
    pub(super) fn set_status(&self, text: &str, to: TaskStatus) -> Splice {
        match self.field("status") {
            Some(field) => {
                let range = marker_range(text, field.value.clone());
                let shown = &text[range.clone()];
                if !shown.is_empty() && !shown.starts_with('[') && TaskStatus::read(shown).is_none()
                {
                    // The value is free text, not a status: insert the marker before it.
                    let marker = format!("{} ", to.marker());
                    return Splice::insert(range.start, with_space(text, range.start, &marker));
                }
                Splice::replace(range.clone(), with_space(text, range.start, to.marker()))
            }
            None => self.insert_line(text, &self.heading, "Status", to.marker()),
        }
    }

    /// Replaces the value of a field, or adds the field below the status.
    pub(super) fn set(&self, text: &str, name: &str, value: &str) -> Splice {
        match self.field(name) {
            Some(field) => {
                Splice::replace(field.value.clone(), with_space(text, field.value.start, value))
            }
            None => {
                let below = self.field("status").map_or(&self.heading, |field| &field.line);
                self.insert_line(text, below, name, value)
            }
        }
    }

    /// Removes the line of a field, where there is one.
    pub(super) fn remove(&self, name: &str) -> Option<Splice> {
        self.field(name).map(|field| Splice::replace(field.line.start..field.line.next, ""))
    }

    /// Appends to a list value, or adds the field below all others; replaces `None` and similar words.
    pub(super) fn add(&self, text: &str, name: &str, item: &str) -> Splice {
        match self.field(name) {
            Some(field) if is_nothing(&text[field.value.clone()]) => {
                Splice::replace(field.value.clone(), with_space(text, field.value.start, item))
            }
            Some(field) => Splice::insert(field.value.end, format!(", {item}")),
            None => {
                let below = self.fields.last().map_or(&self.heading, |field| &field.line);
                self.insert_line(text, below, name, item)
            }
        }
    }

    fn insert_line(&self, text: &str, below: &MarkdownLine, name: &str, value: &str) -> Splice {
        let (lead, tail) = self.style(text);
        let (eol, line) = (self.eol, format!("{lead}{name}{tail}{value}"));
        if below.is_ended() {
            Splice::insert(below.next, format!("{line}{eol}"))
        } else {
            Splice::insert(below.end, format!("{eol}{line}"))
        }
    }

    /// Returns the text that this entry's fields have before and after their names.
    fn style<'a>(&self, text: &'a str) -> (&'a str, String) {
        let Some(field) = self.field("status").or_else(|| self.fields.first()) else {
            return ("- **", "**: ".to_owned());
        };
        let lead = &text[field.line.start..field.name_range.start];
        let tail = text[field.name_range.end..field.value.start].trim_end();
        (lead, format!("{tail} "))
    }
}

/// Returns whether a value means "none".
fn is_nothing(value: &str) -> bool {
    ["", "none", "tbd", "n/a", "-", "[]"].contains(&value.to_ascii_lowercase().as_str())
}

/// Adds a space before a value that would touch the colon.
fn with_space(text: &str, at: usize, value: &str) -> String {
    let touches = text[..at].ends_with([':', '*']);
    if touches { format!(" {value}") } else { value.to_owned() }
}

/// Returns the range of the status marker within a value.
fn marker_range(text: &str, value: Range<usize>) -> Range<usize> {
    let shown = &text[value.clone()];
    let opens = shown.find('[');
    let closes = opens.and_then(|at| shown[at..].find(']').map(|length| at + length + 1));
    match opens.zip(closes) {
        Some((from, to)) => value.start + from..value.start + to,
        None => value,
    }
}

/// Parses `- **Name**: value`, `**Name:** value` or `- Name: value`.
fn field(text: &str, line: MarkdownLine) -> Option<TodoFieldLine> {
    let shown = &text[line.range()];
    let body = shown.trim_start();
    let item = ["- ", "* ", "+ "].iter().find_map(|bullet| body.strip_prefix(bullet));
    let body = item.unwrap_or(body).trim_start();
    let bold = body.strip_prefix("**");
    if item.is_none() && bold.is_none() {
        return None;
    }
    let named = bold.unwrap_or(body);
    let colon = named.find(':')?;
    let name = named[..colon].trim_end_matches('*').trim();
    let is_name =
        name.chars().all(|letter| letter.is_alphabetic() || letter == ' ' || letter == '-');
    if name.is_empty() || !is_name || name.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    let after = named[colon + 1..].strip_prefix("**").unwrap_or(&named[colon + 1..]);
    let value = after.trim();
    // Offsets are computed from the end of the line, because every step above only strips the front.
    let start_of = |rest: &str| line.start + (shown.len() - rest.len());
    let name_start = start_of(named) + (named.len() - named.trim_start().len());
    let value_start = start_of(after.trim_start());
    Some(TodoFieldLine {
        name: name.to_lowercase(),
        line,
        name_range: name_start..name_start + name.len(),
        value: value_start..value_start + value.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::markdown_lines::lines;

    #[test]
    fn fields_are_read_however_they_are_written() {
        for (line, expected) in [
            ("- **Status**: [PLANNED]", Some(("status", "[PLANNED]"))),
            ("**Status**: [PLANNED] (again)", Some(("status", "[PLANNED] (again)"))),
            ("* **Status:** [PLANNED]  ", Some(("status", "[PLANNED]"))),
            ("  - Status: planned", Some(("status", "planned"))),
            ("- **Blocking Reason**:none", Some(("blocking reason", "none"))),
            ("- **Plan**:", Some(("plan", ""))),
            ("Status: planned", None),
            ("- see http://a.b", Some(("see http", "//a.b"))),
            ("- [x](a:b)", None),
            ("", None),
        ] {
            let found = lines(line).first().and_then(|first| field(line, *first));
            let found = found.map(|field| (field.name, &line[field.value]));
            assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)), "{line}");
        }
    }

    #[test]
    fn headings_of_tasks_are_told_from_others() {
        for (line, expected) in [
            ("### 12. Title", Some((12, "Title"))),
            ("  ###   12)  Title  ", Some((12, "Title"))),
            ("### Task 12: Title", Some((12, "Title"))),
            ("### 12.", Some((12, ""))),
            ("### 3.5 Release", None),
            ("### 012. Title", None),
            ("### 0. Title", None),
            ("###12. Title", None),
            ("### Notes", None),
        ] {
            let found = heading(line).and_then(|(_, text)| numbered(text));
            let found = found.map(|(number, title)| (number.get(), title));
            assert_eq!(found, expected, "{line}");
        }
    }
}
