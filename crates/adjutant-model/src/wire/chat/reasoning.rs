//! Thinking that some Chat servers send and want back: DeepSeek's text, OpenRouter's details.

use serde_json::{Map, Value};

/// What arrived of a model's thinking, in the shape it goes back in.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    /// Absent where the server has no such field; empty where it has and the model thought nothing.
    content: Option<String>,
    details: Vec<Value>,
}

impl Reasoning {
    pub(super) fn text(&mut self, piece: &str) {
        self.content.get_or_insert_default().push_str(piece);
    }

    /// Joins pieces of the same detail and keeps the order of different ones.
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

    /// Returns the fields that the assistant's message must carry back.
    pub(super) fn into_fields(self) -> Option<Value> {
        let mut fields = Map::new();
        // The details hold the text again; a server that sends both wants only them.
        if !self.details.is_empty() {
            fields.insert("reasoning_details".to_owned(), Value::Array(self.details));
        } else if let Some(content) = self.content {
            // DeepSeek wants the field of every turn with calls back, an empty one too.
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
