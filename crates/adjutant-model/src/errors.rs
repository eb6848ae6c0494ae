//! Telling failures apart: what an error body, a status or a broken connection means for a call.
//!
//! The provider's own word (`error.code`, `error.type`, `error.status`) decides first, then the
//! HTTP status, then phrases in the message, because words are stable and prose is not. What a
//! person reads is cleaned: no key, no header, no body, and never long.

use adjutant_core::{AttemptError, ErrorKind};
use serde_json::Value;

use crate::secret::Secret;

/// The most characters of a provider's own message that are shown.
const MAX_MESSAGE_CHARS: usize = 300;
/// The most characters of a provider's error word that are shown.
const MAX_WORD_CHARS: usize = 48;
/// How keys of the known providers begin; a provider may quote part of one in its complaint.
const KEY_PREFIXES: [&str; 6] = ["sk-", "sk_", "AIza", "AQ.", "Bearer", "key-"];

/// Judges an answer with an error status.
pub(crate) fn from_status(
    status: u16,
    body: &[u8],
    retry_after_ms: Option<u64>,
    key: Option<&Secret>,
) -> AttemptError {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    judge(Some(status), &body, retry_after_ms, key)
}

/// Judges an error that arrived inside a stream which had begun well.
pub(crate) fn from_stream(error: &Value) -> AttemptError {
    judge(None, error, None, None)
}

/// Returns the error of a stream that broke off or made no sense.
pub(crate) fn truncated(what: &str) -> AttemptError {
    plain(ErrorKind::Truncated, what)
}

/// Returns an error in our own words.
pub(crate) fn plain(kind: ErrorKind, what: &str) -> AttemptError {
    AttemptError { kind, message: what.to_owned(), retry_after_ms: None }
}

/// Takes the key out of a message, wherever it stands.
pub(crate) fn without_key(mut error: AttemptError, key: Option<&Secret>) -> AttemptError {
    if let Some(key) = key {
        error.message = error.message.replace(key.reveal(), "***");
    }
    error
}

fn judge(
    status: Option<u16>,
    body: &Value,
    retry_after_ms: Option<u64>,
    key: Option<&Secret>,
) -> AttemptError {
    let error = error_object(body);
    let words = words(error);
    // OpenRouter puts the status of the provider behind it into `code`.
    let status = status.or_else(|| u16::try_from(error.get("code")?.as_u64()?).ok());
    let message = error.get("message").or(body.get("message")).and_then(Value::as_str);
    let message = message.or_else(|| error.as_str()).unwrap_or_default();
    let kind = kind_of(&words, status, message);
    let retry_after_ms = retry_after_ms.or_else(|| retry_delay(error));
    let message = describe(kind, status, &words, message);
    without_key(AttemptError { kind, message, retry_after_ms }, key)
}

/// Finds the error in a body; Gemini may wrap it in a list.
fn error_object(body: &Value) -> &Value {
    let body = body.get(0).unwrap_or(body);
    body.get("error").filter(|error| !error.is_null()).unwrap_or(body)
}

/// Returns the provider's words for an error, the most telling first.
fn words(error: &Value) -> Vec<&str> {
    let details = error.get("details").and_then(Value::as_array);
    let reasons = details.into_iter().flatten().filter_map(|detail| detail.get("reason"));
    let named = ["code", "type", "status"].into_iter().filter_map(|name| error.get(name));
    let all = reasons.chain(named).filter_map(Value::as_str);
    all.filter(|word| !word.is_empty() && *word != "error").collect()
}

fn kind_of(words: &[&str], status: Option<u16>, message: &str) -> ErrorKind {
    if let Some(kind) = words.iter().find_map(|word| by_word(word)) {
        return kind;
    }
    let kind = match status {
        Some(401..=403) => ErrorKind::Authentication,
        Some(408) => ErrorKind::Network,
        Some(413) => ErrorKind::ContextExhausted,
        Some(429) => ErrorKind::RateLimited,
        Some(500..) => ErrorKind::Overloaded,
        Some(_) => ErrorKind::BadRequest,
        None if words.iter().any(|word| is_request_word(word)) => ErrorKind::BadRequest,
        None => ErrorKind::Overloaded,
    };
    if kind == ErrorKind::BadRequest || kind == ErrorKind::Overloaded {
        return by_phrase(message).unwrap_or(kind);
    }
    kind
}

/// Words with one meaning; `api_error` and `invalid_request_error` have several and are left out.
fn by_word(word: &str) -> Option<ErrorKind> {
    Some(match word {
        "context_length_exceeded"
        | "model_context_window_exceeded"
        | "exceed_context_size_error"
        | "request_too_large" => ErrorKind::ContextExhausted,
        "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" | "too_many_requests"
        | "tokens" | "requests" => ErrorKind::RateLimited,
        "overloaded_error" | "server_is_overloaded" | "slow_down" | "server_error"
        | "timeout_error" | "UNAVAILABLE" | "INTERNAL" | "DEADLINE_EXCEEDED"
        | "service_unavailable" | "unavailable_error" => ErrorKind::Overloaded,
        "authentication_error"
        | "permission_error"
        | "billing_error"
        | "invalid_api_key"
        | "insufficient_quota"
        | "billing_hard_limit_reached"
        | "credit_balance_exhausted"
        | "enforced_spend_limit_reached"
        | "account_deactivated"
        | "UNAUTHENTICATED"
        | "PERMISSION_DENIED"
        | "API_KEY_INVALID" => ErrorKind::Authentication,
        "content_filter" | "content_policy_violation" | "invalid_prompt" => ErrorKind::Refused,
        "model_not_found" | "not_found_error" | "NOT_FOUND" => ErrorKind::BadRequest,
        _ => return None,
    })
}

fn is_request_word(word: &str) -> bool {
    matches!(word, "invalid_request_error" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION")
}

fn by_phrase(message: &str) -> Option<ErrorKind> {
    const FULL: [&str; 7] = [
        "prompt is too long",
        "context length",
        "context window",
        "context limit",
        "context size",
        "input token count",
        "maximum number of tokens",
    ];
    const UNPAID: [&str; 3] = ["credit balance", "spend limit", "api key not valid"];
    let message = message.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    if says(&FULL) {
        Some(ErrorKind::ContextExhausted)
    } else if says(&UNPAID) {
        Some(ErrorKind::Authentication)
    } else {
        None
    }
}

/// Reads Gemini's `retryDelay`, written `34.5s`.
fn retry_delay(error: &Value) -> Option<u64> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay"))?.as_str()?;
    millis(delay.strip_suffix('s')?)
}

/// Reads seconds with an optional fraction.
pub(crate) fn millis(seconds: &str) -> Option<u64> {
    let seconds: f64 = seconds.trim().parse().ok()?;
    // The cast saturates; a day is the longest that makes sense to anyone.
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds.min(86_400.0) * 1_000.0).ceil() as u64)
}

fn describe(kind: ErrorKind, status: Option<u16>, words: &[&str], message: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(status.map(|status| format!("HTTP {status}")));
    parts.extend(words.first().map(|word| clean_word(word)));
    let place = parts.join(", ");
    // Complaints about a key like to quote it; the class and the word say enough.
    let said = if kind == ErrorKind::Authentication { String::new() } else { clean(message) };
    match (place.is_empty(), said.is_empty()) {
        (false, false) => format!("{place}: {said}"),
        (false, true) => place,
        (true, false) => said,
        (true, true) => "the provider gave no reason".to_owned(),
    }
}

fn clean_word(word: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "_-.".contains(*letter);
    word.chars().filter(plain).take(MAX_WORD_CHARS).collect()
}

/// Makes a provider's sentence fit for a line: one line, no keys, not long.
fn clean(message: &str) -> String {
    let mut text = String::new();
    for word in message.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        let bare = word.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        let is_key = KEY_PREFIXES.iter().any(|prefix| bare.starts_with(prefix));
        text.push_str(if is_key { "***" } else { word });
        if text.len() > 8 * MAX_MESSAGE_CHARS {
            break;
        }
    }
    if text.chars().count() > MAX_MESSAGE_CHARS {
        text = text.chars().take(MAX_MESSAGE_CHARS - 1).collect();
        text.push('…');
    }
    text
}
