//! How bytes travel: pieces, cuts, stalls, garbage, delays.

use std::time::Duration;

use adjutant_testkit::fake::{
    Api, Delivery, DeliveryOutcome, FakeServer, Garbage, RecordedRequest, Script, Turn,
};
use serde_json::json;
use tokio::time::Instant;

use crate::rig::{APIS, Answer, Client, Request, ask, hello};

fn turn() -> Turn {
    Turn::says("Grüße, 世界 🌍!").and_calls("Read", &json!({ "path": "ä/🌍.txt" })).thinking("Hm…")
}

async fn delivered(api: Api, change: impl FnOnce(&mut Delivery)) -> Answer {
    ask(api, Script::always([turn().delivered(change)]), &hello(api)).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_sent_byte_by_byte_is_the_same() {
    for api in APIS {
        let plain = delivered(api, |_| {}).await;
        assert!(plain.whole && plain.chunks.len() > 3);
        let slow = delivered(api, |how| how.chunks = vec![1]).await;
        assert_eq!(slow.body, plain.body);
        assert_eq!(slow.chunks, vec![1; plain.body.len()]);
        let odd = delivered(api, |how| how.chunks = vec![7, 0, 13]).await;
        assert_eq!(odd.body, plain.body);
        assert_eq!(odd.chunks[..3], [7, 13, 7]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_at_any_byte_ends_there_and_closes_the_connection() {
    for api in APIS {
        // Short: each byte costs a connection.
        let turn = || Turn::says("ä🌍");
        let plain = ask(api, Script::always([turn()]), &hello(api)).await.body;
        let cuts = (0..plain.len()).map(|end| turn().delivered(|how| how.cut_after = Some(end)));
        let script = Script::always([cuts.fold(turn(), Turn::first)]);
        let fake = FakeServer::new(api, script).start().await;
        let request = Request::new(api, &hello(api));
        for end in 0..plain.len() {
            let answer = Client::connect(&fake).await.send(&request).await;
            assert!(!answer.whole);
            assert_eq!(answer.body, plain[..end]);
        }
        let cut = |request: &RecordedRequest| request.delivered == Some(DeliveryOutcome::Cut);
        assert!(fake.requests().iter().all(cut));
        let answer = Client::connect(&fake).await.send(&request).await;
        assert!(answer.whole && answer.body == plain);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_cut_looks_like_the_end_of_the_stream() {
    for api in APIS {
        let plain = delivered(api, |_| {}).await.body;
        for end in [0, plain.len() / 2, plain.len() - 1] {
            let cut = turn().delivered(|how| {
                how.cut_after = Some(end);
                how.cut_cleanly = true;
            });
            let fake = FakeServer::new(api, Script::always([cut])).start().await;
            let mut client = Client::connect(&fake).await;
            let answer = client.send(&Request::new(api, &hello(api))).await;
            assert!(answer.whole, "a proxy ends a cut body as if it were whole");
            assert_eq!(answer.body, plain[..end]);
            let again = client.send(&Request::new(api, &hello(api))).await;
            assert!(again.whole, "and keeps the connection");
        }
        let whole = delivered(api, |how| how.cut_after = Some(plain.len())).await;
        assert!(whole.whole, "there is nothing to cut off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_lasts_until_the_client_leaves() {
    for api in APIS {
        let stalling = turn().delivered(|how| how.stall_after = Some(40));
        let fake = FakeServer::new(api, Script::always([stalling])).start().await;
        let mut client = Client::connect(&fake).await;
        client.write(&Request::new(api, &hello(api)).bytes()).await;
        let stuck = tokio::time::timeout(Duration::from_secs(3600), client.answer()).await;
        assert!(stuck.is_err(), "an hour later it is still silent");
        assert_eq!(fake.single_request().delivered, None);
        drop(client);
        fake.wait_until_closed().await;
        assert_eq!(fake.single_request().delivered, Some(DeliveryOutcome::Left));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_a_delay_is_noticed() {
    let fake = FakeServer::chat(Script::always([turn()]).delayed(1_000_000)).start().await;
    let mut client = Client::connect(&fake).await;
    client.write(&Request::new(Api::Chat, &hello(Api::Chat)).bytes()).await;
    fake.wait_for_requests(1).await;
    let left = Instant::now();
    drop(client);
    fake.wait_until_closed().await;
    assert!(left.elapsed() < Duration::from_secs(1));
    assert_eq!(fake.single_request().delivered, Some(DeliveryOutcome::Left));
}

#[tokio::test(start_paused = true)]
async fn garbage_is_inserted_at_the_given_byte() {
    let plain = delivered(Api::Chat, |_| {}).await.body;
    let bytes = vec![0xff, 0, b'\n', b'x'];
    let garbage = Garbage { at: 10, bytes: bytes.clone() };
    let spoilt = delivered(Api::Chat, |how| how.garbage = Some(garbage)).await;
    assert_eq!(spoilt.body, [&plain[..10], &bytes, &plain[10..]].concat());
    assert!(spoilt.whole);
}

#[tokio::test(start_paused = true)]
async fn delays_take_the_configured_time() {
    let start = Instant::now();
    delivered(Api::Gemini, |how| how.delay_ms = 250).await;
    assert_eq!(start.elapsed().as_millis() / 10, 25);

    let start = Instant::now();
    let answer = delivered(Api::Chat, |how| how.event_delay_ms = 1000).await;
    assert_eq!(start.elapsed().as_secs(), answer.chunks.len() as u64 - 1);

    let start = Instant::now();
    let drip = |how: &mut Delivery| (how.chunks, how.chunk_delay_ms) = (vec![100], 1000);
    let answer = delivered(Api::Anthropic, drip).await;
    assert_eq!(start.elapsed().as_secs(), answer.chunks.len() as u64 - 1);
}

#[tokio::test(start_paused = true)]
async fn a_scripted_server_can_hang_up_or_send_a_raw_answer() {
    for api in APIS {
        let answer = delivered(api, |how| how.hang_up = true).await;
        assert_eq!((answer.status, answer.whole), (0, false));
    }
    let html = Turn {
        answer: Some(adjutant_testkit::fake::RawAnswer {
            headers: vec![("content-type".into(), "text/html".into())],
            body: "<html>It works!</html>".into(),
            ..Default::default()
        }),
        ..Turn::default()
    };
    let answer = ask(Api::Chat, Script::always([html]), &hello(Api::Chat)).await;
    assert_eq!(answer.header("content-type"), Some("text/html"));
    assert_eq!(answer.text(), "<html>It works!</html>");
}
