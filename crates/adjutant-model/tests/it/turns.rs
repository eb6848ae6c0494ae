//! The course of a turn that succeeds: calls, usage, pace, size.

use std::time::Duration;

use adjutant_core::{StopReason, Usage};
use adjutant_model::{Model, ScriptedModel, estimate};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rig::{Child, script};

async fn only_turn(toml: &str) -> adjutant_core::ModelReply {
    Child::new("any").try_turn(&script(toml)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn calls_get_ids_and_stop_the_turn_for_their_results() {
    let reply = only_turn(
        r#"
        [[turn]]
        [[turn.call]]
        tool = "Glob"
        [[turn.call]]
        tool = "Read"
        args = { path = "a" }
        id = "mine"
        "#,
    )
    .await;
    assert_eq!(reply.stop, StopReason::ToolUse);
    let calls: Vec<_> = reply.tool_calls.iter().map(|c| (c.id.as_str(), c.name.as_str())).collect();
    assert_eq!(calls, [("call_1_1", "Glob"), ("mine", "Read")]);
    assert_eq!(reply.tool_calls[0].arguments, json!({}));
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_invalid_json_are_marked_and_kept() {
    let reply = only_turn(
        r#"
        [[turn]]
        call = [{ tool = "Read", raw_args = "{not json" }, { tool = "Read", raw_args = "[1]" }]
        "#,
    )
    .await;
    let [broken, sound] = &reply.tool_calls[..] else { panic!("{reply:?}") };
    assert_eq!((&broken.arguments, broken.malformed), (&Value::from("{not json"), true));
    assert_eq!((&sound.arguments, sound.malformed), (&json!([1]), false));
}

#[tokio::test(start_paused = true)]
async fn times_repeats_one_call_a_thousand_times() {
    let reply = only_turn(r#"turn = [{ call = [{ tool = "Read", times = 1000 }] }]"#).await;
    assert_eq!(reply.tool_calls.len(), 1000);
    assert_eq!(reply.tool_calls[999].id, "call_1_1000");
}

#[tokio::test(start_paused = true)]
async fn usage_is_estimated_given_or_missing() {
    let cases = [
        ("", Some(Usage { input: 7, output: 2, ..Usage::default() })),
        (
            "usage = { input = 5, output = 6, cache_read = 7 }",
            Some(Usage { input: 5, output: 6, cache_read: 7, cache_write: 0 }),
        ),
        ("usage = \"none\"", None),
    ];
    for (line, expected) in cases {
        let reply = only_turn(&format!("[[turn]]\ntext = \"12345\"\n{line}")).await;
        assert_eq!(reply.usage, expected, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn estimated_usage_follows_the_bytes_of_the_conversation() {
    let model = script("[[turn]]\ntext = 'x'\ntimes = 2");
    let mut child = Child::new("any");
    let first = child.ask(&model).await.usage.unwrap().input;
    child.told("read", &"y".repeat(4000));
    let second = child.ask(&model).await.usage.unwrap().input;
    assert_eq!(second, first + 1000);
    assert_eq!(estimate::tokens(1), 1);
}

#[tokio::test(start_paused = true)]
async fn delays_pass_on_the_paused_clock() {
    let model = script(
        "delay_ms = 40\n[[turn]]\ntext = 'default'\n[[turn]]\ntext = 'own'\ndelay_ms = 60000",
    );
    let mut child = Child::new("any");
    let start = Instant::now();
    child.ask(&model).await;
    assert_eq!(start.elapsed(), Duration::from_millis(40));
    child.ask(&model).await;
    assert_eq!(start.elapsed(), Duration::from_millis(60_040));
}

#[tokio::test(start_paused = true)]
async fn the_pieces_of_a_streamed_text_make_up_the_whole() {
    let model = script("[[turn]]\ntext = 'aäbcdéfghi'\nchunks = 4\nchunk_delay_ms = 100");
    let mut child = Child::new("any");
    let start = Instant::now();
    let reply = child.try_turn(&model).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(300));
    assert_eq!(child.progress, ["aä", "bcd", "éf", "ghi"]);
    assert_eq!(child.progress.concat(), reply.text);
}

#[tokio::test(start_paused = true)]
async fn more_pieces_than_bytes_lose_no_text() {
    let model = script("[[turn]]\ntext = 'äb'\nchunks = 50");
    let mut child = Child::new("any");
    child.try_turn(&model).await.unwrap();
    assert_eq!(child.progress.concat(), "äb");
}

#[tokio::test(start_paused = true)]
async fn tool_calls_are_reported_as_progress_too() {
    let model = script(r#"turn = [{ call = [{ tool = "Read", args = { path = "a" } }] }]"#);
    let mut child = Child::new("any");
    child.try_turn(&model).await.unwrap();
    assert_eq!(child.progress, ["16 bytes"]);
}

#[tokio::test(start_paused = true)]
async fn text_bytes_sets_the_length_of_a_text() {
    let reply = only_turn("[[turn]]\ntext_bytes = 10485760").await;
    assert_eq!(reply.text.len(), 10_485_760);
    assert_eq!(reply.usage.unwrap().output, 2_621_440);
    let reply = only_turn("[[turn]]\ntext = 'äöü'\ntext_bytes = 9").await;
    assert_eq!(reply.text, "äöüä ");
    let reply = only_turn("[[turn]]\ntext = 'cut here'\ntext_bytes = 3").await;
    assert_eq!(reply.text, "cut");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_turn_cancels_it() {
    let model = script("[[turn]]\ntext = 'late'\ndelay_ms = 1000");
    let mut child = Child::new("any");
    let turn = tokio::time::timeout(Duration::from_millis(10), child.try_turn(&model));
    assert!(turn.await.is_err());
    assert_eq!(child.progress, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_json_script_equals_its_toml_form() {
    let json = ScriptedModel::from_json(
        r#"{ "window": 9000,
             "turn": [ { "label": "any", "text": "{{prompt | lines}} \u00e9",
                         "call": [ { "tool": "Read", "args": { "path": null, "n": [1.5] } } ] } ] }"#,
    )
    .unwrap();
    let reply = Child::new("any").try_turn(&json).await.unwrap();
    assert_eq!(reply.text, "2 é");
    assert_eq!(reply.tool_calls[0].arguments, json!({ "path": null, "n": [1.5] }));
    assert_eq!(json.spec().window, 9000);
}

#[test]
fn a_scripted_model_can_be_a_trait_object() {
    let model: std::sync::Arc<dyn Model> = std::sync::Arc::new(script("[[turn]]\ntext = ''"));
    assert_eq!(model.spec().name, "script:inline");
}
