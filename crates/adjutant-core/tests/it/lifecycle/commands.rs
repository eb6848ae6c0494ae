//! Runs of a slash command: `Return` calls, task list updates, and how the command ends.

use adjutant_core::assignment::{TaskDetails, UpdateTrigger};
use adjutant_core::policy::Operation;
use adjutant_core::{
    ContentChange, ResumeOptions, SlashCommandAssignment, TaskListUpdate, WriteScope,
};
use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{TaskArtifact, TaskStatus};

use super::*;

fn hands_back(value: &Value) -> ToolCall {
    tool("r", "Return", value.clone())
}

/// A command about these tasks, and its agent at work on each.
fn command(tasks: &[u64]) -> (Sim, Vec<SessionId>) {
    let mut sim = Sim::new(policy(Preset::Command, &["in_place=true", "concurrency=4"]));
    let work = SlashCommandAssignment::new("research", Operation::Research);
    let assignment = SlashCommandAssignment {
        tasks: tasks.to_vec(),
        agent: Some("researcher".into()),
        artifacts_required: true,
        ..work
    };
    sim.submit(Command::Assign(Box::new(assignment))).unwrap();
    let asked = |task: &u64| brief(&task.to_string(), "researcher", &format!("Task: {task}"));
    let children = tasks.iter().map(|task| sim.child(asked(task))).collect();
    (sim, children)
}

/// A command about these tasks, whose own agent is asked what to do.
fn led(tasks: &[u64]) -> (Sim, SessionId) {
    let mut sim = Sim::led(policy(Preset::Command, &["in_place=true"]), "research", "/research 7");
    let assignment = SlashCommandAssignment {
        tasks: tasks.to_vec(),
        agent: Some("researcher".into()),
        ..SlashCommandAssignment::new("research", Operation::Research)
    };
    sim.submit(Command::Assign(Box::new(assignment))).unwrap();
    let root = sim.root();
    sim.submit(Command::TakeTurn { session: root }).unwrap();
    (sim, root)
}

fn due(sim: &Sim) -> Vec<(SessionId, TaskListUpdate)> {
    let due = sim.tree.due_marks().map(|effect| match effect {
        Effect::UpdateTaskList { session, mark } => (session, mark),
        other => panic!("{other:?}"),
    });
    due.collect()
}

/// Performs every pending task list update in order and returns them.
fn make_marks(sim: &mut Sim, problem: Option<&str>) -> Vec<String> {
    let mut made = Vec::new();
    while let Some((session, mark)) = due(sim).into_iter().next() {
        let links: Vec<&str> = mark.links.iter().map(|link| link.path.as_str()).collect();
        let status = mark.status.map_or("-", TaskStatus::as_str);
        made.push(format!("{} {status} [{}]", mark.task, links.join(" ")));
        let problem = problem.filter(|_| mark.work == UpdateTrigger::Ended).map(str::to_owned);
        sim.submit(Command::TakeListUpdate { session, mark, problem }).unwrap();
    }
    made
}

fn conclude(sim: &mut Sim, child: SessionId, call: u32, value: &Value) -> String {
    let (call, text) = (Some(call), value.to_string());
    let artifacts = vec![("report.md".to_owned(), ArtifactFileState::Present)];
    kinds(
        &sim.submit(Command::Conclude { session: child, call, text, artifacts, changed: None })
            .unwrap(),
    )
}

/// What the agent's latest call was answered with.
fn answered(sim: &Sim, child: SessionId) -> &str {
    let of_child = sim.log.iter().rev().find_map(|(_, event)| match event {
        Event::ToolReturned { session, output, .. } if *session == child => Some(&output.content),
        _ => None,
    });
    of_child.unwrap()
}

/// The agent writes a file.
fn writes(sim: &mut Sim, child: SessionId, path: &str) {
    let after = Some("0".repeat(64));
    let change = ContentChange { path: path.into(), before: None, after };
    sim.call(child, vec![tool("w", "Write", json!({}))]);
    let turn = sim.node(child).turn;
    let wrote = Command::PrepareWrite { session: child, turn, call: 0, intent: change.into() };
    assert_eq!(kinds(&sim.submit(wrote).unwrap()), "write_prepared");
    sim.output(child, 0, "Written.");
}

fn completed() -> Value {
    let mut value = returned("completed", json!([]));
    value["artifacts"] = json!([{"type": "research", "path": "report.md"}]);
    value
}

#[test]
fn a_return_call_is_judged_after_all_other_calls_of_the_answer() {
    let (mut sim, child) = standard();
    let good = returned("completed", json!([]));
    let call = hands_back(&good);
    sim.call(child, vec![call.clone(), read("a", "x"), call.clone()]);
    let verify =
        |sim: &Sim| sim.effects.iter().filter(|it| matches!(it, Effect::Verify { .. })).count();
    assert_eq!(verify(&sim), 0);
    assert!(sim.told(child)[0].contains("one answer can hand back one return"));
    sim.output(child, 1, "text");
    let asked = Effect::Verify { session: child, returned: Some((0, call)) };
    assert_eq!((verify(&sim), sim.effects.last()), (1, Some(&asked)));
    let done = conclude(&mut sim, child, 0, &good);
    assert_eq!(done, "judged tool_returned ended ended run_ended");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn a_return_call_is_repaired_at_most_twice_and_each_judgement_is_recorded() {
    let bad = json!({"status": "done"});
    for repaired in 0..=2 {
        let (mut sim, child) = standard();
        for _ in 0..repaired {
            sim.call(child, vec![hands_back(&bad)]);
            assert_eq!(conclude(&mut sim, child, 0, &bad), "judged tool_returned reserved");
        }
        let good = returned("completed", json!([]));
        sim.call(child, vec![hands_back(&good)]);
        conclude(&mut sim, child, 0, &good);
        assert_eq!(sim.ended(child), "completed", "after {repaired} repairs");
    }
    let (mut sim, child) = standard();
    // Once as an answer, once by the tool: both are repairs of the one return.
    returns(&mut sim, child, &bad, &[]);
    sim.call(child, vec![hands_back(&bad)]);
    conclude(&mut sim, child, 0, &bad);
    sim.call(child, vec![hands_back(&bad)]);
    assert_eq!(conclude(&mut sim, child, 0, &bad), "judged tool_returned ended ended run_ended");
    assert!(answered(&sim, child).starts_with("Your return was not accepted."));
    assert_eq!(sim.code(child), Some(ErrorCode::ValidationFailed));
    let judged = sim.log.iter().filter(|(_, event)| matches!(event, Event::Judged { .. })).count();
    assert_eq!(judged, 3);
}

#[test]
fn a_person_s_message_is_delivered_before_a_return_call_is_accepted() {
    let (mut sim, child) = standard();
    let good = returned("completed", json!([]));
    sim.call(child, vec![hands_back(&good)]);
    sim.submit(Command::Tell { session: child, text: "Wait.".into() }).unwrap();
    assert_eq!(conclude(&mut sim, child, 0, &good), "tool_returned told reserved");
    sim.call(child, vec![hands_back(&good)]);
    assert_eq!(conclude(&mut sim, child, 0, &good), "judged tool_returned ended ended run_ended");
}

#[test]
fn only_the_contract_decides_who_may_call_return() {
    let (mut sim, child) = begun(&[], about("x"));
    sim.call(child, vec![hands_back(&json!({}))]);
    assert!(sim.told(child)[0].starts_with("Not run: `Return` is not available to you."));
}

#[test]
fn requirement_36_the_task_list_is_updated_when_work_begins_and_ends() {
    let errors = json!([{"type": "execution", "message": "Which of the two?", "code": "BUILD_ERROR",
        "recoverable": true, "recommendation": "Say which."}]);
    let of = |status: &str| returned(status, errors.clone());
    for (value, marked) in [
        (completed(), "7 researched [report.md]"),
        (of("partial"), "7 in_progress []"),
        (of("failed"), "7 in_progress []"),
        (of("blocked"), "7 blocked []"),
    ] {
        let (mut sim, children) = command(&[7]);
        assert_eq!(make_marks(&mut sim, None), ["7 researching []"]);
        if value == completed() {
            writes(&mut sim, children[0], "report.md");
        }
        sim.call(children[0], vec![hands_back(&value)]);
        conclude(&mut sim, children[0], 0, &value);
        let reason = due(&sim)[0].1.reason.clone();
        assert_eq!(reason.as_deref(), (marked.contains("blocked")).then_some("Which of the two?"));
        // The run waits for the mark.
        assert_eq!(sim.tree.outcome(), None);
        assert_eq!(make_marks(&mut sim, None), [marked]);
        assert!(sim.tree.outcome().is_some());
    }
}

#[test]
fn the_end_update_follows_the_begin_update_and_a_crash_loses_neither() {
    let (mut sim, children) = command(&[7]);
    sim.cancel(children[0]);
    let begun = due(&sim);
    assert_eq!((begun.len(), begun[0].1.work), (1, UpdateTrigger::Begun));
    sim.restart(ResumeOptions::default());
    assert_eq!(due(&sim), begun);
    assert_eq!(make_marks(&mut sim, None), ["7 researching []", "7 in_progress []"]);
    assert_eq!(sim.tree.outcome(), Some(Outcome::Cancelled));
    // A report about an update that is not pending changes nothing.
    let (session, mark) = begun.into_iter().next().unwrap();
    assert_eq!(sim.submit(Command::TakeListUpdate { session, mark, problem: None }), Ok(vec![]));
}

#[test]
fn requirement_20_what_was_written_before_the_time_ran_out_is_linked() {
    let (mut sim, children) = command(&[7]);
    make_marks(&mut sim, None);
    let child = children[0];
    writes(&mut sim, child, "notes.md");
    make_marks(&mut sim, None);
    while sim.state(child).is_live() {
        sim.tick_next().unwrap();
    }
    let linked = TaskArtifact { kind: ArtifactKind::Research, path: "notes.md".into() };
    assert_eq!(due(&sim)[0].1.links, [linked]);
}

#[test]
fn d26_completed_without_a_file_is_phantom_work_where_the_command_says_so() {
    let (mut sim, children) = command(&[7]);
    make_marks(&mut sim, None);
    let none = returned("completed", json!([]));
    sim.call(children[0], vec![hands_back(&none)]);
    assert_eq!(conclude(&mut sim, children[0], 0, &none), "judged tool_returned reserved");
    assert_eq!(sim.node(children[0]).rights.writes, WriteScope::Anywhere);
    // A file that was there before proves nothing; one of its own does.
    let named = completed();
    sim.call(children[0], vec![hands_back(&named)]);
    assert_eq!(conclude(&mut sim, children[0], 0, &named), "judged tool_returned reserved");
    let told = answered(&sim, children[0]);
    assert!(told.contains("None of the artifacts was made or changed by this work"), "{told}");
    writes(&mut sim, children[0], "report.md");
    sim.call(children[0], vec![hands_back(&named)]);
    conclude(&mut sim, children[0], 0, &named);
    assert_eq!(sim.ended(children[0]), "completed");
}

#[test]
fn a_command_ends_like_its_delegated_work_also_after_a_resume() {
    let (mut sim, root) = led(&[7]);
    let child = sim.child(brief("r", "researcher", "Task: 7"));
    make_marks(&mut sim, None);
    sim.cancel(child);
    make_marks(&mut sim, None);
    sim.say(root, "It was cancelled.");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Cancelled));
    // Why is its agent's to say.
    assert_eq!((sim.code(root), sim.code(child)), (None, Some(ErrorCode::Cancelled)));
    // Only the child is resumed; the command completes once the child has.
    sim.restart(ResumeOptions { session: Some(child), ..ResumeOptions::default() });
    assert_eq!(make_marks(&mut sim, None), ["7 researching []"]);
    let value = completed();
    sim.call(child, vec![hands_back(&value)]);
    conclude(&mut sim, child, 0, &value);
    assert_eq!(make_marks(&mut sim, None), ["7 researched [report.md]"]);
    assert_eq!(sim.tree.outcome(), Some(Outcome::Completed));
}

#[test]
fn a_helper_delegation_neither_updates_the_task_list_nor_decides_the_outcome() {
    let errors = json!([{"type": "execution", "message": "It broke.", "code": "BUILD_ERROR",
        "recoverable": true, "recommendation": "Mend it."}]);
    let cases = [("completed", Outcome::Completed), ("failed", Outcome::Failed)];
    for (status, errand, own) in
        cases.iter().flat_map(|(status, end)| [(*status, *end, false), (*status, *end, true)])
    {
        let (mut sim, root) = led(&[7]);
        let helper = sim.child(brief("h", "helper", "Task: 7"));
        assert_eq!(due(&sim), [], "an errand is marked");
        let value = returned(status, if status == "failed" { errors.clone() } else { json!([]) });
        sim.call(helper, vec![hands_back(&value)]);
        conclude(&mut sim, helper, 0, &value);
        assert_eq!((sim.state(helper), due(&sim)), (DelegationState::Ended(errand), vec![]));
        if own {
            let child = sim.child(brief("r", "researcher", "Task: 7"));
            make_marks(&mut sim, None);
            sim.call(child, vec![hands_back(&completed())]);
            conclude(&mut sim, child, 0, &completed());
            assert_eq!(make_marks(&mut sim, None), ["7 researched [report.md]"]);
        }
        sim.say(root, "All done!");
        let expected = if own { "completed" } else { "failed VALIDATION_FAILED: Nothing was" };
        assert!(sim.ended(root).starts_with(expected), "{status} {own}: {}", sim.ended(root));
    }
}

#[test]
fn a_command_that_does_not_delegate_all_its_tasks_is_partial() {
    let (mut sim, root) = led(&[7, 8, 9]);
    let child = sim.child(brief("r", "researcher", "Task: 8"));
    make_marks(&mut sim, None);
    sim.call(child, vec![hands_back(&completed())]);
    conclude(&mut sim, child, 0, &completed());
    make_marks(&mut sim, None);
    sim.say(root, "All done!");
    insta::assert_snapshot!(sim.ended(root), @r"
    partial VALIDATION_FAILED: Tasks 7, 9 were not handed to `researcher`.
    => Run the command again for what is left.
    ");
}

#[test]
fn a_command_without_list_updates_or_delegations_is_not_completed() {
    let (mut sim, root) = led(&[7]);
    sim.say(root, "All done!");
    insta::assert_snapshot!(sim.ended(root), @r"
    failed VALIDATION_FAILED: Nothing was handed to `researcher`, so nothing was done.
    => Run the command again, or with another model.
    ");
    let (mut sim, root) = led(&[7]);
    let child = sim.child(brief("r", "researcher", "Task: 7"));
    make_marks(&mut sim, None);
    let value = completed();
    sim.call(child, vec![hands_back(&value)]);
    conclude(&mut sim, child, 0, &value);
    make_marks(&mut sim, Some("TODO.md is not UTF-8"));
    sim.say(root, "All done!");
    insta::assert_snapshot!(sim.ended(root), @r"
    partial STATUS_SYNC_FAILED: The work is done, but task 7 could not be marked: TODO.md is not UTF-8
    => Put the list right, then `adjutant task set 7 researched`.
    ");
}

/// What a delegation was granted: its prompt, and the task of its delegation context.
fn granted_as(sim: &Sim, session: SessionId) -> (String, Value) {
    let grant = sim.log.iter().find_map(|(_, event)| match event {
        Event::Granted(grant) if grant.session == session => Some(grant),
        _ => None,
    });
    let grant = grant.unwrap();
    let (_, context) = grant.preface.as_ref().unwrap().split_once('\n').unwrap();
    let context: Value = serde_json::from_str(context).unwrap();
    (grant.brief.prompt.clone(), context["task_context"].clone())
}

#[test]
fn requirements_12_and_13_the_task_is_named_in_the_prompt_and_passed_down_to_depth_3() {
    let mut sim = Sim::new(policy(Preset::Command, &["cycle_key=task"]));
    let facts = TaskDetails {
        number: 271,
        description: Some("Add JWT".into()),
        complexity: Some("high".into()),
        folder: Some("specs/271_add_jwt".into()),
    };
    sim.submit(Command::Assign(Box::new(SlashCommandAssignment {
        tasks: vec![271],
        agent: Some("implementer".into()),
        facts: vec![facts],
        ..SlashCommandAssignment::new("implement", Operation::Implement)
    })))
    .unwrap();
    let about = json!({"command": "implement", "language": "general", "task_number": 271,
        "description": "Add JWT", "complexity": "high", "task_folder": "specs/271_add_jwt"});
    let work = sim.child(brief("a", "implementer", "Do it."));
    assert_eq!(granted_as(&sim, work), ("Task: 271\n\nDo it.".into(), about.clone()));
    let specialist = sim.child_of(work, brief("b", "specialist", "Which one?"));
    assert_eq!(granted_as(&sim, specialist), ("Which one?".into(), about.clone()));
    let helper = sim.child_of(specialist, brief("c", "helper", "Count."));
    assert_eq!(granted_as(&sim, helper), ("Count.".into(), about.clone()));
    // The same prompt is the same task, with or without the `Task:` line.
    for prompt in ["Do it.", "Task: 271\nDo it."] {
        let task = brief("d", "implementer", prompt);
        let events = sim.ask(work, vec![task], None).unwrap();
        assert_eq!(crate::sim::refused(&events), [ErrorCode::CycleDetected], "{prompt}");
    }
    assert_eq!(due(&sim).len(), 1, "only the work of the command is marked");
}

#[test]
fn requirement_28_work_of_a_built_in_command_names_a_file_of_its_type() {
    let mut sim = Sim::new(policy(Preset::Command, &["in_place=true", "concurrency=4"]));
    sim.submit(Command::Assign(Box::new(SlashCommandAssignment {
        tasks: vec![7],
        agent: Some("researcher".into()),
        artifact_kind: Some(ArtifactKind::Research),
        ..SlashCommandAssignment::new("research", Operation::Research)
    })))
    .unwrap();
    let child = sim.child(brief("r", "researcher", "Find out."));
    let errand = sim.child(brief("h", "helper", "Count."));
    make_marks(&mut sim, None);
    let mut value = completed();
    value["artifacts"][0]["type"] = json!("summary");
    sim.call(child, vec![hands_back(&value)]);
    assert_eq!(conclude(&mut sim, child, 0, &value), "judged tool_returned reserved");
    let told = answered(&sim, child);
    assert!(told.contains("- artifacts: None of the artifacts has the type research\n"), "{told}");
    sim.call(errand, vec![hands_back(&value)]);
    conclude(&mut sim, errand, 0, &value);
    assert_eq!(sim.ended(errand), "completed", "an errand has no type of its own");
}
