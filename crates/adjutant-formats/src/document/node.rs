//! The values of a JSON or TOML text and their byte ranges.
//!
//! A JSON node holds no content: keys and values are read from the text on demand, because a file has
//! thousands of them and few are needed. Re-serializing a parsed value would lose the file's layout and every
//! number that no machine type can represent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use serde_json::Value;

use crate::fields::{FieldContent, FieldValue};

/// A value of a document and its position.
#[derive(Clone, Debug)]
pub struct DocumentNode {
    /// The byte range of the value.
    pub range: Range<usize>,
    /// What the value consists of.
    pub kind: NodeKind,
}

/// The kind of a value, with its parts.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Members in text order; a key may occur more than once.
    Object(Vec<DocumentMember>),
    /// Items.
    Array(Vec<DocumentNode>),
    /// A string, a number, `true`, `false` or `null` of JSON.
    Scalar,
    /// A TOML scalar, decoded when it was parsed because its notation differs from JSON.
    Decoded(Box<Value>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct DocumentMember {
    /// The byte range of its key, quotes included.
    pub key: Range<usize>,
    /// Its value.
    pub value: DocumentNode,
}

impl DocumentMember {
    /// Returns the key; `None` if its escapes are not valid Unicode.
    #[must_use]
    pub fn name<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let raw = &text[self.key.clone()];
        // TOML keys may be bare or in single quotes.
        let plain = (!raw.starts_with('"')).then(|| Cow::Borrowed(raw.trim_matches('\'')));
        plain.or_else(|| string(raw))
    }

    pub(super) fn is_called(&self, text: &str, key: &str) -> bool {
        self.name(text).as_deref() == Some(key)
    }
}

impl DocumentNode {
    /// Returns whether it is an object.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        matches!(self.kind, NodeKind::Object(_))
    }

    /// Returns the members of an object; empty for other kinds.
    pub(crate) fn members(&self) -> &[DocumentMember] {
        match &self.kind {
            NodeKind::Object(members) => members,
            NodeKind::Array(_) | NodeKind::Scalar | NodeKind::Decoded(_) => &[],
        }
    }

    /// Returns the member with that key; of several the last one, as JSON parsers do.
    pub(crate) fn member(&self, text: &str, key: &str) -> Option<&Self> {
        let found = self.members().iter().rev().find(|member| member.is_called(text, key));
        found.map(|member| &member.value)
    }

    /// Returns the byte ranges of repeated keys here and below, each with the range of the first occurrence.
    pub(crate) fn repeated_keys(&self, text: &str) -> Vec<(Range<usize>, Range<usize>)> {
        let mut found = Vec::new();
        self.find_doubled(text, &mut found);
        found
    }

    fn find_doubled(&self, text: &str, found: &mut Vec<(Range<usize>, Range<usize>)>) {
        self.items().into_iter().flatten().for_each(|item| item.find_doubled(text, found));
        let mut seen = BTreeMap::new();
        for member in self.members() {
            // Keys whose escapes are not valid Unicode are compared as written.
            let name = member.name(text).unwrap_or(Cow::Borrowed(&text[member.key.clone()]));
            match seen.entry(name) {
                Entry::Vacant(first) => _ = first.insert(member.key.clone()),
                Entry::Occupied(first) => found.push((first.get().clone(), member.key.clone())),
            }
            member.value.find_doubled(text, found);
        }
    }

    /// Returns the items of a list; `None` for other kinds.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            NodeKind::Array(items) => Some(items),
            NodeKind::Object(_) | NodeKind::Scalar | NodeKind::Decoded(_) => None,
        }
    }

    /// Returns whether it is `null`.
    pub(crate) fn is_null(&self, text: &str) -> bool {
        self.raw(text) == "null"
    }

    /// Parses the value; what no machine type can represent becomes `null`.
    pub(crate) fn read(&self, text: &str) -> Value {
        match &self.kind {
            NodeKind::Object(members) => {
                let read = |member: &DocumentMember| {
                    Some((member.name(text)?.into_owned(), member.value.read(text)))
                };
                Value::Object(members.iter().filter_map(read).collect())
            }
            NodeKind::Array(items) => items.iter().map(|item| item.read(text)).collect(),
            NodeKind::Scalar => serde_json::from_str(self.raw(text)).unwrap_or_default(),
            NodeKind::Decoded(value) => (**value).clone(),
        }
    }

    /// Returns the content of the value, without its parts.
    pub(crate) fn content<'t>(&'t self, text: &'t str) -> FieldContent<'t> {
        let raw = self.raw(text);
        match (&self.kind, raw) {
            (NodeKind::Object(_), _) => FieldContent::Object,
            (NodeKind::Array(_), _) => FieldContent::Array,
            (NodeKind::Decoded(value), _) => FieldValue::Json(value).content(),
            (NodeKind::Scalar, "null") => FieldContent::Null,
            (NodeKind::Scalar, "true") => FieldContent::Boolean(true),
            (NodeKind::Scalar, "false") => FieldContent::Boolean(false),
            (NodeKind::Scalar, _) if raw.starts_with('"') => string(raw).map_or(
                FieldContent::Unreadable("a string with broken escapes"),
                FieldContent::String,
            ),
            (NodeKind::Scalar, _) => serde_json::from_str(raw).map_or(
                FieldContent::Unreadable("a number that is too large"),
                FieldContent::Number,
            ),
        }
    }

    /// Returns the value if it is a string.
    pub(crate) fn as_string(&self, text: &str) -> Option<String> {
        string(self.raw(text)).map(Cow::into_owned)
    }

    /// Returns the member with this key if it is a string.
    pub(crate) fn string(&self, text: &str, key: &str) -> Option<String> {
        self.member(text, key)?.as_string(text)
    }

    /// Returns the source text of the value.
    #[must_use]
    pub fn raw<'t>(&self, text: &'t str) -> &'t str {
        &text[self.range.clone()]
    }
}

/// Parses a quoted string; `None` for anything else.
fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::parse_json;

    #[test]
    fn strings_hide_what_looks_like_structure() {
        let text = r#"{"a\"{":"}],\\","b":{"a":[true,null]},"b":2}"#;
        let node = parse_json(text).unwrap();
        assert_eq!(node.string(text, "a\"{").as_deref(), Some("}],\\"));
        assert_eq!(node.member(text, "b").unwrap().read(text), json!(2));
        assert_eq!(node.range, 0..text.len());
    }
}
