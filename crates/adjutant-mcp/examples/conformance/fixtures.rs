//! The suite's fixtures as tables: what it calls, and the results it expects.

use serde_json::{Value, json};

/// An image of one red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// An audio file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The capabilities that the server announces.
pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true }, "prompts": { "listChanged": true },
        "resources": { "subscribe": true }, "logging": {}, "completions": {},
    })
}

/// A tool result with one text.
pub(crate) fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Tools without arguments, except those in [`crate::rounds`].
const PLAIN: [&str; 17] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_reconnection",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_capabilities",
];

/// All tools.
pub(crate) fn tools() -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": format!("What {name} is called for"), "inputSchema": schema });
    let text = |key: &str| json!({ "type": "object", "properties": { key: { "type": "string" } }, "required": [key] });
    let nothing = || json!({ "type": "object", "properties": {} });
    let rounds = crate::rounds::TOOLS.iter().filter(|name| !PLAIN.contains(name));
    let mut all: Vec<Value> =
        PLAIN.iter().chain(rounds).map(|name| tool(name, nothing())).collect();
    all.push(tool("test_sampling", text("prompt")));
    all.push(tool("test_elicitation", text("message")));
    let mut region = text("region");
    region["properties"]["region"]["x-mcp-header"] = json!("Region");
    all.push(tool("test_mirrored_header", region));
    all.push(tool("json_schema_2020_12_tool", vocabulary()));
    all
}

/// A schema whose keywords must survive the transport.
fn vocabulary() -> Value {
    let address = json!({
        "$anchor": "addressDef", "type": "object",
        "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// The result of a tool that only returns a value.
pub(crate) fn result(tool: &str) -> Option<Value> {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let content = match tool {
        "test_simple_text" => {
            json!([{ "type": "text", "text": "This is a simple text response for testing." }])
        }
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => {
            let text = json!({ "type": "text", "text": "Multiple content types test:" });
            let data = json!({ "test": "data", "value": 123 }).to_string();
            json!([
                text,
                image,
                embedded("test://mixed-content-resource", "application/json", &data)
            ])
        }
        "test_error_handling" => {
            let mut error = said("This tool intentionally returns an error for testing");
            error["isError"] = json!(true);
            return Some(error);
        }
        "json_schema_2020_12_tool" | "test_mirrored_header" => return Some(said("taken")),
        _ => return None,
    };
    Some(json!({ "content": content }))
}

fn embedded(uri: &str, kind: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } })
}

/// A sampling request to the client's model.
pub(crate) fn sampling(prompt: &Value) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = json!({ "messages": [message], "maxTokens": 100 });
    json!({ "method": "sampling/createMessage", "params": params })
}

/// An elicitation request to the client's user.
pub(crate) fn elicitation(message: &Value, schema: &Value) -> Value {
    let params = json!({ "message": message, "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

/// The schema of the first elicitation.
pub(crate) fn name_and_mail() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    })
}

/// The schemas of the other elicitation tools.
pub(crate) fn elicited(tool: &str) -> Option<Value> {
    let titled = |word: &str| {
        let numbers = [("1", "First"), ("2", "Second"), ("3", "Third")];
        let one = |(number, place): (&str, &str)| json!({ "const": format!("value{number}"), "title": format!("{place} {word}") });
        Value::from(numbers.map(one).to_vec())
    };
    let plain = json!(["option1", "option2", "option3"]);
    let properties = match tool {
        "test_elicitation_sep1034_defaults" => json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": {
                "type": "string", "enum": ["active", "inactive", "pending"], "default": "active"
            },
            "verified": { "type": "boolean", "default": true },
        }),
        "test_elicitation_sep1330_enums" => json!({
            "untitledSingle": { "type": "string", "enum": plain },
            "titledSingle": { "type": "string", "oneOf": titled("Option") },
            "legacyEnum": {
                "type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
        }),
        _ => return None,
    };
    Some(json!({ "type": "object", "properties": properties }))
}

/// The listed resources.
pub(crate) fn resources() -> Value {
    let one = |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": format!("What {uri} holds"), "mimeType": kind });
    json!({ "resources": [
        one("test://static-text", "text/plain"),
        one("test://static-binary", "image/png"),
        one("test://watched-resource", "text/plain"),
    ] })
}

/// The listed resource templates.
pub(crate) fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data", "name": "template",
        "description": "Data by its id", "mimeType": "application/json",
    }] })
}

/// The contents of a resource.
pub(crate) fn resource(uri: &str) -> Option<Value> {
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    match uri {
        "test://static-text" => {
            Some(text("text/plain", "This is the content of the static text resource."))
        }
        "test://watched-resource" => Some(text("text/plain", "What is watched.")),
        "test://static-binary" => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            Some(text("application/json", &data.to_string()))
        }
    }
}

/// The listed prompts.
pub(crate) fn prompts() -> Value {
    let one = |name: &str, keys: &[&str]| {
        let argument = |key: &&str| json!({ "name": key, "description": key, "required": true });
        let arguments: Vec<Value> = keys.iter().map(argument).collect();
        json!({ "name": name, "description": format!("What {name} is asked for"), "arguments": arguments })
    };
    json!({ "prompts": [
        one("test_simple_prompt", &[]),
        one("test_prompt_with_arguments", &["arg1", "arg2"]),
        one("test_prompt_with_embedded_resource", &["resourceUri"]),
        one("test_prompt_with_image", &[]),
        one("test_input_required_result_prompt", &[]),
    ] })
}

/// A prompt with one text.
pub(crate) fn prompted(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] })
}

/// The messages of a prompt.
pub(crate) fn prompt(name: &str, arguments: &Value) -> Option<Value> {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let with = |first: Value, then: &str| {
        let mut both = prompted(then);
        if let Some(messages) = both["messages"].as_array_mut() {
            messages.insert(0, json!({ "role": "user", "content": first }));
        }
        both
    };
    match name {
        "test_simple_prompt" => Some(prompted("This is a simple prompt for testing.")),
        "test_prompt_with_arguments" => {
            let (one, two) = (text("arg1"), text("arg2"));
            Some(prompted(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'")))
        }
        "test_prompt_with_embedded_resource" => Some(with(
            embedded(text("resourceUri"), "text/plain", "Embedded resource content for testing."),
            "Please process the embedded resource above.",
        )),
        "test_prompt_with_image" => Some(with(
            json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
            "Please analyze the image above.",
        )),
        _ => None,
    }
}
