//! Anthropic Messages: `POST /v1/messages`.
//!
//! `request` validates requests and `stream` renders answers; this module has authentication and errors.

mod blocks;
mod request;
mod stream;

pub(super) use stream::stream;

use serde_json::{Value, json};

use super::api::{AccessRules, RejectedRequest, ValidRequest, json as body_json, route};
use super::http::{Head, Reply};
use super::json::{Complaint, JsonKind, PathStep, Problem};
use super::turn::{Fault, FaultClass};

/// Accepts a request or refuses it.
pub(super) fn receive(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
) -> Result<ValidRequest, Reply> {
    let value = admit(head, body, access).map_err(|refused| refusal_reply(&refused))?;
    let request = request::read(&value)
        .map_err(|complaint| error(400, "invalid_request_error", &wording(&complaint)))?;
    access.has(&request.model).map_err(|refused| refusal_reply(&refused))?;
    Ok(request)
}

fn admit(head: &Head, body: &[u8], access: &AccessRules) -> Result<Value, RejectedRequest> {
    route(head, "/v1/messages")?;
    access.admit(head.header("x-api-key"))?;
    match head.header("anthropic-version") {
        None => return Err(RejectedRequest::MissingHeader("anthropic-version")),
        Some("2023-06-01" | "2023-01-01") => {}
        Some(other) => {
            return Err(RejectedRequest::WrongHeader("anthropic-version", other.to_owned()));
        }
    }
    body_json(head, body)
}

/// Refuses a request before its body is judged.
pub(super) fn refusal_reply(refusal: &RejectedRequest) -> Reply {
    let invalid = "invalid_request_error";
    match refusal {
        RejectedRequest::UnknownPath => error(404, "not_found_error", "Not Found"),
        RejectedRequest::WrongMethod => error(405, invalid, "Method Not Allowed"),
        RejectedRequest::NoKey => {
            error(401, "authentication_error", "x-api-key header is required")
        }
        RejectedRequest::WrongKey => error(401, "authentication_error", "invalid x-api-key"),
        RejectedRequest::MissingHeader(name) => {
            error(400, invalid, &format!("{name}: header is required"))
        }
        RejectedRequest::WrongHeader(name, value) => {
            error(400, invalid, &format!("{name}: \"{value}\" is not a valid value"))
        }
        RejectedRequest::NotJson(why) => {
            error(400, invalid, &format!("The request body is not valid JSON: {why}"))
        }
        RejectedRequest::TooLarge => {
            error(413, "request_too_large", "Request exceeds the maximum allowed number of bytes.")
        }
        RejectedRequest::UnknownModel(name) => {
            error(404, "not_found_error", &format!("model: {name}"))
        }
    }
}

/// Renders a failure.
pub(super) fn fault_reply(fault: &Fault) -> Reply {
    let (status, kind, message) = class(fault.class);
    error(status, kind, fault.message.as_deref().unwrap_or(message))
}

/// Renders a failure within a stream.
pub(super) fn fault_event(fault: &Fault) -> String {
    let (_, kind, message) = class(fault.class);
    let message = fault.message.as_deref().unwrap_or(message);
    let data = json!({ "type": "error", "error": { "type": kind, "message": message } });
    super::sse::event("error", &data)
}

const fn class(class: FaultClass) -> (u16, &'static str, &'static str) {
    match class {
        FaultClass::ContextLength => {
            (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
        }
        FaultClass::RateLimited => (
            429,
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 50 requests per minute.",
        ),
        FaultClass::Quota => (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
        ),
        FaultClass::Overloaded => (529, "overloaded_error", "Overloaded"),
        FaultClass::Auth => (401, "authentication_error", "invalid x-api-key"),
        FaultClass::Permission => (
            403,
            "permission_error",
            "Your API key does not have permission to use the specified resource.",
        ),
        FaultClass::NotFound => (404, "not_found_error", "model: claude-none"),
        FaultClass::BadRequest => (400, "invalid_request_error", "messages: invalid"),
        FaultClass::Refused => {
            (400, "invalid_request_error", "Output blocked by content filtering policy")
        }
        FaultClass::Server => (500, "api_error", "Internal server error"),
    }
}

fn error(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    });
    Reply::json(status, &body)
}

/// Renders a validation error in this API's format.
fn wording(complaint: &Complaint) -> String {
    let step = |step: &PathStep| match step {
        PathStep::Key(key) => key.clone(),
        PathStep::Index(index) => index.to_string(),
    };
    let path: Vec<String> = complaint.path.iter().map(step).collect();
    let what = match &complaint.why {
        Problem::Unknown => "Extra inputs are not permitted".into(),
        Problem::Missing => "Field required".into(),
        Problem::Type { expected, .. } => format!("Input should be a valid {}", kind(*expected)),
        Problem::Choice { allowed, .. } => {
            let words: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
            format!("Input should be {}", words.join(" or "))
        }
        Problem::Range { expected, .. } => format!("Input should be {expected}"),
        Problem::Empty => "String should have at least 1 character".into(),
        Problem::ApiMessage(text) => text.clone(),
    };
    if path.is_empty() { what } else { format!("{}: {what}", path.join(".")) }
}

const fn kind(kind: JsonKind) -> &'static str {
    match kind {
        JsonKind::Object => "dictionary",
        JsonKind::Array => "list",
        JsonKind::Text => "string",
        JsonKind::Integer => "integer",
        JsonKind::Number => "number",
        JsonKind::Boolean => "boolean",
    }
}
