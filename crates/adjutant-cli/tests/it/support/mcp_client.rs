//! A client of the MCP server: the real binary over real pipes.
//!
//! Every test checks that each line from the server is a JSON-RPC message.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::support::rig::{BINARY, Rig};
use crate::support::running::GUARD;

/// Answers at once, after a second, or never.
pub(crate) const SCRIPT: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
label = "slow"
text = "First I take a note."
usage = { input = 1000, output = 10 }
[[turn.call]]
tool = "Note"
args = { content = "half of it is done" }

[[turn]]
label = "slow"
delay_ms = 300000
text = "too late"

[[turn]]
label = "late"
delay_ms = 27000
text = "an answer after half a minute"

[[turn]]
label = "soon"
delay_ms = 1000
text = "an answer after a second"

[[turn]]
text = "quick answer"
usage = { input = 1000, output = 10 }
"#;

/// A call with one task of that label.
pub(crate) fn task(label: &str) -> Value {
    json!({ "tasks": [{ "label": label, "prompt": "Look around" }] })
}

/// Starts a server without a handshake.
pub(crate) fn spawn(rig: &Rig, model: &str, args: &[&str], env: &[(&str, &str)]) -> Child {
    spawn_with(Command::new(BINARY), rig, model, args, env)
}

/// Returns a command that runs the binary with the rig's home directory as that of the account, in a mount namespace in
/// which /etc/passwd says so.
fn in_account(rig: &Rig) -> Command {
    let passwd = rig.path().join("passwd");
    fs::write(&passwd, format!("root:x:0:0:root:{}:/bin/sh\n", rig.home().display())).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", "mount --bind \"$0\" /etc/passwd && exec \"$@\""]);
    command.arg(passwd).arg(BINARY);
    command
}

fn spawn_with(
    mut command: Command,
    rig: &Rig,
    model: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Child {
    command.args(["mcp", "--model", model]).args(args).env_clear();
    // These clients answer immediately in place of a user.
    command.env("ADJUTANT_ANSWER_MIN_MS", "none");
    command.envs(rig.environment()).envs(env.iter().copied()).current_dir(rig.work());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).spawn().unwrap()
}

/// The most memory a process has held so far.
pub(crate) fn peak_kib(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A client and the server it has started.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    id: i64,
    /// What came while something else was waited for.
    notes: Vec<Value>,
}

impl Client {
    /// Starts a server that may start whatever the tests do in a day, and shakes hands with it.
    pub(crate) fn allowed(rig: &Rig, args: &[&str]) -> Self {
        let mut client = Self::start(rig, &[&["--approve-below", "10000"], args].concat(), &[]);
        client.initialize("tester", "2025-11-25");
        client
    }

    /// Starts a server.
    pub(crate) fn start(rig: &Rig, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_on(rig, rig.model(), args, env)
    }

    /// Starts a server whose account has the rig's home directory. `env` needs a PATH.
    pub(crate) fn start_in_account(rig: &Rig, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_in_account_on(rig, rig.model(), args, env)
    }

    /// Like [`Client::start_in_account`], with the model of its runs.
    pub(crate) fn start_in_account_on(
        rig: &Rig,
        model: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        Self::of(spawn_with(in_account(rig), rig, model, args, env))
    }

    /// Starts a server whose runs use this model.
    pub(crate) fn start_on(rig: &Rig, model: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::of(spawn(rig, model, args, env))
    }

    fn of(mut child: Child) -> Self {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, stdin, lines, id: 0, notes: Vec::new() }
    }

    /// Shakes hands; returns what the server says of itself.
    pub(crate) fn initialize(&mut self, name: &str, version: &str) -> Value {
        self.initialize_with(name, version, json!({}))
    }

    /// Shakes hands as a client that can do these things.
    pub(crate) fn initialize_with(&mut self, name: &str, version: &str, can: Value) -> Value {
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": version, "capabilities": can,
                "clientInfo": { "name": name, "version": "1" },
            }),
        );
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer["result"].clone()
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.flush()).unwrap();
    }

    /// Writes a message.
    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Asks, without waiting for the answer; returns the id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.id += 1;
        let id = self.id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Calls a tool and asks for progress, without waiting for the answer.
    pub(crate) fn begin(&mut self, tool: &str, arguments: Value) -> i64 {
        let token = format!("token-{}", self.id + 1);
        let meta = json!({ "progressToken": token });
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// Asks and waits for the answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        if let Some(place) = self.notes.iter().position(|message| message["id"] == id) {
            return self.notes.remove(place);
        }
        loop {
            let message = self.message().unwrap_or_else(|| panic!("no answer to {id}"));
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
        }
    }

    /// Calls a tool; returns its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// Calls a tool that must succeed; returns its data.
    pub(crate) fn data(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must fail; returns the error text.
    pub(crate) fn failure(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Waits for the next message; `None` at the end of the output.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let line = match self.lines.recv_timeout(GUARD) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("the server hangs after {:?}", self.notes),
        };
        let text = String::from_utf8(line).unwrap();
        let message: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        Some(message)
    }

    /// Waits for a progress message of a call; returns its parameters.
    pub(crate) fn progress(&mut self, id: i64) -> Value {
        loop {
            let message = self.message().unwrap();
            let params = message["params"].clone();
            if params["progressToken"] == format!("token-{id}") {
                return params;
            }
            self.notes.push(message);
        }
    }

    /// Waits for a request of the server to its client.
    pub(crate) fn asked(&mut self, method: &str) -> Value {
        if let Some(place) = self.notes.iter().position(|message| message["method"] == method) {
            return self.notes.remove(place);
        }
        loop {
            let message = self.message().unwrap_or_else(|| panic!("no {method}"));
            if message["method"] == method {
                return message;
            }
            self.notes.push(message);
        }
    }

    /// Answers a request of the server.
    pub(crate) fn reply(&mut self, question: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    }

    /// Pings the server, which must answer.
    pub(crate) fn ping(&mut self) {
        let answer = self.request("ping", json!({}));
        assert_eq!(answer["result"], json!({}), "{answer}");
    }

    /// The most memory the server has held so far.
    pub(crate) fn peak_kib(&self) -> u64 {
        peak_kib(&self.child)
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many bytes the server has read so far, from all sources.
    pub(crate) fn read_bytes(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap();
        let line = io.lines().find(|line| line.starts_with("rchar:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Closes the input; returns the remaining messages of the server and its exit code.
    pub(crate) fn leave(mut self) -> (Vec<Value>, Option<i32>) {
        self.stdin = None;
        let rest = std::iter::from_fn(|| self.message()).collect();
        (rest, self.child.wait().unwrap().code())
    }

    /// Kills the server and its process group.
    pub(crate) fn kill(mut self) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process_group(group, Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
