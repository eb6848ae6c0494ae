//! Parses JSON from models, clients and people, and rejects objects with repeated keys.
//!
//! `serde_json` keeps the last of two equal keys. The author's intention is then unknown, and two readers of
//! the same text may disagree, so the text is rejected. Start at [`from_str`]; [`UniqueKeys`] reads a value
//! out of a longer text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum number of characters of a repeated key shown in the message.
const SHOWN_KEY_CHARS: usize = 64;

/// Parses one JSON value.
///
/// # Errors
///
/// The text is not JSON, or an object in it repeats a key; [`is_repeated_key`] tells which.
pub fn from_str(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|UniqueKeys(value)| value)
}

/// Like [`from_str`], for bytes.
///
/// # Errors
///
/// Like [`from_str`]; text that is not UTF-8 is not JSON.
pub fn from_slice(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(text).map(|UniqueKeys(value)| value)
}

/// Returns whether parsing failed because an object repeats a key.
#[must_use]
pub fn is_repeated_key(error: &serde_json::Error) -> bool {
    // The visitor below accepts every kind of value, so a repeated key is the only possible data error.
    error.is_data()
}

/// A JSON value in which no object repeats a key.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueKeys(pub Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueKeys(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(repeated_key_error(&key)));
            }
            let UniqueKeys(value) = members.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

fn repeated_key_error(key: &str) -> String {
    // Escaped, so that a key with a line break or a control character stays on one line.
    let mut shown: String =
        key.chars().take(SHOWN_KEY_CHARS).flat_map(char::escape_debug).collect();
    if key.chars().nth(SHOWN_KEY_CHARS).is_some() {
        shown.push('…');
    }
    format!("the key `{shown}` occurs twice in one object")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_an_object_has_twice_is_named_with_its_place() {
        let long = format!(r#"{{"{0}": 1, "{0}": 2}}"#, "k".repeat(100));
        let said = [
            r#"{"path": "a", "path": "b"}"#,
            r#"{"path": "a", "path": "a"}"#,
            // The same key, spelled with an escape.
            r#"{"path": "a", "p\u0061th": "b"}"#,
            r#"{"tasks": [{"label": "x"}, {"label": "y", "prompt": {"a": 1, "b": 2, "a": 3}}]}"#,
            r#"{"": 1, "": 2}"#,
            r#"{"a\nb": 1, "a\nb": 2}"#,
            &long,
        ]
        .map(|text| from_str(text).unwrap_err())
        .map(|error| {
            assert!(is_repeated_key(&error), "{error}");
            error.to_string()
        });
        insta::assert_snapshot!(said.join("\n"), @r"
        the key `path` occurs twice in one object at line 1 column 20
        the key `path` occurs twice in one object at line 1 column 20
        the key `path` occurs twice in one object at line 1 column 25
        the key `a` occurs twice in one object at line 1 column 72
        the key `` occurs twice in one object at line 1 column 10
        the key `a\nb` occurs twice in one object at line 1 column 18
        the key `kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…` occurs twice in one object at line 1 column 210
        ");
    }

    #[test]
    fn a_key_may_occur_in_several_objects() {
        let text = r#"{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": null}}"#;
        assert_eq!(from_str(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn text_that_is_not_json_has_no_repeated_key() {
        for text in ["", "{", "{\"a\": }", "nul", "{\"a\": 1} x", "1e999", &"[".repeat(10_000)] {
            assert!(!is_repeated_key(&from_str(text).unwrap_err()), "{text}");
        }
        assert!(!is_repeated_key(&from_slice(b"\"\xff\"").unwrap_err()));
    }

    proptest! {
        #[test]
        fn what_has_no_key_twice_is_read_as_serde_json_reads_it(
            text in "[{}\\[\\]\",:a1.e\\-\\\\ untrlfs]{0,24}",
            number in any::<f64>(),
        ) {
            for text in [text, json!({ "n": number, "i": [1, -1, u64::MAX, i64::MIN] }).to_string()] {
                match (from_str(&text), serde_json::from_str::<Value>(&text)) {
                    (Err(error), Ok(_)) => prop_assert!(is_repeated_key(&error)),
                    (ours, theirs) => prop_assert_eq!(ours.ok(), theirs.ok()),
                }
            }
        }
    }
}
