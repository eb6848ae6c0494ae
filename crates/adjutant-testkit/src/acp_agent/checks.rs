//! What a client may send: the fields of each message, as the schema of ACP 1 has them.

use serde_json::{Map, Value};

/// The type a field must have.
#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Number,
    Flag,
    List,
    Object,
}

/// One field: its name, its type, and whether it must be there.
type Field = (&'static str, FieldType, bool);

use FieldType::{Flag, List, Number, Object, Text};

const INITIALIZE: &[Field] = &[
    ("protocolVersion", Number, true),
    ("clientCapabilities", Object, false),
    ("clientInfo", Object, false),
];
const CAPABILITIES: &[Field] = &[
    ("fs", Object, false),
    ("terminal", Flag, false),
    ("session", Object, false),
    ("auth", Object, false),
    ("elicitation", Object, false),
    ("plan", Object, false),
    ("subagents", Object, false),
];
const FILE_SYSTEM: &[Field] = &[("readTextFile", Flag, false), ("writeTextFile", Flag, false)];
const IMPLEMENTATION: &[Field] =
    &[("name", Text, true), ("title", Text, false), ("version", Text, true)];
const AUTHENTICATE: &[Field] = &[("methodId", Text, true)];
const NEW_SESSION: &[Field] = &[
    ("cwd", Text, true),
    ("mcpServers", List, true),
    ("additionalDirectories", List, false),
    ("systemPrompt", Object, false),
];
const LOAD_SESSION: &[Field] = &[
    ("sessionId", Text, true),
    ("cwd", Text, true),
    ("mcpServers", List, true),
    ("additionalDirectories", List, false),
    ("systemPrompt", Object, false),
];
const SET_MODE: &[Field] = &[("sessionId", Text, true), ("modeId", Text, true)];
const PROMPT: &[Field] = &[("sessionId", Text, true), ("prompt", List, true)];
const CANCEL: &[Field] = &[("sessionId", Text, true)];
const TEXT_BLOCK: &[Field] =
    &[("type", Text, true), ("text", Text, true), ("annotations", Object, false)];
const SYSTEM_PROMPT: &[Field] = &[("mode", Text, true), ("content", List, true)];
const STDIO_SERVER: &[Field] =
    &[("name", Text, true), ("command", Text, true), ("args", List, true), ("env", List, true)];
const HTTP_SERVER: &[Field] =
    &[("type", Text, true), ("name", Text, true), ("url", Text, true), ("headers", List, true)];
const PAIR: &[Field] = &[("name", Text, true), ("value", Text, true)];
const PERMISSION: &[Field] = &[("outcome", Object, true)];

/// Checks the envelope of a message: JSON-RPC 2.0.
pub(super) fn envelope(message: &Value) -> Result<(), String> {
    let object = message.as_object().ok_or("a message must be an object")?;
    if object.get("jsonrpc") != Some(&Value::from("2.0")) {
        return Err("`jsonrpc` must be \"2.0\"".into());
    }
    let is_call = object.contains_key("method");
    let answers =
        usize::from(object.contains_key("result")) + usize::from(object.contains_key("error"));
    let allowed: &[&str] = if is_call {
        &["jsonrpc", "id", "method", "params"]
    } else {
        &["jsonrpc", "id", "result", "error"]
    };
    if let Some(name) = object.keys().find(|name| !allowed.contains(&name.as_str())) {
        return Err(format!("unknown field `{name}` in the message"));
    }
    if is_call && !object["method"].is_string() {
        return Err("`method` must be a string".into());
    }
    if !is_call && (answers != 1 || !object.contains_key("id")) {
        return Err("an answer needs `id` and one of `result` and `error`".into());
    }
    match object.get("id") {
        None | Some(Value::Number(_) | Value::String(_)) => Ok(()),
        Some(id) => Err(format!("`id` must be a number or a string, not {id}")),
    }
}

/// Checks the parameters of a request or notification. Methods that are not known here pass.
pub(super) fn params(method: &str, params: &Value) -> Result<(), String> {
    match method {
        "initialize" => {
            let object = fields(params, INITIALIZE)?;
            if let Some(capabilities) = object.get("clientCapabilities") {
                let capabilities = fields(capabilities, CAPABILITIES)?;
                capabilities.get("fs").map_or(Ok(()), |fs| fields(fs, FILE_SYSTEM).map(|_| ()))?;
            }
            let info = object.get("clientInfo").filter(|info| !info.is_null());
            info.map_or(Ok(()), |info| fields(info, IMPLEMENTATION).map(|_| ()))
        }
        "authenticate" => fields(params, AUTHENTICATE).map(|_| ()),
        "session/new" => fields(params, NEW_SESSION).and_then(session),
        "session/load" => fields(params, LOAD_SESSION).and_then(session),
        "session/set_mode" => fields(params, SET_MODE).map(|_| ()),
        "session/cancel" => fields(params, CANCEL).map(|_| ()),
        "session/prompt" => {
            let object = fields(params, PROMPT)?;
            let blocks = object["prompt"].as_array().map(Vec::as_slice).unwrap_or_default();
            if blocks.is_empty() {
                return Err("`prompt` is empty".into());
            }
            text_blocks(blocks)
        }
        _ => Ok(()),
    }
}

/// Returns the chosen option of an answer to `session/request_permission`; `None` is a cancelled question.
pub(super) fn permission(result: &Value) -> Result<Option<&str>, String> {
    let object = fields(result, PERMISSION)?;
    let outcome = object["outcome"].as_object().ok_or("`outcome` must be an object")?;
    match outcome.get("outcome").and_then(Value::as_str) {
        Some("cancelled") => Ok(None),
        Some("selected") => {
            let option = outcome.get("optionId").and_then(Value::as_str);
            option.map(Some).ok_or_else(|| "`optionId` is missing".into())
        }
        _ => Err(format!("`outcome` must be selected or cancelled: {result}")),
    }
}

fn session(object: &Map<String, Value>) -> Result<(), String> {
    let cwd = object["cwd"].as_str().unwrap_or_default();
    let path = std::path::Path::new(cwd);
    if !path.is_absolute() || !path.is_dir() {
        return Err(format!("`cwd` must be an absolute path of a directory, not `{cwd}`"));
    }
    for server in object["mcpServers"].as_array().into_iter().flatten() {
        let (known, pairs) = match server.get("type").and_then(Value::as_str) {
            None => (STDIO_SERVER, "env"),
            Some("http" | "sse") => (HTTP_SERVER, "headers"),
            Some(other) => return Err(format!("unknown type of MCP server `{other}`")),
        };
        let server = fields(server, known)?;
        for pair in server[pairs].as_array().into_iter().flatten() {
            fields(pair, PAIR)?;
        }
    }
    if let Some(prompt) = object.get("systemPrompt").filter(|prompt| !prompt.is_null()) {
        let prompt = fields(prompt, SYSTEM_PROMPT)?;
        if !matches!(prompt["mode"].as_str(), Some("append" | "override")) {
            return Err("the mode of `systemPrompt` must be append or override".into());
        }
        text_blocks(prompt["content"].as_array().map(Vec::as_slice).unwrap_or_default())?;
    }
    Ok(())
}

fn text_blocks(blocks: &[Value]) -> Result<(), String> {
    for block in blocks {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != "text" {
            return Err(format!("a content block of type `{kind}` was not offered"));
        }
        fields(block, TEXT_BLOCK)?;
    }
    Ok(())
}

/// Checks the names and types of an object's fields, and returns the object.
fn fields<'value>(
    value: &'value Value,
    known: &[Field],
) -> Result<&'value Map<String, Value>, String> {
    let object = value.as_object().ok_or_else(|| format!("not an object: {value}"))?;
    for (name, kind, is_required) in known {
        match object.get(*name) {
            None if *is_required => return Err(format!("`{name}` is missing")),
            None => {}
            Some(Value::Null) if !is_required => {}
            Some(value) => {
                let fits = match kind {
                    Text => value.is_string(),
                    Number => value.is_u64(),
                    Flag => value.is_boolean(),
                    List => value.is_array(),
                    Object => value.is_object(),
                };
                if !fits {
                    return Err(format!("`{name}` has the wrong type: {value}"));
                }
            }
        }
    }
    let is_known = |name: &str| name == "_meta" || known.iter().any(|(known, ..)| *known == name);
    match object.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("unknown field `{name}`")),
        None => Ok(object),
    }
}
