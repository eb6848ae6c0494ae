//! Agents whose context is full go on in a fresh conversation, in the same workspace and within the same limits.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

use std::collections::BTreeSet;
use std::future::Future;

use adjutant_core::policy::{ContractKind, OnFullContext};
use adjutant_core::tree::HANDOVER_NOTE;
use adjutant_core::workspace::WorkspaceKind;
use adjutant_core::{Event, Message, Outcome, Preset};
use adjutant_engine::{EngineError, ResumeRequest};
use adjutant_testkit::fake::{self, FakeServer, Script, Turn};
use adjutant_testkit::{Rig, RunTrace};
use serde_json::json;

use crate::providers::on_all;
use crate::workspace_rig::{KINDS, UserRepository};

/// A task in parts. What an agent may say at once is more than a part, so that there is room for its note when the
/// window is nearly full.
struct Parts {
    window: usize,
    max_output: u64,
    bytes: usize,
    /// The turn in which the agent reports.
    last: usize,
}

/// Three times larger than the window.
const LARGE: Parts = Parts { window: 96_000, max_output: 4_000, bytes: 16_000, last: 76 };

/// Fills the window once.
const SMALL: Parts = Parts { window: 64_000, max_output: 16_000, bytes: 48_000, last: 7 };

/// In each turn the agent reads a part and adds the number of the turn to a list. It writes a note when it is asked
/// for one, and reports in turn `last`.
fn script(parts: &Parts) -> String {
    let Parts { window, last, .. } = parts;
    format!(
        r#"
        window = {window}
        [[turn]]
        last = "Write the handover note"
        text = "Note of turn {{{{turn}}}}: the list is up to date. [delegate:nothing:1]"
        [[turn]]
        turn = {last}
        text = "All parts are in the list."
        [[turn]]
        times = "forever"
        text = "I add {{{{turn}}}}."
        [[turn.call]]
        tool = "Read"
        args = {{ path = "part-{{{{turn}}}}" }}
        [[turn.call]]
        tool = "Edit"
        args = {{ file_path = "list", old_string = "END", new_string = "{{{{turn}}}}\nEND" }}
        "#
    )
}

fn repository(parts: &Parts) -> UserRepository {
    let repository = UserRepository::new();
    let line = format!("{}\n", "word ".repeat(19));
    for turn in 1..parts.last {
        let path = repository.tree().join(format!("part-{turn}"));
        std::fs::write(path, line.repeat(parts.bytes / line.len())).unwrap();
    }
    repository
}

fn rig(repository: &UserRepository, kind: WorkspaceKind, parts: &Parts) -> Rig {
    let max_output = parts.max_output;
    repository.rig(kind, &script(parts)).policy(|policy| policy.max_output_tokens = max_output)
}

fn continued(trace: &RunTrace) -> Vec<(Vec<String>, String)> {
    let opening = |event: &Event| match event {
        Event::Continued { brief, handover, .. } => Some((brief.clone(), handover.clone())),
        _ => None,
    };
    trace.events.iter().filter_map(|(_, event)| opening(event)).collect()
}

fn notes(trace: &RunTrace) -> usize {
    let is_asked =
        |event: &Event| matches!(event, Event::Told { text, .. } if text == HANDOVER_NOTE);
    trace.events.iter().filter(|(_, event)| is_asked(event)).count()
}

/// Checks that the list has the number of each turn in which the agent worked, once.
fn check_list(list: &str, turns: usize, notes: usize) {
    let numbers: Vec<&str> = list.lines().filter(|line| *line != "END").collect();
    let distinct: BTreeSet<&str> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "{list}");
    assert_eq!(numbers.len(), turns - notes, "{list}");
}

#[tokio::test]
async fn task_three_times_larger_than_its_window_completes() {
    for kind in KINDS {
        let repository = repository(&LARGE);
        let trace = rig(&repository, kind, &LARGE).task("w", "work").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        let continued = continued(&trace);
        assert!((1..=3).contains(&continued.len()), "{kind:?}: {}", continued.len());
        check_list(&repository.work(&trace, "w")["list"], LARGE.last - 1, notes(&trace));
        let read: usize = trace
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::ToolReturned { output, .. } => Some(output.content.len()),
                _ => None,
            })
            .sum();
        assert!(read / 4 > 3 * LARGE.window, "{read} bytes are not three times the window");
        // The model sees exactly what was recorded, and no request exceeds the window.
        for (brief, handover) in &continued {
            let opening: Vec<String> = brief.iter().chain([handover]).cloned().collect();
            let first = |messages: &[Message]| {
                let texts = messages.iter().map(|message| match message {
                    Message::User { content } => content.clone(),
                    Message::Assistant { .. } | Message::Tool { .. } => String::new(),
                });
                texts.collect::<Vec<_>>() == opening
            };
            assert!(trace.requests.iter().any(|request| first(&request.messages)), "{handover}");
            assert!(handover.contains("the list is up to date"), "{handover}");
            assert!(handover.contains("- list") && handover.contains("\n+2\n"), "{handover}");
        }
        assert_eq!(repository.git(&["status", "--porcelain", "list"]), "");
    }
}

#[tokio::test]
async fn secrets_in_the_diff_and_in_the_note_are_masked() {
    let repository = repository(&SMALL);
    let secret = format!("AKIA{}", "IOSFODNN7EXAMPLF");
    let script = script(&SMALL)
        .replace("the list is up to date", &secret)
        .replace("{{turn}}\\nEND", &format!("{{{{turn}}}} {secret}\\nEND"));
    assert_eq!(script.matches(&secret).count(), 2);
    let rig = rig(&repository, WorkspaceKind::Worktree, &SMALL).script(&script);
    let trace = rig.task("w", "work").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed, "{:?}", trace.ends());
    let continued = continued(&trace);
    assert!(!continued.is_empty());
    for (_, handover) in continued {
        assert!(handover.contains("+2 ") && !handover.contains(&secret), "{handover}");
    }
}

#[tokio::test]
async fn agent_that_writes_in_place_continues_with_the_files_it_changed() {
    let repository = repository(&SMALL);
    let rig = Rig::new()
        .in_folder(repository.tree())
        .preset(Preset::Command)
        .policy(|policy| {
            policy.contract = ContractKind::Report;
            policy.in_place = true;
            policy.max_output_tokens = SMALL.max_output;
        })
        .script(&script(&SMALL));
    let trace = rig.task("w", "work").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed, "{:?}", trace.ends());
    let continued = continued(&trace);
    assert!(continued.iter().all(|(_, handover)| handover.ends_with("\n- list")), "{continued:?}");
    let list = std::fs::read_to_string(repository.tree().join("list")).unwrap();
    check_list(&list, SMALL.last - 1, notes(&trace));
}

#[tokio::test]
async fn every_api_gets_a_fresh_conversation() {
    let results = on_all(async |api| {
        let used = |input| fake::Usage { input, output: 20, ..fake::Usage::default() };
        let read = Turn::calls("Read", &json!({ "path": "a.rs" })).using(used(19_400));
        let done = Turn::says("All is done.").using(used(3_000));
        // A server that sees the handover in the first message or in the second answers the fresh conversation alike.
        let script = Script::new()
            .on("Your handover note", [done.clone()])
            .on("Do it all", [done.first(read), Turn::says("Half is done.").using(used(19_500))]);
        let fake = FakeServer::new(api, script).start().await;
        let rig = Rig::new().file("a.rs", "fn first_half() {}\n").model(fake.model());
        let rig = rig.policy(|policy| {
            policy.on_full = OnFullContext::Continue;
            policy.context_tokens = Some(20_000);
            policy.max_output_tokens = 500;
        });
        let trace = rig.task("w", "Do it all").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{api:?}: {:?}", trace.ends());
        let bodies: Vec<String> = fake
            .requests()
            .into_iter()
            .map(|request| {
                assert_eq!(request.complaint, None, "{api:?}");
                String::from_utf8_lossy(&request.body).into_owned()
            })
            .collect();
        bodies
            .iter()
            .map(|body| (body.contains("first_half"), body.contains("Half is done.")))
            .collect::<Vec<_>>()
    })
    .await;
    for (api, seen) in results {
        assert_eq!(seen, [(false, false), (true, false), (false, true)], "{api:?}");
    }
}

/// Runs `work` in its own runtime, whose drop waits for blocking threads, as the end of a process would.
fn life<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Fails the nth write to the journal and resumes. Returns whether there were that many writes.
fn crash(nth: usize, continued_after_crash: &mut usize) -> bool {
    let kind = WorkspaceKind::Overlay;
    let repository = repository(&SMALL);
    let first = rig(&repository, kind, &SMALL).task("w", "work");
    let disk = first.disk();
    disk.fail_write(nth, 0, 5);
    if life(first.delegate()).result.is_ok() {
        return false;
    }
    let journal = disk.bytes();
    if journal.is_empty() {
        return true;
    }
    let resumed = rig(&repository, kind, &SMALL).resume(&journal, ResumeRequest::default());
    let trace = life(resumed);
    if matches!(trace.result, Err(EngineError::NothingToResume(_))) {
        return true;
    }
    assert_eq!(trace.outcome(), Outcome::Completed, "write {nth}: {:?}", trace.ends());
    assert_eq!(continued(&trace).len(), 1, "write {nth}");
    let new = |event: &Event| matches!(event, Event::Continued { .. });
    *continued_after_crash +=
        trace.events.iter().skip(trace.recalled).filter(|(_, event)| new(event)).count();
    let list = &repository.work(&trace, "w")["list"];
    let numbers: Vec<&str> = list.lines().filter(|line| *line != "END").collect();
    let distinct: BTreeSet<&str> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "write {nth}: {list}");
    // At most the write that was cut off is missing.
    let lost = SMALL.last - 1 - notes(&trace) - numbers.len();
    assert!(lost <= 1, "write {nth}: {list}");
    true
}

#[test]
fn crash_at_any_record_of_a_continuation_neither_loses_nor_repeats_work() {
    let (mut nth, mut continued_after_crash) = (1, 0);
    while crash(nth, &mut continued_after_crash) {
        nth += 1;
    }
    assert!(nth > 20 && continued_after_crash > 5, "{nth} writes, {continued_after_crash}");
}
