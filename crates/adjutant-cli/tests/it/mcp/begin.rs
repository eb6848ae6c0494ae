//! The beginning of a run over MCP: servers that are killed in it, long commands, clients that do not wait
//! for it, and which calls are equal.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::kills::book::Book;
use crate::kills::tell;
use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::mcp_http::{Host, TOKEN, request};
use crate::support::rig::{BINARY, COMMANDS, Rig};
use crate::support::running::ProcessGroup;

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

/// The runs of which anything is recorded.
fn begun(rig: &Rig) -> Vec<String> {
    let began = |run: &String| Book::read(&rig.run_folder(run).join("journal.jsonl")).began();
    rig.runs().into_iter().filter(began).collect()
}

pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// The process of a run.
pub(crate) fn carrier(rig: &Rig, run: &str) -> u32 {
    let lock = fs::read_to_string(rig.run_folder(run).join("lock")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    lock["pid"].as_u64().unwrap().try_into().unwrap()
}

fn has_strace() -> bool {
    let tried = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let has = tried.is_ok_and(|status| status.success());
    if !has {
        tell("NOT CHECKED: there is no strace here, so no server was killed at a system call");
    }
    has
}

#[test]
fn a_client_that_disconnects_after_its_call_finds_the_started_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    client.begin("delegate_start", task("quick"));
    let (said, code) = client.leave();
    assert_eq!(code, Some(0), "{said:?}");
    let [run] = begun(&rig).try_into().unwrap_or_else(|runs| panic!("{runs:?}, after {said:?}"));
    let out = rig.run(["wait", &run]);
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn a_call_with_too_many_tasks_is_refused_and_starts_nothing() {
    let rig = rig();
    let task = |nth| json!({ "label": format!("task {nth}"), "prompt": "Look around" });
    let tasks: Vec<Value> = (1..=9).map(task).collect();
    let said = Client::allowed(&rig, &[]).failure("Delegate", json!({ "tasks": tasks }));
    assert!(said.contains("MAX_DELEGATIONS_EXCEEDED") && said.contains("Maximum: 8"), "{said}");
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

/// The steps of beginning a run: the locks of the registry, what is written there and synced, the socket, the process,
/// and every time the server has to wait for something.
const STEPS: [&str; 6] = [
    "flock",
    "write",
    "/^(f(data)?sync|rename)",
    "socketpair",
    "/^(clone3|vfork)$",
    "/^epoll_p?wait$",
];

/// A server that is killed when one of its threads makes a system call for the nth time. The processes it starts
/// are left alone.
fn doomed(rig: &Rig, call: &str, nth: u64, args: &[&str]) -> ProcessGroup {
    let mut command = Command::new("strace");
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    command.args(["-f", "-b", "execve", "-qq", "-o", "/dev/null"]);
    command.args(["-e", &format!("trace={call}"), "-e", &inject]);
    command.args([BINARY, "mcp", "--model", rig.model(), "--approve-below", "1000"]).args(args);
    command.env_clear().envs(rig.environment()).env("ADJUTANT_MCP_TOKEN", TOKEN);
    command.current_dir(rig.work()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    ProcessGroup::start(command)
}

/// Says whether a server over standard input was killed before it answered the call.
fn dies_over_stdio(rig: &Rig, call: &str, nth: u64) -> bool {
    answer_over_stdio(doomed(rig, call, nth, &[])).is_none()
}

/// Calls a server that may be killed meanwhile; returns its answer.
pub(crate) fn answer_over_stdio(mut group: ProcessGroup) -> Option<Value> {
    let server = &mut group.0;
    let about = json!({ "name": "tester", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
    let delegate = json!({ "name": "Delegate", "arguments": task("quick") });
    let mut stdin = server.stdin.take().unwrap();
    for message in [
        request(1, "initialize", &hello),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        request(2, "tools/call", &delegate),
    ] {
        // It may be dead by now.
        let _ = stdin.write_all(format!("{message}\n").as_bytes());
    }
    let answers = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let answer = answers
        .map(|line| serde_json::from_str::<Value>(&line).unwrap())
        .find(|message| message["id"] == 2);
    drop(stdin);
    server.wait().unwrap();
    answer
}

#[test]
fn a_server_killed_at_any_step_of_a_call_leaves_one_run_that_an_equal_call_finds() {
    if !has_strace() {
        return;
    }
    for call in STEPS {
        let mut kills = 0;
        for nth in 1.. {
            let rig = rig();
            if !dies_over_stdio(&rig, call, nth) {
                break;
            }
            kills += 1;
            let mut client = Client::allowed(&rig, &[]);
            let data = client.data("Delegate", task("quick"));
            assert_eq!(data["state"], "completed", "{call} {nth}: {data}");
            assert_eq!(begun(&rig), [text(&data, "run")], "{call} {nth}: {data}");
            assert!(nth < 200, "{call}: never answered");
        }
        tell(&format!("{call}: {kills} kills"));
        assert!(kills > 0, "{call}: nothing was hit");
    }
}

/// Sends a message over HTTP; returns whatever comes back before the server dies or is done.
fn post(address: &str, session: &str, message: &Value) -> String {
    let mut said = String::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return said };
    let body = message.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n{session}\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.read_to_string(&mut said);
    said
}

/// Says whether a server over HTTP was killed before it answered the call.
fn dies_over_http(rig: &Rig, call: &str, nth: u64) -> bool {
    // A server that is not killed ends with its process group.
    let mut group = doomed(rig, call, nth, &["--http", "127.0.0.1:0"]);
    let server = &mut group.0;
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").and_then(|it| it.strip_suffix("/mcp"));
    let Some(address) = address else { return !server.wait().unwrap().success() };
    let about = json!({ "name": "tester", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
    let said = post(address, "", &request(1, "initialize", &hello));
    let id = said.lines().find_map(|line| line.split_once("ession-id: ")).map(|it| it.1.trim());
    let session =
        format!("Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n", id.unwrap_or("?"));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    post(address, &session, &initialized);
    let delegate = json!({ "name": "Delegate", "arguments": task("quick") });
    let answer = post(address, &session, &request(2, "tools/call", &delegate));
    let is_answered = answer.contains("quick answer");
    if !is_answered {
        server.wait().unwrap();
    }
    !is_answered
}

#[test]
fn over_http_a_run_keeps_its_owner_after_a_kill_at_any_step() {
    if !has_strace() {
        return;
    }
    for call in STEPS {
        let mut kills = 0;
        for nth in 1.. {
            let rig = rig();
            if !dies_over_http(&rig, call, nth) {
                break;
            }
            kills += 1;
            let host = Host::start(&rig, &[]);
            let session = host.session("tester", "2025-11-25");
            let data = session.data("Delegate", &task("quick"));
            let run = text(&data, "run");
            assert_eq!((&data["state"], begun(&rig)), (&json!("completed"), vec![run.clone()]));
            let known = session.data("delegate_status", &json!({}));
            assert_eq!(known["runs"][0]["run"], run, "{call} {nth}: {known}");
            assert!(nth < 400, "{call}: never answered");
        }
        tell(&format!("over HTTP, {call}: {kills} kills"));
        assert!(kills > 0, "{call}: nothing was hit");
    }
}

/// The first event carries the goal, and a goal may be longer than a pipe.
#[test]
fn a_command_of_a_hundred_thousand_characters_starts_one_run_and_is_answered() {
    let rig = Rig::with_script(&format!("price = {{ input = 1.0, output = 1.0 }}\n{COMMANDS}"));
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    let mut client = Client::allowed(&rig, &[]);
    let command = format!("/research 1 {}", "word ".repeat(20_000));
    let data = client.data("delegate_command", json!({ "command": command }));
    assert_eq!((&data["done"], &data["state"]), (&json!(true), &json!("completed")), "{data}");
    assert_eq!(begun(&rig), [text(&data, "run")]);
    rig.assert_unharmed();
}

/// Keeps every server from writing the registry until it is dropped.
fn hold_registry(rig: &Rig) -> File {
    let file = File::open(rig.state().join("registry.lock")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

#[test]
fn a_call_that_waits_for_a_run_to_start_gets_an_answer_in_time() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--detach-after", "7"]);
    let run = text(&client.data("Delegate", task("quick")), "run");
    let held = hold_registry(&rig);
    let began = Instant::now();
    let call = client.begin("Delegate", task("quick"));
    assert_eq!(text(&client.progress(call), "message"), "Starting the run.");
    let result = client.answer(call)["result"].clone();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(&result["content"][0], "text").contains("repeat the same call"), "{result}");
    drop(held);
    let again = client.data("Delegate", task("quick"));
    assert_eq!((text(&again, "run"), &again["repeated"]), (run, &json!(true)));
}

#[test]
fn a_call_cancelled_while_its_run_starts_cancels_the_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let first = text(&client.data("delegate_start", task("slow")), "run");
    client.data("delegate_cancel", json!({ "run": first }));
    let held = hold_registry(&rig);
    let call = client.begin("Delegate", task("slow"));
    let params = json!({ "requestId": call, "reason": "the person pressed escape" });
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    // Both were read before this is answered.
    client.ping();
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(20);
    let second = loop {
        let known = client.data("delegate_status", json!({}));
        let runs = known["runs"].as_array().unwrap().clone();
        let second = runs.iter().find(|it| it["run"] != json!(first));
        if let Some(second) = second.filter(|it| it["state"] != "running") {
            break second.clone();
        }
        assert!(Instant::now() < deadline, "{known}");
    };
    assert_eq!(second["state"], "cancelled", "{second}");
    assert_eq!(begun(&rig).len(), 2);
}

#[test]
fn an_equal_call_after_a_kill_starts_no_second_run() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let call = client.begin("Delegate", task("slow"));
    client.progress(call);
    let run = rig.only_run();
    kill(carrier(&rig, &run));
    let ended = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(ended["state"], "interrupted", "{ended}");
    let again = client.call("Delegate", task("slow"));
    let data = &again["structuredContent"];
    assert_eq!((text(data, "run"), &data["repeated"]), (run.clone(), &json!(true)), "{again}");
    assert!(again.to_string().contains(&format!("resume {run}")), "{again}");
    assert_eq!(begun(&rig), [run]);
    assert_eq!(client.data("Delegate", task("quick"))["state"], "completed");
    assert_eq!(begun(&rig).len(), 2);
}

#[test]
fn a_call_with_other_limits_starts_another_run() {
    let rig = rig();
    let on = |args: &[&str]| Client::allowed(&rig, args).data("Delegate", task("quick"));
    let first = on(&["--budget-usd", "1"]);
    for (args, is_equal) in [
        (&["--budget-usd", "1"][..], true),
        (&["--budget-usd", "2"], false),
        (&["--budget-usd", "1", "--preset", "scout"], false),
        (&["--budget-usd", "1", "--on-disconnect", "cancel"], true),
    ] {
        let data = on(args);
        assert_eq!(data["run"] == first["run"], is_equal, "{args:?}: {data}");
        assert_eq!(data["repeated"], is_equal, "{args:?}: {data}");
    }
}

#[test]
fn a_damaged_registry_refuses_new_runs_naming_the_line_and_other_runs_continue() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &[]);
    let ended = text(&client.data("Delegate", task("quick")), "run");
    let live = text(&client.data("delegate_start", task("slow")), "run");
    let file = rig.state().join("registry.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let (first, second) = whole.split_once('\n').unwrap();
    fs::write(&file, format!("{first}\n{}", second.replacen("run_", "gun_", 1))).unwrap();
    let refused = client.call("Delegate", task("soon"));
    let said = text(&refused["content"][0], "text");
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(said.contains("registry.jsonl") && said.contains("line 2"), "{said}");
    assert_eq!(begun(&rig).len(), 2);
    let known = client.data("delegate_status", json!({}));
    assert_eq!(known["runs"].as_array().map(Vec::len), Some(2), "{known}");
    for tool in ["delegate_result", "delegate_wait"] {
        assert_eq!(client.data(tool, json!({ "run": ended }))["state"], "completed", "{tool}");
    }
    client.data("delegate_cancel", json!({ "run": live }));
    assert_eq!(client.data("delegate_wait", json!({ "run": live }))["state"], "cancelled");
}
