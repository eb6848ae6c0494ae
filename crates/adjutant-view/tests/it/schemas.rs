//! The printed JSON matches `docs/schemas`: every required name, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use adjutant_core::workspace::{ChangedFile, KeptWork, OwnWorkspace, WorkspaceKind};
use adjutant_core::{
    CallRefusal, ErrorCode, Event, ModelErrorKind, Outcome, Preset, ProjectFacts, Timestamp, Usd,
    WorkerAction, WorkerCallEnd, WorkerSessionStart, WorkerToolStatus, WorkerUsageReport,
};
use adjutant_view::approval::ApprovalQuestion;
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::status::{ContentRetention, ObservedRun, detail_json, list_json};
use adjutant_view::story::StoryReport;
use adjutant_view::transcript::Transcript;
use adjutant_view::{ProcessLiveness, RunView, cost, tree};
use serde_json::{Value, json};

use crate::command::through_all_stages;
use crate::history::{
    History, call, finished, reason, resumed, root, settled, three, tokens, wire_events,
};

/// A history with at least one instance of everything that has a format.
fn everything() -> History {
    let (mut h, _) = finished();
    let mut asked = h.grant(root(), "asked", "x");
    asked.call = 3;
    asked.clamped = true;
    asked.awaiting_approval = true;
    let session = asked.session;
    h.push(Event::Granted(Box::new(asked)));
    let (hash, expires) = ("abc".to_owned(), Timestamp::from_millis(900_000));
    h.push(Event::ApprovalAsked { parent: root(), call: 3, hash: hash.clone(), expires });
    h.push(Event::Denied { hash, reason: "no".into() });
    let (hash, amount) = ("def".to_owned(), Usd::from_pico(150_000_000_000));
    h.push(Event::AutoApproved { parent: root(), call: 4, hash, amount });
    let denied = reason(ErrorCode::ApprovalDenied, "Not approved: no.", "Add --yes.");
    h.end(session, Outcome::Refused, Some(denied));
    h.push(Event::Late { session, what: "reply".into(), text: "late".into() });
    let mut again = resumed();
    if let Event::Resumed { terms, .. } = &mut again {
        *terms = Some(Box::default());
    }
    h.push(again);
    let [busy, odd] = h.call([("busy", "x"), ("odd", "x")]);
    h.start(busy);
    h.push(Event::Paused { session: busy, provider: "anthropic".into(), until: expires });
    h.fail(busy, ModelErrorKind::Network, Some(100));
    h.push(Event::DomainAsked { session: busy, call: 0, host: "docs.rs".into(), expires });
    h.push(Event::DomainAllowed { host: "docs.rs".into() });
    h.push(Event::DomainDenied { host: "b.example".into(), reason: "no".into() });
    h.reply(busy, "", vec![call("Read", json!({ "path": "a" }))], tokens(1, 1));
    h.push(Event::ToolCalled { session: busy, call: 0 });
    h.start(odd);
    let mut broken = call("Nope", json!("{"));
    broken.malformed = true;
    h.reply(odd, "", vec![broken], tokens(1, 1));
    h.push(Event::ToolRefused { session: odd, call: 0, text: "Not run.".into() });
    h.reply(odd, &"long ".repeat(100), vec![], tokens(1, 1));
    h.end(odd, Outcome::Completed, None);
    h.push(Event::Continued { session: busy, brief: vec!["x".into()], handover: "y".into() });
    in_workspaces(&mut h);
    worker(&mut h);
    h
}

/// Adds an external worker that has reported everything it can, and still works.
fn worker(h: &mut History) {
    let session = h.worker("worker");
    h.open_call(session, 1, "acme/large");
    h.close_call(session, 1, WorkerCallEnd::Complete, settled(tokens(5, 1)));
    let (id, start) = ("th_1".to_owned(), WorkerSessionStart::Retold);
    h.push(Event::WorkerSessionOpened { session, id, start });
    let report = WorkerUsageReport { tokens: Some(7), usd: None };
    h.push(Event::WorkerReported { session, report });
    let refusal = CallRefusal::Budget;
    h.push(Event::WorkerCallRefused { session, refusal, needed: None });
    h.act(session, WorkerAction::Said { text: "I look.".into() });
    h.act(session, WorkerAction::Permission { title: "rm".into(), allowed: false });
    let (id, title, status) = ("1".into(), "make".into(), WorkerToolStatus::Begun);
    h.act(session, WorkerAction::Tool { id, title, status });
}

/// Adds two writers: one whose work was committed, one whose work could not be.
fn in_workspaces(h: &mut History) {
    let [fine, poor] = h.call([("fine", "x"), ("poor", "x")]);
    let file = |how: &str, lines| ChangedFile {
        path: "src/a.rs".into(),
        how: how.into(),
        added: lines,
        removed: lines,
    };
    let kept = KeptWork {
        commit: Some("c0ffee".into()),
        reference: Some("refs/adjutant/run_1_aaaaaa/sess_1_aaaaaa".into()),
        files: vec![file("modified", Some(2)), file("added", None)],
        skipped: vec!["a.sock (not a file, directory or link)".into()],
        left: vec!["huge (too large, 629145600 bytes)".into()],
    };
    let problem = Some("the disk is full".to_owned());
    let ends = [
        (fine, WorkspaceKind::Overlay, kept, None),
        (poor, WorkspaceKind::Worktree, KeptWork::default(), problem),
    ];
    for (session, kind, kept, problem) in ends {
        h.start(session);
        let space = OwnWorkspace {
            kind,
            path: "/spaces/1".into(),
            base: "abc".into(),
            layers: vec!["/bases/abc".into()],
            remarks: vec!["`lib` is a submodule and empty".into()],
        };
        let project = ProjectFacts { text: "branch: main".into(), head: Some("abc".into()) };
        h.push(Event::SpaceMade { session, space, project: Some(Box::new(project)) });
        h.push(Event::Printed { session, text: "ok\n".into() });
        h.end(session, Outcome::Completed, None);
        h.push(Event::SpaceKept { session, kept, problem });
    }
}

/// Stories of every kind: merged, in conflict, not merged because of a problem, refused, with and without a
/// verify command.
fn stories() -> History {
    let mut h = crate::story::conflict();
    let odd = crate::story::child(&mut h, root(), "US-007-DEL-003", "odd");
    let files = vec![crate::story::file("a", "added", (1, 0))];
    crate::story::finish(&mut h, odd, "x", files, (Outcome::Completed, None));
    let problem = Some("no space".to_owned());
    h.push(Event::Merged { session: odd, merged: Default::default(), problem });
    h.reply(odd, "", vec![], tokens(1_000_000, 0));
    h.refuse(2, 0, "none", reason(ErrorCode::MaxDepthExceeded, "Too deep.", "Do it here."));
    h
}

#[expect(clippy::disallowed_methods, reason = "the test reads the documentation")]
fn schema(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Checks a value against a schema by types and property names; returns the first mismatch.
fn check(value: &Value, schema: &Value, whole: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = whole.pointer(name.trim_start_matches('#')).ok_or(format!("{at}: {name}?"))?;
        return check(value, target, whole, at);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let fits = choices.iter().filter(|one| check(value, one, whole, at).is_ok()).count();
            return if fits == 1 {
                Ok(())
            } else {
                Err(format!("{at}: {fits} of {choice} fit {value}"))
            };
        }
    }
    if schema.get("const").is_some_and(|constant| constant != value) {
        return Err(format!("{at}: not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return Err(format!("{at}: {value} is not in {}", schema["enum"]));
    }
    if !has_type(value, &schema["type"]) {
        return Err(format!("{at}: {value} is not of type {}", schema["type"]));
    }
    if let (Value::Array(items), Some(each)) = (value, schema.get("items")) {
        for (place, item) in items.iter().enumerate() {
            check(item, each, whole, &format!("{at}[{place}]"))?;
        }
    }
    let (Value::Object(fields), Some(known)) = (value, schema["properties"].as_object()) else {
        return Ok(());
    };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{at}: {name} is missing"));
        }
    }
    for (name, field) in fields {
        let schema = known.get(name).ok_or(format!("{at}: {name} is not described"))?;
        check(field, schema, whole, &format!("{at}.{name}"))?;
    }
    Ok(())
}

fn has_type(value: &Value, named: &Value) -> bool {
    let names: Vec<&str> = match named {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return true,
    };
    names.iter().any(|name| match *name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    })
}

fn assert_fits(name: &str, shape: impl serde::Serialize) {
    let schema = schema(name);
    let value = serde_json::to_value(shape).unwrap();
    check(&value, &schema, &schema, name).unwrap();
}

#[test]
fn results_fit_their_schema() {
    let view = everything().view();
    let results = CallResults::of_run(&view);
    assert_fits("result", results.json(&ResultOptions::default()));
    let options = ResultOptions {
        result_tokens: Some(5),
        transcripts: Some("transcripts"),
        ..ResultOptions::default()
    };
    assert_fits("result", results.json(&options));
    assert_fits("result", CallResults::of_run(&RunView::default()).json(&options));
    let view = stories().view();
    assert_fits("result", CallResults::of_run(&view).json(&ResultOptions::default()));
    assert_fits("result", CallResults::of_run(&view).json(&options));
}

#[test]
fn status_fits_its_schema() {
    let h = everything();
    let views = [h.view(), three().0.view(), stories().view(), RunView::default()];
    for liveness in [ProcessLiveness::Alive, ProcessLiveness::Dead] {
        let looks = views.each_ref().map(|view| ObservedRun {
            view,
            liveness,
            now: h.at(),
            content: ContentRetention::Kept,
            program: "adjutant",
        });
        assert_fits("status", list_json(&looks));
        for look in &looks {
            assert_fits("status", detail_json(look, None));
        }
    }
}

#[test]
fn the_tree_fits_its_schema() {
    let h = everything();
    assert_fits("tree", tree::json(&h.view(), h.at(), ProcessLiveness::Alive));
    assert_fits("tree", tree::json(&RunView::default(), h.at(), ProcessLiveness::Dead));
    assert_fits("tree", tree::json(&stories().view(), h.at(), ProcessLiveness::Dead));
}

#[test]
fn a_report_on_stories_fits_its_schema() {
    let mut unfinished = crate::story::story(None, "x");
    let reports: Vec<StoryReport> = [stories(), crate::story::partial(), {
        crate::story::child(&mut unfinished, root(), "US-007-DEL-001", "x");
        unfinished
    }]
    .iter()
    .map(|h| StoryReport::of(&h.view()).unwrap())
    .collect();
    // The command that worked on them adds stories of an earlier command.
    let mut document = serde_json::to_value(adjutant_view::story::json(&reports)).unwrap();
    document["not_begun"] = json!([{ "id": "US-008", "why": "US-007 does not pass" }]);
    assert_fits("story", document);
}

#[test]
fn cost_fits_its_schema() {
    assert_fits("cost", cost::json(&everything().view(), None));
    assert_fits("cost", everything().turn_costs().json(&everything().view(), None));
    assert_fits("cost", cost::json(&RunView::default(), None));
    assert_fits("cost", cost::json(&stories().view(), None));
}

#[test]
fn transcripts_fit_their_schema() {
    let h = everything();
    for delegation in h.view().delegations() {
        let transcript = Transcript::of(h.entries(), delegation.session, ProcessLiveness::Alive);
        assert_fits("transcript", transcript.unwrap());
    }
}

#[test]
fn events_fit_their_schema_and_every_event_occurs() {
    let mut seen = BTreeSet::new();
    for h in [everything(), through_all_stages(), stories()] {
        for event in wire_events(h.entries()) {
            let value = serde_json::to_value(&event).unwrap();
            seen.insert(value["event"].as_str().unwrap().to_owned());
            assert_fits("events", value);
        }
    }
    let schema = schema("events");
    let described: BTreeSet<String> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["properties"]["event"]["const"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(seen, described);
}

#[test]
fn a_question_fits_its_schema() {
    let h = everything();
    let policy = Preset::Scout.policy();
    for call in 1..=3 {
        assert_fits(
            "question",
            ApprovalQuestion::of_call(&policy, h.events(), root(), call).json(),
        );
    }
}

#[test]
fn the_schema_check_notices_missing_and_unknown_names() {
    let shape = json!({ "type": "object", "required": ["a"], "properties": { "a": {} } });
    assert!(check(&json!({ "a": 1 }), &shape, &shape, "").is_ok());
    assert!(check(&json!({}), &shape, &shape, "").is_err());
    assert!(check(&json!({ "a": 1, "b": 2 }), &shape, &shape, "").is_err());
}
