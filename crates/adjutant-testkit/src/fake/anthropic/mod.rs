//! Anthropic Messages: `POST /v1/messages`.
//!
//! `request` validates requests and `stream` renders answers; this module has authentication and errors.

mod blocks;
mod request;
mod stream;

pub(super) use stream::stream;

use serde_json::{Value, json};

use super::api::{Door, Exchange, Trouble, json as body_json, route};
use super::http::{Head, Reply};
use super::json::{Complaint, Kind, Step, Why};
use super::turn::{Class, Fault};

/// Accepts a request or refuses it.
pub(super) fn receive(head: &Head, body: &[u8], door: &Door) -> Result<Exchange, Reply> {
    let value = admit(head, body, door).map_err(|refused| trouble(&refused))?;
    let exchange = request::read(&value)
        .map_err(|complaint| error(400, "invalid_request_error", &wording(&complaint)))?;
    door.has(&exchange.model).map_err(|refused| trouble(&refused))?;
    Ok(exchange)
}

fn admit(head: &Head, body: &[u8], door: &Door) -> Result<Value, Trouble> {
    route(head, "/v1/messages")?;
    door.admit(head.header("x-api-key"))?;
    match head.header("anthropic-version") {
        None => return Err(Trouble::MissingHeader("anthropic-version")),
        Some("2023-06-01" | "2023-01-01") => {}
        Some(other) => return Err(Trouble::WrongHeader("anthropic-version", other.to_owned())),
    }
    body_json(head, body)
}

/// Refuses a request before its body is judged.
pub(super) fn trouble(trouble: &Trouble) -> Reply {
    let invalid = "invalid_request_error";
    match trouble {
        Trouble::UnknownPath => error(404, "not_found_error", "Not Found"),
        Trouble::WrongMethod => error(405, invalid, "Method Not Allowed"),
        Trouble::NoKey => error(401, "authentication_error", "x-api-key header is required"),
        Trouble::WrongKey => error(401, "authentication_error", "invalid x-api-key"),
        Trouble::MissingHeader(name) => error(400, invalid, &format!("{name}: header is required")),
        Trouble::WrongHeader(name, value) => {
            error(400, invalid, &format!("{name}: \"{value}\" is not a valid value"))
        }
        Trouble::NotJson(why) => {
            error(400, invalid, &format!("The request body is not valid JSON: {why}"))
        }
        Trouble::TooLarge => {
            error(413, "request_too_large", "Request exceeds the maximum allowed number of bytes.")
        }
        Trouble::UnknownModel(name) => error(404, "not_found_error", &format!("model: {name}")),
    }
}

/// Renders a failure.
pub(super) fn fault(fault: &Fault) -> Reply {
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

const fn class(class: Class) -> (u16, &'static str, &'static str) {
    match class {
        Class::ContextLength => {
            (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
        }
        Class::RateLimited => (
            429,
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 50 requests per minute.",
        ),
        Class::Quota => (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
        ),
        Class::Overloaded => (529, "overloaded_error", "Overloaded"),
        Class::Auth => (401, "authentication_error", "invalid x-api-key"),
        Class::Permission => (
            403,
            "permission_error",
            "Your API key does not have permission to use the specified resource.",
        ),
        Class::NotFound => (404, "not_found_error", "model: claude-none"),
        Class::BadRequest => (400, "invalid_request_error", "messages: invalid"),
        Class::Refused => {
            (400, "invalid_request_error", "Output blocked by content filtering policy")
        }
        Class::Server => (500, "api_error", "Internal server error"),
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
    let step = |step: &Step| match step {
        Step::Key(key) => key.clone(),
        Step::Index(index) => index.to_string(),
    };
    let path: Vec<String> = complaint.path.iter().map(step).collect();
    let what = match &complaint.why {
        Why::Unknown => "Extra inputs are not permitted".into(),
        Why::Missing => "Field required".into(),
        Why::Type { expected, .. } => format!("Input should be a valid {}", kind(*expected)),
        Why::Choice { allowed, .. } => {
            let words: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
            format!("Input should be {}", words.join(" or "))
        }
        Why::Range { expected, .. } => format!("Input should be {expected}"),
        Why::Empty => "String should have at least 1 character".into(),
        Why::Said(text) => text.clone(),
    };
    if path.is_empty() { what } else { format!("{}: {what}", path.join(".")) }
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "dictionary",
        Kind::Array => "list",
        Kind::Text => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
    }
}
