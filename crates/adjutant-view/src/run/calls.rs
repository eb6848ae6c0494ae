//! Tool calls in a few words.
//!
//! A [`ToolCallSummary`] is the name and the shortened arguments of one tool call.

use adjutant_core::ToolCall;
use serde_json::Value;

use crate::layout::excerpt;

/// The maximum length of the stored arguments.
const ARGUMENTS_KEPT: usize = 160;
/// The maximum length of the stored tool name; a model may invent any name.
const NAME_KEPT: usize = 64;
/// Arguments that say what is looked for; shown before where it is looked for.
const WHAT: [&str; 4] = ["pattern", "query", "url", "command"];
const WHERE: [&str; 3] = ["path", "file_path", "file"];
/// Arguments with file contents; less informative than the file's path.
const CONTENT: [&str; 2] = ["content", "text"];

/// A tool call that the agent requested, in short form.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ToolCallSummary {
    /// The tool's name as the call was read.
    pub tool: String,
    /// The most informative part of the arguments, unsanitized and cut.
    pub arguments: String,
}

impl ToolCallSummary {
    pub(super) fn of(call: &ToolCall) -> Self {
        Self { tool: excerpt(&call.name, NAME_KEPT), arguments: brief_arguments(&call.arguments) }
    }
}

/// Returns the most informative part of a call's arguments: `src/lib.rs`, `TODO in src`.
#[must_use]
pub fn brief_arguments(arguments: &Value) -> String {
    let brief = match arguments {
        Value::Null => String::new(),
        Value::String(text) => text_of(text),
        Value::Object(fields) => {
            let first = |keys: &[&str]| {
                keys.iter().find_map(|key| fields.get(*key)).and_then(Value::as_str).map(text_of)
            };
            match (first(&WHAT), first(&WHERE)) {
                (Some(what), Some(place)) => format!("{what} in {place}"),
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => first(&CONTENT).unwrap_or_else(|| other_field(fields)),
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => compact(arguments),
    };
    excerpt(&brief, ARGUMENTS_KEPT)
}

fn other_field(fields: &serde_json::Map<String, Value>) -> String {
    match fields.iter().next() {
        None => String::new(),
        Some((key, Value::Array(items))) => format!("{} {key}", items.len()),
        Some((_, Value::String(text))) => text_of(text),
        Some((key, value)) => format!("{key}={}", compact(value)),
    }
}

/// Cuts before joining or copying: an argument may be a whole file.
fn text_of(text: &str) -> String {
    excerpt(text, ARGUMENTS_KEPT)
}

/// Formats a value of unknown size without serializing all of it.
fn compact(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text_of(text),
        Value::Array(items) => format!("[{} items]", items.len()),
        Value::Object(fields) => format!("{{{} fields}}", fields.len()),
    }
}
