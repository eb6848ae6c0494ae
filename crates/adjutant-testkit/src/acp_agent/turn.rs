//! One turn: the steps of a prompt, and its answer.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::checks;
use super::connection::Connection;
use super::daemon;
use super::model_call::ModelCall;
use super::script::{PermissionQuestion, Step};
use super::session::Session;

/// How often a waiting step looks whether the turn is cancelled.
const POLL: Duration = Duration::from_millis(10);

/// How long the thread of `call_after_end` keeps calling.
const AFTER_END: Duration = Duration::from_secs(5);

/// A turn at work.
pub(super) struct Turn {
    connection: Arc<Connection>,
    session: Arc<Mutex<Session>>,
    flags: Arc<TurnFlags>,
    /// The id of the prompt's request.
    id: Value,
    /// The text of the prompt.
    prompt: String,
    state: TurnState,
}

/// What the thread that reads messages and the thread of the turn tell each other.
#[derive(Default)]
pub(super) struct TurnFlags {
    /// Set by `session/cancel`.
    pub(super) is_cancelled: AtomicBool,
    /// Set before the prompt is answered: the client may send the next one.
    pub(super) is_answered: AtomicBool,
}

/// What the steps so far have left behind.
#[derive(Default)]
struct TurnState {
    ignores_cancel: bool,
    is_double: bool,
    late: Duration,
    usage: Option<Value>,
    /// Summaries of the model calls.
    calls: Vec<Value>,
    /// The answers of the client to requests.
    answers: Vec<Value>,
    tool_calls: usize,
    after_end: Vec<ModelCall>,
}

/// How a turn goes on after a step.
enum StepResult {
    Continue,
    /// The prompt is answered with this.
    End(TurnAnswer),
    /// The prompt is never answered.
    NeverAnswer,
}

enum TurnAnswer {
    StopReason(String),
    Error { code: i64, message: String },
}

impl Turn {
    pub(super) fn new(
        connection: Arc<Connection>,
        session: Arc<Mutex<Session>>,
        flags: Arc<TurnFlags>,
        id: Value,
        prompt: String,
    ) -> Self {
        Self { connection, session, flags, id, prompt, state: TurnState::default() }
    }

    /// Performs the steps and answers the prompt.
    pub(super) fn run(mut self, steps: Vec<Step>) {
        let mut answer = TurnAnswer::StopReason("end_turn".into());
        for step in steps {
            // A client may cancel before the first step.
            if self.is_over() && !step.holds_after_cancel() {
                continue;
            }
            match self.perform(step) {
                StepResult::Continue => {}
                StepResult::End(with) => {
                    answer = with;
                    break;
                }
                StepResult::NeverAnswer => return,
            }
        }
        thread::sleep(self.state.late);
        if self.is_over() && matches!(answer, TurnAnswer::StopReason(_)) {
            answer = TurnAnswer::StopReason("cancelled".into());
        }
        self.save();
        self.flags.is_answered.store(true, Ordering::SeqCst);
        for _ in 0..=usize::from(self.state.is_double) {
            self.answer(&answer);
        }
        for call in std::mem::take(&mut self.state.after_end) {
            call_after_end(Arc::clone(&self.connection), call);
        }
    }

    fn answer(&self, answer: &TurnAnswer) {
        match answer {
            TurnAnswer::StopReason(reason) => {
                let mut result = json!({"stopReason": reason});
                if let Some(usage) = &self.state.usage {
                    result["usage"] = usage.clone();
                }
                self.connection.record("answered", &result);
                self.connection.send_result(&self.id, &result);
            }
            TurnAnswer::Error { code, message } => {
                self.connection.record("answered", &json!({"code": code, "message": message}));
                self.connection.send_error(&self.id, *code, message);
            }
        }
    }

    fn perform(&mut self, step: Step) -> StepResult {
        match step {
            Step::Say(text) => self.chunk("agent_message_chunk", &self.fill_in(&text)),
            Step::Think(text) => self.chunk("agent_thought_chunk", &self.fill_in(&text)),
            Step::Plan(entries) => {
                let entry = |text: &String| json!({"content": text, "priority": "medium", "status": "pending"});
                let entries: Vec<Value> = entries.iter().map(entry).collect();
                self.update(json!({"sessionUpdate": "plan", "entries": entries}));
            }
            Step::OfferCommands(names) => {
                let offer = |name: &String| json!({"name": name, "description": name});
                let commands: Vec<Value> = names.iter().map(offer).collect();
                let kind = "available_commands_update";
                self.update(json!({"sessionUpdate": kind, "availableCommands": commands}));
            }
            Step::ChangeMode(mode) => {
                self.update(json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}));
            }
            Step::ReportUsage { input, output, cost_usd } => {
                self.report_usage(input, output, cost_usd)
            }
            Step::CallModel(call) => self.call_at_once(1, &call),
            Step::CallModelsAtOnce { times, call } => self.call_at_once(times, &call),
            Step::CallModelUntilRefused { at_most, call } => {
                for _ in 0..at_most {
                    self.call_at_once(1, &call);
                    let is_served = self.state.calls.last().is_some_and(|it| it["status"] == 200);
                    if self.is_over() || !is_served {
                        break;
                    }
                }
            }
            Step::CallAfterEnd(call) => self.state.after_end.push(call),
            Step::Run(command) => self.run_tool(&command),
            Step::Write { path, text } => self.write_tool(&path, &text),
            Step::AskPermission(question) => self.ask_permission(&question),
            Step::AskClient { method, params } => {
                let mut params = if params.is_object() { params } else { json!({}) };
                params["sessionId"] = json!(self.session_id());
                self.ask(&method, &params);
            }
            Step::SleepUntilCancelled => self.wait_until(|| false),
            Step::Sleep { ms } => {
                let until = Instant::now() + Duration::from_millis(ms);
                self.wait_until(|| Instant::now() >= until);
            }
            Step::WaitFor(path) => {
                let path = self.cwd().join(path);
                self.wait_until(|| path.exists());
            }
            Step::IgnoreCancel => self.state.ignores_cancel = true,
            Step::ForkDaemon(command) => {
                let started = daemon::start(&command);
                self.connection
                    .record("daemon", &json!(started.map_err(|error| error.to_string()).err()));
            }
            Step::Exit(code) => {
                self.save();
                std::process::exit(code);
            }
            Step::KillSelf => {
                self.save();
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                );
            }
            Step::Garbage => {
                self.connection
                    .send_raw(b"Starting up...\n\n{\"jsonrpc\": \"2.0\", \n\xff\xfe\n[]\n42\n");
            }
            Step::HugeLine(size) => {
                let content = json!({"type": "text", "text": "x".repeat(size)});
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                let params = json!({"sessionId": self.session_id(), "update": update});
                self.connection.notify("session/update", &params);
            }
            Step::EndlessLine(size) => {
                let piece = vec![b'x'; 64 * 1024];
                let mut left = size;
                while left > 0 && !self.is_over() {
                    let count = left.min(piece.len());
                    self.connection.send_raw(&piece[..count]);
                    left -= count;
                }
            }
            Step::Flood(count) => {
                for number in 0..count {
                    if self.is_over() {
                        break;
                    }
                    let content = json!({"type": "text", "text": format!("{number}\n")});
                    let update =
                        json!({"sessionUpdate": "agent_message_chunk", "content": content});
                    let params = json!({"sessionId": self.session_id(), "update": update});
                    self.connection.notify("session/update", &params);
                }
            }
            Step::Silent => return StepResult::NeverAnswer,
            Step::LateReply { ms } => self.state.late = Duration::from_millis(ms),
            Step::DoubleReply => self.state.is_double = true,
            Step::SecondSession => {
                let content = json!({"type": "text", "text": "from another session"});
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                let params = json!({"sessionId": "another-session", "update": update});
                self.connection.notify("session/update", &params);
            }
            Step::UnknownNotification => {
                self.connection.notify("_vendor/status_update", &json!({"status": "fine"}));
                self.connection.notify("session/weather", &json!({"sky": "blue"}));
                let update = json!({"sessionUpdate": "weather_update", "sky": "blue"});
                let params = json!({"sessionId": self.session_id(), "update": update});
                self.connection.notify("session/update", &params);
            }
            Step::BadJsonRpc => {
                for message in [
                    json!({"method": "session/update", "params": {}}),
                    json!({"jsonrpc": "1.0", "id": 1, "method": "session/update"}),
                    json!({"jsonrpc": "2.0", "id": 987_654, "result": {}}),
                    json!({"jsonrpc": "2.0", "id": {"a": 1}, "method": "session/update"}),
                    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": 5}}),
                    json!({"jsonrpc": "2.0", "method": 7}),
                ] {
                    self.connection.send(&message);
                }
            }
            Step::StopReason(reason) => return StepResult::End(TurnAnswer::StopReason(reason)),
            Step::Fail { code, message } => {
                return StepResult::End(TurnAnswer::Error { code, message });
            }
        }
        StepResult::Continue
    }

    fn is_over(&self) -> bool {
        !self.state.ignores_cancel && self.flags.is_cancelled.load(Ordering::SeqCst)
    }

    fn wait_until(&self, is_done: impl Fn() -> bool) {
        while !self.is_over() && !is_done() {
            thread::sleep(POLL);
        }
    }

    fn call_at_once(&mut self, times: usize, call: &ModelCall) {
        let ignores_cancel = self.state.ignores_cancel;
        let is_cancelled = &self.flags.is_cancelled;
        let is_over = move || !ignores_cancel && is_cancelled.load(Ordering::SeqCst);
        let summaries: Vec<Value> = thread::scope(|scope| {
            let calls: Vec<_> =
                (0..times).map(|_| scope.spawn(move || call.make(&is_over))).collect();
            calls.into_iter().filter_map(|call| call.join().ok()).collect()
        });
        for summary in summaries {
            self.connection.record("model_call", &summary);
            self.state.calls.push(summary);
        }
    }

    fn report_usage(&mut self, input: u64, output: u64, cost_usd: Option<f64>) {
        let mut update =
            json!({"sessionUpdate": "usage_update", "used": input + output, "size": 200_000});
        if let Some(amount) = cost_usd {
            update["cost"] = json!({"amount": amount, "currency": "USD"});
        }
        self.update(update);
        self.state.usage = Some(json!({
            "inputTokens": input, "outputTokens": output, "totalTokens": input + output
        }));
    }

    fn run_tool(&mut self, command: &str) {
        let id = self.begin_tool("execute", command, &json!({"command": command}));
        self.run_begun_tool(&id, command);
    }

    fn run_begun_tool(&mut self, id: &str, command: &str) {
        match self.shell(command) {
            Ok((code, text)) => self.end_tool(id, code == Some(0), &text),
            Err(error) => self.end_tool(id, false, &error.to_string()),
        }
    }

    /// Runs a shell command; when the turn is cancelled, kills the shell and nothing else.
    fn shell(&self, command: &str) -> std::io::Result<(Option<i32>, String)> {
        // A file, because a process in the background would keep a pipe open.
        let out = tempfile::NamedTempFile::new()?;
        let mut child = Command::new("sh")
            .args(["-c", command])
            .current_dir(self.cwd())
            .stdin(Stdio::null())
            .stderr(out.as_file().try_clone()?)
            .stdout(out.as_file().try_clone()?)
            .spawn()?;
        let code = loop {
            if let Some(status) = child.try_wait()? {
                break status.code();
            }
            if self.is_over() {
                child.kill()?;
            }
            thread::sleep(POLL);
        };
        let text = std::fs::read(out.path())?;
        Ok((code, String::from_utf8_lossy(&text).into_owned()))
    }

    fn write_tool(&mut self, path: &str, text: &str) {
        let target = self.cwd().join(path);
        let before = std::fs::read_to_string(&target).ok();
        let id = self.begin_tool("edit", &format!("Write {path}"), &json!({"path": path}));
        if let Some(directory) = target.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let written = std::fs::write(&target, text);
        let status = if written.is_ok() { "completed" } else { "failed" };
        let diff = json!({"type": "diff", "path": target, "oldText": before, "newText": text});
        let update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": [diff]
        });
        self.update(update);
    }

    fn ask_permission(&mut self, question: &PermissionQuestion) {
        let command = &question.run;
        for _ in 0..question.times {
            let id = self.begin_tool("execute", command, &json!({"command": command}));
            let options: Vec<Value> = question
                .options
                .iter()
                .map(|kind| json!({"optionId": format!("option-{kind}"), "name": kind, "kind": kind}))
                .collect();
            let tool_call =
                json!({"toolCallId": id, "title": command, "kind": "execute", "status": "pending"});
            let params =
                json!({"sessionId": self.session_id(), "toolCall": tool_call, "options": options});
            let answer = self.ask("session/request_permission", &params);
            let result = answer.as_ref().and_then(|answer| answer.get("result"));
            let chosen = match result.map(checks::permission) {
                Some(Ok(chosen)) => chosen.map(str::to_owned),
                Some(Err(why)) => {
                    self.connection.violation(format!("session/request_permission: {why}"));
                    None
                }
                None => None,
            };
            if let Some(chosen) = &chosen
                && !options.iter().any(|option| option["optionId"] == **chosen)
            {
                self.connection.violation(format!("option `{chosen}` was not offered"));
            }
            if chosen.is_some_and(|chosen| chosen.starts_with("option-allow")) {
                self.run_begun_tool(&id, command);
            } else {
                self.end_tool(&id, false, "not permitted");
            }
            if self.is_over() {
                return;
            }
        }
    }

    /// Sends a request to the client and waits for the answer, or for the end of the turn.
    fn ask(&mut self, method: &str, params: &Value) -> Option<Value> {
        let answers = self.connection.request(method, params);
        loop {
            match answers.recv_timeout(POLL) {
                Ok(answer) => {
                    self.connection.record("answer", &answer);
                    self.state.answers.push(answer.clone());
                    return Some(answer);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.is_over() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn begin_tool(&mut self, kind: &str, title: &str, input: &Value) -> String {
        self.state.tool_calls += 1;
        let prompts = self.session().prompts;
        let id = format!("call-{prompts}-{}", self.state.tool_calls);
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "pending",
            "rawInput": input
        }));
        let kind = "tool_call_update";
        self.update(json!({"sessionUpdate": kind, "toolCallId": id, "status": "in_progress"}));
        id
    }

    fn end_tool(&self, id: &str, is_success: bool, text: &str) {
        let status = if is_success { "completed" } else { "failed" };
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        self.update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": content
        }));
    }

    fn chunk(&self, kind: &str, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(json!({"sessionUpdate": kind, "content": content}));
    }

    fn update(&self, update: Value) {
        let params = json!({"sessionId": self.session_id(), "update": update});
        self.connection.notify("session/update", &params);
        let count = {
            let mut session = self.session();
            session.remember(update);
            session.updates.len()
        };
        // Each save writes the whole session, so long ones are saved less often.
        if count < 200 || count % 100 == 0 {
            self.save();
        }
    }

    fn fill_in(&self, text: &str) -> String {
        text.replace("{prompt}", &self.prompt)
            .replace("{calls}", &json!(self.state.calls).to_string())
            .replace("{answers}", &json!(self.state.answers).to_string())
            .replace("{violations}", &json!(self.connection.violations()).to_string())
            .replace("{cwd}", &self.cwd().to_string_lossy())
    }

    fn save(&self) {
        let saved = self.session().save();
        if let Err(error) = saved {
            self.connection.record("not_saved", &json!(error.to_string()));
        }
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_id(&self) -> String {
        self.session().id.clone()
    }

    fn cwd(&self) -> std::path::PathBuf {
        self.session().cwd.clone()
    }
}

/// Calls the model until a call fails or the time is over, although nobody asked any more.
fn call_after_end(connection: Arc<Connection>, call: ModelCall) {
    thread::spawn(move || {
        let until = Instant::now() + AFTER_END;
        while Instant::now() < until {
            let summary = call.make(&|| false);
            let is_served = summary["status"] == 200;
            connection.record("model_call_after_end", &summary);
            if !is_served {
                break;
            }
        }
    });
}
