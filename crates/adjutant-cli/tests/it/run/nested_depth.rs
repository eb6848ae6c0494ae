//! A run that is started inside another: `DELEGATION_DEPTH` gives its depth, and limits count from there.

use serde_json::Value;

use crate::support::project::{Project, done, one_story, partial, runs, says};
use crate::support::rig::Rig;

const DONE: &str = "[[turn]]\ntext = 'Done.'";

fn base_depth(rig: &Rig) -> Value {
    rig.events(&rig.only_run())[0]["base_depth"].clone()
}

#[test]
fn an_invalid_depth_variable_starts_no_run() {
    let rig = Rig::with_script(DONE);
    let project = Project::new(&one_story(), [done("US-001")]);
    let runs = ["run", "look", "--model", rig.model()];
    for value in ["deep", "-1", "1.5", " 1", "99999999999999999999"] {
        for call in [rig.delegating(&["-t", "a=x"]), rig.call(runs), project.working(&[])] {
            let out = call.env("DELEGATION_DEPTH", value).run();
            assert_eq!(out.code, 2, "{value}: {out}");
            assert!(out.stderr.contains("environment DELEGATION_DEPTH"), "{out}");
        }
    }
    assert!(rig.runs().is_empty() && project.rig().runs().is_empty());
    let out = rig.delegating(&["-t", "a=x"]).env("DELEGATION_DEPTH", "deep").run();
    insta::assert_snapshot!(out.talk(), @"
    adjutant: environment DELEGATION_DEPTH: `deep` is not a depth
      Set it to a whole number from 0 to 3, or unset it.
    [exit 2]
    ");
}

#[test]
fn a_nested_run_that_would_be_too_deep_is_refused() {
    let rig = Rig::with_script(DONE);
    // The task would sit at depth 2 of 1.
    let out = rig.delegating(&["-t", "a=x"]).env("DELEGATION_DEPTH", "1").run();
    assert_eq!(out.code, 4, "{out}");
    assert!(out.stdout.contains("Delegation depth limit (1) reached"), "{out}");
    assert!(out.stdout.contains("--set max_depth=2"), "{out}");
    // The root itself would.
    let rig = Rig::with_script(DONE);
    for (depth, call) in [
        ("2", rig.delegating(&["-t", "a=x"])),
        ("2", rig.call(["run", "look", "--model", rig.model()])),
        ("4", rig.delegating(&["-t", "a=x", "--preset", "command"])),
    ] {
        let out = call.env("DELEGATION_DEPTH", depth).run();
        assert_eq!(out.code, 4, "{out}");
        assert!(out.stderr.contains("MAX_DEPTH_EXCEEDED"), "{out}");
    }
    assert!(rig.runs().is_empty());
    let out = rig.delegating(&["-t", "a=x"]).env("DELEGATION_DEPTH", "2").run();
    insta::assert_snapshot!(out.talk(), @"
    adjutant: MAX_DEPTH_EXCEEDED: The run would start at depth 2 (DELEGATION_DEPTH), limit 1.
      Do this work in the process that started this one, or start the run again with --set max_depth=2.
    [exit 4]
    ");
}

#[test]
fn a_parent_at_the_deepest_level_works_without_delegating() {
    let rig = Rig::with_script(
        "[[turn]]\n[[turn.call]]\ntool = 'Delegate'\nargs = { tasks = [{ label = 'a', prompt = 'x' }] }\n\n[[turn]]\ntext = 'Done.'",
    );
    let out = rig
        .call(["run", "look", "--yes", "--model", rig.model()])
        .env("DELEGATION_DEPTH", "1")
        .run();
    assert_eq!(out.code, 0, "{out}");
    let events = rig.events(&rig.only_run());
    assert_eq!(base_depth(&rig), 1);
    let lead = events.iter().find(|event| event["type"] == "agent_defined").unwrap();
    assert!(!lead["tools"].to_string().contains("Delegate"), "{lead}");
    assert!(lead["system"].as_str().unwrap().contains("do the work yourself"), "{lead}");
    assert!(events.iter().all(|event| event["type"] != "granted"));
}

#[test]
fn commands_of_a_nested_run_inherit_its_total_depth() {
    let turns = [
        says("US-001", "[delegate:Look:1]"),
        done("US-001"),
        runs("Look", "env | sort | grep DELEGATION_DEPTH > depth"),
        done("Look"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.working(&["--enable-delegation"]).env("DELEGATION_DEPTH", "1").run();
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(project.left(&run, "US-001", "depth"), "DELEGATION_DEPTH=2\nMAX_DELEGATION_DEPTH=2");
    assert_eq!(project.entry("US-001-DEL-001")["delegationContext"]["depth"], 2);
}

#[test]
fn resume_counts_from_the_recorded_depth() {
    let turns = [partial("US-001"), says("US-001", "[delegate:Look:1]"), done("US-001")];
    let project = Project::new(&one_story(), turns);
    let out = project.working(&["--enable-delegation"]).env("DELEGATION_DEPTH", "2").run();
    assert_eq!(out.code, 3, "{out}");
    let run = project.rig().only_run();
    assert_eq!(base_depth(project.rig()), 2, "{out}");
    let resume = ["resume", &run, "--yes", "--say", "Hand it down."];
    let out = project.call(resume).env("DELEGATION_DEPTH", "none").run();
    assert_eq!(out.code, 0, "{out}");
    let refused = project.events(&run, "refused");
    assert_eq!(refused.len(), 1, "{out}");
    assert_eq!(refused[0]["reason"]["code"], "MAX_DEPTH_EXCEEDED");
}
