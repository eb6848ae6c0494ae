//! Agents that write in their own workspaces: isolation, and what is kept for each outcome.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use adjutant_core::{Event, Outcome};
use adjutant_engine::prd::reserved_files;
use adjutant_engine::{ControlCommand, EngineError, WorkspaceSetup};

use crate::workspace_rig::{KINDS, UserRepository, adds, call, kept, says, told};

#[tokio::test]
async fn siblings_that_write_the_same_file_are_isolated() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let before = yard.mine();
        let read = |label: &str| call(label, "Read", "{ path = \"list\" }");
        let writer = |label: &str| adds(label, label) + &read(label) + &says(label, "done");
        let script = writer("one") + &writer("two");
        let trace = yard.rig(kind, &script).task("one", "a").task("two", "b").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        assert_eq!(yard.mine(), before, "{kind:?}");
        for (label, other) in [("one", "two"), ("two", "one")] {
            let files = yard.work(&trace, label);
            assert_eq!(files["list"], format!("{label}\nEND\n"), "{kind:?}");
            assert_eq!(files["mine"], "untracked\n", "{kind:?}: it began from the true state");
            let seen = told(&trace, label).concat();
            assert!(seen.contains(label) && !seen.contains(other), "{kind:?}: {seen}");
        }
    }
}

#[tokio::test]
async fn child_of_a_writer_starts_from_its_state_and_does_not_change_it() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let down = "{ tasks = [{ label = \"below\", prompt = \"go on\" }] }";
        let script = adds("top", "by top")
            + &call("top", "Delegate", down)
            + &adds("top", "later")
            + &says("top", "done")
            + &adds("below", "by below")
            + &says("below", "done");
        let rig = yard.rig(kind, &script);
        let before = yard.mine();
        let rig = rig.policy(|policy| {
            policy.max_depth = 2;
            let tools = policy.tools.iter().chain(["Delegate"]);
            policy.tools = adjutant_core::ToolSet::new(tools);
        });
        let trace = rig.task("top", "work").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        assert_eq!(yard.work(&trace, "below")["list"], "by top\nby below\nEND\n", "{kind:?}");
        assert_eq!(yard.work(&trace, "top")["list"], "by top\nlater\nEND\n", "{kind:?}");
        assert_eq!(yard.mine(), before, "{kind:?}");
    }
}

/// The ends of an agent that has written: the rest of its script, and the expected outcome.
const ENDS: [(&str, &str); 4] = [
    ("error = \"authentication\"", "half: failed PROVIDER_ERROR"),
    ("panic = true", "half: failed INTERNAL"),
    ("text = \"late\"\ndelay_ms = 600000", "half: partial TIMEOUT"),
    ("text = \"never\"\ndelay_ms = 600000\nchunks = 2", "half: cancelled CANCELLED"),
];

#[tokio::test]
async fn work_is_kept_for_every_outcome() {
    for kind in KINDS {
        for (turn, expected) in ENDS {
            let yard = UserRepository::new();
            let before = yard.mine();
            let script = adds("half", "half done") + "[[turn]]\nlabel = \"half\"\n" + turn;
            let mut rig = yard.rig(kind, &script).task("half", "work");
            if expected.contains("TIMEOUT") {
                rig = rig.policy(|policy| {
                    policy.timeout_s = adjutant_core::policy::DelegationTimeout::Seconds(2);
                });
            }
            if expected.contains("CANCELLED") {
                rig = rig.on_event(|event, control| {
                    if matches!(event, Event::Reserved { reservation, .. } if reservation.turn == 2)
                    {
                        control.try_send(ControlCommand::CancelRun).unwrap();
                    }
                });
            }
            let trace = rig.delegate().await;
            assert_eq!(trace.ends(), [expected], "{kind:?}");
            let files = yard.work(&trace, "half");
            assert_eq!(files["list"], "half done\nEND\n", "{kind:?}: {expected}");
            assert_eq!(yard.mine(), before, "{kind:?}: {expected}");
        }
    }
}

#[tokio::test]
async fn agent_without_changes_leaves_no_ref() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let trace = yard.rig(kind, &says("idle", "done")).task("idle", "a").delegate().await;
        assert_eq!(kept(&trace, "idle").reference, None, "{kind:?}");
        let all = yard.git(&["for-each-ref", "--format=%(refname)", "refs/adjutant"]);
        assert_eq!(all, "", "{kind:?}: nor is what it began from held any longer");
    }
}

#[tokio::test]
async fn without_a_repository_no_model_is_called() {
    for kind in KINDS {
        let yard = UserRepository::without_repository();
        let trace = yard.rig(kind, &says("a", "done")).task("a", "work").delegate().await;
        let Err(EngineError::Workspaces(why)) = &trace.result else { panic!("{:?}", trace.result) };
        assert!(why.contains("git init"), "{why}");
        assert!(trace.requests.is_empty() && trace.events.is_empty(), "{:?}", trace.kinds());
    }
}

#[tokio::test]
async fn command_output_is_streamed_and_cancel_kills_the_command() {
    for kind in KINDS {
        let yard = UserRepository::new();
        let command = "{ command = \"echo begun > ran; echo ready; sleep 600; echo over >> ran\" }";
        let script = call("long", "Run", command) + &says("long", "done");
        let cancelled: Rc<Cell<Option<Instant>>> = Rc::default();
        let at = Rc::clone(&cancelled);
        let rig = yard.rig(kind, &script).task("long", "work").on_event(move |event, control| {
            let Event::Printed { text, .. } = event else { return };
            if text.contains("ready") && at.replace(Some(Instant::now())).is_none() {
                control.try_send(ControlCommand::CancelRun).unwrap();
            }
        });
        let trace = rig.delegate().await;
        let took = cancelled.get().expect("it printed").elapsed();
        assert_eq!(trace.ends(), ["long: cancelled CANCELLED"], "{kind:?}");
        assert_eq!(yard.work(&trace, "long")["ran"], "begun\n", "{kind:?}");
        assert!(took < Duration::from_secs(60), "{kind:?}: {took:?} with the keeping of its work");
    }
}

#[tokio::test]
async fn reserved_files_are_not_in_results() {
    for kind in KINDS {
        let yard = UserRepository::new();
        for name in ["prd.json", ".prd.json.adjutant-new"] {
            std::fs::write(yard.tree().join(name), "{}\n").unwrap();
        }
        let reserved = reserved_files(&yard.tree().join("prd.json"));
        let setup = WorkspaceSetup { reserved, ..yard.setup(kind) };
        let copy = "{ file_path = \".prd.json.adjutant-new\", content = \"mine\" }";
        let script = adds("one", "one") + &call("one", "Write", copy) + &says("one", "done");
        let trace = yard.rig(kind, &script).spaces(setup).task("one", "a").delegate().await;
        assert_eq!(trace.outcome(), Outcome::Completed, "{kind:?}: {:?}", trace.ends());
        let files: Vec<String> = yard.work(&trace, "one").into_keys().collect();
        assert_eq!(files, ["list", "mine"], "{kind:?}");
        let skipped = kept(&trace, "one").skipped;
        assert_eq!(skipped, [".prd.json.adjutant-new (only Adjutant changes it)"], "{kind:?}");
    }
}
