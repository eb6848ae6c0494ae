//! A root agent that delegates.

use adjutant_core::{Event, Outcome};
use adjutant_engine::ApproverAnswer;
use adjutant_testkit::Rig;

const LEAD: &str = r#"
    [[turn]]
    agent = "lead"
    text = "I will ask two."
    [[turn.call]]
    tool = "Delegate"
    args = { tasks = [
        { label = "left", prompt = "Look left" },
        { label = "right", prompt = "Look right", context = ["map.txt"] },
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
    text = "a tree"
"#;

#[tokio::test(start_paused = true)]
async fn root_agent_delegates_and_continues_with_the_results() {
    let trace = Rig::new()
        .file("map.txt", "x marks the spot")
        .script(LEAD)
        .goal("Where are we?")
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let last = trace.requests.last().unwrap();
    assert_eq!(last.label, "root");
    assert_eq!(last.messages.last().unwrap().text(), "left: completed\nright: completed");
    let right = trace.requests.iter().find(|request| request.label == "right").unwrap();
    assert!(right.messages[0].text().contains("x marks the spot"));
}

#[tokio::test(start_paused = true)]
async fn req_6_subagent_at_the_deepest_level_does_not_get_delegate() {
    let trace = Rig::new().file("map.txt", "x").script(LEAD).goal("Where are we?").delegate().await;
    let offers = |label: &str| {
        let request = trace.requests.iter().find(|request| request.label == label).unwrap();
        request.tools.contains(&"Delegate".to_owned())
    };
    assert!(offers("root"));
    assert!(!offers("left"));
}

#[tokio::test(start_paused = true)]
async fn invalid_or_refused_delegate_call_is_returned_as_tool_result() {
    let script = r#"
        [[turn]]
        agent = "lead"
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [], colour = "red" }
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [
            { label = "1", prompt = "a" }, { label = "2", prompt = "b" }, { label = "3", prompt = "c" },
            { label = "4", prompt = "d" }, { label = "5", prompt = "e" }, { label = "6", prompt = "f" },
            { label = "7", prompt = "g" }, { label = "8", prompt = "h" }, { label = "9", prompt = "i" },
        ] }
        [[turn]]
        agent = "lead"
        text = "I do it myself."
    "#;
    let trace = Rig::new().script(script).goal("Try").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let messages = &trace.requests.last().unwrap().messages;
    let answers: Vec<&str> = messages[2..].iter().map(adjutant_core::Message::text).collect();
    assert!(answers[0].contains("unknown property `colour`"), "{}", answers[0]);
    assert!(answers[1].contains("Too many delegations (9). Maximum: 8"), "{}", answers[1]);
}

#[tokio::test(start_paused = true)]
async fn root_agent_continues_after_a_denied_call() {
    let rig = Rig::new().file("map.txt", "x").script(LEAD).goal("Where are we?");
    let trace = rig.answer(ApproverAnswer::No("too dear".into())).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let last = trace.requests.last().unwrap();
    assert_eq!(last.messages.last().unwrap().text(), "left: refused\nright: refused");
}

#[tokio::test(start_paused = true)]
async fn turns_of_the_root_agent_count_against_the_budget() {
    let script = r#"
        [[turn]]
        agent = "lead"
        times = "forever"
        [[turn.call]]
        tool = "Note"
        args = { content = "turn {{turn}}" }
    "#;
    let rig = Rig::new().script(script).goal("Never stop");
    let trace = rig.policy(|policy| policy.budget_tokens_run = Some(40_000)).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Partial);
    let reason = trace.events.iter().find_map(|(_, event)| match event {
        Event::Ended { reason, .. } => reason.clone(),
        _ => None,
    });
    assert_eq!(reason.unwrap().code, adjutant_core::ErrorCode::BudgetExceeded);
}

#[tokio::test(start_paused = true)]
async fn delegation_reaches_the_configured_depth_and_no_deeper() {
    let script = r#"
        [[turn]]
        last = "^go down"
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [{ label = "deeper {{label}}", prompt = "go down from {{label}}" }] }
        [[turn]]
        text = "back up: {{last}}"
        times = "forever"
    "#;
    let rig = Rig::new().script(script).goal("go down now");
    let trace = rig.policy(|policy| policy.max_depth = 2).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let deepest = trace.events.iter().filter_map(|(_, event)| match event {
        Event::Granted(grant) => Some(grant.depth),
        _ => None,
    });
    assert_eq!(deepest.max(), Some(2));
    assert!(
        trace.kinds().contains(&"tool_refused".to_owned()),
        "the third level is refused at dispatch"
    );
}

#[tokio::test(start_paused = true)]
async fn only_agents_with_a_parent_get_the_note_tool() {
    let rig = Rig::new().file("map.txt", "x").script(LEAD).goal("Where are we?");
    let trace = rig.delegate().await;
    let offered = |label: &str| {
        let request = trace.requests.iter().find(|request| request.label == label).unwrap();
        request.tools.iter().any(|tool| tool == "Note")
    };
    assert!(!offered("root"));
    assert!(offered("left") && offered("right"));
}
