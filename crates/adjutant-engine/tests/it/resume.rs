//! Resuming after a crash: from any prefix of the journal a run reaches the same end, and repeats nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use adjutant_core::policy::{DelegationTimeout, Operation};
use adjutant_core::{Event, Message, Outcome, Policy};
use adjutant_engine::{ApproverAnswer, ApproverQuestion, EngineError, ResumeRequest};
use adjutant_testkit::{ModelRequest, Rig, RunTrace};

/// Two subagents that read, note and report, in sequence and in parallel.
const PAIR: &str = r#"
    [[turn]]
    label = "left"
    text = "I look."
    [[turn.call]]
    tool = "Read"
    args = { file_path = "map.txt" }
    [[turn.call]]
    tool = "Note"
    args = { note = "left is empty" }
    [[turn]]
    label = "left"
    delay_ms = 300
    text = "nothing here"
    [[turn]]
    label = "right"
    delay_ms = 100
    [[turn.call]]
    tool = "Glob"
    args = { pattern = "*.txt" }
    [[turn]]
    label = "right"
    text = "a map"
"#;

/// A root agent that reads a file and then delegates two tasks.
const LEAD: &str = r#"
    [[turn]]
    agent = "lead"
    [[turn.call]]
    tool = "Read"
    args = { file_path = "map.txt" }
    [[turn]]
    agent = "lead"
    text = "I will ask two."
    [[turn.call]]
    tool = "Delegate"
    args = { tasks = [
        { label = "left", prompt = "Look left" },
        { label = "right", prompt = "Look right" },
    ] }
    [[turn]]
    agent = "lead"
    text = "Together: {{result}}"
    [[turn]]
    label = "left"
    text = "nothing here"
    [[turn]]
    label = "right"
    delay_ms = 200
    [[turn.call]]
    tool = "Note"
    args = { note = "there is a tree" }
    [[turn]]
    label = "right"
    text = "a tree"
"#;

fn pair() -> Rig {
    Rig::new()
        .file("map.txt", "x marks the spot")
        .script(PAIR)
        .task("left", "Look left")
        .task("right", "Look right")
}

fn lead() -> Rig {
    Rig::new().file("map.txt", "x marks the spot").script(LEAD).goal("Where are we?")
}

/// The same as a slash command, whose root agent has a timeout.
fn command() -> Rig {
    let timed = |policy: &mut Policy| policy.timeout_max_s = DelegationTimeout::ByOperation;
    lead().policy(timed).operation(Operation::Research)
}

/// The offsets of all record ends, after each of which a crash is simulated.
fn cuts(journal: &[u8]) -> Vec<usize> {
    let breaks = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    breaks.map(|(at, _)| at + 1).collect()
}

type Turn = (String, u32);

fn by_turn(requests: &[ModelRequest]) -> BTreeMap<Turn, &ModelRequest> {
    requests.iter().map(|request| ((request.label.clone(), request.turn), request)).collect()
}

/// The turns with a reply, by label, which must not be paid again.
fn answered(trace: &RunTrace, events: &[(adjutant_core::Timestamp, Event)]) -> Vec<Turn> {
    let name = |session| trace.label(session).unwrap_or_else(|| "root".to_owned());
    events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Replied { session, turn, .. } => Some((name(*session), *turn)),
            _ => None,
        })
        .collect()
}

/// Cuts the journal of a finished run after every record and resumes from there.
async fn survives(rig: impl Fn() -> Rig) {
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    let journal = disk.bytes();
    let bought = by_turn(&whole.requests);
    let ends = sorted(whole.ends());
    for cut in cuts(&journal) {
        let trace = rig().resume(&journal[..cut], ResumeRequest::default()).await;
        if cut == journal.len() {
            assert!(matches!(trace.result, Err(EngineError::NothingToResume(_))), "{trace:?}");
            continue;
        }
        if trace.recalled == 0 {
            // The opening counts only as a group; without it the run has not started.
            continue;
        }
        assert_eq!(trace.outcome(), whole.outcome(), "cut at {cut}");
        assert_eq!(sorted(trace.ends()), ends, "cut at {cut}");
        let paid = answered(&trace, &trace.events[..trace.recalled]);
        for request in &trace.requests {
            let turn = (request.label.clone(), request.turn);
            assert!(!paid.contains(&turn), "cut at {cut}: {turn:?} was bought twice");
            assert_eq!(request.messages, bought[&turn].messages, "cut at {cut}: {turn:?}");
            assert_eq!(request.system, bought[&turn].system, "cut at {cut}: {turn:?}");
            assert_eq!(request.tools, bought[&turn].tools, "cut at {cut}: {turn:?}");
        }
        let asked: Vec<Turn> = by_turn(&trace.requests).into_keys().collect();
        for turn in bought.keys() {
            assert!(paid.contains(turn) != asked.contains(turn), "cut at {cut}: {turn:?}");
        }
    }
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn subagents_resume_from_any_record_and_no_turn_is_paid_twice() {
    survives(pair).await;
}

#[tokio::test(start_paused = true)]
async fn root_agent_and_subagents_resume_from_any_record() {
    survives(lead).await;
}

#[tokio::test(start_paused = true)]
async fn slash_command_resumes_from_any_record() {
    survives(command).await;
}

/// After a kill during a model call, the call is in the journal for every kind of opening.
#[tokio::test(start_paused = true)]
async fn model_call_starts_only_after_its_group_of_records_is_closed() {
    let untimed = |policy: &mut Policy| policy.timeout_max_s = DelegationTimeout::None;
    let openings = [pair(), lead(), command(), command().policy(untimed)];
    for (nth, rig) in openings.into_iter().enumerate() {
        let (disk, calls) = (rig.disk(), Rc::new(Cell::new(0)));
        let counted = Rc::clone(&calls);
        let trace = rig.on_event(move |event, _| {
            if let Event::Reserved { .. } = event {
                let (journal, last) = (disk.bytes(), "the last record");
                let last =
                    journal.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().expect(last);
                let last: serde_json::Value = serde_json::from_slice(last).expect("a record");
                assert_ne!(last["more"], true, "opening {nth}: {last}");
                counted.set(counted.get() + 1);
            }
        });
        assert_eq!(trace.delegate().await.outcome(), Outcome::Completed, "opening {nth}");
        assert!(calls.get() > 1, "opening {nth}: nothing was looked at");
    }
}

#[tokio::test(start_paused = true)]
async fn resume_asks_open_questions_again_and_answered_ones_not() {
    let first = pair();
    let disk = first.disk();
    let whole = first.delegate().await;
    let journal = disk.bytes();
    let position = |kind: &str| whole.kinds().iter().position(|it| it == kind).unwrap();
    let cut = |kind: &str| cuts(&journal)[position(kind)];
    for (kind, expected) in [("approval_asked", 1), ("approved", 0)] {
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&asked);
        let trace = pair()
            .approver(move |question| {
                let ApproverQuestion::Call { events, .. } = question else {
                    panic!("about a call")
                };
                assert_eq!(events.len(), 3, "two grants and the question");
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                ApproverAnswer::Yes
            })
            .resume(&journal[..cut(kind)], ResumeRequest::default())
            .await;
        assert_eq!(trace.outcome(), Outcome::Completed);
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), expected, "after {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_between_processes_does_not_count_against_the_timeout() {
    let slow = r#"
        [[turn]]
        [[turn.call]]
        tool = "Note"
        args = { note = "begun" }
        [[turn]]
        delay_ms = 5000
        text = "done"
    "#;
    let rig = || {
        let rig = Rig::new().script(slow).task("slow", "Take your time");
        rig.policy(|policy| policy.timeout_s = DelegationTimeout::Seconds(2))
    };
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    assert_eq!(whole.ends(), ["slow: partial TIMEOUT"]);
    let journal = disk.bytes();
    // Cut after the second reservation: two seconds of the timeout are left.
    let nth = whole.kinds().iter().rposition(|kind| kind == "reserved").unwrap();
    let at = whole.events[nth].0;
    let trace = rig().resume(&journal[..cuts(&journal)[nth]], ResumeRequest::default()).await;
    assert_eq!(trace.ends(), ["slow: partial TIMEOUT"]);
    let ended = |(at, event): &(adjutant_core::Timestamp, Event)| {
        matches!(event, Event::Ended { reason: Some(_), .. }).then_some(*at)
    };
    let ended = trace.events.iter().find_map(ended).unwrap();
    assert_eq!(ended.since(at).as_millis(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn timed_out_agent_resumes_with_its_conversation() {
    let script = r#"
        [[turn]]
        label = "quick"
        text = "done"
        [[turn]]
        label = "slow"
        [[turn.call]]
        tool = "Note"
        args = { note = "half of it" }
        [[turn]]
        label = "slow"
        delay_ms = 5000
        text = "all of it"
    "#;
    let rig = || {
        let rig = Rig::new().script(script).task("quick", "Be quick").task("slow", "Be slow");
        rig.policy(|policy| policy.timeout_s = DelegationTimeout::Seconds(2))
    };
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    assert_eq!(sorted(whole.ends()), ["quick: completed", "slow: partial TIMEOUT"]);
    let wish = ResumeRequest { timeout_s: Some(60), ..ResumeRequest::default() };
    let trace = rig().resume(&disk.bytes(), wish).await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let request = trace.single_request();
    assert_eq!((request.label.as_str(), request.turn, request.attempt), ("slow", 2, 2));
    assert_eq!(request.messages, whole.requests.last().unwrap().messages);
}

#[tokio::test(start_paused = true)]
async fn agent_with_a_full_context_resumes_from_its_notes() {
    let script = r#"
        [[turn]]
        [[turn.call]]
        tool = "Note"
        args = { note = "the first half is fine" }
        [[turn]]
        error = "context_exhausted"
        [[turn]]
        text = "the second half is fine too"
    "#;
    let rig = || Rig::new().script(script).task("long", "Read it all");
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    assert_eq!(whole.ends(), ["long: partial CONTEXT_EXHAUSTED"]);
    let say = Some("The end matters most.".to_owned());
    let session = whole.events.iter().find_map(|(_, event)| match event {
        Event::Granted(grant) => Some(grant.session),
        _ => None,
    });
    let trace = rig()
        .resume(&disk.bytes(), ResumeRequest { session, say, ..ResumeRequest::default() })
        .await;
    let [Message::User { content }] = trace.requests[0].messages.as_slice() else {
        panic!("{:?}", trace.requests[0].messages)
    };
    assert!(content.starts_with("Read it all\n"), "{content}");
    assert!(content.contains("the first half is fine"), "{content}");
    assert!(content.ends_with("The end matters most."), "{content}");
}

#[tokio::test(start_paused = true)]
async fn root_agent_resumes_with_a_message() {
    let more = format!("{LEAD}\n[[turn]]\nagent = \"lead\"\ntext = \"And the sky is blue.\"\n");
    let rig = || lead().script(&more);
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    assert_eq!(whole.outcome(), Outcome::Completed);
    let say = Some("What about the sky?".to_owned());
    let trace =
        rig().resume(&disk.bytes(), ResumeRequest { say, ..ResumeRequest::default() }).await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let request = trace.single_request();
    let before = &whole.requests.last().unwrap().messages;
    assert_eq!(request.messages[..before.len()], before[..]);
    assert_eq!(request.messages.last().unwrap().text(), "What about the sky?");
}

/// Runs `rig` and returns its journal up to the last record of a kind, and the whole result.
async fn cut_after(rig: Rig, kind: &str) -> (Vec<u8>, RunTrace) {
    let disk = rig.disk();
    let whole = rig.delegate().await;
    let journal = disk.bytes();
    let nth = whole.kinds().iter().rposition(|it| it == kind).unwrap_or_default();
    assert_eq!(whole.kinds()[nth], kind, "no event of that kind");
    (journal[..cuts(&journal)[nth]].to_vec(), whole)
}

#[tokio::test(start_paused = true)]
async fn message_on_resume_is_in_the_next_request() {
    let (journal, _) = cut_after(lead(), "reserved").await;
    let say = Some("Mind the gap.".to_owned());
    let trace = lead().resume(&journal, ResumeRequest { say, ..ResumeRequest::default() }).await;
    let request = trace.single_request();
    let last = request.messages.last().map(Message::text).unwrap_or_default();
    assert!(last.contains("> Mind the gap."), "{last}");
}

#[tokio::test(start_paused = true)]
async fn invalid_message_on_resume_changes_nothing() {
    let (journal, _) = cut_after(lead(), "reserved").await;
    for text in [String::new(), "x".repeat(1 << 20)] {
        let rig = lead();
        let trace = rig
            .resume(&journal, ResumeRequest { say: Some(text), ..ResumeRequest::default() })
            .await;
        assert!(matches!(trace.result, Err(EngineError::Refused(_))), "{:?}", trace.result);
        assert_eq!(trace.events.len(), trace.recalled);
        assert!(trace.requests.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_run_is_billed_by_the_price_of_its_new_model() {
    let cheap = format!(
        "price = {{ input = 1.0, output = 1.0, cache_read = 0.1, cache_write = 1.0 }}\n{PAIR}"
    );
    let dear = format!(
        "price = {{ input = 100.0, output = 100.0, cache_read = 10.0, cache_write = 100.0 }}\n{PAIR}"
    );
    let (journal, whole) = cut_after(pair().script(&cheap), "reserved").await;
    let wish = ResumeRequest { on_this_model: true, ..ResumeRequest::default() };
    let trace = pair().script(&dear).resume(&journal, wish).await;
    let paid = |events: &[(adjutant_core::Timestamp, Event)]| -> f64 {
        let each = events.iter().rev().find_map(|(_, event)| match event {
            Event::Replied { settlement, .. } => {
                Some(settlement.usd.as_dollars() / settlement.usage.total() as f64)
            }
            _ => None,
        });
        each.unwrap_or_default()
    };
    let (before, after) = (paid(&whole.events), paid(&trace.events[trace.recalled..]));
    assert!(after > 90.0 * before, "{before} and {after} a token");
}
