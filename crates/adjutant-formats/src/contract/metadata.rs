//! Validates the `metadata` of a return: taken from the return, or supplied by the engine.

use serde_json::Value;

use super::return_data::ReturnMetadata;
use super::verdict::{ReturnFindings, format_value};
use crate::fields::{FieldProblem, FieldReader, FieldValue};
use crate::ids::{AgentName, SessionId};

/// The name that precedes the root command in a delegation path. It does not count as a level.
pub const ORCHESTRATOR: &str = "orchestrator";

const KEYS: [&str; 5] =
    ["session_id", "duration_seconds", "agent_type", "delegation_depth", "delegation_path"];

/// Where the metadata of a return comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MetadataSource {
    /// From the return, which must contain all five fields.
    #[default]
    Claimed,
    /// From the engine. What the model wrote is only compared with it.
    Engine(ReturnMetadata),
}

/// Reads the field `metadata`, or fills it in from the engine.
pub(super) fn judge(
    fields: &FieldReader<'_>,
    source: &MetadataSource,
    expected: Option<SessionId>,
    findings: &mut ReturnFindings,
) -> Option<ReturnMetadata> {
    match source {
        MetadataSource::Claimed => read_claimed(fields, expected, findings),
        MetadataSource::Engine(truth) => {
            if let Some(claim) = fields.non_null("metadata") {
                compare(claim, truth, expected.unwrap_or(truth.session_id), findings);
            }
            Some(truth.clone())
        }
    }
}

fn read_claimed(
    fields: &FieldReader<'_>,
    expected: Option<SessionId>,
    findings: &mut ReturnFindings,
) -> Option<ReturnMetadata> {
    let within = |value| FieldReader::new(value, "metadata");
    let fields = findings.keep(fields.read("metadata", within))??;
    let session_id = read_session(&fields, expected, findings);
    let duration_seconds = read_duration(&fields, findings);
    let agent_type = findings.keep(fields.require("agent_type", FieldValue::non_blank_string));
    let delegation_depth = findings.keep(fields.require("delegation_depth", read_depth));
    let delegation_path = findings.keep(fields.require("delegation_path", names));
    findings.warn_unknown(&fields, &KEYS);
    let metadata = ReturnMetadata {
        session_id: session_id?,
        duration_seconds: duration_seconds?,
        agent_type: AgentName::new(&agent_type?),
        delegation_depth: delegation_depth?,
        delegation_path: delegation_path?,
    };
    warn_inconsistent(&metadata, findings);
    Some(metadata)
}

fn read_session(
    fields: &FieldReader<'_>,
    expected: Option<SessionId>,
    findings: &mut ReturnFindings,
) -> Option<SessionId> {
    let value = findings.keep(fields.require("session_id", Ok))?;
    if let Some(expected) = expected {
        return matches_session(value, expected, findings).then_some(expected);
    }
    let session = value.string().ok().and_then(|text| text.parse().ok());
    if session.is_none() {
        findings
            .error("metadata.session_id", format!("Invalid session ID: {}", format_value(value)));
    }
    session
}

fn matches_session(
    claim: FieldValue<'_>,
    expected: SessionId,
    findings: &mut ReturnFindings,
) -> bool {
    // Every id has exactly one spelling, so comparing the texts is enough.
    let expected = expected.to_string();
    let is_same = claim.string().is_ok_and(|claim| claim == expected);
    if !is_same {
        let message = format!("Session ID mismatch: {} != {expected}", format_value(claim));
        findings.error("metadata.session_id", message);
    }
    is_same
}

fn read_duration(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<u64> {
    let seconds = |value: FieldValue<'_>| {
        let (whole, any) = (value.any_integer().ok(), value.number().ok());
        let seconds = whole.or_else(|| any.map(|seconds| seconds as u64));
        let wanted = "a number of seconds, zero or more";
        Ok((seconds.ok_or_else(|| value.unfit_as_written(wanted))?, value.to_json()))
    };
    let (seconds, written) = findings.keep(fields.require("duration_seconds", seconds))?;
    if !written.is_u64() {
        let message = format!("Fractions of a second are dropped: {written}");
        findings.warn(fields.path("duration_seconds"), message);
    }
    Some(seconds)
}

fn read_depth(value: FieldValue<'_>) -> Result<u32, FieldProblem> {
    let depth = value.to_json().as_u64().and_then(|depth| depth.try_into().ok());
    depth.ok_or_else(|| value.unfit_as_written("a whole number, zero or more"))
}

fn names(value: FieldValue<'_>) -> Result<Vec<AgentName>, FieldProblem> {
    let name = |item: FieldValue<'_>| Ok(AgentName::new(&item.string()?));
    let names = value.items().and_then(|items| items.into_iter().map(name).collect());
    names.map_err(|_: FieldProblem| "must be an array of agent names".into())
}

/// Returns the depth a path implies: its number of edges, not counting a leading orchestrator.
fn path_depth(path: &[AgentName]) -> usize {
    let is_led = path.first().is_some_and(|name| name.as_str() == ORCHESTRATOR);
    path.len().saturating_sub(1 + usize::from(is_led))
}

// Only a warning: models do not count their own depth reliably, and nothing depends on it.
fn warn_inconsistent(metadata: &ReturnMetadata, findings: &mut ReturnFindings) {
    let depth = path_depth(&metadata.delegation_path);
    if u64::from(metadata.delegation_depth) != depth as u64 {
        let said = metadata.delegation_depth;
        let message = format!("Depth {said} does not fit the path, which has depth {depth}");
        findings.warn("metadata.delegation_depth", message);
    }
    if metadata.delegation_path.last() != Some(&metadata.agent_type) {
        let agent = &metadata.agent_type;
        let message = format!("The last agent of the path should be {agent}, as in agent_type");
        findings.warn("metadata.delegation_path", message);
    }
}

/// Compares the metadata in a return with the engine's own values.
///
/// The duration is not compared, because no model can know it. Another session's id is an error, because then
/// this return belongs to another delegation.
fn compare(
    claim: FieldValue<'_>,
    truth: &ReturnMetadata,
    session: SessionId,
    findings: &mut ReturnFindings,
) {
    let Ok(claims) = FieldReader::new(claim, "metadata") else {
        findings.warn("metadata", "Metadata is filled in by the engine; the claim is ignored");
        return;
    };
    if let Some(claim) = claims.non_null("session_id") {
        matches_session(claim, session, findings);
    }
    let known = [
        ("agent_type", Value::from(truth.agent_type.as_str())),
        ("delegation_depth", Value::from(truth.delegation_depth)),
        ("delegation_path", truth.delegation_path.iter().map(AgentName::as_str).collect()),
    ];
    for (key, known) in known {
        if let Some(claim) = claims.non_null(key).filter(|claim| claim.to_json() != known) {
            let message = format!(
                "Claimed {}, known is {}",
                format_value(claim),
                format_value((&known).into())
            );
            findings.warn(claims.path(key), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn truth() -> ReturnMetadata {
        ReturnMetadata {
            session_id: "sess_1735460684_a1b2c3".parse().unwrap(),
            duration_seconds: 37,
            agent_type: AgentName::new("implementer"),
            delegation_depth: 2,
            delegation_path: ["implement", "task-executor", "implementer"]
                .map(AgentName::new)
                .into(),
        }
    }

    fn check(claim: Value, source: &MetadataSource, expected: Option<&str>) -> String {
        let object = json!({ "metadata": claim });
        let expected = expected.map(|id| id.parse().unwrap());
        let mut findings = ReturnFindings::default();
        let fields = FieldReader::new((&object).into(), "").unwrap();
        let read = judge(&fields, source, expected, &mut findings);
        let mut lines = findings.lines();
        lines.extend(read.map(|read| serde_json::to_string(&read).unwrap()));
        lines.join("\n")
    }

    #[test]
    fn requirement_29_each_of_the_five_fields_is_required() {
        insta::assert_snapshot!(check(json!({}), &MetadataSource::Claimed, None), @r"
        error metadata.session_id: Missing required field: metadata.session_id
        error metadata.duration_seconds: Missing required field: metadata.duration_seconds
        error metadata.agent_type: Missing required field: metadata.agent_type
        error metadata.delegation_depth: Missing required field: metadata.delegation_depth
        error metadata.delegation_path: Missing required field: metadata.delegation_path
        ");
    }

    #[test]
    fn fields_of_the_wrong_shape_are_all_named() {
        let claim = json!({
            "session_id": "session-1", "duration_seconds": -1, "agent_type": " ",
            "delegation_depth": 1.5, "delegation_path": ["a", 1], "mood": "good",
        });
        insta::assert_snapshot!(check(claim, &MetadataSource::Claimed, None), @r"
        error metadata.session_id: Invalid session ID: session-1
        error metadata.duration_seconds: metadata.duration_seconds must be a number of seconds, zero or more, not -1
        error metadata.agent_type: metadata.agent_type cannot be empty
        error metadata.delegation_depth: metadata.delegation_depth must be a whole number, zero or more, not 1.5
        error metadata.delegation_path: metadata.delegation_path must be an array of agent names
        warn metadata.mood: Unknown field is ignored: metadata.mood
        ");
        let none = check(json!("none"), &MetadataSource::Claimed, None);
        assert_eq!(none, "error metadata: metadata must be an object, not a string");
    }

    #[test]
    fn a_session_is_compared_with_the_expected_one_in_the_words_of_requirement_34() {
        let claim = json!({
            "session_id": "sess_20251226_abc123", "duration_seconds": 12.5, "agent_type": "b",
            "delegation_depth": 1, "delegation_path": ["a", "b"],
        });
        let other = Some("sess_20251226_def456");
        insta::assert_snapshot!(check(claim.clone(), &MetadataSource::Claimed, other), @r"
        error metadata.session_id: Session ID mismatch: sess_20251226_abc123 != sess_20251226_def456
        warn metadata.duration_seconds: Fractions of a second are dropped: 12.5
        ");
        let same = Some("sess_20251226_abc123");
        insta::assert_snapshot!(check(claim, &MetadataSource::Claimed, same), @r#"
        warn metadata.duration_seconds: Fractions of a second are dropped: 12.5
        {"session_id":"sess_20251226_abc123","duration_seconds":12,"agent_type":"b","delegation_depth":1,"delegation_path":["a","b"]}
        "#);
    }

    #[test]
    fn the_depth_of_a_path_counts_edges_below_the_command() {
        // D4: every sample in the guides, and paths of trees without a root command.
        for (path, expected) in [
            (vec![], 0),
            (vec!["orchestrator"], 0),
            (vec!["orchestrator", "implement"], 0),
            (vec!["orchestrator", "implement", "task-executor"], 1),
            (vec!["orchestrator", "implement-command", "task-executor", "implementer"], 2),
            (vec!["orchestrator", "implement", "task-executor", "implementer", "git"], 3),
            (vec!["lead"], 0),
            (vec!["lead", "scout"], 1),
        ] {
            let names: Vec<AgentName> = path.iter().map(|name| AgentName::new(name)).collect();
            assert_eq!(path_depth(&names), expected, "{path:?}");
        }
    }

    #[test]
    fn a_depth_that_does_not_fit_the_path_is_only_a_warning() {
        let claim = json!({
            "session_id": "sess_20251226_abc123", "duration_seconds": 1, "agent_type": "c",
            "delegation_depth": 3, "delegation_path": ["orchestrator", "a", "b"],
        });
        insta::assert_snapshot!(check(claim, &MetadataSource::Claimed, None), @r#"
        warn metadata.delegation_depth: Depth 3 does not fit the path, which has depth 1
        warn metadata.delegation_path: The last agent of the path should be c, as in agent_type
        {"session_id":"sess_20251226_abc123","duration_seconds":1,"agent_type":"c","delegation_depth":3,"delegation_path":["orchestrator","a","b"]}
        "#);
    }

    #[test]
    fn the_engine_knows_better_and_says_so() {
        let engine = MetadataSource::Engine(truth());
        let filled = serde_json::to_string(&truth()).unwrap();
        for silent in [
            json!(null),
            json!({}),
            json!({"session_id": null, "duration_seconds": 9999}),
            serde_json::to_value(truth()).unwrap(),
        ] {
            assert_eq!(check(silent, &engine, None), filled);
        }
        let claim = json!({
            "session_id": "sess_1735460684_zzzzzz", "agent_type": "me",
            "delegation_depth": "two", "delegation_path": [],
        });
        insta::assert_snapshot!(check(claim, &engine, None), @r#"
        error metadata.session_id: Session ID mismatch: sess_1735460684_zzzzzz != sess_1735460684_a1b2c3
        warn metadata.agent_type: Claimed me, known is implementer
        warn metadata.delegation_depth: Claimed two, known is 2
        warn metadata.delegation_path: Claimed [], known is ["implement","task-executor","implementer"]
        {"session_id":"sess_1735460684_a1b2c3","duration_seconds":37,"agent_type":"implementer","delegation_depth":2,"delegation_path":["implement","task-executor","implementer"]}
        "#);
        let text = check(json!("x"), &engine, None);
        assert!(text.starts_with("warn metadata: Metadata is filled in by the engine"), "{text}");
    }
}
