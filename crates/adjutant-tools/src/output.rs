//! What a call gives back, and the remarks that end it.

use std::fmt::Display;

/// The result of one call: what the model is told, and what the engine keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallResult {
    /// What the model reads; masked and capped.
    pub text: String,
    /// Whether the call failed; the text then says how to do better.
    pub is_error: bool,
    /// For Note: the one line to append to the scratchpad.
    pub notes: Option<String>,
    /// The files whose content the text shows, relative to the root; or every URL that was asked.
    pub touched: Vec<String>,
    /// For Run: what held the command, as `full`, `off`, or what is missing.
    pub sandbox: Option<String>,
}

impl ToolCallResult {
    /// Returns a result that is only text.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a failure, in words the model can act on.
    #[must_use]
    pub fn error(text: impl Display) -> Self {
        Self { text: text.to_string(), is_error: true, ..Self::default() }
    }
}

/// Appends a remark of the tool itself, on a line of its own, in brackets.
pub(crate) fn remark(text: &mut String, words: impl Display) {
    use std::fmt::Write;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "[{words}]");
}

/// Says `1 file`, `2 files`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = match (number, noun.strip_suffix('y'), noun.ends_with("ch")) {
        (1, _, _) => return format!("1 {noun}"),
        (_, Some(stem), _) => format!("{stem}ies"),
        (_, None, true) => format!("{noun}es"),
        (_, None, false) => format!("{noun}s"),
    };
    format!("{number} {plural}")
}
