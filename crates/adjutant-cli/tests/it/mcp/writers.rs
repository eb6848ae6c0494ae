//! `delegate_write`, `delegate_diff` and `delegate_merge`: agents that write for a client, and who approves what.

use std::fs;

use serde_json::{Value, json};

use crate::approvals::inbox::{code, typed};
use crate::mcp::rounds::{call, says, state};
use crate::support::mcp_client::Client;
use crate::support::repository::Repo;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

/// Fixes the source, and says so.
const SCRIPT: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
label = "fix"
usage = { input = 1000, output = 10 }
[[turn.call]]
tool = "Run"
args = { command = "echo fixed > src.txt" }

[[turn]]
label = "fix"
text = "Fixed."
usage = { input = 1000, output = 10 }

[[turn]]
label = "copy"
[[turn.call]]
tool = "Run"
args = { command = "cp cache/answer src.txt" }

[[turn]]
label = "copy"
text = "Copied."
"#;

/// The user's own config.toml that lets writers start unasked.
const UNASKED: &str = "[mcp]\nwrite_unasked = true\napproval = \"auto-below 20\"\n";

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("src.txt", "broken\n");
    repo.rig.write("tests/test_src.sh", "grep -q fixed src.txt\n");
    repo.commit("first");
    repo
}

fn configure(repo: &Repo, text: &str) {
    let config = repo.rig.home().join(".config/adjutant");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), text).unwrap();
}

fn client(repo: &Repo, args: &[&str], can: Value) -> Client {
    let mut client = server(repo, args, &[]);
    client.initialize_with("tester", "2025-11-25", can);
    client
}

/// Starts a server without a handshake.
fn server(repo: &Repo, args: &[&str], env: &[(&str, &str)]) -> Client {
    let path = std::env::var("PATH").unwrap();
    Client::start_in_account(&repo.rig, args, &[&[("PATH", path.as_str())], env].concat())
}

fn fix() -> Value {
    json!({
        "tasks": [{ "label": "fix", "prompt": "Make the test pass" }],
        "verify": "sh tests/test_src.sh", "verifyKeep": ["tests/**"],
    })
}

fn is_waiting(data: &Value) -> bool {
    data["approval"]["id"].is_string()
}

/// Ends every run that a test left behind.
fn clean(repo: &Repo) {
    for run in repo.rig.runs() {
        let _ = repo.rig.run(["cancel", &run]);
    }
}

#[test]
fn a_writer_fixes_a_failing_test_and_its_verified_work_comes_back() {
    let repo = repository();
    configure(&repo, UNASKED);
    let mut client = client(&repo, &[], json!({}));
    let data = client.data("delegate_write", fix());
    assert_eq!(data["state"], "completed", "{data}");
    let result = &data["results"]["results"][0];
    assert_eq!(result["verification"], "passed", "{result}");
    assert_eq!(result["receipt"]["tool_calls"], 1, "{result}");
    assert_eq!(result["kept"]["files"][0]["path"], "src.txt", "{result}");
    assert!(
        result["kept"]["reference"].as_str().unwrap().starts_with("refs/adjutant/"),
        "{result}"
    );
    assert_eq!(repo.read("src.txt"), "broken\n", "nothing is merged");
    // Some clients give their model only the text.
    let text = client.call("delegate_result", json!({ "run": data["run"] }));
    let text = text["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("**Verification**: passed (sh tests/test_src.sh)"), "{text}");

    let again = client.data("delegate_write", fix());
    assert_eq!((&again["run"], &again["repeated"]), (&data["run"], &json!(true)));
    let reader = json!({ "tasks": fix()["tasks"] });
    let other = client.data("delegate_start", reader);
    assert_ne!(other["run"], data["run"], "the same tasks for readers are another call");
    clean(&repo);
}

/// Without a form in the client, the question waits with a code, and contains the whole command.
#[test]
fn a_person_is_asked_about_every_writer_by_default() {
    let repo = repository();
    let long = format!("sh tests/test_src.sh && {}", "true && ".repeat(60) + "true");
    let mut call = fix();
    call["verify"] = json!(long);
    for (config, args) in [
        ("", vec![]),
        // Flags of the server, which a project's .mcp.json may contain, allow nothing.
        ("", vec!["--approve-below", "20"]),
        ("", vec!["--set", "approval=none"]),
        ("[mcp]\napproval = \"auto-below 20\"\n", vec![]),
        ("[mcp]\nwrite_unasked = true\n", vec!["--approve-below", "20"]),
        // Beyond the daily amount of the person, whatever the flag says.
        (
            "[mcp]\nwrite_unasked = true\napproval = \"auto-below 0.01\"\n",
            vec!["--approve-below", "20"],
        ),
        (UNASKED, vec!["--approval", "inbox"]),
        (UNASKED, vec!["--set", "network=true"]),
        (UNASKED, vec!["--grant", "/opt"]),
    ] {
        configure(&repo, config);
        let mut client = client(&repo, &args, json!({}));
        let data = client.data("delegate_write", call.clone());
        assert!(is_waiting(&data), "{config:?} {args:?}: {data}");
        let inbox = repo.rig.run(["approvals", "--json"]).json();
        let question = &inbox["approvals"][0]["question"];
        assert_eq!(question["tasks"][0]["verify"], long, "{question}");
        let shown = repo.rig.run(["approvals"]).stdout;
        assert!(shown.replace(['\n', ' '], "").contains(&long.replace(' ', "")), "{shown}");
        assert_eq!(repo.rig.run(["cancel", data["run"].as_str().unwrap()]).code, 0);
    }
}

#[test]
fn a_person_approves_a_writer_through_the_client() {
    let repo = repository();
    let mut client = client(&repo, &["--approve-below", "20"], json!({ "elicitation": {} }));
    let call = client.begin("delegate_write", fix());
    let question = client.asked("elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.contains("`sh tests/test_src.sh`"), "{message}");
    // Wrapped at the width of a terminal.
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("with tests/** from the base"), "{message}");
    client.reply(&question, json!({ "action": "accept", "content": { "answer": "start" } }));
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(data["results"]["results"][0]["verification"], "passed", "{data}");
}

#[test]
fn a_server_or_a_person_that_denies_everything_denies_writers() {
    let repo = repository();
    for (config, args) in [
        ("[mcp]\napproval = \"deny\"\nwrite_unasked = true\n", vec!["--approve-below", "20"]),
        (UNASKED, vec!["--approval", "deny"]),
    ] {
        configure(&repo, config);
        let mut client = client(&repo, &args, json!({}));
        let said = client.failure("delegate_write", fix());
        assert!(said.contains("Not approved"), "{said}");
        assert!(repo.rig.runs().is_empty(), "{:?}", repo.rig.runs());
    }
}

#[test]
fn a_project_s_config_cannot_let_writers_start_or_merge_unasked() {
    let repo = repository();
    for key in ["write_unasked", "merge_unasked"] {
        repo.rig.write(".adjutant/config.toml", format!("[mcp]\n{key} = true\n"));
        let out = repo.rig.run(["mcp"]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("what MCP clients may do"), "{out}");
    }
}

/// A project's `.mcp.json` can set variables of the server, and with them choose another file as the user's.
#[test]
fn variables_of_the_server_cannot_let_writers_start_or_merge_unasked() {
    let repo = repository();
    configure(&repo, UNASKED);
    let run = fixed(&mut client(&repo, &[], json!({})));
    configure(&repo, "");
    let planted = repo
        .rig
        .write("evil/.config/adjutant/config.toml", format!("{UNASKED}merge_unasked = true\n"));
    let config = planted.ancestors().nth(2).unwrap().to_str().unwrap();
    let home = planted.ancestors().nth(3).unwrap().to_str().unwrap();
    for env in [vec![("XDG_CONFIG_HOME", config)], vec![("HOME", home), ("XDG_CONFIG_HOME", "")]] {
        let mut client = server(&repo, &[], &env);
        client.initialize_with("tester", "2025-11-25", json!({}));
        let mut call = fix();
        call["tasks"][0]["prompt"] = json!(format!("Again with {}", env[0].0));
        let data = client.data("delegate_write", call);
        assert!(is_waiting(&data), "{env:?}: {data}");
        let data = client.data("delegate_merge", json!({ "run": run, "apply": true }));
        assert!(is_waiting(&data), "{env:?}: {data}");
        assert_eq!(repo.read("src.txt"), "broken\n");
    }
    clean(&repo);
}

#[test]
fn bad_input_for_writers_is_refused_before_anything_starts() {
    let repo = repository();
    configure(&repo, UNASKED);
    let mut client = client(&repo, &[], json!({}));
    for (key, value, expected) in [
        ("verify", json!(""), "verify: expected 1 to 4096 bytes"),
        ("verify", json!(7), "verify: invalid type"),
        ("verifyKeep", json!("tests/**"), "verifyKeep: invalid type"),
        ("verifyKeep", json!(["["]), "--verify-keep"),
        ("include_ignored", json!(["target"]), "include_ignored"),
        ("grant", json!(["/"]), "grant"),
        ("network", json!(true), "network"),
        ("tasks", json!([]), "tasks"),
    ] {
        let mut call = fix();
        call[key] = value.clone();
        let said = client.failure("delegate_write", call);
        assert!(said.contains(expected), "{key} {value}: {said}");
    }
    let mut call = fix();
    call.as_object_mut().unwrap().remove("verify");
    assert!(client.failure("delegate_write", call).contains("no `verify` command"));
    assert!(repo.rig.runs().is_empty(), "{:?}", repo.rig.runs());
}

#[test]
fn ignored_directories_come_from_the_user_s_config_or_from_flags_of_the_server() {
    let repo = repository();
    repo.rig.write(".gitignore", "cache\n");
    repo.commit("ignore");
    repo.rig.write("cache/answer", "cached\n");
    configure(&repo, &format!("{UNASKED}include_ignored = [\"cache\"]\n"));
    let call = json!({ "tasks": [{ "label": "copy", "prompt": "Copy it" }] });
    let data = client(&repo, &[], json!({})).data("delegate_write", call.clone());
    let patch = data["patches"][0]["patch"].as_str().unwrap_or_else(|| panic!("{data}"));
    assert!(patch.contains("+cached\n") && !patch.contains("cache/answer"), "{patch}");
    assert_eq!(data["results"]["results"][0]["verification"], "none", "{data}");

    let mut client = client(&repo, &["--include-ignored", "cache"], json!({}));
    assert!(is_waiting(&client.data("delegate_write", call)), "a flag is asked about");
    clean(&repo);
}

/// A server whose flags let the agents of `Delegate` write asks as for `delegate_write`.
#[test]
fn flags_cannot_turn_delegate_into_a_writer_that_starts_unasked() {
    let repo = repository();
    let reader = json!({ "tasks": [{ "label": "look", "prompt": "Look" }] });
    let flags: [&[&str]; 2] =
        [&["--set", "workspace=own"], &["--preset", "story", "--enable-delegation"]];
    for flags in flags {
        let args = [&["--approve-below", "20"], flags].concat();
        let mut client = client(&repo, &args, json!({}));
        let data = client.data("Delegate", reader.clone());
        assert!(is_waiting(&data), "{flags:?}: {data}");
    }
    clean(&repo);
}

/// Lets a writer fix the source; returns the id of its run.
fn fixed(client: &mut Client) -> String {
    let data = client.data("delegate_write", fix());
    assert_eq!(data["state"], "completed", "{data}");
    data["run"].as_str().unwrap().to_owned()
}

#[test]
fn the_patch_comes_with_the_result_and_whole_as_a_resource() {
    let repo = repository();
    configure(&repo, UNASKED);
    let long: String = (0..3000).map(|line| format!("line {line}\n")).collect();
    repo.rig.write("src.txt", &long);
    repo.commit("long");
    let mut client = client(&repo, &["--result-bytes", "9000"], json!({}));
    let result = client.call("delegate_write", fix());
    let data = &result["structuredContent"];
    let run = data["run"].as_str().unwrap();
    let patch = &data["patches"][0];
    assert!(patch["ref"].as_str().unwrap().starts_with("refs/adjutant/"), "{patch}");
    assert_eq!(patch["cut"], true, "{patch}");
    assert!(patch["patch"].as_str().unwrap().starts_with("diff --git a/src.txt"), "{patch}");
    assert!(result.to_string().len() < 10_000, "{}", result.to_string().len());
    let uri = format!("adjutant://run/{run}/patch");
    assert!(result["content"].to_string().contains(&uri), "{result}");

    let mut whole = String::new();
    let mut next = uri;
    loop {
        let page = client.request("resources/read", json!({ "uri": next }))["result"].clone();
        let page = page["contents"][0]["text"].as_str().unwrap().to_owned();
        let (text, note) = page.rsplit_once("\n[bytes ").unwrap_or((&page, ""));
        whole += text;
        let Some((_, rest)) = note.split_once("continued at ") else { break };
        next = rest.trim_end().trim_end_matches(']').to_owned();
    }
    assert!(whole.contains("-line 0\n") && whole.contains("-line 2999\n"), "{whole}");
    assert!(whole.contains("+fixed"), "{whole}");

    let diff = client.data("delegate_diff", json!({ "run": run }));
    assert_eq!(diff["patches"][0]["ref"], patch["ref"]);
    let session = &patch["session_id"];
    let one = client.data("delegate_diff", json!({ "run": session }));
    assert_eq!(one["patches"].as_array().unwrap().len(), 1, "{one}");
}

#[test]
fn delegate_diff_of_a_run_without_writers_is_empty_and_of_an_unknown_run_an_error() {
    let repo = repository();
    let mut client = client(&repo, &["--approve-below", "20"], json!({}));
    let reader = json!({ "tasks": [{ "label": "look", "prompt": "Look" }] });
    let run = client.call("Delegate", reader)["structuredContent"]["run"].clone();
    assert_eq!(client.data("delegate_diff", json!({ "run": run }))["patches"], json!([]));
    for tool in ["delegate_diff", "delegate_merge"] {
        let said = client.failure(tool, json!({ "run": "run_1735460684_a1b2c3" }));
        assert!(said.contains("no run"), "{tool}: {said}");
        assert!(client.failure(tool, json!({})).contains("run"), "{tool}");
        let more = json!({ "run": run, "force": true });
        assert!(client.failure(tool, more).contains("unknown field"), "{tool}");
    }
}

#[test]
fn a_merge_is_previewed_and_applied_only_after_a_person_s_yes() {
    let repo = repository();
    configure(&repo, UNASKED);
    let mut client = client(&repo, &[], json!({ "elicitation": {} }));
    let run = fixed(&mut client);
    let preview = client.data("delegate_merge", json!({ "run": run }));
    assert_eq!(preview["dry_run"], true, "{preview}");
    assert_eq!(preview["results"][0]["fate"], "would_merge", "{preview}");
    assert_eq!(preview["results"][0]["verification"], "passed", "{preview}");
    assert_eq!(repo.read("src.txt"), "broken\n");

    let apply = json!({ "run": run, "apply": true });
    for no in [json!({ "action": "decline" }), accept("refuse"), accept("start")] {
        let call = client.begin("delegate_merge", apply.clone());
        let question = client.asked("elicitation/create");
        client.reply(&question, no);
        let result = client.answer(call)["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(repo.read("src.txt"), "broken\n");
    }
    let call = client.begin("delegate_merge", apply.clone());
    let question = client.asked("elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    for part in [run.as_str(), "would merge", "src.txt +1 -1", "verified"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    client.reply(&question, accept("merge"));
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(data["results"][0]["fate"], "merged", "{data}");
    assert_eq!(repo.read("src.txt"), "fixed\n");
    let again = client.data("delegate_merge", apply);
    assert_eq!(again["results"][0]["fate"], "already", "{again}");
    assert!(again["next"].as_str().unwrap().contains("in the files already"), "{again}");
}

/// In the era without sessions the call is answered with the question, and repeated with the answer.
#[test]
fn a_merge_is_approved_in_a_repeated_call() {
    let repo = repository();
    configure(&repo, UNASKED);
    let run = fixed(&mut client(&repo, &[], json!({})));
    let apply = json!({ "run": run, "apply": true });
    let mut client = server(&repo, &[], &[]);
    for no in [json!({ "action": "decline" }), accept("refuse"), accept("start")] {
        let state = state(&call(&mut client, "delegate_merge", &apply, &json!({})));
        let result = call(&mut client, "delegate_merge", &apply, &says(&state, &no));
        assert_eq!(result["isError"], true, "{result}");
        // A closed question takes no other answer.
        let late = says(&state, &accept("merge"));
        let late = call(&mut client, "delegate_merge", &apply, &late);
        assert_eq!(late["isError"], true, "{late}");
        assert_eq!(repo.read("src.txt"), "broken\n");
    }
    let asked = call(&mut client, "delegate_merge", &apply, &json!({}));
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str().unwrap();
    assert!(message.contains("would merge") && message.contains("src.txt +1 -1"), "{message}");
    let state = state(&asked);
    let other = json!({ "run": run });
    let stolen = call(&mut client, "delegate_merge", &other, &says(&state, &accept("merge")));
    assert!(stolen.to_string().contains("requestState"), "{stolen}");
    // Another server of the same user accepts the answer: the first may have ended by then.
    client.kill();
    let mut client = server(&repo, &[], &[]);
    let result = call(&mut client, "delegate_merge", &apply, &says(&state, &accept("merge")));
    assert_eq!(result["structuredContent"]["results"][0]["fate"], "merged", "{result}");
    assert_eq!(repo.read("src.txt"), "fixed\n");
    assert!(repo.rig.run(["approvals"]).stdout.contains("Nothing waits"));
}

fn accept(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

#[test]
fn a_merge_waits_in_the_inbox_for_a_person_who_types_its_code() {
    let repo = repository();
    configure(&repo, UNASKED);
    let mut client = client(&repo, &[], json!({}));
    let run = fixed(&mut client);
    let apply = json!({ "run": run, "apply": true });
    let data = client.data("delegate_merge", apply.clone());
    let id = data["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(repo.read("src.txt"), "broken\n");
    let inbox = repo.rig.run(["approvals", "--json"]).json();
    assert_fits("approvals", &inbox);
    assert_eq!(inbox["merges"][0]["of"], run, "{inbox}");
    assert!(data["next"].as_str().unwrap().contains("again for the outcome"), "{data}");
    // The same question again: the person may be about to type its code.
    let code = code(&repo.rig, &id);
    client.data("delegate_merge", apply.clone());
    let (screen, exit) = typed(&repo.rig, &["approve", &id, "WRONG2"]);
    assert_eq!(exit, 4, "{screen}");
    assert_eq!(repo.read("src.txt"), "broken\n");
    let (screen, exit) = typed(&repo.rig, &["approve", &id, &code]);
    assert_eq!(exit, 0, "{screen}");
    assert_eq!(repo.read("src.txt"), "fixed\n");
    assert_eq!(client.data("delegate_merge", apply)["results"][0]["fate"], "already");
    assert!(repo.rig.run(["approvals"]).stdout.contains("Nothing waits"));
}

#[test]
fn a_client_learns_that_its_merge_was_refused_in_a_terminal() {
    let repo = repository();
    configure(&repo, UNASKED);
    let mut client = client(&repo, &[], json!({}));
    let run = fixed(&mut client);
    let apply = json!({ "run": run, "apply": true });
    let data = client.data("delegate_merge", apply.clone());
    let id = data["approval"]["id"].as_str().unwrap().to_owned();
    let (screen, exit) = typed(&repo.rig, &["approve", "--deny", &id]);
    assert_eq!(exit, 0, "{screen}");
    let said = client.failure("delegate_merge", apply.clone());
    assert!(said.contains("Not merged: the person refused it"), "{said}");
    assert_eq!(repo.read("src.txt"), "broken\n");
    // The person may have changed their mind.
    assert!(is_waiting(&client.data("delegate_merge", apply)));
}

#[test]
fn merges_apply_unasked_only_with_the_key_and_never_over_changes_of_the_user() {
    let repo = repository();
    configure(&repo, &format!("{UNASKED}merge_unasked = true\n"));
    for (flags, is_merged) in
        [(vec!["--approval", "deny"], false), (vec!["--approval", "inbox"], false), (vec![], true)]
    {
        let run = fixed(&mut client(&repo, &[], json!({})));
        let apply = json!({ "run": run, "apply": true });
        let mut client = client(&repo, &flags, json!({}));
        let result = client.call("delegate_merge", apply);
        let fate = &result["structuredContent"]["results"][0]["fate"];
        assert_eq!(fate == "merged", is_merged, "{flags:?}: {result}");
    }
    assert_eq!(repo.read("src.txt"), "fixed\n");

    let repo = repository();
    configure(&repo, &format!("{UNASKED}merge_unasked = true\n"));
    let mut client = client(&repo, &[], json!({}));
    let run = fixed(&mut client);
    repo.rig.write("src.txt", "mine\n");
    let result = client.call("delegate_merge", json!({ "run": run, "apply": true }));
    assert_eq!(repo.read("src.txt"), "mine\n", "{result}");
    assert_ne!(result["structuredContent"]["results"][0]["fate"], "merged", "{result}");
}
