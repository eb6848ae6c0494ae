//! Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`.
//!
//! Field names in camel case only, as the REST documentation writes them, though the real server
//! takes snake case too.

mod contents;
mod request;
mod stream;

pub(super) use stream::stream;

use serde_json::{Value, json};

use super::api::{Door, Exchange, Trouble, json as body_json};
use super::http::{Head, Reply};
use super::json::{Complaint, Kind, Step, Why};
use super::turn::{Class, Fault};

/// Accepts a request or refuses it.
pub(super) fn receive(head: &Head, body: &[u8], door: &Door) -> Result<Exchange, Reply> {
    let (value, model) = admit(head, body, door).map_err(|refused| trouble(&refused))?;
    door.has(&model).map_err(|refused| trouble(&refused))?;
    request::read(&value, &model).map_err(|complaint| refuse(&complaint))
}

fn admit(head: &Head, body: &[u8], door: &Door) -> Result<(Value, String), Trouble> {
    let model = head
        .path
        .strip_prefix("/v1beta/models/")
        .and_then(|rest| rest.strip_suffix(":streamGenerateContent"))
        .filter(|model| !model.is_empty() && !model.contains(['/', ':']))
        .ok_or(Trouble::UnknownPath)?;
    if head.method != "POST" {
        return Err(Trouble::WrongMethod);
    }
    // Without it the stream is one JSON array, which no client of ours reads.
    if head.query != "alt=sse" {
        return Err(Trouble::UnknownPath);
    }
    door.admit(head.header("x-goog-api-key"))?;
    Ok((body_json(head, body)?, model.to_owned()))
}

/// Refuses a request before its body is judged.
pub(super) fn trouble(trouble: &Trouble) -> Reply {
    match trouble {
        Trouble::UnknownPath | Trouble::WrongMethod => {
            error(404, "NOT_FOUND", "The requested URL was not found on this server.", &[])
        }
        Trouble::NoKey => {
            let message = "Method doesn't allow unregistered callers (callers without established \
                           identity). Please use API Key or other form of API consumer identity to \
                           call this API.";
            error(403, "PERMISSION_DENIED", message, &[])
        }
        Trouble::WrongKey => fault(&Fault { class: Class::Auth, ..Fault::default() }),
        Trouble::MissingHeader(_) | Trouble::WrongHeader(..) | Trouble::NotJson(_) => {
            let message = "Invalid JSON payload received. Unexpected token.";
            error(400, "INVALID_ARGUMENT", message, &[])
        }
        Trouble::TooLarge => {
            let message = "Request payload size exceeds the limit.";
            error(400, "INVALID_ARGUMENT", message, &[])
        }
        Trouble::UnknownModel(name) => {
            let message = format!(
                "models/{name} is not found for API version v1beta, or is not supported for \
                 generateContent."
            );
            error(404, "NOT_FOUND", &message, &[])
        }
    }
}

/// Renders a failure.
pub(super) fn fault(fault: &Fault) -> Reply {
    if fault.class == Class::Refused {
        return blocked();
    }
    let (code, status, message, details) = class(fault);
    error(code, status, fault.message.as_deref().unwrap_or(message), &details)
}

/// Renders a failure within a stream.
pub(super) fn fault_event(fault: &Fault) -> String {
    let (code, status, message, details) = class(fault);
    let message = fault.message.as_deref().unwrap_or(message);
    format!("data: {}\r\n\r\n", body(code, status, message, &details))
}

/// A prompt that a filter refused is answered, with no candidates.
fn blocked() -> Reply {
    let data = json!({
        "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" },
        "usageMetadata": { "promptTokenCount": 8, "totalTokenCount": 8 },
        "modelVersion": "gemini",
    });
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    Reply { status: 200, headers: vec![kind], body: format!("data: {data}\r\n\r\n") }
}

fn class(fault: &Fault) -> (u16, &'static str, &'static str, Vec<Value>) {
    match fault.class {
        Class::ContextLength => (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed \
             (1048576).",
            Vec::new(),
        ),
        Class::RateLimited => (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            quota(fault, "GenerateRequestsPerMinutePerProjectPerModel"),
        ),
        Class::Quota => (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            quota(fault, "GenerateRequestsPerDayPerProjectPerModel"),
        ),
        Class::Overloaded => {
            (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", Vec::new())
        }
        Class::Auth => (
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            vec![json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
                "metadata": { "service": "generativelanguage.googleapis.com" },
            })],
        ),
        Class::Permission => {
            (403, "PERMISSION_DENIED", "The caller does not have permission.", Vec::new())
        }
        Class::NotFound => {
            (404, "NOT_FOUND", "models/none is not found for API version v1beta.", Vec::new())
        }
        Class::BadRequest | Class::Refused => {
            (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", Vec::new())
        }
        Class::Server => (500, "INTERNAL", "An internal error has occurred.", Vec::new()),
    }
}

/// Says which quota was met and, in the body, when to come again.
fn quota(fault: &Fault, id: &str) -> Vec<Value> {
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
            "quotaId": id,
        }],
    })];
    let ms = fault.retry_after_ms.as_ref().and_then(|text| text.parse::<u64>().ok());
    let seconds = fault.retry_after.as_ref().and_then(|text| text.parse::<u64>().ok());
    if let Some(ms) = ms.or_else(|| seconds.map(|seconds| seconds * 1000)) {
        let delay = if ms % 1000 == 0 {
            format!("{}s", ms / 1000)
        } else {
            format!("{}.{:03}s", ms / 1000, ms % 1000)
        };
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": delay,
        }));
    }
    details
}

fn body(code: u16, status: &str, message: &str, details: &[Value]) -> Value {
    let mut error = json!({ "code": code, "message": message, "status": status });
    if !details.is_empty() {
        error["details"] = json!(details);
    }
    json!({ "error": error })
}

fn error(code: u16, status: &str, message: &str, details: &[Value]) -> Reply {
    Reply::json(code, &body(code, status, message, details))
}

/// Refuses a body, in this API's words.
fn refuse(complaint: &Complaint) -> Reply {
    let path = path(&complaint.path);
    let message = match &complaint.why {
        Why::Unknown => {
            let (name, place) = match complaint.path.split_last() {
                Some((Step::Key(name), [])) => (name.as_str(), String::new()),
                Some((Step::Key(name), rest)) => {
                    (name.as_str(), format!(" at '{}'", self::path(rest)))
                }
                _ => ("", String::new()),
            };
            format!(
                "Invalid JSON payload received. Unknown name \"{name}\"{place}: Cannot find field."
            )
        }
        Why::Missing => format!("* GenerateContentRequest.{path}: {path} is not specified\n"),
        Why::Type { expected, got } => {
            format!("Invalid value at '{path}' ({}), {got}", kind(*expected))
        }
        Why::Choice { got, .. } => format!("Invalid value at '{path}' (TYPE_ENUM), \"{got}\""),
        Why::Range { expected, .. } => {
            format!("* GenerateContentRequest.{path}: {path} must be {expected}\n")
        }
        Why::Empty => format!("* GenerateContentRequest.{path}: {path} must not be empty.\n"),
        Why::Said(text) => text.clone(),
    };
    let violation = json!({ "field": path, "description": message });
    let details = [json!({
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [violation],
    })];
    let said = matches!(complaint.why, Why::Said(_));
    error(400, "INVALID_ARGUMENT", &message, if said { &[] } else { &details })
}

fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
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
        Kind::Object => "TYPE_MESSAGE",
        Kind::Array => "repeated",
        Kind::Text => "TYPE_STRING",
        Kind::Integer => "TYPE_INT32",
        Kind::Number => "TYPE_FLOAT",
        Kind::Boolean => "TYPE_BOOL",
    }
}
