//! Finds the return in what a model wrote: bare JSON, fenced JSON, or JSON among prose.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::json::{self, UniqueKeys};

/// Objects that may break off before the search gives up.
///
/// A message with more of them is not prose around a return, and each costs a parse.
const MAX_TORN: usize = 100;

/// What stood around the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonWrapping {
    /// Nothing.
    Bare,
    /// A code fence, and nothing else.
    Fence,
    /// Other text.
    Prose,
}

/// Why a text holds no return.
#[derive(Debug)]
pub(super) enum ExtractError {
    /// There is no whole JSON in it.
    NotJson,
    /// An object in it has a key twice.
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

/// Returns what stands inside a fence that encloses all of `text`.
fn unfence(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let opened = text.trim_start_matches(mark);
    let inner = opened.trim_end_matches(mark);
    let (opening, closing) = (text.len() - opened.len(), opened.len() - inner.len());
    // JSON starts with none of these, so an info string ends where the JSON begins.
    let is_info = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.');
    (opening >= 3 && closing >= opening)
        .then(|| inner.trim_start().trim_start_matches(is_info).trim())
}

/// Returns the last object among prose, preferring one that looks like a return.
///
/// An object that breaks off takes back what was found before it: the model meant to say
/// something later, and neither its draft nor a part of its torn return may stand in for that.
/// An object with a key twice does the same.
///
/// Linear: an object that parses is skipped whole, and the attempts that do not parse are counted.
fn last_object(text: &str) -> Result<Value, ExtractError> {
    let (mut best, mut other, mut torn, mut at) = (None, None, 0, 0);
    let mut repeated = None;
    while torn <= MAX_TORN
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

/// Says whether the brace that `text` starts with can begin a JSON object at all.
fn opens_object(text: &str) -> bool {
    text[1..].trim_start().starts_with(['"', '}'])
}

/// Reads the object that `text` starts with, and returns its length.
///
/// The error is that of a key that occurs twice; an object that breaks off is `None`.
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

/// Says whether an object has a key that only a return has, not one of its parts.
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
            // The artifact inside is whole, but it is not what was meant.
            "{\"status\": \"completed\", \"artifacts\": [{\"path\": \"a\", \"type\": \"plan\"}",
            // Neither is the draft before the torn return.
            "{\"status\": \"partial\"} no, rather {\"status\": \"completed\", \"summary\": \"S",
        ] {
            assert!(matches!(extract(text), Err(ExtractError::NotJson)), "{text}");
        }
    }

    #[test]
    fn the_search_gives_up_on_a_text_full_of_torn_objects() {
        let object = "{\"status\": \"failed\"}";
        for (torn, is_found) in [(MAX_TORN, true), (MAX_TORN + 1, false)] {
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
        // What the model wrote after it stands.
        let later = format!("{twice} no, rather {{\"status\": \"partial\"}}");
        assert_eq!(extract(&later).ok(), Some((json!({"status": "partial"}), JsonWrapping::Prose)));
        // It breaks off as well, so that is what is wrong with it.
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
