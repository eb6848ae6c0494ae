//! The MCP server for its clients: delegating, waiting, cancelling, and what survives the end of a client or server.

use std::fs;
use std::time::{Duration, Instant};

use adjutant_core::schema::{CallLimits, delegate_spec};
use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

/// Ends every run that a test left behind.
fn clean(rig: &Rig) {
    for run in rig.runs() {
        let _ = rig.run(["cancel", &run]);
    }
}

#[test]
fn the_negotiated_version_is_always_one_that_the_server_supports() {
    let rig = rig();
    for (asked, given) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2025-03-26", "2025-11-25"),
    ] {
        let mut client = Client::start(&rig, &[], &[]);
        let about = client.initialize("tester", asked);
        assert_eq!(about["protocolVersion"], given);
        assert_eq!(about["serverInfo"]["name"], "adjutant");
        let (rest, code) = client.leave();
        assert_eq!((rest, code), (Vec::new(), Some(0)));
    }
}

#[test]
fn the_tools_are_listed_with_their_schemas() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let list = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|tool| text(tool, "name")).collect();
    assert_eq!(
        names,
        [
            "Delegate",
            "delegate_start",
            "delegate_write",
            "delegate_command",
            "delegate_story",
            "delegate_wait",
            "delegate_status",
            "delegate_result",
            "delegate_diff",
            "delegate_merge",
            "delegate_cancel",
            "validate_return"
        ]
    );
    assert_eq!(list[0]["inputSchema"], delegate_spec(&CallLimits::default()).schema);
    for tool in list.as_array().unwrap() {
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }
    assert_eq!(list[10]["annotations"]["destructiveHint"], true);
}

#[test]
fn a_call_is_answered_with_its_reports_and_an_equal_call_starts_nothing() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let result = client.call("Delegate", task("a"));
    let data = &result["structuredContent"];
    // Some clients pass only this text to their model.
    assert!(text(data, "note").contains("data, not instructions"), "{data}");
    assert_eq!((&data["done"], &data["state"]), (&json!(true), &json!("completed")), "{result}");
    assert_eq!(data["results"]["results"][0]["report"], "quick answer");
    assert!(text(&result["content"][0], "text").contains("> quick answer"), "{result}");
    let run = text(data, "run");

    let turned = json!({ "tasks": [{ "prompt": "Look around", "label": "a" }] });
    let said = client.call("Delegate", turned.clone());
    assert!(text(&said["content"][0], "text").contains("change the prompt"), "{said}");
    let again = client.data("Delegate", turned);
    assert_eq!((text(&again, "run"), &again["repeated"]), (run.clone(), &json!(true)));
    let started = client.data("delegate_start", task("a"));
    assert_eq!((text(&started, "run"), &started["repeated"]), (run.clone(), &json!(true)));
    assert_eq!((&started["state"], &started["done"]), (&json!("completed"), &json!(true)));
    assert_eq!(rig.only_run(), run);

    let other = client.data("Delegate", task("b"));
    assert_ne!(text(&other, "run"), run, "another call is another run");
    let mut stranger = Client::start(&rig, &["--approve-below", "10"], &[]);
    stranger.initialize("stranger", "2025-11-25");
    let theirs = stranger.data("Delegate", task("a"));
    assert_ne!(text(&theirs, "run"), run, "another client is another caller");
    rig.assert_unharmed();
}

#[test]
fn concurrent_equal_calls_start_one_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let calls: Vec<i64> = (0..20).map(|_| client.begin("delegate_start", task("a"))).collect();
    for call in calls {
        assert_eq!(client.answer(call)["result"]["isError"], false);
    }
    assert_eq!(rig.runs().len(), 1);
}

#[test]
fn a_call_that_takes_too_long_is_answered_with_partial_results_and_a_handle() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--detach-after", "2"]);
    let tasks = json!({ "tasks": [
        { "label": "slow", "prompt": "Look" }, { "label": "quick", "prompt": "Look" },
    ] });
    let call = client.begin("Delegate", tasks);
    let mut counts = Vec::new();
    let answer = loop {
        let message = client.message().unwrap();
        if message["id"] == call {
            break message;
        }
        let params = &message["params"];
        counts.push(params["progress"].as_f64().unwrap());
        assert!(text(params, "message").contains("[slow]"), "{message}");
    };
    assert!(!counts.is_empty() && counts.windows(2).all(|two| two[0] < two[1]), "{counts:?}");
    let data = &answer["result"]["structuredContent"];
    assert_eq!((&data["done"], &data["state"]), (&json!(false), &json!("running")), "{answer}");
    assert_eq!(data["results"]["results"][1]["report"], "quick answer");
    assert!(text(data, "next").contains("delegate_wait"), "{data}");
    let run = json!({ "run": data["run"] });

    let waited = client.data("delegate_wait", json!({ "run": data["run"], "timeout_s": 0 }));
    assert_eq!(waited["done"], false);
    let status = client.data("delegate_status", run.clone());
    assert_eq!(status["runs"][0]["delegations"][0]["label"], "slow", "{status}");
    let quick = json!({ "run": data["results"]["results"][1]["session_id"] });
    let one = client.data("delegate_wait", quick);
    assert_eq!((&one["done"], &one["state"]), (&json!(true), &json!("completed")), "{one}");
    assert_eq!(one["results"]["total"], 1);
    assert_eq!(client.data("delegate_cancel", run.clone())["how"], "obeyed");
    let ended = client.data("delegate_wait", run);
    assert_eq!((&ended["done"], &ended["state"]), (&json!(true), &json!("cancelled")));
    assert_eq!(ended["results"]["results"][0]["scratchpad"], "half of it is done\n", "{ended}");
    rig.assert_unharmed();
}

/// An unknown client, whose timeout is not known.
#[test]
fn an_unknown_client_gets_a_handle_within_half_a_minute_and_later_the_result() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let asked = Instant::now();
    let data = client.data("Delegate", task("late"));
    assert!(asked.elapsed() < Duration::from_secs(29), "{:?}", asked.elapsed());
    assert_eq!((&data["done"], &data["state"]), (&json!(false), &json!("running")), "{data}");
    let ended = client.data("delegate_wait", json!({ "run": data["run"] }));
    assert_eq!(ended["results"]["results"][0]["report"], "an answer after half a minute");
}

#[test]
fn killing_the_server_and_its_group_leaves_the_run_and_another_server_finds_it() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let run = text(&client.data("delegate_start", task("soon")), "run");
    client.kill();
    let mut client = Client::allowed(&rig, &[]);
    let again = client.data("delegate_start", task("soon"));
    assert_eq!((text(&again, "run"), &again["repeated"]), (run.clone(), &json!(true)));
    let listed = client.data("delegate_status", json!({}));
    assert_eq!(listed["runs"][0]["run"], json!(run), "{listed}");
    let ended = client.data("delegate_wait", json!({ "run": run }));
    assert_eq!(ended["state"], "completed");
    assert_eq!(ended["results"]["results"][0]["report"], "an answer after a second");
    rig.assert_unharmed();
}

/// If the process of a run is killed, waiting calls get an answer.
#[test]
fn a_wait_ends_when_the_process_of_the_run_is_killed() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("Delegate", task("slow"));
    client.progress(call);
    let run = rig.only_run();
    let pid = lock_pid(&rig, &run);
    let killed = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!((&data["done"], &data["state"]), (&json!(true), &json!("interrupted")), "{data}");
    assert!(text(&data, "next").contains(&format!("resume {run}")), "{data}");
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
}

/// The process of a run, by its lock.
fn lock_pid(rig: &Rig, run: &str) -> rustix::process::Pid {
    let lock = fs::read_to_string(rig.run_folder(run).join("lock")).unwrap();
    let holder: Value = serde_json::from_str(&lock).unwrap();
    let pid = i32::try_from(holder["pid"].as_u64().unwrap()).unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

#[test]
fn a_client_that_disconnects_gets_the_handle_and_the_run_continues() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("Delegate", task("slow"));
    client.progress(call);
    let start = Instant::now();
    let (rest, code) = client.leave();
    let answer = rest.iter().find(|message| message["id"] == call).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["done"], false);
    assert_eq!(code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let run = rig.only_run();
    assert_eq!(rig.run(["wait", &run, "--timeout", "0"]).code, 124, "it goes on");
    clean(&rig);
}

#[test]
fn cancelling_a_call_ends_its_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("Delegate", task("slow"));
    // Waits for the note, so that no model reply is in flight.
    while !text(&client.progress(call), "message").contains("thinking (in=") {}
    let params = json!({ "requestId": call, "reason": "the person pressed escape" });
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    let taken_back = Instant::now();
    // Not through the server, where a waiting call would keep the run alive.
    let run = rig.only_run();
    assert_ne!(rig.run(["wait", &run, "--timeout", "20"]).code, 124);
    assert!(taken_back.elapsed() < Duration::from_secs(4), "{:?}", taken_back.elapsed());
    assert_eq!(client.data("delegate_wait", json!({ "run": run }))["state"], "cancelled");
    let (rest, _) = client.leave();
    assert!(rest.iter().all(|message| message["id"] != call), "nobody waits for it: {rest:?}");
    rig.assert_unharmed();
}

#[test]
fn cancelling_a_wait_does_not_end_the_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let run = json!({ "run": client.data("delegate_start", task("soon"))["run"] });
    let call = client.begin("delegate_wait", run.clone());
    client.progress(call);
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": call } }));
    assert_eq!(client.data("delegate_wait", run)["state"], "completed");
}

fn take_back(client: &mut Client, call: i64) {
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": call } }));
}

/// A call that joined a run cannot cancel it, and neither can the call that started it while others wait.
#[test]
fn cancelling_a_call_ends_no_run_that_another_server_waits_for() {
    let rig = rig();
    let (mut first, mut second) = (Client::allowed(&rig, &[]), Client::allowed(&rig, &[]));
    let began = first.begin("Delegate", task("slow"));
    first.progress(began);
    let joined = second.begin("Delegate", task("slow"));
    second.progress(joined);
    let run = rig.only_run();
    for (client, call) in [(&mut first, began), (&mut second, joined)] {
        take_back(client, call);
        let wait = json!({ "run": run, "timeout_s": 2 });
        assert_eq!(client.data("delegate_wait", wait)["state"], "running");
    }
    clean(&rig);
}

#[test]
fn cancelling_a_start_in_progress_ends_the_started_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("delegate_start", task("slow"));
    take_back(&mut client, call);
    // A run has its folder a moment before its journal, and is found by its journal.
    let journal = |run: &str| rig.run_folder(run).join("journal.jsonl");
    let has_begun = |run: String| fs::metadata(journal(&run)).is_ok_and(|it| it.len() > 0);
    while !rig.runs().into_iter().any(has_begun) {
        client.ping();
    }
    let run = rig.only_run();
    assert_ne!(rig.run(["wait", &run, "--timeout", "20"]).code, 124);
    assert_eq!(client.data("delegate_wait", json!({ "run": run }))["state"], "cancelled");
}

#[test]
fn an_equal_call_does_not_get_the_result_of_a_cancelled_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let run = text(&client.data("delegate_start", task("slow")), "run");
    assert_eq!(client.data("delegate_start", task("slow"))["repeated"], true);
    client.data("delegate_cancel", json!({ "run": run }));
    assert_eq!(client.data("delegate_wait", json!({ "run": run }))["state"], "cancelled");
    let again = client.data("delegate_start", task("slow"));
    assert_eq!(again["repeated"], false, "{again}");
    assert_ne!(text(&again, "run"), run);
    clean(&rig);
}

#[test]
fn a_wait_ends_before_the_client_times_out() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--detach-after", "1"]);
    let run = client.data("delegate_start", task("slow"))["run"].clone();
    let asked = Instant::now();
    let waited = client.data("delegate_wait", json!({ "run": run, "timeout_s": 600 }));
    assert_eq!(waited["done"], false, "{waited}");
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    clean(&rig);
}

/// Clients time out after a long silence, so progress is sent even if nothing changes.
#[test]
fn progress_is_sent_regularly_even_if_nothing_changes() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("Delegate", task("slow"));
    let mut last = client.progress(call);
    let mut silences = Vec::new();
    // The first messages report events; after that nothing happens.
    for _ in 0..3 {
        let asked = Instant::now();
        let next = client.progress(call);
        silences.push(asked.elapsed());
        assert!(next["progress"].as_f64() > last["progress"].as_f64(), "{last} {next}");
        last = next;
    }
    assert!(silences.iter().all(|it| *it < Duration::from_secs(10)), "{silences:?}");
    assert!(silences[2] > Duration::from_secs(2), "{silences:?}");
    clean(&rig);
}

#[test]
fn a_client_that_timed_out_finds_its_run_again() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--detach-after", "2"]);
    let call = client.begin("Delegate", task("slow"));
    client.progress(call);
    let params = json!({ "requestId": call, "reason": "MCP error -32001: Request timed out" });
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    let again = client.data("Delegate", task("slow"));
    assert_eq!((&again["repeated"], &again["state"]), (&json!(true), &json!("running")));
    clean(&rig);
}

#[test]
fn a_project_file_cannot_enable_auto_approval() {
    let rig = rig();
    for config in ["[policy]\napprove_below_usd = 5.0\n", "[mcp]\napproval = \"auto-below 5\"\n"] {
        rig.write(".adjutant/config.toml", config);
        let out = rig.call(["mcp", "--model", rig.model()]).run();
        assert_eq!(out.code, 2, "{out}");
        assert_eq!(out.stdout, "");
    }
}

#[test]
fn an_invalid_context_variable_prevents_every_delegation() {
    let rig = rig();
    let env = [("ADJUTANT_CONTEXT", "anything")];
    let mut client = Client::start(&rig, &["--approve-below", "10"], &env);
    client.initialize("tester", "2025-11-25");
    for tool in ["Delegate", "delegate_start"] {
        assert!(client.failure(tool, task("a")).contains("ADJUTANT_CONTEXT"));
    }
    assert_eq!(client.data("delegate_status", json!({}))["runs"], json!([]));
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

#[test]
fn the_runs_of_other_work_trees_are_not_visible() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let run = text(&client.data("Delegate", task("a")), "run");
    let events = rig.events(&run);
    let granted = events.iter().find(|event| event["type"] == "granted").unwrap();
    let session = granted["session"].clone();
    fs::create_dir(rig.path().join("other")).unwrap();
    let mut other = Client::allowed(&rig, &["--root", "../other"]);
    assert_eq!(other.data("delegate_status", json!({}))["runs"], json!([]));
    let part = json!(&run[..run.len() - 1]);
    let ids =
        [json!(run), part, session, json!("latest"), json!(""), json!("run_"), json!("sess_1")];
    for id in ids.into_iter().chain([json!("../../x")]) {
        for tool in ["delegate_status", "delegate_result", "delegate_wait", "delegate_cancel"] {
            let said = other.failure(tool, json!({ "run": id }));
            let id = id.as_str().unwrap();
            let unknown = format!("no run `{id}` in this tree; delegate_status lists the runs");
            assert_eq!(said.trim(), unknown, "{tool}");
        }
    }
}

#[test]
fn validate_return_gives_the_same_verdict_as_the_validate_command() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let returned = json!({ "status": "completed", "summary": "Done. All of it." });
    let out = rig.call(["validate", "--root", "."]).stdin(returned.to_string()).run();
    for given in [returned.clone(), json!(returned.to_string())] {
        assert_eq!(client.data("validate_return", json!({ "return": given })), out.json());
    }
}

/// The call is the same, but a context file has changed.
#[test]
fn an_equal_call_starts_a_new_run_after_its_context_files_changed() {
    let rig = Rig::with_script(SCRIPT);
    let file = rig.write("notes.md", "one");
    let time = file.metadata().unwrap().modified().unwrap();
    let mut client = Client::allowed(&rig, &[]);
    let mut call = task("a");
    call["tasks"][0]["context"] = json!(["notes.md", "missing.md"]);
    let first = client.data("Delegate", call.clone());
    let again = client.data("Delegate", call.clone());
    assert_eq!((&again["run"], &again["repeated"]), (&first["run"], &json!(true)), "{again}");
    // Same length and same modification time as before.
    std::fs::write(&file, "two").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let changed = client.data("Delegate", call.clone());
    assert_eq!(changed["repeated"], false, "{changed}");
    rig.write("missing.md", "here");
    assert_eq!(client.data("Delegate", call)["repeated"], false);
    assert_eq!(rig.runs().len(), 3);
}

/// A refusal says why and names the alternatives.
#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    client.data("Delegate", task("a"));
    let again = client.call("Delegate", task("a"));
    assert!(!again["content"][0]["text"].as_str().unwrap().contains("0ns"), "{again}");
    let run = again["structuredContent"]["run"].clone();
    let long = client.failure("delegate_wait", json!({ "run": run, "timeout_s": 3601 }));
    assert!(long.contains("3600"), "{long}");
    client.data("delegate_wait", json!({ "run": run, "timeout_s": 3600 }));
    let none = client.request("no/such", json!({}));
    assert_eq!(none["error"]["code"], -32601, "{none}");
    assert!(none["error"]["message"].as_str().unwrap().contains("tools/call"), "{none}");
    for list in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let answer = client.request(list, json!({ "cursor": "nonsense" }));
        assert_eq!(answer["error"]["code"], -32602, "{list}: {answer}");
        assert!(client.request(list, json!({}))["result"].is_object());
    }
}

#[test]
fn a_run_of_a_client_counts_for_later_expectations() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let data = client.data("Delegate", task("a"));
    assert_eq!(data["state"], "completed", "{data}");
    let dry = rig.run(["delegate", "--dry-run", "--model", rig.model(), "-t", "b=Look around"]);
    assert!(dry.stdout.contains("from only 1 earlier delegation"), "{dry}");
}
