//! The errors in the arguments of a call, each with its path.
//!
//! A [`SchemaError`] is the list of all of them, a [`SchemaComplaint`] one; `ComplaintCollector`
//! gathers them while a call is parsed.

use std::fmt;

use crate::code::ErrorCode;
use adjutant_formats::excerpt::excerpt;
use adjutant_formats::fields::{FieldFault, FieldReader, NamedField, did_you_mean};

/// The most characters of the caller's text that one error quotes.
const SHOWN_CHARS: usize = 40;
/// The most errors that the one-line text lists.
const SHOWN_COMPLAINTS: usize = 20;

/// All errors in the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// The errors; never empty.
    pub complaints: Vec<SchemaComplaint>,
}

/// One error in the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaComplaint {
    /// The path, for example `tasks[2].prompt`.
    pub path: String,
    /// The message.
    pub message: String,
}

impl SchemaError {
    /// Returns the stable error code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::ValidationFailed
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

impl From<FieldFault> for SchemaComplaint {
    fn from(fault: FieldFault) -> Self {
        Self { path: fault.path, message: fault.problem.to_string() }
    }
}

/// Collects errors while a call is parsed.
#[derive(Debug, Default)]
pub(super) struct ComplaintCollector(Vec<SchemaComplaint>);

impl ComplaintCollector {
    /// Returns `read` if no error was collected.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, SchemaError> {
        read.filter(|_| self.0.is_empty()).ok_or(SchemaError { complaints: self.0 })
    }

    /// Returns the value, or collects the error.
    pub(super) fn keep<T>(&mut self, read: Result<T, FieldFault>) -> Option<T> {
        read.map_err(|fault| self.0.push(fault.into())).ok()
    }

    /// Returns the items, or collects every error.
    pub(super) fn keep_all<T>(&mut self, read: Result<Vec<T>, Vec<FieldFault>>) -> Option<Vec<T>> {
        read.map_err(|faults| self.0.extend(faults.into_iter().map(Into::into))).ok()
    }

    /// Collects an error for each unknown property of the object at `path`.
    pub(super) fn refuse_unknown(&mut self, path: &str, fields: &FieldReader<'_>, known: &[&str]) {
        for NamedField { name, .. } in fields.unknown(known) {
            let (shown, meant) = (excerpt(&name, SHOWN_CHARS), did_you_mean(&name, known));
            let message = format!("unknown property `{shown}`{meant}");
            self.0.push(SchemaComplaint { path: path.to_owned(), message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_is_bounded() {
        let complaint = SchemaComplaint { path: "a".to_owned(), message: "b".to_owned() };
        let error = SchemaError { complaints: vec![complaint; 100_000] };
        let text = error.to_string();
        assert!(text.len() < 200 && text.ends_with("a: b; and 99980 more"), "{text}");
    }
}
