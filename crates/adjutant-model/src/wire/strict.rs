//! The strict schema of the `Return` tool, which some APIs enforce while the model writes the call.
//!
//! Only `Return` is strict: its call ends an agent's work, and a wrong one costs a repair turn. The contract judges the
//! arguments in any case. The strict schema accepts what the contract accepts of the plain one: strict schemas cannot
//! limit lengths, which stay the contract's business, and OpenAI requires every field, so an optional one may be `null`,
//! which the contract reads as absent.

use adjutant_core::ToolSpec;
use adjutant_core::schema::RETURN;
use serde_json::{Map, Value, json};

use super::{Wire, WireCodec};

/// Keywords that strict schemas do not support on Anthropic, and that OpenAI does not document for all models.
const UNSUPPORTED: [&str; 2] = ["minLength", "maxLength"];

impl WireCodec {
    /// Returns the strict schema of a tool, if the tool is strict on this API.
    ///
    /// Servers that only imitate an API may refuse strict tools, so they get none.
    pub(super) fn strict_schema(&self, tool: &ToolSpec) -> Option<Value> {
        let requires_all = match self.wire {
            Wire::Anthropic => false,
            Wire::Chat | Wire::Responses => true,
            // Gemini can enforce the schemas of all functions at once, not of a single one.
            Wire::Gemini => return None,
        };
        let is_strict = self.official && tool.name == RETURN;
        is_strict.then(|| strict(&tool.schema, requires_all))
    }
}

fn strict(schema: &Value, requires_all: bool) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    fields.retain(|key, _| !UNSUPPORTED.contains(&key.as_str()));
    if let Some(items) = fields.get_mut("items") {
        *items = strict(items, requires_all);
    }
    if let Some(Value::Object(properties)) = fields.get("properties") {
        let required = fields.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
        let property = |(name, schema): (&String, &Value)| {
            let mut schema = strict(schema, requires_all);
            if requires_all && !is_required(name) {
                schema = nullable(schema);
            }
            (name.clone(), schema)
        };
        let properties: Map<String, Value> = properties.iter().map(property).collect();
        if requires_all {
            let names: Vec<&String> = properties.keys().collect();
            fields.insert("required".to_owned(), json!(names));
        }
        fields.insert("properties".to_owned(), Value::Object(properties));
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Value::Object(fields)
}

/// Lets a value be `null` too.
fn nullable(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}
