//! Slash commands and stories over MCP: their results, and what a client cannot make them do.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::mcp::begin::{carrier, kill};
use crate::support::mcp_client::Client;
use crate::support::project::{Project, done, one_story, says, writes};
use crate::support::rig::{COMMANDS, Rig};

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

/// A server that may start whatever the tests do in a day, with git on its path.
fn served(rig: &Rig, model: &str, args: &[&str]) -> Client {
    served_by(rig, model, &[&["--approve-below", "10000"], args].concat())
}

fn served_by(rig: &Rig, model: &str, args: &[&str]) -> Client {
    let path = std::env::var("PATH").unwrap();
    let mut client = Client::start_on(rig, model, args, &[("PATH", &path)]);
    client.initialize("tester", "2025-11-25");
    client
}

fn project(prd: &Value, turns: impl IntoIterator<Item = Value>) -> Project {
    Project::with_script(
        prd,
        &json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": turns.into_iter().collect::<Vec<_>>() }),
    )
}

const STORIES: &str = "script:../script.json";

#[test]
fn a_command_runs_under_its_own_preset_and_an_equal_call_starts_nothing() {
    let rig = Rig::with_script(&format!("price = {{ input = 1.0, output = 1.0 }}\n{COMMANDS}"));
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    let mut client = served(&rig, rig.model(), &["--preset", "scout"]);
    let call = json!({ "command": "/research 1" });
    let result = client.call("delegate_command", call.clone());
    let data = &result["structuredContent"];
    assert_eq!((&data["done"], &data["state"]), (&json!(true), &json!("completed")), "{result}");
    assert_eq!(data["results"]["results"][0]["agent"], "researcher", "{data}");
    let said = text(data, "synthesis");
    assert!(
        !said.is_empty() && text(&result["content"][0], "text").contains(said.trim()),
        "{result}"
    );
    let run = text(data, "run");
    let again = client.data("delegate_command", call);
    assert_eq!((text(&again, "run"), &again["repeated"]), (run.clone(), &json!(true)));
    assert_eq!(rig.only_run(), run);
    for tool in ["delegate_wait", "delegate_result"] {
        assert_eq!(client.data(tool, json!({ "run": run }))["state"], "completed");
    }
    let events = rig.events(&run);
    assert_eq!(events[0]["policy"]["preset"], "command", "{}", events[0]);
}

#[test]
fn a_story_that_delegates_returns_its_branch() {
    let project = project(
        &one_story(),
        [
            says("US-001", "A part of it.\n[delegate:Create UI:1]"),
            writes("Create UI", "ui", "a form\n"),
            done("Create UI"),
            writes("US-001", "login", "log in\n"),
            done("US-001"),
        ],
    );
    let mut client = served(project.rig(), STORIES, &["--enable-delegation"]);
    let result = client.call("delegate_story", json!({ "prd": "prd.json" }));
    let data = &result["structuredContent"];
    assert_eq!((&data["done"], &data["state"]), (&json!(true), &json!("completed")), "{result}");
    let story = &data["story"];
    assert_eq!((&story["id"], &story["passes"]), (&json!("US-001"), &json!(true)), "{story}");
    assert_eq!(story["branch"], "adjutant/US-001");
    assert_eq!(story["children"][0]["label"], "Create UI");
    assert_eq!(project.repo.git(["show", "adjutant/US-001:ui"]), "a form");
    assert_eq!(project.repo.git(["show", "adjutant/US-001:login"]), "log in");
    assert!(!project.rig().work().join("login").exists(), "the tree is the person's");
    assert_eq!(project.entry("US-001")["passes"], true, "written down before it is answered");
    // The first call completed its story, so an equal call looks for the next one.
    let none = client.failure("delegate_story", json!({ "prd": "prd.json" }));
    assert!(none.contains("every story of the PRD passes"), "{none}");
}

#[test]
fn a_command_or_story_that_cannot_start_gives_the_reason_of_the_command_line() {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": true },
        { "id": "US-002", "title": "Log out", "passes": false, "dependencies": ["US-003"] },
        { "id": "US-003", "title": "Stay", "passes": false },
    ] });
    let project = project(&prd, [done("US-003")]);
    let rig = project.rig();
    rig.write("broken.json", "{");
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    symlink("/etc/passwd", rig.work().join("out.json")).unwrap();
    let mut client = served(rig, STORIES, &[]);
    for (tool, arguments, words) in [
        ("delegate_command", json!({ "command": "/reserch 1" }), "did you mean"),
        (
            "delegate_command",
            json!({ "command": "/etc/hosts is odd" }),
            "not with the name of a command",
        ),
        ("delegate_command", json!({ "command": "/plan 99" }), "99"),
        ("delegate_command", json!({ "command": "/plan" }), "/plan"),
        (
            "delegate_command",
            json!({ "command": "/task \"Add JWT\"" }),
            "carried out by adjutant itself",
        ),
        ("delegate_command", json!({ "command": "/implement --in-place 1" }), "only a person"),
        ("delegate_command", json!({ "command": "--yes" }), "must start with a slash"),
        ("delegate_command", json!({ "command": "-h" }), "must start with a slash"),
        ("delegate_command", json!({ "command": "/plan \u{0}1" }), "NUL"),
        (
            "delegate_command",
            json!({ "command": format!("/plan {}", "x".repeat(1 << 20)) }),
            "limit 131072",
        ),
        ("delegate_command", json!({ "command": "/plan 1", "budget_usd": 9 }), "unknown field"),
        ("delegate_story", json!({ "prd": "prd.json", "story": "US-009" }), "US-009"),
        ("delegate_story", json!({ "prd": "prd.json", "story": "US-002" }), "depends on `US-003`"),
        ("delegate_story", json!({ "prd": "prd.json", "story": "US-001" }), "pass"),
        ("delegate_story", json!({ "prd": "prd.json", "story": "--trust-prd" }), "--trust-prd"),
        ("delegate_story", json!({ "prd": "--trust-prd" }), "--trust-prd"),
        ("delegate_story", json!({ "prd": "-h" }), "-h"),
        ("delegate_story", json!({ "prd": "broken.json" }), "broken.json"),
        ("delegate_story", json!({ "prd": "none.json" }), "none.json"),
        ("delegate_story", json!({ "prd": "/etc/passwd" }), "inside this server's tree"),
        ("delegate_story", json!({ "prd": "../script.json" }), "inside this server's tree"),
        ("delegate_story", json!({ "prd": "out.json" }), "not inside this server's tree"),
        ("delegate_story", json!({ "prd": "prd.json\u{0}" }), "NUL"),
        ("delegate_story", json!({ "prd": "prd.json", "verify": "true" }), "unknown field"),
    ] {
        let said = client.failure(tool, arguments.clone());
        assert!(said.contains(words), "{arguments}: {said}");
    }
    assert!(rig.runs().is_empty(), "nothing was begun");
}

/// Three levels below the agent of the command, each of which delegates to the next.
#[test]
fn a_command_delegates_three_levels_deep() {
    let agent = |name: &str| format!("---\nname: {name}\ndescription: Works\n---\nYou work.");
    let turn = |who: &str, next: Option<&str>| match next {
        Some(next) => json!({
            "agent": who,
            "call": [{ "tool": "Task", "args": { "agent": next, "prompt": "Go on." } }],
        }),
        None => json!({
            "agent": who,
            "text": "{\"status\":\"completed\",\"summary\":\"It is done. Nothing is left.\",\"artifacts\":[],\"errors\":[]}",
        }),
    };
    let turns = [
        turn("deep", Some("one")),
        turn("one", Some("two")),
        turn("two", Some("three")),
        turn("three", None),
        turn("two", None),
        turn("one", None),
        json!({ "agent": "deep", "text": "All three have answered." }),
    ];
    let rig = Rig::new();
    let script = json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": turns });
    std::fs::write(rig.path().join("script.json"), script.to_string()).unwrap();
    for name in ["one", "two", "three"] {
        rig.write(&format!(".claude/agents/{name}.md"), agent(name));
    }
    rig.write(".claude/commands/deep.md", "---\ndescription: Goes down\n---\nGo down.");
    let mut client = served(&rig, STORIES, &[]);
    let data = client.data("delegate_command", json!({ "command": "/deep" }));
    assert_eq!(data["state"], "completed", "{data}");
    assert_eq!(text(&data, "synthesis"), "All three have answered.");
    let events = rig.events(&text(&data, "run"));
    let depths = events.iter().filter(|it| it["type"] == "granted").map(|it| it["depth"].clone());
    assert_eq!(depths.collect::<Vec<_>>(), [json!(1), json!(2), json!(3)]);
}

/// A command is paid from the same allowance as every other call.
#[test]
fn the_budget_of_a_command_is_the_rest_of_the_allowance() {
    let rig = Rig::with_script(&format!("price = {{ input = 1.0, output = 1.0 }}\n{COMMANDS}"));
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    let call = json!({ "command": "/research 1" });
    let allowance = ["--approval", "auto-below 0.25"];
    let mut client = served_by(&rig, rig.model(), &allowance);
    let data = client.data("delegate_command", call.clone());
    assert_eq!(data["state"], "completed", "{data}");
    let events = rig.events(&text(&data, "run"));
    assert_eq!(events[0]["policy"]["budget_usd"], 0.25, "{}", events[0]);
}

#[test]
fn with_approval_deny_neither_a_command_nor_a_story_starts() {
    let project = project(&one_story(), [done("US-001")]);
    let path = std::env::var("PATH").unwrap();
    let args = ["--approval", "deny"];
    let mut client = Client::start_on(project.rig(), STORIES, &args, &[("PATH", &path)]);
    client.initialize_with("tester", "2025-11-25", json!({ "elicitation": {} }));
    for (tool, arguments) in [
        ("delegate_command", json!({ "command": "/research 1" })),
        ("delegate_story", json!({ "prd": "prd.json" })),
    ] {
        let said = client.failure(tool, arguments);
        assert!(said.contains("needs their approval"), "{said}");
    }
    assert!(project.rig().runs().is_empty());
}

/// A project file cannot disable approval for its agents.
#[test]
fn a_project_file_cannot_disable_approval_of_delegations() {
    let rig = Rig::with_script(&format!("price = {{ input = 1.0, output = 1.0 }}\n{COMMANDS}"));
    rig.write(".adjutant/config.toml", "[policy]\napproval = \"none\"\n");
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    // Under the preset scout the server itself would not start with such a file.
    let mut client = served_by(&rig, rig.model(), &["--preset", "command"]);
    let data = client.data("delegate_command", json!({ "command": "/research 1" }));
    assert_eq!(data["state"], "awaiting_approval", "{data}");
    assert_eq!(rig.run(["cancel", &text(&data, "run")]).code, 0);
}

#[test]
fn a_story_can_be_cancelled_and_waited_for_by_its_handle() {
    let slow = json!({ "label": "US-001", "delay_ms": 300_000, "text": "too late" });
    let project = project(&one_story(), [slow]);
    let mut client = served(project.rig(), STORIES, &["--detach-after", "1"]);
    let data = client.data("delegate_story", json!({ "prd": "prd.json", "story": "US-001" }));
    assert_eq!(data["done"], false, "{data}");
    let run = text(&data, "run");
    let again = client.data("delegate_story", json!({ "prd": "prd.json", "story": "US-001" }));
    assert_eq!((&again["run"], &again["repeated"]), (&json!(run), &json!(true)));
    let mut other = served(project.rig(), STORIES, &[]);
    let busy = other.call("delegate_story", json!({ "story": "US-001", "prd": "./prd.json" }));
    assert!(busy.to_string().contains("is working on it"), "{busy}");
    assert_eq!(client.data("delegate_cancel", json!({ "run": run }))["state"], "cancelled");
    let ended = client.data("delegate_wait", json!({ "run": run }));
    assert_eq!((&ended["done"], &ended["state"]), (&json!(true), &json!("cancelled")), "{ended}");
    assert_eq!(ended["story"]["passes"], false);
}

/// Every name below a folder, with when it was changed last.
fn times(folder: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let mut all = BTreeMap::new();
    let mut next = vec![folder.to_owned()];
    while let Some(path) = next.pop() {
        let about = path.symlink_metadata().unwrap();
        if about.is_dir() {
            next.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        }
        all.insert(path, (about.mtime(), about.mtime_nsec()));
    }
    all
}

/// The tools that return results only read: no file changes, not even for a moment.
#[test]
fn reading_the_result_of_a_story_changes_no_file() {
    let prd = json!({ "merge": "apply", "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
    ] });
    let project = project(&prd, [writes("US-001", "login", "log in\n"), done("US-001")]);
    let mut client = served(project.rig(), STORIES, &["--enable-delegation"]);
    let run = text(&client.data("delegate_story", json!({ "prd": "prd.json" })), "run");
    let work = project.rig().work();
    let before = times(&work);
    let named = json!({ "run": run });
    for (tool, arguments) in [
        ("delegate_result", named.clone()),
        ("delegate_wait", named.clone()),
        ("delegate_status", named),
        ("delegate_status", json!({})),
        (
            "validate_return",
            json!({ "return": { "status": "completed", "artifacts": ["prd.json"] } }),
        ),
    ] {
        let answer = client.call(tool, arguments);
        if tool == "delegate_result" {
            let story = &answer["structuredContent"]["story"];
            assert!(!story["unallowed_wishes"].as_array().unwrap().is_empty(), "{answer}");
        }
        assert_eq!(times(&work), before, "{tool}");
    }
    for rest in ["", "/result", "/transcript"] {
        let uri = format!("adjutant://run/{run}{rest}");
        let read = client.request("resources/read", json!({ "uri": uri }));
        assert!(read["result"].is_object(), "{read}");
        assert_eq!(times(&work), before, "{uri}");
    }
}

/// Flags of `adjutant story` are not flags of `adjutant mcp`: messages name them only in a complete command.
fn assert_flags_have_their_command(said: &str) {
    // The text between backquotes is a command.
    for words in said.split('`').step_by(2) {
        for flag in ["--trust-prd", "--verify", "--again"] {
            assert!(!words.contains(flag), "{flag} in {said}");
        }
    }
    let command = said
        .split('`')
        .find(|it| it.starts_with("adjutant ") && it.contains(" story "))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(command.contains("prd.json "), "{said}");
}

/// A run of the story can be resumed, so a new one starts only if the user says so.
#[test]
fn an_earlier_resumable_run_of_a_story_is_reported_with_working_commands() {
    let story = json!({ "id": "US-001", "title": "Log in", "passes": false });
    let mut waits = done("US-001");
    waits["delay_ms"] = json!(300_000);
    let project = project(&json!({ "userStories": [story] }), [waits]);
    let rig = project.rig();
    let mut client = served(rig, STORIES, &["--detach-after", "1"]);
    let arguments = json!({ "prd": "prd.json", "story": "US-001" });
    let run = text(&client.data("delegate_story", arguments), "run");
    kill(carrier(rig, &run));
    let mut other = served(rig, STORIES, &["--budget-usd", "1"]);
    let said = other.failure("delegate_story", json!({ "prd": "prd.json", "story": "US-001" }));
    assert!(said.contains(&format!("adjutant resume {run}")), "{said}");
    assert_flags_have_their_command(&said);
}

/// Over MCP no person consents to the requests of a PRD.
#[test]
fn the_requests_of_a_prd_are_ignored_with_a_notice() {
    let checked =
        json!({ "id": "US-001", "title": "Log in", "passes": false, "verify": "touch ran" });
    let unchecked = json!({ "id": "US-002", "title": "Log out", "passes": false });
    let prd = json!({ "merge": "apply", "userStories": [checked, unchecked] });
    let project = project(&prd, [writes("US-002", "logout", "log out\n"), done("US-002")]);
    let mut client = served(project.rig(), STORIES, &["--enable-delegation"]);
    let story = |id: &str| json!({ "prd": "./prd.json", "story": id });
    let refused = client.call("delegate_story", story("US-001"));
    assert_eq!(refused["isError"], true, "{refused}");
    let said = text(&refused["content"][0], "text");
    assert!(said.contains("its verify command needs your consent"), "{refused}");
    assert_flags_have_their_command(&said);
    let result = client.call("delegate_story", story("US-002"));
    let report = &result["structuredContent"]["story"];
    assert_eq!(report["passes"], true, "{result}");
    assert!(!report["unallowed_wishes"].as_array().unwrap().is_empty(), "{report}");
    assert!(text(&result["content"][0], "text").contains("only a person can allow"), "{result}");
    let work = project.rig().work();
    assert!(!work.join("logout").exists() && !work.join("ran").exists());
    assert_eq!(project.entry("US-001")["passes"], false);
}
