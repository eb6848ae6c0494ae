//! Named agents in a run: the `Task` tool, their prompts, rights and limits.

use adjutant_core::{Event, Grant, Outcome};
use adjutant_testkit::{Rig, RunTrace};

const REVIEWER: &str = "---
name: reviewer
description: Judges code.
tools: Read, Grep, Bash
maxTurns: 2
adjutant: { timeout_s: 60, max_output_tokens: 500 }
---
You judge code. You may use every tool and spend what you like.";

const LEAD: &str = r#"
    [[turn]]
    agent = "lead"
    [[turn.call]]
    tool = "Task"
    args = { agent = "reviewer", prompt = "Judge it", context = ["map.txt"] }
    [[turn]]
    agent = "lead"
    text = "They say: {{result}}"

    [[turn]]
    agent = "reviewer"
    text = "It is good."
"#;

fn grants(trace: &RunTrace) -> Vec<Grant> {
    let grant = |event: &Event| match event {
        Event::Granted(grant) => Some(Grant::clone(grant)),
        _ => None,
    };
    trace.events.iter().filter_map(|(_, event)| grant(event)).collect()
}

fn rig() -> Rig {
    Rig::new().file(".claude/agents/reviewer.md", REVIEWER).file("map.txt", "x marks the spot")
}

#[tokio::test(start_paused = true)]
async fn root_agent_calls_an_agent_by_name() {
    let trace = rig().script(LEAD).goal("Is it good?").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let [lead, child, last] = &trace.requests[..] else { panic!("{:?}", trace.requests) };
    assert!(lead.tools.contains(&"Task".to_owned()));
    assert_eq!(last.messages.last().unwrap().text(), "reviewer: completed");
    assert_eq!(child.label, "reviewer");
    assert_eq!(child.tools, ["Read", "Grep", "Note"]);
    assert_eq!(child.max_output, 500);
    assert!(child.messages[0].text().contains("x marks the spot"));
    assert!(child.system.contains("with these tools: Grep, Note, Read."), "{}", child.system);
    assert!(child.system.contains("described below by a file of the project"), "{}", child.system);
    assert!(child.system.contains("You may use every tool"), "{}", child.system);
    let grant = &grants(&trace)[0];
    assert_eq!(grant.path, ["lead", "reviewer"]);
    assert_eq!(grant.timeout_s, Some(60));
    assert_eq!(grant.brief.max_turns, Some(2));
    assert_eq!(grant.rights.tools.to_string(), "Grep, Note, Read");
}

#[tokio::test(start_paused = true)]
async fn task_tool_lists_the_agents_and_is_absent_without_any() {
    let trace = rig().script(LEAD).goal("Is it good?").delegate().await;
    let defined = trace.events.iter().find_map(|(_, event)| match event {
        Event::AgentDefined { agent, tools, .. } if agent.as_str() == "lead" => Some(tools.clone()),
        _ => None,
    });
    let task = defined.unwrap().into_iter().find(|tool| tool.name == "Task").unwrap();
    assert!(task.description.ends_with("\n- reviewer: Judges code."), "{}", task.description);

    let script = "[[turn]]\ntext = 'alone'";
    let trace = Rig::new().script(script).goal("Hello").delegate().await;
    assert!(!trace.single_request().tools.contains(&"Task".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn unknown_agent_is_refused_with_the_known_names() {
    let script = LEAD.replace("agent = \"reviewer\", prompt", "agent = \"rewiever\", prompt");
    let trace = rig().script(&script).goal("Is it good?").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let reason = trace.events.iter().find_map(|(_, event)| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let message = reason.unwrap().message;
    assert_eq!(message, "Unknown agent: rewiever. Known agents: lead, reviewer, scout.");
}

#[tokio::test(start_paused = true)]
async fn invalid_task_call_is_returned_to_the_model() {
    let script = LEAD.replace("prompt = \"Judge it\"", "promt = \"Judge it\"");
    let trace = rig().script(&script).goal("Is it good?").delegate().await;
    let told = trace.requests.last().unwrap().messages.last().unwrap().text().to_owned();
    assert!(told.contains("did you mean `prompt`?; prompt: is required"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn agents_at_the_deepest_level_get_neither_task_nor_delegate() {
    let deep = "---\nname: deep\ndescription: Goes on.\n---\nGo on.";
    let script = r#"
        [[turn]]
        last = "^down"
        [[turn.call]]
        tool = "Task"
        args = { agent = "deep", prompt = "down from {{label}}" }
        [[turn]]
        text = "up: {{last}}"
        times = "forever"
    "#;
    let rig = Rig::new().file(".claude/agents/deep.md", deep).script(script).goal("down we go");
    let trace = rig.policy(|policy| policy.max_depth = 2).delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let depths: Vec<u64> = grants(&trace).iter().map(|grant| grant.depth).collect();
    assert_eq!(depths, [1, 2]);
    let offered = |depth: u64| {
        let grants = grants(&trace);
        let prompt = &grants.iter().find(|grant| grant.depth == depth).unwrap().brief.prompt;
        let first =
            |request: &&adjutant_testkit::ModelRequest| request.messages[0].text() == *prompt;
        trace.requests.iter().find(first).unwrap().tools.clone()
    };
    assert!(offered(1).contains(&"Task".to_owned()), "{:?}", offered(1));
    let deepest = offered(2);
    assert!(!deepest.contains(&"Task".to_owned()) && !deepest.contains(&"Delegate".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn child_has_no_more_rights_than_its_parent() {
    let boss = "---\nname: boss\ndescription: Asks.\ntools: Grep, Task\n---\nAsk.";
    let script = r#"
        [[turn]]
        agent = "boss"
        [[turn.call]]
        tool = "Task"
        args = { agent = "reviewer", prompt = "Judge it" }
        [[turn]]
        agent = "boss"
        text = "done"
        [[turn]]
        agent = "reviewer"
        text = "good"
    "#;
    let rig = rig().file(".claude/agents/boss.md", boss).script(script).goal("Go").lead("boss");
    let trace = rig.delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let [lead, child, _] = &trace.requests[..] else { panic!("{:?}", trace.requests) };
    assert_eq!(lead.tools, ["Grep", "Task"]);
    assert!(lead.system.starts_with("You lead.\n\nYour role is `boss`"), "{}", lead.system);
    assert_eq!(child.tools, ["Grep", "Note"]);
}

#[tokio::test(start_paused = true)]
async fn turns_are_limited_and_the_last_is_for_the_report() {
    let script = r#"
        [[turn]]
        agent = "lead"
        [[turn.call]]
        tool = "Task"
        args = { agent = "reviewer", prompt = "Judge it" }
        [[turn]]
        agent = "lead"
        text = "They say: {{result}}"
        [[turn]]
        agent = "reviewer"
        [[turn.call]]
        tool = "Read"
        args = { path = "map.txt" }
        [[turn]]
        agent = "reviewer"
        text = "as far as I got"
    "#;
    let trace = rig().script(script).goal("Is it good?").delegate().await;
    assert_eq!(trace.ends(), ["reviewer: partial BUDGET_EXCEEDED"]);
    let last = trace.requests.iter().rfind(|request| request.label == "reviewer").unwrap();
    assert_eq!(last.tools, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn turn_limit_of_a_definition_applies_to_the_root_agent() {
    let script = r#"
        [[turn]]
        agent = "reviewer"
        [[turn.call]]
        tool = "Read"
        args = { path = "map.txt" }
        [[turn]]
        agent = "reviewer"
        text = "as far as I got"
    "#;
    let trace = rig().script(script).goal("Judge all of it").lead("reviewer").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Partial);
    assert_eq!(trace.requests.len(), 2);
    assert_eq!(trace.requests[1].tools, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn tasks_without_an_agent_use_the_chosen_default_agent() {
    let script = "[[turn]]\nagent = 'reviewer'\ntext = 'good'\ntimes = 'forever'";
    let rig = rig().script(script).task("a", "Judge a").task("b", "Judge b");
    let trace = rig.default_agent("reviewer").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    assert!(trace.requests.iter().all(|request| request.tools == ["Read", "Grep", "Note"]));
    let defined = trace.kinds().iter().filter(|kind| *kind == "agent_defined").count();
    assert_eq!(defined, 1, "only who is used is made known");
}

#[tokio::test(start_paused = true)]
async fn project_file_cannot_choose_the_model_and_is_limited_by_the_persons_file() {
    let project = "---\nname: reviewer\ndescription: x\nmodel: openai/dear\n---\nTheirs.";
    let user = "---\nname: reviewer\ndescription: x\ntools: Read\nmaxTurns: 3\n---\nMine.";
    let rig = Rig::new()
        .file(".claude/agents/reviewer.md", project)
        .file("map.txt", "x")
        .home_file(".claude/agents/reviewer.md", user);
    let trace = rig.script(LEAD).goal("Is it good?").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let grant = &grants(&trace)[0];
    assert_eq!(grant.rights.tools.to_string(), "Note, Read");
    assert_eq!(grant.brief.max_turns, Some(3));
    let model = grant.brief.model.as_ref().unwrap();
    assert!(model.name.starts_with("script"), "{}", model.name);
}

#[tokio::test(start_paused = true)]
async fn allowed_model_that_cannot_be_opened_refuses_the_task() {
    let project = "---\nname: reviewer\ndescription: x\nmodel: openai/dear\n---\nTheirs.";
    let rig = Rig::new().file(".claude/agents/reviewer.md", project).allow_model("openai/dear");
    let trace = rig.file("map.txt", "x").script(LEAD).goal("Is it good?").delegate().await;
    assert_eq!(trace.ends(), ["reviewer: refused PROVIDER_ERROR"]);
}
