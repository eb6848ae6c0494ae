//! Streams that are slow, silent, broken or no longer wanted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adjutant_core::ModelErrorKind;
use adjutant_model::{HttpTimeouts, Model, open_model};
use adjutant_testkit::fake::{
    Api, DeliveryOutcome, Fault, FaultClass, Garbage, RunningServer, Turn,
};
use serde_json::json;

use super::{Agent, serve};

/// How long the longest silence is; far above a slow stream's pauses, far below a test's patience.
const IDLE: Duration = Duration::from_millis(150);

fn impatient(fake: &RunningServer) -> Arc<dyn Model> {
    let timeouts = HttpTimeouts { idle: IDLE, ..HttpTimeouts::default() };
    open_model(fake.api().model(), &fake.sources().with_timeouts(timeouts)).unwrap()
}

#[tokio::test]
async fn dropping_a_turn_closes_its_connection_at_once() {
    for api in Api::ALL {
        let stalled = Turn::says("Half an answer.").delivered(|way| way.stall_after = Some(60));
        let silent = Turn::says("Late.").delivered(|way| way.delay_ms = 60_000);
        for turn in [stalled, silent] {
            let fake = serve(api, [turn]).await;
            let mut agent = Agent::new(fake.model(), 1);
            {
                let turn = agent.attempt();
                tokio::pin!(turn);
                tokio::select! {
                    reply = &mut turn => panic!("{api:?} answered: {reply:?}"),
                    () = fake.wait_for_requests(1) => {}
                }
            }
            let dropped = Instant::now();
            fake.wait_until_closed().await;
            let took = dropped.elapsed();
            assert!(took < Duration::from_millis(100), "{api:?} took {took:?}");
            assert_eq!(fake.single_request().delivered, Some(DeliveryOutcome::Left), "{api:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_stream_ends_as_idle_and_a_slow_one_does_not() {
    let one = |api: Api| async move {
        let silent = Turn::says("Hi.").delivered(|way| way.delay_ms = 60_000);
        let fake = serve(api, [silent]).await;
        let error = Agent::new(impatient(&fake), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Idle, "{api:?}: {error}");
        fake.wait_until_closed().await;

        let stalled = Turn::says("Half an answer.").delivered(|way| way.stall_after = Some(100));
        let fake = serve(api, [stalled]).await;
        let error = Agent::new(impatient(&fake), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Idle, "{api:?}: {error}");

        // Longer than the patience as a whole, but never silent for so long.
        let slow = Turn::says("Slow but sure.").fragmented(&[2]);
        let slow = slow.delivered(|way| way.event_delay_ms = 30);
        let fake = serve(api, [slow]).await;
        let start = Instant::now();
        assert_eq!(Agent::new(impatient(&fake), 1).ask().await.text, "Slow but sure.", "{api:?}");
        assert!(start.elapsed() > IDLE, "{api:?}");
    };
    tokio::join!(one(Api::Anthropic), one(Api::Chat), one(Api::Responses), one(Api::Gemini));
}

#[tokio::test]
async fn a_server_that_hangs_up_or_is_down_is_a_network_error() {
    for api in Api::ALL {
        let fake = serve(api, [Turn::says("Hi.").delivered(|way| way.hang_up = true)]).await;
        let model = fake.model();
        let error = Agent::new(Arc::clone(&model), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{api:?}: {error}");
        fake.shutdown().await;
        let error = Agent::new(model, 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{api:?}: {error}");
    }
}

#[tokio::test]
async fn garbage_inside_an_event_is_a_broken_stream() {
    for api in Api::ALL {
        for bytes in [&b"\x00\xff"[..], b"\n\ndata: not json\n\n", b"\n\ndata: {\n\n"] {
            let garbage = Some(Garbage { at: 40, bytes: bytes.to_vec() });
            let turn = Turn::says("Hi.").delivered(|way| way.garbage = garbage);
            let fake = serve(api, [turn]).await;
            let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Truncated, "{api:?} {bytes:?}: {error}");
        }
    }
}

#[tokio::test]
async fn arguments_that_are_invalid_json_or_too_deep_are_marked_as_malformed() {
    use adjutant_testkit::fake::{Call, Part};
    for api in Api::ALL {
        let deep = format!(r#"{{"path":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        let mut raws = vec![deep];
        // Here arguments are part of the event, so that garbage breaks the event itself.
        if api != Api::Gemini {
            raws.push(r#"{"path": "#.to_owned());
            raws.push("Read the file, please".to_owned());
        }
        for raw in raws {
            let call = Call { name: "Read".into(), raw: Some(raw), ..Call::default() };
            let fake =
                serve(api, [Turn::default().then(Part::Call(call)), Turn::says("Ok.")]).await;
            let mut agent = Agent::new(fake.model(), 1);
            let reply = agent.ask().await;
            assert!(reply.tool_calls[0].malformed, "{api:?}");
            agent.answer(&reply);
            assert_eq!(agent.ask().await.text, "Ok.", "{api:?}");
        }
    }
}

#[tokio::test]
async fn a_thousand_calls_in_one_turn_are_read_and_answered() {
    for api in Api::ALL {
        let mut turn = Turn::default();
        for number in 0..1_000 {
            turn = turn.and_calls("Read", &json!({ "path": format!("file {number}") }));
        }
        let fake = serve(api, [turn, Turn::says("Done.")]).await;
        let mut agent = Agent::new(fake.model(), 1);
        let reply = agent.ask().await;
        assert_eq!(reply.tool_calls.len(), 1_000, "{api:?}");
        assert_eq!(reply.tool_calls[999].arguments["path"], "file 999", "{api:?}");
        agent.answer(&reply);
        assert_eq!(agent.ask().await.text, "Done.", "{api:?}");
    }
}

#[tokio::test]
async fn after_a_rate_limit_no_session_of_the_provider_sends_before_the_delay_ends() {
    for api in Api::ALL {
        let pause = Duration::from_millis(200);
        let fault = Fault {
            class: FaultClass::RateLimited,
            retry_after_ms: Some("200".into()),
            ..Fault::default()
        };
        let limited = Turn { error: Some(fault), ..Turn::default() };
        let fake = serve(api, [Turn::says("Hi.").first(limited)]).await;
        let sources = fake.sources();
        let open = || open_model(api.model(), &sources).unwrap();
        let mut told = Agent::new(open(), 1);
        assert_eq!(told.attempt().await.unwrap_err().kind, ModelErrorKind::RateLimited);
        let heard = Instant::now();
        // Other sessions, even with their own client, and the one that got the rate limit.
        let mut others: Vec<Agent> = (2..=8).map(|number| Agent::new(open(), number)).collect();
        for other in &mut others {
            other.messages.clone_from(&told.messages);
        }
        others.push(told);
        let mut waiting = tokio::task::JoinSet::new();
        for mut other in others {
            waiting.spawn(async move { other.attempt().await });
        }
        fake.wait_for_requests(2).await;
        assert!(heard.elapsed() >= pause, "{api:?}: {:?}", heard.elapsed());
        while let Some(reply) = waiting.join_next().await {
            assert_eq!(reply.unwrap().unwrap().text, "Hi.", "{api:?}");
        }
        assert_eq!(fake.request_count(), 9, "{api:?}: one refused, then each once");
    }
}
