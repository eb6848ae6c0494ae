//! The tool Note, which appends a line to the agent's scratchpad.

use crate::ToolName;
use crate::args::{CallArguments, ToolArgumentError};
use crate::output::ToolCallResult;
use crate::toolbox::ToolCallContext;

/// Executes a call of Note.
pub(crate) fn note(call: &ToolCallContext<'_>) -> Result<ToolCallResult, ToolArgumentError> {
    let args = CallArguments::new(ToolName::Note, call.arguments)?;
    let content = args.required("content")?;
    let line = fold(&content);
    if line.is_empty() {
        return Err(ToolArgumentError(
            "`content` is blank; write what is worth keeping".to_owned(),
        ));
    }
    // Masked before it is cut, so that no part of a secret remains at the cut.
    let line = call.masker.mask(&line);
    let max = call.caps.note_bytes;
    let mut text = "Noted.".to_owned();
    let kept = if line.len() > max {
        text.push_str(&format!(" [cut after {max} bytes of {}]", line.len()));
        line[..line.floor_char_boundary(max)].to_owned()
    } else {
        line.into_owned()
    };
    Ok(ToolCallResult { notes: Some(kept), ..ToolCallResult::ok(text) })
}

/// Joins lines with single spaces, because a note is one line of the scratchpad.
fn fold(content: &str) -> String {
    let is_break =
        |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let parts: Vec<_> =
        content.split(is_break).map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}
