//! What agents in workspaces are told about the project: the state that their workspaces were made from.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

use std::path::Path;
use std::process::Command;

use adjutant_core::{Event, Outcome};
use adjutant_engine::{ControlCommand, ResumeRequest};
use adjutant_testkit::RunTrace;

use crate::workspace_rig::{KINDS, UserRepository, adds, call, says};

/// A lead that calls twice: first one writer, then two.
fn two_calls() -> String {
    let delegate = |labels: &[&str]| {
        let task = |label: &&str| format!("{{ label = \"{label}\", prompt = \"{label}\" }}");
        let tasks = labels.iter().map(task).collect::<Vec<_>>().join(", ");
        call("root", "Delegate", &format!("{{ tasks = [{tasks}] }}"))
    };
    let writers = ["early", "late one", "late two"].map(|it| adds(it, it) + &says(it, "done"));
    delegate(&["early"])
        + &delegate(&["late one", "late two"])
        + &says("root", "done")
        + &writers.concat()
}

/// Switches the user's checkout to a new branch with a new directory.
fn switch(tree: &Path, branch: &str) {
    let git = Command::new("git").args(["switch", "-q", "-c", branch]).current_dir(tree).status();
    assert!(git.unwrap().success());
    std::fs::create_dir_all(tree.join(branch)).unwrap();
    std::fs::write(tree.join(branch).join("file"), "").unwrap();
}

/// Returns the facts of the system prompts of an agent, which must all be equal.
fn facts(trace: &RunTrace, label: &str) -> String {
    let sent = trace.requests.iter().filter(|request| request.label == label);
    let block = |system: &str| {
        let from = system.find("# Environment").unwrap();
        system[from..][..system[from..].find("</project>").unwrap()].to_owned()
    };
    let mut all: Vec<String> = sent.map(|request| block(&request.system)).collect();
    all.dedup();
    assert_eq!(all.len(), 1, "{label}: {all:?}");
    all.remove(0)
}

#[tokio::test]
async fn writers_are_told_the_branch_and_files_of_the_state_that_was_captured_for_their_call() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let tree = yard.tree();
        let rig = yard.rig(kind, &two_calls()).guided().goal("Do it");
        let disk = rig.disk();
        let rig = rig.on_event(move |event, _| {
            if matches!(event, Event::Ended { .. }) && !tree.join("other").exists() {
                switch(&tree, "other");
            }
        });
        let trace = rig.delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        let [root, early, one, two] =
            ["root", "early", "late one", "late two"].map(|label| facts(&trace, label));
        assert!(root.contains("branch: main\n") && !root.contains("other"), "{kind:?}: {root}");
        assert_eq!(early, root, "{kind:?}: nothing had changed");
        assert!(
            one.contains("branch: other\n") && one.contains("other/: file\n"),
            "{kind:?}: {one}"
        );
        assert_eq!(two, one, "{kind:?}: agents of one call");
        let journal = String::from_utf8(disk.bytes()).unwrap();
        let recorded = journal.matches("# Environment").count();
        assert_eq!(recorded, 2, "{kind:?}: for the run, and for the second call");
    }
}

#[tokio::test]
async fn a_resumed_writer_is_told_the_recorded_facts_of_its_base() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let tree = yard.tree();
        let rig = yard.rig(kind, &two_calls()).guided().goal("Do it");
        let disk = rig.disk();
        let rig = rig.on_event(move |event, control| match event {
            Event::Ended { .. } if !tree.join("other").exists() => switch(&tree, "other"),
            Event::SpaceMade { project: Some(_), .. } => {
                control.try_send(ControlCommand::CancelRun).unwrap();
            }
            _ => {}
        });
        let cut = rig.delegate().await;
        assert_eq!(cut.outcome(), Outcome::Cancelled, "{kind:?}");
        let recorded = cut.events.iter().find_map(|(_, event)| match event {
            Event::SpaceMade { project, .. } => project.as_ref().map(|it| it.text.clone()),
            _ => None,
        });
        let recorded = recorded.unwrap();
        switch(&yard.tree(), "third");
        let rig = yard.rig(kind, &two_calls()).guided();
        let trace = rig.resume(&disk.bytes(), ResumeRequest::default()).await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        for label in ["late one", "late two"] {
            let told = facts(&trace, label);
            assert!(recorded.contains(&told), "{kind:?}: {label}: {told}\n{recorded}");
        }
    }
}

#[tokio::test]
async fn the_child_of_a_writer_is_told_the_files_of_its_parent_and_the_captured_branch() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let down = "{ tasks = [{ label = \"below\", prompt = \"go on\" }] }";
        let script = call("top", "Write", "{ file_path = \"made/file\", content = \"new\" }")
            + &call("top", "Delegate", down)
            + &says("top", "done")
            + &adds("below", "by below")
            + &says("below", "done");
        let rig = yard.rig(kind, &script).guided().policy(|policy| {
            policy.max_depth = 2;
            let tools = policy.tools.iter().chain(["Delegate"]);
            policy.tools = adjutant_core::ToolSet::new(tools);
        });
        let tree = yard.tree();
        let rig = rig.on_event(move |event, _| {
            if matches!(event, Event::ToolReturned { .. }) && !tree.join("other").exists() {
                switch(&tree, "other");
            }
        });
        let trace = rig.task("top", "work").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        let (top, below) = (facts(&trace, "top"), facts(&trace, "below"));
        assert!(top.contains("branch: main\n") && !top.contains("made/"), "{kind:?}: {top}");
        assert!(below.contains("branch: main\n"), "{kind:?}: {below}");
        assert!(below.contains("made/: file\n"), "{kind:?}: {below}");
        assert!(!below.contains("other"), "{kind:?}: {below}");
    }
}
