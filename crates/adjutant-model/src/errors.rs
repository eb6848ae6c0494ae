//! Classifies provider errors: from the error body, the HTTP status or a broken connection to an
//! [`ErrorKind`].
//!
//! The provider's error word (`error.code`, `error.type`, `error.status`) decides first, then the HTTP
//! status, then phrases in the message, because words are more stable than prose. Messages for users contain
//! no key, header or body and are limited in length.

use adjutant_core::{AttemptError, ModelErrorKind, Secret};
use serde_json::Value;

/// The maximum number of characters shown of a provider's message.
const MAX_MESSAGE_CHARS: usize = 300;
/// The maximum number of characters shown of a provider's error word.
const MAX_WORD_CHARS: usize = 48;
/// The prefixes of the known providers' keys; a provider may quote part of a key in its message.
const KEY_PREFIXES: [&str; 5] = ["sk-", "sk_", "AIza", "AQ.", "key-"];
/// The words that precede a credential in a header.
const SCHEMES: [&str; 2] = ["Bearer", "Basic"];

/// Classifies a response with an error status.
pub(crate) fn from_status(
    status: u16,
    body: &[u8],
    retry_after_ms: Option<u64>,
    key: Option<&Secret>,
) -> AttemptError {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let error = judge(Some(status), &body, retry_after_ms, key);
    AttemptError { never_began: never_began(status), ..error }
}

/// Classifies a JSON error with a success status, received instead of a stream.
pub(crate) fn from_json(body: &Value, key: Option<&Secret>) -> AttemptError {
    judge(Some(400), body, None, key)
}

/// Classifies an error inside a stream that started successfully.
pub(crate) fn from_stream(error: &Value) -> AttemptError {
    judge(None, error, None, None)
}

/// Makes the error for a truncated or malformed stream.
pub(crate) fn truncated(what: &str) -> AttemptError {
    error_of_kind(ModelErrorKind::Truncated, what)
}

/// Makes an error with our own message.
pub(crate) fn error_of_kind(kind: ModelErrorKind, what: &str) -> AttemptError {
    AttemptError { kind, message: what.to_owned(), retry_after_ms: None, never_began: false }
}

/// Makes the error for a call that did not reach its provider.
pub(crate) fn unreached_error(what: &str) -> AttemptError {
    AttemptError { never_began: true, ..error_of_kind(ModelErrorKind::Network, what) }
}

/// Returns whether this status means that the provider did not start to process the call.
///
/// With any other error status it may have started and may bill for it: 408 and 504 are timeouts, 500 and 502
/// failures during processing.
const fn never_began(status: u16) -> bool {
    matches!(status, 400..=407 | 409..=499 | 503 | 529)
}

/// Removes the key from a message.
pub(crate) fn without_key(mut error: AttemptError, key: Option<&Secret>) -> AttemptError {
    if let Some(key) = key {
        error.message = error.message.replace(key.reveal(), "***");
    }
    error
}

/// Removes keys from the body of an error response, which a provider may quote in part.
///
/// The other content stays as it is, because agents read codes and limits in it.
pub(crate) fn body_without_key(body: &[u8], key: Option<&Secret>) -> Vec<u8> {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            mask_strings(&mut value, key);
            value.to_string().into_bytes()
        }
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            key.map_or_else(|| text.to_string(), |key| text.replace(key.reveal(), "***"))
                .into_bytes()
        }
    }
}

fn mask_strings(value: &mut Value, key: Option<&Secret>) {
    match value {
        Value::String(text) => {
            let cleaned = clean(text, key);
            if cleaned.contains("***") {
                *text = cleaned;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask_strings(value, key)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| mask_strings(value, key));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn judge(
    status: Option<u16>,
    body: &Value,
    retry_after_ms: Option<u64>,
    key: Option<&Secret>,
) -> AttemptError {
    let error = error_object(body);
    let words = error_words(error);
    // OpenRouter puts the status of the upstream provider into `code`.
    let status = status.or_else(|| u16::try_from(error.get("code")?.as_u64()?).ok());
    let message = error.get("message").or(body.get("message")).and_then(Value::as_str);
    let message = message.or_else(|| error.as_str()).unwrap_or_default();
    let kind = kind_of(&words, status, message);
    let retry_after_ms = retry_after_ms.or_else(|| retry_delay(error));
    let message = describe(status, &words, &clean(message, key));
    without_key(AttemptError { kind, message, retry_after_ms, never_began: false }, key)
}

/// Returns the error object of a body; Gemini may wrap it in a list.
fn error_object(body: &Value) -> &Value {
    let body = body.get(0).unwrap_or(body);
    body.get("error").filter(|error| !error.is_null()).unwrap_or(body)
}

/// Returns the provider's error words, most specific first.
fn error_words(error: &Value) -> Vec<&str> {
    let details = error.get("details").and_then(Value::as_array);
    let reasons = details.into_iter().flatten().filter_map(|detail| detail.get("reason"));
    let named = ["code", "type", "status"].into_iter().filter_map(|name| error.get(name));
    let all = reasons.chain(named).filter_map(Value::as_str);
    all.filter(|word| !word.is_empty() && *word != "error").collect()
}

fn kind_of(words: &[&str], status: Option<u16>, message: &str) -> ModelErrorKind {
    if let Some(kind) = words.iter().find_map(|word| by_word(word)) {
        // OpenAI also says `model_not_found` if the key may not use an existing model.
        let barred = kind == ModelErrorKind::BadRequest && matches!(status, Some(401..=403));
        return if barred { ModelErrorKind::Authentication } else { kind };
    }
    let kind = match status {
        Some(402) => ModelErrorKind::OutOfCredit,
        Some(401 | 403) => ModelErrorKind::Authentication,
        Some(408) => ModelErrorKind::Network,
        Some(413) => ModelErrorKind::ContextExhausted,
        Some(429) => ModelErrorKind::RateLimited,
        Some(500..) => ModelErrorKind::Overloaded,
        Some(_) => ModelErrorKind::BadRequest,
        None if words.iter().any(|word| is_request_word(word)) => ModelErrorKind::BadRequest,
        None => ModelErrorKind::Overloaded,
    };
    if kind == ModelErrorKind::BadRequest || kind == ModelErrorKind::Overloaded {
        return by_phrase(message).unwrap_or(kind);
    }
    kind
}

/// Error words with a single meaning; `api_error` and `invalid_request_error` are ambiguous and left out.
fn by_word(word: &str) -> Option<ModelErrorKind> {
    Some(match word {
        "context_length_exceeded"
        | "model_context_window_exceeded"
        | "exceed_context_size_error"
        | "request_too_large" => ModelErrorKind::ContextExhausted,
        "rate_limit_error"
        | "rate_limit_exceeded"
        | "RESOURCE_EXHAUSTED"
        | "too_many_requests"
        | "tokens"
        | "requests" => ModelErrorKind::RateLimited,
        "overloaded_error"
        | "server_is_overloaded"
        | "slow_down"
        | "server_error"
        | "timeout_error"
        | "UNAVAILABLE"
        | "INTERNAL"
        | "DEADLINE_EXCEEDED"
        | "service_unavailable"
        | "unavailable_error" => ModelErrorKind::Overloaded,
        "billing_error"
        | "billing_not_active"
        | "insufficient_quota"
        | "insufficient_credits"
        | "billing_hard_limit_reached"
        | "credit_balance_exhausted"
        | "enforced_spend_limit_reached" => ModelErrorKind::OutOfCredit,
        "authentication_error"
        | "permission_error"
        | "invalid_api_key"
        | "account_deactivated"
        | "UNAUTHENTICATED"
        | "PERMISSION_DENIED"
        | "API_KEY_INVALID" => ModelErrorKind::Authentication,
        "content_filter" | "content_policy_violation" | "invalid_prompt" => ModelErrorKind::Refused,
        "model_not_found" | "not_found_error" | "NOT_FOUND" => ModelErrorKind::BadRequest,
        _ => return None,
    })
}

fn is_request_word(word: &str) -> bool {
    matches!(word, "invalid_request_error" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION")
}

fn by_phrase(message: &str) -> Option<ModelErrorKind> {
    const FULL: [&str; 7] = [
        "prompt is too long",
        "context length",
        "context window",
        "context limit",
        "context size",
        "input token count",
        "maximum number of tokens",
    ];
    const FILTERED: [&str; 1] = ["content filtering policy"];
    const UNPAID: [&str; 3] = ["credit balance", "spend limit", "insufficient credits"];
    const WRONG_KEY: [&str; 1] = ["api key not valid"];
    let message = message.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    if says(&FULL) {
        Some(ModelErrorKind::ContextExhausted)
    } else if says(&FILTERED) {
        Some(ModelErrorKind::Refused)
    } else if says(&UNPAID) {
        Some(ModelErrorKind::OutOfCredit)
    } else if says(&WRONG_KEY) {
        Some(ModelErrorKind::Authentication)
    } else {
        None
    }
}

/// Reads Gemini's `retryDelay`, for example `34.5s`.
fn retry_delay(error: &Value) -> Option<u64> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay"))?.as_str()?;
    millis(delay.strip_suffix('s')?)
}

/// Parses seconds with an optional fraction into milliseconds.
pub(crate) fn millis(seconds: &str) -> Option<u64> {
    let seconds: f64 = seconds.trim().parse().ok()?;
    // Limited to a day; no longer wait is useful.
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds.min(86_400.0) * 1_000.0).ceil() as u64)
}

fn describe(status: Option<u16>, words: &[&str], said: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(status.map(|status| format!("HTTP {status}")));
    parts.extend(words.first().map(|word| clean_word(word)));
    let place = parts.join(", ");
    match (place.is_empty(), said.is_empty()) {
        (false, false) => format!("{place}: {said}"),
        // The right server would say more than "not found", so suggest checking the base URL.
        (false, true) => match status {
            Some(300..400) => {
                format!("{place}, a redirect, is not followed; is the base URL right?")
            }
            Some(404 | 405) if words.is_empty() => format!("{place}; is the base URL right?"),
            Some(_) | None => place,
        },
        (true, false) => said.to_owned(),
        (true, true) => "the provider gave no reason".to_owned(),
    }
}

fn clean_word(word: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "_-.".contains(*letter);
    word.chars().filter(plain).take(MAX_WORD_CHARS).collect()
}

/// Cleans a provider's message: one line, no keys, limited length.
fn clean(message: &str, key: Option<&Secret>) -> String {
    let mut text = String::new();
    let mut follows_scheme = false;
    for word in message.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_key = KEY_PREFIXES.iter().any(|prefix| bare.starts_with(prefix))
            || follows_scheme
            || is_part_of_key(word, key);
        follows_scheme = SCHEMES.contains(&bare);
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

/// Returns whether a word reveals part of the key: a masked form of it, or its beginning or end.
fn is_part_of_key(word: &str, key: Option<&Secret>) -> bool {
    const SHOWN: usize = 6;
    let key = key.map(Secret::reveal).filter(|key| key.is_ascii() && key.len() >= 2 * SHOWN);
    let shows =
        |key: &str| word.contains(&key[..SHOWN]) || word.contains(&key[key.len() - SHOWN..]);
    word.contains("**") || key.is_some_and(shows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(status: u16, body: &Value) -> (ModelErrorKind, String) {
        let key = Secret::new("fake-key-000");
        let error = from_status(status, body.to_string().as_bytes(), None, key.as_ref());
        (error.kind, error.message)
    }

    #[test]
    fn each_class_is_told_from_the_provider_s_own_words() {
        let anthropic = |kind: &str, message: &str| json!({"type":"error","error":{"type":kind,"message":message},"request_id":"req_1"});
        let openai = |code: Value, kind: &str, message: &str| json!({"error":{"message":message,"type":kind,"param":null,"code":code}});
        let gemini = |code: u16, status: &str, message: &str| json!({"error":{"code":code,"message":message,"status":status}});
        use ModelErrorKind as E;
        for (status, body, expected) in [
            (401, anthropic("authentication_error", "invalid x-api-key"), E::Authentication),
            (402, anthropic("billing_error", "pay"), E::OutOfCredit),
            (403, anthropic("permission_error", "no"), E::Authentication),
            (404, anthropic("not_found_error", "model: claude-x"), E::BadRequest),
            (413, anthropic("request_too_large", "too large"), E::ContextExhausted),
            (429, anthropic("rate_limit_error", "slow"), E::RateLimited),
            (500, anthropic("api_error", "oops"), E::Overloaded),
            (504, anthropic("timeout_error", "late"), E::Overloaded),
            (529, anthropic("overloaded_error", "Overloaded"), E::Overloaded),
            (400, anthropic("invalid_request_error", "bad field"), E::BadRequest),
            (
                400,
                anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000"),
                E::ContextExhausted,
            ),
            (
                400,
                anthropic("invalid_request_error", "Your credit balance is too low"),
                E::OutOfCredit,
            ),
            (
                401,
                openai(json!("invalid_api_key"), "invalid_request_error", "x"),
                E::Authentication,
            ),
            (429, openai(json!("rate_limit_exceeded"), "tokens", "x"), E::RateLimited),
            (429, openai(json!("insufficient_quota"), "insufficient_quota", "x"), E::OutOfCredit),
            (403, openai(json!("billing_not_active"), "billing_not_active", "x"), E::OutOfCredit),
            (402, openai(json!(402), "", "Insufficient credits"), E::OutOfCredit),
            (
                400,
                openai(json!("context_length_exceeded"), "invalid_request_error", "x"),
                E::ContextExhausted,
            ),
            (404, openai(json!("model_not_found"), "invalid_request_error", "x"), E::BadRequest),
            (400, openai(json!("content_policy_violation"), "image", "x"), E::Refused),
            (503, openai(Value::Null, "server_error", "x"), E::Overloaded),
            // Ollama uses `api_error` for every error.
            (404, openai(Value::Null, "api_error", "model not found"), E::BadRequest),
            // llama.cpp and vLLM.
            (400, openai(json!(400), "exceed_context_size_error", "x"), E::ContextExhausted),
            (
                400,
                json!({"object":"error","message":"maximum context length is 4096 tokens",
                       "type":"BadRequestError","code":400}),
                E::ContextExhausted,
            ),
            (400, gemini(400, "INVALID_ARGUMENT", "bad"), E::BadRequest),
            (
                400,
                gemini(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum"),
                E::ContextExhausted,
            ),
            (403, gemini(403, "PERMISSION_DENIED", "no"), E::Authentication),
            (429, gemini(429, "RESOURCE_EXHAUSTED", "quota"), E::RateLimited),
            (500, gemini(500, "INTERNAL", "x"), E::Overloaded),
            (503, gemini(503, "UNAVAILABLE", "overloaded"), E::Overloaded),
            (502, json!("<html>"), E::Overloaded),
            (418, json!({}), E::BadRequest),
            (302, Value::Null, E::BadRequest),
        ] {
            assert_eq!(check(status, &body).0, expected, "{status} {body}");
        }
        let invalid = json!({"error":{"code":400,"message":"API key not valid.",
            "status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}});
        assert_eq!(check(400, &json!([invalid])).0, E::Authentication);
    }

    #[test]
    fn an_error_inside_a_stream_is_judged_by_its_words_alone() {
        for (error, expected) in [
            (json!({"type":"overloaded_error","message":"Overloaded"}), ModelErrorKind::Overloaded),
            (json!({"code":"rate_limit_exceeded","message":"x"}), ModelErrorKind::RateLimited),
            (
                json!({"code":"context_length_exceeded","message":"x"}),
                ModelErrorKind::ContextExhausted,
            ),
            (json!({"code":"invalid_prompt","message":"x"}), ModelErrorKind::Refused),
            (json!({"code":502,"message":"upstream"}), ModelErrorKind::Overloaded),
            (json!({"code":429,"message":"upstream"}), ModelErrorKind::RateLimited),
            (json!({"type":"invalid_request_error","message":"x"}), ModelErrorKind::BadRequest),
            (json!("broken"), ModelErrorKind::Overloaded),
            (Value::Null, ModelErrorKind::Overloaded),
        ] {
            assert_eq!(from_stream(&error).kind, expected, "{error}");
        }
    }

    #[test]
    fn messages_hold_no_key_and_are_short() {
        let body = json!({"error":{"message":"Incorrect API key provided: sk-fake12***34.",
            "type":"invalid_request_error","code":"invalid_api_key"}});
        let said = "HTTP 401, invalid_api_key: Incorrect API key provided: ***";
        assert_eq!(check(401, &body).1, said);
        for (quoted, shown) in [
            ("fake-key-000", "***"),
            ("fake-k******-000,", "***"),
            ("'fake-key...'", "***"),
            ("(ey-000)", "***"),
            ("Bearer abcdef", "Bearer ***"),
            ("Authorization: Basic YTpi please", "Authorization: Basic *** please"),
        ] {
            let body = json!({"error":{"message":format!("no: {quoted}")}});
            assert_eq!(check(403, &body).1, format!("HTTP 403: no: {shown}"), "{quoted}");
        }
        let body =
            json!({"error":{"message":"bad\r\nheader fake-key-000 (sk-fake1234)\u{1b}[31m"}});
        assert_eq!(check(400, &body).1, "HTTP 400: bad header *** *** [31m");
        let long = check(400, &json!({"error":{"message":"word ".repeat(10_000)}})).1;
        assert!(long.chars().count() < 330 && long.ends_with('…'), "{long}");
        assert_eq!(check(500, &Value::Null).1, "HTTP 500");
        assert_eq!(check(404, &Value::Null).1, "HTTP 404; is the base URL right?");
        let redirect = "HTTP 302, a redirect, is not followed; is the base URL right?";
        assert_eq!(check(302, &Value::Null).1, redirect);
        assert_eq!(from_stream(&Value::Null).message, "the provider gave no reason");
    }

    #[test]
    fn gemini_says_in_its_details_how_long_to_wait() {
        let body = json!({"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x",
            "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}});
        let error = from_status(429, body.to_string().as_bytes(), None, None);
        assert_eq!(error.retry_after_ms, Some(34_500));
        let error = from_status(429, body.to_string().as_bytes(), Some(7), None);
        assert_eq!(error.retry_after_ms, Some(7), "a header is more exact");
    }
}
