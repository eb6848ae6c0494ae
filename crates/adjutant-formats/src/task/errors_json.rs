//! `errors.json`: the errors of runs, next to the task files.
//!
//! Each error has an id. The journal's data replaces the fields of an existing entry; entries and fields that
//! Adjutant did not write keep every byte. Start at [`merge_errors`].

use serde_json::{Map, Value, json};

use super::state_file::{StateFileError, object};
use crate::document::{DocumentNode, Splice, apply};

const ERRORS: &str = "errors";
const FIX_STATUS: &str = "fix_status";
const FIXED: &str = "fixed";

/// Returns the text of `errors.json` with these errors added or updated.
///
/// Each error is an object with an `id`. A `fix_status` that a person wrote stays, unless the error is now
/// fixed.
///
/// # Errors
///
/// If the text is not a valid `errors.json`.
pub fn merge_errors(text: Option<&str>, errors: &[Value]) -> Result<String, StateFileError> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        let whole = json!({ "v": 1, ERRORS: errors });
        return Ok(format!("{whole:#}\n"));
    };
    let root = object(text)?;
    let list = root.member(text, ERRORS);
    let wrong = StateFileError::WrongType { field: ERRORS, wanted: "a list" };
    let items = list.map(|list| list.items().ok_or(wrong)).transpose()?.unwrap_or_default();
    let known: Vec<Option<String>> = items.iter().map(|item| item.string(text, "id")).collect();
    let mut splices = Vec::new();
    let mut new = Vec::new();
    for error in errors {
        let id = error.get("id").and_then(Value::as_str);
        let place = known.iter().position(|known| known.is_some() && known.as_deref() == id);
        match (place.map(|place| &items[place]), error.as_object()) {
            (Some(item), Some(fields)) => update(text, item, fields, &mut splices),
            _ => new.push(error.clone()),
        }
    }
    match list.filter(|_| !items.is_empty()) {
        Some(list) => splices.extend(list.push_all(text, &new)),
        None if !new.is_empty() => splices.extend(root.set(text, ERRORS, &json!(new))),
        None => {}
    }
    apply(text, splices).ok_or(StateFileError::Unwritable)
}

/// Sets the fields whose values have changed.
fn update(text: &str, item: &DocumentNode, fields: &Map<String, Value>, out: &mut Vec<Splice>) {
    for (key, value) in fields {
        let there = item.member(text, key).map(|node| (node, node.read(text)));
        match (there, value) {
            (Some((_, old)), new) if old == *new => {}
            (Some((_, Value::String(_))), Value::String(new))
                if key == FIX_STATUS && new != FIXED => {}
            (Some((node, Value::Object(old))), Value::Object(new)) if !old.is_empty() => {
                update(text, node, new, out);
            }
            _ => out.extend(item.set(text, key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(id: &str, message: &str, fix_status: &str) -> Value {
        json!({ "id": id, "message": message, "context": { "task": "1" }, "fix_status": fix_status })
    }

    fn merged(text: &str, errors: &[Value]) -> String {
        let merged = merge_errors(Some(text), errors).unwrap();
        assert_eq!(merge_errors(Some(&merged), errors).unwrap(), merged, "twice is once");
        merged
    }

    #[test]
    fn a_new_file_holds_what_happened() {
        let text = merge_errors(None, &[error("a", "x", "unfixed")]).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({ "v": 1, "errors": [error("a", "x", "unfixed")] })
        );
        assert_eq!(merge_errors(Some(" \n"), &[error("a", "x", "unfixed")]).unwrap(), text);
    }

    #[test]
    fn what_others_wrote_keeps_every_byte() {
        let text = "{\n  \"_note\": 1e40,\n  \"errors\": [\n    {\"id\": \"theirs\",   \"n\": 1.10},\n    \
                    {\"id\": \"a\", \"message\": \"x\", \"mine\": [ 1 ],\n     \"context\": {\"task\": \"1\", \"who\": \"me\"}, \"fix_status\": \"being looked at\"}\n  ]\n}\n";
        assert_eq!(
            merged(text, &[error("a", "x", "unfixed")]),
            text,
            "nothing new is nothing written"
        );
        let fixed = merged(text, &[error("a", "y", "fixed")]);
        assert_eq!(
            fixed,
            text.replace("\"x\"", "\"y\"").replace("being looked at", "fixed"),
            "only what changed"
        );
        let more = merged(text, &[error("b", "z", "unfixed"), error("c", "z", "unfixed")]);
        let (before, after) = text.split_once("\n  ]\n}").unwrap();
        assert!(more.starts_with(before) && more.ends_with(&format!("\n  ]\n}}{after}")), "{more}");
        let ids: Vec<_> = serde_json::from_str::<Value>(&more).unwrap()["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| error["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["theirs", "a", "b", "c"]);
    }

    #[test]
    fn lists_that_are_empty_or_missing_are_filled() {
        for text in ["{}", r#"{"errors":[]}"#, "{\n  \"errors\": []\n}\n", r#"{"v":2}"#] {
            let errors = [error("a", "x", "unfixed"), error("b", "x", "fixed")];
            let value: Value = serde_json::from_str(&merged(text, &errors)).unwrap();
            assert_eq!(value["errors"], json!(errors), "{text}");
        }
    }

    #[test]
    fn what_is_no_file_of_errors_is_refused() {
        for (text, expected) in [
            ("{\"errors\": [", "not JSON, line 1 column 12: EOF while parsing a list"),
            ("[]", "not a JSON object"),
            (r#"{"errors": {}}"#, "`errors` is not a list"),
        ] {
            let refused = merge_errors(Some(text), &[error("a", "x", "unfixed")]).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }

    proptest! {
        /// After two runs wrote in any order, each error exists once, with its latest data.
        #[test]
        fn nothing_is_lost_and_nothing_is_there_twice(
            writes in proptest::collection::vec((0_u8..6, "[a-z\"\\\\{}äß ]{0,6}", any::<bool>()), 0..12),
        ) {
            let mut text: Option<String> = None;
            let mut expected: std::collections::BTreeMap<String, (String, bool)> = Default::default();
            for (id, message, is_fixed) in writes {
                let id = format!("err_{id}");
                let fixed = if is_fixed { "fixed" } else { "unfixed" };
                text = Some(merge_errors(text.as_deref(), &[error(&id, &message, fixed)]).unwrap());
                let was_fixed = expected.get(&id).is_some_and(|(_, fixed)| *fixed);
                expected.insert(id, (message, is_fixed || was_fixed));
            }
            let value: Value = text.map_or(json!({"errors": []}), |text| serde_json::from_str(&text).unwrap());
            let found = value["errors"].as_array().unwrap();
            prop_assert_eq!(found.len(), expected.len());
            for error in found {
                let (message, is_fixed) = &expected[error["id"].as_str().unwrap()];
                prop_assert_eq!(error["message"].as_str(), Some(message.as_str()));
                prop_assert_eq!(error["fix_status"] == "fixed", *is_fixed);
            }
        }
    }
}
