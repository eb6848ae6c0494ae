//! What the two OpenAI APIs share: authentication, the format of errors, and the wording of validation errors.

use serde_json::{Value, json};

use super::api::{AccessRules, Api, RejectedRequest, json as body_json, route};
use super::http::{Head, Reply};
use super::json::{CheckResult, Complaint, JsonKind, Node, PathStep, Problem};
use super::turn::{Fault, FaultClass};

const INVALID: &str = "invalid_request_error";

/// Checks path, headers and key, and parses the body.
pub(super) fn admit(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
    path: &str,
) -> Result<Value, RejectedRequest> {
    route(head, path)?;
    let bearer = head.header("authorization").map(|value| value.strip_prefix("Bearer "));
    match bearer {
        Some(Some(key)) => access.admit(Some(key))?,
        Some(None) => return Err(RejectedRequest::WrongKey),
        None => access.admit(None)?,
    }
    body_json(head, body)
}

/// Refuses a request before its body is judged.
pub(super) fn refusal_reply(head: &Head, refusal: &RejectedRequest) -> Reply {
    let (method, path) = (&head.method, &head.path);
    match refusal {
        RejectedRequest::UnknownPath => {
            let message = format!("Unknown request URL: {method} {path}.");
            error(404, INVALID, &message, None, Some("unknown_url"))
        }
        RejectedRequest::WrongMethod => {
            let message = format!("Not allowed to {method} on {path}.");
            error(405, INVALID, &message, None, Some("method_not_supported"))
        }
        RejectedRequest::NoKey => {
            let message = "You didn't provide an API key. You need to provide your API key in an \
                           Authorization header using Bearer auth.";
            error(401, INVALID, message, None, None)
        }
        RejectedRequest::WrongKey => {
            let message = "Incorrect API key provided: ***.";
            error(401, INVALID, message, None, Some("invalid_api_key"))
        }
        RejectedRequest::MissingHeader(_) | RejectedRequest::WrongHeader(..) => {
            let message = "Unsupported content type. Expected 'application/json'.";
            error(415, INVALID, message, None, Some("unsupported_content_type"))
        }
        RejectedRequest::NotJson(why) => {
            let message = format!("We could not parse the JSON body of your request: {why}");
            error(400, INVALID, &message, None, None)
        }
        RejectedRequest::TooLarge => {
            error(413, INVALID, "The request body is too large.", None, None)
        }
        RejectedRequest::UnknownModel(name) => {
            let message = format!("The model `{name}` does not exist or you do not have access.");
            error(404, INVALID, &message, None, Some("model_not_found"))
        }
    }
}

/// Renders a failure.
pub(super) fn fault_reply(api: Api, fault: &Fault) -> Reply {
    let failure = failure(api, fault.class);
    let message = fault.message.as_deref().unwrap_or(failure.message);
    error(failure.status, failure.kind, message, failure.param, failure.code)
}

/// The status and body that the API documents for a failure.
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) param: Option<&'static str>,
    pub(super) code: Option<&'static str>,
    pub(super) message: &'static str,
}

/// Returns the documented error of a class of failure.
pub(super) fn failure(api: Api, class: FaultClass) -> Failure {
    let responses = api == Api::Responses;
    let (status, kind, message) = class_of(class, responses);
    let code = match class {
        FaultClass::ContextLength => Some("context_length_exceeded"),
        FaultClass::RateLimited => Some("rate_limit_exceeded"),
        FaultClass::Quota => Some("insufficient_quota"),
        FaultClass::Overloaded => Some("server_is_overloaded"),
        FaultClass::Auth => Some("invalid_api_key"),
        FaultClass::Permission | FaultClass::NotFound => Some("model_not_found"),
        FaultClass::BadRequest => None,
        FaultClass::Refused if responses => Some("invalid_prompt"),
        FaultClass::Refused => Some("content_policy_violation"),
        FaultClass::Server => Some("server_error").filter(|_| responses),
    };
    let input = if responses { "input" } else { "messages" };
    let param = (class == FaultClass::ContextLength).then_some(input);
    Failure { status, kind, param, code, message }
}

const fn class_of(class: FaultClass, responses: bool) -> (u16, &'static str, &'static str) {
    match class {
        FaultClass::ContextLength if responses => {
            (400, INVALID, "Your input exceeds the context window of this model.")
        }
        FaultClass::ContextLength => (
            400,
            INVALID,
            "This model's maximum context length is 128000 tokens. \
             However, your messages resulted in 130221 tokens.",
        ),
        FaultClass::RateLimited => (
            429,
            "tokens",
            "Rate limit reached for this model on tokens per min (TPM): Limit 30000, Used 29000.",
        ),
        FaultClass::Quota => (
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        FaultClass::Overloaded => {
            (503, "server_error", "The engine is currently overloaded, please try again later.")
        }
        FaultClass::Auth => (401, INVALID, "Incorrect API key provided: ***."),
        FaultClass::Permission => (403, INVALID, "Project does not have access to this model."),
        FaultClass::NotFound => (404, INVALID, "The model `gpt-none` does not exist."),
        FaultClass::BadRequest => (400, INVALID, "Invalid request."),
        FaultClass::Refused if responses => (
            400,
            INVALID,
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        ),
        FaultClass::Refused => {
            (400, INVALID, "Your request was rejected as a result of our safety system.")
        }
        FaultClass::Server => (
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

/// Renders a validation error in the format of the APIs.
pub(super) fn refuse(complaint: &Complaint) -> Reply {
    let path = path(complaint);
    let (message, code) = match &complaint.why {
        Problem::Unknown => (format!("Unknown parameter: '{path}'."), Some("unknown_parameter")),
        Problem::Missing => {
            (format!("Missing required parameter: '{path}'."), Some("missing_required_parameter"))
        }
        Problem::Type { expected, got } => {
            let (expected, got) = (kind(*expected), JsonKind::word(got));
            let message =
                format!("Invalid type for '{path}': expected {expected}, but got {got} instead.");
            (message, Some("invalid_type"))
        }
        Problem::Choice { got, allowed } => {
            let words: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
            let words = words.join(", ");
            let message = format!("Invalid value: '{got}'. Supported values are: {words}.");
            (message, Some("invalid_value"))
        }
        Problem::Range { expected, got } => {
            let message = format!("Invalid '{path}': expected a value {expected}, but got {got}.");
            (message, Some("invalid_value"))
        }
        Problem::Empty => (format!("Invalid '{path}': empty."), Some("invalid_value")),
        Problem::ApiMessage(text) => (text.clone(), None),
    };
    error(400, INVALID, &message, (!path.is_empty()).then_some(&path), code)
}

fn path(complaint: &Complaint) -> String {
    let mut path = String::new();
    for step in &complaint.path {
        match step {
            PathStep::Key(key) if path.is_empty() => path += key,
            PathStep::Key(key) => path += &format!(".{key}"),
            PathStep::Index(index) => path += &format!("[{index}]"),
        }
    }
    path
}

const fn kind(kind: JsonKind) -> &'static str {
    match kind {
        JsonKind::Object => "an object",
        JsonKind::Array => "an array",
        JsonKind::Text => "a string",
        JsonKind::Integer => "an integer",
        JsonKind::Number => "a number",
        JsonKind::Boolean => "a boolean",
    }
}

/// Checks that the request streams.
pub(super) fn streams(root: &Node<'_, '_>) -> CheckResult<()> {
    let streams = root.non_null("stream").map(|stream| stream.boolean()).transpose()?;
    if streams == Some(true) { Ok(()) } else { root.fail("This fake only streams.") }
}

/// Checks the options that both APIs have.
pub(super) fn common(root: &Node<'_, '_>) -> CheckResult<()> {
    root.non_null("temperature").map(|node| node.number(0.0, 2.0)).transpose()?;
    root.non_null("top_p").map(|node| node.number(0.0, 1.0)).transpose()?;
    for flag in ["parallel_tool_calls", "store"] {
        root.non_null(flag).map(|node| node.boolean()).transpose()?;
    }
    for text in ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"] {
        root.non_null(text).map(|node| node.text().map(drop)).transpose()?;
    }
    root.non_null("service_tier")
        .map(|tier| tier.choice(&["auto", "default", "flex", "scale", "priority"]).map(drop))
        .transpose()?;
    root.non_null("metadata").map(|metadata| metadata.map().map(drop)).transpose()?;
    Ok(())
}

/// Checks a function that is offered, whose name is at `name`.
pub(super) fn function(node: &Node<'_, '_>) -> CheckResult<()> {
    let name = node.required("name")?;
    if !super::json::is_name(name.text()?, 64, "_-") {
        let text = name.text()?;
        return name.fail(format!(
            "Invalid '{}': '{text}' does not match pattern '^[a-zA-Z0-9_-]+$' of at most 64.",
            path(&name.complaint(Problem::Empty))
        ));
    }
    node.non_null("description").map(|text| text.text().map(drop)).transpose()?;
    let strict = node.non_null("strict").map(|flag| flag.boolean()).transpose()? == Some(true);
    let Some(parameters) = node.non_null("parameters") else { return Ok(()) };
    parameters.map()?;
    if strict { strict_schema(&parameters, name.text()?) } else { Ok(()) }
}

/// Checks the rules of strict schemas: objects are closed and require all they have.
fn strict_schema(schema: &Node<'_, '_>, name: &str) -> CheckResult<()> {
    schema.get("items").map(|items| strict_schema(&items, name)).transpose()?;
    let Some(properties) = schema.get("properties") else { return Ok(()) };
    let closed = schema.get("additionalProperties").map(|node| node.value) == Some(&json!(false));
    if !closed {
        return schema.fail(format!(
            "Invalid schema for function '{name}': 'additionalProperties' is required to be \
             supplied and to be false."
        ));
    }
    let required = schema.get("required").and_then(|node| node.value.as_array().cloned());
    let required = required.unwrap_or_default();
    for key in properties.map()?.keys() {
        if !required.iter().any(|name| name.as_str() == Some(key)) {
            return schema.fail(format!(
                "Invalid schema for function '{name}': 'required' is required to be supplied and \
                 to be an array including every key in properties. Missing '{key}'."
            ));
        }
        strict_schema(&properties.required(key)?, name)?;
    }
    Ok(())
}

/// Checks a schema that output must satisfy.
pub(super) fn format(node: &Node<'_, '_>) -> CheckResult<()> {
    node.required("name")?.non_empty_text()?;
    node.non_null("strict").map(|flag| flag.boolean()).transpose()?;
    node.required("schema")?.map().map(drop)
}

/// The values of the reasoning effort.
pub(super) const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
