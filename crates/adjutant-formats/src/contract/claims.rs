//! Compares what a return claims about the work with what the engine saw: changed files and verification.
//!
//! The standard has no such fields, but models write them. A claim that is not true is an error, so that it reaches
//! the agent; files that were changed and not named are a warning. Prose is never judged. The names of artifacts are
//! claims too and are judged in `artifact`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::extract::extract;
use super::validate::path_parts;
use super::verdict::{ReturnFindings, SHOWN_CHARS};
use crate::excerpt::excerpt;
use crate::fields::{FieldReader, FieldValue};

/// The fields in which models name the files they changed.
const CHANGED_FIELDS: [&str; 2] = ["files_changed", "changed_files"];
/// The field in which models claim that their work was verified.
const VERIFICATION_FIELD: &str = "verification";
/// All fields with claims.
pub(super) const FIELDS: [&str; 3] = ["files_changed", "changed_files", VERIFICATION_FIELD];

/// The most unnamed files that a warning lists.
const SHOWN_FILES: usize = 5;

/// What the engine saw of the work that a return is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedWork {
    /// The files that the work changed, added or deleted; `None` if that is not known.
    pub changed: Option<BTreeSet<String>>,
    /// Whether a verify command decides about the work after the return.
    pub has_verify_command: bool,
}

/// Says whether a finding is about a claim that differs from what the engine saw.
#[must_use]
pub fn is_about_claim(field: &str) -> bool {
    let name = field.split(['[', '.']).next().unwrap_or_default();
    FIELDS.contains(&name)
}

/// Says whether a return names files that it changed, so that the caller must find out which ones were.
#[must_use]
pub fn claims_changed_files(text: &str) -> bool {
    let value = extract(text).ok().map(|(value, _)| value);
    value.is_some_and(|value| CHANGED_FIELDS.iter().any(|name| value.get(name).is_some()))
}

/// Compares the claims of a return with what the engine saw.
pub(super) fn judge(
    fields: &FieldReader<'_>,
    observed: &ObservedWork,
    findings: &mut ReturnFindings,
) {
    if let Some(changed) = &observed.changed {
        for name in CHANGED_FIELDS {
            if let Some(claimed) = fields.get(name).and_then(|value| claimed_files(value)) {
                judge_files(name, &claimed, changed, findings);
            }
        }
    }
    let claims_passed = fields.get(VERIFICATION_FIELD).is_some_and(|value| match value.to_json() {
        Value::Bool(claim) => claim,
        Value::String(word) => matches!(word.as_str(), "passed" | "verified"),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    });
    if claims_passed && !observed.has_verify_command {
        findings.error(
            VERIFICATION_FIELD,
            "No verify command is set, so nothing was verified: leave this field out and say in the summary what you ran",
        );
    }
}

fn judge_files(
    field: &str,
    claimed: &[String],
    changed: &BTreeSet<String>,
    findings: &mut ReturnFindings,
) {
    let mut unnamed: BTreeSet<Vec<&str>> = changed.iter().map(|path| path_parts(path)).collect();
    for (nth, path) in claimed.iter().enumerate() {
        let parts = path_parts(path);
        let is_named = |made: &Vec<&str>| {
            // Inside a workspace an agent may write absolute paths.
            *made == parts || (path.starts_with('/') && parts.ends_with(made))
        };
        let is_changed = changed.iter().any(|made| is_named(&path_parts(made)));
        unnamed.retain(|made| !is_named(made));
        if !is_changed {
            let shown = excerpt(path, SHOWN_CHARS);
            findings
                .error(format!("{field}[{nth}]"), format!("This file was not changed: {shown}"));
        }
    }
    if !unnamed.is_empty() {
        let shown: Vec<String> =
            unnamed.iter().take(SHOWN_FILES).map(|parts| parts.join("/")).collect();
        let more = unnamed.len().saturating_sub(SHOWN_FILES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        findings.warn(field, format!("Changed, but not named: {}{more}", shown.join(", ")));
    }
}

/// Reads the list of changed files: paths, or objects with a `path`. A count or a sentence is no list.
fn claimed_files(value: FieldValue<'_>) -> Option<Vec<String>> {
    let Value::Array(items) = value.to_json() else { return None };
    let path = |item: &Value| {
        let text = item.as_str().or_else(|| item.get("path")?.as_str());
        text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    Some(items.iter().filter_map(path).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(claims: &Value, changed: Option<&[&str]>, has_verify_command: bool) -> Vec<String> {
        let mut findings = ReturnFindings::default();
        let fields = FieldReader::new(FieldValue::Json(claims), "").unwrap();
        let changed = changed.map(|paths| paths.iter().map(ToString::to_string).collect());
        judge(&fields, &ObservedWork { changed, has_verify_command }, &mut findings);
        findings.lines()
    }

    #[test]
    fn files_that_were_not_changed_are_errors_and_unnamed_ones_are_warnings() {
        let changed: Option<&[&str]> = Some(&["src/a.rs", "src/b.rs"]);
        let claim = json!({ "files_changed": ["./src/a.rs", { "path": "src/c.rs" }] });
        insta::assert_snapshot!(check(&claim, changed, false).join("\n"), @r"
        error files_changed[1]: This file was not changed: src/c.rs
        warn files_changed: Changed, but not named: src/b.rs
        ");
        let claim = json!({ "changed_files": ["/home/me/project/src/a.rs", "src/b.rs"] });
        assert_eq!(check(&claim, changed, false), Vec::<String>::new());
        // Without knowledge of the files, and for what is no list, nothing is compared.
        let claim = json!({ "files_changed": ["x"], "changed_files": 3 });
        assert_eq!(check(&claim, None, false), Vec::<String>::new());
        assert_eq!(check(&json!({ "changed_files": 3 }), changed, false), Vec::<String>::new());
    }

    #[test]
    fn a_claimed_verification_needs_a_verify_command() {
        for (claim, has_verify_command, is_fault) in [
            (json!("passed"), false, true),
            (json!(true), false, true),
            (json!("passed"), true, false),
            (json!("failed"), false, false),
            (json!("I ran the tests"), false, false),
        ] {
            let lines = check(&json!({ "verification": claim }), None, has_verify_command);
            assert_eq!(lines.len(), usize::from(is_fault), "{lines:?}");
        }
    }

    #[test]
    fn findings_about_claims_are_recognised_by_their_field() {
        for field in ["files_changed[3]", "changed_files", "verification"] {
            assert!(is_about_claim(field), "{field}");
        }
        assert!(!is_about_claim("summary") && !is_about_claim("artifacts[0].path"));
        assert!(claims_changed_files(r#"{"files_changed": []}"#));
        assert!(!claims_changed_files("I changed files_changed"));
    }
}
