//! Deadlines, stalls, retries and cancellation, on a paused clock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use adjutant_core::policy::{DelegationTimeout, Operation};
use adjutant_core::{ErrorCode, Event, Outcome, Preset, Timestamp};
use adjutant_engine::{ControlCommand, ResumeRequest};
use adjutant_testkit::Rig;

const FOREVER: &str = "[[turn]]\ndelay_ms = 80000000\ntext = \"too late\"\n";

#[tokio::test(start_paused = true)]
async fn req_20_timed_out_child_is_partial_not_failed() {
    let rig = Rig::new().policy(|policy| policy.timeout_s = DelegationTimeout::Seconds(90));
    let trace = rig.script(FOREVER).task("a", "Think").delegate().await;
    assert_eq!(trace.ends(), ["a: partial TIMEOUT"]);
    let (end, _) = trace.events.last().unwrap();
    assert_eq!(end.as_millis(), 90_000);
}

#[tokio::test(start_paused = true)]
async fn stalled_model_call_is_tried_three_times() {
    let trace = Rig::new().script(FOREVER).task("a", "Think").delegate().await;
    assert_eq!(trace.ends(), ["a: partial STALLED"]);
    assert_eq!(trace.events.last().unwrap().0.as_millis(), 3 * 600_000 + 500 + 1_000);
    let calls = trace.kinds().iter().filter(|kind| *kind == "reserved").count();
    assert_eq!(calls, 3);
}

#[tokio::test(start_paused = true)]
async fn model_call_with_progress_is_not_stalled() {
    let script =
        format!("[[turn]]\ntext_bytes = {}\nchunks = 10\nchunk_delay_ms = 300000\n", 10 * 8192);
    let trace = Rig::new().script(&script).task("a", "Talk").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed, "{:?}", trace.ends());
}

#[tokio::test(start_paused = true)]
async fn transient_error_is_retried_with_a_new_reservation() {
    let script = r#"
        [[turn]]
        error = "overloaded"
        retry_after_ms = 7000
        [[turn]]
        text = "done"
    "#;
    let trace = Rig::new().script(script).task("a", "Try").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    assert_eq!(trace.events.last().unwrap().0.as_millis(), 7_000);
    let attempts: Vec<(u32, u32)> = trace.requests.iter().map(|it| (it.turn, it.attempt)).collect();
    assert_eq!(attempts, [(1, 1), (1, 2)]);
    assert_eq!(trace.kinds().iter().filter(|kind| *kind == "reserved").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn model_call_fails_after_three_attempts() {
    let script = "[[turn]]\nerror = \"rate_limited\"\ntimes = \"forever\"\n";
    let trace = Rig::new().script(script).task("a", "Try").delegate().await;
    assert_eq!(trace.ends(), ["a: failed PROVIDER_ERROR"]);
    assert_eq!(trace.requests.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_run_ends_every_child_and_keeps_partial_results() {
    let script = r#"
        [[turn]]
        label = "quick"
        text = "done"
        [[turn]]
        label = "slow"
        turn = 1
        [[turn.call]]
        tool = "Note"
        args = { content = "half of it" }
        [[turn]]
        label = "slow"
        delay_ms = 80000000
        text = "too late"
    "#;
    let rig = Rig::new().script(script).task("quick", "a").task("slow", "b").task("waiting", "c");
    let trace = rig
        .concurrency(1)
        .on_event(|event, control| {
            if matches!(event, Event::ToolReturned { .. }) {
                control.try_send(ControlCommand::CancelRun).unwrap();
            }
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Cancelled);
    let mut ends = trace.ends();
    ends.sort();
    assert_eq!(
        ends,
        ["quick: completed", "slow: cancelled CANCELLED", "waiting: cancelled CANCELLED"]
    );
}

#[tokio::test(start_paused = true)]
async fn cancelling_one_child_does_not_stop_the_others() {
    let script = r#"
        [[turn]]
        label = "doomed"
        delay_ms = 80000000
        text = "too late"
        [[turn]]
        label = "spared"
        delay_ms = 1000
        text = "done"
    "#;
    let rig = Rig::new().script(script).task("doomed", "a").task("spared", "b");
    let mut doomed = None;
    let trace = rig
        .on_event(move |event, control| match event {
            Event::Granted(grant) if grant.brief.label.as_str() == "doomed" => {
                doomed = Some(grant.session)
            }
            Event::Reserved { session, .. } if Some(*session) != doomed => {
                control.try_send(ControlCommand::Cancel(doomed.unwrap())).unwrap();
            }
            _ => {}
        })
        .delegate()
        .await;
    assert_eq!(trace.ends(), ["doomed: cancelled CANCELLED", "spared: completed"]);
    assert_eq!(trace.outcome(), Outcome::Partial);
}

/// A wall clock that jumps ten years ahead or back with each call.
fn wild_clock() -> u64 {
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    const TEN_YEARS_MS: u64 = 3_653 * 24 * 60 * 60 * 1000;
    let ahead = LOOKS.fetch_add(1, Ordering::Relaxed) % 3;
    1_735_460_684_000 - TEN_YEARS_MS + ahead * TEN_YEARS_MS
}

#[tokio::test(start_paused = true)]
async fn jumping_wall_clock_changes_no_deadline_and_repeats_no_id() {
    let script = r#"
        [[turn]]
        label = "slow"
        delay_ms = 80000000
        text = "too late"
        [[turn]]
        label = "shaky"
        error = "overloaded"
        retry_after_ms = 7000
        [[turn]]
        label = "silent"
        delay_ms = 700000
        text = "too late"
        [[turn]]
        delay_ms = 1000
        text = "done"
    "#;
    let rig = || {
        let rig = Rig::new().policy(|policy| {
            policy.timeout_s = DelegationTimeout::Seconds(90);
            policy.stall_s = Some(60);
        });
        rig.script(script).task("slow", "a").task("shaky", "b").task("silent", "c").task("x", "d")
    };
    let timeline = |trace: &adjutant_testkit::RunTrace| {
        let line = |(at, event): &(adjutant_core::Timestamp, Event)| {
            let deadline = match event {
                Event::Started { deadline, .. } => *deadline,
                Event::AttemptFailed { retry_at, .. } => *retry_at,
                _ => None,
            };
            (*at, deadline)
        };
        trace.events.iter().map(line).collect::<Vec<_>>()
    };
    let (steady, wild) = (rig().delegate().await, rig().wall(wild_clock).delegate().await);
    assert_eq!(timeline(&wild), timeline(&steady));
    assert_eq!((wild.kinds(), wild.ends()), (steady.kinds(), steady.ends()));
    let granted = wild.events.iter().filter_map(|(_, event)| match event {
        Event::Granted(grant) => Some(grant.session),
        _ => None,
    });
    let ids: Vec<_> = granted.collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4, "{ids:?}");
}

#[test]
fn age_of_a_live_run_is_at_most_the_time_it_was_locked() {
    let dir = tempfile::tempdir().unwrap();
    let home = adjutant_store::StateDir::open(dir.path()).unwrap();
    let run = home.create_run(adjutant_core::RunId::new(1_735_460_684, [0; 6])).unwrap();
    let _lock = run.lock().unwrap();
    let files = adjutant_engine::Archive::open(dir.path()).unwrap().runs().unwrap().pop().unwrap();
    let since = files.since(0);
    assert!(since < 60_000, "the clock was set ahead by fifty years: {since} ms");
    assert_eq!(files.since(u64::MAX), 0, "the clock was set back");
}

#[tokio::test(start_paused = true)]
async fn root_agent_gets_the_longest_timeout_of_its_operation_also_on_resume() {
    let rig = || {
        let rig = Rig::new().preset(Preset::Command).policy(|policy| policy.stall_s = None);
        rig.operation(Operation::Simple).script(FOREVER).goal("Think")
    };
    let first = rig();
    let disk = first.disk();
    let trace = first.delegate().await;
    assert_eq!(trace.outcome(), Outcome::Partial);
    let ends = |trace: &adjutant_testkit::RunTrace| -> Vec<(u64, ErrorCode)> {
        let end = |(at, event): &(Timestamp, Event)| match event {
            Event::Ended { reason: Some(reason), .. } => Some((at.as_millis(), reason.code)),
            _ => None,
        };
        trace.events.iter().filter_map(end).collect()
    };
    assert_eq!(ends(&trace), [(600_000, ErrorCode::Timeout)]);
    let trace = rig().resume(&disk.bytes(), ResumeRequest::default()).await;
    assert_eq!(ends(&trace), [(600_000, ErrorCode::Timeout), (1_200_000, ErrorCode::Timeout)]);
}
