//! Finds the JSON of a return in a model's last message: bare, inside a code fence, or between prose.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::json::{self, UniqueKeys};

/// The number of truncated objects after which the search gives up.
///
/// A message with more of them is not prose around a return, and each one costs a parse.
const MAX_TRUNCATED_OBJECTS: usize = 100;

/// What surrounded the JSON in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonWrapping {
    /// Nothing.
    Bare,
    /// Only a code fence.
    Fence,
    /// Other text.
    Prose,
}

/// Why no return could be extracted from a message.
#[derive(Debug)]
pub(super) enum ExtractError {
    /// The message contains no complete JSON value.
    NotJson,
    /// An object in the message repeats a key.
    RepeatedKey(serde_json::Error),
}

/// Returns the JSON value that makes up `text`, or the last JSON object in it.
pub(super) fn extract(text: &str) -> Result<(Value, JsonWrapping), ExtractError> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if let Ok(value) = json::from_str(text) {
        return Ok((value, JsonWrapping::Bare));
    }
    if let Some(value) = unfence(text).and_then(|inner| json::from_str(inner).ok()) {
        return Ok((value, JsonWrapping::Fence));
    }
    last_object(text).map(|value| (value, JsonWrapping::Prose))
}

/// Returns the content of a code fence that encloses all of `text`.
fn unfence(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let opened = text.trim_start_matches(mark);
    let inner = opened.trim_end_matches(mark);
    let (opening, closing) = (text.len() - opened.len(), opened.len() - inner.len());
    // JSON starts with none of these characters, so the fence's info string ends where the JSON begins.
    let is_info = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.');
    (opening >= 3 && closing >= opening)
        .then(|| inner.trim_start().trim_start_matches(is_info).trim())
}

/// Returns the last JSON object between prose, preferring one that looks like a return.
///
/// A truncated object discards what was found before it: the model wanted to say something newer, and neither
/// an earlier draft nor a part of the truncated return may replace it. An object with a repeated key does the
/// same.
///
/// Runs in linear time: an object that parses is skipped as a whole, and failed attempts are limited.
fn last_object(text: &str) -> Result<Value, ExtractError> {
    let (mut best, mut other, mut torn, mut at) = (None, None, 0, 0);
    let mut repeated = None;
    while torn <= MAX_TRUNCATED_OBJECTS
        && let Some(offset) = text[at..].find('{')
    {
        let rest = &text[at + offset..];
        at += offset + 1;
        if !opens_object(rest) {
            continue;
        }
        match object_at(rest) {
            Some((Ok(value), len)) => {
                at += len - 1;
                let slot = if looks_like_return(&value) { &mut best } else { &mut other };
                *slot = Some(value);
            }
            Some((Err(error), len)) => {
                at += len - 1;
                (best, repeated) = (None, Some(error));
            }
            None => (best, torn) = (None, torn + 1),
        }
    }
    let is_sound = torn == 0 && repeated.is_none();
    best.or_else(|| other.filter(|_| is_sound))
        .ok_or_else(|| repeated.map_or(ExtractError::NotJson, ExtractError::RepeatedKey))
}

/// Returns whether the brace at the start of `text` can begin a JSON object.
fn opens_object(text: &str) -> bool {
    text[1..].trim_start().starts_with(['"', '}'])
}

/// Parses the object at the start of `text` and returns it with its length.
///
/// Returns `None` for a truncated object, and an error for an object with a repeated key.
fn object_at(text: &str) -> Option<(Result<Value, serde_json::Error>, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<UniqueKeys>();
    match values.next()? {
        Ok(UniqueKeys(value)) => Some((Ok(value), values.byte_offset())),
        Err(error) if json::is_repeated_key(&error) => {
            let mut skipped = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
            skipped.next()?.ok()?;
            Some((Err(error), skipped.byte_offset()))
        }
        Err(_) => None,
    }
}

/// Returns whether an object has a key that occurs only at the top level of a return.
fn looks_like_return(value: &Value) -> bool {
    ["status", "artifacts", "metadata"].iter().any(|key| value.get(key).is_some())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_return_is_found_bare_fenced_and_among_prose() {
        let object = "{\"status\": \"completed\"}";
        for (text, expected) in [
            (object.to_owned(), JsonWrapping::Bare),
            (format!("\u{feff}\n {object} \n"), JsonWrapping::Bare),
            (format!("```json\n{object}\n```"), JsonWrapping::Fence),
            (format!("```\n{object}\n```\n"), JsonWrapping::Fence),
            (format!("~~~~ json\n{object}\n~~~~"), JsonWrapping::Fence),
            (format!("```json {object} ```"), JsonWrapping::Fence),
            (format!("Done.\n```json\n{object}\n```"), JsonWrapping::Prose),
            (format!("Here it is: {object}. Bye {{}} now"), JsonWrapping::Prose),
            (format!("A draft {{\"status\": 1}}, then {object}"), JsonWrapping::Prose),
            (format!("fn main() {{ \"x\" }} and {object}"), JsonWrapping::Prose),
        ] {
            let expected = Some((json!({"status": "completed"}), expected));
            assert_eq!(extract(&text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn text_without_a_whole_object_holds_no_return() {
        for text in [
            "",
            "   ",
            "All done!",
            "{",
            "{{{{",
            "{\"status\": \"completed\"",
            "```json\n{\"status\": \n```",
            // The artifact inside is complete, but it is not the return.
            "{\"status\": \"completed\", \"artifacts\": [{\"path\": \"a\", \"type\": \"plan\"}",
            // Neither is the draft before the truncated return.
            "{\"status\": \"partial\"} no, rather {\"status\": \"completed\", \"summary\": \"S",
        ] {
            assert!(matches!(extract(text), Err(ExtractError::NotJson)), "{text}");
        }
    }

    #[test]
    fn the_search_gives_up_on_a_text_full_of_torn_objects() {
        let object = "{\"status\": \"failed\"}";
        for (torn, is_found) in [(MAX_TRUNCATED_OBJECTS, true), (MAX_TRUNCATED_OBJECTS + 1, false)]
        {
            let text = format!("{} {object}", "{\"a\" ".repeat(torn));
            assert_eq!(extract(&text).is_ok(), is_found, "{torn}");
        }
    }

    #[test]
    fn an_object_with_a_key_twice_is_not_taken_for_a_return_nor_is_a_part_of_it() {
        let twice = r#"{"status": "failed", "status": "completed", "metadata": {"status": "x"}}"#;
        for text in [
            twice.to_owned(),
            format!("```json\n{twice}\n```"),
            format!("Here: {twice}."),
            format!("{{\"status\": \"partial\"}} and then {twice}"),
            format!("{twice} {{\"summary\": \"x\"}}"),
            format!("[{twice}]"),
        ] {
            assert!(matches!(extract(&text), Err(ExtractError::RepeatedKey(_))), "{text}");
        }
        // A later object is accepted.
        let later = format!("{twice} no, rather {{\"status\": \"partial\"}}");
        assert_eq!(extract(&later).ok(), Some((json!({"status": "partial"}), JsonWrapping::Prose)));
        // It is also truncated, and that is the error reported.
        let torn = r#"{"status": "failed", "status": "compl"#;
        assert!(matches!(extract(torn), Err(ExtractError::NotJson)));
    }

    #[test]
    fn json_that_is_no_object_is_still_json() {
        for (text, expected) in [
            ("[1]", json!([1])),
            ("42", json!(42)),
            ("\"done\"", json!("done")),
            ("null", json!(null)),
            ("```json\n[1]\n```", json!([1])),
        ] {
            assert_eq!(extract(text).ok().map(|found| found.0), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_object_without_the_keys_of_a_return_is_taken_when_nothing_better_is_there() {
        assert_eq!(
            extract("See {\"summary\": \"x\"} there.").ok(),
            Some((json!({"summary": "x"}), JsonWrapping::Prose))
        );
    }

    proptest! {
        #[test]
        fn extraction_never_panics(text in "[{}\\[\\]\":,a`~ \\n\\\\é1]{0,60}") {
            let _ = extract(&text);
        }

        #[test]
        fn an_object_is_found_whatever_prose_surrounds_it(
            before in "[a-zé .:`\\n]{0,20}",
            after in "[a-zé .:`\\n]{0,20}",
        ) {
            let object = json!({"status": "failed", "summary": "a } b { c"});
            let found = extract(&format!("{before}{object}{after}")).ok().map(|found| found.0);
            prop_assert_eq!(found, Some(object));
        }
    }
}
