//! Connections that break in the middle of a reply: the engine retries or returns partial results, and never uses
//! an incomplete reply.
//!
//! `adjutant-model` tests its parsers at every byte. Here every few bytes get their own task, all at the same
//! time, because each retry waits on a real clock.

use adjutant_core::{Event, Outcome};
use adjutant_testkit::fake::{FakeServer, RunningServer, Script, Turn};
use adjutant_testkit::{Rig, RunTrace};
use serde_json::json;

use crate::providers::on_all;

/// An offset beyond the end of every stream.
const ENOUGH: usize = 6_000;
const ANSWER: &str = "Whole: ä🦀";

fn cut(turn: &Turn, at: usize) -> Turn {
    turn.clone().delivered(|way| {
        way.cut_after = Some(at);
        // Aborted, or closed regularly as a proxy does.
        way.cut_cleanly = at.is_multiple_of(2);
    })
}

/// Runs one task for each cut position, all at the same time.
async fn delegate(fake: &RunningServer, places: &[usize]) -> RunTrace {
    let count = places.len() as u64;
    let mut rig = Rig::new().file("a.rs", "fn a() {}\n").model(fake.model()).concurrency(count);
    rig = rig.policy(|policy| {
        policy.tasks_per_call = count;
        (policy.concurrency, policy.concurrency_max) = (count, count);
        (policy.children_per_parent, policy.children_per_run) = (None, None);
        (policy.budget_tokens_run, policy.budget_usd) = (None, None);
    });
    for at in places {
        rig = rig.task(&format!("at-{at}"), &format!("Cut at {at}."));
    }
    rig.delegate().await
}

#[tokio::test]
async fn reply_cut_at_any_byte_is_retried() {
    on_all(async |api| {
        let read = Turn::says("Ä").thinking("Hm.").and_calls("Read", &json!({ "path": "a.rs" }));
        let answer = Turn::says(ANSWER).thinking("Hm.");
        let places: Vec<usize> = (0..ENOUGH).step_by(29).collect();
        let mut script = Script::new();
        for at in &places {
            let turns = [&read, &answer].map(|turn| turn.clone().first(cut(turn, *at)));
            script = script.on(&format!("Cut at {at}."), turns);
        }
        let fake = FakeServer::new(api, script).start().await;
        let trace = delegate(&fake, &places).await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{api:?}: {:?}", trace.ends());
        let failed = trace.kinds().iter().filter(|kind| *kind == "attempt_failed").count();
        assert!(failed > 50 && failed < 2 * places.len(), "{api:?}: {failed} were cut");
        assert_eq!(
            fake.request_count(),
            2 * places.len() + failed,
            "{api:?}: one retry for each cut"
        );
        let texts = trace.events.iter().filter_map(|(_, event)| match event {
            Event::Replied { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let texts: Vec<_> = texts.collect();
        assert_eq!(texts.len(), 2 * places.len(), "{api:?}");
        assert!(texts.iter().all(|text| ["Ä", ANSWER].contains(text)), "{api:?}: {texts:?}");
    })
    .await;
}

#[tokio::test]
async fn connection_that_always_breaks_keeps_the_notes() {
    on_all(async |api| {
        let note = Turn::calls("Note", &json!({ "content": "a.rs holds a function" }));
        let places: Vec<usize> = (0..300).step_by(13).collect();
        let mut script = Script::new();
        for at in &places {
            let turns = [note.clone(), cut(&Turn::says(ANSWER).thinking("Hm."), *at)];
            script = script.on(&format!("Cut at {at}."), turns);
        }
        let fake = FakeServer::new(api, script).start().await;
        let trace = delegate(&fake, &places).await;
        let mut ends = trace.ends();
        let mut expected: Vec<_> =
            places.iter().map(|at| format!("at-{at}: partial PROVIDER_ERROR")).collect();
        ends.sort();
        expected.sort();
        assert_eq!(ends, expected, "{api:?}");
        let attempts = fake.request_count() - places.len();
        assert_eq!(attempts, 3 * places.len(), "{api:?}: three attempts and no more");
    })
    .await;
}
