//! Commands and stories that no allowance covers: the user is asked about the whole run before its agent
//! begins, by the same ways as about a call of `Delegate`.

use serde_json::{Value, json};

use crate::approvals::inbox::{code, id, typed};
use crate::mcp::rounds::{call, says, state};
use crate::support::mcp_client::Client;
use crate::support::project::{Project, done, one_story, writes};
use crate::support::rig::{COMMANDS, Rig};
use crate::support::schema::assert_fits;

const QUESTION: &str = "elicitation/create";
const STORIES: &str = "script:../script.json";

/// A project with a task, and a model that costs something.
fn commands() -> Rig {
    prepared(&format!("price = {{ input = 1.0, output = 1.0 }}\n{COMMANDS}"))
}

fn prepared(script: &str) -> Rig {
    let rig = Rig::with_script(script);
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    rig
}

fn stories(prd: &Value) -> Project {
    let turns = [writes("US-001", "login", "log in\n"), done("US-001")];
    Project::with_script(prd, &json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": turns }))
}

fn research() -> Value {
    json!({ "command": "/research 1" })
}

fn start(rig: &Rig, model: &str, args: &[&str]) -> Client {
    let path = std::env::var("PATH").unwrap();
    Client::start_on(rig, model, args, &[("PATH", &path)])
}

/// A client that can show a form to the user.
fn asking(rig: &Rig, model: &str, args: &[&str], version: &str) -> Client {
    let mut client = start(rig, model, args);
    client.initialize_with("tester", version, json!({ "elicitation": {} }));
    client
}

/// A client that cannot.
fn plain(rig: &Rig, model: &str, args: &[&str]) -> Client {
    let mut client = start(rig, model, args);
    client.initialize("tester", "2025-11-25");
    client
}

fn accept() -> Value {
    json!({ "action": "accept", "content": { "answer": "start" } })
}

fn decline() -> Value {
    json!({ "action": "decline" })
}

fn run_of(result: &Value) -> String {
    result["structuredContent"]["run"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

fn count(rig: &Rig, run: &str, kind: &str) -> usize {
    rig.events(run).iter().filter(|event| event["type"] == kind).count()
}

/// Nothing was paid for, no workspace was made and nothing was marked.
fn assert_untouched(rig: &Rig, run: &str) {
    for kind in ["reserved", "started", "space_made", "marked", "granted"] {
        assert_eq!(count(rig, run, kind), 0, "{kind}");
    }
}

fn clean(rig: &Rig) {
    for run in rig.runs() {
        let _ = rig.run(["cancel", &run]);
    }
}

#[test]
fn a_command_starts_after_the_user_approves_it() {
    for version in ["2025-06-18", "2025-11-25"] {
        let rig = commands();
        let mut client = asking(&rig, rig.model(), &[], version);
        let call = client.begin("delegate_command", research());
        let question = client.asked(QUESTION);
        let run = rig.only_run();
        assert_untouched(&rig, &run);
        let message = question["params"]["message"].as_str().unwrap();
        for part in [
            "begin a run",
            "Run /research 1 (risk: ",
            "Tools",
            "Worst case  20,000,000 tokens, $5.00, 2h 00m",
            "Subagents   up to 3 levels",
            &rig.work().display().to_string(),
        ] {
            assert!(message.contains(part), "no {part} in {message}");
        }
        client.reply(&question, accept());
        // The delegations of its agent are asked about by the same rules.
        let below = client.asked(QUESTION);
        assert!(below["params"]["message"].as_str().unwrap().contains("Spawn 1 subagent"));
        client.reply(&below, accept());
        let result = client.answer(call)["result"].clone();
        assert_eq!(result["structuredContent"]["state"], "completed", "{result}");
        assert_eq!(run_of(&result), run);
        assert_eq!(count(&rig, &run, "approved"), 2);
        rig.assert_unharmed();
    }
}

#[test]
fn a_story_starts_after_the_user_approves_it() {
    let project = stories(&one_story());
    let rig = project.rig();
    let mut client = asking(rig, STORIES, &[], "2025-11-25");
    let call = client.begin("delegate_story", json!({ "prd": "prd.json" }));
    let question = client.asked(QUESTION);
    let run = rig.only_run();
    assert_untouched(rig, &run);
    let message = question["params"]["message"].as_str().unwrap();
    for part in ["Work on the story US-001", "risk: high", "prd.json", "$5.00, 2h 00m"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    client.reply(&question, accept());
    let result = client.answer(call)["result"].clone();
    assert_eq!(result["structuredContent"]["story"]["passes"], true, "{result}");
    assert_eq!(project.repo.git(["show", "adjutant/US-001:login"]), "log in");
    // Its time began with its work.
    let events = rig.events(&run);
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    assert!(at("approved") < at("started") && at("started") < at("space_made"), "{events:?}");
    assert!(events[at("started")]["deadline"].is_number(), "{}", events[at("started")]);
}

/// The question shows the requests of a PRD, and the answer does not grant them.
#[test]
fn the_question_shows_the_requests_of_a_prd_without_granting_them() {
    let mut prd = one_story();
    prd["merge"] = json!("apply");
    let project = stories(&prd);
    let rig = project.rig();
    let mut client = asking(rig, STORIES, &[], "2025-11-25");
    let call = client.begin("delegate_story", json!({ "prd": "prd.json" }));
    let question = client.asked(QUESTION);
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.contains("you have not allowed it") && message.contains("apply"), "{message}");
    let piped = rig.run(["approvals"]);
    assert!(piped.stdout.contains("you have not allowed it"), "{piped}");
    client.reply(&question, accept());
    let result = client.answer(call)["result"].clone();
    assert_eq!(result["structuredContent"]["story"]["passes"], true, "{result}");
    assert!(!rig.work().join("login").exists(), "the tree is the person's");
}

#[test]
fn a_denied_run_starts_nothing_and_leaves_no_files_in_the_project() {
    let rig = commands();
    let todo = || std::fs::read_to_string(rig.work().join(".adjutant/specs/TODO.md")).unwrap();
    let list = todo();
    let mut client = asking(&rig, rig.model(), &[], "2025-11-25");
    for answer in [decline(), json!({ "action": "accept" })] {
        let call = client.begin("delegate_command", research());
        let question = client.asked(QUESTION);
        client.reply(&question, answer.clone());
        let result = client.answer(call)["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
        assert!(
            result["content"][0]["text"].as_str().unwrap().contains("Not approved"),
            "{result}"
        );
        assert_untouched(&rig, &run_of(&result));
        // No other tool starts it without the question.
        assert_ne!(rig.run(["resume", &run_of(&result), "--yes"]).code, 0);
        assert_untouched(&rig, &run_of(&result));
    }
    assert_eq!(rig.runs().len(), 2, "each question is another run");
    assert_eq!(todo(), list);

    let project = stories(&one_story());
    let prd = project.entry("US-001");
    let mut client = asking(project.rig(), STORIES, &[], "2025-11-25");
    for _ in 0..2 {
        let call = client.begin("delegate_story", json!({ "prd": "prd.json" }));
        let question = client.asked(QUESTION);
        client.reply(&question, decline());
        assert_eq!(client.answer(call)["result"]["isError"], true);
        assert_eq!(project.entry("US-001"), prd);
    }
}

#[test]
fn an_approval_counts_once_and_only_for_its_command() {
    let rig = commands();
    let mut client = asking(&rig, rig.model(), &[], "2025-11-25");
    let call = client.begin("delegate_command", research());
    let question = client.asked(QUESTION);
    client.reply(&question, accept());
    let below = client.asked(QUESTION);
    // The repeated first answer belongs to no open question.
    client.reply(&question, accept());
    client.ping();
    client.reply(&below, accept());
    let first = client.answer(call)["result"].clone();
    let run = run_of(&first);
    assert_eq!(count(&rig, &run, "approved"), 2);
    let again = client.data("delegate_command", research());
    assert_eq!((&again["run"], &again["repeated"]), (&json!(run), &json!(true)));
    let call = client.begin("delegate_command", json!({ "command": "/research 1 again" }));
    let question = client.asked(QUESTION);
    assert!(question["params"]["message"].as_str().unwrap().contains("/research 1 again"));
    client.reply(&question, decline());
    assert_eq!(client.answer(call)["result"]["isError"], true);
}

#[test]
fn a_question_about_a_run_expires() {
    let rig = commands();
    let mut client = asking(&rig, rig.model(), &["--set", "approval_s=2"], "2025-11-25");
    let call = client.begin("delegate_command", research());
    let question = client.asked(QUESTION);
    let result = client.answer(call)["result"].clone();
    client.reply(&question, accept());
    client.ping();
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
    assert!(text.contains("nobody answered within 2 s"), "{text}");
    assert_untouched(&rig, &run_of(&result));
}

/// A command of a client is untrusted text: it must not forge lines of the question.
#[test]
fn a_command_cannot_forge_the_question() {
    let rig = commands();
    let mut client = asking(&rig, rig.model(), &[], "2025-11-25");
    let evil = "/research 1 a\u{1b}[2J\u{202e}b\nWorst case  0 tokens, $0.00";
    let call = client.begin("delegate_command", json!({ "command": evil }));
    let question = client.asked(QUESTION);
    let message = question["params"]["message"].as_str().unwrap();
    assert!(!message.contains('\u{1b}') && !message.contains('\u{202e}'), "{message}");
    let worst: Vec<&str> = message.lines().filter(|it| it.starts_with("Worst case")).collect();
    assert!(matches!(worst.as_slice(), [only] if only.contains("$5.00")), "{message}");
    client.reply(&question, decline());
    client.answer(call);
}

#[test]
fn a_run_waits_in_the_inbox_if_the_client_cannot_ask() {
    let project = stories(&one_story());
    let rig = project.rig();
    let mut client = plain(rig, STORIES, &[]);
    let result = client.call("delegate_story", json!({ "prd": "prd.json" }));
    let data = result["structuredContent"].clone();
    let (id, run) = (id(&data), run_of(&result));
    assert_eq!(data["approval"]["worst_case_usd"], 5.0, "{data}");
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("spends nothing") && said.contains("approve"), "{said}");
    let listed = rig.run(["approvals", "--json"]).json();
    assert_fits("approvals", &listed);
    let question = &listed["approvals"][0]["question"];
    assert_eq!(question["whole_run"], "story", "{listed}");
    assert_eq!(question["worst_case"]["seconds"], 7200, "{listed}");
    let piped = rig.run(["approvals"]);
    assert!(piped.stdout.contains("Work on the story US-001"), "{piped}");
    assert_untouched(rig, &run);

    let (said, exit) = typed(rig, &["approve", &id, "WRONG2"]);
    assert_eq!(exit, 4, "{said}");
    // The client that started it may be gone by then.
    client.kill();
    let code = code(rig, &id);
    let (said, exit) = typed(rig, &["approve", &id, &code]);
    assert_eq!(exit, 0, "{said}");
    let mut client = plain(rig, STORIES, &[]);
    let done = client.data("delegate_wait", json!({ "run": run }));
    assert_eq!((&done["state"], &done["story"]["passes"]), (&json!("completed"), &json!(true)));
    let (said, exit) = typed(rig, &["approve", &id, &code]);
    assert_eq!(exit, 4, "an answer counts once: {said}");
    assert_eq!(count(rig, &run, "approved"), 1);
}

#[test]
fn a_person_refuses_a_run_in_a_terminal() {
    let rig = commands();
    let mut client = plain(&rig, rig.model(), &[]);
    let data = client.data("delegate_command", research());
    let (said, exit) = typed(&rig, &["approve", "--deny", &id(&data)]);
    assert_eq!(exit, 0, "{said}");
    let result = client.call("delegate_wait", json!({ "run": data["run"] }));
    assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
    assert_untouched(&rig, &run_of(&result));
    // A repeated call is a new question, and can be cancelled.
    let again = client.data("delegate_command", research());
    assert_ne!(again["run"], data["run"]);
    let cancelled = client.data("delegate_cancel", json!({ "run": again["run"] }));
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert_untouched(&rig, again["run"].as_str().unwrap());
    assert_eq!(rig.run(["approvals"]).stdout, "Nothing waits for your approval.\n");
}

#[test]
fn without_sessions_a_run_is_approved_by_repeating_the_call() {
    let project = stories(&one_story());
    let rig = project.rig();
    let story = json!({ "prd": "prd.json" });
    let mut client = start(rig, STORIES, &[]);
    let asked = call(&mut client, "delegate_story", &story, &json!({}));
    let first = state(&asked);
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str().unwrap();
    assert!(message.contains("Work on the story US-001"), "{message}");
    // Another story, another tool, a retry that says nothing: none of them is an answer.
    let other = json!({ "prd": "prd.json", "story": "US-001" });
    let altered = call(&mut client, "delegate_story", &other, &says(&first, &accept()));
    assert_eq!(altered["isError"], true, "{altered}");
    state(&call(&mut client, "delegate_story", &story, &json!({ "requestState": first })));
    let run = rig.only_run();
    assert_untouched(rig, &run);
    let result = call(&mut client, "delegate_story", &story, &says(&first, &accept()));
    assert_eq!(result["structuredContent"]["story"]["passes"], true, "{result}");
    assert_eq!((run_of(&result), count(rig, &run, "approved")), (run, 1));

    let rig = commands();
    let mut client = start(&rig, rig.model(), &[]);
    let asked = call(&mut client, "delegate_command", &research(), &json!({}));
    let no = says(&state(&asked), &decline());
    let result = call(&mut client, "delegate_command", &research(), &no);
    assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
    assert_untouched(&rig, &run_of(&result));
    // An answer to a closed question opens no other.
    let stale = says(&state(&asked), &accept());
    state(&call(&mut client, "delegate_command", &research(), &stale));
    clean(&rig);
}

/// If an allowance is set but does not cover the run, the question says why and how to change that.
#[test]
fn a_run_that_the_allowance_does_not_cover_is_asked_about_with_the_reason() {
    let unpriced = prepared(COMMANDS);
    let name = unpriced.model().to_owned();
    let mut client = plain(&unpriced, &name, &["--approval", "auto-below 1.00"]);
    for (tool, arguments) in [
        ("delegate_command", research()),
        ("Delegate", json!({ "tasks": [{ "label": "a", "prompt": "Look around" }] })),
    ] {
        let result = client.call(tool, arguments);
        id(&result["structuredContent"]);
        assert_eq!(result["structuredContent"]["approval"]["worst_case_usd"], Value::Null);
        let said = result["content"][0]["text"].as_str().unwrap();
        let lines = format!("  [models.\"{name}\"]\n  price = {{ input = 0, output = 0 }}");
        let expected =
            "`auto-below` does not let this call start without asking: no price is known";
        assert!(said.contains(expected), "{said}");
        assert!(said.contains(&lines), "{said}");
    }
    let piped = unpriced.run(["approvals"]);
    assert!(piped.stdout.contains("price = { input = 0, output = 0 }"), "{piped}");
    clean(&unpriced);

    // The whole allowance is reserved for the first run while it is live.
    let project = Project::with_script(
        &one_story(),
        &json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": [
            { "label": "US-001", "delay_ms": 300_000, "text": "too late" },
            { "label": "a", "delay_ms": 300_000, "text": "too late" },
        ] }),
    );
    let rig = project.rig();
    let args = ["--approval", "auto-below 0.25", "--detach-after", "1"];
    let mut client = plain(rig, STORIES, &args);
    let first = client.data("delegate_story", json!({ "prd": "prd.json" }));
    assert_ne!(first["state"], "awaiting_approval", "{first}");
    let tasks = json!({ "tasks": [{ "label": "a", "prompt": "Look around" }] });
    let said = client.call("delegate_start", tasks.clone())["content"][0]["text"].clone();
    let said = said.as_str().unwrap();
    assert!(said.contains("today's amount is spent"), "{said}");
    clean(rig);

    let mut client = plain(rig, STORIES, &["--approval", "auto-below 0.20"]);
    let mut later = tasks;
    later["tasks"][0]["prompt"] = json!("Look elsewhere");
    let said = client.call("delegate_start", later)["content"][0]["text"].clone();
    let said = said.as_str().unwrap();
    assert!(said.contains("its worst case is $5.00") && said.contains("--budget-usd"), "{said}");
    clean(rig);
}
