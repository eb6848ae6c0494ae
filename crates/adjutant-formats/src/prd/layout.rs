//! How the entries of a PRD are laid out, taken from an entry that is there.

use serde::Serialize;
use serde_json::Value;

use crate::document::Node;

/// What one level is indented by where an entry does not say.
const UNIT: &str = "  ";

/// The layout of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout<'t> {
    /// What stands before the entry, behind the bracket or the comma.
    pub(super) gap: &'t str,
    /// How its lines are made; none where it stands on one line.
    lines: Option<Lines<'t>>,
}

#[derive(Clone, Copy, Debug)]
struct Lines<'t> {
    eol: &'static str,
    unit: &'t str,
    /// What the entry's own lines are indented by.
    outer: &'t str,
    /// What its members are indented by.
    inner: &'t str,
}

impl<'t> Layout<'t> {
    /// Takes the layout of an entry.
    pub(super) fn of(text: &'t str, entry: &Node) -> Self {
        let before = &text[..entry.range.start];
        let gap = &before[before.trim_end_matches([' ', '\t', '\r', '\n']).len()..];
        let opening = entry.opening(text).filter(|opening| opening.contains('\n'));
        let lines = opening.map(|opening| {
            let inner = blanks(&opening[opening.rfind('\n').map_or(0, |end| end + 1)..]);
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            let outer = blanks(&text[line..]);
            let unit = inner.strip_prefix(outer).filter(|unit| !unit.is_empty());
            let eol = if opening.contains("\r\n") { "\r\n" } else { "\n" };
            Lines { eol, unit: unit.unwrap_or(UNIT), outer, inner }
        });
        Self { gap, lines }
    }

    /// Lays out a member of the entry.
    pub(super) fn member(&self, value: &Value) -> String {
        self.lines.map_or_else(|| value.to_string(), |lines| lines.show(value, lines.inner))
    }

    /// Lays out another entry beside this one.
    pub(super) fn entry(&self, value: &Value) -> String {
        self.lines.map_or_else(|| value.to_string(), |lines| lines.show(value, lines.outer))
    }
}

impl Lines<'_> {
    fn show(&self, value: &Value, base: &str) -> String {
        let mut bytes = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(self.unit.as_bytes());
        let mut writer = serde_json::Serializer::with_formatter(&mut bytes, format);
        let written =
            value.serialize(&mut writer).ok().and_then(|()| String::from_utf8(bytes).ok());
        // Writing a value to memory cannot fail; its plain form says the same.
        let pretty = written.unwrap_or_else(|| value.to_string());
        pretty.replace('\n', &format!("{}{base}", self.eol))
    }
}

/// Returns the blanks that a line begins with.
fn blanks(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Says whether a text says a value already, however it is laid out.
pub(super) fn says(raw: &str, value: &Value) -> bool {
    let wanted = value.to_string();
    let mut wanted = wanted.bytes();
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in raw.bytes() {
        if !is_text && byte.is_ascii_whitespace() {
            continue;
        }
        if wanted.next() != Some(byte) {
            return false;
        }
        is_text ^= byte == b'"' && !is_escaped;
        is_escaped = is_text && byte == b'\\' && !is_escaped;
    }
    wanted.next().is_none()
}
