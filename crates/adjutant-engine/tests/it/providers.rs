//! The engine with real clients against strict fake servers of the four APIs, over loopback.
//!
//! These tests use a real clock, because the sockets do not follow tokio's paused clock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adjutant_core::{Event, Outcome, Usage};
use adjutant_engine::ControlCommand;
use adjutant_model::Model;
use adjutant_testkit::fake::{
    self, Api, Call, FakeServer, Fault, FaultClass, Part, RunningServer, Script, Turn,
};
use adjutant_testkit::{Rig, RunTrace};
use serde_json::json;

fn rig(model: Arc<dyn Model>) -> Rig {
    Rig::new().file("a.rs", "fn a() {}\n").file("b.rs", "fn b() {}\n").model(model)
}

async fn start(api: Api, script: Script) -> RunningServer {
    FakeServer::new(api, script).start().await
}

fn read(path: &str) -> Turn {
    Turn::calls("Read", &json!({ "path": path }))
}

/// Runs `work` on all four APIs at the same time and returns the results.
pub(crate) async fn on_all<T>(work: impl AsyncFn(Api) -> T) -> Vec<(Api, T)> {
    let one = async |api: Api| (api, work(api).await);
    let [a, b, c, d] = Api::ALL;
    let (a, b, c, d) = tokio::join!(one(a), one(b), one(c), one(d));
    vec![a, b, c, d]
}

/// Returns the last text of each task, in the order of the tasks.
fn reports(trace: &RunTrace) -> Vec<(String, String)> {
    let mut reports: Vec<(String, String)> = Vec::new();
    for (_, event) in &trace.events {
        let Event::Replied { session, text, .. } = event else { continue };
        let label = trace.label(*session).unwrap_or_else(|| "root".to_owned());
        match reports.iter_mut().find(|(of, _)| *of == label) {
            Some((_, last)) => text.clone_into(last),
            None => reports.push((label, text.clone())),
        }
    }
    reports.sort();
    reports
}

fn bill(trace: &RunTrace) -> Usage {
    let settled = trace.events.iter().filter_map(|(_, event)| match event {
        Event::Replied { settlement, .. } => {
            assert!(!settlement.estimated, "the provider said what it used");
            Some(settlement.usage)
        }
        _ => None,
    });
    settled.sum()
}

/// Returns the tool results that are errors of the engine.
fn refusals(trace: &RunTrace) -> Vec<&str> {
    let texts = trace.events.iter().filter_map(|(_, event)| match event {
        Event::ToolRefused { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn accepted(fake: &RunningServer) {
    for request in fake.requests() {
        assert_eq!(request.complaint, None, "{:?}", fake.api());
    }
}

const fn used(input: u64, cache_read: u64, output: u64) -> fake::Usage {
    fake::Usage { input, cache_read, cache_write: 0, output, thinking: 1 }
}

const USED: [fake::Usage; 5] = [
    used(1_000, 0, 20),
    used(120, 1_000, 30),
    used(900, 0, 40),
    used(50, 900, 50),
    used(800, 0, 60),
];

fn task_script() -> Script {
    let both = read("a.rs").and_calls("Read", &json!({ "path": "b.rs" })).thinking("Both.");
    Script::new()
        .on("Check auth", [both.using(USED[0]), Turn::says("Auth is fine: ä🦀").using(USED[1])])
        .on(
            "Check docs",
            [
                read("missing.md").fragmented(&[3]).using(USED[2]),
                Turn::says("No docs.").thinking("Sad.").using(USED[3]),
            ],
        )
        .on("Check luck", [Turn::says("I am lucky.").using(USED[4])])
}

/// The task file that `tests/foreign` also runs against third-party servers.
const TASKS: &str = include_str!("../../../../tests/foreign/tasks.json");

fn tasks(rig: Rig) -> Rig {
    // An invalid task file gives no tasks, which fails the tests.
    let file: serde_json::Value = serde_json::from_str(TASKS).unwrap_or_default();
    let tasks = file["tasks"].as_array().into_iter().flatten();
    tasks.fold(rig, |rig, task| {
        let word = |name: &str| task[name].as_str().unwrap_or_default();
        rig.task(word("label"), word("prompt"))
    })
}

#[tokio::test]
async fn same_tasks_run_on_every_api() {
    let expected: u64 = USED.iter().map(|used| used.all_input() + used.output).sum();
    let told = on_all(async |api| {
        let fake = start(api, task_script()).await;
        let trace = tasks(rig(fake.model())).delegate().await;
        accepted(&fake);
        assert_eq!(fake.request_count(), 5, "{api:?}");
        assert!(fake.connections() <= 3, "{api:?}: one connection for each child at most");
        let bill = bill(&trace);
        assert_eq!(bill.total(), expected, "{api:?}: the bill is the sum of what was reported");
        assert_eq!(bill.cache_read, 1_900, "{api:?}");
        let mut ends = trace.ends();
        ends.sort();
        (trace.outcome(), ends, reports(&trace))
    })
    .await;
    let (_, first) = &told[0];
    assert_eq!(first.0, Outcome::Completed);
    assert_eq!(first.1, ["auth: completed", "docs: completed", "luck: completed"]);
    assert_eq!(first.2[0], ("auth".to_owned(), "Auth is fine: ä🦀".to_owned()));
    for (api, told) in &told {
        assert_eq!(told, first, "{api:?}");
    }
}

#[tokio::test]
async fn root_agent_delegates_two_tasks_on_every_api() {
    let told = on_all(async |api| {
        let delegate = Turn::says("I will ask two.").thinking("Two are enough.").and_calls(
            "Delegate",
            &json!({ "tasks": [
                { "label": "auth", "prompt": "Check auth" },
                { "label": "docs", "prompt": "Check docs" },
            ] }),
        );
        let lead = [delegate.using(USED[4]), Turn::says("All is well.").using(USED[4])];
        let mut script = task_script();
        script.conversations.insert(
            0,
            fake::Conversation {
                when: "You lead.".into(),
                turns: lead.to_vec(),
                repeat_last: false,
            },
        );
        let fake = start(api, script).await;
        let trace = rig(fake.model()).goal("Is all well?").delegate().await;
        accepted(&fake);
        let expected: u64 = USED.iter().map(|used| used.all_input() + used.output).sum();
        let again = USED[4].all_input() + USED[4].output;
        assert_eq!(bill(&trace).total(), expected + again, "{api:?}");
        let last = fake.requests().pop().unwrap();
        let body = String::from_utf8(last.body).unwrap();
        assert!(body.contains(r"auth: completed\ndocs: completed"), "{api:?}: {body}");
        (trace.outcome(), reports(&trace))
    })
    .await;
    let (_, first) = &told[0];
    assert_eq!(first.0, Outcome::Completed);
    let root = ("root".to_owned(), "All is well.".to_owned());
    assert!(first.1.contains(&root), "{first:?}");
    for (api, told) in &told {
        assert_eq!(told, first, "{api:?}");
    }
}

/// Delegates one task to a model with these turns.
async fn alone(api: Api, turns: impl IntoIterator<Item = Turn>) -> (RunningServer, RunTrace) {
    let fake = start(api, Script::always(turns)).await;
    let trace = rig(fake.model()).task("look", "Look").delegate().await;
    (fake, trace)
}

#[tokio::test]
async fn empty_reply_of_a_provider_is_retried_and_then_fails() {
    on_all(async |api| {
        let (fake, trace) = alone(api, [Turn::default(), Turn::says("Here.")]).await;
        accepted(&fake);
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        let (fake, trace) = alone(api, vec![Turn::default(); 5]).await;
        accepted(&fake);
        assert_eq!(trace.ends(), ["look: failed VALIDATION_FAILED"], "{api:?}");
        assert_eq!(fake.request_count(), 3, "{api:?}");
    })
    .await;
}

#[tokio::test]
async fn invalid_tool_calls_are_returned_to_the_model() {
    on_all(async |api| {
        let call = |name: &str, raw: &str, id: &str| {
            let (name, raw, id) = (name.into(), Some(raw.into()), Some(id.into()));
            Part::Call(Call { name, raw, id, ..Call::default() })
        };
        let deep = format!(r#"{{"path":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        // On these APIs arguments are part of an event, so garbage makes the event invalid.
        let garbage = if api == Api::Gemini { r#"["a.rs"]"# } else { r#"{"path": "a.r"# };
        let turn = Turn::default()
            .then(call("", r#"{"path":"a.rs"}"#, "one"))
            .then(call("Read", r#"{"path":"a.rs"}"#, "two"))
            .then(call("Read", r#"{"path":"b.rs"}"#, "two"))
            .then(call("Read", garbage, "three"))
            .then(call("Read", &deep, "four"))
            .then(call("Read", r#"{"path":"a.rs","path":"b.rs"}"#, "five"))
            .then(call("rm -rf /", r#"{"path":"b.rs"}"#, "six"));
        let (fake, trace) = alone(api, [turn, Turn::says("I see.")]).await;
        accepted(&fake);
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        let refusals = refusals(&trace);
        let expected = [
            "names no tool",
            "used twice",
            "not valid JSON",
            "not valid JSON",
            "the key `path` occurs twice in one object at line 1 column 21 of the arguments",
            "rm -rf",
        ];
        assert_eq!(refusals.len(), expected.len(), "{api:?}: {refusals:?}");
        for (said, part) in refusals.iter().zip(expected) {
            assert!(said.contains(part), "{api:?}: {said}");
        }
    })
    .await;
}

#[tokio::test]
async fn thousand_tool_calls_in_one_turn_are_all_answered() {
    on_all(async |api| {
        let mut turn = Turn::default();
        for number in 0..1_000 {
            turn = turn.and_calls("Read", &json!({ "path": format!("f{number}") }));
        }
        let (fake, trace) = alone(api, [turn, Turn::says("Enough.")]).await;
        accepted(&fake);
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        assert_eq!(refusals(&trace).len(), 936, "{api:?}");
    })
    .await;
}

#[tokio::test]
async fn endless_arguments_are_an_error_and_do_not_exhaust_memory() {
    for api in Api::ALL {
        // Sent as bytes in the middle of a string, so that the test itself needs little memory.
        let endless = fake::Garbage { at: 5_000, bytes: vec![b'a'; 50 << 20] };
        let turn = read(&"a".repeat(8_000)).delivered(|way| way.garbage = Some(endless));
        let start = Instant::now();
        let (fake, trace) = alone(api, [turn]).await;
        assert_eq!(trace.ends(), ["look: failed PROVIDER_ERROR"], "{api:?}");
        assert_eq!(fake.request_count(), 1, "{api:?}: trying again would not help");
        assert!(start.elapsed() < Duration::from_secs(10), "{api:?}");
    }
}

#[tokio::test]
async fn broken_connection_is_retried_and_then_returns_partial() {
    on_all(async |api| {
        let broken = || Turn::says("Half an answer.").delivered(|way| way.cut_after = Some(200));
        let mended = Turn::says("Whole.").first(broken());
        let (fake, trace) = alone(api, [read("a.rs"), mended]).await;
        accepted(&fake);
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        assert_eq!(fake.request_count(), 3, "{api:?}");

        let garbage = fake::Garbage { at: 60, bytes: b"\n\ndata: {{{\n\n".to_vec() };
        let garbled = Turn::says("Hi.").delivered(|way| way.garbage = Some(garbage));
        let (fake, trace) = alone(api, [garbled]).await;
        assert_eq!(trace.ends(), ["look: failed PROVIDER_ERROR"], "{api:?}");
        assert_eq!(fake.request_count(), 3, "{api:?}: three attempts and no more");

        let note = Turn::calls("Note", &json!({ "content": "a.rs holds a function" }));
        let (fake, trace) = alone(api, [note, broken()]).await;
        assert_eq!(trace.ends(), ["look: partial PROVIDER_ERROR"], "{api:?}");
        assert_eq!(fake.request_count(), 4, "{api:?}");
    })
    .await;
}

#[tokio::test]
async fn each_provider_failure_has_its_outcome() {
    on_all(async |api| {
        for (class, end) in [
            (FaultClass::ContextLength, "look: partial CONTEXT_EXHAUSTED"),
            (FaultClass::Auth, "look: failed PROVIDER_ERROR"),
            (FaultClass::BadRequest, "look: failed PROVIDER_ERROR"),
            (FaultClass::Refused, "look: failed PROVIDER_ERROR"),
        ] {
            let (fake, trace) = alone(api, [Turn::fails(class)]).await;
            assert_eq!(trace.ends(), [end], "{api:?} {class:?}");
            assert_eq!(fake.request_count(), 1, "{api:?} {class:?}: trying again would not help");
        }
    })
    .await;
}

#[tokio::test]
async fn eight_children_share_one_rate_limit_pause() {
    on_all(async |api| {
        let fault = Fault {
            class: FaultClass::RateLimited,
            retry_after_ms: Some("400".into()),
            ..Fault::default()
        };
        let limited = Turn { error: Some(fault), ..Turn::default() };
        let mut script = Script::new().on("Task 0", [Turn::says("Done.").first(limited)]);
        for number in 1..8 {
            // The first replies announce the rate limit; the second turns must wait.
            let first = read("a.rs").delivered(|way| way.delay_ms = 100);
            script = script.on(&format!("Task {number}"), [first, Turn::says("Done.")]);
        }
        let fake = start(api, script).await;
        let mut rig = rig(fake.model()).concurrency(8);
        rig = rig.policy(|policy| policy.concurrency_max = 8);
        for number in 0..8 {
            rig = rig.task(&format!("t{number}"), &format!("Task {number}"));
        }
        let began = Instant::now();
        let window = async {
            fake.wait_for_requests(8).await;
            fake.wait_for_requests(9).await;
            began.elapsed()
        };
        let (trace, second) = tokio::join!(rig.delegate(), window);
        accepted_or_limited(&fake);
        assert_eq!(trace.outcome(), Outcome::Completed, "{api:?}: {:?}", trace.ends());
        assert!(second >= Duration::from_millis(400), "{api:?}: the ninth came after {second:?}");
        assert_eq!(fake.request_count(), 16, "{api:?}: eight, then eight");
        let failed = trace.kinds().iter().filter(|kind| *kind == "attempt_failed").count();
        assert_eq!(failed, 1, "{api:?}: only one was told to wait");
        let held = trace.kinds().iter().filter(|kind| *kind == "paused").count();
        assert!(held >= 7, "{api:?}: the others say why they wait, {held} did");
    })
    .await;
}

fn accepted_or_limited(fake: &RunningServer) {
    let odd = fake.requests().into_iter().find(|request| ![200, 429].contains(&request.status));
    assert!(odd.is_none(), "{odd:?}");
}

#[tokio::test]
async fn cancelled_child_closes_its_connection_at_once() {
    on_all(async |api| {
        let text = "word ".repeat(2_000);
        let stalls = Turn::says(&text).fragmented(&[500]);
        let stalls = stalls.delivered(|way| way.stall_after = Some(8_000));
        let fake = start(api, Script::always([stalls])).await;
        let cancelled = Rc::new(Cell::new(None));
        let at = Rc::clone(&cancelled);
        let rig = rig(fake.model()).task("look", "Look").on_event(move |event, control| {
            if matches!(event, Event::Progressed { .. }) && at.get().is_none() {
                at.set(Some(Instant::now()));
                control.try_send(ControlCommand::CancelRun).unwrap();
            }
        });
        let (trace, ()) = tokio::join!(rig.delegate(), async {
            fake.wait_for_requests(1).await;
            fake.wait_until_closed().await;
            let took = cancelled.get().map(|at: Instant| at.elapsed());
            assert!(
                took.is_some_and(|took| took < Duration::from_millis(100)),
                "{api:?}: {took:?}"
            );
        });
        assert_eq!(trace.ends().len(), 1, "{api:?}: {:?}", trace.ends());
    })
    .await;
}

#[tokio::test]
async fn rate_limited_attempts_cost_nothing() {
    on_all(async |api| {
        let fault = || Fault {
            class: FaultClass::RateLimited,
            retry_after_ms: Some("1".into()),
            ..Fault::default()
        };
        let limited = || Turn { error: Some(fault()), ..Turn::default() };
        let answer = Turn::says("Done.").using(used(300, 0, 38));
        let (fake, trace) = alone(api, [answer.first(limited()).first(limited())]).await;
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        assert_eq!(fake.request_count(), 3, "{api:?}");
        let settled: Vec<(bool, u64)> = trace
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::AttemptFailed { settlement, .. } | Event::Replied { settlement, .. } => {
                    Some((settlement.estimated, settlement.usage.total()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(settled, [(false, 0), (false, 0), (false, 338)], "{api:?}");
    })
    .await;
}

#[tokio::test]
async fn stalled_attempt_is_aborted_and_retried() {
    on_all(async |api| {
        let stalls = Turn::says("Half an answer.").delivered(|way| way.stall_after = Some(100));
        let script = Script::always([Turn::says("Whole.").first(stalls)]);
        let fake = start(api, script).await;
        let rig = rig(fake.model()).policy(|policy| policy.stall_s = Some(1));
        let trace = rig.task("look", "Look").delegate().await;
        assert_eq!(trace.ends(), ["look: completed"], "{api:?}");
        assert_eq!(fake.request_count(), 2, "{api:?}");
        let left = fake.requests()[0].delivered;
        assert_ne!(left, Some(fake::DeliveryOutcome::Whole), "{api:?}: {left:?}");
    })
    .await;
}
