//! Edits of a JSON object or list as splices that follow the layout of their neighbours.
//!
//! Works on JSON with and without comments and trailing commas. A part is a member of an object or an item of
//! a list. Invariant: no splice covers a byte of a part that stays, or of a comment.

use std::ops::Range;

use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};
use serde::Serialize;
use serde_json::Value;

use super::node::{DocumentMember, DocumentNode, NodeKind};
use super::splice::Splice;

/// The indentation of one level if the text itself shows none.
pub(super) const UNIT: &str = "  ";

impl DocumentNode {
    /// Sets a member, or adds it after the others.
    pub(crate) fn set(&self, text: &str, key: &str, value: &Value) -> Vec<Splice> {
        self.set_all(text, &[(key, value)])
    }

    /// Sets members, or adds them after the others. Does nothing to a value that is not an object.
    pub(crate) fn set_all(&self, text: &str, fields: &[(&str, &Value)]) -> Vec<Splice> {
        let layout = PartLayout::of(text, self);
        let (mut splices, mut added) = (Vec::new(), Vec::new());
        for (key, value) in fields {
            let shown = layout.show(value);
            match self.member(text, key) {
                Some(known) => splices.push(Splice::replace(known.range.clone(), shown)),
                None => added.push(format!("{}: {shown}", Value::from(*key))),
            }
        }
        if self.is_object() {
            splices.extend(self.add(text, &layout, &added));
        }
        splices
    }

    /// Adds items at the end of a list.
    pub(crate) fn push_all(&self, text: &str, values: &[Value]) -> Vec<Splice> {
        let layout = PartLayout::of(text, self);
        let shown: Vec<String> = values.iter().map(|value| layout.show(value)).collect();
        self.add(text, &layout, &shown)
    }

    /// Adds items to the list that contains this item, after the item that ends at `at`, in this item's
    /// layout.
    pub(crate) fn add_beside(&self, text: &str, at: usize, values: &[Value]) -> Splice {
        let before = &text[..self.range.start];
        let gap = &before[before.trim_end().len()..];
        let layout = PartLayout::of(text, self);
        let shown = values.iter().map(|value| format!(",{gap}{}", layout.show_beside(value)));
        Splice::insert(at, shown.collect::<String>())
    }

    /// Removes the members with these names, each with one comma and with its lines if nothing else is on
    /// them.
    pub(crate) fn remove(&self, text: &str, keys: &[&str]) -> Vec<Splice> {
        let members = self.members();
        let is_meant = |member: &DocumentMember| keys.iter().any(|key| member.is_called(text, key));
        let is_meant: Vec<bool> = members.iter().map(is_meant).collect();
        let last_kept = is_meant.iter().rposition(|is_meant| !is_meant);
        let commas: Vec<Option<usize>> =
            (0..members.len()).map(|nth| self.comma_after(text, nth)).collect();
        let has_trailing = commas.last().is_some_and(Option::is_some);
        let mut splices = Vec::new();
        for (nth, member) in members.iter().enumerate().filter(|(nth, _)| is_meant[*nth]) {
            let place = member.key.start..member.value.range.end;
            let goes_before = has_trailing || last_kept.is_none_or(|kept| nth < kept);
            let comma =
                if goes_before { commas[nth] } else { commas[..nth].last().copied().flatten() };
            splices.extend(remove_member(text, place, comma));
        }
        splices
    }

    /// Returns the byte ranges of all parts, each from its key to the end of its value.
    fn parts(&self) -> Vec<Range<usize>> {
        let whole = |member: &DocumentMember| member.key.start..member.value.range.end;
        match &self.kind {
            NodeKind::Object(members) => members.iter().map(whole).collect(),
            NodeKind::Array(items) => items.iter().map(|item| item.range.clone()).collect(),
            NodeKind::Scalar | NodeKind::Decoded(_) => Vec::new(),
        }
    }

    /// Returns the position of the comma after the `nth` member.
    fn comma_after(&self, text: &str, nth: usize) -> Option<usize> {
        let end = self.members()[nth].value.range.end;
        let next = self.members().get(nth + 1).map_or(self.range.end - 1, |next| next.key.start);
        find_comma(text, end..next)
    }

    /// Adds parts after the existing ones and after a comment on the last one.
    fn add(&self, text: &str, layout: &PartLayout<'_>, added: &[String]) -> Vec<Splice> {
        if added.is_empty() {
            return Vec::new();
        }
        let close = self.range.end - 1;
        let Some(last) = self.parts().pop() else { return vec![self.fill(text, layout, added)] };
        let trailing = find_comma(text, last.end..close);
        let behind = trailing.map_or(last.end, |at| at + 1);
        // Comments on the same line belong to the last part.
        let remarks = comments(text, behind..close);
        let line = remarks.iter().fold(behind, |line, remark| {
            if text[line..remark.start].contains('\n') { line } else { remark.end }
        });
        let (at, gap) = match &layout.lines {
            Some(LineLayout { eol, inner, .. }) => (line, format!("{eol}{inner}")),
            None if text[line..close].contains('\n') => {
                (line, format!("{}{}", eol(text), line_indent(text, last.start)))
            }
            None => (behind, " ".to_owned()),
        };
        let mut new: String = added.join(&format!(",{gap}"));
        new.insert_str(0, &gap);
        if trailing.is_some() {
            return vec![Splice::insert(at, new + ",")];
        }
        if at == last.end {
            return vec![Splice::insert(at, format!(",{new}"))];
        }
        vec![Splice::insert(last.end, ","), Splice::insert(at, new)]
    }

    /// Adds parts to an empty object or list.
    fn fill(&self, text: &str, layout: &PartLayout<'_>, added: &[String]) -> Splice {
        let inside = self.range.start + 1..self.range.end - 1;
        let Some(LineLayout { eol, inner, outer, .. }) = &layout.lines else {
            return Splice::insert(inside.end, added.join(", "));
        };
        let new = added.join(&format!(",{eol}{inner}"));
        let new = format!("{eol}{inner}{new}{eol}{outer}");
        // Only the whitespace after the last comment is replaced.
        let remarked = comments(text, inside.clone()).pop().map_or(inside.start, |last| last.end);
        Splice::replace(remarked..inside.end, new)
    }
}

/// Removes a part of an object with the comma before or after it.
fn remove_member(text: &str, part: Range<usize>, comma: Option<usize>) -> Vec<Splice> {
    let Some(comma) = comma else { return vec![Splice::replace(lines(text, part), "")] };
    let is_before = comma < part.start;
    let between = if is_before { comma + 1..part.start } else { part.end..comma };
    if !text[between].trim().is_empty() {
        let part = if is_before { lines(text, part) } else { part };
        return vec![Splice::replace(part, ""), Splice::replace(comma..comma + 1, "")];
    }
    if is_before {
        return vec![Splice::replace(comma..part.end, "")];
    }
    let whole = lines(text, part.start..comma + 1);
    let rest = &text[whole.end..];
    // The next part on the same line takes this part's position.
    let next = rest.trim_start_matches([' ', '\t']);
    let blanks = if next.starts_with('"') { rest.len() - next.len() } else { 0 };
    vec![Splice::replace(whole.start..whole.end + blanks, "")]
}

/// Extends a range to whole lines if nothing else is on them.
fn lines(text: &str, cut: Range<usize>) -> Range<usize> {
    let start = text[..cut.start].rfind('\n');
    let end = text[cut.end..].find('\n').map(|at| cut.end + at);
    if let Some((start, end)) = start.zip(end)
        && text[start..cut.start].trim().is_empty()
        && text[cut.end..end].trim().is_empty()
    {
        let without_return = |at: usize| text[..at].strip_suffix('\r').map_or(at, str::len);
        return without_return(start)..without_return(end);
    }
    cut
}

/// Returns the commas and comments between two parts.
fn tokens(text: &str, within: Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut scanner = Scanner::new(&text[within.clone()], &ScannerOptions::default());
    let mut found = Vec::new();
    while let Ok(Some(token)) = scanner.scan() {
        let range = within.start + scanner.token_start()..within.start + scanner.token_end();
        found.push((range, token == Token::Comma));
    }
    found
}

fn find_comma(text: &str, within: Range<usize>) -> Option<usize> {
    let found = tokens(text, within).into_iter().find(|(_, is_comma)| *is_comma);
    found.map(|(range, _)| range.start)
}

fn comments(text: &str, within: Range<usize>) -> Vec<Range<usize>> {
    let found = tokens(text, within).into_iter().filter(|(_, is_comma)| !is_comma);
    found.map(|(range, _)| range).collect()
}

/// The layout of the parts of an object or a list.
struct PartLayout<'t> {
    /// `None` if all parts are on one line.
    lines: Option<LineLayout<'t>>,
}

struct LineLayout<'t> {
    eol: &'static str,
    unit: &'t str,
    /// The indentation of the line on which the object or list starts.
    outer: &'t str,
    /// The indentation of its parts.
    inner: String,
}

impl<'t> PartLayout<'t> {
    fn of(text: &'t str, node: &DocumentNode) -> Self {
        let eol = eol(text);
        let outer = line_indent(text, node.range.start);
        let lines = match node.parts().first() {
            Some(first) => {
                let is_apart = text[node.range.start..first.start].contains('\n');
                is_apart.then(|| {
                    let inner = line_indent(text, first.start);
                    let unit = inner.strip_prefix(outer).filter(|unit| !unit.is_empty());
                    let unit = unit.or_else(|| unit_of(text)).unwrap_or(UNIT);
                    LineLayout { eol, unit, outer, inner: inner.to_owned() }
                })
            }
            // It is empty: use the layout of the whole text.
            None => unit_of(text).map(|unit| LineLayout {
                eol,
                unit,
                outer,
                inner: format!("{outer}{unit}"),
            }),
        };
        Self { lines }
    }

    /// Formats the value of a part.
    fn show(&self, value: &Value) -> String {
        let lines = self.lines.as_ref();
        lines
            .map_or_else(|| value.to_string(), |it| format_value(value, it.unit, it.eol, &it.inner))
    }

    /// Formats a value at the level of the object or list itself.
    fn show_beside(&self, value: &Value) -> String {
        let lines = self.lines.as_ref();
        lines.map_or_else(|| value.to_string(), |it| format_value(value, it.unit, it.eol, it.outer))
    }
}

/// Returns the line ending of a text, judged by its first line.
fn eol(text: &str) -> &'static str {
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    if first.ends_with("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the indentation of the outermost object's members; `None` if all is on one line.
fn unit_of(text: &str) -> Option<&str> {
    let mut scanner = Scanner::new(text, &ScannerOptions::default());
    let mut open = None;
    loop {
        match (scanner.scan().ok()??, open) {
            (Token::CommentLine(_) | Token::CommentBlock(_), _) => {}
            (Token::OpenBrace, None) => open = Some(scanner.token_end()),
            (_, None) => return None,
            (_, Some(open)) => {
                let first = scanner.token_start();
                return text[open..first].contains('\n').then(|| line_indent(text, first));
            }
        }
    }
}

/// Returns the indentation of the line that contains this byte.
fn line_indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Formats a value over several lines; all lines after the first are indented by `base`.
pub(super) fn format_value(value: &Value, unit: &str, eol: &str, base: &str) -> String {
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, format);
    let written = value.serialize(&mut writer).ok().and_then(|()| String::from_utf8(bytes).ok());
    // Serializing a value to memory cannot fail; the compact form is an equivalent fallback.
    let pretty = written.unwrap_or_else(|| value.to_string());
    pretty.replace('\n', &format!("{eol}{base}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{apply, parse_json};
    use super::*;

    fn with(text: &str, splices: Vec<Splice>) -> String {
        apply(text, splices).unwrap()
    }

    #[test]
    fn a_member_is_set_and_the_layout_stays() {
        for (text, expected) in [
            (r#"{"a":1}"#, r#"{"a":1, "b": [1,2]}"#),
            (r#"{ "b" : 1e999 , "a":2}"#, r#"{ "b" : [1,2] , "a":2}"#),
            (r#"{}"#, r#"{"b": [1,2]}"#),
            ("{\n\t\"a\": 1\n}\n", "{\n\t\"a\": 1,\n\t\"b\": [\n\t\t1,\n\t\t2\n\t]\n}\n"),
            ("{\r\n  \"b\": 1\r\n}", "{\r\n  \"b\": [\r\n    1,\r\n    2\r\n  ]\r\n}"),
        ] {
            let node = parse_json(text).unwrap();
            assert_eq!(with(text, node.set(text, "b", &json!([1, 2]))), expected, "{text}");
        }
    }

    #[test]
    fn members_are_added_to_an_empty_object_together() {
        let (one, two) = (json!(1), json!([2]));
        for (text, expected) in [
            ("{}", r#"{"a": 1, "b": [2]}"#),
            ("{\n}\n", "{\n\"a\": 1,\n\"b\": [\n2\n]\n}\n"),
            (r#"{"c":0}"#, r#"{"c":0, "a": 1, "b": [2]}"#),
        ] {
            let splices = parse_json(text).unwrap().set_all(text, &[("a", &one), ("b", &two)]);
            assert_eq!(apply(text, splices).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_member_goes_with_the_comma_that_kept_it_apart() {
        for (text, expected) in [
            (r#"{"a": 1, "b": 2, "c": 3}"#, r#"{"a": 1, "c": 3}"#),
            (r#"{"b": 2, "c": 3}"#, r#"{"c": 3}"#),
            (r#"{"a": 1, "b": 2}"#, r#"{"a": 1}"#),
            (r#"{"b": 1, "b": 2, "c": 3, "b": 4}"#, r#"{"c": 3}"#),
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("{\n  \"a\": 1,\n  \"b\": 2\n}", "{\n  \"a\": 1\n}"),
        ] {
            let splices = parse_json(text).unwrap().remove(text, &["b"]);
            assert_eq!(apply(text, splices).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_item_is_added_as_its_neighbours_stand() {
        for (text, expected) in [
            (r#"{"l":[]}"#, r#"{"l":[{"n":1}]}"#),
            (r#"{"l":[0]}"#, r#"{"l":[0, {"n":1}]}"#),
            ("{\n  \"l\": []\n}", "{\n  \"l\": [\n    {\n      \"n\": 1\n    }\n  ]\n}"),
            (
                "{\n  \"l\": [\n    0\n  ]\n}",
                "{\n  \"l\": [\n    0,\n    {\n      \"n\": 1\n    }\n  ]\n}",
            ),
        ] {
            let node = parse_json(text).unwrap();
            let list = node.member(text, "l").unwrap();
            assert_eq!(with(text, list.push_all(text, &[json!({ "n": 1 })])), expected, "{text}");
        }
    }
}
