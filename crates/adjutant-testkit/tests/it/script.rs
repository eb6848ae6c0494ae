//! Which turn a request gets.

use adjutant_testkit::fake::{Api, FakeServer, FaultClass, Part, Script, Stop, Turn, Usage};
use serde_json::json;

use crate::rig::{Client, Request, changed, hello};

const TOML: &str = r#"
delay_ms = 20

[usage]
input = 100
output = 10

[[conversation]]
when = "alpha"

[[conversation.turn]]
parts = [
    { thinking = "Let me look." },
    { text = "I will read." },
    { call = { name = "Read", arguments = { path = "a.txt", deep = { list = [1, 2.5, true] } } } },
    { call = { name = "", raw = "{\"pa", id = "twice" } },
]
stop = "length"
fragment = [3, 5]
escape = true
noise = true
usage = { input = 1, cache_read = 2, cache_write = 3, output = 4, thinking = 1 }
delivery = { chunks = [1], cut_after = 10, garbage = { at = 3, bytes = [255] } }
first = [{ error = { class = "rate_limited", retry_after_ms = "250" } }, { delivery = { hang_up = true } }]

[[conversation]]
repeat_last = true
turn = [{ parts = [{ text = "Anything." }] }]
"#;

#[test]
fn a_script_is_toml() {
    let script = Script::from_toml(TOML).unwrap();
    let turn = &script.conversations[0].turns[0];
    assert_eq!(turn.parts.len(), 4);
    assert_eq!(turn.parts[0], Part::Thinking("Let me look.".into()));
    assert_eq!(turn.stop(), Stop::Length);
    assert_eq!(turn.usage.unwrap().all_input(), 6);
    assert_eq!(turn.first[0].error.as_ref().unwrap().class, FaultClass::RateLimited);
    assert_eq!(turn.delivery.garbage.as_ref().unwrap().bytes, [255]);
    assert!(script.conversations[1].repeat_last);
    assert_eq!(script.usage, Some(Usage { input: 100, output: 10, ..Usage::default() }));
}

#[test]
fn unknown_keys_and_values_of_a_script_are_errors() {
    for text in [
        "colour = 1",
        "[[conversation]]\nwhom = 'a'",
        "[[conversation]]\nturn = [{ part = [] }]",
        "[[conversation]]\nturn = [{ parts = [{ song = 'a' }] }]",
        "[[conversation]]\nturn = [{ stop = 'never' }]",
        "[[conversation]]\nturn = [{ error = { class = 'bad luck' } }]",
        "[[conversation]]\nturn = [{ delivery = { cut = 1 } }]",
        "[[conversation]]\nturn = [{ usage = { tokens = 1 } }]",
    ] {
        assert!(Script::from_toml(text).is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_system_prompt_and_the_first_message_choose_the_conversation() {
    let script = Script::new()
        .on("You are beta", [Turn::says("b")])
        .on("Hello", [Turn::says("h")])
        .on("", [Turn::says("else")]);
    let fake = FakeServer::chat(script).start().await;
    let mut client = Client::connect(&fake).await;
    let beta = changed(Api::Chat, |body| body["messages"][0]["content"] = json!("You are beta."));
    let other = changed(Api::Chat, |body| body["messages"][1]["content"] = json!("Bye"));
    for body in [hello(Api::Chat), beta, other] {
        client.send(&Request::new(Api::Chat, &body)).await;
    }
    let whens: Vec<_> = fake.requests().into_iter().map(|request| request.when.unwrap()).collect();
    assert_eq!(whens, ["Hello", "You are beta", ""]);
}

#[tokio::test(start_paused = true)]
async fn the_first_attempts_of_a_turn_can_fail() {
    let flaky = Turn::says("At last.")
        .first(Turn::fails(FaultClass::Overloaded))
        .first(Turn::fails(FaultClass::RateLimited));
    let fake = FakeServer::anthropic(Script::always([flaky])).start().await;
    let mut client = Client::connect(&fake).await;
    let request = Request::new(Api::Anthropic, &hello(Api::Anthropic));
    let other = changed(Api::Anthropic, |body| body["messages"][0]["content"] = json!("Bye"));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(client.send(&request).await.status);
    }
    statuses.push(client.send(&Request::new(Api::Anthropic, &other)).await.status);
    assert_eq!(statuses, [529, 429, 200, 200, 529], "another task has attempts of its own");
    assert_eq!(fake.requests()[3].attempt, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_scripted_turn_is_an_error() {
    for (script, why) in [
        (Script::new(), "the script has no conversation for this request"),
        (Script::new().on("alpha", []), "the script has no turn 0 for `alpha`"),
    ] {
        let fake = FakeServer::responses(script).start().await;
        let request = Request::new(Api::Responses, &hello(Api::Responses));
        let answer = Client::connect(&fake).await.send(&request).await;
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(why)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_turn_can_repeat() {
    let mut script = Script::always([Turn::says("Again.")]);
    script.conversations[0].repeat_last = true;
    let fake = FakeServer::chat(script).start().await;
    let later = changed(Api::Chat, |body| {
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({ "role": "assistant", "content": "Again." }));
        messages.push(json!({ "role": "user", "content": "And?" }));
    });
    let answer = Client::connect(&fake).await.send(&Request::new(Api::Chat, &later)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(fake.single_request().turn, Some(1));
}
