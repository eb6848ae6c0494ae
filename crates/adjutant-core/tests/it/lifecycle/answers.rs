//! Part of `lifecycle`: answers.

use super::*;

#[test]
fn a_cut_off_answer_is_requested_once_more_and_then_partial() {
    let (mut sim, child) = one(&[]);
    assert_eq!(kinds(&sim.reply(child, cut_off("a long"))), "replied told reserved");
    insta::assert_snapshot!(sim.told(child)[0], @"Your answer was cut off at the output limit. Say it again, shorter, in one message.");
    sim.reply(child, cut_off("still long"));
    insta::assert_snapshot!(sim.ended(child), @r#"
    partial BUDGET_EXCEEDED: The answer was cut off at 4,096 output tokens.
    => Ask for a shorter answer with `adjutant resume sess_1700000001_bbbbbb --say`, or start the run again with --set max_output_tokens=8192.
    "#);
    // Calls of an answer that was cut off are not run.
    assert!(sim.tools_run(child).is_empty());
    let (mut sim, child) = one(&[]);
    sim.reply(child, cut_off("a long"));
    sim.say(child, "short");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn the_limit_an_answer_was_cut_at_can_be_raised_as_recommended() {
    let flag = |sim: &Sim, child: SessionId| sim.end(child).1.unwrap().recommendation;
    let (mut sim, child) = one(&["max_output_tokens=500"]);
    sim.reply(child, cut_off("a"));
    sim.reply(child, cut_off("b"));
    let text = flag(&sim, child);
    assert!(text.contains("--set max_output_tokens=1000"), "{text}");
    // What the model or the task bounds is not mended by a setting.
    for brief in [
        Brief { model: Some(ModelSpec { max_output: 300, ..model() }), ..about("x") },
        Brief { max_output_tokens: Some(200), ..about("x") },
    ] {
        let mut sim = Sim::new(scout(&[]));
        let child = sim.child(brief);
        sim.reply(child, cut_off("a"));
        sim.reply(child, cut_off("b"));
        let text = flag(&sim, child);
        assert!(!text.contains("--set"), "{text}");
    }
}

#[test]
fn an_empty_report_is_requested_twice_more_and_then_failed() {
    let (mut sim, child) = one(&[]);
    for _ in 0..MAX_REPAIRS {
        assert_eq!(kinds(&sim.say(child, " \n")), "replied told reserved");
    }
    sim.say(child, "");
    insta::assert_snapshot!(sim.ended(child), @r"
    failed VALIDATION_FAILED: The return was still invalid after 2 repairs. Your answer was empty. Write your report as text.
    => Read the original answer in the transcript, or delegate the task again.
    ");
    let (mut sim, child) = one(&[]);
    sim.say(child, "");
    sim.say(child, "");
    sim.say(child, "here it is");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn a_model_that_declines_is_a_provider_error_and_keeps_what_was_found() {
    let declines = || ModelReply { stop: StopReason::Refused, ..says("") };
    let (mut sim, child) = one(&[]);
    sim.reply(child, declines());
    insta::assert_snapshot!(sim.ended(child), @r"
    failed PROVIDER_ERROR: refused by the provider: the model declined to answer
    => Change the task, or use another model.
    ");
    let (mut sim, child) = one(&[]);
    sim.reply(child, ModelReply { text: "So far: x.".into(), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "text");
    sim.reply(child, declines());
    assert_eq!(sim.end(child).0, Outcome::Partial);
}

#[test]
fn requirement_26_a_return_ends_the_work_as_its_status_says() {
    let errors = json!([{"type": "execution", "message": "Which branch?", "code": "BUILD_ERROR",
        "recoverable": true, "recommendation": "Say which."}]);
    for (status, errors, outcome, code) in [
        ("completed", json!([]), Outcome::Completed, None),
        ("partial", errors.clone(), Outcome::Partial, Some(ErrorCode::BuildError)),
        ("failed", errors.clone(), Outcome::Failed, Some(ErrorCode::BuildError)),
        ("blocked", errors, Outcome::Blocked, Some(ErrorCode::BuildError)),
    ] {
        let (mut sim, child) = standard();
        returns(&mut sim, child, &returned(status, errors), &[]);
        assert_eq!((sim.end(child).0, sim.code(child)), (outcome, code), "{status}");
        assert_eq!(sim.tree.outcome(), Some(outcome));
    }
}

#[test]
fn requirement_35_an_invalid_return_is_repaired_twice_at_most() {
    let (mut sim, child) = standard();
    let bad = returned("done", json!([]));
    for _ in 0..MAX_REPAIRS {
        assert_eq!(returns(&mut sim, child, &bad, &[]), "judged told reserved");
    }
    assert_eq!(
        sim.log
            .iter()
            .filter(|(_, event)| matches!(
                event,
                Event::Told { nudge: AddedMessageReason::Repair, .. }
            ))
            .count(),
        2
    );
    assert!(sim.told(child)[0].contains("status: Invalid status: done"));
    // An answer is judged once, even if its artifacts are checked twice.
    let again = Command::Conclude {
        session: child,
        call: None,
        text: bad.to_string(),
        artifacts: vec![],
        changed: None,
    };
    assert_eq!(sim.submit(again), Ok(vec![]));
    returns(&mut sim, child, &returned("completed", json!([])), &[]);
    assert_eq!(sim.ended(child), "completed");
    let (mut sim, child) = standard();
    for _ in 0..=MAX_REPAIRS {
        returns(&mut sim, child, &bad, &[]);
    }
    insta::assert_snapshot!(sim.ended(child), @r"
    failed VALIDATION_FAILED: The return was still invalid after 2 repairs. status: Invalid status: done
    => Read the original answer in the transcript, or delegate the task again.
    ");
}

#[test]
fn requirement_28_artifacts_are_checked_on_disk() {
    let mut value = returned("completed", json!([]));
    value["artifacts"] = json!([{"type": "research", "path": "report.md"}]);
    let (mut sim, child) = standard();
    let missing = returns(&mut sim, child, &value, &[("report.md", ArtifactFileState::Missing)]);
    assert_eq!(missing, "judged told reserved");
    returns(&mut sim, child, &value, &[("report.md", ArtifactFileState::Present)]);
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn requirement_29_the_engine_fills_in_metadata_and_compares_claims() {
    let (mut sim, child) = standard();
    let mut value = returned("completed", json!([]));
    value["metadata"] = json!({"session_id": "sess_1735460684_a1b2c3"});
    assert_eq!(returns(&mut sim, child, &value, &[]), "judged told reserved");
    assert!(sim.told(child)[0].contains("Session ID mismatch"), "{:?}", sim.told(child));
}
