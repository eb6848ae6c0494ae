//! The course of a turn that fails on purpose.

use adjutant_core::{AttemptError, ModelErrorKind, StopReason};

use crate::rig::{Child, script};

async fn failure(toml: &str) -> AttemptError {
    Child::new("any").try_turn(&script(toml)).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn every_class_of_error_can_be_scripted() {
    for (word, kind) in [
        ("context_exhausted", ModelErrorKind::ContextExhausted),
        ("rate_limited", ModelErrorKind::RateLimited),
        ("overloaded", ModelErrorKind::Overloaded),
        ("authentication", ModelErrorKind::Authentication),
        ("bad_request", ModelErrorKind::BadRequest),
        ("refused", ModelErrorKind::Refused),
        ("network", ModelErrorKind::Network),
        ("truncated", ModelErrorKind::Truncated),
        ("idle", ModelErrorKind::Idle),
    ] {
        let error = failure(&format!("[[turn]]\nerror = '{word}'")).await;
        assert_eq!(error.kind, kind);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_carries_its_message_and_wait() {
    let error =
        failure("[[turn]]\nerror = 'rate_limited'\nmessage = 'slow down'\nretry_after_ms = 250")
            .await;
    assert_eq!(error.to_string(), "rate limited: slow down");
    assert_eq!(error.retry_after_ms, Some(250));
}

#[tokio::test(start_paused = true)]
async fn an_error_costs_nothing_only_if_the_script_says_that_the_call_never_began() {
    assert!(!failure("[[turn]]\nerror = 'overloaded'").await.never_began);
    let script = "[[turn]]\nerror = 'overloaded'\nnever_began = true";
    assert!(failure(script).await.never_began);
}

#[tokio::test(start_paused = true)]
async fn a_scripted_stream_can_break_off_after_some_text() {
    let model = script("[[turn]]\ntext = 'half an ans'\nchunks = 2\nerror = 'truncated'");
    let mut child = Child::new("any");
    assert_eq!(child.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::Truncated);
    assert_eq!(child.progress, ["half ", "an ans"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_the_window_is_a_context_exhausted_error() {
    let model = script("window = 1000\n[[turn]]\ntext = 'on'\ntimes = 'forever'");
    let mut child = Child::new("any");
    child.told("read", &"x".repeat(3974));
    assert_eq!(child.context_tokens(), 1000);
    child.ask(&model).await;
    child.told("read", "more");
    let error = child.try_turn(&model).await.unwrap_err();
    insta::assert_snapshot!(error, @"context exhausted: the request has about 1002 tokens, the window holds 1000");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_uses_up_its_turn() {
    let model = script("turn = [{ error = 'context_exhausted' }, { text = 'after' }]");
    let mut child = Child { attempt: 2, ..Child::new("any") };
    assert_eq!(child.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::ContextExhausted);
    child.turn = 2;
    assert_eq!(child.try_turn(&model).await.unwrap().text, "after");
}

#[tokio::test(start_paused = true)]
async fn a_script_can_truncate_or_refuse_an_answer() {
    for (word, stop) in [("max_output", StopReason::MaxOutput), ("refused", StopReason::Refused)] {
        let model = script(&format!("[[turn]]\ntext = 'x'\nstop = '{word}'"));
        assert_eq!(Child::new("any").try_turn(&model).await.unwrap().stop, stop);
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the script asks for a panic at script:inline:1")]
async fn a_scripted_panic_panics() {
    let _ = Child::new("any").try_turn(&script("[[turn]]\npanic = true")).await;
}
