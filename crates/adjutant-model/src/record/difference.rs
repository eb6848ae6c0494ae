//! Compares a request with a recorded one and describes the first difference.
//!
//! Run and session ids and durations differ between any two runs, so they are ignored; everything else is
//! compared.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The maximum number of characters shown of a value.
const SHOWN_CHARS: usize = 60;
/// How many characters are shown before the first difference.
const LEAD_CHARS: usize = 16;

/// Ids and durations, also inside JSON that is escaped once or twice.
static FLEETING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?-u:\b)(?:sess|run)_[0-9]{8,10}_[a-z0-9]{6}(?-u:\b)|duration_s\\*": ?[0-9.]+"#)
        .ok()
});

/// Describes the first difference between two bodies; `None` if they are equivalent.
pub(super) fn first_difference(recorded: &str, now: &str) -> Option<String> {
    let (recorded, now) = (without_volatile_parts(recorded), without_volatile_parts(now));
    if recorded == now {
        return None;
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    match (parse(&recorded), parse(&now)) {
        (Some(recorded), Some(now)) => {
            first_difference_between(&recorded, &now, &mut String::new())
        }
        // A body that is nested too deeply is compared as text.
        (None, _) | (_, None) => Some(in_text("", &recorded, &now)),
    }
}

fn without_volatile_parts(text: &str) -> Cow<'_, str> {
    match &*FLEETING {
        Some(fleeting) => fleeting.replace_all(text, "*"),
        None => Cow::Borrowed(text),
    }
}

/// Compares two values in the order of the recorded one; `path` is the JSON pointer so far.
fn first_difference_between(recorded: &Value, now: &Value, path: &mut String) -> Option<String> {
    match (recorded, now) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.iter().find_map(|(key, value)| {
                step(path, key, |path| match new.get(key) {
                    Some(other) => first_difference_between(value, other, path),
                    None => Some(format!("{path}: recorded {}, now absent", format_value(value))),
                })
            });
            let came = || new.iter().find(|(key, _)| !old.contains_key(*key));
            gone.or_else(|| came().map(|(key, value)| added(path, key, value)))
        }
        (Value::Array(old), Value::Array(new)) => {
            let common = old.iter().zip(new).enumerate().find_map(|(place, (value, other))| {
                step(path, &place.to_string(), |path| first_difference_between(value, other, path))
            });
            let place = old.len().min(new.len());
            let lost = || {
                old.get(place).map(|value| {
                    format!("{path}/{place}: recorded {}, now absent", format_value(value))
                })
            };
            let come = || new.get(place).map(|value| added(path, &place.to_string(), value));
            common.or_else(lost).or_else(come)
        }
        (Value::String(old), Value::String(new)) => (old != new).then(|| in_text(path, old, new)),
        (old, new) => (old != new)
            .then(|| format!("{path}: recorded {}, now {}", format_value(old), format_value(new))),
    }
}

fn added(path: &str, key: &str, value: &Value) -> String {
    format!("{path}/{}: not recorded, now {}", escaped(key), format_value(value))
}

/// Appends a key to the path while `look` runs.
fn step<T>(path: &mut String, key: &str, look: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    path.push('/');
    path.push_str(&escaped(key));
    let found = look(path);
    path.truncate(length);
    found
}

/// Escapes a key for a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Describes the byte at which two texts differ, with a little context before it.
fn in_text(path: &str, recorded: &str, now: &str) -> String {
    let same = recorded.bytes().zip(now.bytes()).take_while(|(old, new)| old == new).count();
    let same = recorded.floor_char_boundary(same);
    let (old, new) = (excerpt(recorded, same), excerpt(now, same));
    let place = if path.is_empty() { "the body" } else { path };
    format!("{place}, byte {same}: recorded {old}, now {new}")
}

fn excerpt(text: &str, at: usize) -> String {
    let (before, after) = text.split_at(text.floor_char_boundary(at));
    let lead: Vec<char> = before.chars().rev().take(LEAD_CHARS).collect();
    let lead: String = lead.into_iter().rev().collect();
    let head = if lead.len() < before.len() { "…" } else { "" };
    format!("`{head}{}`", shorten(&format!("{lead}{after}")))
}

fn format_value(value: &Value) -> String {
    format!("`{}`", shorten(&value.to_string()))
}

fn shorten(text: &str) -> String {
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(SHOWN_CHARS).collect();
    let tail = if letters.next().is_some() { "…" } else { "" };
    format!("{}{tail}", head.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn differs(recorded: &str, now: &str, expected: &str) {
        assert_eq!(first_difference(recorded, now).as_deref(), Some(expected));
    }

    #[test]
    fn the_first_difference_is_named_by_its_pointer() {
        differs(
            r#"{"a":[1,{"b/c":2}]}"#,
            r#"{"a":[1,{"b/c":3}]}"#,
            "/a/1/b~1c: recorded `2`, now `3`",
        );
        differs(r#"{"a":1,"b":2}"#, r#"{"a":1}"#, "/b: recorded `2`, now absent");
        differs(r#"{"a":1}"#, r#"{"a":1,"b":"x"}"#, r#"/b: not recorded, now `\"x\"`"#);
        differs("[1]", "[1,2]", "/1: not recorded, now `2`");
        differs("[1,2]", "[1]", "/1: recorded `2`, now absent");
    }

    #[test]
    fn a_long_text_is_shown_from_where_it_parts() {
        let (old, new) = ("é".repeat(500) + "old", "é".repeat(500) + "new");
        let lead = "é".repeat(LEAD_CHARS);
        let expected = format!("/t, byte 1000: recorded `…{lead}old`, now `…{lead}new`");
        differs(&format!(r#"{{"t":"{old}"}}"#), &format!(r#"{{"t":"{new}"}}"#), &expected);
        differs("[[", "[{", "the body, byte 1: recorded `[[`, now `[{`");
    }

    #[test]
    fn ids_and_durations_are_no_difference() {
        let old = r#"{"k":"sess_1735460684_aaaaaa","r":"{\"duration_s\": 1.5}"}"#;
        let new = r#"{"k":"sess_1735460999_bbbbbb","r":"{\"duration_s\": 20}"}"#;
        assert_eq!(first_difference(old, new), None);
        assert_eq!(first_difference(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#), None, "nor is order");
    }
}
