//! Errors in script files, with their positions.
//!
//! Readers report a [`ScriptFault`] at a byte offset; [`ScriptFault::at_position`] adds the file, line and column.
//! [`table`] and the functions below it read what several parts of a script share.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use adjutant_formats::document::position;
use adjutant_formats::fields::{FieldFault, FieldProblem, FieldReader, FieldValue, did_you_mean};

/// The maximum delay in a script: a day, in milliseconds. Inclusive.
const MAX_DELAY_MS: u64 = 86_400_000;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file is missing or cannot be read.
    #[error("cannot read the script {}", path.display())]
    Read {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is a directory, a pipe or a device.
    #[error("the script {} is not a regular file", path.display())]
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file name does not end in `.toml` or `.json`.
    #[error("the script {} must be named .toml or .json", path.display())]
    UnknownFormat {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("the script {} is larger than {max_bytes} bytes", path.display())]
    TooLarge {
        /// The path as it was given.
        path: PathBuf,
        /// The maximum size in bytes. Inclusive.
        max_bytes: u64,
    },
    /// The content is not a valid script.
    #[error("{place}: {message}")]
    Malformed {
        /// The position of the error.
        place: ScriptPosition,
        /// The problem and what is allowed.
        message: String,
    },
}

/// A position in a script file, formatted as `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptPosition {
    /// The file name as given, or `script` for text without a file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for ScriptPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// An error at a byte offset of the script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptFault {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl ScriptFault {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// Turns the byte into a line and column of `text`.
    pub(crate) fn at_position(self, file: &str, text: &str) -> ScriptError {
        let (line, column) = position(text, self.at);
        let place = ScriptPosition { file: file.to_owned(), line, column };
        ScriptError::Malformed { place, message: self.message }
    }
}

impl From<FieldFault> for ScriptFault {
    fn from(fault: FieldFault) -> Self {
        Self::new(fault.at, fault.to_string())
    }
}

/// Makes a reader for a table that may have only the `allowed` keys; `what` names it in messages.
pub(crate) fn table<'v>(
    value: FieldValue<'v>,
    what: &str,
    allowed: &[&str],
) -> Result<FieldReader<'v>, ScriptFault> {
    let fields = FieldReader::new(value, "").map_err(|_| {
        ScriptFault::new(value.offset(), format!("{what} {}", value.mismatch("a table")))
    })?;
    let Some(unknown) = fields.unknown(allowed).into_iter().next() else { return Ok(fields) };
    let (name, meant) = (&unknown.name, did_you_mean(&unknown.name, allowed));
    let allowed = allowed.join(", ");
    let message = format!("unknown key `{name}` in {what}{meant} (allowed: {allowed})");
    Err(ScriptFault::new(unknown.at, message))
}

/// Reads a list of tables; an absent list is empty.
pub(crate) fn tables<'v>(
    fields: &FieldReader<'v>,
    key: &str,
    written: &str,
) -> Result<Vec<FieldValue<'v>>, FieldFault> {
    let wanted = format!("a list of tables, written {written}");
    let items = |value: FieldValue<'v>| value.items().map_err(|_| value.mismatch(&wanted));
    Ok(fields.read(key, items)?.unwrap_or_default())
}

/// Reads a delay in milliseconds.
pub(crate) fn millis(value: FieldValue<'_>) -> Result<Duration, FieldProblem> {
    value.integer(0..=MAX_DELAY_MS).map(Duration::from_millis)
}
