//! Malformed returns, one per line of `malformed/returns.jsonl`, and the complaints about
//! each.
//!
//! A case is a `text`, in which `@SOUND` stands for a return without fault and `@METADATA` for its
//! metadata; or that return with some places `set` and some dropped. `expect` lists every complaint
//! as `error FIELD` or `warn FIELD`, with a code before the field where it is not
//! `VALIDATION_FAILED`. A case without errors is accepted.

use std::collections::BTreeMap;

use adjutant_formats::contract::{
    ArtifactFileState, JudgedReturn, MetadataSource, RequiredArtifacts, ReturnContract,
    ReturnMetadata, ReturnVerdict, repair_message, validate,
};
use adjutant_formats::{AgentName, ErrorCode, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};

const CASES: &str = include_str!("malformed/returns.jsonl");

/// The most bytes of a complaint, whatever a model wrote.
const LONGEST_COMPLAINT: usize = 600;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    text: Option<String>,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    drop: Vec<String>,
    #[serde(default)]
    fact: Option<String>,
    #[serde(default)]
    contract: Option<String>,
    expect: Vec<String>,
}

fn metadata() -> ReturnMetadata {
    ReturnMetadata {
        // sess_1735460684_a1b2c3
        session_id: SessionId::new(1_735_460_684, [0, 27, 1, 28, 2, 29]),
        duration_seconds: 5,
        agent_type: AgentName::new("scout"),
        delegation_depth: 1,
        delegation_path: ["lead", "scout"].map(AgentName::new).into(),
    }
}

fn sound() -> Value {
    json!({
        "status": "completed",
        "summary": "It works. Really.",
        "artifacts": [],
        "metadata": metadata(),
        "errors": [],
    })
}

impl Case {
    /// Returns the message that the model ended with.
    fn text(&self) -> String {
        if let Some(text) = &self.text {
            let metadata = sound()["metadata"].to_string();
            return text.replace("@SOUND", &sound().to_string()).replace("@METADATA", &metadata);
        }
        let mut value = sound();
        let part = |pointer: &str| {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            (parent.to_owned(), key.to_owned())
        };
        for (pointer, new) in &self.set {
            let (parent, key) = part(pointer);
            value.pointer_mut(&parent).unwrap()[key] = new.clone();
        }
        for pointer in &self.drop {
            let (parent, key) = part(pointer);
            let parent = value.pointer_mut(&parent).unwrap().as_object_mut().unwrap();
            assert!(parent.remove(&key).is_some(), "{}: nothing to drop", self.case);
        }
        value.to_string()
    }

    fn contract(&self) -> ReturnContract {
        let base = ReturnContract::default();
        let another = "sess_1735460684_zzzzzz".parse::<SessionId>().unwrap();
        let engine =
            |session_id| MetadataSource::Engine(ReturnMetadata { session_id, ..metadata() });
        match self.contract.as_deref() {
            None => base,
            Some("artifacts") => ReturnContract { artifacts: RequiredArtifacts::Any, ..base },
            Some("another session") => ReturnContract { expected_session: Some(another), ..base },
            Some("engine") => ReturnContract { metadata: engine(metadata().session_id), ..base },
            Some("engine, another session") => ReturnContract { metadata: engine(another), ..base },
            Some(other) => panic!("{}: no such contract: {other}", self.case),
        }
    }

    fn fact(&self) -> ArtifactFileState {
        match self.fact.as_deref() {
            None => ArtifactFileState::Present,
            Some("missing") => ArtifactFileState::Missing,
            Some("empty") => ArtifactFileState::Empty,
            Some("not_a_file") => ArtifactFileState::NotAFile,
            Some("outside") => ArtifactFileState::Outside,
            Some(other) => panic!("{}: no such fact: {other}", self.case),
        }
    }
}

/// Spells the complaints of a verdict as the cases do, in any order.
fn complaints(verdict: &ReturnVerdict) -> Vec<String> {
    let all = [("error", &verdict.errors), ("warn", &verdict.warnings)];
    let mut lines: Vec<String> = all
        .into_iter()
        .flat_map(|(word, list)| list.iter().map(move |it| (word, it)))
        .map(|(word, it)| match it.code {
            ErrorCode::ValidationFailed => format!("{word} {}", it.field),
            code => format!("{word} {code} {}", it.field),
        })
        .collect();
    lines.sort_unstable();
    lines
}

/// What holds for every verdict.
fn holds(case: &str, text: &str, verdict: &ReturnVerdict) {
    assert_eq!(verdict.valid, verdict.errors.is_empty(), "{case}");
    assert_eq!(verdict.valid, verdict.accepted().is_some(), "{case}");
    for complaint in verdict.errors.iter().chain(&verdict.warnings) {
        assert!(complaint.message.len() <= LONGEST_COMPLAINT, "{case}: {complaint:?}");
        assert!(!complaint.field.is_empty() && !complaint.message.is_empty(), "{case}");
    }
    if let Some(JudgedReturn::Original(original)) = &verdict.returned {
        let sent: Option<Value> = serde_json::from_str(text).ok();
        assert!(sent.is_none_or(|sent| sent == *original), "{case}: it is kept otherwise");
    }
    if !verdict.valid {
        // The model gets the first of them in any case.
        let told = repair_message(verdict);
        assert!(told.contains(&verdict.errors[0].message), "{case}: {told}");
    }
}

#[test]
fn each_malformed_return_gets_exactly_its_listed_complaints() {
    let cases: Vec<Case> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: std::collections::BTreeSet<&str> =
        cases.iter().map(|case| case.case.as_str()).collect();
    assert!(cases.len() >= 200 && names.len() == cases.len(), "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let text = case.text();
        let fact = case.fact();
        let verdict = validate(text.as_str(), &case.contract(), &|_| fact);
        holds(&case.case, &text, &verdict);
        let mut expected = case.expect.clone();
        expected.sort_unstable();
        let found = complaints(&verdict);
        if found != expected {
            wrong.push(format!("{}: expected {expected:?}, found {found:?}", case.case));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn returns_of_any_size_get_a_short_verdict() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let of_summary = |text: &str| {
        let mut value = sound();
        value["summary"] = text.into();
        value.to_string()
    };
    let with = |key: &str, value: &str| {
        sound().to_string().replacen('{', &format!("{{\"{key}\":{value},"), 1)
    };
    let many = |one: &str| format!("[{}]", vec![one; 5_000].join(","));
    for (case, text, expected) in [
        ("a summary of 501 characters", of_summary(&"é".repeat(501)), "error summary"),
        ("a summary of a megabyte", of_summary(&"x. ".repeat(350_000)), "error summary"),
        ("a megabyte of prose", "All is well. ".repeat(80_000), "error return"),
        ("a megabyte of braces", "{".repeat(1 << 20), "error return"),
        ("a megabyte of torn objects", "{\"a\": ".repeat(150_000), "error return"),
        ("a hundred thousand lists in each other", deep(100_000), "error return"),
        ("a field of a thousand levels", with("x", &deep(1_000)), "error return"),
        ("a field of a hundred levels", with("x", &deep(100)), "warn x"),
        (
            "a megabyte of white space around",
            format!("{0}{1}{0}", " \n".repeat(1 << 18), sound()),
            "",
        ),
        ("a key of a megabyte", with(&"k".repeat(1 << 20), "1"), "warn k"),
        (
            "five thousand artifacts that are none",
            {
                let mut value = sound();
                value["artifacts"] = serde_json::from_str(&many("7")).unwrap();
                value.to_string()
            },
            "error artifacts[0]",
        ),
        ("five thousand fences", "```json\n".repeat(5_000), "error return"),
    ] {
        let verdict =
            validate(text.as_str(), &ReturnContract::default(), &|_| ArtifactFileState::Present);
        holds(case, &text, &verdict);
        let found = complaints(&verdict);
        let first = found.first().map_or("", String::as_str);
        assert!(
            first.starts_with(expected) && first.is_empty() == expected.is_empty(),
            "{case}: {found:?}"
        );
        if !verdict.valid {
            let told = repair_message(&verdict);
            assert!(told.len() < 16_000, "{case}: the model is told {} bytes", told.len());
        }
    }
}
