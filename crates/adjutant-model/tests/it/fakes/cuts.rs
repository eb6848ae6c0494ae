//! One stream per API, cut at every ninth byte and at every one of the last: never an answer.
//!
//! The readers alone are tried at every byte in `streams`; here the connection is cut as well.

use adjutant_core::{ModelErrorKind, StopReason};
use adjutant_testkit::fake::{Api, Turn};
use serde_json::json;

use super::{Agent, serve};

/// Longer than any of the streams.
const ENOUGH: usize = 10_000;
/// The bytes before the end that are tried one by one; the end events lie within them.
const LAST: usize = 200;

/// Asks again and again, each time with a stream that is cut a little later, until one is whole.
async fn first_answer(api: Api, cleanly: bool, cuts: impl Iterator<Item = usize>) -> usize {
    let whole = || Turn::says("Ä 🦀").thinking("Hm.").and_calls("Read", &json!({ "path": "日本" }));
    let cut = |at: usize| {
        whole().delivered(|way| {
            way.cut_after = Some(at);
            way.cut_cleanly = cleanly;
        })
    };
    let cuts: Vec<usize> = cuts.collect();
    let mut turn = whole();
    turn.first = cuts.iter().copied().map(cut).collect();
    let fake = serve(api, [turn]).await;
    let mut agent = Agent::new(fake.model(), 1);
    for at in cuts {
        match agent.attempt().await {
            Err(error) => {
                assert_eq!(error.kind, ModelErrorKind::Truncated, "{api:?} at {at}: {error}")
            }
            Ok(reply) => {
                assert_eq!((reply.stop, reply.text.as_str()), (StopReason::ToolUse, "Ä 🦀"));
                return at;
            }
        }
    }
    panic!("{api:?} never answered")
}

#[tokio::test]
async fn a_stream_that_ends_early_at_any_byte_is_never_an_answer() {
    for api in Api::ALL {
        let mut lengths = Vec::new();
        // Torn connections, and bodies that a proxy ends as if they were whole.
        for cleanly in [false, true] {
            let about = first_answer(api, cleanly, (0..ENOUGH).step_by(9)).await;
            lengths.push(first_answer(api, cleanly, about - LAST..=about).await);
        }
        assert_eq!(lengths[0], lengths[1], "{api:?}: only the whole stream is an answer");
        assert!(lengths[0] > 300, "{api:?} has {} bytes", lengths[0]);
    }
}
