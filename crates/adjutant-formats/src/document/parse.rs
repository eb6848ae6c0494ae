//! Finds the parts of a JSON text, with `jsonc-parser`.
//!
//! The parser refuses what is nested deeper than 512 levels, of which an object takes two, so that whatever walks the
//! nodes may recurse. Start at [`parse_json`].

use jsonc_parser::ast::Value as Parsed;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseError;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::IgnoredAny;

use super::node::{Kind, Member, Node};

/// Says why a text could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at line {line} column {column}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// Reads JSON; every number is left as it is written, whatever its size.
///
/// # Errors
///
/// The text is not JSON.
pub fn parse_json(text: &str) -> Result<Node, SyntaxError> {
    // The other parser also takes control characters in strings and blanks that JSON does not know.
    let _: IgnoredAny = serde_json::from_str(text)?;
    let parsed = match parse(text, false) {
        // A surrogate without the other half is JSON, though no text. Only places are looked up here.
        Err(_) => parse(&text.replace("\\ud", "\\u0").replace("\\uD", "\\u0"), false),
        parsed => parsed,
    };
    let empty = SyntaxError { line: 1, column: 1, reason: "there is no value".to_owned() };
    parsed?.ok_or(empty)
}

/// Reads JSON with comments, and commas behind the last item of something; none where the text has no value.
pub(super) fn parse_jsonc(text: &str) -> Result<Option<Node>, SyntaxError> {
    parse(text, true)
}

fn parse(text: &str, is_jsonc: bool) -> Result<Option<Node>, SyntaxError> {
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

fn node(parsed: Parsed<'_>) -> Node {
    let range = parsed.start()..parsed.end();
    let kind = match parsed {
        Parsed::Object(object) => {
            let member = |property: jsonc_parser::ast::ObjectProp<'_>| {
                let key = property.name.start()..property.name.end();
                Member { key, value: node(property.value) }
            };
            Kind::Object(object.properties.into_iter().map(member).collect())
        }
        Parsed::Array(array) => Kind::Array(array.elements.into_iter().map(node).collect()),
        Parsed::StringLit(_)
        | Parsed::NumberLit(_)
        | Parsed::BooleanLit(_)
        | Parsed::NullKeyword(_) => Kind::Scalar,
    };
    Node { range, kind }
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
