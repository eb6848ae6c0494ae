//! The PRD on disk: invalid ones, concurrent changes, and what is never lost or overwritten.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::schema::assert_fits;

/// A PRD as people write it, with unknown fields and unusual formatting.
const ODD: &str = "{\n\t\"project\" : \"odd\",   \"x-budget\": 1.50e2,\n\n  \"userStories\": [\n\
    \t{ \"id\":\"US-001\", \"title\":\"Log in\",\"passes\":false , \"owner\": {\"a\" : [1,2 ,3]} },\n\n\
    \t{ \"id\":\"US-002\",\"title\":\"Log \\u006fut\",   \"passes\":true }\n  ],\n  \"unicode\":\"h\\u00e9\"  }\n\n";

#[test]
fn the_rest_of_the_prd_stays_byte_for_byte() {
    let project = Project::new(&json!({}), [done("US-001")]);
    project.rig().write("prd.json", ODD);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let text = project.repo.read("prd.json");
    // Every byte around the entry is unchanged, and so is the entry except for the outcome.
    let (head, tail) = ODD.split_once("false").unwrap();
    assert!(text.starts_with(&format!("{head}true")), "{text}");
    let (_, after) = tail.split_once("[1,2 ,3]}").unwrap();
    let (_, after) = after.split_once('}').unwrap();
    assert!(text.ends_with(after), "{text}");
    assert!(text.contains("\"owner\": {\"a\" : [1,2 ,3]}"), "{text}");
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn an_invalid_prd_is_refused_and_unchanged() {
    let cases: [(&str, &str, &str); 7] = [
        ("not JSON", "{ \"userStories\": [", "prd.json"),
        ("a list", "[]", "prd.json"),
        ("no stories", "{\"userStories\": 3}", "userStories"),
        (
            "the same id twice",
            "{\"userStories\":[{\"id\":\"A\",\"title\":\"x\"},{\"id\":\"A\",\"title\":\"y\"}]}",
            "A",
        ),
        (
            "an unknown dependency",
            "{\"userStories\":[{\"id\":\"A\",\"title\":\"x\",\"dependencies\":[\"B\"]}]}",
            "B",
        ),
        ("a number for an id", "{\"userStories\":[{\"id\":7,\"title\":\"x\"}]}", "id"),
        (
            "a text for a truth",
            "{\"userStories\":[{\"id\":\"A\",\"title\":\"x\",\"passes\":\"no\"}]}",
            "passes",
        ),
    ];
    for (name, text, named) in cases {
        let project = Project::new(&one_story(), [done("US-001")]);
        project.rig().write("prd.json", text);
        let out = project.story(&[]);
        assert_eq!(out.code, 2, "{name}: {out}");
        assert!(out.stderr.contains("prd.json") && out.stderr.contains(named), "{name}: {out}");
        assert_eq!(project.repo.read("prd.json"), text, "{name}");
        assert!(project.rig().runs().is_empty(), "{name}");
    }
    let project = Project::new(&one_story(), [done("US-001")]);
    project.rig().write("prd.json", b"{\"userStories\": \"\xff\"}");
    let out = project.story(&[]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("not UTF-8"), "{out}");
    let out = project.call(["story", "nowhere.json"]).run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("nowhere.json"), "{out}");
}

#[test]
fn two_hundred_stories_run_in_one_call() {
    let id = |n: usize| format!("S-{n:03}");
    // Each waits for the one before, but most pass already: as in a PRD that is nearly done.
    let story = |n: usize| {
        let before: Vec<String> = if n == 0 { Vec::new() } else { vec![id(n - 1)] };
        json!({ "id": id(n), "title": "x", "dependencies": before, "passes": n < 196 })
    };
    let prd = json!({ "userStories": (0..200).map(story).collect::<Vec<_>>() });
    let project = Project::new(&prd, (196..200).map(|n| done(&id(n))));
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let stories = project.prd()["userStories"].as_array().unwrap().clone();
    assert_eq!(stories.len(), 200);
    assert!(stories.iter().all(|story| story["passes"] == true));
    assert_eq!(project.rig().runs().len(), 4);
}

#[test]
fn an_unwritable_prd_is_refused_before_any_model_call() {
    let project = Project::new(&one_story(), [done("US-001")]);
    let path = project.rig().work().join("prd.json");
    if rustix::process::getuid().is_root() {
        // Permissions do not restrict root, but a link is refused for everyone.
        fs::rename(&path, project.rig().work().join("real.json")).unwrap();
        symlink("real.json", &path).unwrap();
        let out = project.story(&[]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("symbolic link"), "{out}");
    } else {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let out = project.story(&[]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("read-only"), "{out}");
    }
    assert!(project.rig().runs().is_empty());
}

/// Lets a story write in the PRD of the user while it runs, as another program of the user would.
fn changed_meanwhile(prd: &Value, change: impl FnOnce(&Project)) -> (Project, String) {
    let mut last = done("US-001");
    last["delay_ms"] = json!(400);
    let project = Project::new(prd, [runs("US-001", "echo x > x"), last]);
    let mut running = project.working(&[]).start();
    running.wait_for("[US-001] Run echo");
    change(&project);
    let out = running.finish();
    let said = format!("{out}");
    (project, said)
}

#[test]
fn a_concurrent_change_of_another_story_is_kept() {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
        { "id": "US-009", "title": "Later", "passes": true },
    ] });
    let (project, said) = changed_meanwhile(&prd, |project| {
        let text = project.repo.read("prd.json").replace("Later", "Much later");
        project.rig().write("prd.json", text);
    });
    assert_eq!(project.entry("US-009")["title"], "Much later", "{said}");
    assert_eq!(project.entry("US-001")["passes"], true, "{said}");
    assert!(said.contains("the PRD has changed"), "{said}");
}

#[test]
fn a_concurrent_change_of_the_same_story_is_never_overwritten() {
    let mut theirs = String::new();
    let (project, said) = changed_meanwhile(&one_story(), |project| {
        theirs = project.repo.read("prd.json").replace("Log in", "Log in by mail");
        project.rig().write("prd.json", &theirs);
    });
    assert_eq!(project.repo.read("prd.json"), theirs, "{said}");
    assert!(said.contains("its entry was changed") && said.contains("[exit 3]"), "{said}");
    // The completed work belongs to an earlier request: the story runs again with its present text.
    let run = project.rig().only_run();
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(!out.stderr.contains("was completed by"), "{out}");
    assert_eq!(project.entry("US-001")["title"], "Log in by mail");
    assert_eq!(project.rig().runs().len(), 2);
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
    assert_ne!(project.entry("US-001")["adjutant"]["run"], run.as_str());
}

#[test]
fn a_file_that_is_no_longer_a_prd_is_left_alone() {
    let (project, said) = changed_meanwhile(&one_story(), |project| {
        project.rig().write("prd.json", "half a fi");
    });
    assert_eq!(project.repo.read("prd.json"), "half a fi", "{said}");
    assert!(said.contains("no longer a valid PRD") && said.contains("[exit 3]"), "{said}");
    let (project, said) = changed_meanwhile(&one_story(), |project| {
        fs::remove_file(project.rig().work().join("prd.json")).unwrap();
    });
    assert!(!project.rig().work().join("prd.json").exists(), "{said}");
    assert!(said.contains("it was removed"), "{said}");
}

#[test]
fn a_story_whose_passes_the_user_resets_runs_again() {
    let project = Project::new(&one_story(), [done("US-001")]);
    assert_eq!(project.story(&[]).code, 0);
    let text = project.repo.read("prd.json").replace("\"passes\": true", "\"passes\": false");
    project.rig().write("prd.json", text);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.rig().runs().len(), 2, "it was worked on again: {out}");
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn a_prd_outside_the_repository_is_written_too() {
    let project = Project::new(&one_story(), [writes("US-001", "jwt", "x\n"), done("US-001")]);
    let outside = project.rig().path().join("plans.json");
    fs::rename(project.rig().work().join("prd.json"), &outside).unwrap();
    project.repo.commit("moved");
    let before = project.repo.state();
    let args = ["story", "../plans.json", "--yes", "--model", "script:../script.json"];
    let out = project.call(args).run();
    assert_eq!(out.code, 0, "{out}");
    let prd: Value = serde_json::from_slice(&fs::read(&outside).unwrap()).unwrap();
    assert_eq!(prd["userStories"][0]["passes"], true);
    let run = project.rig().only_run();
    assert_eq!(project.left(&run, "US-001", "jwt"), "x");
    let (status, _) = before.split_once("\n\n").unwrap();
    assert!(project.repo.state().starts_with(status), "{}", project.repo.state());
}

#[test]
fn a_model_cannot_write_the_prd_of_the_user() {
    let cheat = "sed -i 's/\"passes\": false/\"passes\": true/' prd.json";
    let mut last = done("US-001");
    last["times"] = json!("forever");
    let project = Project::new(&one_story(), [runs("US-001", cheat), last]);
    let out = project.story(&["--verify", "false"]);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(project.entry("US-001")["passes"], false);
}

#[test]
fn changes_of_an_agent_to_the_prd_are_not_part_of_its_work() {
    for kind in ["overlay", "worktree"] {
        let prd = json!({ "userStories": [
            { "id": "US-001", "title": "Log in", "passes": false },
            { "id": "US-002", "title": "Log out", "passes": false, "verify": "false" },
        ] });
        let cheat = "sed -i 's/false/true/' prd.json; echo work > work";
        let project = Project::new(&prd, [runs("US-001", cheat), done("US-001")]);
        let flags = ["--story", "US-001", "--merge", "apply", "--workspace", kind];
        let out = project.story(&flags);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(project.repo.read("work"), "work\n", "{kind}");
        assert_eq!(project.entry("US-002"), prd["userStories"][1], "{kind}");
        let run = project.rig().only_run();
        let kept = &project.events(&run, "space_kept")[0];
        let left_out = "prd.json (only Adjutant changes it)";
        assert_eq!(kept["skipped"], json!([left_out]), "{kind}");
        // The report names the file that was left out.
        assert!(out.stdout.contains(&format!("left out: {left_out}")), "{kind}: {out}");
        assert!(out.stderr.contains(&format!("1 path left out: {left_out}")), "{kind}: {out}");
        let shown = project.call(["diff", "--stat", &run]).run();
        assert!(shown.stderr.contains(&format!("left out: {left_out}")), "{kind}: {shown}");
        let json = project.call(["diff", "--json", &run]).run().json();
        assert_fits("diff", &json);
        assert_eq!(json["results"][0]["left_out"], json!([left_out]), "{kind}");
    }
}

#[test]
fn child_numbers_continue_in_a_later_run() {
    let turns = [
        says("US-001", "[delegate:Implement JWT:1]\n[delegate:Create UI:1]"),
        done("US-001"),
        done("Implement JWT"),
        done("Create UI"),
    ];
    let project = Project::new(&one_story(), turns);
    assert_eq!(project.story(&["--verify", "false"]).code, 3);
    assert_eq!(project.entry("US-001")["passes"], false);
    assert_eq!(project.entry("US-001-DEL-002")["title"], "Create UI");
    let out = project.story(&["--again"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001-DEL-003")["title"], "Implement JWT", "{out}");
    assert_eq!(project.entry("US-001-DEL-004")["title"], "Create UI");
    assert_eq!(project.prd()["userStories"].as_array().unwrap().len(), 5);
}
