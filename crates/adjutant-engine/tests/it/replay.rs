//! Recording a run against a strict fake server, and replaying it without a server.
#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::{Event, Outcome};
use adjutant_model::{
    ModelSources, ProviderConfig, RecordError, Recorder, ReplayError, ReplayModel, Secret,
    open_model, wire::Wire,
};
use adjutant_testkit::fake::{Api, FakeServer, Fault, FaultClass, Script, Turn};
use adjutant_testkit::{Rig, RunTrace};
use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: &str = "a-key-that-stays-secret";

const WIRES: [(Api, Wire); 4] = [
    (Api::Anthropic, Wire::Anthropic),
    (Api::Chat, Wire::Chat),
    (Api::Responses, Wire::Responses),
    (Api::Gemini, Wire::Gemini),
];

/// Fails once, reads a file, prints the API key and reports.
fn script(wire: Wire) -> Script {
    let read = Turn::calls("Read", &json!({ "path": "a.txt" })).fragmented(&[3]);
    let soon = Fault { retry_after_ms: Some("5".into()), ..Fault::default() };
    let fault = Fault { class: FaultClass::Overloaded, ..soon };
    let stumble = Turn { error: Some(fault), ..Turn::default() };
    let done = Turn::says(&format!("It says so; `{KEY}` is not in it. Done, café."));
    // OpenAI's Chat Completions has no thinking blocks.
    let read = if wire == Wire::Chat { read } else { read.thinking("Let me look.") };
    Script::always([read.first(stumble), done])
}

fn rig(content: &str) -> Rig {
    Rig::new().file("a.txt", content).task("look", "What does a.txt say?")
}

fn sources(wire: Wire, base_url: &str) -> ModelSources {
    ModelSources::default().with_provider(ProviderConfig {
        name: "fake".into(),
        wire,
        base_url: base_url.into(),
        key: Secret::new(KEY),
        needs_key: true,
    })
}

/// Runs the task against a fake server and records it.
async fn record(api: Api, wire: Wire, dir: &TempDir) -> (RunTrace, PathBuf) {
    let server = FakeServer::new(api, script(wire)).key(KEY).start().await;
    let file = dir.path().join(format!("{wire}.jsonl"));
    let sources = sources(wire, &format!("http://{}", server.address()));
    let recorder = Recorder::create(&file, sources.secrets()).unwrap();
    let model = open_model("fake/m", &sources.with_recorder(recorder.clone())).unwrap();
    let trace = rig("first\nsecond\n").model(model).delegate().await;
    assert_eq!(recorder.finish().unwrap(), 3, "a stumble, a call, an answer");
    (trace, file)
}

async fn replay(file: &Path, content: &str) -> RunTrace {
    rig(content).model(Arc::new(ReplayModel::load(file).unwrap())).delegate().await
}

/// Returns the recorded events without what differs between two runs.
fn told(trace: &RunTrace) -> Vec<Value> {
    let lasting = |text: String| {
        let ids = regex::Regex::new("(sess|run)_[0-9]{10}_[a-z0-9]{6}").unwrap();
        // The pause before a retry depends on the session id, and the clock is real.
        let pauses = regex::Regex::new("\"(retry_at|expires|deadline)\":[0-9]+").unwrap();
        let text = ids.replace_all(&text, "$1");
        pauses.replace_all(&text.replace(KEY, "[masked:own-key]"), "\"$1\":0").into_owned()
    };
    let json = |event| serde_json::from_str(&lasting(serde_json::to_string(event).unwrap()));
    // A replay has no rate limits, and progress events depend on the clock.
    let lasts = |event: &&Event| !matches!(event, Event::Paused { .. } | Event::Progressed { .. });
    let events = trace.events.iter().map(|(_, event)| event).filter(lasts);
    let mut told: Vec<Value> = events.map(|event| json(event).unwrap()).collect();
    for event in &mut told {
        let fields = event.as_object_mut().unwrap();
        // The path of the tree, and a hash over the ids of the call.
        ["workdir", "hash"].iter().for_each(|field| drop(fields.remove(*field)));
    }
    told
}

#[tokio::test]
async fn recording_is_replayed_without_a_server() {
    let dir = TempDir::new().unwrap();
    for (api, wire) in WIRES {
        let (recorded, file) = record(api, wire, &dir).await;
        assert_eq!(
            recorded.outcome(),
            Outcome::Completed,
            "{wire}: {:?}",
            told(&recorded).iter().rev().take(3).collect::<Vec<_>>()
        );
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(KEY) && text.contains("[masked:own-key]"), "{wire}: {text}");
        assert!(!text.to_lowercase().contains("authorization"), "no headers");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let played = replay(&file, "first\nsecond\n").await;
        let (played, recorded) = (told(&played), told(&recorded));
        for (played, recorded) in played.iter().zip(&recorded) {
            assert_eq!(played, recorded, "{wire}");
        }
        assert_eq!(played.len(), recorded.len(), "{wire}");
    }
}

#[tokio::test]
async fn replay_reports_a_changed_file_as_first_difference() {
    let dir = TempDir::new().unwrap();
    for (api, wire) in [WIRES[0], WIRES[1]] {
        let (_, file) = record(api, wire, &dir).await;
        let played = replay(&file, "first\nSECOND\n").await;
        assert_ne!(played.outcome(), Outcome::Completed);
        let told = serde_json::to_string(&told(&played)).unwrap();
        let place = match wire {
            Wire::Anthropic => "/messages/2/content/0/content",
            Wire::Chat | Wire::Responses | Wire::Gemini => "/messages/3/content",
        };
        let head = "the request of turn 2 for label `look` (agent `scout`, model fake/m) is not \
                    the recorded one: ";
        assert!(told.contains(&format!("{head}{place}, byte ")), "{wire}: {told}");
        assert!(told.contains("second") && told.contains("SECOND"), "both are shown: {told}");
    }
}

#[tokio::test]
async fn truncated_recording_reports_the_missing_turn() {
    let dir = TempDir::new().unwrap();
    let (_, file) = record(Api::Anthropic, Wire::Anthropic, &dir).await;
    let text = fs::read_to_string(&file).unwrap();
    let shorter: Vec<&str> = text.lines().take(4).collect();
    fs::write(&file, shorter.join("\n") + "\n").unwrap();
    let told = serde_json::to_string(&told(&replay(&file, "first\nsecond\n").await)).unwrap();
    assert!(told.contains("the recording has no turn 2 for label `look`"), "{told}");
}

#[tokio::test]
async fn damaged_recording_is_refused_with_its_line() {
    let dir = TempDir::new().unwrap();
    let (_, file) = record(Api::Chat, Wire::Chat, &dir).await;
    let text = fs::read_to_string(&file).unwrap();
    let problem = |content: &str| {
        fs::write(&file, content).unwrap();
        let error = ReplayModel::load(&file).unwrap_err();
        error.to_string().replace(&file.display().to_string(), "FILE")
    };
    let half = &text[..text.floor_char_boundary(text.len() / 2)];
    let line = half.lines().count();
    assert_eq!(
        problem(half),
        format!("FILE:{line}: the line is cut off; the recording is incomplete")
    );
    assert_eq!(problem(""), "FILE:1: the recording ends before any model");
    assert_eq!(problem("hello\n"), "FILE:1: this is not a recording; --record FILE writes one");
    let broken = text.replacen("\"exchange\"", "\"exchanged\"", 1);
    assert!(problem(&broken).starts_with("FILE:3: not a line of a recording: unknown variant"));
    assert_eq!(
        problem(&text.replacen("\"version\":1", "\"version\":2,\"new\":true", 1)),
        "FILE is a recording of version 2; this build reads up to 1"
    );
    // Cut at any byte, it is refused or replays the rest; it never panics.
    for end in (0..text.len()).step_by(61) {
        fs::write(&file, &text.as_bytes()[..end]).unwrap();
        assert_eq!(ReplayModel::load(&file).is_ok(), {
            let whole = text.as_bytes()[..end].ends_with(b"\n");
            whole && text[..end].lines().count() > 1
        });
    }
    let folder = ReplayModel::load(dir.path()).unwrap_err();
    assert!(matches!(folder, ReplayError::NotAFile { .. }), "{folder}");
}

#[test]
fn recording_does_not_overwrite_and_leaves_no_empty_file() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("kept.jsonl");
    fs::write(&file, "mine").unwrap();
    let error = Recorder::create(&file, []).unwrap_err();
    assert!(matches!(error, RecordError::Exists { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let unused = dir.path().join("unused.jsonl");
    drop(Recorder::create(&unused, []).unwrap());
    assert!(!unused.exists());
}
