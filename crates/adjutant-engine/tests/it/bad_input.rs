//! Invalid tasks and invalid output of models.

use adjutant_core::{Event, Outcome};
use adjutant_engine::EngineError;
use adjutant_testkit::Rig;

#[tokio::test(start_paused = true)]
async fn too_many_tasks_refuse_the_whole_call_and_create_no_files() {
    let mut rig = Rig::new().script("[[turn]]\ntext = \"done\"\n");
    for number in 0..9 {
        rig = rig.task(&number.to_string(), "Look");
    }
    let disk = rig.disk();
    let trace = rig.delegate().await;
    let Err(EngineError::Refused(refusal)) = &trace.result else { panic!("{:?}", trace.result) };
    assert_eq!(refusal.message(), "Too many delegations (9). Maximum: 8");
    assert!(disk.bytes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unusable_context_file_refuses_only_its_task() {
    let rig = Rig::new().file("ok.txt", "fine").script("[[turn]]\ntext = \"done\"\n");
    std::os::unix::fs::symlink("/etc/passwd", rig.tree().join("link")).unwrap();
    std::os::unix::net::UnixListener::bind(rig.tree().join("socket")).unwrap();
    std::fs::write(rig.tree().join("huge"), vec![b'x'; 1 << 20]).unwrap();
    let trace = rig
        .task("outside", "a")
        .context("../secret")
        .task("absolute", "a")
        .context("/etc/passwd")
        .task("link", "a")
        .context("link")
        .task("socket", "a")
        .context("socket")
        .task("huge", "a")
        .context("huge")
        .task("fine", "a")
        .context("ok.txt")
        .delegate()
        .await;
    let mut ends = trace.ends();
    ends.sort();
    assert_eq!(
        ends,
        [
            "absolute: refused VALIDATION_FAILED",
            "fine: completed",
            "huge: refused VALIDATION_FAILED",
            "link: refused VALIDATION_FAILED",
            "outside: refused VALIDATION_FAILED",
            "socket: refused VALIDATION_FAILED",
        ]
    );
    assert_eq!(trace.requests.len(), 1, "nothing was asked for the refused ones");
}

#[tokio::test(start_paused = true)]
async fn malformed_tool_arguments_return_an_error_without_running_the_tool() {
    let script = r#"
        [[turn]]
        [[turn.call]]
        tool = "Read"
        raw_args = "{not json"
        [[turn.call]]
        tool = ""
        args = {}
        [[turn]]
        text = "done"
    "#;
    let trace = Rig::new().script(script).task("a", "Look").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let refused =
        trace.events.iter().filter(|(_, event)| matches!(event, Event::ToolRefused { .. })).count();
    assert_eq!(refused, 2);
}

#[tokio::test(start_paused = true)]
async fn ten_megabytes_of_text_are_accepted_as_reply() {
    let script = "[[turn]]\ntext_bytes = 10485760\nusage = { input = 10, output = 10 }\n";
    let trace = Rig::new().script(script).task("a", "Talk").delegate().await;
    assert_eq!(trace.outcome(), Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn empty_reply_is_retried_and_then_fails() {
    let script = "[[turn]]\ntext = \" \"\ntimes = 3\n";
    let trace = Rig::new().script(script).task("a", "Talk").delegate().await;
    assert_eq!(trace.ends(), ["a: failed VALIDATION_FAILED"]);
}

#[tokio::test(start_paused = true)]
async fn script_that_ends_early_fails_with_the_missing_turn() {
    let script = "[[turn]]\nlabel = \"another\"\ntext = \"done\"\n";
    let trace = Rig::new().script(script).task("a", "Talk").delegate().await;
    let message = trace.events.iter().find_map(|(_, event)| match event {
        Event::Ended { reason: Some(reason), .. } => Some(reason.message.clone()),
        _ => None,
    });
    assert_eq!(trace.ends(), ["a: failed PROVIDER_ERROR"]);
    assert!(message.unwrap().contains("no turn 1"));
}
