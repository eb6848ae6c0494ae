//! The scripted ACP agent as a program, driven over pipes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client with one agent process.
struct Client {
    agent: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
    /// The `update` of every `session/update`.
    updates: Vec<Value>,
    /// The kind of option that it chooses.
    permission: &'static str,
    /// Lines that are not JSON-RPC messages it knows.
    others: Vec<String>,
}

/// The directories and the script of an agent, which outlive its process.
struct Setting {
    directory: TempDir,
    base_url: String,
}

impl Setting {
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("script.toml"), script).unwrap();
        Self { directory, base_url: "http://127.0.0.1:9".into() }
    }

    fn work(&self) -> std::path::PathBuf {
        self.directory.path().join("work")
    }

    fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.path().join("home/acp-agent.jsonl"));
        text.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn violations(&self) -> Vec<String> {
        let of = |line: &Value| line["violation"].as_str().map(str::to_owned);
        self.log().iter().filter_map(of).collect()
    }

    fn start(&self) -> Client {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_acp-agent"))
            .arg(self.directory.path().join("script.toml"))
            .env("HOME", self.directory.path().join("home"))
            .env("ACP_AGENT_BASE_URL", &self.base_url)
            .env("ACP_AGENT_MODEL", "some-model")
            .env_remove("ACP_AGENT_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(agent.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let input = agent.stdin.take();
        Client {
            agent,
            input,
            lines,
            next_id: 0,
            updates: Vec::new(),
            permission: "allow_once",
            others: Vec::new(),
        }
    }

    /// Starts an agent and opens a session.
    fn open(&self) -> (Client, String) {
        let mut client = self.start();
        client.initialize();
        let session = client.ask("session/new", &json!({"cwd": self.work(), "mcpServers": []}));
        let id = session["result"]["sessionId"].as_str().unwrap().to_owned();
        (client, id)
    }
}

impl Client {
    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and returns the message that answers it.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(id)
    }

    fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let message = self.next(PATIENCE).unwrap();
            if message.get("method").is_none() && message["id"] == id {
                return message;
            }
        }
    }

    /// Takes the next message; permission is given on the way.
    fn next(&mut self, patience: Duration) -> Option<Value> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                self.others.push(line);
                continue;
            };
            match message["method"].as_str() {
                Some("session/update") => self.updates.push(message["params"]["update"].clone()),
                Some("session/request_permission") => {
                    let options = message["params"]["options"].as_array().unwrap();
                    let option = options.iter().find(|it| it["kind"] == self.permission).unwrap();
                    let outcome = json!({"outcome": "selected", "optionId": option["optionId"]});
                    let id = &message["id"];
                    self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}));
                }
                Some(_) if message.get("id").is_some() => {
                    let error = json!({"code": -32601, "message": "not offered"});
                    let id = &message["id"];
                    self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
                Some(_) => self.others.push(line),
                None => return Some(message),
            }
        }
    }

    fn initialize(&mut self) -> Value {
        let capabilities =
            json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        let info = json!({"name": "test", "version": "1"});
        self.ask(
            "initialize",
            &json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}),
        )
    }

    fn prompt(&mut self, session: &str, text: &str) -> Value {
        self.ask("session/prompt", &prompt(session, text))
    }

    fn cancel(&mut self, session: &str) {
        let params = json!({"sessionId": session});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    }

    fn said(&self) -> String {
        let chunk = |update: &&Value| update["sessionUpdate"] == "agent_message_chunk";
        let chunks = self.updates.iter().filter(chunk);
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> =
            self.updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
        kinds.dedup();
        kinds
    }

    /// Closes the agent's input and waits for its end.
    fn end(mut self) -> Option<i32> {
        self.input.take();
        self.agent.wait().unwrap().code()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

fn steps(steps: &str) -> String {
    format!("[[prompt]]\nsteps = [{steps}]\n")
}

/// A provider that answers each request with one of these, in turn; returns its address and the requests.
fn provider(answers: &'static [&'static str]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let sender = sender.clone();
            thread::spawn(move || answer(stream, answers[number % answers.len()], &sender));
        }
    });
    (address, requests)
}

fn answer(mut stream: TcpStream, answer: &str, requests: &Sender<String>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| body.len() >= length.parse().unwrap()) {
                // Before the answer, after which the next request comes.
                let _ = requests.send(text);
                return stream.write_all(answer.as_bytes()).unwrap();
            }
        }
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the request ended early: {text}");
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn wait_for(path: &Path) {
    let until = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < until, "{} does not come", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_turn_shows_every_kind_of_update() {
    let setting = Setting::new(&format!(
        "modes = ['ask', 'free']\n{}",
        steps(
            "{ think = 'Let me look.' }, { plan = ['read', 'write'] }, { offer_commands = ['review'] },
             { change_mode = 'free' }, { write = { path = 'new/a.txt', text = 'hello' } },
             { run = 'cat new/a.txt; exit 3' }, { report_usage = { input = 10, output = 2, cost_usd = 0.5 } },
             { say = 'You said {prompt} in {cwd}.' }"
        )
    ));
    let (mut client, session) = setting.open();
    let mode = client.ask("session/set_mode", &json!({"sessionId": session, "modeId": "ask"}));
    assert_eq!(mode["result"], json!({}));
    let answer = client.prompt(&session, "hi");
    let usage = json!({"inputTokens": 10, "outputTokens": 2, "totalTokens": 12});
    assert_eq!(answer["result"], json!({"stopReason": "end_turn", "usage": usage}));
    assert_eq!(
        client.kinds(),
        [
            "agent_thought_chunk",
            "plan",
            "available_commands_update",
            "current_mode_update",
            "tool_call",
            "tool_call_update",
            "tool_call",
            "tool_call_update",
            "usage_update",
            "agent_message_chunk",
        ]
    );
    assert_eq!(client.said(), format!("You said hi in {}.", setting.work().display()));
    let failed = client.updates.iter().find(|update| update["status"] == "failed").unwrap();
    assert_eq!(failed["content"][0]["content"]["text"], "hello");
    assert_eq!(std::fs::read_to_string(setting.work().join("new/a.txt")).unwrap(), "hello");
    assert_eq!(client.end(), Some(0));
    assert_eq!(setting.violations(), [""; 0]);
}

#[test]
fn the_agent_is_strict_about_fields_and_order() {
    let setting = Setting::new("auth_required = true\nmcp_http = false\nload_session = false\n");
    let work = setting.work();
    let mut client = setting.start();
    let new = json!({"cwd": work, "mcpServers": []});
    let check = |client: &mut Client, method: &str, params: Value, code: i64, why: &str| {
        let answer = client.ask(method, &params);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
    };
    check(&mut client, "session/new", new.clone(), -32600, "not initialized");
    check(&mut client, "initialize", json!({"protocolVersion": "1"}), -32602, "wrong type");
    check(&mut client, "initialize", json!({"protocolVersion": 1, "x": 1}), -32602, "`x`");
    let offered = client.initialize();
    assert_eq!(offered["result"]["protocolVersion"], 1);
    assert_eq!(offered["result"]["authMethods"][0]["id"], "key");
    check(&mut client, "initialize", json!({"protocolVersion": 1}), -32600, "already");
    check(&mut client, "session/new", new.clone(), -32000, "authentication required");
    check(&mut client, "authenticate", json!({"methodId": "other"}), -32602, "no such method");
    assert_eq!(client.ask("authenticate", &json!({"methodId": "key"}))["result"], json!({}));
    for (params, why) in [
        (json!({"cwd": work}), "`mcpServers` is missing"),
        (json!({"cwd": "relative", "mcpServers": []}), "absolute"),
        (json!({"cwd": work, "mcpServers": [{"name": "a"}]}), "`command` is missing"),
        (
            json!({"cwd": work, "mcpServers": [{"type": "http", "name": "a", "url": "u", "headers": []}]}),
            "not offered",
        ),
        (json!({"cwd": work, "mcpServers": [], "working_directory": work}), "unknown field"),
    ] {
        check(&mut client, "session/new", params, -32602, why);
    }
    let session = client.ask("session/new", &new)["result"]["sessionId"].clone();
    for (params, why) in [
        (json!({"sessionId": "other", "prompt": [{"type": "text", "text": "a"}]}), "no session"),
        (json!({"sessionId": session, "prompt": []}), "empty"),
        (json!({"sessionId": session, "prompt": "a"}), "wrong type"),
        (json!({"sessionId": session, "prompt": [{"type": "image"}]}), "not offered"),
    ] {
        check(&mut client, "session/prompt", params, -32602, why);
    }
    let load = json!({"sessionId": session, "cwd": work, "mcpServers": []});
    check(&mut client, "session/load", load, -32601, "cannot be loaded");
    check(
        &mut client,
        "session/set_mode",
        json!({"sessionId": session, "modeId": "m"}),
        -32602,
        "no mode",
    );
    check(&mut client, "session/teleport", json!({}), -32601, "method not found");
    client.send(&json!({"id": 77, "method": "session/new"}));
    assert_eq!(client.answer_to(77)["error"]["code"], -32600);
    client.input.as_mut().unwrap().write_all(b"hello\n").unwrap();
    assert_eq!(client.next(PATIENCE).unwrap()["error"]["code"], -32700);
    client.end();
    assert_eq!(setting.violations().len(), 20);
}

#[test]
fn a_second_prompt_during_a_turn_is_refused() {
    let setting = Setting::new(&steps("'sleep_until_cancelled'"));
    let (mut client, session) = setting.open();
    let first = client.begin("session/prompt", &prompt(&session, "a"));
    let second = client.prompt(&session, "b");
    assert_eq!(second["error"]["code"], -32600);
    client.cancel(&session);
    assert_eq!(client.answer_to(first)["result"]["stopReason"], "cancelled");
}

#[test]
fn cancelling_ends_a_command_at_once_unless_the_script_ignores_it() {
    let setting = Setting::new(&format!(
        "{}{}",
        steps("{ run = 'touch running; exec tail -f /dev/null' }, { say = 'never' }"),
        steps("'ignore_cancel', { wait_for = 'go' }, { say = 'ignored' }")
    ));
    let (mut client, session) = setting.open();
    let turn = client.begin("session/prompt", &prompt(&session, "a"));
    wait_for(&setting.work().join("running"));
    client.cancel(&session);
    assert_eq!(client.answer_to(turn)["result"]["stopReason"], "cancelled");
    assert_eq!(client.said(), "");
    let turn = client.begin("session/prompt", &prompt(&session, "b"));
    client.cancel(&session);
    std::fs::write(setting.work().join("go"), "").unwrap();
    assert_eq!(client.answer_to(turn)["result"]["stopReason"], "end_turn");
    assert_eq!(client.said(), "ignored");
}

#[test]
fn permission_decides_whether_the_command_runs() {
    let setting = Setting::new(&steps("{ ask_permission = { run = 'echo x >> out', times = 2 } }"));
    let (mut client, session) = setting.open();
    client.permission = "reject_once";
    client.prompt(&session, "a");
    assert!(!setting.work().join("out").exists());
    client.permission = "allow_once";
    client.prompt(&session, "b");
    assert_eq!(std::fs::read_to_string(setting.work().join("out")).unwrap(), "x\nx\n");
    client.end();
    assert_eq!(setting.violations(), [""; 0]);
}

#[test]
fn a_session_is_loaded_in_a_new_process_after_a_kill() {
    let setting = Setting::new(&format!(
        "{}{}",
        steps("{ write = { path = 'a', text = '1' } }, { say = 'first' }, 'kill_self'"),
        steps("{ say = 'second: {prompt}' }")
    ));
    let (mut client, session) = setting.open();
    client.begin("session/prompt", &prompt(&session, "work"));
    assert_eq!(client.agent.wait().unwrap().code(), None);
    let mut client = setting.start();
    client.initialize();
    let load = json!({"sessionId": session, "cwd": setting.work(), "mcpServers": []});
    assert_eq!(client.ask("session/load", &load)["result"], json!({}));
    assert_eq!(
        client.kinds(),
        ["user_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk"]
    );
    assert_eq!(client.prompt(&session, "go on")["result"]["stopReason"], "end_turn");
    assert_eq!(client.said(), "firstsecond: go on");
    let unknown = json!({"sessionId": "../x", "cwd": setting.work(), "mcpServers": []});
    assert_eq!(client.ask("session/load", &unknown)["error"]["code"], -32602);
}

#[test]
fn model_calls_are_real_requests_whose_status_and_usage_are_remembered() {
    let (url, requests) = provider(&[
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2f\r\ndata: {\"usage\":{\"prompt_tokens\":5,\"x\":null}}\n\n \r\n0\r\n\r\n",
        "HTTP/1.1 402 Payment Required\r\ncontent-length: 16\r\n\r\nbudget exhausted",
    ]);
    let mut setting = Setting::new(&steps(
        "{ call_model = { wire = 'chat', max_tokens = 9, headers = [['x-forged', 'yes']] } },
         { call_model = { wire = 'gemini', model = 'g', stream = false, max_tokens = 7, fields = { tools = [] } } },
         { call_model = { wire = 'messages', max_tokens = 8 } },
         { call_model_until_refused = { at_most = 5, call = { wire = 'responses', max_tokens = 6 } } },
         { call_models_at_once = { times = 4, call = { wire = 'chat' } } },
         { say = '{calls}' }",
    ));
    setting.base_url = format!("{url}/v1");
    let (mut client, session) = setting.open();
    let answer = client.prompt(&session, "a");
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let calls: Vec<Value> = serde_json::from_str(&client.said()).unwrap();
    let statuses: Vec<u64> = calls.iter().map(|call| call["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses[..4], [200, 402, 200, 402]);
    assert_eq!(calls.len(), 8);
    assert_eq!(calls[0]["usage"], json!({"prompt_tokens": 5}));
    assert_eq!(calls[1]["body"], "budget exhausted");
    assert!(calls.iter().all(|call| call["whole"] == true), "{calls:?}");
    let sent: Vec<String> = requests.try_iter().collect();
    for (request, path, field) in [
        (0, "POST /v1/chat/completions ", "\"max_tokens\":9"),
        (1, "POST /v1beta/models/g:generateContent ", "\"maxOutputTokens\":7"),
        (2, "POST /v1/messages ", "\"max_tokens\":8"),
        (3, "POST /v1/responses ", "\"max_output_tokens\":6"),
    ] {
        assert!(sent[request].starts_with(path), "{}", sent[request]);
        assert!(sent[request].contains(field), "{}", sent[request]);
    }
    assert!(sent[0].contains("x-forged: yes") && sent[0].contains("\"model\":\"some-model\""));
    assert!(sent[1].contains("\"tools\":[]"));
}

#[test]
fn a_call_after_the_end_comes_after_the_answer() {
    let (url, requests) = provider(&["HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"]);
    let mut setting = Setting::new(&steps("{ call_after_end = {} }, { say = 'bye' }"));
    setting.base_url = url;
    let (mut client, session) = setting.open();
    assert_eq!(client.prompt(&session, "a")["result"]["stopReason"], "end_turn");
    assert!(requests.recv_timeout(PATIENCE).unwrap().contains("/v1/chat/completions"));
    let until = Instant::now() + PATIENCE;
    let order = loop {
        let log = setting.log();
        let of = |kind: &str| log.iter().position(|line| line.get(kind).is_some());
        if let Some(call) = of("model_call_after_end") {
            break of("answered").unwrap() < call;
        }
        assert!(Instant::now() < until, "{log:?}");
        thread::sleep(Duration::from_millis(5));
    };
    assert!(order);
}

#[test]
fn hostile_output_is_followed_by_the_answer() {
    let setting = Setting::new(&format!(
        "start = 'garbage'\n{}{}",
        steps(
            "'garbage', 'bad_json_rpc', 'unknown_notification', 'second_session', { huge_line = 3000000 },
             { flood = 500 }, { ask_client = { method = 'fs/read_text_file', params = { path = '/etc/passwd' } } },
             'double_reply', { stop_reason = 'max_tokens' }, { say = 'never' }"
        ),
        steps("{ fail = { code = -32603, message = 'it broke' } }")
    ));
    let (mut client, session) = setting.open();
    assert!(client.others.contains(&"Welcome!".to_owned()));
    let turn = client.begin("session/prompt", &prompt(&session, "a"));
    assert_eq!(client.answer_to(turn)["result"]["stopReason"], "max_tokens");
    assert_eq!(client.answer_to(turn)["result"]["stopReason"], "max_tokens");
    let longest = client.updates.iter().filter_map(|update| update["content"]["text"].as_str());
    assert_eq!(longest.map(str::len).max(), Some(3_000_000));
    let chunks = client.updates.iter().filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(chunks.count(), 502);
    assert!(client.others.iter().any(|line| line.contains("_vendor/status_update")));
    let error = client.prompt(&session, "b");
    assert_eq!(error["error"], json!({"code": -32603, "message": "it broke"}));
}

#[test]
fn silence_lateness_and_exits_are_as_scripted() {
    let setting = Setting::new("start = 'silent'\n");
    let mut client = setting.start();
    client.begin("initialize", &json!({"protocolVersion": 1}));
    assert_eq!(client.next(Duration::from_millis(200)), None);
    assert_eq!(client.end(), Some(0));

    let setting = Setting::new(&format!(
        "protocol_version = 7\n{}{}{}",
        steps("{ late_reply = { ms = 300 } }, 'sleep_until_cancelled'"),
        steps("'silent'"),
        steps("{ exit = 9 }")
    ));
    let (mut client, session) = setting.open();
    let turn = client.begin("session/prompt", &prompt(&session, "a"));
    client.cancel(&session);
    let cancelled = Instant::now();
    assert_eq!(client.answer_to(turn)["result"]["stopReason"], "cancelled");
    assert!(cancelled.elapsed() >= Duration::from_millis(300));
    client.begin("session/prompt", &prompt(&session, "b"));
    client.cancel(&session);
    assert_eq!(client.next(Duration::from_millis(200)), None);
    drop(client);

    let setting = Setting::new("start = { exit = 4 }\n");
    assert_eq!(setting.start().end(), Some(4));
    let setting = Setting::new("protocol_version = 7\n");
    assert_eq!(setting.start().initialize()["result"]["protocolVersion"], 7);
    let setting = Setting::new(&steps("{ exit = 9 }"));
    let (mut client, session) = setting.open();
    client.begin("session/prompt", &prompt(&session, "a"));
    assert_eq!(client.agent.wait().unwrap().code(), Some(9));
}

#[test]
fn a_daemon_has_lost_its_parent_and_outlives_the_agent() {
    let setting = Setting::new("");
    let pid = setting.directory.path().join("pid");
    let command =
        format!("echo $$ > {0}.part; mv {0}.part {0}; exec tail -f /dev/null", pid.display());
    let script = setting.directory.path().join("script.toml");
    std::fs::write(script, steps(&format!("{{ fork_daemon = '{command}' }}"))).unwrap();
    let (mut client, session) = setting.open();
    client.prompt(&session, "a");
    wait_for(&pid);
    let daemon = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let agent = i32::try_from(client.agent.id()).unwrap();
    assert_eq!(client.end(), Some(0));
    let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
    let fields: Vec<i32> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(1)
        .take(3)
        .map(|field| field.parse().unwrap())
        .collect();
    assert!(!fields.contains(&agent), "parent, group or session is the agent: {stat}");
    let daemon = rustix::process::Pid::from_raw(daemon).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_script_with_an_unknown_step_is_refused() {
    let setting = Setting::new(&steps("'dance'"));
    assert_eq!(setting.start().end(), Some(2));
    let output =
        Command::new(env!("CARGO_BIN_EXE_acp-agent")).env_remove("ACP_AGENT_SCRIPT").output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}
