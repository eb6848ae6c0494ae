//! The MCP server over HTTP, through real sockets.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::mcp_http::{Answer, Host, TOKEN, call, request};
use crate::support::rig::Rig;

const VERSION: &str = "2025-11-25";

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

fn ping() -> Value {
    request(9, "ping", &json!({}))
}

#[test]
fn a_client_gets_progress_and_then_the_answer() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    assert_eq!(host.said, "", "who chose the token is not shown it");
    let client = host.session("tester", VERSION);
    assert_eq!(client.about["serverInfo"]["name"], "adjutant");
    let mut answer = client.post(&call(7, "Delegate", &task("soon")));
    let first = answer.message();
    assert_eq!(first["method"], "notifications/progress", "{first}");
    let result = answer.result(7);
    assert_eq!(
        result["structuredContent"]["results"]["results"][0]["report"],
        "an answer after a second"
    );
    let again = client.data("Delegate", &task("soon"));
    assert_eq!(again["repeated"], true, "{again}");
    rig.assert_unharmed();
}

#[test]
fn the_server_listens_only_on_loopback_addresses() {
    let rig = rig();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:127.0.0.1]:0"] {
        let out = rig.run(["mcp", "--http", address, "--model", rig.model()]);
        assert_eq!(out.code, 2, "{address}: {out}");
        assert!(out.stderr.contains("is not a loopback address"), "{out}");
        assert_eq!(out.stdout, "");
    }
    for origin in ["null", "*", "localhost:3000", "ftp://x", "http://a@b", "http://"] {
        let args =
            ["mcp", "--http", "127.0.0.1:0", "--allow-origin", origin, "--model", rig.model()];
        let out = rig.run(args);
        assert_eq!(out.code, 2, "{origin}: {out}");
    }
    let out = rig
        .call(["mcp", "--http", "127.0.0.1:0", "--model", rig.model()])
        .env("ADJUTANT_MCP_TOKEN", "guessable")
        .run();
    assert_eq!(out.code, 2, "{out}");
    assert!(
        out.stderr.contains("32 to 1024 characters") && !out.stderr.contains("guessable"),
        "{out}"
    );
}

#[test]
fn a_token_is_generated_and_shown_once_and_required_for_every_request() {
    let rig = rig();
    let host = Host::start_with(&rig, &[], None);
    let token = host.said.split("Bearer ").nth(1).unwrap().trim().to_owned();
    assert_eq!(token.len(), 64, "{}", host.said);
    let shown = format!("Bearer {token}");
    let right = host.post(&[("Authorization", &shown), ("Mcp-Session-Id", "none")], &ping());
    assert_eq!(right.status, 404, "the token is right, the session is not");
    let other = format!("Bearer {}", "0".repeat(64));
    for wrong in ["", "Bearer", &token, &shown[..70], &other, "Basic YTpi"] {
        for method in ["POST", "GET", "DELETE"] {
            let answer =
                host.send(method, &[("Authorization", wrong)], ping().to_string().as_bytes());
            assert_eq!(answer.status, 401, "{method} {wrong}");
            assert_eq!(answer.header("www-authenticate").as_deref(), Some("Bearer"));
            assert!(!answer.text().contains(&token));
        }
    }
    let journal = rig.state();
    let kept =
        std::process::Command::new("grep").args(["-r", &token]).arg(journal).output().unwrap();
    assert!(kept.stdout.is_empty(), "the token is kept nowhere");
}

#[test]
fn other_hosts_and_origins_are_rejected() {
    let rig = rig();
    let host = Host::start(&rig, &["--allow-origin", "https://app.example"]);
    let port = host.address.rsplit(':').next().unwrap().to_owned();
    for evil in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "localhost:1", ""] {
        let answer = host.post(&[("Host", evil)], &ping());
        assert_eq!(answer.status, 403, "{evil}");
    }
    for evil in
        ["http://evil.example", "null", "https://localhost", "http://localhost:1", "file://"]
    {
        let answer = host.post(&[("Origin", evil)], &ping());
        assert_eq!(answer.status, 403, "{evil}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let own = format!("http://localhost:{port}");
    for fine in [own.as_str(), "https://app.example"] {
        let answer = host.post(&[("Origin", fine), ("Host", &own[7..])], &ping());
        assert_eq!(answer.status, 400, "heard, but there is no session: {}", answer.head);
        assert_eq!(answer.header("access-control-allow-origin").as_deref(), Some(fine));
        let asks = host.send("OPTIONS", &[("Origin", fine), ("Authorization", "")], b"");
        assert_eq!(asks.status, 204);
        assert!(asks.header("access-control-allow-headers").unwrap().contains("Authorization"));
    }
    let elsewhere = ["/", "/mcp/", "/.well-known/oauth-protected-resource", "/mcp/../mcp"];
    for path in elsewhere {
        let mut stream = host.connect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", host.address);
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(Answer::read(stream).status, 404, "{path}");
    }
}

#[test]
fn a_body_may_have_exactly_the_limit_and_no_byte_more() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let padded = |length: usize| {
        let mut body = ping().to_string().into_bytes();
        body.resize(length, b' ');
        host.send("POST", &[("Mcp-Session-Id", &client.id)], &body)
    };
    assert_eq!(padded(4 << 20).result(9), json!({}));
    assert_eq!(padded((4 << 20) + 1).status, 413);
    // A body without a length and without an end.
    let mut stream = host.connect();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        host.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let written = (0..1000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(written < 100, "{written} MiB were taken");
    assert_eq!(client.post(&ping()).result(9), json!({}), "it lives");
}

/// Without the token the server does not wait for a body.
#[test]
fn unauthenticated_requests_are_rejected_by_their_headers_and_slow_ones_disconnected() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let mut slow = host.connect();
    slow.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").unwrap();
    let mut stranger = host.connect();
    let head =
        format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\n", host.address);
    stranger.write_all(head.as_bytes()).unwrap();
    assert_eq!(Answer::read(stranger).status, 401);
    let start = Instant::now();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// Authenticates and waits until the server has read it; the connection stays open.
fn shows_the_token(host: &Host, stream: &mut std::net::TcpStream) -> String {
    let head = format!(
        "PUT /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
        host.address
    );
    let mut status = [0; 12];
    let heard =
        stream.write_all(head.as_bytes()).and_then(|()| stream.read_exact(&mut status)).is_ok();
    if heard { String::from_utf8_lossy(&status).into_owned() } else { String::new() }
}

#[test]
fn a_connection_beyond_the_limit_is_rejected_and_succeeds_later() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let places: Vec<_> = (0..256)
        .map(|_| {
            let mut place = host.connect();
            assert_eq!(shows_the_token(&host, &mut place), "HTTP/1.1 405");
            place
        })
        .collect();
    assert_eq!(shows_the_token(&host, &mut host.connect()), "HTTP/1.1 503");
    drop(places);
    let deadline = Instant::now() + Duration::from_secs(10);
    while shows_the_token(&host, &mut host.connect()) != "HTTP/1.1 405" {
        assert!(Instant::now() < deadline, "nobody gets in again");
    }
}

#[test]
fn unauthenticated_connections_take_no_slots_of_clients() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let strangers: Vec<_> = (0..400)
        .map(|_| {
            let mut stranger = host.connect();
            let _ = stranger.write_all(b"POST /mcp HTTP/1.1\r\nHost: ");
            stranger
        })
        .collect();
    assert_eq!(client.post(&ping()).result(9), json!({}));
    let mut oldest = &strangers[0];
    let mut rest = Vec::new();
    let _ = oldest.read_to_end(&mut rest);
    assert_eq!(client.post(&ping()).result(9), json!({}));
}

#[test]
fn a_request_id_in_use_is_refused_and_each_request_gets_its_own_answer() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let run = text(&client.data("delegate_start", &task("soon")), "run");
    let first = client.post(&call(77, "delegate_wait", &json!({ "run": run })));
    let refused = client.post(&call(77, "validate_return", &json!({ "return": {} }))).message();
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.starts_with("id is in use"), "{refused}");
    assert_eq!(first.result(77)["structuredContent"]["state"], "completed");
    let again = client.post(&call(77, "delegate_wait", &json!({ "run": run })));
    assert_eq!(again.result(77)["structuredContent"]["state"], "completed", "it is free again");
}

/// A call whose client disconnected keeps waiting and holds files open, so their number is limited.
#[test]
fn aborted_calls_are_limited_and_the_server_continues() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("claude-code", VERSION);
    let run = text(&client.data("delegate_start", &task("slow")), "run");
    let wait = json!({ "run": run });
    for id in 100..356 {
        assert_eq!(client.post(&call(id, "delegate_wait", &wait)).status, 200);
    }
    for who in [&client, &host.session("claude-code", VERSION)] {
        let said = who.post(&call(356, "delegate_wait", &wait)).message();
        let text = said["error"]["message"].as_str().unwrap_or_default();
        assert!(text.starts_with("too many unanswered requests"), "{said}");
    }
    let other = host.session("other", VERSION);
    assert_eq!(other.post(&ping()).result(9), json!({}));
    assert_eq!(rig.run(["cancel", &run]).code, 0);
}

#[test]
fn sessions_cannot_be_guessed_and_end_when_they_are_deleted() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let clients: Vec<_> = (0..8).map(|n| host.session(&n.to_string(), VERSION)).collect();
    let ids: BTreeSet<_> = clients.iter().map(|client| client.id.clone()).collect();
    assert_eq!(ids.len(), 8);
    assert!(ids.iter().all(|id| id.len() >= 32), "{ids:?}");
    for unknown in ["", "1", "00000000-0000-4000-8000-000000000000", &"x".repeat(4000)] {
        let status = host.post(&[("Mcp-Session-Id", unknown)], &ping()).status;
        assert_eq!(status, if unknown.is_empty() { 400 } else { 404 }, "{unknown}");
    }
    let first = &clients[0];
    assert_eq!(first.post(&ping()).result(9), json!({}));
    assert_eq!(first.delete().status, 202);
    assert_eq!(first.post(&ping()).status, 404);
    assert_eq!(first.resume("0").status, 404);
    assert_eq!(clients[1].post(&ping()).result(9), json!({}), "the others go on");
}

#[test]
fn beyond_the_session_limit_the_longest_idle_session_ends() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let clients: Vec<_> = (0..64).map(|n| host.session(&n.to_string(), VERSION)).collect();
    assert_eq!(clients[0].post(&ping()).result(9), json!({}));
    let more = host.session("one more", VERSION);
    assert_eq!(more.post(&ping()).result(9), json!({}));
    assert_eq!(clients[0].post(&ping()).result(9), json!({}), "it has just spoken");
    assert_eq!(clients[1].post(&ping()).status, 404, "it was silent for longest");
}

#[test]
fn a_session_that_waits_for_an_answer_is_not_evicted() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let waits = host.session("waits", VERSION);
    let mut answer = waits.post(&call(5, "Delegate", &task("slow")));
    assert_eq!(answer.message()["method"], "notifications/progress");
    let silent = host.session("silent", VERSION);
    let others: Vec<_> = (0..63).map(|n| host.session(&n.to_string(), VERSION)).collect();
    assert_eq!(
        silent.post(&ping()).status,
        404,
        "it was silent for longest of those that wait not"
    );
    assert_eq!(rig.run(["cancel", &rig.only_run()]).code, 0);
    assert_eq!(answer.result(5)["structuredContent"]["state"], "cancelled");
    assert_eq!(others[0].post(&ping()).result(9), json!({}));
}

#[test]
fn a_closed_terminal_ends_the_server_like_other_signals() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let mut answer = host.session("tester", VERSION).post(&call(5, "Delegate", &task("slow")));
    assert_eq!(answer.message()["method"], "notifications/progress");
    assert_eq!(host.end_by(rustix::process::Signal::HUP).code(), Some(0));
    assert_eq!(answer.result(5)["structuredContent"]["done"], false);
    assert_eq!(rig.run(["cancel", &rig.only_run()]).code, 0);
}

/// Two clients use the same request ids; neither can affect the calls of the other.
#[test]
fn two_concurrent_clients_do_not_interfere() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let (one, two) = (host.session("one", VERSION), host.session("two", VERSION));
    let mut first = one.post(&call(5, "Delegate", &task("slow")));
    assert_eq!(first.message()["method"], "notifications/progress");
    let mut second = two.post(&call(5, "Delegate", &task("soon")));
    assert_eq!(second.message()["method"], "notifications/progress");
    let params = json!({ "requestId": 5, "reason": "escape" });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(one.post(&cancelled).status, 202);
    assert_eq!(second.result(5)["structuredContent"]["state"], "completed");
    let listed = two.data("delegate_status", &json!({}));
    let states: BTreeSet<String> =
        listed["runs"].as_array().unwrap().iter().map(|run| text(run, "run")).collect();
    assert_eq!(states.len(), 2, "they have one token: {listed}");
    let ended = states.iter().map(|run| two.data("delegate_wait", &json!({ "run": run })));
    let ended: BTreeSet<String> = ended.map(|data| text(&data, "state")).collect();
    assert_eq!(ended, BTreeSet::from(["cancelled".into(), "completed".into()]));
    rig.assert_unharmed();
}

#[test]
fn a_broken_stream_is_resumed_with_the_answer_sent_in_between() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let mut answer = client.post(&call(5, "Delegate", &task("soon")));
    assert_eq!(answer.message()["method"], "notifications/progress");
    let last = answer.last.clone();
    drop(answer);
    // While the run is live, and after it has ended.
    assert_eq!(client.resume(&last).result(5)["structuredContent"]["state"], "completed");
    assert_eq!(client.resume(&last).result(5)["structuredContent"]["state"], "completed");
    let again = client.data("Delegate", &task("soon"));
    assert_eq!((&again["repeated"], &again["done"]), (&json!(true), &json!(true)));
    for gone in ["7/none", "nonsense", "1/", "/", "99999/x"] {
        assert_eq!(client.resume(gone).next(), None, "{gone}");
    }
    assert_eq!(rig.runs().len(), 1);
}

#[test]
fn runs_belong_to_the_token_that_started_them() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let run = text(&client.data("delegate_start", &task("soon")), "run");
    drop(client);
    assert_eq!(host.end().code(), Some(0));

    let token = "another-token-that-is-long-enough-too";
    let other = Host::start_with(&rig, &[], Some(token));
    let shown = format!("Bearer {token}");
    let ask = |id: i64, tool: &str, arguments: &Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let headers = [
            ("Authorization", shown.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
        ];
        other.post(&headers, &request(id, "tools/call", &params)).result(id)
    };
    assert_eq!(ask(1, "delegate_status", &json!({}))["structuredContent"]["runs"], json!([]));
    let tools = ["delegate_status", "delegate_result", "delegate_wait", "delegate_cancel"];
    for tool in tools {
        for id in [run.clone(), run.replace("run_", "sess_"), run[..12].to_owned()] {
            let result = ask(2, tool, &json!({ "run": id }));
            assert_eq!(result["isError"], true, "{tool} {id}: {result}");
        }
    }
    let theirs = ask(3, "delegate_start", &task("soon"))["structuredContent"].clone();
    assert_eq!(theirs["repeated"], false, "an equal call of another owner is another call");
    drop(other);

    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let again = client.data("delegate_start", &task("soon"));
    assert_eq!((text(&again, "run"), &again["repeated"]), (run.clone(), &json!(true)));
    let listed = client.data("delegate_status", &json!({}));
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    let said = client.failure("delegate_status", &json!({ "run": theirs["run"] }));
    assert!(said.contains("in this tree"), "{said}");
    // Over standard input and output the runs of the work tree are visible.
    let mut local = Client::allowed(&rig, &[]);
    assert_eq!(local.data("delegate_wait", json!({ "run": run }))["state"], "completed");
}

#[test]
fn a_server_that_shuts_down_answers_waiting_calls_and_the_run_continues() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let mut answer = client.post(&call(5, "Delegate", &task("slow")));
    assert_eq!(answer.message()["method"], "notifications/progress");
    drop(client);
    let start = Instant::now();
    assert_eq!(host.end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(answer.result(5)["structuredContent"]["done"], false);
    let run = rig.only_run();
    assert_eq!(rig.run(["wait", &run, "--timeout", "0"]).code, 124, "it goes on");
    let _ = rig.run(["cancel", &run]);
}

/// The process of a run and its children must not be able to start other runs.
#[test]
fn the_process_of_a_run_does_not_inherit_the_token() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let run = text(&client.data("delegate_start", &task("slow")), "run");
    let lock = std::fs::read_to_string(rig.run_folder(&run).join("lock")).unwrap();
    let pid = serde_json::from_str::<Value>(&lock).unwrap()["pid"].as_u64().unwrap();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(TOKEN));
    assert_eq!(client.data("delegate_cancel", &json!({ "run": run }))["how"], "obeyed");
}

#[test]
fn an_invalid_message_is_answered_and_the_next_one_is_read() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let bodies: [&[u8]; 8] = [
        b"",
        b"nonsense",
        b"\xff\xfe\xfd",
        &deep,
        b"[]",
        br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        br#"{"jsonrpc":"1.0","id":91,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#,
    ];
    for body in bodies {
        let answer = host.send("POST", &[("Mcp-Session-Id", &client.id)], body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.head);
        let said: Value = serde_json::from_str(&answer.text()).unwrap();
        let is_json = serde_json::from_slice::<Value>(body).is_ok();
        let code = if is_json { -32600 } else { -32700 };
        assert_eq!((&said["jsonrpc"], &said["error"]["code"]), (&json!("2.0"), &json!(code)));
        assert_eq!(client.post(&ping()).result(9), json!({}), "after {shown}");
    }
    let twice =
        br#"{"jsonrpc":"2.0","id":92,"method":"tools/call","params":{"name":"a","name":"b"}}"#;
    for (body, code, id) in
        [(&b"{\"jsonrpc\":"[..], -32700, Value::Null), (&twice[..], -32602, json!(92))]
    {
        let mut answer = host.send("POST", &[("Mcp-Session-Id", &client.id)], body);
        assert_eq!(answer.status, 400);
        let said = answer.message();
        assert_eq!((&said["error"]["code"], &said["id"]), (&json!(code), &id), "{said}");
    }
    for (header, value, status) in [
        ("Accept", "text/html", 406),
        ("Content-Type", "text/plain", 415),
        ("MCP-Protocol-Version", "1999-01-01", 400),
    ] {
        let headers = [("Mcp-Session-Id", client.id.as_str()), (header, value)];
        assert_eq!(host.post(&headers, &ping()).status, status, "{header}");
    }
    for method in ["PUT", "PATCH", "HEAD"] {
        assert_eq!(host.send(method, &[], b"").status, 405, "{method}");
    }
    assert_eq!(client.post(&ping()).result(9), json!({}));
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

/// Each waiting call holds a connection; the memory of the server must not grow by more than that.
#[test]
fn a_hundred_clients_wait_at_once_and_all_are_answered() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", VERSION);
    let run = text(&client.data("delegate_start", &task("soon")), "run");
    let before = host.peak_kib();
    let waiting: Vec<_> = (10..110)
        .map(|id| (id, client.post(&call(id, "delegate_wait", &json!({ "run": run })))))
        .collect();
    for (id, answer) in waiting {
        assert_eq!(answer.result(id)["structuredContent"]["state"], "completed", "{id}");
    }
    let grown = host.peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB more for 100 connections");
}
