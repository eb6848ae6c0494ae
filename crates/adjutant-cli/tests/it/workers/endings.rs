//! How the work of a worker ends: its model calls decide, not what it says.

use std::net::TcpListener;

use adjutant_testkit::fake::{Api, FaultClass, Script, Stop, Turn};
use serde_json::{Value, json};

use super::site::{WorkerSite, call, done, prompts, worker_section};

/// Runs steps against a provider that answers each call with `turn`, and returns the end.
#[track_caller]
fn end_with(turn: Turn, steps: Value, flags: &[&str]) -> (WorkerSite, String) {
    let site = WorkerSite::with(Api::Chat, Script::always([turn]));
    let run = site.run(&prompts([steps]), flags);
    site.assert_settled_once();
    site.rig().assert_unharmed();
    (site, run.end())
}

#[test]
fn a_turn_after_a_cut_answer_is_not_completed() {
    let cut = Turn::says("half of it").stopping(Stop::Length);
    let (_site, end) = end_with(cut, json!([call(), done()]), &[]);
    insta::assert_snapshot!(end, @"
    partial
    BUDGET_EXCEEDED: The last answer was cut off at 200 output tokens.
    Ask for less at once, or start the run again with a larger max_output_tokens.
    ");
}

#[test]
fn a_turn_after_a_failed_call_is_not_completed() {
    let (_site, end) = end_with(Turn::fails(FaultClass::Server), json!([call(), done()]), &[]);
    insta::assert_snapshot!(end, @"
    partial
    PROVIDER_ERROR: The last model call of the worker failed: provider overloaded: HTTP 500, server_error: The server had an error while processing your request. Sorry about that!.
    Try again later, or use another model.
    ");
}

#[test]
fn a_call_that_succeeds_after_a_failed_one_makes_the_turn_count() {
    let once = Turn::says("ok").first(Turn::fails(FaultClass::Overloaded));
    let (_site, end) = end_with(once, json!([call(), call(), done()]), &[]);
    assert_eq!(end, "completed");
}

#[test]
fn a_turn_after_a_broken_stream_is_not_completed_and_is_paid_at_its_reservation() {
    let broken = Turn::says("some words").fragmented(&[2]).delivered(|it| it.cut_after = Some(300));
    let (site, end) = end_with(broken, json!([call(), done()]), &[]);
    insta::assert_snapshot!(end, @"
    partial
    PROVIDER_ERROR: The last model call of the worker failed: incomplete answer: the connection broke before the answer's end.
    Try again later, or use another model.
    ");
    assert_paid_as_reserved(&site);
}

#[test]
fn a_stream_without_usage_is_paid_at_its_reservation() {
    let turn = Turn { no_usage: true, ..Turn::says("ok") };
    let (site, end) = end_with(turn, json!([call(), done()]), &[]);
    assert_eq!(end, "completed");
    assert_paid_as_reserved(&site);
}

#[track_caller]
fn assert_paid_as_reserved(site: &WorkerSite) {
    let reserved = &site.events("worker_call_reserved")[0]["amount"];
    let settled = site.events("worker_call_settled");
    let settled = settled.iter().find(|event| event["call"] == 1).unwrap();
    assert_eq!(settled["settlement"]["estimated"], true, "{settled}");
    assert_eq!(settled["settlement"]["usd"], reserved["usd"], "{settled}");
}

#[test]
fn a_provider_that_cannot_be_reached_is_named_and_costs_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let site = WorkerSite::new();
    let section = worker_section("chat", &prompts([json!([call(), done()])]));
    site.configure(&section, &format!("http://{free}"), "chat");
    let run = super::site::WorkerRun::read(site.delegate(&[]).run());
    insta::assert_snapshot!(run.end().replace(&free.to_string(), "$ADDRESS"), @"
    partial
    PROVIDER_ERROR: The last model call of the worker failed: network error: cannot connect to $ADDRESS; is the server running?.
    Try again later, or use another model.
    ");
    let settled = &site.events("worker_call_settled")[0]["settlement"];
    assert_eq!(settled["usd"], 0.0, "{settled}");
}

#[test]
fn a_turn_without_a_model_call_is_not_completed() {
    let (_site, end) = end_with(Turn::says("ok"), json!([done()]), &[]);
    insta::assert_snapshot!(end, @"
    failed
    TOOL_UNAVAILABLE: The worker ended its turn without an answer from its model.
    `adjutant log` shows what it did; `adjutant workers` says what each worker needs.
    ");
}

#[test]
fn twenty_refused_or_failed_calls_in_a_row_end_the_worker() {
    let other = json!({"call_models_at_once": {"times": 25, "call": {"model": "other"}}});
    let steps = json!([call(), other, "sleep_until_cancelled"]);
    let (site, end) = end_with(Turn::says("ok"), steps, &[]);
    insta::assert_snapshot!(end, @"
    partial
    PROVIDER_ERROR: 20 model calls of the worker in a row were refused or failed; the last one: model other is not allowed here.
    `adjutant log` lists the calls; correct what the last one names, then resume.
    ");
    assert_eq!(site.events("worker_call_refused").len(), 20);
    let failing = Turn::fails(FaultClass::Server);
    let again: Vec<Value> = (0..25).map(|_| call()).collect();
    let (site, end) = end_with(failing, Value::from(again), &[]);
    insta::assert_snapshot!(end, @"
    partial
    PROVIDER_ERROR: 20 model calls of the worker in a row were refused or failed; the last one: provider overloaded: HTTP 500, server_error: The server had an error while processing your request. Sorry about that!.
    `adjutant log` lists the calls; correct what the last one names, then resume.
    ");
    assert_eq!(site.provider.requests().len(), 20);
}

#[test]
fn a_provider_that_asks_to_wait_does_not_make_the_worker_wait() {
    let (site, _) = end_with(
        Turn::fails(FaultClass::RateLimited),
        json!([call(), {"say": "Calls: {calls}"}]),
        &[],
    );
    let said = site.events("worker_acted").pop().unwrap();
    // Agents repeat a call without end after 429.
    assert!(said["text"].as_str().unwrap().contains("\"status\":503"), "{said}");
}

#[test]
fn an_abandoned_call_is_paid_at_its_reservation() {
    let slow =
        Turn::says("many words here").fragmented(&[1]).delivered(|it| it.event_delay_ms = 30);
    let abandoned =
        json!({"call_model": {"max_tokens": 200, "text": "slow", "abandon_after": 200}});
    let site =
        WorkerSite::with(Api::Chat, Script::new().on("slow", [slow]).on("", [Turn::says("ok")]));
    let run = site.run(&prompts([json!([abandoned, call(), done()])]), &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert_paid_as_reserved(&site);
    let ends = site.events("worker_call_settled");
    assert!(ends.iter().any(|event| event["how"] == "abandoned" && event["call"] == 1), "{ends:?}");
    site.assert_settled_once();
}
