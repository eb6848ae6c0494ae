//! Reads the fields of a JSON object and complains by path.

use serde_json::{Map, Value};

use super::verdict::Findings;
use crate::excerpt::excerpt;

/// The most characters of foreign text that a complaint repeats.
const SHOWN_CHARS: usize = 80;

/// A JSON object and the path that complaints name it by.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// Reads the return itself.
    pub(super) const fn root(map: &'a Map<String, Value>) -> Self {
        Self { map, path: String::new() }
    }

    /// Reads the object found at `path`.
    ///
    /// Complains when `value` is no object.
    pub(super) fn at(path: String, value: &'a Value, findings: &mut Findings) -> Option<Self> {
        let Some(map) = value.as_object() else {
            let message = format!("{path} must be an object");
            findings.error(path, message);
            return None;
        };
        Some(Self { map, path })
    }

    /// Returns the path of the field `key`.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the field, `null` included.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// Returns the field unless it is absent or `null`, which mean the same where it is optional.
    pub(super) fn optional(&self, key: &str) -> Option<&'a Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// Returns the field; complains when it is absent.
    pub(super) fn required(&self, key: &str, findings: &mut Findings) -> Option<&'a Value> {
        let value = self.get(key);
        if value.is_none() {
            findings.missing(self.path(key));
        }
        value
    }

    /// Returns a required text; complains when it is absent, no text or blank.
    pub(super) fn text(&self, key: &str, findings: &mut Findings) -> Option<&'a str> {
        let value = self.required(key, findings)?;
        let text = self.expect(key, "a string", value.as_str(), findings)?;
        if text.trim().is_empty() {
            let path = self.path(key);
            let message = format!("{path} cannot be empty");
            findings.error(path, message);
            return None;
        }
        Some(text)
    }

    /// Returns an optional text; complains when it is something else.
    pub(super) fn optional_text(&self, key: &str, findings: &mut Findings) -> Option<&'a str> {
        let value = self.optional(key)?;
        let text = self.expect(key, "a string", value.as_str(), findings)?;
        Some(text).filter(|text| !text.trim().is_empty())
    }

    /// Passes `read` on; complains that the field is not `what` when there is nothing.
    pub(super) fn expect<T>(
        &self,
        key: &str,
        what: &str,
        read: Option<T>,
        findings: &mut Findings,
    ) -> Option<T> {
        if read.is_none() {
            let path = self.path(key);
            let message = format!("{path} must be {what}");
            findings.error(path, message);
        }
        read
    }

    /// Warns of each field that nobody will read.
    pub(super) fn warn_unknown(&self, known: &[&str], findings: &mut Findings) {
        for key in self.map.keys().filter(|key| !known.contains(&key.as_str())) {
            let path = self.path(&excerpt(key, SHOWN_CHARS));
            let message = format!("Unknown field is ignored: {path}");
            findings.warn(path, message);
        }
    }
}

/// Shows a foreign value in a complaint: a text as it is, anything else as JSON.
pub(super) fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    excerpt(&text, SHOWN_CHARS).into_owned()
}
