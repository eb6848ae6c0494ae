//! Converts returns of older agent definitions to the standard form and warns about each change.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::validate::SUMMARY_WARN_CHARS;
use super::verdict::{ReturnFindings, format_value};

/// Returns the return without its obsolete fields; their content moves to the current fields.
pub(super) fn migrate_old_fields<'a>(
    returned: &'a Value,
    findings: &mut ReturnFindings,
) -> Cow<'a, Value> {
    let has = |name| returned.get(name).is_some();
    if !has("key_findings") && !has("project_number") {
        return Cow::Borrowed(returned);
    }
    let mut returned = returned.clone();
    if let Some(object) = returned.as_object_mut() {
        merge_key_findings(object, findings);
        drop_project_number(object, findings);
    }
    Cow::Owned(returned)
}

fn merge_key_findings(object: &mut Map<String, Value>, findings: &mut ReturnFindings) {
    let Some(old) = object.shift_remove("key_findings") else { return };
    let outcome = match (as_sentences(&old), object.get("summary").and_then(Value::as_str)) {
        (None, _) => "is dropped: neither a string nor a list of strings",
        (Some(said), None) if !object.contains_key("summary") => {
            object.insert("summary".to_owned(), said.into());
            "is used as the summary"
        }
        // A summary of the wrong type is reported by its own check; guessing would hide that.
        (Some(_), None) => "is dropped: the summary is not a string",
        (Some(said), Some(summary)) => {
            let whole = format!("{} {said}", with_full_stop(summary));
            let whole = whole.trim_start();
            if whole.chars().count() <= SUMMARY_WARN_CHARS {
                object.insert("summary".to_owned(), whole.into());
                "is appended to the summary"
            } else {
                "is dropped: the summary has no room for it"
            }
        }
    };
    findings.warn("key_findings", format!("Old field {outcome}"));
}

/// Returns the old `key_findings` as sentences, or `None` if they are not text.
fn as_sentences(old: &Value) -> Option<String> {
    let parts: Vec<&str> = match old {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<_>>()?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let said = parts.into_iter().map(with_full_stop).filter(|part| !part.is_empty());
    Some(said.collect::<Vec<_>>().join(" ")).filter(|said| !said.is_empty())
}

/// Returns `text` trimmed, with a full stop added if it has none.
fn with_full_stop(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?', '…']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

fn drop_project_number(object: &mut Map<String, Value>, findings: &mut ReturnFindings) {
    let Some(old) = object.shift_remove("project_number") else { return };
    let claimed = old.as_u64().or_else(|| old.as_str()?.trim().parse().ok());
    let outcome = match (claimed, first_path(object).and_then(project_number)) {
        (_, None) => "no artifact path has a number".to_owned(),
        (Some(claimed), Some(found)) if claimed == found => {
            format!("the path of the first artifact has the same number, {found}")
        }
        (_, Some(found)) => {
            format!(
                "the path of the first artifact has the number {found}, not {}",
                format_value((&old).into())
            )
        }
    };
    findings.warn("project_number", format!("Old field is dropped; {outcome}"));
}

fn first_path(object: &Map<String, Value>) -> Option<&str> {
    object.get("artifacts")?.get(0)?.get("path")?.as_str()
}

/// Returns the number of a project directory such as `195_lean_tools` that occurs in `path`.
fn project_number(path: &str) -> Option<u64> {
    path.split('/').find_map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let is_number = part[digits..].is_empty() || part[digits..].starts_with(['_', '-']);
        part[..digits].parse().ok().filter(|_| is_number)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value) -> String {
        let mut findings = ReturnFindings::default();
        let migrated = migrate_old_fields(&object, &mut findings);
        let mut lines = findings.lines();
        lines.push(migrated.to_string());
        lines.join("\n")
    }

    #[test]
    fn requirement_37_key_findings_become_the_summary() {
        for old in [json!("APIs exist. REST first"), json!(["APIs exist", " REST first. ", ""])] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(check(json!({"key_findings": old})), @r#"
                warn key_findings: Old field is used as the summary
                {"summary":"APIs exist. REST first."}
                "#);
            }
        }
    }

    #[test]
    fn key_findings_are_appended_where_there_is_room() {
        let short = json!({"summary": "Looked around", "key_findings": ["APIs exist"]});
        insta::assert_snapshot!(check(short), @r#"
        warn key_findings: Old field is appended to the summary
        {"summary":"Looked around. APIs exist."}
        "#);
        let full = json!({"summary": "x".repeat(395), "key_findings": "APIs exist"});
        let text = check(full);
        assert!(text.starts_with("warn key_findings: Old field is dropped: the summary has no"));
        assert!(!text.contains("APIs"), "{text}");
    }

    #[test]
    fn key_findings_that_cannot_be_read_are_dropped() {
        for old in [json!(7), json!([]), json!(" "), json!([1]), json!({"a": 1}), json!(null)] {
            let text = check(json!({"summary": "S.", "key_findings": old}));
            assert!(text.contains("neither a string nor a list"), "{text}");
            assert!(text.ends_with("{\"summary\":\"S.\"}"), "{text}");
        }
        let text = check(json!({"summary": 1, "key_findings": "a"}));
        assert!(text.contains("the summary is not a string"), "{text}");
    }

    #[test]
    fn requirement_37_a_project_number_is_compared_with_the_first_artifact_path() {
        let path = ".opencode/specs/195_lean_tools/reports/research-001.md";
        for (old, path, expected) in [
            (json!(195), path, "the path of the first artifact has the same number, 195"),
            (json!("195"), path, "the path of the first artifact has the same number, 195"),
            (json!(12), path, "the path of the first artifact has the number 195, not 12"),
            (json!("x"), path, "the path of the first artifact has the number 195, not x"),
            (json!(12), "docs/3d.md", "no artifact path has a number"),
        ] {
            let object = json!({"project_number": old, "artifacts": [{"path": path}]});
            let text = check(object);
            let expected = format!("warn project_number: Old field is dropped; {expected}\n");
            assert!(text.starts_with(&expected), "{text}");
            assert!(text.ends_with(&format!("{{\"artifacts\":[{{\"path\":\"{path}\"}}]}}")));
        }
        let text = check(json!({"project_number": 12}));
        assert!(text.contains("no artifact path has a number"), "{text}");
    }

    #[test]
    fn a_return_in_the_standard_form_is_not_touched() {
        let object = json!({"status": "completed", "summary": "S."});
        let mut findings = ReturnFindings::default();
        let migrated = migrate_old_fields(&object, &mut findings);
        assert!(matches!(migrated, Cow::Borrowed(_)));
    }
}
