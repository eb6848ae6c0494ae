//! The agent: reads messages, checks them and their order, and starts turns.

use std::collections::HashMap;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};

use super::checks;
use super::connection::Connection;
use super::script::{AgentScript, StartBehaviour};
use super::session::Session;
use super::turn::{Turn, TurnFlags};

/// JSON-RPC and ACP error codes.
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const AUTH_REQUIRED: i64 = -32000;

/// A refused request: the code and the reason.
type RpcError = (i64, String);

/// The state of the conversation with the client.
struct Agent {
    script: AgentScript,
    connection: Arc<Connection>,
    is_initialized: bool,
    is_authenticated: bool,
    sessions: HashMap<String, OpenSession>,
}

struct OpenSession {
    session: Arc<Mutex<Session>>,
    /// The latest turn.
    turn: Option<Arc<TurnFlags>>,
}

/// Serves standard input until it ends.
#[expect(clippy::print_stderr, reason = "an agent that cannot start complains on stderr")]
pub(super) fn serve(script: AgentScript) -> ExitCode {
    let connection = Arc::new(Connection::new());
    connection.record("started", &json!(std::env::args().collect::<Vec<_>>()));
    match script.start {
        StartBehaviour::Exit(code) => {
            eprintln!("acp-agent: the script ends it at the start");
            return ExitCode::from(code);
        }
        StartBehaviour::Garbage => connection.send_raw(b"Welcome!\nnot json at all\n"),
        StartBehaviour::Normal | StartBehaviour::Silent | StartBehaviour::SilentAfterInitialize => {
        }
    }
    let stay = script.stay_after_eof;
    let mut agent = Agent {
        script,
        connection,
        is_initialized: false,
        is_authenticated: false,
        sessions: HashMap::new(),
    };
    for line in std::io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { break };
        agent.take(&line);
    }
    agent.connection.record("input_ended", &Value::Null);
    if stay {
        loop {
            thread::park();
        }
    }
    ExitCode::SUCCESS
}

impl Agent {
    /// Handles one line.
    fn take(&mut self, line: &[u8]) {
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                self.connection.violation(format!("a line is not JSON: {error}"));
                return self.connection.send_error(&Value::Null, PARSE_ERROR, "Parse error");
            }
        };
        self.connection.record("received", &message);
        if self.is_silent() {
            return;
        }
        if let Err(why) = checks::envelope(&message) {
            self.connection.violation(why.clone());
            let id = message.get("id").cloned().unwrap_or_default();
            return self.connection.send_error(&id, INVALID_REQUEST, &why);
        }
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return self.connection.take_answer(message);
        };
        let params = message.get("params").cloned().unwrap_or_default();
        match message.get("id").cloned() {
            None => self.notified(&method, &params),
            Some(id) => self.asked(&id, &method, params),
        }
    }

    fn is_silent(&self) -> bool {
        match self.script.start {
            StartBehaviour::Silent => true,
            StartBehaviour::SilentAfterInitialize => self.is_initialized,
            StartBehaviour::Normal | StartBehaviour::Exit(_) | StartBehaviour::Garbage => false,
        }
    }

    fn notified(&mut self, method: &str, params: &Value) {
        let problem = match method {
            "session/cancel" => checks::params(method, params).and_then(|()| {
                let id = params["sessionId"].as_str().unwrap_or_default();
                let open = self.sessions.get(id).ok_or_else(|| format!("no session `{id}`"))?;
                if let Some(turn) = &open.turn {
                    turn.is_cancelled.store(true, Ordering::SeqCst);
                }
                Ok(())
            }),
            // Extensions begin with an underscore, and unknown ones must be ignored.
            other if other.starts_with('_') || other.starts_with("$/") => Ok(()),
            other => Err(format!("unknown notification `{other}`")),
        };
        if let Err(why) = problem {
            self.connection.violation(format!("{method}: {why}"));
        }
    }

    fn asked(&mut self, id: &Value, method: &str, params: Value) {
        let answer = self.check_order(method, &params).and_then(|()| match method {
            "initialize" => Ok(Some(self.initialize(&params))),
            "authenticate" => self.authenticate(&params).map(Some),
            "session/new" => self.new_session(&params).map(Some),
            "session/load" => self.load_session(&params).map(Some),
            "session/set_mode" => self.set_mode(&params).map(Some),
            "session/prompt" => self.prompt(id, &params).map(|()| None),
            other => Err((METHOD_NOT_FOUND, format!("method not found: {other}"))),
        });
        match answer {
            Ok(Some(result)) => self.connection.send_result(id, &result),
            // The turn answers.
            Ok(None) => {}
            Err((code, why)) => {
                self.connection.violation(format!("{method}: {why}"));
                self.connection.send_error(id, code, &why);
            }
        }
    }

    fn check_order(&self, method: &str, params: &Value) -> Result<(), RpcError> {
        if (method == "initialize") == self.is_initialized {
            let what = if self.is_initialized { "initialized already" } else { "not initialized" };
            return Err((INVALID_REQUEST, what.into()));
        }
        let begins_session = matches!(method, "session/new" | "session/load");
        if begins_session && self.script.auth_required && !self.is_authenticated {
            return Err((AUTH_REQUIRED, "authentication required".into()));
        }
        checks::params(method, params).map_err(|why| (INVALID_PARAMS, why))
    }

    fn initialize(&mut self, params: &Value) -> Value {
        if params["protocolVersion"] != 1 {
            self.connection.violation(format!("protocolVersion {}", params["protocolVersion"]));
        }
        self.is_initialized = true;
        let script = &self.script;
        let session = if script.system_prompt { json!({"systemPrompt": {}}) } else { json!({}) };
        let methods = if script.auth_required {
            json!([{"id": "key", "name": "A key", "description": "Any key will do"}])
        } else {
            json!([])
        };
        json!({
            "protocolVersion": script.protocol_version,
            "agentInfo": {"name": "acp-agent", "title": "A scripted agent", "version": script.version},
            "agentCapabilities": {
                "loadSession": script.load_session,
                "promptCapabilities": {"image": false, "audio": false, "embeddedContext": false},
                "mcpCapabilities": {"http": script.mcp_http, "sse": false},
                "sessionCapabilities": session,
            },
            "authMethods": methods,
        })
    }

    fn authenticate(&mut self, params: &Value) -> Result<Value, RpcError> {
        if !self.script.auth_required || params["methodId"] != "key" {
            return Err((INVALID_PARAMS, format!("no such method: {}", params["methodId"])));
        }
        self.is_authenticated = true;
        Ok(json!({}))
    }

    fn check_session_params(&self, params: &Value) -> Result<PathBuf, RpcError> {
        let invalid = |why: &str| Err((INVALID_PARAMS, why.to_owned()));
        if !self.script.system_prompt && params.get("systemPrompt").is_some() {
            return invalid("`systemPrompt` was not offered");
        }
        let mut servers = params["mcpServers"].as_array().into_iter().flatten();
        if !self.script.mcp_http && servers.any(|server| server.get("type").is_some()) {
            return invalid("MCP over HTTP was not offered");
        }
        Ok(params["cwd"].as_str().unwrap_or_default().into())
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, RpcError> {
        let cwd = self.check_session_params(params)?;
        let session = Session::new(cwd, self.script.modes.first().cloned());
        session.save().map_err(|error| (INTERNAL_ERROR, format!("cannot save: {error}")))?;
        let mut result = json!({"sessionId": session.id});
        self.add_modes(&mut result, session.mode.as_deref());
        self.open(session);
        Ok(result)
    }

    fn load_session(&mut self, params: &Value) -> Result<Value, RpcError> {
        if !self.script.load_session {
            return Err((METHOD_NOT_FOUND, "sessions cannot be loaded".into()));
        }
        let cwd = self.check_session_params(params)?;
        let id = params["sessionId"].as_str().unwrap_or_default();
        let mut session = Session::load(id)
            .map_err(|error| (INVALID_PARAMS, format!("cannot load session `{id}`: {error}")))?;
        session.cwd = cwd;
        for update in &session.updates {
            let params = json!({"sessionId": id, "update": update});
            self.connection.notify("session/update", &params);
        }
        let mut result = json!({});
        self.add_modes(&mut result, session.mode.as_deref());
        self.open(session);
        Ok(result)
    }

    fn add_modes(&self, result: &mut Value, current: Option<&str>) {
        let modes = &self.script.modes;
        if let Some(current) = current {
            let modes: Vec<Value> =
                modes.iter().map(|mode| json!({"id": mode, "name": mode})).collect();
            result["modes"] = json!({"currentModeId": current, "availableModes": modes});
        }
    }

    fn open(&mut self, session: Session) {
        let id = session.id.clone();
        let session = Arc::new(Mutex::new(session));
        self.sessions.insert(id, OpenSession { session, turn: None });
    }

    fn set_mode(&mut self, params: &Value) -> Result<Value, RpcError> {
        let mode = params["modeId"].as_str().unwrap_or_default();
        if !self.script.modes.iter().any(|known| known == mode) {
            return Err((INVALID_PARAMS, format!("no mode `{mode}`")));
        }
        let open = self.session_of(params)?;
        let mut session = open.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.mode = Some(mode.to_owned());
        session.save().map_err(|error| (INTERNAL_ERROR, error.to_string()))?;
        Ok(json!({}))
    }

    fn prompt(&mut self, id: &Value, params: &Value) -> Result<(), RpcError> {
        let connection = Arc::clone(&self.connection);
        let script = self.script.clone();
        let open = self.session_of(params)?;
        if open.turn.as_ref().is_some_and(|turn| !turn.is_answered.load(Ordering::SeqCst)) {
            return Err((INVALID_REQUEST, "the session has a turn at work".into()));
        }
        let blocks = params["prompt"].as_array().into_iter().flatten();
        let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
        let prompt = texts.join("\n");
        let steps = {
            let mut session = open.session.lock().unwrap_or_else(PoisonError::into_inner);
            let steps = script.steps(session.prompts);
            session.remember_prompt(&params["prompt"]);
            session.save().map_err(|error| (INTERNAL_ERROR, error.to_string()))?;
            steps
        };
        let flags = Arc::new(TurnFlags::default());
        let session = Arc::clone(&open.session);
        let turn = Turn::new(connection, session, Arc::clone(&flags), id.clone(), prompt);
        open.turn = Some(flags);
        thread::spawn(move || turn.run(steps));
        Ok(())
    }

    fn session_of(&mut self, params: &Value) -> Result<&mut OpenSession, RpcError> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        self.sessions.get_mut(id).ok_or_else(|| (INVALID_PARAMS, format!("no session `{id}`")))
    }
}
