//! Hostile clients: the server answers or stays silent, and survives.

use std::io::Write;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, peak_kib, spawn, task};
use crate::support::rig::Rig;

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

/// Writes a line and returns the error it is answered with.
fn complaint(client: &mut Client, line: &[u8]) -> Value {
    client.write(line);
    client.write(b"\n");
    let answer = client.message().unwrap();
    assert!(answer["error"].is_object(), "{answer}");
    client.ping();
    answer
}

#[test]
fn an_invalid_message_is_answered_and_the_next_one_is_read() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let deep_call = format!(
        r#"{{"jsonrpc":"2.0","id":90,"method":"tools/call","params":{{"name":"Delegate","arguments":{}}}}}"#,
        r#"{"a":"#.repeat(5_000) + "1" + &"}".repeat(5_000)
    );
    let twice = br#"{"jsonrpc":"2.0","id":92,"method":"tools/call","params":{"name":"Delegate","arguments":{"tasks":[{"label":"a","prompt":"x","prompt":"y"}]}}}"#;
    let cases: [(&[u8], i64); 10] = [
        (b"nonsense", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1", -32700),
        (b"\xff\xfe\xfd", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700),
        (&deep, -32700),
        (deep_call.as_bytes(), -32700),
        (b"[]", -32600),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (br#"{"jsonrpc":"1.0","id":91,"method":"ping"}"#, -32600),
        (twice, -32602),
    ];
    for (line, code) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        assert_eq!(complaint(&mut client, line)["error"]["code"], code, "{shown}");
    }
    // The client learns which call it was and what to correct.
    let answer = complaint(&mut client, twice);
    assert_eq!(answer["id"], 92);
    insta::assert_snapshot!(answer["error"]["message"].as_str().unwrap(), @"the key `prompt` occurs twice in one object at line 1 column 131 of the message; send each key once");
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

#[test]
fn an_endless_line_does_not_fill_memory() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let before = client.peak_kib();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..200 {
        client.write(&chunk);
    }
    let answer = complaint(&mut client, b"");
    assert_eq!(answer["error"]["code"], -32600);
    assert!(answer["error"]["message"].as_str().unwrap().contains("4 MiB"), "{answer}");
    let grown = client.peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB more for 200 MiB");
}

#[test]
fn requests_before_the_handshake_are_refused_and_the_handshake_still_works() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    client.ping();
    for method in ["tools/list", "tools/call", "no/such"] {
        let params = json!({ "name": "Delegate", "arguments": task("a") });
        let answer = client.request(method, params);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    for message in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "id": 7, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": 1, "message": "no" } }),
    ] {
        client.send(&message);
    }
    assert_eq!(client.initialize("tester", "2025-06-18")["protocolVersion"], "2025-06-18");
    assert_eq!(client.data("Delegate", task("a"))["state"], "completed");
    assert_eq!(rig.runs().len(), 1, "the early call began nothing");
}

#[test]
fn wrong_requests_are_errors_and_start_nothing() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    for (method, params) in [
        ("no/such", json!({})),
        ("tools/call", json!(null)),
        ("tools/call", json!([1, 2])),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!({ "name": "Delegate", "arguments": "text" })),
        ("tools/call", json!({ "name": "no_such_tool", "arguments": {} })),
        ("tools/call", json!({ "name": "delegate", "arguments": task("a") })),
    ] {
        let answer = client.request(method, params.clone());
        assert!(answer["error"].is_object(), "{method} {params}: {answer}");
        client.ping();
    }
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

#[test]
fn wrong_arguments_are_reported_to_the_model_and_start_nothing() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let nine: Vec<Value> =
        (0..9).map(|n| json!({ "label": n.to_string(), "prompt": "x" })).collect();
    let more = |key: &str, value: Value| {
        let mut call = task("a");
        call[key] = value;
        call
    };
    for (tool, arguments) in [
        ("Delegate", json!({})),
        ("Delegate", json!({ "tasks": [] })),
        ("Delegate", json!({ "tasks": "all" })),
        ("Delegate", json!({ "tasks": nine })),
        ("Delegate", json!({ "tasks": [{ "label": "a" }] })),
        ("delegate_start", more("concurrency", json!(99))),
        ("delegate_start", more("yes", json!(true))),
        ("delegate_start", more("approve_below_usd", json!(100))),
        ("delegate_start", more("root", json!("/"))),
        ("delegate_start", more("base_url", json!("http://localhost"))),
        ("delegate_start", more("model", json!("other/model"))),
        ("delegate_wait", json!({})),
        ("delegate_wait", json!({ "run": 7 })),
        ("delegate_wait", json!({ "run": "run_1_aaaaaa", "timeout_s": -1 })),
        ("delegate_cancel", json!({ "run": "run_1735460684_aaaaaa" })),
        ("delegate_status", json!({ "run": "run_1735460684_aaaaaa", "root": "/" })),
        ("validate_return", json!({})),
        ("validate_return", json!({ "return": {}, "session_id": "nobody" })),
    ] {
        let said = client.failure(tool, arguments.clone());
        assert!(!said.is_empty(), "{tool} {arguments}");
    }
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

#[test]
fn duplicate_ids_and_unknown_cancellations_are_harmless() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    for id in [json!(4711), json!("no such"), json!(null), json!({}), json!(-1)] {
        let params = json!({ "requestId": id });
        let method = "notifications/cancelled";
        client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }
    let call = |label: &str| {
        let params = json!({ "name": "delegate_start", "arguments": task(label) });
        json!({ "jsonrpc": "2.0", "id": 500, "method": "tools/call", "params": params })
    };
    client.send(&call("a"));
    client.send(&call("b"));
    // The second is refused while the first begins.
    let refused = client.answer(500);
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("id is in use"), "{refused}");
    assert_eq!(client.answer(500)["result"]["isError"], false);
    assert_eq!(rig.runs().len(), 1);
    // Once answered, it may be used again, however soon.
    for _ in 0..200 {
        client.send(&json!({ "jsonrpc": "2.0", "id": 500, "method": "ping" }));
        assert_eq!(client.answer(500)["result"], json!({}));
    }
    client.ping();
}

/// Writes a line repeatedly until the server stops reading; returns how often.
fn write_until_full(stdin: &mut ChildStdin, line: &str) -> usize {
    assert!(line.len() < 4096, "a pipe takes that much whole, or nothing");
    for count in 0.. {
        let mut ready = [PollFd::new(&*stdin, PollFlags::OUT)];
        let patience = Timespec { tv_sec: 3, tv_nsec: 0 };
        if poll(&mut ready, Some(&patience)).unwrap() == 0 {
            return count;
        }
        assert!(count < 100_000, "everything is taken");
        stdin.write_all(line.replace("ID", &count.to_string()).as_bytes()).unwrap();
    }
    unreachable!()
}

#[test]
fn a_client_that_never_reads_cannot_fill_memory_or_keep_the_server_alive() {
    let rig = rig();
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}ID","method":"ping"}}"#, "x".repeat(1000));
    let list = r#"{"jsonrpc":"2.0","id":"ID","method":"tools/list"}"#;
    for line in [long.as_str(), list, "no message"] {
        let mut server = spawn(&rig, rig.model(), &[], &[]);
        let (mut stdin, stdout) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let hello = json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "deaf", "version": "1" },
        } });
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        stdin.write_all(format!("{hello}\n{begun}\n").as_bytes()).unwrap();
        let taken = write_until_full(&mut stdin, &format!("{line}\n"));
        let peak = peak_kib(&server);
        assert!(peak < 96 << 10, "{peak} KiB for {taken} of {line:.60}");
        drop(stdin);
        let left = Instant::now();
        assert_eq!(server.wait().unwrap().code(), Some(0), "{line:.60}");
        assert!(left.elapsed() < Duration::from_secs(30), "{:?} {line:.60}", left.elapsed());
        drop(stdout);
    }
}

#[test]
fn an_id_that_is_too_long_is_refused() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    for (length, is_taken) in [(1024, true), (1025, false), (100_000, false)] {
        let id = "x".repeat(length);
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
        let answer = client.message().unwrap();
        assert_eq!(answer["result"].is_object(), is_taken, "{length}");
        assert_eq!(answer["error"]["code"] == -32600, !is_taken, "{length}");
    }
}

#[test]
fn calls_beyond_the_waiting_limit_are_refused_and_waiting_ones_can_be_cancelled() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--detach-after", "600"]);
    let run = client.data("delegate_start", task("slow"))["run"].clone();
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": run } });
    let calls: Vec<i64> = (0..300).map(|_| client.ask("tools/call", wait.clone())).collect();
    for call in &calls[256..] {
        let refused = client.answer(*call);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("too many"), "{refused}");
    }
    client.ping();
    assert_eq!(client.data("delegate_cancel", json!({ "run": run }))["how"], "obeyed");
    for call in &calls[..256] {
        let answer = client.answer(*call);
        assert_eq!(answer["result"]["structuredContent"]["state"], "cancelled", "{answer}");
    }
    assert_eq!(client.data("delegate_wait", json!({ "run": run }))["done"], true);
}

#[test]
fn a_thousand_calls_at_once_are_all_answered() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let run = client.data("Delegate", task("a"))["run"].clone();
    let calls: Vec<i64> =
        (0..1000).map(|_| client.begin("delegate_wait", json!({ "run": run }))).collect();
    let mut missing: std::collections::BTreeSet<i64> = calls.into_iter().collect();
    while !missing.is_empty() {
        let answer = client.message().unwrap();
        if let Some(id) = answer["id"].as_i64() {
            assert_eq!(answer["result"]["structuredContent"]["done"], true, "{answer}");
            assert!(missing.remove(&id), "answered twice: {answer}");
        }
    }
    client.ping();
}

/// Only the user may choose a script file as model; the error does not reveal whether the file exists.
#[test]
fn a_task_cannot_name_a_file_as_its_model() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    for wish in ["script:../script.toml", "script:/none", "replay:/none"] {
        let call = json!({ "tasks": [{ "label": "a", "prompt": "x", "model": wish }] });
        let said = client.failure("Delegate", call);
        assert!(said.contains("is a file, not a model"), "{said}");
    }
    assert!(rig.runs().is_empty());
}

/// No agent can read the records of other runs, even if the state directory is inside the tree.
#[test]
fn the_state_directory_is_out_of_reach_wherever_it_lies() {
    let rig = Rig::new();
    let secret = "the-code-of-somebody-else";
    rig.write("mine.txt", secret);
    let state = rig.work().join("kept/state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("code.txt"), secret).unwrap();
    std::os::unix::fs::symlink("kept/state", rig.work().join("link")).unwrap();
    let calls = [
        ("Read", json!({ "path": "kept/state/code.txt" })),
        ("Read", json!({ "path": "link/code.txt" })),
        ("Read", json!({ "path": "kept/../link/code.txt" })),
        ("Grep", json!({ "pattern": "somebody-else" })),
        ("Grep", json!({ "pattern": "somebody-else", "path": "link" })),
        ("Glob", json!({ "pattern": "**" })),
        ("Glob", json!({ "pattern": "**", "path": "kept/state" })),
    ];
    let mut turns: Vec<Value> = Vec::new();
    for (tool, args) in &calls {
        turns.push(json!({ "label": "a", "call": [{ "tool": tool, "args": args }] }));
    }
    turns.push(json!({ "text": "done" }));
    std::fs::write(rig.path().join("script.json"), json!({ "turn": turns }).to_string()).unwrap();
    let state_text = state.display().to_string();
    let delegate = |context: &str| {
        let task = json!([{ "label": "a", "prompt": "x", "context": [context] }]);
        let args =
            ["--home", &state_text, "delegate", "--yes", "--model", "script:../script.json", "-"];
        rig.call(args).stdin(task.to_string()).run()
    };
    let out = delegate("link/code.txt");
    assert_eq!(out.code, 4, "{out}");
    assert!(out.to_string().contains("state directory"), "{out}");
    let out = delegate("mine.txt");
    assert_eq!(out.code, 0, "{out}");
    let mut shown = String::new();
    for run in std::fs::read_dir(state.join("runs")).unwrap() {
        let Ok(files) = std::fs::read_dir(run.unwrap().path().join("transcripts")) else {
            continue;
        };
        for file in files {
            shown += &std::fs::read_to_string(file.unwrap().path()).unwrap();
        }
    }
    let told = shown.matches("is a record or a setting of adjutant itself").count();
    assert_eq!(told, 5, "{shown}");
    assert!(shown.contains("mine.txt\\n1:the-code"), "{shown}");
    for hidden in ["code.txt\\n1:", "kept/state/runs", "state/\\n"] {
        assert!(!shown.contains(hidden), "{hidden}: {shown}");
    }
}

/// Clients print the data unchanged, so it must not control a terminal or reverse text.
#[test]
fn answers_contain_no_control_characters() {
    let rig = Rig::new();
    let said = "plain \u{1b}[2J \u{202e}desrever \u{7}end";
    let script = json!({ "turn": [{ "text": said }], "price": { "input": 1.0, "output": 1.0 } });
    std::fs::write(rig.path().join("script.json"), script.to_string()).unwrap();
    let mut client =
        Client::start_on(&rig, "script:../script.json", &["--approve-below", "10"], &[]);
    client.initialize("tester", "2025-11-25");
    for form in ["markdown", "json"] {
        let mut call = task("a");
        call["return"] = json!(form);
        let result = client.call("Delegate", call);
        assert!(result.to_string().contains("desrever"), "{result}");
        let mut strings = vec![result["content"][0]["text"].to_string()];
        strings.push(result["structuredContent"].to_string());
        for text in strings {
            assert!(!text.contains('\u{202e}') && !text.contains("\\u001b"), "{form}: {text}");
        }
    }
}
