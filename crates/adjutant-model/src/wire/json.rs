//! Helpers that write JSON directly to a buffer and read borrowed strings of events.

use std::borrow::Cow;
use std::fmt;

use adjutant_core::ToolCall;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::{Map, Value};

/// Appends raw JSON.
pub(super) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

/// Appends a string with its quotes.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    let _ = serde_json::to_writer(out, text);
}

/// Appends `,"name":"text"`; no comma after an opening brace.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    key(out, name);
    text(out, value);
}

/// Appends `,"name":`; no comma after an opening brace.
pub(super) fn key(out: &mut Vec<u8>, name: &str) {
    separate(out);
    text(out, name);
    out.push(b':');
}

/// Appends a comma unless the buffer ends with an opening bracket.
pub(super) fn separate(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

/// Appends a value.
pub(super) fn value(out: &mut Vec<u8>, value: &Value) {
    let _ = serde_json::to_writer(out, value);
}

/// Returns arguments as the object that APIs require in a history; other values are wrapped.
pub(super) fn arguments(call: &ToolCall) -> Cow<'_, Value> {
    if call.arguments.is_object() {
        return Cow::Borrowed(&call.arguments);
    }
    Cow::Owned(serde_json::json!({ "malformed": call.arguments }))
}

/// Parses the arguments that a model wrote; empty text means no arguments.
pub(super) fn tool_call(id: String, name: String, written: &str) -> ToolCall {
    let written = written.trim();
    if written.is_empty() {
        return ToolCall { id, name, arguments: Value::Object(Map::new()), malformed: false };
    }
    // The depth limit of the parser turns excessive nesting into an error.
    match adjutant_formats::json::from_str(written) {
        Ok(Value::Null) => tool_call(id, name, ""),
        Ok(arguments) => ToolCall { id, name, arguments, malformed: false },
        Err(_) => {
            let arguments = Value::String(written.to_owned());
            ToolCall { id, name, arguments, malformed: true }
        }
    }
}

/// A string of an event, borrowed if it has no escapes; `null` is an empty string.
#[derive(Debug, Default)]
pub(crate) struct EventText<'a>(pub(crate) Cow<'a, str>);

impl std::ops::Deref for EventText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EventText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EventTextVisitor)
    }
}

struct EventTextVisitor;

impl<'de> Visitor<'de> for EventTextVisitor {
    type Value = EventText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or null")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<EventText<'de>, E> {
        Ok(EventText(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EventText<'de>, E> {
        Ok(EventText(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<EventText<'de>, E> {
        Ok(EventText(Cow::Owned(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<EventText<'de>, E> {
        Ok(EventText::default())
    }
}
