//! In one conversation, each request repeats the bytes of the previous one and only appends to its messages, on every
//! API. Otherwise no provider could use its cache. Real clock, because the servers are on loopback.

use adjutant_core::policy::ContractKind;
use adjutant_core::{Event, Outcome};
use adjutant_engine::ResumeRequest;
use adjutant_model::Model;
use adjutant_testkit::Rig;
use adjutant_testkit::fake::{Api, Call, FakeServer, Part, RunningServer, Script, Turn};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::providers::on_all;

/// Anthropic's cache marker. The one on the last message moves on with every turn.
const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// A conversation that an agent has with a server.
struct Scenario {
    name: &'static str,
    turns: Vec<Turn>,
    rig: fn(Rig) -> Rig,
    outcome: Outcome,
}

fn read(number: usize) -> Value {
    json!({ "path": format!("{number}.txt") })
}

/// Twenty turns: single and parallel calls, thinking, calls that are answered with an error, and calls that have to be
/// repaired in the history because no API would accept them there.
fn twenty_turns() -> Vec<Turn> {
    let call = |name: &str, id: &str| {
        let (name, raw, id) = (name.into(), Some(read(1).to_string()), Some(id.into()));
        Part::Call(Call { name, raw, id, ..Call::default() })
    };
    let turn = |number: usize| match number % 5 {
        0 => Turn::says("Wörter → 🦀").and_calls("Read", &read(number)),
        1 => Turn::calls("Read", &read(number)).thinking("Hm."),
        2 => Turn::calls("Read", &read(number)).and_calls("Grep", &json!({ "pattern": "x" })),
        3 => {
            let id = format!("id_{number}");
            Turn::default().then(call("", &id)).then(call("Read it!", &id))
        }
        _ => Turn::calls("Read", &json!({ "path": "missing", "limit": "many" })),
    };
    (1..20).map(turn).chain([Turn::says("Done.")]).collect()
}

/// Two returns that the contract refuses, as a call and as text, and one that it accepts.
fn repairs() -> Vec<Turn> {
    let sound = json!({
        "status": "completed", "summary": "Read it. All is well.", "artifacts": [], "errors": [],
    });
    vec![
        Turn::calls("Read", &read(1)),
        Turn::calls("Return", &json!({ "status": "finished" })).thinking("Done?"),
        Turn::says("I am done, and this is not JSON."),
        Turn::calls("Return", &sound),
    ]
}

const SHORT: &str = "---\nname: short\ndescription: Has few turns.\nmaxTurns: 3\n---\nBe quick.\n";

fn scenarios() -> [Scenario; 3] {
    [
        Scenario {
            name: "twenty turns",
            turns: twenty_turns(),
            rig: |rig| rig,
            outcome: Outcome::Completed,
        },
        Scenario {
            name: "a repair",
            turns: repairs(),
            rig: |rig| rig.policy(|policy| policy.contract = ContractKind::Standard),
            outcome: Outcome::Completed,
        },
        Scenario {
            // In the last turn, the agent has to report and may not call tools.
            name: "a last turn without tools",
            turns: vec![
                Turn::calls("Read", &read(1)),
                Turn::calls("Read", &read(2)),
                Turn::says("Done."),
            ],
            rig: |rig| rig.file(".claude/agents/short.md", SHORT).default_agent("short"),
            outcome: Outcome::Partial,
        },
    ]
}

impl Scenario {
    async fn serve(&self, api: Api) -> RunningServer {
        FakeServer::new(api, Script::always(self.turns.clone())).start().await
    }

    fn rig(&self, model: Arc<dyn Model>) -> Rig {
        let rig = (1..20).fold(Rig::new(), |rig, number| {
            rig.file(&format!("{number}.txt"), &format!("x is {number}\n"))
        });
        (self.rig)(rig.model(model).task("look", "Look"))
    }
}

/// Returns the bodies of all requests, which the server must have accepted.
fn bodies(fake: &RunningServer) -> Vec<String> {
    let body = |request: adjutant_testkit::fake::RecordedRequest| {
        assert_eq!(request.complaint, None, "{:?}", fake.api());
        String::from_utf8(request.body).unwrap_or_default()
    };
    fake.requests().into_iter().map(body).collect()
}

/// Checks that a request repeats the previous one up to the end of its messages.
fn assert_extends(about: &str, api: Api, previous: &str, next: &str) {
    let (previous, next) = (previous.replace(MARKER, ""), next.replace(MARKER, ""));
    let same = previous.bytes().zip(next.bytes()).take_while(|(old, new)| old == new).count();
    // Everything may differ after the brackets that close the last message and the list of messages.
    let rest = previous[same..].trim_start_matches(['}', ']']);
    let after_messages: &[&str] = match api {
        Api::Anthropic => &[r#","max_tokens":"#],
        Api::Chat => &[r#","max_tokens":"#],
        Api::Responses => &[r#","max_output_tokens":"#],
        Api::Gemini => &[r#","toolConfig":"#, r#","generationConfig":"#],
    };
    assert!(
        after_messages.iter().any(|field| rest.starts_with(field)),
        "{about}, {api:?}: changed from\n{}\nto\n{}",
        &previous[same.saturating_sub(80)..],
        &next[same.saturating_sub(80)..],
    );
}

#[tokio::test]
async fn each_request_only_appends_to_the_previous_one() {
    for scenario in &scenarios() {
        on_all(async |api| {
            let fake = scenario.serve(api).await;
            let trace = scenario.rig(fake.model()).delegate().await;
            let (about, bodies) = (scenario.name, bodies(&fake));
            assert_eq!(trace.outcome(), scenario.outcome, "{about}, {api:?}: {:?}", trace.ends());
            assert_eq!(bodies.len(), scenario.turns.len(), "{about}, {api:?}");
            for pair in bodies.windows(2) {
                assert_extends(about, api, &pair[0], &pair[1]);
            }
            for body in &bodies {
                let markers = if api == Api::Anthropic { 2 } else { 0 };
                assert_eq!(body.matches(MARKER).count(), markers, "{about}, {api:?}: {body}");
                for field in ["response_format", "output_config", r#""text":{"format""#] {
                    assert!(!body.contains(field), "{about}, {api:?}: {body}");
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn resumed_conversation_appends_to_the_requests_of_the_first_process() {
    for scenario in &scenarios() {
        on_all(async |api| {
            let fake = scenario.serve(api).await;
            let first = scenario.rig(fake.model());
            let disk = first.disk();
            assert_eq!(first.delegate().await.outcome(), scenario.outcome);
            let (about, journal, before) = (scenario.name, disk.bytes(), bodies(&fake));
            let breaks = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let cuts: Vec<usize> = breaks.map(|(at, _)| at + 1).collect();
            let mut resumed = 0;
            for &cut in cuts.iter().step_by(cuts.len().div_ceil(16)) {
                let fake = scenario.serve(api).await;
                let rig = scenario.rig(fake.model());
                let trace = rig.resume(&journal[..cut], ResumeRequest::default()).await;
                let past = &trace.events[..trace.recalled];
                let is_reply = |event: &Event| matches!(event, Event::Replied { .. });
                let replies = past.iter().filter(|(_, event)| is_reply(event)).count();
                let after = bodies(&fake);
                if replies == 0 || after.is_empty() {
                    continue;
                }
                assert_eq!(trace.outcome(), scenario.outcome, "{about}, {api:?}");
                let all = before[replies - 1..replies].iter().chain(&after);
                for (previous, next) in all.clone().zip(all.skip(1)) {
                    assert_extends(about, api, previous, next);
                }
                resumed += 1;
            }
            assert!(resumed > 3, "{about}, {api:?}: {resumed}");
        })
        .await;
    }
}
