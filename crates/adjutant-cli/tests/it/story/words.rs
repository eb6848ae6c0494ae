//! Messages about stories: advice that works when pasted, invalid PRDs, transcripts.

use std::fs;

use adjutant_testkit::fake::{Api, Script, Turn};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::server::{KEY, Server, configure};

/// A turn with this cost.
fn costs(mut turn: Value, input: u64) -> Value {
    turn["usage"] = json!({ "input": input, "output": 100 });
    turn
}

fn two(second: &[&str]) -> Value {
    json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
        { "id": "US-002", "title": "Log out", "passes": false, "dependencies": second },
    ] })
}

#[test]
fn the_first_advised_command_resumes_a_story_whose_budget_is_used_up() {
    let (project, tight) = spends_all();
    let json = project.json(&tight, 3);
    let advised = json["stories"][0]["resume"].as_str().unwrap().to_owned();
    let run = json["stories"][0]["run"].as_str().unwrap();
    assert!(advised.starts_with(&format!("adjutant resume {run} --budget-tokens ")), "{advised}");
    let out = project.story(&[&tight[..], &["--story", "US-001"]].concat());
    assert_eq!(out.code, 3, "{out}");
    let resume = out.stdout.find(&format!("continue it with `{advised}`")).unwrap();
    assert!(resume < out.stdout.find("start the story over with").unwrap(), "{out}");
    let out = project.call(advised.split(' ').skip(1)).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true);
    assert_eq!(project.entry("US-001")["adjutant"]["run"], run);
}

/// Makes a PRD of two stories, the first of which uses up the budget that the flags give.
fn spends_all() -> (Project, Vec<&'static str>) {
    let spends = costs(writes("US-001", "jwt", "a token\n"), 49_000);
    let turns = [spends, done("US-001"), done("US-002")];
    let project = Project::new(&two(&[]), turns);
    let wide = ["--set", "context_tokens=1000000", "--set", "max_output_tokens=2000"];
    (project, [&wide[..], &["--budget-tokens", "50000"]].concat())
}

#[test]
fn the_advised_command_starts_a_story_again_whose_budget_is_used_up() {
    let (project, tight) = spends_all();
    let json = project.json(&tight, 3);
    let story = &json["stories"][0];
    assert_eq!(story["reason"]["code"], "BUDGET_EXCEEDED", "{json}");
    let prd = project.rig().work().join("prd.json").canonicalize().unwrap();
    let again = format!("adjutant story {} --story US-001 --again", prd.display());
    let advised = story["again"].as_str().unwrap().to_owned();
    assert!(advised.starts_with(&again), "{advised}");
    assert!(advised.contains(" --model script:../script.json "), "{advised}");
    assert!(advised.contains(" --set context_tokens=1000000 "), "{advised}");
    assert_eq!(advised.matches("--budget-tokens").count(), 1, "{advised}");
    assert!(!advised.contains("--json"), "{advised}");
    let left = |json: &Value| json["not_begun"].as_array().cloned().unwrap_or_default();
    let begun = json["stories"].as_array().unwrap().len();
    assert_eq!(begun + left(&json).len(), 2, "every story is accounted for: {json}");
    // The advice works.
    let out = project.call(advised.split(' ').skip(1)).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn a_story_whose_prompt_does_not_fit_the_context_is_recommended_to_start_again() {
    let turns = [json!({ "text": "Hm.", "times": "forever" })];
    let project = Project::new(&one_story(), turns);
    let tight = ["--set", "context_tokens=2500", "--set", "max_output_tokens=1000"];
    let out = project.story(&tight);
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stdout.contains("context exhausted"), "{out}");
    assert!(out.stdout.contains("--story US-001 --again --model "), "{out}");
    assert!(!out.stdout.contains("context_tokens=2500"), "what was too small: {out}");
    assert!(out.stdout.contains("--set context_tokens=N"), "{out}");
    assert!(!out.stdout.contains("adjutant resume"), "{out}");
}

#[test]
fn work_of_dependencies_that_conflicts_with_the_files_is_reported() {
    let turns = [
        runs("US-001", "sed -i 's/line 2$/by the story/' long"),
        done("US-001"),
        writes("US-002", "out", "out\n"),
        done("US-002"),
    ];
    let project = Project::new(&two(&["US-001"]), turns);
    assert_eq!(project.story(&["--story", "US-001"]).code, 0);
    let before = project.repo.read("long");
    project.rig().write("long", before.replace("line 2\n", "by the person\n"));
    let out = project.story(&[]);
    assert_eq!(out.code, 1, "{out}");
    for words in ["The story could not begin", "conflicts with", "long"] {
        assert!(out.stdout.contains(words), "{words}: {out}");
    }
    for words in ["child worktree", "Git error", "adjutant prune"] {
        assert!(!out.stdout.contains(words), "{words}: {out}");
    }
    // The advice works: the story starts again once the files are in order.
    project.rig().write("long", before);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn a_field_of_the_user_named_adjutant_is_never_overwritten() {
    for theirs in [json!("ours since 2019"), json!({ "owner": "me" }), json!([1, 2])] {
        let prd = json!({ "userStories": [
            { "id": "US-001", "title": "Log in", "passes": false, "adjutant": theirs },
        ] });
        let project = Project::new(&prd, [done("US-001")]);
        let before = project.repo.read("prd.json");
        let out = project.story(&[]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("US-001: `adjutant`"), "{out}");
        assert!(out.stderr.contains("rename your own field"), "{out}");
        assert_eq!(project.repo.read("prd.json"), before);
        assert!(project.rig().runs().is_empty(), "nothing is done that cannot be written down");
    }
}

#[test]
fn a_duplicate_story_id_is_reported_with_its_line() {
    let project = Project::new(&one_story(), [done("US-001")]);
    let text = "{ \"userStories\": [\n  { \"id\": \"A\", \"title\": \"x\", \"verify\": \"true\",\n    \
                \"verify\": \"false\" }\n] }\n";
    project.rig().write("prd.json", text);
    let out = project.story(&[]);
    assert_eq!(out.code, 2, "{out}");
    let said = "line 3 column 5: `verify` is there a second time, after the one at line 2";
    assert!(out.stderr.contains(said), "{out}");
    assert_eq!(project.repo.read("prd.json"), text);
    assert!(project.rig().runs().is_empty());
}

#[test]
fn the_transcript_of_a_story_shows_its_own_agent_and_names_the_others() {
    let turns = [
        says("US-001", "Two parts:\n[delegate:Implement JWT:4]\n[delegate:Create UI:2]\n"),
        done("Implement JWT"),
        done("Create UI"),
        done("US-001"),
    ];
    let project = Project::new(&one_story(), turns);
    assert_eq!(project.story(&[]).code, 0);
    let run = project.rig().only_run();
    let own = project.session(&run, "US-001");
    for args in [&["transcript"][..], &["transcript", &run], &["transcript", &own]] {
        let out = project.call(args).run();
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stdout.starts_with(&format!("[US-001] {own}")), "{out}");
        assert!(out.stdout.contains("Two parts:"), "{out}");
    }
    let out = project.call(["transcript", &run]).run();
    for (number, who) in [(1, "Implement JWT"), (2, "Create UI")] {
        let session = project.session(&run, who);
        let named = format!("adjutant transcript {session}`   #{number} [{who}]");
        assert!(out.stderr.contains(&named), "{out}");
        let out = project.call(["transcript", &session]).run();
        assert!(out.stdout.starts_with(&format!("[{who}] {session}")), "{out}");
    }
}

#[test]
fn after_ctrl_c_the_report_names_the_skipped_stories() {
    let story = |id: &str| json!({ "id": id, "title": id, "passes": false });
    let prd = json!({ "userStories": [story("A"), story("B"), story("C")] });
    let waits = json!({ "label": "B", "delay_ms": 60_000, "text": "I wait." });
    let project = Project::new(&prd, [done("A"), writes("B", "b", "b\n"), waits, done("C")]);
    let mut running = project.working(&["--json"]).start();
    running.wait_for("[B] Write b");
    running.signal(Signal::INT);
    let out = running.finish();
    assert_eq!(out.code, 130, "{out}");
    let json = out.json();
    assert_eq!((&json["exit"], &json["passed"]), (&json!(130), &json!(1)), "{json}");
    let left = json!([{ "id": "C", "why": "you cancelled B before it" }]);
    assert_eq!(json["not_begun"], left);
}

/// A project whose story suggests that model.
fn suggesting(model: &str) -> Project {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false, "suggestedModel": model },
    ] });
    Project::new(&prd, [writes("US-001", "jwt", "a token\n"), done("US-001")])
}

#[test]
fn a_story_runs_on_the_model_that_its_prd_suggests() {
    let said = "US-001 uses the model fake/priced, as the PRD suggests";
    for is_listed in [false, true] {
        let project = suggesting("fake/priced");
        let result = json!({
            "status": "completed", "summary": "Done. Nothing is left.", "artifacts": [], "errors": [],
        });
        let turns = [Turn::calls("Return", &result)];
        let server = Server::start(Api::Anthropic, Script::new().on("Log in", turns));
        configure(project.rig(), &server.url, "anthropic");
        if is_listed {
            let path = project.rig().home().join(".config/adjutant/config.toml");
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, format!("models_allowed = [\"fake/priced\"]\n{config}")).unwrap();
        }
        let call = |flags: &[&str]| {
            let call = project.call(["story", "prd.json", "--yes"]).args(flags);
            call.env("FAKE_KEY", KEY).run()
        };
        if !is_listed {
            // Without consent the suggestion is ignored, and no other model is configured.
            let out = call(&[]);
            assert_eq!(out.code, 2, "{out}");
            assert!(out.stderr.contains("use the model fake/priced"), "{out}");
            assert!(out.stderr.contains("--trust-prd") && out.stderr.contains("--model"), "{out}");
            assert!(project.rig().runs().is_empty());
        }
        let out = call(if is_listed { &[] } else { &["--trust-prd"] });
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stderr.contains(said), "{out}");
    }
}

#[test]
fn a_prd_cannot_choose_a_script_file_as_model() {
    for wish in ["script:../script.json", "replay:../script.json"] {
        let project = suggesting(wish);
        let out = project.call(["story", "prd.json", "--yes", "--trust-prd"]).run();
        assert_eq!(out.code, 3, "{out}");
        assert!(out.stdout.contains("a file cannot name a script or a recording"), "{out}");
        assert!(project.rig().runs().is_empty());
    }
}

#[test]
fn a_suggested_model_that_is_unavailable_is_replaced_by_the_default() {
    for wish in ["opus", "mainframe", "nobody/nothing", "script:../nowhere.json"] {
        let project = suggesting(wish);
        let folder = project.rig().home().join(".config/adjutant");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), "model = \"script:../script.json\"\n").unwrap();
        let out = project.call(["story", "prd.json", "--yes", "--trust-prd"]).run();
        assert_eq!(out.code, 0, "{wish}: {out}");
        let said = format!("the PRD suggests the model {wish} for US-001, which cannot be used");
        assert!(out.stderr.contains(&said), "{out}");
    }
    // Without another model the story does not start.
    let project = suggesting("mainframe");
    let out = project.call(["story", "prd.json", "--yes", "--trust-prd"]).run();
    assert_eq!(out.code, 3, "{out}");
    assert!(
        out.stdout.contains("US-001: not begun, the PRD suggests the model mainframe"),
        "{out}"
    );
    // A typed `--model` overrides the suggestion.
    let project = suggesting("mainframe");
    let out = project.story(&["--trust-prd"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(!out.stderr.contains("suggests"), "{out}");
}

#[test]
fn an_empty_verify_command_is_refused() {
    let project = Project::new(&one_story(), [done("US-001")]);
    for empty in ["", "  "] {
        let out = project.story(&["--verify", empty]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("--verify: the command is empty"), "{out}");
    }
    assert!(project.rig().runs().is_empty());
}

#[test]
fn the_help_names_the_default_merge_mode_of_each_command() {
    let project = Project::new(&one_story(), []);
    let help = |command: &str| {
        let help = project.call([command, "-h"]).run().stdout;
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(help("story").contains("[default: branch"), "{}", help("story"));
    assert!(!help("story").contains("[default: report]"), "{}", help("story"));
    assert!(help("run").contains("[default: report]"), "{}", help("run"));
}
