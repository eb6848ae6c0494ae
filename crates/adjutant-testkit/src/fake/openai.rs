//! What the two OpenAI APIs share: authentication, the format of errors, and the wording of validation errors.

use serde_json::{Value, json};

use super::api::{Api, Door, Trouble, json as body_json, route};
use super::http::{Head, Reply};
use super::json::{Checked, Complaint, Kind, Node, Step, Why};
use super::turn::{Class, Fault};

const INVALID: &str = "invalid_request_error";

/// Judges all but the body's content.
pub(super) fn admit(head: &Head, body: &[u8], door: &Door, path: &str) -> Result<Value, Trouble> {
    route(head, path)?;
    let bearer = head.header("authorization").map(|value| value.strip_prefix("Bearer "));
    match bearer {
        Some(Some(key)) => door.admit(Some(key))?,
        Some(None) => return Err(Trouble::WrongKey),
        None => door.admit(None)?,
    }
    body_json(head, body)
}

/// Refuses a request before its body is judged.
pub(super) fn trouble(head: &Head, trouble: &Trouble) -> Reply {
    let (method, path) = (&head.method, &head.path);
    match trouble {
        Trouble::UnknownPath => {
            let message = format!("Unknown request URL: {method} {path}.");
            error(404, INVALID, &message, None, Some("unknown_url"))
        }
        Trouble::WrongMethod => {
            let message = format!("Not allowed to {method} on {path}.");
            error(405, INVALID, &message, None, Some("method_not_supported"))
        }
        Trouble::NoKey => {
            let message = "You didn't provide an API key. You need to provide your API key in an \
                           Authorization header using Bearer auth.";
            error(401, INVALID, message, None, None)
        }
        Trouble::WrongKey => {
            let message = "Incorrect API key provided: ***.";
            error(401, INVALID, message, None, Some("invalid_api_key"))
        }
        Trouble::MissingHeader(_) | Trouble::WrongHeader(..) => {
            let message = "Unsupported content type. Expected 'application/json'.";
            error(415, INVALID, message, None, Some("unsupported_content_type"))
        }
        Trouble::NotJson(why) => {
            let message = format!("We could not parse the JSON body of your request: {why}");
            error(400, INVALID, &message, None, None)
        }
        Trouble::TooLarge => error(413, INVALID, "The request body is too large.", None, None),
        Trouble::UnknownModel(name) => {
            let message = format!("The model `{name}` does not exist or you do not have access.");
            error(404, INVALID, &message, None, Some("model_not_found"))
        }
    }
}

/// Renders a failure.
pub(super) fn fault(api: Api, fault: &Fault) -> Reply {
    let failure = failure(api, fault.class);
    let message = fault.message.as_deref().unwrap_or(failure.message);
    error(failure.status, failure.kind, message, failure.param, failure.code)
}

/// What the documentation says of a failure.
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) param: Option<&'static str>,
    pub(super) code: Option<&'static str>,
    pub(super) message: &'static str,
}

/// Returns how an API tells a class of failure.
pub(super) fn failure(api: Api, class: Class) -> Failure {
    let responses = api == Api::Responses;
    let (status, kind, message) = class_of(class, responses);
    let code = match class {
        Class::ContextLength => Some("context_length_exceeded"),
        Class::RateLimited => Some("rate_limit_exceeded"),
        Class::Quota => Some("insufficient_quota"),
        Class::Overloaded => Some("server_is_overloaded"),
        Class::Auth => Some("invalid_api_key"),
        Class::Permission | Class::NotFound => Some("model_not_found"),
        Class::BadRequest => None,
        Class::Refused if responses => Some("invalid_prompt"),
        Class::Refused => Some("content_policy_violation"),
        Class::Server => Some("server_error").filter(|_| responses),
    };
    let input = if responses { "input" } else { "messages" };
    let param = (class == Class::ContextLength).then_some(input);
    Failure { status, kind, param, code, message }
}

const fn class_of(class: Class, responses: bool) -> (u16, &'static str, &'static str) {
    match class {
        Class::ContextLength if responses => {
            (400, INVALID, "Your input exceeds the context window of this model.")
        }
        Class::ContextLength => (
            400,
            INVALID,
            "This model's maximum context length is 128000 tokens. \
             However, your messages resulted in 130221 tokens.",
        ),
        Class::RateLimited => (
            429,
            "tokens",
            "Rate limit reached for this model on tokens per min (TPM): Limit 30000, Used 29000.",
        ),
        Class::Quota => (
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        Class::Overloaded => {
            (503, "server_error", "The engine is currently overloaded, please try again later.")
        }
        Class::Auth => (401, INVALID, "Incorrect API key provided: ***."),
        Class::Permission => (403, INVALID, "Project does not have access to this model."),
        Class::NotFound => (404, INVALID, "The model `gpt-none` does not exist."),
        Class::BadRequest => (400, INVALID, "Invalid request."),
        Class::Refused if responses => (
            400,
            INVALID,
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        ),
        Class::Refused => {
            (400, INVALID, "Your request was rejected as a result of our safety system.")
        }
        Class::Server => (
            500,
            "server_error",
            "The server had an error while processing your request. Sorry about that!",
        ),
    }
}

/// Returns the body of an error.
pub(super) fn body(kind: &str, message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

fn error(status: u16, kind: &str, message: &str, param: Option<&str>, code: Option<&str>) -> Reply {
    Reply::json(status, &body(kind, message, param, code))
}

/// Refuses a body, in the APIs' words.
pub(super) fn refuse(complaint: &Complaint) -> Reply {
    let path = path(complaint);
    let (message, code) = match &complaint.why {
        Why::Unknown => (format!("Unknown parameter: '{path}'."), Some("unknown_parameter")),
        Why::Missing => {
            (format!("Missing required parameter: '{path}'."), Some("missing_required_parameter"))
        }
        Why::Type { expected, got } => {
            let (expected, got) = (kind(*expected), Kind::word(got));
            let message =
                format!("Invalid type for '{path}': expected {expected}, but got {got} instead.");
            (message, Some("invalid_type"))
        }
        Why::Choice { got, allowed } => {
            let words: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
            let words = words.join(", ");
            let message = format!("Invalid value: '{got}'. Supported values are: {words}.");
            (message, Some("invalid_value"))
        }
        Why::Range { expected, got } => {
            let message = format!("Invalid '{path}': expected a value {expected}, but got {got}.");
            (message, Some("invalid_value"))
        }
        Why::Empty => (format!("Invalid '{path}': empty."), Some("invalid_value")),
        Why::Said(text) => (text.clone(), None),
    };
    error(400, INVALID, &message, (!path.is_empty()).then_some(&path), code)
}

fn path(complaint: &Complaint) -> String {
    let mut path = String::new();
    for step in &complaint.path {
        match step {
            Step::Key(key) if path.is_empty() => path += key,
            Step::Key(key) => path += &format!(".{key}"),
            Step::Index(index) => path += &format!("[{index}]"),
        }
    }
    path
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "an object",
        Kind::Array => "an array",
        Kind::Text => "a string",
        Kind::Integer => "an integer",
        Kind::Number => "a number",
        Kind::Boolean => "a boolean",
    }
}

/// Checks that the request streams.
pub(super) fn streams(root: &Node<'_, '_>) -> Checked<()> {
    let streams = root.some("stream").map(|stream| stream.boolean()).transpose()?;
    if streams == Some(true) { Ok(()) } else { root.say("This fake only streams.") }
}

/// Checks the options that both APIs have.
pub(super) fn common(root: &Node<'_, '_>) -> Checked<()> {
    root.some("temperature").map(|node| node.number(0.0, 2.0)).transpose()?;
    root.some("top_p").map(|node| node.number(0.0, 1.0)).transpose()?;
    for flag in ["parallel_tool_calls", "store"] {
        root.some(flag).map(|node| node.boolean()).transpose()?;
    }
    for text in ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"] {
        root.some(text).map(|node| node.text().map(drop)).transpose()?;
    }
    root.some("service_tier")
        .map(|tier| tier.choice(&["auto", "default", "flex", "scale", "priority"]).map(drop))
        .transpose()?;
    root.some("metadata").map(|metadata| metadata.map().map(drop)).transpose()?;
    Ok(())
}

/// Checks a function that is offered, whose name is at `name`.
pub(super) fn function(node: &Node<'_, '_>) -> Checked<()> {
    let name = node.need("name")?;
    if !super::json::is_name(name.text()?, 64, "_-") {
        let text = name.text()?;
        return name.say(format!(
            "Invalid '{}': '{text}' does not match pattern '^[a-zA-Z0-9_-]+$' of at most 64.",
            path(&name.complain(Why::Empty))
        ));
    }
    node.some("description").map(|text| text.text().map(drop)).transpose()?;
    let strict = node.some("strict").map(|flag| flag.boolean()).transpose()? == Some(true);
    let Some(parameters) = node.some("parameters") else { return Ok(()) };
    parameters.map()?;
    if strict { strict_schema(&parameters, name.text()?) } else { Ok(()) }
}

/// Checks the rules of strict schemas: objects are closed and require all they have.
fn strict_schema(schema: &Node<'_, '_>, name: &str) -> Checked<()> {
    let Some(properties) = schema.get("properties") else { return Ok(()) };
    let closed = schema.get("additionalProperties").map(|node| node.value) == Some(&json!(false));
    if !closed {
        return schema.say(format!(
            "Invalid schema for function '{name}': 'additionalProperties' is required to be \
             supplied and to be false."
        ));
    }
    let required = schema.get("required").and_then(|node| node.value.as_array().cloned());
    let required = required.unwrap_or_default();
    for key in properties.map()?.keys() {
        if !required.iter().any(|name| name.as_str() == Some(key)) {
            return schema.say(format!(
                "Invalid schema for function '{name}': 'required' is required to be supplied and \
                 to be an array including every key in properties. Missing '{key}'."
            ));
        }
        strict_schema(&properties.need(key)?, name)?;
    }
    Ok(())
}

/// Checks a schema that output must satisfy.
pub(super) fn format(node: &Node<'_, '_>) -> Checked<()> {
    node.need("name")?.filled()?;
    node.some("strict").map(|flag| flag.boolean()).transpose()?;
    node.need("schema")?.map().map(drop)
}

/// The words for how much to think.
pub(super) const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
