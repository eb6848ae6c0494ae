//! Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`.
//!
//! Field names in camel case only, as the REST documentation writes them, though the real server
//! takes snake case too.

mod contents;
mod request;
mod stream;

pub(super) use stream::stream;

use serde_json::{Value, json};

use super::api::{AccessRules, RejectedRequest, ValidRequest, json as body_json};
use super::http::{Head, Reply};
use super::json::{Complaint, JsonKind, PathStep, Problem};
use super::turn::{Fault, FaultClass};

/// Accepts a request or refuses it.
pub(super) fn receive(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
) -> Result<ValidRequest, Reply> {
    let (value, model) = admit(head, body, access).map_err(|refused| refusal_reply(&refused))?;
    access.has(&model).map_err(|refused| refusal_reply(&refused))?;
    request::read(&value, &model).map_err(|complaint| refuse(&complaint))
}

fn admit(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
) -> Result<(Value, String), RejectedRequest> {
    let model = head
        .path
        .strip_prefix("/v1beta/models/")
        .and_then(|rest| rest.strip_suffix(":streamGenerateContent"))
        .filter(|model| !model.is_empty() && !model.contains(['/', ':']))
        .ok_or(RejectedRequest::UnknownPath)?;
    if head.method != "POST" {
        return Err(RejectedRequest::WrongMethod);
    }
    // Without it the stream is one JSON array, which no client of ours reads.
    if head.query != "alt=sse" {
        return Err(RejectedRequest::UnknownPath);
    }
    access.admit(head.header("x-goog-api-key"))?;
    Ok((body_json(head, body)?, model.to_owned()))
}

/// Refuses a request before its body is judged.
pub(super) fn refusal_reply(refusal: &RejectedRequest) -> Reply {
    match refusal {
        RejectedRequest::UnknownPath | RejectedRequest::WrongMethod => {
            error(404, "NOT_FOUND", "The requested URL was not found on this server.", &[])
        }
        RejectedRequest::NoKey => {
            let message = "Method doesn't allow unregistered callers (callers without established \
                           identity). Please use API Key or other form of API consumer identity to \
                           call this API.";
            error(403, "PERMISSION_DENIED", message, &[])
        }
        RejectedRequest::WrongKey => {
            fault_reply(&Fault { class: FaultClass::Auth, ..Fault::default() })
        }
        RejectedRequest::MissingHeader(_)
        | RejectedRequest::WrongHeader(..)
        | RejectedRequest::NotJson(_) => {
            let message = "Invalid JSON payload received. Unexpected token.";
            error(400, "INVALID_ARGUMENT", message, &[])
        }
        RejectedRequest::TooLarge => {
            let message = "Request payload size exceeds the limit.";
            error(400, "INVALID_ARGUMENT", message, &[])
        }
        RejectedRequest::UnknownModel(name) => {
            let message = format!(
                "models/{name} is not found for API version v1beta, or is not supported for \
                 generateContent."
            );
            error(404, "NOT_FOUND", &message, &[])
        }
    }
}

/// Renders a failure.
pub(super) fn fault_reply(fault: &Fault) -> Reply {
    if fault.class == FaultClass::Refused {
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
        FaultClass::ContextLength => (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed \
             (1048576).",
            Vec::new(),
        ),
        FaultClass::RateLimited => (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            quota(fault, "GenerateRequestsPerMinutePerProjectPerModel"),
        ),
        FaultClass::Quota => (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            quota(fault, "GenerateRequestsPerDayPerProjectPerModel"),
        ),
        FaultClass::Overloaded => {
            (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", Vec::new())
        }
        FaultClass::Auth => (
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
        FaultClass::Permission => {
            (403, "PERMISSION_DENIED", "The caller does not have permission.", Vec::new())
        }
        FaultClass::NotFound => {
            (404, "NOT_FOUND", "models/none is not found for API version v1beta.", Vec::new())
        }
        FaultClass::BadRequest | FaultClass::Refused => {
            (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", Vec::new())
        }
        FaultClass::Server => (500, "INTERNAL", "An internal error has occurred.", Vec::new()),
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
        Problem::Unknown => {
            let (name, place) = match complaint.path.split_last() {
                Some((PathStep::Key(name), [])) => (name.as_str(), String::new()),
                Some((PathStep::Key(name), rest)) => {
                    (name.as_str(), format!(" at '{}'", self::path(rest)))
                }
                _ => ("", String::new()),
            };
            format!(
                "Invalid JSON payload received. Unknown name \"{name}\"{place}: Cannot find field."
            )
        }
        Problem::Missing => format!("* GenerateContentRequest.{path}: {path} is not specified\n"),
        Problem::Type { expected, got } => {
            format!("Invalid value at '{path}' ({}), {got}", kind(*expected))
        }
        Problem::Choice { got, .. } => format!("Invalid value at '{path}' (TYPE_ENUM), \"{got}\""),
        Problem::Range { expected, .. } => {
            format!("* GenerateContentRequest.{path}: {path} must be {expected}\n")
        }
        Problem::Empty => format!("* GenerateContentRequest.{path}: {path} must not be empty.\n"),
        Problem::ApiMessage(text) => text.clone(),
    };
    let violation = json!({ "field": path, "description": message });
    let details = [json!({
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [violation],
    })];
    let said = matches!(complaint.why, Problem::ApiMessage(_));
    error(400, "INVALID_ARGUMENT", &message, if said { &[] } else { &details })
}

fn path(steps: &[PathStep]) -> String {
    let mut path = String::new();
    for step in steps {
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
        JsonKind::Object => "TYPE_MESSAGE",
        JsonKind::Array => "repeated",
        JsonKind::Text => "TYPE_STRING",
        JsonKind::Integer => "TYPE_INT32",
        JsonKind::Number => "TYPE_FLOAT",
        JsonKind::Boolean => "TYPE_BOOL",
    }
}
