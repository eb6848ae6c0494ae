//! The parts of a text and where they stand.
//!
//! A node of JSON holds no content: names and values are compared and read where they stand in the text, because a file has
//! thousands of them and few are asked for. Rewriting through a parsed value would lose how a person laid the file out
//! and every number that no machine type holds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use serde_json::Value;

use crate::fields::{FieldContent, FieldValue};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct DocumentNode {
    /// The bytes of the value.
    pub range: Range<usize>,
    /// What it consists of.
    pub kind: NodeKind,
}

/// What a value consists of.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Members in the order of the text; a name may occur more than once.
    Object(Vec<DocumentMember>),
    /// Items.
    Array(Vec<DocumentNode>),
    /// A string, a number, `true`, `false` or `null` of JSON.
    Scalar,
    /// A scalar of TOML, which writes them in other ways.
    Decoded(Box<Value>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct DocumentMember {
    /// Where its name stands, with its quotes.
    pub key: Range<usize>,
    /// Its value.
    pub value: DocumentNode,
}

impl DocumentMember {
    /// Returns the name; none where its escapes make no text.
    #[must_use]
    pub fn name<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let raw = &text[self.key.clone()];
        // Names of TOML may stand in single quotes, or in none.
        let plain = (!raw.starts_with('"')).then(|| Cow::Borrowed(raw.trim_matches('\'')));
        plain.or_else(|| string(raw))
    }

    pub(super) fn is_called(&self, text: &str, key: &str) -> bool {
        self.name(text).as_deref() == Some(key)
    }
}

impl DocumentNode {
    /// Says whether it is an object.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        matches!(self.kind, NodeKind::Object(_))
    }

    /// Returns the members of an object; a value of another kind has none.
    pub(crate) fn members(&self) -> &[DocumentMember] {
        match &self.kind {
            NodeKind::Object(members) => members,
            NodeKind::Array(_) | NodeKind::Scalar | NodeKind::Decoded(_) => &[],
        }
    }

    /// Returns the member of that name; of several, the last one counts, as everywhere.
    pub(crate) fn member(&self, text: &str, key: &str) -> Option<&Self> {
        let found = self.members().iter().rev().find(|member| member.is_called(text, key));
        found.map(|member| &member.value)
    }

    /// Returns where the names stand that an object has a second time, here and below, in their order.
    pub(crate) fn doubled(&self, text: &str) -> Vec<(Range<usize>, Range<usize>)> {
        let mut found = Vec::new();
        self.find_doubled(text, &mut found);
        found
    }

    fn find_doubled(&self, text: &str, found: &mut Vec<(Range<usize>, Range<usize>)>) {
        self.items().into_iter().flatten().for_each(|item| item.find_doubled(text, found));
        let mut seen = BTreeMap::new();
        for member in self.members() {
            // Names whose escapes make no text are told apart as they are written.
            let name = member.name(text).unwrap_or(Cow::Borrowed(&text[member.key.clone()]));
            match seen.entry(name) {
                Entry::Vacant(first) => _ = first.insert(member.key.clone()),
                Entry::Occupied(first) => found.push((first.get().clone(), member.key.clone())),
            }
            member.value.find_doubled(text, found);
        }
    }

    /// Returns the items of a list.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            NodeKind::Array(items) => Some(items),
            NodeKind::Object(_) | NodeKind::Scalar | NodeKind::Decoded(_) => None,
        }
    }

    /// Says whether it is `null`, which stands for nothing.
    pub(crate) fn is_null(&self, text: &str) -> bool {
        self.raw(text) == "null"
    }

    /// Reads the value; what no machine type holds is read as `null`.
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

    /// Returns what the value is.
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

    /// Reads the value where it is a string.
    pub(crate) fn as_string(&self, text: &str) -> Option<String> {
        string(self.raw(text)).map(Cow::into_owned)
    }

    /// Reads a member that is a string.
    pub(crate) fn string(&self, text: &str, key: &str) -> Option<String> {
        self.member(text, key)?.as_string(text)
    }

    /// Returns the text of the value as it stands.
    #[must_use]
    pub fn raw<'t>(&self, text: &'t str) -> &'t str {
        &text[self.range.clone()]
    }
}

/// Reads a string with its quotes; none where it is something else.
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
