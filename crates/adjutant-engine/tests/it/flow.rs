//! The run loop from task to report.

use std::sync::mpsc;

use adjutant_core::{Event, Message, Outcome};
use adjutant_engine::ApproverAnswer;
use adjutant_store::MemoryDisk;
use adjutant_testkit::Rig;

const TWO_TURNS: &str = r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = { path = "src/lib.rs" }

[[turn]]
text = "The file has {{result 1 | lines}} lines."
"#;

#[tokio::test(start_paused = true)]
async fn task_reads_a_file_and_reports() {
    let rig = Rig::new().file("src/lib.rs", "fn one() {}\nfn two() {}\n");
    let trace = rig.script(TWO_TURNS).task("count", "Count the lines").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    assert_eq!(trace.ends(), ["count: completed"]);
    let last = trace.requests.last().unwrap();
    let [
        Message::User { content },
        Message::Assistant { tool_calls, .. },
        Message::Tool { content: seen, .. },
    ] = last.messages.as_slice()
    else {
        panic!("{:?}", last.messages)
    };
    assert_eq!(content, "Count the lines");
    assert_eq!(tool_calls[0].name, "Read");
    assert!(seen.contains("fn two() {}"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_run_have_this_order() {
    let trace =
        Rig::new().file("src/lib.rs", "x").script(TWO_TURNS).task("a", "Look").delegate().await;
    assert_eq!(
        trace.kinds().join(" "),
        "run_started agent_defined granted approval_asked approved started reserved replied tool_called \
         tool_returned reserved replied ended ended run_ended"
    );
}

/// A process that reads the end in the journal may start the next run at once.
#[tokio::test(start_paused = true)]
async fn guard_is_dropped_after_the_work_and_before_the_end_is_readable() {
    struct DropReporter(MemoryDisk, mpsc::Sender<String>);
    impl Drop for DropReporter {
        fn drop(&mut self) {
            let written = String::from_utf8(self.0.bytes()).unwrap();
            self.1.send(written).unwrap();
        }
    }
    let (sender, written) = mpsc::channel();
    let rig = Rig::new().file("src/lib.rs", "x").script(TWO_TURNS).task("a", "Look");
    let guard = DropReporter(rig.disk(), sender);
    let trace = rig.holding(guard).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let written = written.try_recv().unwrap();
    assert!(written.contains(r#""type":"replied""#), "{written}");
    assert!(!written.contains(r#""type":"run_ended""#), "{written}");
}

#[tokio::test(start_paused = true)]
async fn req_50_results_have_the_order_of_the_tasks() {
    let script = r#"
        [[turn]]
        label = "slow"
        delay_ms = 500
        text = "slow"
        [[turn]]
        label = "fast"
        text = "fast"
    "#;
    let trace = Rig::new().script(script).task("slow", "a").task("fast", "b").delegate().await;
    assert_eq!(trace.ends(), ["fast: completed", "slow: completed"]);
    let places: Vec<(String, u32)> = trace
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Granted(grant) => Some((grant.brief.label.to_string(), grant.index)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [("slow".to_owned(), 0), ("fast".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_is_respected() {
    let script = "[[turn]]\ndelay_ms = 100\ntext = \"done\"\n";
    let mut rig = Rig::new().script(script).concurrency(3);
    for label in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        rig = rig.task(label, label);
    }
    let trace = rig.delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let mut running: usize = 0;
    let mut most = 0;
    for (_, event) in &trace.events {
        match event {
            Event::Started { .. } => running += 1,
            Event::Ended { .. } => running = running.saturating_sub(1),
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!(most, 3);
    // Eight tasks of 100 ms with a concurrency of three take three rounds.
    let (end, _) = trace.events.last().unwrap();
    assert_eq!(end.as_millis(), 300);
}

#[tokio::test(start_paused = true)]
async fn denied_call_starts_nothing() {
    let rig = Rig::new().script(TWO_TURNS).task("a", "Look");
    let trace = rig.answer(ApproverAnswer::No("not today".into())).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Refused);
    assert_eq!(trace.ends(), ["a: refused APPROVAL_DENIED"]);
    assert!(trace.requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn req_14_context_files_precede_the_prompt() {
    let rig = Rig::new().file("notes.md", "remember the milk");
    let script = "[[turn]]\ntext = \"done\"\n";
    let trace = rig
        .script(script)
        .task("a", "What is noted?")
        .context("notes.md")
        .context("gone.md")
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let opening = trace.single_request().messages[0].text().to_owned();
    let (before, after) = opening.split_once("\n\n").or_else(|| opening.rsplit_once('\n')).unwrap();
    assert!(before.contains("remember the milk"), "{opening}");
    assert!(opening.ends_with("What is noted?"), "{after}");
    assert!(opening.contains("gone.md"), "a missing file is said: {opening}");
}

#[tokio::test(start_paused = true)]
async fn base_prompt_can_be_replaced_and_the_suffix_stays() {
    let script = "[[turn]]\ntext = \"done\"\n";
    let trace =
        Rig::new().script(script).system("You are a parrot.").task("a", "Speak").delegate().await;
    let system = &trace.single_request().system;
    assert!(system.starts_with("You are a parrot."), "{system}");
    assert!(system.contains("Use the Note tool"), "{system}");
}

#[tokio::test(start_paused = true)]
async fn req_44_scout_gets_only_read_only_tools_without_network() {
    let script = "[[turn]]\ntext = \"done\"\n";
    let trace = Rig::new().script(script).task("a", "Speak").delegate().await;
    let mut tools = trace.single_request().tools.clone();
    tools.sort();
    assert_eq!(tools, ["Glob", "Grep", "Note", "Read"]);
}

#[tokio::test(start_paused = true)]
async fn each_request_starts_with_the_previous_one() {
    let script = r#"
        [[turn]]
        times = 4
        [[turn.call]]
        tool = "Note"
        args = { content = "turn {{turn}}" }
        [[turn]]
        text = "done"
    "#;
    let trace = Rig::new().script(script).task("a", "Note things").delegate().await;
    assert_eq!(trace.requests.len(), 5);
    for pair in trace.requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages));
    }
}

#[tokio::test(start_paused = true)]
async fn replaying_the_journal_gives_the_reported_events() {
    let rig = Rig::new().file("src/lib.rs", "x");
    let disk = rig.disk();
    let trace = rig.script(TWO_TURNS).task("a", "Look").delegate().await;
    let run = trace.result.as_ref().unwrap().run;
    let bytes = disk.bytes();
    let start = adjutant_store::JournalPosition::start(run);
    let read = adjutant_store::JournalReader::<Event, _>::new(bytes.as_slice(), start);
    let read: Vec<Event> = read.map(|record| record.unwrap().event).collect();
    let told: Vec<Event> = trace.events.into_iter().map(|(_, event)| event).collect();
    assert_eq!(read, told);
}
