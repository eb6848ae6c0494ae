//! The return contract, judged on every example the seeds give.

use adjutant_formats::contract::{
    ArtifactFileState, JudgedReturn, MetadataSource, OpenWord, Return, ReturnContract,
    ReturnMetadata, ReturnStatus, ReturnVerdict, unchecked, validate,
};
use adjutant_formats::{AgentName, ErrorCode, SessionId};
use serde_json::{Value, json};

/// Seed 003, "Successful Research Completion".
const RESEARCH: &str = r#"{
  "status": "completed",
  "summary": "Research completed on LeanExplore, Loogle, and LeanSearch integration. Found official APIs for all three tools. LeanExplore uses HTTP API, Loogle has CLI interface, LeanSearch provides REST endpoints. Recommend REST API integration for LeanSearch first.",
  "artifacts": [
    {
      "type": "research",
      "path": ".opencode/specs/195_lean_tools_research/reports/research-001.md",
      "summary": "Detailed API specifications for all three Lean tools"
    },
    {
      "type": "summary",
      "path": ".opencode/specs/195_lean_tools_research/summaries/research-summary.md",
      "summary": "Key findings and integration recommendations"
    }
  ],
  "metadata": {
    "session_id": "sess_20251226_abc123",
    "duration_seconds": 1250,
    "agent_type": "researcher",
    "delegation_depth": 1,
    "delegation_path": ["orchestrator", "research-command", "researcher"]
  },
  "errors": [],
  "next_steps": "Create implementation plan for LeanSearch REST API integration"
}"#;

/// Seed 003, "Partial Completion (Timeout)".
const PARTIAL: &str = r#"{
  "status": "partial",
  "summary": "Implementation of task 191 phase 1 started but timed out after 1 hour. Successfully completed return format standardization and updated /implement command. Remaining work: update /research and /plan commands with return handling.",
  "artifacts": [
    {
      "type": "implementation",
      "path": ".opencode/context/common/standards/subagent-return-format.md",
      "summary": "Standardized return format specification"
    },
    {
      "type": "implementation",
      "path": ".opencode/command/implement.md",
      "summary": "Updated with ReceiveResults and ProcessResults stages"
    }
  ],
  "metadata": {
    "session_id": "sess_20251226_def456",
    "duration_seconds": 3600,
    "agent_type": "implementer",
    "delegation_depth": 2,
    "delegation_path": ["orchestrator", "implement-command", "task-executor", "implementer"]
  },
  "errors": [
    {
      "type": "timeout",
      "message": "Implementation exceeded 3600s timeout",
      "code": "TIMEOUT",
      "recoverable": true,
      "recommendation": "Run /implement 191 again to resume from phase 2"
    }
  ],
  "next_steps": "Resume implementation by running /implement 191"
}"#;

/// Seed 003, "Failed Execution".
const FAILED: &str = r#"{
  "status": "failed",
  "summary": "Failed to implement Lean proof due to lean-lsp-mcp unavailability. Checked .mcp.json configuration and attempted fallback to direct Lean compilation. Both approaches failed.",
  "artifacts": [],
  "metadata": {
    "session_id": "sess_20251226_ghi789",
    "duration_seconds": 45,
    "agent_type": "lean-implementation-agent",
    "delegation_depth": 1,
    "delegation_path": ["orchestrator", "implement-command", "lean-implementation-agent"]
  },
  "errors": [
    {
      "type": "tool_unavailable",
      "message": "lean-lsp-mcp not available in .mcp.json",
      "code": "TOOL_UNAVAILABLE",
      "recoverable": true,
      "recommendation": "Install lean-lsp-mcp: uvx lean-lsp-mcp"
    }
  ],
  "next_steps": "Install lean-lsp-mcp and retry implementation"
}"#;

/// Seed 003, "Standard Return Format": a template, not a return.
const FORMAT: &str = r#"{
  "status": "completed|failed|partial|blocked",
  "summary": "Brief 2-5 sentence summary (max 100 tokens)",
  "artifacts": [
    {
      "type": "research|plan|implementation|summary|documentation",
      "path": "relative/path/from/project/root",
      "summary": "Optional one-sentence description"
    }
  ],
  "metadata": {
    "session_id": "unique_session_identifier",
    "duration_seconds": 123,
    "agent_type": "agent_name",
    "delegation_depth": 1,
    "delegation_path": ["orchestrator", "command", "agent"]
  },
  "errors": [
    {
      "type": "timeout|validation|execution|tool_unavailable",
      "message": "Human-readable error description",
      "code": "ERROR_CODE",
      "recoverable": true,
      "recommendation": "Suggested fix or next step"
    }
  ],
  "next_steps": "Optional recommended next actions"
}"#;

/// Seed 000, "Subagent Error".
const BUILD_ERROR: &str = r#"{
  "status": "failed",
  "summary": "Implementation failed due to build errors",
  "artifacts": [],
  "errors": [{
    "type": "build_error",
    "message": "Lean file compilation failed: 3 type errors",
    "code": "BUILD_ERROR",
    "recoverable": true,
    "recommendation": "Fix type errors and retry"
  }],
  "metadata": {
    "session_id": "sess_20251226_abc123",
    "agent_type": "implementer"
  }
}"#;

/// Seed 000 §4, what a caller builds on a timeout; it forgets the metadata.
const TIMEOUT: &str = r#"{
  "status": "partial",
  "summary": "Operation timed out after 3600s",
  "artifacts": [],
  "errors": [{
    "type": "timeout",
    "message": "Subagent exceeded timeout",
    "code": "TIMEOUT",
    "recoverable": true,
    "recommendation": "Resume with same command to continue"
  }]
}"#;

fn session(text: &str) -> Option<SessionId> {
    text.parse().ok()
}

fn check(text: &str, contract: &ReturnContract) -> String {
    shown(&validate(text, contract, &unchecked))
}

fn shown(verdict: &ReturnVerdict) -> String {
    let mut lines = vec![if verdict.valid { "valid" } else { "invalid" }.to_owned()];
    for (word, complaints) in [("error", &verdict.errors), ("warn", &verdict.warnings)] {
        lines.extend(complaints.iter().map(|it| {
            let (code, field, message) = (it.code, &it.field, &it.message);
            format!("{word} {code} {field}: {message}")
        }));
    }
    lines.join("\n")
}

#[test]
fn the_three_examples_of_the_standard_satisfy_it() {
    for (text, id) in [
        (RESEARCH, "sess_20251226_abc123"),
        (PARTIAL, "sess_20251226_def456"),
        (FAILED, "sess_20251226_ghi789"),
    ] {
        let contract =
            ReturnContract { expected_session: session(id), ..ReturnContract::default() };
        assert_eq!(check(text, &contract), "valid");
        assert_eq!(check(text, &ReturnContract::default()), "valid");
    }
}

#[test]
fn an_accepted_example_is_serialised_unchanged() {
    // Seed 003: our types spell every field the standard's way, in its order.
    for text in [RESEARCH, PARTIAL, FAILED] {
        let verdict = validate(text, &ReturnContract::default(), &unchecked);
        let original: Value = serde_json::from_str(text).unwrap();
        let returned = serde_json::to_string(&verdict.returned).unwrap();
        assert_eq!(returned, original.to_string());
        let read: Return = serde_json::from_str(&returned).unwrap();
        assert_eq!(verdict.accepted(), Some(&read));
    }
}

#[test]
fn the_template_of_the_standard_is_not_a_valid_return() {
    insta::assert_snapshot!(check(FORMAT, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED status: Invalid status: completed|failed|partial|blocked
    error VALIDATION_FAILED metadata.session_id: Invalid session ID: unique_session_identifier
    error VALIDATION_FAILED artifacts[0].type: Invalid artifact type: research|plan|implementation|summary|documentation
    warn VALIDATION_FAILED summary: Summary should have 2 to 5 sentences, it has 1
    warn VALIDATION_FAILED errors[0].type: Unknown error type: timeout|validation|execution|tool_unavailable
    warn VALIDATION_FAILED errors[0].code: Unknown error code: ERROR_CODE
    ");
}

#[test]
fn d24_the_error_sample_of_the_guide_lacks_exactly_three_fields() {
    insta::assert_snapshot!(check(BUILD_ERROR, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED metadata.duration_seconds: Missing required field: metadata.duration_seconds
    error VALIDATION_FAILED metadata.delegation_depth: Missing required field: metadata.delegation_depth
    error VALIDATION_FAILED metadata.delegation_path: Missing required field: metadata.delegation_path
    warn VALIDATION_FAILED summary: Summary should have 2 to 5 sentences, it has 1
    warn VALIDATION_FAILED errors[0].type: Unknown error type: build_error
    ");
}

/// Seed 002, "Required JSON structure": it shows an agent what to send, in no language.
const SKETCH: &str = r#"{
  "status": "completed|partial|failed|blocked",
  "summary": "Brief 2-5 sentence summary (<100 tokens)",
  "artifacts": [{type, path, summary}, ...],
  "metadata": {session_id, duration_seconds, agent_type, delegation_depth, delegation_path},
  "errors": [{type, message, recoverable, recommendation}, ...],
  "next_steps": "What user should do next"
}"#;

/// Seed 004, a line of its log: it has a status but is not a return.
const LOGGED: &str = r#"{
  "timestamp": "2026-01-20T10:35:22Z",
  "parent_story": "US-007",
  "child_story": "US-007-DEL-001",
  "depth": 1,
  "status": "completed",
  "success": true
}"#;

#[test]
fn the_return_samples_of_the_other_guides_are_invalid() {
    insta::assert_snapshot!(check(SKETCH, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED return: Return is not valid JSON
    ");
    insta::assert_snapshot!(check(LOGGED, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED summary: Missing required field: summary
    error VALIDATION_FAILED artifacts: Missing required field: artifacts
    error VALIDATION_FAILED metadata: Missing required field: metadata
    warn VALIDATION_FAILED timestamp: Unknown field is ignored: timestamp
    warn VALIDATION_FAILED parent_story: Unknown field is ignored: parent_story
    warn VALIDATION_FAILED child_story: Unknown field is ignored: child_story
    warn VALIDATION_FAILED depth: Unknown field is ignored: depth
    warn VALIDATION_FAILED success: Unknown field is ignored: success
    ");
    // Seed 000, "Test 4: Return Validation".
    insta::assert_snapshot!(check(r#"{"status": "invalid_status"}"#, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED summary: Missing required field: summary
    error VALIDATION_FAILED artifacts: Missing required field: artifacts
    error VALIDATION_FAILED metadata: Missing required field: metadata
    error VALIDATION_FAILED status: Invalid status: invalid_status
    ");
}

#[test]
fn d24_an_error_without_a_code_as_seed_002_lists_it_is_accepted_with_a_warning() {
    let mut sent: Value = serde_json::from_str(FAILED).unwrap();
    sent["errors"][0].as_object_mut().unwrap().remove("code");
    let verdict = validate(&sent, &ReturnContract::default(), &unchecked);
    insta::assert_snapshot!(shown(&verdict), @r"
    valid
    warn VALIDATION_FAILED errors[0].code: Missing code is taken as UNKNOWN_ERROR
    ");
    let returned = verdict.accepted().unwrap();
    assert_eq!(returned.errors[0].code, OpenWord::Known(ErrorCode::UnknownError));
}

#[test]
fn the_timeout_sample_of_the_guide_lacks_its_metadata() {
    insta::assert_snapshot!(check(TIMEOUT, &ReturnContract::default()), @r"
    invalid
    error VALIDATION_FAILED metadata: Missing required field: metadata
    warn VALIDATION_FAILED summary: Summary should have 2 to 5 sentences, it has 1
    ");
    let contract = ReturnContract {
        metadata: MetadataSource::Engine(metadata()),
        ..ReturnContract::default()
    };
    insta::assert_snapshot!(check(TIMEOUT, &contract), @r"
    valid
    warn VALIDATION_FAILED summary: Summary should have 2 to 5 sentences, it has 1
    ");
}

fn metadata() -> ReturnMetadata {
    ReturnMetadata {
        // sess_1735460684_a1b2c3
        session_id: SessionId::new(1_735_460_684, [0, 27, 1, 28, 2, 29]),
        duration_seconds: 3600,
        agent_type: AgentName::new("implementer"),
        delegation_depth: 1,
        delegation_path: ["implement", "implementer"].map(AgentName::new).into(),
    }
}

#[test]
fn known_metadata_replaces_the_claims_of_a_model() {
    let contract = ReturnContract {
        metadata: MetadataSource::Engine(metadata()),
        ..ReturnContract::default()
    };
    let verdict = validate(TIMEOUT, &contract, &unchecked);
    let returned = verdict.accepted().unwrap();
    assert_eq!(returned.metadata, metadata());
    assert_eq!(returned.status, ReturnStatus::Partial);
    assert_eq!(returned.errors[0].code, OpenWord::Known(ErrorCode::Timeout));
    insta::assert_snapshot!(check(BUILD_ERROR, &contract), @r"
    invalid
    error VALIDATION_FAILED metadata.session_id: Session ID mismatch: sess_20251226_abc123 != sess_1735460684_a1b2c3
    warn VALIDATION_FAILED summary: Summary should have 2 to 5 sentences, it has 1
    warn VALIDATION_FAILED errors[0].type: Unknown error type: build_error
    ");
}

#[test]
fn requirement_34_a_foreign_session_is_refused_with_the_prescribed_message() {
    let expected_session = session("sess_1735460684_a1b2c3");
    let contract = ReturnContract { expected_session, ..ReturnContract::default() };
    insta::assert_snapshot!(check(RESEARCH, &contract), @r"
    invalid
    error VALIDATION_FAILED metadata.session_id: Session ID mismatch: sess_20251226_abc123 != sess_1735460684_a1b2c3
    ");
}

#[test]
fn missing_artifacts_are_named_with_their_code() {
    // Requirement 35: "phantom research" is what happens otherwise.
    let facts = |path: &str| match path.ends_with("research-001.md") {
        true => ArtifactFileState::Missing,
        false => ArtifactFileState::Empty,
    };
    insta::assert_snapshot!(shown(&validate(RESEARCH, &ReturnContract::default(), &facts)), @r"
    invalid
    error FILE_NOT_FOUND artifacts[0].path: Artifact does not exist: .opencode/specs/195_lean_tools_research/reports/research-001.md
    error VALIDATION_FAILED artifacts[1].path: Artifact is empty: .opencode/specs/195_lean_tools_research/summaries/research-summary.md
    ");
}

#[test]
fn a_verdict_serialises_to_the_output_of_validate() {
    let verdict = validate("[]", &ReturnContract::default(), &unchecked);
    assert_eq!(
        serde_json::to_value(&verdict).unwrap(),
        json!({
            "valid": false,
            "errors": [{
                "code": "VALIDATION_FAILED",
                "field": "return",
                "message": "Return must be JSON object",
            }],
            "warnings": [],
            "return": [],
        })
    );
    let verdict = validate("Done.", &ReturnContract::default(), &unchecked);
    assert_eq!(serde_json::to_value(&verdict).unwrap()["return"], Value::Null);
}

#[test]
fn requirement_35_a_refused_return_is_kept_unchanged() {
    let sent = json!({"status": "done", "key_findings": ["a"], "project_number": 7});
    let verdict = validate(&sent, &ReturnContract::default(), &unchecked);
    assert_eq!(verdict.returned, Some(JudgedReturn::Original(sent)));
}

#[test]
fn requirement_37_an_old_return_is_migrated_with_a_warning() {
    let mut old: Value = serde_json::from_str(RESEARCH).unwrap();
    let object = old.as_object_mut().unwrap();
    object.remove("summary");
    object.insert("key_findings".to_owned(), json!(["All three have APIs", "REST is first"]));
    object.insert("project_number".to_owned(), json!(195));
    let verdict = validate(&old, &ReturnContract::default(), &unchecked);
    insta::assert_snapshot!(shown(&verdict), @r"
    valid
    warn VALIDATION_FAILED key_findings: Old field is used as the summary
    warn VALIDATION_FAILED project_number: Old field is dropped; the path of the first artifact has the same number, 195
    ");
    assert_eq!(verdict.accepted().unwrap().summary, "All three have APIs. REST is first.");
}
