//! A disk that fills up: the run records its end while there is space, and makes no model call whose reply could
//! not be recorded.
#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

use adjutant_core::{Event, Outcome};
use adjutant_engine::{EngineError, ResumeRequest};
use adjutant_store::{JournalError, JournalPosition, JournalReader, MemoryDisk};
use adjutant_testkit::{Rig, RunTrace};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

/// Reads a file, then reports.
const SCRIPT: &str = r#"
    [[turn]]
    [[turn.call]]
    tool = "Note"
    args = { content = "half of it" }
    [[turn]]
    [[turn.call]]
    tool = "Read"
    args = { path = "long.txt" }
    [[turn]]
    text = "done"
"#;

fn rig() -> Rig {
    let long = "a line that is neither short nor long\n".repeat(2_000);
    Rig::new().script(SCRIPT).file("long.txt", &long).task("a", "Look").task("b", "Look")
}

/// Returns the recorded events after checking that they are complete and fold without errors.
fn recorded(disk: &MemoryDisk, trace: &RunTrace) -> Vec<Event> {
    let run = trace.events.iter().find_map(|(_, event)| match event {
        Event::RunStarted { run, .. } => Some(*run),
        _ => None,
    });
    let bytes = disk.bytes();
    let reader = JournalReader::new(bytes.as_slice(), JournalPosition::start(run.unwrap()));
    reader.map(|record| record.unwrap().event).collect()
}

#[tokio::test(start_paused = true)]
async fn with_any_free_space_the_run_ends_with_an_outcome_or_does_not_start() {
    let whole = {
        let rig = rig();
        let disk = rig.disk();
        assert_eq!(rig.delegate().await.outcome(), Outcome::Completed);
        disk.bytes().len()
    };
    let (mut unbegun, mut full, mut completed) = (0, 0, 0);
    for capacity in (0..whole + 200_000).step_by(3_001) {
        let rig = rig();
        let disk = rig.disk();
        disk.set_capacity(Some(capacity));
        let trace = rig.delegate().await;
        match &trace.result {
            Err(EngineError::Journal(JournalError::DiskFull(_))) => {
                unbegun += 1;
                assert!(trace.events.is_empty() && disk.bytes().is_empty(), "{capacity}");
                assert!(trace.requests.is_empty(), "{capacity}");
                continue;
            }
            Err(error) => panic!("{capacity}: {error}"),
            Ok(finished) if finished.outcome == Outcome::Completed => completed += 1,
            Ok(finished) => {
                full += 1;
                assert_eq!(finished.outcome, Outcome::Partial, "{capacity}");
                let ends = trace.ends();
                let known = |end: &String| {
                    end.ends_with(": completed") || end.ends_with(": partial DISK_FULL")
                };
                assert!(ends.iter().all(known), "{capacity}: {ends:?}");
            }
        }
        let events = recorded(&disk, &trace);
        assert!(matches!(events.last(), Some(Event::RunEnded { .. })), "{capacity}");
        let told: Vec<&Event> = trace.events.iter().map(|(_, event)| event).collect();
        assert_eq!(events.iter().collect::<Vec<_>>(), told, "{capacity}");
        // Every model call has a reply or was settled.
        let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
        let answered = count(|event| matches!(event, Event::Replied { .. }));
        let closed = count(|event| matches!(event, Event::Settled { .. }));
        let asked = trace.requests.len();
        assert!((answered..=answered + closed).contains(&asked), "{capacity}: {asked} requests");
    }
    assert!(unbegun > 0 && full > 10 && completed > 10, "{unbegun} {full} {completed}");
}

const CHILDREN: [&str; 4] = ["a", "b", "c", "d"];

/// Children whose turns end at different times, so that one fills the disk while others wait for their models.
fn staggered() -> Rig {
    let mut script = r#"
        [[turn]]
        agent = "lead"
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [{ label = "a", prompt = "Look" }, { label = "b", prompt = "Look" },
            { label = "c", prompt = "Look" }, { label = "d", prompt = "Look" }] }
        [[turn]]
        agent = "lead"
        text = "all done"
    "#
    .to_owned();
    for (label, delay) in CHILDREN.iter().zip([100, 170, 240, 310]) {
        script += &format!(
            r#"
            [[turn]]
            label = "{label}"
            delay_ms = {delay}
            [[turn.call]]
            tool = "Read"
            args = {{ path = "long.txt", limit = 300 }}
            [[turn]]
            label = "{label}"
            delay_ms = {delay}
            text = "I look once more."
            [[turn.call]]
            tool = "Note"
            args = {{ content = "half of it" }}
            [[turn.call]]
            tool = "Read"
            args = {{ path = "long.txt" }}
            [[turn]]
            label = "{label}"
            delay_ms = {delay}
            text = "done"
            "#
        );
    }
    let long = "a line that is neither short nor long\n".repeat(1_000);
    let rig = Rig::new().script(&script).file("long.txt", &long);
    rig.policy(|policy| policy.concurrency = 4)
}

fn of_a_person() -> Rig {
    CHILDREN.iter().fold(staggered(), |rig, label| rig.task(label, "Look"))
}

fn of_a_lead() -> Rig {
    staggered().goal("Look")
}

#[tokio::test(start_paused = true)]
async fn replies_in_flight_on_a_full_disk_are_recorded_and_no_turn_is_paid_twice() {
    let turns =
        |label: &'static str, last: u32| (1..=last).map(move |turn| (label.to_owned(), turn));
    for (rig, lead_turns) in [(of_a_person as fn() -> Rig, 0), (of_a_lead, 2)] {
        let lead = turns("root", lead_turns);
        let mut expected: Vec<_> =
            lead.chain(CHILDREN.iter().flat_map(|label| turns(label, 3))).collect();
        expected.sort_unstable();
        let (mut full, mut answered_after) = (0, 0);
        for capacity in (40_000..400_000).step_by(5_003) {
            let first = rig();
            let disk = first.disk();
            disk.set_capacity(Some(capacity));
            let trace = first.delegate().await;
            if !matches!(&trace.result, Ok(finished) if finished.outcome == Outcome::Partial) {
                continue;
            }
            full += 1;
            let events = recorded(&disk, &trace);
            let is_answer = |event: &&Event| matches!(event, Event::Replied { .. });
            let is_full = |event: &&Event| matches!(event, Event::Ended { reason: Some(_), .. });
            let since = events.iter().skip_while(|event| !is_full(event));
            answered_after += usize::from(since.clone().any(|event| is_answer(&event)));
            let answers = events.iter().filter(is_answer).count();
            assert_eq!(answers, trace.requests.len(), "{capacity}: every request is answered");

            let again = rig().resume(&disk.bytes(), ResumeRequest::default()).await;
            assert_eq!(again.outcome(), Outcome::Completed, "{capacity}: {:?}", again.ends());
            let requests = trace.requests.iter().chain(&again.requests);
            let mut asked: Vec<_> = requests.map(|it| (it.label.clone(), it.turn)).collect();
            asked.sort_unstable();
            assert_eq!(asked, expected, "{capacity}: each turn is asked for once");
        }
        assert!(full >= 40 && answered_after >= 20, "{full} {answered_after}");
    }
}

/// A reply larger than its reserve is lost; the run still records its end.
#[tokio::test(start_paused = true)]
async fn oversized_reply_on_a_full_disk_still_ends_the_run_with_an_outcome() {
    let script = format!("[[turn]]\ntext = \"{}\"\n", "word ".repeat(100_000));
    let rig = Rig::new().script(&script).task("a", "Look");
    let disk = rig.disk();
    disk.set_capacity(Some(120_000));
    let trace = rig.delegate().await;
    assert_eq!(trace.ends(), ["a: partial DISK_FULL"]);
    assert_eq!(trace.outcome(), Outcome::Partial);
    assert!(matches!(recorded(&disk, &trace).last(), Some(Event::RunEnded { .. })));
}

#[tokio::test(start_paused = true)]
async fn freed_disk_space_is_used_again() {
    let rig = rig();
    let disk = rig.disk();
    disk.set_capacity(Some(150_000));
    let returned = disk.clone();
    let trace = rig
        .on_event(move |event, _| {
            if matches!(event, Event::Reserved { .. }) {
                returned.set_capacity(None);
            }
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
}

/// Write errors that the reserve cannot prevent: the run fails once, and reported events are kept.
#[tokio::test(start_paused = true)]
async fn disk_error_fails_the_run_and_is_not_retried() {
    type FaultPlan = fn(&MemoryDisk, usize);
    let plans: [(&str, FaultPlan); 5] = [
        ("EIO on sync", |disk, nth| disk.fail_sync(nth, EIO)),
        ("EIO on write", |disk, nth| disk.fail_write(nth, 7, EIO)),
        ("read-only", |disk, nth| disk.fail_write(nth, 0, EROFS)),
        ("quota", |disk, nth| disk.fail_write(nth, 7, EDQUOT)),
        ("full on sync", |disk, nth| disk.fail_sync(nth, ENOSPC)),
    ];
    for (what, plan) in plans {
        for nth in 1..=5 {
            let rig = rig();
            let disk = rig.disk();
            plan(&disk, nth);
            let trace = rig.delegate().await;
            let Err(EngineError::Journal(error)) = &trace.result else {
                panic!("{what} {nth}: {:?}", trace.result);
            };
            assert!(error.is_final(), "{what} {nth}");
            assert_eq!(disk.writes().max(disk.syncs()), nth, "{what} {nth}: tried once");
            if trace.events.is_empty() {
                assert!(disk.bytes().is_empty(), "{what} {nth}");
                continue;
            }
            let told: Vec<Event> = trace.events.iter().map(|(_, event)| event.clone()).collect();
            assert_eq!(recorded(&disk, &trace)[..told.len()], told[..], "{what} {nth}");
            assert!(!told.iter().any(|event| matches!(event, Event::RunEnded { .. })));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn run_ended_by_a_full_disk_can_be_resumed() {
    let mut resumed = 0;
    for capacity in (20_000..300_000).step_by(20_011) {
        let first = rig();
        let disk = first.disk();
        disk.set_capacity(Some(capacity));
        let Ok(finished) = first.delegate().await.result else { continue };
        if finished.outcome != Outcome::Partial {
            continue;
        }
        resumed += 1;
        let trace = rig().resume(&disk.bytes(), ResumeRequest::default()).await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{capacity}");
        let answered = |(_, event): &(_, Event)| match event {
            Event::Replied { session, turn, .. } => Some((*session, *turn)),
            _ => None,
        };
        let turns: Vec<_> = trace.events.iter().filter_map(answered).collect();
        let distinct: std::collections::BTreeSet<_> = turns.iter().collect();
        assert_eq!(distinct.len(), turns.len(), "{capacity}: an answer was bought twice");
    }
    assert!(resumed >= 3, "only {resumed} runs met a full disk");
}

#[tokio::test(start_paused = true)]
async fn resume_on_a_full_disk_changes_nothing() {
    let first = rig();
    let disk = first.disk();
    disk.set_capacity(Some(60_000));
    let trace = first.delegate().await;
    assert_eq!(trace.outcome(), Outcome::Partial);
    let journal = disk.bytes();
    let trace = rig().resume_within(&journal, journal.len() + 100).await;
    let full = matches!(&trace.result, Err(error) if error.is_disk_full());
    assert!(full, "{:?}", trace.result);
    assert!(trace.requests.is_empty());
    assert_eq!(trace.events.len(), trace.recalled);
}
