//! The name of the branch of a story, where it is reported, and which stories have one.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, says, writes};

fn story(id: &str) -> Value {
    json!({ "userStories": [{ "id": id, "title": "Do it", "passes": false }] })
}

fn project(id: &str) -> Project {
    Project::new(&story(id), [writes(id, "made", "made\n"), done(id)])
}

fn branches(project: &Project) -> Vec<String> {
    let all = project.repo.git(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]);
    all.lines().filter(|name| *name != "main").map(str::to_owned).collect()
}

#[test]
fn the_branch_is_named_in_the_report_and_in_the_prd() {
    let project = project("A");
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("  branch   adjutant/A\n"), "{out}");
    let json = project.json(&["--again"], 0);
    assert_eq!(json["stories"], json!([]), "it passes");
    let run = project.rig().only_run();
    let record = &project.entry("A")["adjutant"];
    let reference = format!("refs/adjutant/{run}/{}", project.session(&run, "A"));
    assert_eq!(
        (&record["branch"], &record["reference"]),
        (&json!("adjutant/A"), &json!(reference))
    );
    let project = self::project("A");
    let story = &project.json(&[], 0)["stories"][0];
    assert_eq!(story["branch"], "adjutant/A");
    assert!(story["reference"].as_str().unwrap().starts_with("refs/adjutant/run_"));
    // Without a branch none is named.
    let project = self::project("A");
    let story = &project.json(&["--merge", "apply"], 0)["stories"][0];
    assert_eq!(story["branch"], Value::Null);
    assert_eq!(project.entry("A")["adjutant"]["branch"], Value::Null);
    // A merged result is not merged again but can be undone.
    assert_eq!(story["merge"], Value::Null, "{story:#}");
    let undo = story["undo"].as_str().unwrap();
    let made = project.repo.rig.work().join("made");
    assert!(made.exists());
    let out = project.call(undo.split(' ').skip(1)).run();
    assert_eq!(out.code, 0, "{out}");
    assert!(!made.exists(), "{out}");
    let project = self::project("A");
    let out = project.story(&["--merge", "apply"]);
    assert!(!out.stdout.contains("  merge    "), "{out}");
    assert!(
        out.stdout.contains("  merged   into your files; `adjutant merge --undo run_"),
        "{out}"
    );
}

#[test]
fn a_story_id_that_git_accepts_is_the_branch_name() {
    for (id, name) in
        [("日本", "adjutant/日本"), ("US_1.b", "adjutant/US_1.b"), ("a'b", "adjutant/a'b")]
    {
        let project = project(id);
        let json = project.json(&[], 0);
        assert_eq!(json["stories"][0]["branch"], name, "{json:#}");
        assert_eq!(branches(&project), [name]);
    }
    for id in ["a~1", "x.lock", "a..b", "a:b"] {
        let project = project(id);
        let json = project.json(&[], 0);
        let branch = json["stories"][0]["branch"].as_str().unwrap();
        assert!(branch.starts_with("adjutant/run_"), "{json:#}");
        assert_eq!(branches(&project), [branch], "{json:#}");
        let remark = json["stories"][0]["remarks"][0].as_str().unwrap();
        assert!(remark.contains("git does not allow one called"), "{json:#}");
    }
}

#[test]
fn each_run_on_a_story_has_a_branch_of_its_own() {
    let project = project("A");
    for name in ["adjutant/A", "adjutant/A-2", "adjutant/A-3"] {
        project.repo.git(["checkout", "-q", "prd.json"]);
        let content = format!("{name}\n");
        project.script(&json!({ "turn": [writes("A", "made", &content), done("A")] }));
        let out = project.story(&["--again"]);
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stdout.contains(&format!("  branch   {name}\n")), "{out}");
        assert_eq!(project.repo.git(["show", &format!("{name}:made")]), name);
    }
    assert_eq!(branches(&project), ["adjutant/A", "adjutant/A-2", "adjutant/A-3"]);
}

#[test]
fn a_branch_name_that_is_blocked_gets_an_alternative() {
    for (id, expected) in [("A", "adjutant-A"), ("a~1", "adjutant-run_")] {
        let project = project(id);
        project.repo.git(["branch", "adjutant"]);
        let json = project.json(&[], 0);
        let story = &json["stories"][0];
        assert!(story["branch"].as_str().unwrap().starts_with(expected), "{json:#}");
        let remark = story["remarks"][0].as_str().unwrap();
        assert!(remark.contains("a branch called `adjutant`"), "{json:#}");
        assert_eq!(branches(&project).len(), 2);
    }
}

#[test]
fn the_report_says_why_a_branch_could_not_be_created() {
    let project = project("A");
    // The lock file of another git process that writes this branch or was killed.
    project.rig().write(".git/refs/heads/adjutant/A.lock", "");
    let json = project.json(&[], 3);
    let story = &json["stories"][0];
    assert_eq!((&story["passes"], &story["branch"]), (&json!(true), &Value::Null), "{json:#}");
    assert!(story["remarks"][0].as_str().unwrap().contains("A.lock"), "{json:#}");
}

#[test]
fn usage_that_no_provider_reported_is_recorded_as_an_estimate() {
    let script = |first: Value| {
        json!({
            "price": { "input": 1.0, "output": 1.0, "cache_read": 1.0, "cache_write": 1.0 },
            "turn": [first, writes("US-001", "half", "x\n"), done("US-001")],
        })
    };
    let slow = json!({ "label": "US-001", "delay_ms": 60_000, "text": "I wait." });
    let project = Project::with_script(&one_story(), &script(slow));
    let mut running = project.working(&[]).start();
    running.wait_for(" started");
    let run = project.rig().only_run();
    // The journal shows the model call; no line is printed for it.
    while project.events(&run, "reserved").is_empty() {
        assert!(!running.has_ended());
        std::thread::yield_now();
    }
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);
    project.script(&script(says("US-001", "I go on.")));
    let out = project.call(["resume", &run, "--yes"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert!(
        out.stdout.contains("~$") && out.stdout.contains("  branch   adjutant/US-001\n"),
        "{out}"
    );
    assert_eq!(project.entry("US-001")["adjutant"]["estimated"], true, "{out}");
    assert_eq!(project.entry("US-001")["adjutant"]["branch"], "adjutant/US-001");
    // Usage that the provider reported is not an estimate.
    let project = self::project("A");
    assert_eq!(project.story(&[]).code, 0);
    assert_eq!(project.entry("A")["adjutant"]["estimated"], Value::Null);
}
