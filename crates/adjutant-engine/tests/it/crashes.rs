//! Panics and errors in one child, and a full disk.

use adjutant_core::{Event, Outcome};
use adjutant_engine::EngineError;
use adjutant_testkit::Rig;

#[tokio::test(start_paused = true)]
async fn panic_in_one_child_does_not_affect_the_others() {
    let script = r#"
        [[turn]]
        label = "broken"
        panic = true
        [[turn]]
        label = "fine"
        text = "done"
    "#;
    let trace = Rig::new().script(script).task("broken", "a").task("fine", "b").delegate().await;
    let mut ends = trace.ends();
    ends.sort();
    assert_eq!(ends, ["broken: failed INTERNAL", "fine: completed"]);
    let crash = trace.events.iter().find_map(|(_, event)| match event {
        Event::Crashed { message, backtrace, .. } => Some((message.clone(), backtrace.clone())),
        _ => None,
    });
    let (message, backtrace) = crash.unwrap();
    assert!(!message.is_empty());
    assert!(backtrace.starts_with("at crates/"), "the place is known: {backtrace}");
}

#[tokio::test(start_paused = true)]
async fn error_in_one_child_does_not_affect_the_others() {
    let script = r#"
        [[turn]]
        label = "refused"
        error = "authentication"
        [[turn]]
        label = "fine"
        text = "done"
    "#;
    let trace = Rig::new().script(script).task("refused", "a").task("fine", "b").delegate().await;
    let mut ends = trace.ends();
    ends.sort();
    assert_eq!(ends, ["fine: completed", "refused: failed PROVIDER_ERROR"]);
    assert_eq!(trace.outcome(), Outcome::Partial);
}

#[tokio::test(start_paused = true)]
async fn full_disk_stops_the_run_before_an_unrecorded_effect() {
    const ENOSPC: i32 = 28;
    for nth in 1..8 {
        let script = "[[turn]]\n[[turn.call]]\ntool = \"Note\"\nargs = { content = \"x\" }\n[[turn]]\ntext = \"done\"\n";
        let rig = Rig::new().script(script).task("a", "Look");
        let disk = rig.disk();
        disk.fail_write(nth, 10, ENOSPC);
        let trace = rig.delegate().await;
        let Err(EngineError::Journal(error)) = &trace.result else {
            // The run needed fewer writes than this limit.
            assert_eq!(trace.outcome(), Outcome::Completed);
            assert!(nth > 5, "a run writes more than {nth} times");
            continue;
        };
        assert!(error.is_final());
        let run = trace.events.iter().find_map(|(_, event)| match event {
            Event::RunStarted { run, .. } => Some(*run),
            _ => None,
        });
        // Reported events are on disk, and the disk has only complete records.
        let bytes = disk.bytes();
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "write {nth}");
        let Some(run) = run else { continue };
        let start = adjutant_store::JournalPosition::start(run);
        let read = adjutant_store::JournalReader::<Event, _>::new(bytes.as_slice(), start);
        let read: Vec<Event> = read.map(|record| record.unwrap().event).collect();
        let told: Vec<Event> = trace.events.iter().map(|(_, event)| event.clone()).collect();
        assert_eq!(read[..told.len()], told[..], "write {nth}");
        let reserved = told.iter().filter(|event| matches!(event, Event::Reserved { .. })).count();
        assert_eq!(trace.requests.len(), reserved, "no request without its record, write {nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_approver_denies_the_call() {
    let script = "[[turn]]\ntext = \"done\"\n";
    let rig = Rig::new().script(script).task("a", "Look");
    let trace = rig.approver(|_| panic!("the terminal caught fire")).delegate().await;
    assert_eq!(trace.ends(), ["a: refused APPROVAL_DENIED"]);
    assert!(trace.requests.is_empty());
}
