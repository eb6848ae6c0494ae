//! The limits of running children: context, tokens, repeated calls, tools, repairs.

use adjutant_core::{Event, Outcome, Preset};
use adjutant_testkit::{Rig, RunTrace};

fn notes(trace: &RunTrace) -> Vec<String> {
    let note = |event: &Event| match event {
        Event::ToolReturned { output, .. } => output.note.clone(),
        _ => None,
    };
    trace.events.iter().filter_map(|(_, event)| note(event)).collect()
}

#[tokio::test(start_paused = true)]
async fn req_46_child_with_a_full_context_returns_partial_with_its_notes() {
    let script = r#"
        window = 9000
        [[turn]]
        turn = 1
        [[turn.call]]
        tool = "Note"
        args = { content = "big.txt holds only the letter x" }
        [[turn.call]]
        tool = "Read"
        args = { path = "big.txt" }
        [[turn]]
        text = "I ran out of room."
    "#;
    let big = "x".repeat(60).repeat(30) + "\n";
    let rig = Rig::new().file("big.txt", &big.repeat(9));
    let trace = rig.script(script).task("deep", "Read everything").delegate().await;
    assert_eq!(trace.ends(), ["deep: partial CONTEXT_EXHAUSTED"]);
    assert_eq!(notes(&trace), ["big.txt holds only the letter x"]);
    let last = trace.requests.last().unwrap();
    assert!(last.tools.is_empty(), "the last call offers no tools");
    assert!(last.messages.last().unwrap().text().contains("last turn"));
}

#[tokio::test(start_paused = true)]
async fn context_full_error_of_a_provider_returns_partial() {
    let script = r#"
        [[turn]]
        text = "Found one thing."
        [[turn.call]]
        tool = "Note"
        args = { content = "one thing" }
        [[turn]]
        error = "context_exhausted"
    "#;
    let trace = Rig::new().script(script).task("a", "Look").delegate().await;
    assert_eq!(trace.ends(), ["a: partial CONTEXT_EXHAUSTED"]);
}

#[tokio::test(start_paused = true)]
async fn run_stays_within_its_token_budget_at_any_fan_out() {
    let script = r#"
        [[turn]]
        times = "forever"
        [[turn.call]]
        tool = "Note"
        args = { content = "turn {{turn}}" }
    "#;
    let mut rig = Rig::new().script(script).concurrency(4);
    for label in ["a", "b", "c", "d"] {
        rig = rig.task(label, "Never stop");
    }
    let cap = 60_000;
    let trace = rig.policy(|policy| policy.budget_tokens_run = Some(cap)).delegate().await;
    let spent: u64 = trace
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Replied { settlement, .. } | Event::Settled { settlement, .. } => {
                Some(settlement.usage.total())
            }
            _ => None,
        })
        .sum();
    assert!(spent <= cap, "{spent}");
    assert!(spent > cap / 2, "the budget was used: {spent}");
    assert!(
        trace.ends().iter().all(|end| end.ends_with("partial BUDGET_EXCEEDED")),
        "{:?}",
        trace.ends()
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_identical_calls_are_warned_about_and_then_ended() {
    let script = r#"
        [[turn]]
        times = "forever"
        [[turn.call]]
        tool = "Glob"
        args = { pattern = "*.rs" }
    "#;
    let trace = Rig::new().script(script).task("a", "Loop").delegate().await;
    assert_eq!(trace.ends(), ["a: partial LOOP_DETECTED"]);
    let told = trace.kinds().iter().filter(|kind| *kind == "tool_refused").count();
    let ran = trace.kinds().iter().filter(|kind| *kind == "tool_called").count();
    assert_eq!((ran, told), (4, 3), "four run, the fifth to seventh are told, the eighth ends it");
}

#[tokio::test(start_paused = true)]
async fn d18_tool_outside_the_allow_list_is_not_run() {
    let script = r#"
        [[turn]]
        [[turn.call]]
        tool = "Write"
        args = { path = "x", content = "y" }
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [] }
        [[turn.call]]
        tool = "NoSuchTool"
        args = {}
        [[turn]]
        text = "{{result 1}} | {{result 2}} | {{result 3}}"
    "#;
    let rig = Rig::new().script(script);
    let tree = rig.tree();
    let trace = rig.task("a", "Write").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    assert!(!tree.join("x").exists());
    assert!(!trace.kinds().contains(&"tool_called".to_owned()));
    let last = trace.requests.last().unwrap();
    let answers: Vec<&str> = last.messages[2..].iter().map(adjutant_core::Message::text).collect();
    assert!(answers.iter().all(|text| text.starts_with("Not run: `")), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn reply_truncated_twice_returns_partial_with_its_text() {
    let script = r#"
        [[turn]]
        text = "The report begins"
        stop = "max_output"
        times = 2
    "#;
    let trace = Rig::new().script(script).task("a", "Report").delegate().await;
    assert_eq!(trace.ends(), ["a: partial BUDGET_EXCEEDED"]);
    assert_eq!(trace.requests.len(), 2);
    assert!(trace.requests[1].messages.last().unwrap().text().contains("cut off"));
}

#[tokio::test(start_paused = true)]
async fn standard_return_is_repaired_at_most_twice() {
    let script = "[[turn]]\ntext = \"no JSON here\"\ntimes = 3\n";
    let trace =
        Rig::new().preset(Preset::Command).script(script).task("a", "Report").delegate().await;
    assert_eq!(trace.ends(), ["a: failed VALIDATION_FAILED"]);
    assert_eq!(trace.requests.len(), 3);
    assert!(trace.requests[2].messages.last().unwrap().text().contains("Return is not valid JSON"));
}

#[tokio::test(start_paused = true)]
async fn standard_return_with_existing_artifacts_is_accepted() {
    let good = r#"{\"status\":\"completed\",\"summary\":\"Wrote the report. It has one page.\",\"artifacts\":[{\"type\":\"research\",\"path\":\"report.md\"}]}"#;
    let script = format!("[[turn]]\ntext = \"{good}\"\ntimes = 2\n");
    let rig = Rig::new().preset(Preset::Command).script(&script).task("a", "Report");
    let trace = rig.file("report.md", "all is well").delegate().await;
    assert_eq!(
        trace.ends(),
        ["a: completed"],
        "{:?}",
        trace.requests.last().unwrap().messages.last()
    );

    let script = format!("[[turn]]\ntext = \"{good}\"\ntimes = 3\n");
    let trace =
        Rig::new().preset(Preset::Command).script(&script).task("a", "Report").delegate().await;
    assert_eq!(trace.ends(), ["a: failed VALIDATION_FAILED"], "a phantom artifact is not accepted");
}
