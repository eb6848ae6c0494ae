//! The result of a tool call, and the remarks at its end.

use std::fmt::Display;

use adjutant_core::CommandExit;

/// The result of a tool call, for the model and for the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallResult {
    /// The text for the model; masked and limited in size.
    pub text: String,
    /// Whether the call failed; the text then says what to do instead.
    pub is_error: bool,
    /// For Note: the line to append to the scratchpad.
    pub notes: Option<String>,
    /// The paths of the files shown in the text, relative to the root, or all requested URLs.
    pub touched: Vec<String>,
    /// For Run: the level of the sandbox: `full`, `off`, or what is missing.
    pub sandbox: Option<String>,
    /// For Run: how the command ended, if it ran.
    pub exit: Option<CommandExit>,
}

impl ToolCallResult {
    /// Makes a successful result with this text.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Makes an error result; the text should tell the model what to do.
    #[must_use]
    pub fn error(text: impl Display) -> Self {
        Self { text: text.to_string(), is_error: true, ..Self::default() }
    }
}

/// Appends a remark by the tool, in brackets on its own line.
pub(crate) fn remark(text: &mut String, words: impl Display) {
    use std::fmt::Write;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let _ = write!(text, "[{words}]");
}

/// Formats a count with its noun: `1 file`, `2 files`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = match (number, noun.strip_suffix('y'), noun.ends_with("ch")) {
        (1, _, _) => return format!("1 {noun}"),
        (_, Some(stem), _) => format!("{stem}ies"),
        (_, None, true) => format!("{noun}es"),
        (_, None, false) => format!("{noun}s"),
    };
    format!("{number} {plural}")
}
