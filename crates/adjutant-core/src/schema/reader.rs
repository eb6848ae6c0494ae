//! Reads JSON values by type and collects what is wrong with them, by path.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::{code::Code, numbers};
use adjutant_formats::excerpt::excerpt;
use adjutant_formats::nearest;

/// The most characters of foreign text that a complaint repeats.
const SHOWN_CHARS: usize = 40;
/// The most complaints that one line of text repeats.
const SHOWN_COMPLAINTS: usize = 20;

/// Says everything that is wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// What is wrong, place by place; never empty.
    pub complaints: Vec<SchemaComplaint>,
}

/// Says what is wrong in one place of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaComplaint {
    /// Where: `tasks[2].prompt`.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl SchemaError {
    /// Returns the code by which programs know the error.
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::ValidationFailed
    }
}

impl fmt::Display for SchemaComplaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for complaint in self.complaints.iter().take(SHOWN_COMPLAINTS) {
            write!(f, "{separator}{complaint}")?;
            separator = "; ";
        }
        match self.complaints.len().saturating_sub(SHOWN_COMPLAINTS) {
            0 => Ok(()),
            left => write!(f, "; and {left} more"),
        }
    }
}

impl std::error::Error for SchemaError {}

/// Reads values and remembers every complaint.
#[derive(Debug, Default)]
pub(super) struct Reader {
    complaints: Vec<SchemaComplaint>,
}

impl Reader {
    /// Passes `read` on when there was nothing to complain about.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, SchemaError> {
        read.filter(|_| self.complaints.is_empty())
            .ok_or(SchemaError { complaints: self.complaints })
    }

    /// Reads a whole number within `bounds`.
    pub(super) fn number(
        &mut self,
        path: &str,
        value: &Value,
        bounds: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let Value::Number(number) = value else {
            return self.wrong_type(path, "a whole number", value);
        };
        // JSON Schema counts 4.0 among the integers.
        let is_whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
        if !is_whole {
            return self.complain(path, format!("{number} is not a whole number"));
        }
        match numbers::whole(number).filter(|whole| bounds.contains(whole)) {
            Some(whole) => Some(whole),
            None => {
                let (min, max) = (bounds.start(), bounds.end());
                self.complain(path, format!("{number} is outside {min} to {max}"))
            }
        }
    }

    /// Reads a string that must be there.
    pub(super) fn required_string<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
    ) -> Option<&'v str> {
        match value {
            Some(value) => self.string(path, value),
            None => self.complain(path, "is required"),
        }
    }

    /// Reads a string.
    pub(super) fn string<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v str> {
        value.as_str().or_else(|| self.wrong_type(path, "a string", value))
    }

    /// Reads an array.
    pub(super) fn array<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v Vec<Value>> {
        value.as_array().or_else(|| self.wrong_type(path, "an array", value))
    }

    /// Reads an object.
    pub(super) fn object<'v>(
        &mut self,
        path: &str,
        value: &'v Value,
    ) -> Option<&'v Map<String, Value>> {
        value.as_object().or_else(|| self.wrong_type(path, "an object", value))
    }

    /// Passes a text on unless it is blank.
    pub(super) fn filled<'v>(&mut self, path: &str, text: &'v str) -> Option<&'v str> {
        if text.trim().is_empty() { self.complain(path, "must not be blank") } else { Some(text) }
    }

    /// Complains about each property that is not known.
    pub(super) fn known_keys(&mut self, path: &str, map: &Map<String, Value>, known: &[&str]) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = nearest(key, known.iter().copied())
                .map_or_else(String::new, |known| format!(", did you mean `{known}`?"));
            let message = format!("unknown property `{}`{hint}", excerpt(key, SHOWN_CHARS));
            self.complain::<()>(path, message);
        }
    }

    /// Picks the value that is written as `value`.
    pub(super) fn choice<T: Copy>(
        &mut self,
        path: &str,
        value: &Value,
        all: &[T],
        spell: impl Fn(T) -> &'static str,
    ) -> Option<T> {
        let text = self.string(path, value)?;
        all.iter().copied().find(|choice| spell(*choice) == text).or_else(|| {
            let allowed: Vec<&str> = all.iter().map(|choice| spell(*choice)).collect();
            let (text, allowed) = (excerpt(text, SHOWN_CHARS), allowed.join(", "));
            self.complain(path, format!("`{text}` is not one of {allowed}"))
        })
    }

    fn wrong_type<T>(&mut self, path: &str, wanted: &str, value: &Value) -> Option<T> {
        self.complain(path, format!("must be {wanted}, not {}", type_name(value)))
    }

    /// Notes a complaint; the `None` lets a reader end with it.
    pub(super) fn complain<T>(&mut self, path: &str, message: impl Into<String>) -> Option<T> {
        self.complaints.push(SchemaComplaint { path: path.to_owned(), message: message.into() });
        None
    }
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_an_end_whatever_was_sent() {
        let complaint = SchemaComplaint { path: "a".to_owned(), message: "b".to_owned() };
        let error = SchemaError { complaints: vec![complaint; 100_000] };
        let text = error.to_string();
        assert!(text.len() < 200 && text.ends_with("a: b; and 99980 more"), "{text}");
    }
}
