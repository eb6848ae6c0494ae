//! The table of results: what was measured, its bar, and whether the bar holds.

use serde::Serialize;

use crate::Failure;
use crate::sample::Spread;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// The number, with its unit.
    pub(crate) measured: String,
    /// What it may be at the most, or must be at the least; none where it only informs.
    pub(crate) bar: Option<String>,
    /// Whether it holds; none where there is no bar, or nothing could be measured.
    pub(crate) holds: Option<bool>,
    /// How it was measured, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A number's unit and the digits worth showing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit(pub(crate) &'static str, pub(crate) usize);

/// Microseconds.
pub(crate) const MICROS: Unit = Unit(" µs", 2);
/// Nanoseconds.
pub(crate) const NANOS: Unit = Unit(" ns", 1);
/// Milliseconds.
pub(crate) const MILLIS: Unit = Unit(" ms", 2);
/// Milliseconds that are small.
pub(crate) const FINE_MILLIS: Unit = Unit(" ms", 3);
/// Times another number.
pub(crate) const TIMES: Unit = Unit("×", 2);
/// Megabytes.
pub(crate) const MEGABYTES: Unit = Unit(" MB", 1);
/// Kilobytes.
pub(crate) const KILOBYTES: Unit = Unit(" kB", 1);
/// Things that are counted.
pub(crate) const COUNT: Unit = Unit("", 1);

impl Row {
    /// Returns a number that must not exceed `bar`.
    pub(crate) fn at_most(what: impl Into<String>, value: Spread, bar: f64, unit: Unit) -> Self {
        let holds = Some(value.median <= bar);
        Self {
            bar: Some(format!("≤ {}", format_bar(bar, unit))),
            holds,
            ..Self::info(what, value, unit)
        }
    }

    /// Returns a number that must exceed `bar`.
    pub(crate) fn above(what: impl Into<String>, value: Spread, bar: f64, unit: Unit) -> Self {
        let holds = Some(value.median > bar);
        Self {
            bar: Some(format!("> {}", format_bar(bar, unit))),
            holds,
            ..Self::info(what, value, unit)
        }
    }

    /// Returns a number that must not be below `bar`.
    pub(crate) fn at_least(what: impl Into<String>, value: Spread, bar: f64, unit: Unit) -> Self {
        let holds = Some(value.median >= bar);
        Self {
            bar: Some(format!("≥ {}", format_bar(bar, unit))),
            holds,
            ..Self::info(what, value, unit)
        }
    }

    /// Returns a number that only informs.
    pub(crate) fn info(what: impl Into<String>, value: Spread, unit: Unit) -> Self {
        let Unit(suffix, digits) = unit;
        let Spread { median, min, max } = value;
        let range =
            if min < max { format!(" ({min:.digits$}–{max:.digits$})") } else { String::new() };
        let measured = format!("{median:.digits$}{suffix}{range}");
        Self { what: what.into(), measured, bar: None, holds: None, note: None }
    }

    /// Returns a line for what cannot be measured here.
    pub(crate) fn skipped(what: impl Into<String>, why: &str) -> Self {
        let note = Some(why.to_owned());
        Self { what: what.into(), measured: "not measured".into(), bar: None, holds: None, note }
    }

    /// Adds how it was measured.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// Returns a bar without digits that say nothing.
fn format_bar(bar: f64, Unit(suffix, _): Unit) -> String {
    format!("{bar}{suffix}")
}

/// All lines, by group.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    groups: Vec<TableGroup>,
}

#[derive(Debug, Serialize)]
struct TableGroup {
    name: String,
    rows: Vec<Row>,
}

impl Table {
    /// Adds a group.
    pub(crate) fn add(&mut self, name: &str, rows: Vec<Row>) {
        self.groups.push(TableGroup { name: name.to_owned(), rows });
    }

    /// Says whether every bar holds.
    pub(crate) fn holds(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.rows).all(|row| row.holds != Some(false))
    }

    /// Returns the table as JSON.
    pub(crate) fn json(&self) -> Result<String, Failure> {
        let value = serde_json::json!({ "v": 1, "holds": self.holds(), "groups": self.groups });
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    /// Returns the table for people, the notes below it.
    pub(crate) fn text(&self) -> String {
        let mut notes = Vec::new();
        let mut lines = vec![["what", "measured", "bar", "holds"].map(str::to_owned)];
        for group in &self.groups {
            lines.push([group.name.to_uppercase(), String::new(), String::new(), String::new()]);
            for row in &group.rows {
                lines.push(cells(row, &mut notes));
            }
        }
        let width = |column: usize| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2)];
        let mut text = String::new();
        for [what, measured, bar, holds] in &lines {
            let [first, second, third] = widths;
            let line = format!("{what:first$}  {measured:second$}  {bar:third$}  {holds}");
            text += line.trim_end();
            text.push('\n');
        }
        for (number, note) in (1..).zip(&notes) {
            text += &format!("[{number}] {note}\n");
        }
        text
    }
}

fn cells(row: &Row, notes: &mut Vec<String>) -> [String; 4] {
    let mark = row.note.as_ref().map(|note| {
        // One note may explain several lines.
        let known = notes.iter().position(|other| other == note);
        let place = known.unwrap_or_else(|| {
            notes.push(note.clone());
            notes.len() - 1
        });
        format!(" [{}]", place + 1)
    });
    let holds = match row.holds {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    [
        format!("  {}{}", row.what, mark.unwrap_or_default()),
        row.measured.clone(),
        row.bar.clone().unwrap_or_default(),
        holds.to_owned(),
    ]
}
