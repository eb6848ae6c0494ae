//! Parses text into nodes: JSON with `jsonc-parser`, TOML with `toml_edit`.
//!
//! The JSON parser refuses nesting deeper than 512 levels (an object takes two), so code that walks the nodes
//! may recurse. Start at [`parse_json`] and [`parse_toml`].

use std::ops::Range;

use jsonc_parser::ast::Value as Parsed;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseError;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::IgnoredAny;
use serde_json::Value;
use toml_edit::{Document, Item, Key, Table, TableLike, Value as TomlValue};

use super::node::{DocumentMember, DocumentNode, NodeKind};

/// Why a text could not be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at line {line} column {column}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// Parses JSON; numbers of any size are accepted.
///
/// # Errors
///
/// The text is not JSON.
pub fn parse_json(text: &str) -> Result<DocumentNode, SyntaxError> {
    // Checked first, because `jsonc-parser` also accepts control characters in strings and whitespace that
    // JSON does not allow.
    let _: IgnoredAny = serde_json::from_str(text)?;
    let parsed = match parse(text, false) {
        // A lone surrogate escape is valid JSON but not a Rust string. Only positions matter here, so it is
        // replaced.
        Err(_) => parse(&text.replace("\\ud", "\\u0").replace("\\uD", "\\u0"), false),
        parsed => parsed,
    };
    let empty = SyntaxError { line: 1, column: 1, reason: "there is no value".to_owned() };
    parsed?.ok_or(empty)
}

/// Parses JSON and rejects repeated keys.
///
/// # Errors
///
/// The text is not JSON, or an object repeats a key.
pub fn parse_unique_json(text: &str) -> Result<DocumentNode, SyntaxError> {
    let root = parse_json(text)?;
    match root.repeated_keys(text).into_iter().next() {
        None => Ok(root),
        Some((_, second)) => {
            let name = text[second.clone()].trim_matches('"');
            Err(SyntaxError::at(text, second.start, format!("`{name}` is given twice")))
        }
    }
}

/// Parses TOML; the position of a table with a header is that of the header.
///
/// # Errors
///
/// The text is not TOML, has a number that JSON cannot represent, or has a key with an escape that JSON does
/// not know.
pub fn parse_toml(text: &str) -> Result<DocumentNode, SyntaxError> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        SyntaxError::at(text, at, error.message().trim_end().replace('\n', ", "))
    })?;
    Ok(DocumentNode { range: 0..text.len(), kind: toml_table(text, document.as_table())? })
}

fn toml_item(text: &str, item: &Item, key: &Range<usize>) -> Result<DocumentNode, SyntaxError> {
    // A table that exists only because of its sub-tables has no position of its own.
    let range = item.span().unwrap_or(key.clone());
    let kind = match item {
        Item::Value(value) => return toml_value(text, value, key),
        Item::Table(table) => toml_table(text, table)?,
        Item::ArrayOfTables(tables) => {
            let table = |table: &Table| {
                let range = table.span().unwrap_or(key.clone());
                Ok(DocumentNode { range, kind: toml_table(text, table)? })
            };
            NodeKind::Array(tables.iter().map(table).collect::<Result<_, SyntaxError>>()?)
        }
        Item::None => decoded(()),
    };
    Ok(DocumentNode { range, kind })
}

fn toml_value(
    text: &str,
    value: &TomlValue,
    key: &Range<usize>,
) -> Result<DocumentNode, SyntaxError> {
    let range = value.span().unwrap_or(key.clone());
    let kind = match value {
        TomlValue::String(text) => decoded(text.value().as_str()),
        TomlValue::Boolean(is) => decoded(*is.value()),
        TomlValue::Datetime(moment) => decoded(moment.value().to_string()),
        TomlValue::Integer(number) => decoded(*number.value()),
        TomlValue::Float(number) if number.value().is_finite() => decoded(*number.value()),
        TomlValue::Float(_) => {
            let reason = "this number is too large or not a number".to_owned();
            return Err(SyntaxError::at(text, range.start, reason));
        }
        TomlValue::Array(items) => {
            let items = items.iter().map(|item| toml_value(text, item, key));
            NodeKind::Array(items.collect::<Result<_, _>>()?)
        }
        TomlValue::InlineTable(table) => toml_table(text, table)?,
    };
    Ok(DocumentNode { range, kind })
}

fn decoded(scalar: impl Into<Value>) -> NodeKind {
    NodeKind::Decoded(Box::new(scalar.into()))
}

fn toml_table(text: &str, table: &dyn TableLike) -> Result<NodeKind, SyntaxError> {
    let mut members = Vec::with_capacity(table.len());
    for (name, item) in table.iter() {
        let key = table.key(name).and_then(Key::span).unwrap_or_default();
        let member = DocumentMember { value: toml_item(text, item, &key)?, key };
        if !member.is_called(text, name) {
            let reason = format!("the key `{name}` is written with an escape that is not read");
            return Err(SyntaxError::at(text, member.key.start, reason));
        }
        members.push(member);
    }
    // `toml_edit` lists tables after values; sorting restores the order of the file.
    members.sort_by_key(|member| member.key.start);
    Ok(NodeKind::Object(members))
}

/// Parses JSON with comments and trailing commas; `None` if the text has no value.
pub(super) fn parse_jsonc(text: &str) -> Result<Option<DocumentNode>, SyntaxError> {
    parse(text, true)
}

fn parse(text: &str, is_jsonc: bool) -> Result<Option<DocumentNode>, SyntaxError> {
    let options = ParseOptions {
        allow_comments: is_jsonc,
        allow_trailing_commas: is_jsonc,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options)?;
    Ok(parsed.value.map(node))
}

fn node(parsed: Parsed<'_>) -> DocumentNode {
    let range = parsed.start()..parsed.end();
    let kind = match parsed {
        Parsed::Object(object) => {
            let member = |property: jsonc_parser::ast::ObjectProp<'_>| {
                let key = property.name.start()..property.name.end();
                DocumentMember { key, value: node(property.value) }
            };
            NodeKind::Object(object.properties.into_iter().map(member).collect())
        }
        Parsed::Array(array) => NodeKind::Array(array.elements.into_iter().map(node).collect()),
        Parsed::StringLit(_)
        | Parsed::NumberLit(_)
        | Parsed::BooleanLit(_)
        | Parsed::NullKeyword(_) => NodeKind::Scalar,
    };
    DocumentNode { range, kind }
}

/// Returns the line and the column in characters of byte `at`, both from 1.
#[must_use]
pub fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[start..].chars().count() + 1)
}

impl SyntaxError {
    /// Makes an error at a byte offset.
    fn at(text: &str, at: usize, reason: String) -> Self {
        let at = text.floor_char_boundary(at);
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: position(text, at).0, column: at - line_start + 1, reason }
    }

    /// Returns its byte offset in `text`.
    #[must_use]
    pub fn byte(&self, text: &str) -> usize {
        let before = text.split_inclusive('\n').take(self.line.saturating_sub(1));
        let line_start = before.map(str::len).sum::<usize>();
        text.floor_char_boundary(line_start + self.column.saturating_sub(1))
    }
}

impl From<serde_json::Error> for SyntaxError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let said = error.to_string();
        let place = format!(" at line {line} column {column}");
        let reason = said.strip_suffix(&place).unwrap_or(&said).to_owned();
        Self { line, column, reason }
    }
}

impl From<ParseError> for SyntaxError {
    fn from(error: ParseError) -> Self {
        let reason = error.kind().to_string();
        Self { line: error.line_display(), column: error.column_display(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_refused_and_ends_no_process() {
        for text in ["[".repeat(100_000) + &"]".repeat(100_000), "{\"a\":".repeat(100_000)] {
            assert!(parse_json(&text).is_err());
            assert!(parse_jsonc(&text).is_err());
        }
        assert!(parse_json(&("[".repeat(500) + &"]".repeat(500))).is_ok());
    }

    #[test]
    fn what_is_json_is_read_whatever_it_holds() {
        for text in [r#"{"a": "\ud800", "b\uDC00": 1e999}"#, r#"["\\ud800", "\ud83d\ude00"]"#, "0"]
        {
            assert_eq!(parse_json(text).unwrap().range, 0..text.len(), "{text}");
        }
    }
}
