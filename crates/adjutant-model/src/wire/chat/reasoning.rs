//! Reasoning that some Chat servers send and require back: DeepSeek's text, OpenRouter's details.

use serde_json::{Map, Value};

/// The reasoning received from a model, in the form in which it is sent back.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    /// Absent if the server has no such field; empty if the model did not reason.
    content: Option<String>,
    details: Vec<Value>,
}

impl Reasoning {
    pub(super) fn text(&mut self, piece: &str) {
        self.content.get_or_insert_default().push_str(piece);
    }

    /// Joins pieces of the same detail and keeps the order of details.
    pub(super) fn details(&mut self, pieces: Vec<Value>) {
        for piece in pieces {
            let Value::Object(piece) = piece else { continue };
            let same = |last: &&mut Value| {
                let key = |name: &str| last.get(name) == piece.get(name);
                key("type") && key("index")
            };
            match self.details.last_mut().filter(same) {
                Some(Value::Object(last)) => join(last, piece),
                Some(_) | None => self.details.push(Value::Object(piece)),
            }
        }
    }

    /// Returns the fields that the assistant message must contain in later requests.
    pub(super) fn into_fields(self) -> Option<Value> {
        let mut fields = Map::new();
        // The details repeat the text; a server that sends both expects only the details.
        if !self.details.is_empty() {
            fields.insert("reasoning_details".to_owned(), Value::Array(self.details));
        } else if let Some(content) = self.content {
            // DeepSeek requires the field in every turn with calls, even if it is empty.
            fields.insert("reasoning_content".to_owned(), Value::String(content));
        }
        (!fields.is_empty()).then_some(Value::Object(fields))
    }
}

fn join(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        let grows = matches!(name.as_str(), "text" | "summary" | "data");
        match (last.get_mut(&name), value) {
            (Some(Value::String(old)), Value::String(new)) if grows => old.push_str(&new),
            (_, Value::Null) => {}
            (_, value) => {
                last.insert(name, value);
            }
        }
    }
}
