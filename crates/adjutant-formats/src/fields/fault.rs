//! What is wrong with a field.

use std::fmt;

/// Says what is wrong with a field, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// Which field: `tasks[2].prompt`.
    pub path: String,
    /// The byte of the document where its value stands, or the object that lacks it; 0 for a value without a document.
    pub at: usize,
    /// What is wrong with it.
    pub problem: FieldProblem,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.path, self.problem)
    }
}

/// Says what is wrong with a value; the text continues a sentence that begins with the name of its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// The field is not there.
    #[error("is required")]
    Missing,
    /// The field is a string without any words.
    #[error("must not be blank")]
    Blank,
    /// The value has another type, or is not among those that are allowed.
    #[error("must be {wanted}, not {found}")]
    Unfit {
        /// What is allowed.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// Something that only its reader knows.
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
