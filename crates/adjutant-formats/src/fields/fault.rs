//! What is wrong with the value of a field, and where the field is.

use std::fmt;

/// A problem with a field, and the path of that field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// The path of the field, for example `tasks[2].prompt`.
    pub path: String,
    /// The byte offset of its value, or of the object that lacks the field; 0 for a value without a document.
    pub at: usize,
    /// The problem.
    pub problem: FieldProblem,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.path, self.problem)
    }
}

/// A problem with a value. The message continues a sentence that begins with the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// The field is missing.
    #[error("is required")]
    Missing,
    /// The field is a blank string.
    #[error("must not be blank")]
    Blank,
    /// The value has the wrong type or is not an allowed value.
    #[error("must be {wanted}, not {found}")]
    Unfit {
        /// What is allowed.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// A problem that only the reader of this field can describe.
    #[error("{0}")]
    Other(String),
}

impl From<String> for FieldProblem {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

impl From<&str> for FieldProblem {
    fn from(message: &str) -> Self {
        Self::Other(message.to_owned())
    }
}
