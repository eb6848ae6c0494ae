//! Where the parts of a JSON text stand, so that one of them can change and the rest stay.
//!
//! Rewriting through a parsed value would lose how a person laid the file out and every number that
//! no machine type holds. Invariant: [`spans`] is called on texts that `serde_json` accepted. Names
//! and texts are compared where they stand: a file has thousands of them, and one of them changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use super::splice::Splice;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Scalar,
}

#[derive(Clone, Debug)]
struct Member {
    /// Where its name stands, with the quotes.
    key: Range<usize>,
    value: Node,
}

/// Finds where everything stands; none for what is no JSON or nested beyond all reason.
pub(crate) fn spans(text: &str) -> Option<Node> {
    let mut reader = Reader { text, at: 0, level: 0 };
    reader.value()
}

impl Node {
    /// Says whether it is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }

    /// Returns the member of that name; of several, the last one counts, as everywhere.
    pub(crate) fn member(&self, text: &str, key: &str) -> Option<&Self> {
        let Kind::Object(members) = &self.kind else { return None };
        let is_meant = |member: &&Member| string(&text[member.key.clone()]).as_deref() == Some(key);
        members.iter().rev().find(is_meant).map(|member| &member.value)
    }

    /// Returns where the names stand that an object has a second time, here and below, in their order.
    pub(crate) fn doubled(&self, text: &str) -> Vec<(Range<usize>, Range<usize>)> {
        let mut found = Vec::new();
        self.find_doubled(text, &mut found);
        found
    }

    fn find_doubled(&self, text: &str, found: &mut Vec<(Range<usize>, Range<usize>)>) {
        match &self.kind {
            Kind::Scalar => {}
            Kind::Array(items) => items.iter().for_each(|item| item.find_doubled(text, found)),
            Kind::Object(members) => {
                let mut seen = BTreeMap::new();
                for Member { key, value } in members {
                    // Names whose escapes make no text are told apart as they are written.
                    let raw = &text[key.clone()];
                    let name = string(raw).unwrap_or(Cow::Borrowed(raw));
                    match seen.entry(name) {
                        Entry::Vacant(first) => _ = first.insert(key.clone()),
                        Entry::Occupied(first) => found.push((first.get().clone(), key.clone())),
                    }
                    value.find_doubled(text, found);
                }
            }
        }
    }

    /// Returns the items of a list.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            Kind::Object(_) | Kind::Scalar => None,
        }
    }

    /// Says whether it is `null`, which stands for nothing.
    pub(crate) fn is_null(&self, text: &str) -> bool {
        &text[self.range.clone()] == "null"
    }

    /// Returns where the first name of an object begins and its last value ends; none without members.
    pub(super) fn edges(&self) -> Option<(usize, usize)> {
        let Kind::Object(members) = &self.kind else { return None };
        let (first, last) = members.first().zip(members.last())?;
        Some((first.key.start, last.value.range.end))
    }

    /// Returns where a member of that name stands, from its name to the end of its value.
    pub(super) fn place(&self, text: &str, key: &str) -> Option<Range<usize>> {
        let Kind::Object(members) = &self.kind else { return None };
        let is_meant = |member: &&Member| string(&text[member.key.clone()]).as_deref() == Some(key);
        let member = members.iter().rev().find(is_meant)?;
        Some(member.key.start..member.value.range.end)
    }

    /// Reads the value.
    pub(crate) fn read(&self, text: &str) -> Value {
        serde_json::from_str(&text[self.range.clone()]).unwrap_or_default()
    }

    /// Reads the value where it is a string.
    pub(crate) fn as_string(&self, text: &str) -> Option<String> {
        string(&text[self.range.clone()]).map(Cow::into_owned)
    }

    /// Reads a member that is a string.
    pub(crate) fn string(&self, text: &str, key: &str) -> Option<String> {
        self.member(text, key)?.as_string(text)
    }

    /// Returns the text of the value as it stands.
    pub(crate) fn raw<'t>(&self, text: &'t str) -> &'t str {
        &text[self.range.clone()]
    }

    /// Returns the blanks between the bracket and the first part; none where it has no parts.
    pub(crate) fn opening<'t>(&self, text: &'t str) -> Option<&'t str> {
        let first = match &self.kind {
            Kind::Object(members) => members.first()?.key.start,
            Kind::Array(items) => items.first()?.range.start,
            Kind::Scalar => return None,
        };
        Some(&text[self.range.start + 1..first])
    }

    /// Sets a member to a value that is laid out already, or adds it behind the others.
    ///
    /// Only for objects that have members: what an empty one would look like is not known here.
    pub(crate) fn set_shown(&self, text: &str, key: &str, shown: &str) -> Option<Splice> {
        if let Some(known) = self.member(text, key) {
            return Some(Splice::replace(known.range.clone(), shown));
        }
        let Kind::Object(members) = &self.kind else { return None };
        let (gap, last) = self.opening(text).zip(members.last())?;
        let added = format!(",{}{}: {shown}", spaced(gap), Value::from(key));
        Some(Splice::insert(last.value.range.end, added))
    }

    /// Sets a member, or adds it behind the others.
    pub(crate) fn set(&self, text: &str, key: &str, value: &Value) -> Splice {
        if let Some(known) = self.member(text, key) {
            let base = line_indent(text, known.range.start);
            return Splice::replace(known.range.clone(), laid_out(text, value, base));
        }
        let Kind::Object(members) = &self.kind else {
            return Splice::insert(self.range.end, String::new());
        };
        let Some((first, last)) = members.first().zip(members.last()) else {
            return self.fill(text, &[(key, value)]);
        };
        let gap = &text[self.range.start + 1..first.key.start];
        let shown = member(text, key, value, indent_of(gap));
        Splice::insert(last.value.range.end, format!(",{}{shown}", spaced(gap)))
    }

    /// Sets several members; an empty object gets all of them at once, for each alone would take
    /// its place.
    pub(crate) fn set_all(&self, text: &str, fields: &[(&str, &Value)]) -> Vec<Splice> {
        match &self.kind {
            Kind::Object(members) if members.is_empty() && !fields.is_empty() => {
                vec![self.fill(text, fields)]
            }
            Kind::Object(_) | Kind::Array(_) | Kind::Scalar => {
                fields.iter().map(|(key, value)| self.set(text, key, value)).collect()
            }
        }
    }

    /// Removes a member and the comma that kept it apart; several of one name go together.
    pub(crate) fn remove(&self, text: &str, key: &str) -> Vec<Splice> {
        let Kind::Object(members) = &self.kind else { return Vec::new() };
        let is_meant = |member: &Member| string(&text[member.key.clone()]).as_deref() == Some(key);
        let Some(kept) = members.iter().position(|member| !is_meant(member)) else {
            return Vec::new();
        };
        let cut = |(nth, member): (usize, &Member)| {
            // One before all that stay takes the comma behind it, any other the one before it.
            let range = if nth < kept {
                member.key.start..members[nth + 1].key.start
            } else {
                members[nth - 1].value.range.end..member.value.range.end
            };
            Splice::replace(range, "")
        };
        members.iter().enumerate().filter(|(_, member)| is_meant(member)).map(cut).collect()
    }

    /// Adds an item at the end of a list.
    pub(crate) fn push(&self, text: &str, value: &Value) -> Splice {
        let items = self.items().unwrap_or_default();
        let Some((first, last)) = items.first().zip(items.last()) else {
            let Some((inner, close)) = self.inside(text) else {
                return Splice::replace(self.range.clone(), format!("[{value}]"));
            };
            let shown = laid_out(text, value, inner.trim_start_matches(['\r', '\n']));
            return Splice::replace(self.range.clone(), format!("[{inner}{shown}{close}]"));
        };
        let gap = &text[self.range.start + 1..first.range.start];
        let shown = laid_out(text, value, indent_of(gap));
        Splice::insert(last.range.end, format!(",{}{shown}", spaced(gap)))
    }

    /// Replaces an empty object by one with these members.
    fn fill(&self, text: &str, fields: &[(&str, &Value)]) -> Splice {
        let (inner, close) = self.inside(text).unwrap_or_default();
        let indent = inner.trim_start_matches(['\r', '\n']);
        let shown = fields.iter().map(|(key, value)| member(text, key, value, indent));
        let shown = shown.collect::<Vec<_>>().join(&format!(",{}", spaced(&inner)));
        Splice::replace(self.range.clone(), format!("{{{inner}{shown}{close}}}"))
    }

    /// Returns what stands before each part of an empty list or object that is filled, and behind
    /// the last; none where all stands on one line.
    fn inside(&self, text: &str) -> Option<(String, String)> {
        let unit = unit(text)?;
        let (eol, base) = (eol(text), line_indent(text, self.range.start));
        Some((format!("{eol}{base}{unit}"), format!("{eol}{base}")))
    }
}

/// Writes a member whose further lines are indented by `base`.
fn member(text: &str, key: &str, value: &Value, base: &str) -> String {
    format!("{}: {}", Value::from(key), laid_out(text, value, base))
}

/// Reads a string with its quotes; none where it is something else.
fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Keeps items on one line apart.
fn spaced(gap: &str) -> &str {
    if gap.is_empty() { " " } else { gap }
}

pub(super) fn eol(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns what one level is indented by; none where all stands on one line.
pub(super) fn unit(text: &str) -> Option<&str> {
    let inside = text.trim_start().strip_prefix('{')?;
    let gap = &inside[..inside.len() - inside.trim_start().len()];
    gap.contains('\n').then(|| indent_of(gap))
}

/// Returns the blanks behind the last line ending.
fn indent_of(gap: &str) -> &str {
    gap.rfind('\n').map_or("", |at| &gap[at + 1..])
}

/// Returns the blanks that the line of this byte begins with.
pub(super) fn line_indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Writes a value as the file is laid out, its further lines indented by `base`.
fn laid_out(text: &str, value: &Value, base: &str) -> String {
    let Some(unit) = unit(text) else { return value.to_string() };
    shown(value, unit, eol(text), base)
}

/// Writes a value over several lines, those behind the first indented by `base`.
pub(super) fn shown(value: &Value, unit: &str, eol: &str, base: &str) -> String {
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, format);
    let written = value.serialize(&mut writer).ok().and_then(|()| String::from_utf8(bytes).ok());
    // Writing a value to memory cannot fail; its plain form says the same.
    let pretty = written.unwrap_or_else(|| value.to_string());
    pretty.replace('\n', &format!("{eol}{base}"))
}

/// How deep a text may be nested; no list of tasks or stories comes near it, and a stack has an end.
const LEVELS: usize = 512;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    level: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Steps over `byte` and the blanks before it.
    fn took(&mut self, byte: u8) -> bool {
        self.blanks();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Option<Node> {
        self.blanks();
        let start = self.at;
        let kind = match self.peek()? {
            b'{' | b'[' if self.level == LEVELS => return None,
            b'{' => self.below(Self::object)?,
            b'[' => self.below(Self::array)?,
            b'"' => {
                self.string()?;
                Kind::Scalar
            }
            _ => {
                let ends = |byte: u8| byte.is_ascii_whitespace() || b",]}".contains(&byte);
                while self.peek().is_some_and(|byte| !ends(byte)) {
                    self.at += 1;
                }
                Kind::Scalar
            }
        };
        Some(Node { range: start..self.at, kind })
    }

    fn below(&mut self, read: fn(&mut Self) -> Option<Kind>) -> Option<Kind> {
        self.level += 1;
        let kind = read(self);
        self.level -= 1;
        kind
    }

    fn object(&mut self) -> Option<Kind> {
        let mut members = Vec::new();
        self.at += 1;
        if self.took(b'}') {
            return Some(Kind::Object(members));
        }
        loop {
            self.blanks();
            let start = self.at;
            self.string()?;
            let key = start..self.at;
            if !self.took(b':') {
                return None;
            }
            let value = self.value()?;
            members.push(Member { key, value });
            if self.took(b'}') {
                return Some(Kind::Object(members));
            }
            if !self.took(b',') {
                return None;
            }
        }
    }

    fn array(&mut self) -> Option<Kind> {
        let mut items = Vec::new();
        self.at += 1;
        if self.took(b']') {
            return Some(Kind::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.took(b']') {
                return Some(Kind::Array(items));
            }
            if !self.took(b',') {
                return None;
            }
        }
    }

    /// Steps over a string.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::splice::apply;
    use super::*;
    use serde_json::json;

    fn with(text: &str, splice: Splice) -> String {
        apply(text, vec![splice]).unwrap()
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
            let node = spans(text).unwrap();
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
            let splices = spans(text).unwrap().set_all(text, &[("a", &one), ("b", &two)]);
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
            let splices = spans(text).unwrap().remove(text, "b");
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
            let node = spans(text).unwrap();
            let list = node.member(text, "l").unwrap();
            assert_eq!(with(text, list.push(text, &json!({ "n": 1 }))), expected, "{text}");
        }
    }

    #[test]
    fn strings_hide_what_looks_like_structure() {
        let text = r#"{"a\"{":"}],\\","b":{"a":[true,null]},"b":2}"#;
        let node = spans(text).unwrap();
        assert_eq!(node.string(text, "a\"{").as_deref(), Some("}],\\"));
        assert_eq!(node.member(text, "b").unwrap().read(text), json!(2));
        assert_eq!(node.range, 0..text.len());
    }
}
