//! A TOML or JSON document as a tree of values that remember where they stood.
//!
//! Both formats become the same [`PositionedValue`]s, so that a reader of them knows one shape and can name the place
//! of any fault. Unlike a [`Node`] they hold what was read. Invariant: a table's keys are in file order and unique.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use toml_edit::{Document, Item, TableLike, Value as TomlValue};

use super::node::{Kind, Member, Node};
use super::parse::{SyntaxError, parse_json};

/// How deep values may nest; deeper is an accident or an attack on the stack.
const MAX_DEPTH: usize = 64;

/// One value of a document and the bytes it was read from.
#[derive(Clone, Debug)]
pub struct PositionedValue {
    /// The bytes; those of its header for a table of TOML that has one.
    pub range: Range<usize>,
    /// What it is.
    pub kind: PositionedKind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum PositionedKind {
    /// A string, a number, `true`, `false` or `null`.
    Scalar(Value),
    /// A list.
    List(Vec<PositionedValue>),
    /// A table of TOML or an object of JSON.
    Table(Vec<(PositionedKey, PositionedValue)>),
}

/// A key of a table.
#[derive(Clone, Debug)]
pub struct PositionedKey {
    /// The byte it starts at.
    pub at: usize,
    /// Its name.
    pub name: String,
}

/// Says why a document could not be read, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DocumentError {
    /// The byte.
    pub at: usize,
    /// What is wrong there.
    pub reason: String,
}

impl PositionedValue {
    /// Reads a TOML document; dates become strings.
    ///
    /// # Errors
    ///
    /// The text is not TOML, nests too deep, or has a number that JSON cannot hold.
    pub fn from_toml(text: &str) -> Result<Self, DocumentError> {
        let document = Document::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            DocumentError { at, reason: error.message().trim_end().replace('\n', ", ") }
        })?;
        Ok(Self { range: 0..text.len(), kind: toml_table(document.as_table(), 0)? })
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    ///
    /// The text is not JSON, nests too deep, has a key twice, or has a string or a number that no type holds.
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let root = parse_json(text).map_err(|error| placed(text, 0, error))?;
        json_value(text, &root, 0)
    }

    /// Returns the members of a table; a value of another kind has none.
    #[must_use]
    pub fn members(&self) -> &[(PositionedKey, Self)] {
        match &self.kind {
            PositionedKind::Table(members) => members,
            PositionedKind::Scalar(_) | PositionedKind::List(_) => &[],
        }
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }
}

fn toml_item(item: &Item, key_at: usize, depth: usize) -> Result<PositionedValue, DocumentError> {
    // A table that exists only because of the tables below it has no place of its own.
    let range = item.span().unwrap_or(key_at..key_at);
    check_depth(range.start, depth)?;
    let kind = match item {
        Item::Value(value) => return toml_value(value, key_at, depth),
        Item::Table(table) => toml_table(table, depth)?,
        Item::ArrayOfTables(tables) => {
            let table = |table: &toml_edit::Table| {
                let range = table.span().unwrap_or(key_at..key_at);
                check_depth(range.start, depth + 1)?;
                Ok(PositionedValue { range, kind: toml_table(table, depth + 1)? })
            };
            PositionedKind::List(tables.iter().map(table).collect::<Result<_, _>>()?)
        }
        Item::None => PositionedKind::Scalar(Value::Null),
    };
    Ok(PositionedValue { range, kind })
}

fn toml_value(
    value: &TomlValue,
    key_at: usize,
    depth: usize,
) -> Result<PositionedValue, DocumentError> {
    let range = value.span().unwrap_or(key_at..key_at);
    check_depth(range.start, depth)?;
    let kind = match value {
        TomlValue::String(text) => PositionedKind::Scalar(text.value().as_str().into()),
        TomlValue::Boolean(is) => PositionedKind::Scalar((*is.value()).into()),
        TomlValue::Datetime(moment) => PositionedKind::Scalar(moment.value().to_string().into()),
        TomlValue::Integer(number) => PositionedKind::Scalar((*number.value()).into()),
        TomlValue::Float(number) => {
            let reason = "this number is too large or not a number".to_owned();
            let number = Number::from_f64(*number.value());
            PositionedKind::Scalar(number.ok_or(DocumentError { at: range.start, reason })?.into())
        }
        TomlValue::Array(items) => {
            let items = items.iter().map(|item| toml_value(item, key_at, depth + 1));
            PositionedKind::List(items.collect::<Result<_, _>>()?)
        }
        TomlValue::InlineTable(table) => toml_table(table, depth)?,
    };
    Ok(PositionedValue { range, kind })
}

fn toml_table(table: &dyn TableLike, depth: usize) -> Result<PositionedKind, DocumentError> {
    let mut members = Vec::with_capacity(table.len());
    for (name, item) in table.iter() {
        let at = table.key(name).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        members
            .push((PositionedKey { at, name: name.to_owned() }, toml_item(item, at, depth + 1)?));
    }
    // Tables follow values here; a person reads, and a model is sent, the file's order.
    members.sort_by_key(|(key, _)| key.at);
    Ok(PositionedKind::Table(members))
}

fn json_value(text: &str, node: &Node, depth: usize) -> Result<PositionedValue, DocumentError> {
    let range = node.range.clone();
    check_depth(range.start, depth)?;
    let kind = match &node.kind {
        Kind::Object(members) => json_table(text, members, depth)?,
        Kind::Array(items) => {
            let items = items.iter().map(|item| json_value(text, item, depth + 1));
            PositionedKind::List(items.collect::<Result<_, _>>()?)
        }
        Kind::Scalar => PositionedKind::Scalar(scalar(text, range.clone())?),
    };
    Ok(PositionedValue { range, kind })
}

fn json_table(
    text: &str,
    members: &[Member],
    depth: usize,
) -> Result<PositionedKind, DocumentError> {
    let mut read = Vec::with_capacity(members.len());
    let mut names = BTreeSet::new();
    for Member { key, value } in members {
        let name: String = scalar(text, key.clone())?;
        if !names.insert(name.clone()) {
            return Err(DocumentError {
                at: key.start,
                reason: format!("`{name}` is given twice"),
            });
        }
        read.push((PositionedKey { at: key.start, name }, json_value(text, value, depth + 1)?));
    }
    Ok(PositionedKind::Table(read))
}

fn scalar<T: DeserializeOwned>(text: &str, range: Range<usize>) -> Result<T, DocumentError> {
    serde_json::from_str(&text[range.clone()])
        .map_err(|error| placed(text, range.start, error.into()))
}

/// Places the error of a parser that read `text` from byte `start` on.
fn placed(text: &str, start: usize, error: SyntaxError) -> DocumentError {
    let before = text[start..].split_inclusive('\n').take(error.line.saturating_sub(1));
    let line = start + before.map(str::len).sum::<usize>();
    let at = text.floor_char_boundary(line + error.column.saturating_sub(1));
    DocumentError { at, reason: error.reason }
}

fn check_depth(at: usize, depth: usize) -> Result<(), DocumentError> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(DocumentError { at, reason: format!("values nest deeper than {MAX_DEPTH} levels") })
}
