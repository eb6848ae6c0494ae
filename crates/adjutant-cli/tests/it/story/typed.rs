//! The flags of `adjutant story`: refused ones, those repeated in recommended commands, and mistakes that are found
//! before anything starts.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, says, writes};

fn project() -> Project {
    Project::new(&one_story(), [writes("US-001", "made", "made\n"), done("US-001")])
}

#[test]
fn flags_of_other_commands_are_refused_and_not_listed() {
    let project = project();
    let before = project.repo.read("prd.json");
    let help = project.call(["story", "--help"]).run();
    for flags in [
        &["--agent", "reviewer"][..],
        &["--in-place"],
        &["--write"],
        &["--system", "prd.json"],
        &["--preset", "scout"],
        &["--preset=command"],
    ] {
        let out = project.working(flags).run();
        assert_eq!(out.code, 2, "{flags:?}: {out}");
        let flag = flags[0].split('=').next().unwrap();
        assert!(out.stderr.contains(flag), "{flags:?}: {out}");
        assert!(!help.stdout.contains(&format!("  {flag}")), "{flag}: {help}");
    }
    assert!(project.rig().runs().is_empty());
    assert_eq!(project.repo.read("prd.json"), before);
    // `--preset story` is accepted, and `ADJUTANT_PRESET` does not apply to stories.
    let out = project.working(&["--preset", "story"]).env("ADJUTANT_PRESET", "scout").run();
    assert_eq!(out.code, 0, "{out}");
    project.rig().write("prd.json", before);
    let out = project.working(&["--again"]).env("ADJUTANT_PRESET", "scout").run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn resume_recommends_the_same_command_as_the_first_report() {
    let mut spends = writes("US-001", "jwt", "a token\n");
    spends["usage"] = json!({ "input": 49_000, "output": 100 });
    let project = Project::new(&one_story(), [spends, done("US-001")]);
    let flags = [
        "--set",
        "context_tokens=1000000",
        "--set",
        "max_output_tokens=2000",
        "--budget-tokens",
        "50000",
        "--trust-prd",
    ];
    let first = project.json(&flags, 3)["stories"][0]["again"].as_str().unwrap().to_owned();
    assert!(first.contains(" --enable-delegation"), "{first}");
    let out = project.call(["resume", "--yes", "--json"]).run();
    let again = out.json()["stories"][0]["again"].as_str().unwrap().to_owned();
    assert_eq!(again, first, "{out}");
    // From elsewhere the tree is named too.
    let run = project.rig().only_run();
    let elsewhere = project.rig().work().join("src");
    let script = format!("script:{}", project.rig().path().join("script.json").display());
    let out = project.call(["resume", &run, "--yes", "--model", &script]).cwd(&elsewhere).run();
    assert!(out.stdout.contains(" --root "), "{out}");
    let out = project.call(again.split(' ').skip(1)).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn the_next_command_records_the_outcome_of_a_run_that_did_not_pass() {
    let partial = json!({ "label": "US-001", "call": [{ "tool": "Return", "args": {
        "status": "partial", "summary": "Half of it is done. The rest needs a word.", "artifacts": [],
        "errors": [{ "type": "execution", "message": "a word is missing", "code": "EXECUTION_ERROR",
        "recoverable": true, "recommendation": "Say the word." }], "next_steps": "Say the word.",
    } }] });
    let mut partial = partial;
    partial["delay_ms"] = json!(600);
    let project = Project::new(&one_story(), [writes("US-001", "half", "half\n"), partial]);
    let before = project.repo.read("prd.json");
    let mut running = project.working(&[]).start();
    running.wait_for("[US-001] Write half");
    project.rig().write("prd.json", "{ \"userStories\": [");
    let out = running.finish();
    assert_eq!(out.code, 3, "{out}");
    let run = project.rig().only_run();
    project.rig().write("prd.json", before);
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stdout.contains(&format!("adjutant resume {run}")), "{out}");
    assert!(
        out.stderr.contains(&format!("the outcome of {run} is now recorded in the PRD")),
        "{out}"
    );
    let entry = project.entry("US-001");
    assert_eq!(entry["passes"], false, "{entry:#}");
    assert_eq!(entry["adjutant"]["run"], run.as_str(), "{entry:#}");
    assert_eq!(entry["adjutant"]["status"], "partial", "{entry:#}");
    // Once is enough.
    let out = project.story(&[]);
    assert!(!out.stderr.contains("now recorded in the PRD"), "{out}");
}

#[test]
fn after_a_second_ctrl_c_one_command_resumes_the_story() {
    let slow = json!({ "label": "Implement JWT", "delay_ms": 60_000, "text": "I wait." });
    let turns = |slow: Vec<Value>| {
        let mut turns = vec![
            says("US-001", "[delegate:Implement JWT:1]"),
            done("US-001"),
            writes("Implement JWT", "jwt", "a token\n"),
        ];
        turns.extend(slow);
        turns.push(done("Implement JWT"));
        turns
    };
    let project = Project::new(&one_story(), turns(vec![slow]));
    let mut running = project.working(&["--enable-delegation"]).start();
    running.wait_for("[Implement JWT] Write jwt");
    running.signal(Signal::INT);
    running.wait_for("cancelling");
    // The work may have been committed by then; either way the next command resumes the story.
    running.signal(Signal::INT);
    assert_eq!(running.finish().code, 130);
    project.script(&json!({ "turn": turns(vec![says("Implement JWT", "I go on.")]) }));
    let out = project.call(["resume", "--yes"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
}

#[test]
fn a_problem_of_all_stories_is_found_before_one_is_announced() {
    let two = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
        { "id": "US-002", "title": "Log out", "passes": false },
    ] });
    let project = Project::new(&two, [done("US-001"), done("US-002")]);
    let bare = project.rig().path().join("bare");
    std::fs::create_dir(&bare).unwrap();
    let prd = project.rig().work().join("prd.json");
    let prd = prd.to_str().unwrap();
    let script = format!("script:{}", project.rig().path().join("script.json").display());
    let model = ["--yes", "--model", &script];
    for (words, flags, cwd) in [
        ("no such directory", vec!["--grant", "nowhere"], project.rig().work().to_owned()),
        ("repository", vec![], bare),
    ] {
        let out = project.call(["story", prd]).args(model).args(flags).cwd(&cwd).run();
        assert_ne!(out.code, 0, "{out}");
        assert!(out.stderr.contains(words), "{words}: {out}");
        assert!(!out.stderr.contains("US-001 Log in"), "{out}");
        assert!(!out.stdout.contains("could not be finished"), "{out}");
    }
    assert!(project.rig().runs().is_empty());
}

#[test]
fn a_plan_of_another_type_is_named_with_its_line_and_nothing_is_run() {
    for plan in [
        json!("x:2"),
        json!([5]),
        json!(["x"]),
        json!([{ "description": "x", "estimatedHours": "two" }]),
    ] {
        let prd = json!({ "userStories": [
            { "id": "US-001", "title": "Log in", "delegationStrategy": plan },
        ] });
        let project = Project::new(&prd, [done("US-001")]);
        let out = project.story(&[]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("story US-001: `delegationStrategy`"), "{out}");
        assert!(out.stderr.contains(": line "), "{out}");
        assert!(project.rig().runs().is_empty(), "{out}");
    }
}
