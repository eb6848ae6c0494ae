//! Validates a return against its contract and collects all errors and warnings. A completed return may have to list
//! artifacts: any, or one of the files that the work created or changed ([`RequiredArtifacts`]).

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::artifact::{self, ArtifactFileState};
use super::claims::{self, ObservedWork};
use super::extract::{ExtractError, JsonWrapping, extract};
use super::metadata::{self, MetadataSource};
use super::return_data::{Artifact, ArtifactKind, Return, ReturnStatus, WireWord};
use super::verdict::{ReturnFindings, ReturnVerdict, format_value};
use super::{migrate, prose, return_errors};
use crate::fields::{FieldReader, FieldValue};
use crate::ids::SessionId;

/// The maximum length of a summary without a warning, in characters. Inclusive.
pub const SUMMARY_WARN_CHARS: usize = 400;
/// The maximum length of an accepted summary, in characters. Inclusive.
pub const SUMMARY_MAX_CHARS: usize = 500;
/// The number of sentences a summary should have. Inclusive on both sides.
pub(super) const SUMMARY_SENTENCES: std::ops::RangeInclusive<usize> = 2..=5;
/// The maximum number of sentences in the next steps. Inclusive.
pub(super) const NEXT_STEPS_SENTENCES: usize = 2;

/// The field name in findings about the return as a whole.
const WHOLE: &str = "return";

/// What a return must satisfy in addition to its format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnContract {
    /// The session that must send the return; `None` accepts any well-formed id.
    pub expected_session: Option<SessionId>,
    /// The artifacts that a completed return must list.
    pub artifacts: RequiredArtifacts,
    /// The kind that at least one artifact of a completed return must have, if it lists any.
    pub kind: Option<ArtifactKind>,
    /// Where the metadata of the accepted return comes from.
    pub metadata: MetadataSource,
    /// What the engine saw of the work, to compare claims with; `None` compares nothing.
    pub observed: Option<ObservedWork>,
}

/// Which artifacts a completed return must list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequiredArtifacts {
    /// None.
    #[default]
    Nothing,
    /// At least one.
    Any,
    /// At least one of these paths, which the work created or changed. A file that existed before proves
    /// nothing.
    OneOf(BTreeSet<String>),
}

/// A return as an agent submitted it.
#[derive(Clone, Copy, Debug)]
pub enum ReturnSubmission<'a> {
    /// The agent's last message.
    Text(&'a str),
    /// The arguments of the agent's `Return` call.
    Value(&'a Value),
}

impl<'a> From<&'a str> for ReturnSubmission<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Value> for ReturnSubmission<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(value)
    }
}

/// Validates a submitted return; `facts` tells what is at the path of an artifact.
///
/// `facts` is called only with relative paths whose text stays below the root.
#[must_use]
pub fn validate<'a>(
    submission: impl Into<ReturnSubmission<'a>>,
    contract: &ReturnContract,
    facts: &dyn Fn(&str) -> ArtifactFileState,
) -> ReturnVerdict {
    let mut findings = ReturnFindings::default();
    let Some(value) = read_submission(submission.into(), &mut findings) else {
        return findings.verdict(None, None);
    };
    let returned = judge(&value, contract, facts, &mut findings);
    findings.verdict(returned, Some(value.into_owned()))
}

fn read_submission<'a>(
    submission: ReturnSubmission<'a>,
    findings: &mut ReturnFindings,
) -> Option<Cow<'a, Value>> {
    let text = match submission {
        ReturnSubmission::Value(value) => return Some(Cow::Borrowed(value)),
        ReturnSubmission::Text(text) => text,
    };
    let found = extract(text);
    match &found {
        Err(ExtractError::NotJson) => findings.error(WHOLE, "Return is not valid JSON"),
        Err(ExtractError::RepeatedKey(error)) => {
            findings.error(WHOLE, format!("Return is not valid JSON: {error}"));
        }
        Ok((_, JsonWrapping::Prose)) => {
            findings.warn(WHOLE, "Return was found among other text; it should stand alone");
        }
        Ok((_, JsonWrapping::Bare | JsonWrapping::Fence)) => {}
    }
    found.ok().map(|(value, _)| Cow::Owned(value))
}

fn judge(
    value: &Value,
    contract: &ReturnContract,
    facts: &dyn Fn(&str) -> ArtifactFileState,
    findings: &mut ReturnFindings,
) -> Option<Return> {
    let value = migrate::migrate_old_fields(value, findings);
    let Ok(fields) = FieldReader::new(FieldValue::Json(&value), "") else {
        findings.error(WHOLE, "Return must be JSON object");
        return None;
    };
    require_fields(&fields, contract, findings);
    let status = read_status(&fields, findings);
    let metadata =
        metadata::judge(&fields, &contract.metadata, contract.expected_session, findings);
    let summary = read_summary(&fields, findings);
    let artifacts = artifact::judge(&fields, facts, findings);
    require_artifacts(&contract.artifacts, status, artifacts.as_deref(), findings);
    require_kind(contract.kind, status, artifacts.as_deref(), findings);
    let errors = return_errors::judge(&fields, status, findings);
    let next_steps = read_next_steps(&fields, findings);
    if let Some(observed) = &contract.observed {
        claims::judge(&fields, observed, findings);
    }
    let known = ["status", "summary", "artifacts", "metadata", "errors", "next_steps"];
    findings.warn_unknown(&fields, &[known.as_slice(), &claims::FIELDS].concat());
    Some(Return {
        status: status?,
        summary: summary?,
        artifacts: artifacts?,
        metadata: metadata?,
        errors: errors?,
        next_steps,
    })
}

fn require_fields(
    fields: &FieldReader<'_>,
    contract: &ReturnContract,
    findings: &mut ReturnFindings,
) {
    let metadata = match contract.metadata {
        MetadataSource::Claimed => Some("metadata"),
        MetadataSource::Engine(_) => None,
    };
    for key in ["status", "summary", "artifacts"].into_iter().chain(metadata) {
        findings.keep(fields.require(key, Ok));
    }
}

fn read_status(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<ReturnStatus> {
    let value = fields.get("status")?;
    let status = value.string().ok().and_then(|word| ReturnStatus::from_word(&word));
    if status.is_none() {
        findings.error("status", format!("Invalid status: {}", format_value(value)));
    }
    status
}

fn read_summary(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<String> {
    let text = findings.keep(fields.read("summary", FieldValue::string))??;
    let chars = text.chars().count();
    if text.trim().is_empty() {
        findings.error("summary", "Summary cannot be empty");
    } else if chars > SUMMARY_MAX_CHARS {
        findings.error("summary", format!("Summary too long (max {SUMMARY_MAX_CHARS} chars)"));
    } else {
        warn_summary(&text, chars, findings);
    }
    Some(text.into_owned())
}

fn warn_summary(text: &str, chars: usize, findings: &mut ReturnFindings) {
    if chars > SUMMARY_WARN_CHARS {
        let message =
            format!("Summary has {chars} characters, at most {SUMMARY_WARN_CHARS} read well");
        findings.warn("summary", message);
    }
    let sentences = prose::sentences(text);
    if !SUMMARY_SENTENCES.contains(&sentences) {
        let (min, max) = SUMMARY_SENTENCES.into_inner();
        let message = format!("Summary should have {min} to {max} sentences, it has {sentences}");
        findings.warn("summary", message);
    }
    if let Some(emoji) = prose::first_emoji(text) {
        findings.warn("summary", format!("Summary should not contain emoji: {emoji}"));
    }
    if let Some(markup) = prose::markup(text) {
        findings.warn("summary", format!("Summary should not contain markup: {markup}"));
    }
}

// D26: a completed return without artifacts is phantom work if the task asked for files.
fn require_artifacts(
    required: &RequiredArtifacts,
    status: Option<ReturnStatus>,
    artifacts: Option<&[Artifact]>,
    findings: &mut ReturnFindings,
) {
    let Some(artifacts) = artifacts.filter(|_| status == Some(ReturnStatus::Completed)) else {
        return;
    };
    if *required == RequiredArtifacts::Nothing {
        return;
    }
    if artifacts.is_empty() {
        findings.error("artifacts", "Artifacts cannot be empty when the status is completed");
        return;
    }
    let RequiredArtifacts::OneOf(made) = required else { return };
    let made: BTreeSet<Vec<&str>> = made.iter().map(|path| path_parts(path)).collect();
    if !artifacts.iter().any(|artifact| made.contains(&path_parts(&artifact.path))) {
        findings.error("artifacts", "None of the artifacts was made or changed by this work");
    }
}

// Requirement 28: research must deliver an artifact of type `research`; other types may be listed as well.
fn require_kind(
    kind: Option<ArtifactKind>,
    status: Option<ReturnStatus>,
    artifacts: Option<&[Artifact]>,
    findings: &mut ReturnFindings,
) {
    let completed = artifacts.filter(|_| status == Some(ReturnStatus::Completed));
    let (Some(kind), Some(artifacts)) = (kind, completed) else { return };
    if !artifacts.is_empty() && artifacts.iter().all(|artifact| artifact.kind != kind) {
        findings.error("artifacts", format!("None of the artifacts has the type {kind}"));
    }
}

/// Splits a path into components, with `.` and `..` resolved and empty ones dropped, so that different spellings of a
/// path compare equal.
pub(super) fn path_parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

fn read_next_steps(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<String> {
    let text = optional_words(fields, "next_steps", findings)?;
    let sentences = prose::sentences(&text);
    if sentences > NEXT_STEPS_SENTENCES {
        let message = format!(
            "Next steps should have at most {NEXT_STEPS_SENTENCES} sentences, they have {sentences}"
        );
        findings.warn("next_steps", message);
    }
    Some(text)
}

/// Reads an optional string; a blank one counts as absent.
pub(super) fn optional_words(
    fields: &FieldReader<'_>,
    name: &str,
    findings: &mut ReturnFindings,
) -> Option<String> {
    let text = findings.keep(fields.optional(name, FieldValue::string))??;
    Some(text.into_owned()).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::artifact::unchecked;
    use super::*;

    fn sound() -> Value {
        json!({
            "status": "completed",
            "summary": "Found the cause. It is fixed.",
            "artifacts": [],
            "metadata": {
                "session_id": "sess_1735460684_a1b2c3", "duration_seconds": 5,
                "agent_type": "scout", "delegation_depth": 1,
                "delegation_path": ["lead", "scout"],
            },
            "errors": [],
        })
    }

    fn changed(key: &str, value: Value) -> Value {
        let mut object = sound();
        object[key] = value;
        object
    }

    fn check(submission: ReturnSubmission<'_>) -> String {
        let verdict = validate(submission, &ReturnContract::default(), &unchecked);
        let errors = verdict.errors.iter().map(|it| format!("error {}: {}", it.field, it.message));
        let warnings =
            verdict.warnings.iter().map(|it| format!("warn {}: {}", it.field, it.message));
        errors.chain(warnings).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_sound_return_passes_without_a_word() {
        assert_eq!(check((&sound()).into()), "");
        assert_eq!(check(sound().to_string().as_str().into()), "");
        assert_eq!(check(format!("```json\n{:#}\n```", sound()).as_str().into()), "");
    }

    #[test]
    fn requirement_34_what_is_no_return_is_said_in_the_words_of_the_guide() {
        for (text, expected) in [
            ("All done!", "error return: Return is not valid JSON"),
            ("", "error return: Return is not valid JSON"),
            ("{\"status\": ", "error return: Return is not valid JSON"),
            (
                r#"{"status": "failed", "status": "completed"}"#,
                "error return: Return is not valid JSON: the key `status` occurs twice in one object \
                 at line 1 column 29",
            ),
            ("[1, 2]", "error return: Return must be JSON object"),
            ("\"completed\"", "error return: Return must be JSON object"),
            ("null", "error return: Return must be JSON object"),
        ] {
            assert_eq!(check(text.into()), expected, "{text}");
        }
    }

    #[test]
    fn requirement_34_every_missing_field_is_named() {
        // The fourth test of the old guide, which saw only the first of these.
        insta::assert_snapshot!(check((&json!({"status": "invalid_status"})).into()), @r"
        error summary: Missing required field: summary
        error artifacts: Missing required field: artifacts
        error metadata: Missing required field: metadata
        error status: Invalid status: invalid_status
        ");
    }

    #[test]
    fn requirement_26_a_status_is_one_of_four_words() {
        for (status, expected) in [
            (json!("Completed"), "error status: Invalid status: Completed"),
            (json!(""), "error status: Invalid status: "),
            (json!(null), "error status: Invalid status: null"),
            (json!(["failed"]), "error status: Invalid status: [\"failed\"]"),
        ] {
            assert_eq!(check((&changed("status", status)).into()), expected);
        }
        let long = check((&changed("status", "x".repeat(10_000).into())).into());
        assert!(long.ends_with("x…") && long.len() < 200, "{long}");
    }

    #[test]
    fn requirement_27_a_summary_has_a_length_and_a_shape() {
        let of = |chars: usize| format!("One. {}", "é".repeat(chars - 5));
        for (summary, expected) in [
            (json!(""), "error summary: Summary cannot be empty"),
            (json!(" \n\t"), "error summary: Summary cannot be empty"),
            (json!(7), "error summary: summary must be a string, not a number"),
            (json!(null), "error summary: summary must be a string, not null"),
            (json!(of(400)), ""),
            (json!(of(401)), "warn summary: Summary has 401 characters, at most 400 read well"),
            (json!(of(500)), "warn summary: Summary has 500 characters, at most 400 read well"),
            (json!(of(501)), "error summary: Summary too long (max 500 chars)"),
            (json!("One."), "warn summary: Summary should have 2 to 5 sentences, it has 1"),
            (json!("A b. C d. E f. G h. I j."), ""),
            (
                json!("A b. C d. E f. G h. I j. K l."),
                "warn summary: Summary should have 2 to 5 sentences, it has 6",
            ),
            (json!("One. Two 🚀."), "warn summary: Summary should not contain emoji: 🚀"),
            (json!("One. **Two**."), "warn summary: Summary should not contain markup: **"),
        ] {
            assert_eq!(check((&changed("summary", summary)).into()), expected);
        }
    }

    #[test]
    fn requirement_32_next_steps_are_short_or_absent() {
        for (next_steps, expected) in [
            (json!(null), ""),
            (json!(" "), ""),
            (json!("Run it. Read it."), ""),
            (
                json!("Run it. Read it. Tell us."),
                "warn next_steps: Next steps should have at most 2 sentences, they have 3",
            ),
            (json!(["Run it"]), "error next_steps: next_steps must be a string, not an array"),
        ] {
            assert_eq!(check((&changed("next_steps", next_steps)).into()), expected);
        }
    }

    #[test]
    fn one_of_the_artifacts_is_among_those_that_were_made_however_it_is_written() {
        let made = BTreeSet::from(["specs/report.md".to_owned()]);
        let contract = ReturnContract {
            artifacts: RequiredArtifacts::OneOf(made),
            ..ReturnContract::default()
        };
        let accepts = |paths: &[&str]| {
            let named = paths.iter().map(|path| json!({"type": "research", "path": path}));
            let mut value = sound();
            value["artifacts"] = named.collect();
            validate(&value, &contract, &unchecked).valid
        };
        for path in ["specs/report.md", "./specs/report.md", "specs//x/.././report.md"] {
            assert!(accepts(&["README.md", path]), "{path}");
        }
        for path in ["report.md", "specs/report.md/x", "specs/../report.md", "README.md"] {
            assert!(!accepts(&[path]), "{path}");
        }
        assert!(!accepts(&[]));
    }

    #[test]
    fn requirement_28_one_artifact_of_completed_work_has_the_type_of_its_purpose() {
        let contract =
            ReturnContract { kind: Some(ArtifactKind::Plan), ..ReturnContract::default() };
        for (status, kinds, is_valid) in [
            ("completed", &["plan"][..], true),
            ("completed", &["summary", "plan"], true),
            ("completed", &["summary", "research"], false),
            // Whether files must be named at all is another rule.
            ("completed", &[], true),
            ("partial", &["summary"], true),
        ] {
            let mut value = changed("status", status.into());
            value["artifacts"] =
                kinds.iter().map(|kind| json!({"type": kind, "path": "a.md"})).collect();
            if status != "completed" {
                value["errors"] = json!([{"type": "timeout", "message": "m", "code": "TIMEOUT",
                    "recoverable": true, "recommendation": "r"}]);
            }
            let verdict = validate(&value, &contract, &unchecked);
            let said: Vec<&str> = verdict.errors.iter().map(|it| it.message.as_str()).collect();
            let fault = "None of the artifacts has the type plan";
            let expected: &[&str] = if is_valid { &[] } else { &[fault] };
            assert_eq!(said, expected, "{status} {kinds:?}");
        }
    }

    #[test]
    fn artifacts_can_be_required_of_completed_work() {
        // D26
        let contract =
            ReturnContract { artifacts: RequiredArtifacts::Any, ..ReturnContract::default() };
        let verdict = validate(&sound(), &contract, &unchecked);
        assert_eq!(verdict.errors.len(), 1);
        assert_eq!(verdict.errors[0].field, "artifacts");
        let mut partial = changed("status", "partial".into());
        partial["errors"] = json!([{"type": "timeout", "message": "m", "code": "TIMEOUT",
            "recoverable": true, "recommendation": "r"}]);
        assert!(validate(&partial, &contract, &unchecked).valid);
    }

    #[test]
    fn prose_around_a_return_and_unknown_fields_are_warnings() {
        let text = format!("Here you are:\n{}", changed("mood", "good".into()));
        insta::assert_snapshot!(check(text.as_str().into()), @r"
        warn return: Return was found among other text; it should stand alone
        warn mood: Unknown field is ignored: mood
        ");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "completed|failed|timeout|\\PC{0,12}".prop_map(Value::from),
        ];
        let key = "status|summary|artifacts|metadata|errors|next_steps|session_id|path|type|\
                   message|code|recoverable|key_findings|project_number|delegation_path";
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_verdict_is_valid_exactly_when_it_has_no_errors(value in any_json()) {
            let verdict = validate(&value, &ReturnContract::default(), &unchecked);
            prop_assert_eq!(verdict.valid, verdict.errors.is_empty());
            prop_assert_eq!(verdict.valid, verdict.accepted().is_some());
        }

        #[test]
        fn a_sound_return_with_one_field_replaced_is_still_judged(
            key in "status|summary|artifacts|metadata|errors|next_steps|key_findings",
            value in any_json(),
        ) {
            let verdict = validate(&changed(&key, value), &ReturnContract::default(), &unchecked);
            prop_assert_eq!(verdict.valid, verdict.errors.is_empty());
        }

        #[test]
        fn what_was_accepted_is_accepted_again(
            summary in "[A-Z][a-z ]{0,300}\\. [A-Z][a-z]{1,30}\\.",
            findings in prop::option::of("[a-z ]{1,40}"),
        ) {
            let mut value = changed("summary", summary.into());
            if let Some(findings) = findings {
                value["key_findings"] = findings.into();
            }
            let first = validate(&value, &ReturnContract::default(), &unchecked);
            let again = serde_json::to_value(first.accepted().unwrap()).unwrap();
            let second = validate(&again, &ReturnContract::default(), &unchecked);
            prop_assert_eq!(second.accepted(), first.accepted());
            prop_assert!(second.warnings.len() <= first.warnings.len());
        }
    }
}
