//! The reasoning effort of agents: who sets it, who may only lower it, and that a conversation keeps it.

use std::collections::BTreeMap;

use adjutant_core::ReasoningEffort::{self, High, Low, Max, Medium};
use adjutant_engine::{AgentEfforts, ResumeRequest};
use adjutant_testkit::Rig;

/// Returns an agent file that asks for an effort.
fn agent(effort: Option<ReasoningEffort>) -> String {
    let effort = effort.map(|effort| format!("effort: {}\n", effort.as_str()));
    format!("---\nname: reviewer\ndescription: x\n{}---\nJudge.\n", effort.unwrap_or_default())
}

fn of_reviewer(effort: Option<ReasoningEffort>) -> BTreeMap<String, ReasoningEffort> {
    effort.map(|effort| ("reviewer".to_owned(), effort)).into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn the_person_sets_the_effort_and_a_project_can_only_lower_it() {
    // The person's configuration and agent file, then the project's agent file and configuration.
    for (config, own, file, project, expected) in [
        (None, None, None, None, None),
        (Some(High), None, None, None, Some(High)),
        (None, Some(Max), None, None, Some(Max)),
        (Some(Low), Some(Max), None, None, Some(Low)),
        (Some(High), None, Some(Medium), None, Some(Medium)),
        (Some(Medium), None, Some(Max), None, Some(Medium)),
        (None, Some(Medium), Some(Max), None, Some(Medium)),
        (None, Some(High), Some(Medium), None, Some(Medium)),
        (Some(Max), None, Some(High), Some(Low), Some(Low)),
        (Some(Low), None, None, Some(Max), Some(Low)),
        // Where the person sets nothing, only the lowest effort is surely no more than the provider's default.
        (None, None, Some(Low), None, Some(Low)),
        (None, None, Some(Medium), None, None),
        (None, None, None, Some(Max), None),
        (None, None, None, Some(Low), Some(Low)),
    ] {
        let (user, project) = (of_reviewer(config), of_reviewer(project));
        let mut rig = Rig::new().script("[[turn]]\ntext = 'done'").default_agent("reviewer");
        rig = rig.efforts(AgentEfforts { user, project });
        if own.is_some() {
            rig = rig.home_file(".claude/agents/reviewer.md", &agent(own));
        }
        if file.is_some() || own.is_none() {
            rig = rig.file(".claude/agents/reviewer.md", &agent(file));
        }
        let trace = rig.task("a", "Judge it").delegate().await;
        let about = format!("{config:?} {own:?} {file:?}");
        assert_eq!(trace.single_request().effort, expected, "{about}");
    }
}

const TWO_TURNS: &str = r#"
    [[turn]]
    [[turn.call]]
    tool = "Note"
    args = { note = "begun" }
    [[turn]]
    text = "done"
"#;

#[tokio::test(start_paused = true)]
async fn a_conversation_keeps_its_effort_when_it_is_resumed_with_other_settings() {
    let rig = |effort: Option<ReasoningEffort>, agent: &str| {
        let user = effort.map(|effort| (agent.to_owned(), effort)).into_iter().collect();
        let efforts = AgentEfforts { user, ..AgentEfforts::default() };
        Rig::new().script(TWO_TURNS).efforts(efforts)
    };
    for (first, second) in [(Some(High), Some(Low)), (Some(Low), None), (None, Some(Max))] {
        for on_this_model in [false, true] {
            let [task, goal]: [fn(Rig) -> Rig; 2] =
                [|rig| rig.task("a", "Do it"), |rig| rig.goal("Do it")];
            for (start, agent) in [(task, "scout"), (goal, "lead")] {
                let rig = |effort| start(rig(effort, agent));
                let begun = rig(first);
                let disk = begun.disk();
                let whole = begun.delegate().await;
                let sent: Vec<_> = whole.requests.iter().map(|request| request.effort).collect();
                assert_eq!(sent, [first, first]);
                let journal = disk.bytes();
                let replied = whole.kinds().iter().position(|kind| kind == "replied");
                let breaks = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                let cut = breaks.map(|(at, _)| at + 1).nth(replied.unwrap_or_default());
                let request = ResumeRequest { on_this_model, ..ResumeRequest::default() };
                let trace = rig(second).resume(&journal[..cut.unwrap_or_default()], request).await;
                assert_eq!(trace.single_request().effort, first, "{agent}, then {second:?}");
            }
        }
    }
}
