//! A program in the person's terminal whose model calls go through the gateway: `adjutant gateway -- CMD`.
//!
//! Only its model calls are bounded; it runs with all rights of the person, who typed it. The gateway listens on the
//! machine's loopback, where other programs could connect, so its address contains a secret.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::{ModelSpec, WorkerPlace, WorkerSessionStart};
use adjutant_engine::{
    RunningWorker, StartedWorker, WorkerAnswer, WorkerFuture, WorkerHost, WorkerStart,
};
use adjutant_model::ModelSources;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::gateway::{Gateway, ServedModel};
use crate::host::open_upstream;

/// How long a program may take to end after SIGTERM before it is killed.
const TERM_TIME: Duration = Duration::from_millis(1_200);

/// How long model calls may go on after the program has ended.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// A key for clients that insist on one. The gateway ignores it.
const PLACEHOLDER_KEY: &str = "held-by-adjutant";

/// The program that `adjutant gateway` runs.
pub struct TerminalProgram {
    words: Vec<OsString>,
    sources: ModelSources,
    result: TerminalResult,
}

/// How the program ended, once it has.
#[derive(Clone, Debug, Default)]
pub struct TerminalResult {
    // A std mutex: held to store or read a few numbers.
    state: Arc<(Mutex<ProgramState>, Condvar)>,
}

#[derive(Debug, Default)]
struct ProgramState {
    pid: Option<Pid>,
    /// How it ended, or why it could not be started.
    status: Option<Result<ExitStatus, String>>,
}

impl TerminalResult {
    /// Ends the program if it still runs: politely, then by force. Returns how it ended, or why it could not be
    /// started; `None` if it was not started. Blocks.
    #[must_use]
    pub fn finish(&self) -> Option<Result<ExitStatus, String>> {
        let (state, ended) = &*self.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in [Signal::TERM, Signal::KILL] {
            let Some(pid) = state.pid.filter(|_| state.status.is_none()) else { break };
            // Fails only if it has just ended.
            let _ = kill_process(pid, signal);
            let wait = ended.wait_timeout_while(state, TERM_TIME, |it| it.status.is_none());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.status.clone()
    }

    fn change(&self, change: impl FnOnce(&mut ProgramState)) {
        let (state, ended) = &*self.state;
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        ended.notify_all();
    }
}

impl TerminalProgram {
    /// Returns a host that runs this command. `result` says afterwards how it ended.
    #[must_use]
    pub const fn new(words: Vec<OsString>, sources: ModelSources, result: TerminalResult) -> Self {
        Self { words, sources, result }
    }
}

impl WorkerHost for TerminalProgram {
    fn check(&self, _worker: &str, model: &ModelSpec) -> Result<WorkerPlace, String> {
        open_upstream(model, &self.sources)?;
        Ok(WorkerPlace::Terminal)
    }

    fn start(&self, start: WorkerStart) -> WorkerFuture<'static, Result<StartedWorker, String>> {
        let models = std::iter::once(&start.model).chain(&start.further_models);
        let served = models.map(|spec| {
            let upstream = open_upstream(spec, &self.sources)?;
            Ok(ServedModel { spec: spec.clone(), upstream })
        });
        let served = served.collect::<Result<Vec<_>, String>>();
        let (words, result) = (self.words.clone(), self.result.clone());
        let secrets = self.sources.secrets();
        Box::pin(async move {
            let listener =
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
            let secret = secret().map_err(|error| error.to_string())?;
            let gateway = Gateway::start(listener, start.link, served?, Some(secret))
                .map_err(|error| error.to_string())?;
            let worker = TerminalWorker { words, secrets, gateway, result };
            Ok(StartedWorker {
                worker: Box::new(worker),
                session_id: String::new(),
                start: WorkerSessionStart::New,
            })
        })
    }
}

fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct TerminalWorker {
    words: Vec<OsString>,
    /// The person's keys, which the program must not inherit.
    secrets: Vec<String>,
    gateway: Gateway,
    result: TerminalResult,
}

impl RunningWorker for TerminalWorker {
    fn prompt(&mut self, _text: String) -> WorkerFuture<'_, Result<WorkerAnswer, String>> {
        Box::pin(async move {
            let started = start_command(&self.words, &self.secrets, &self.gateway.base_url());
            let mut child = match started {
                Ok(child) => child,
                Err(error) => {
                    let name = self.words.first().map(|it| it.to_string_lossy().into_owned());
                    let why = format!("cannot start {}: {error}", name.unwrap_or_default());
                    self.result.change(|it| it.status = Some(Err(why.clone())));
                    return Err(why);
                }
            };
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            self.result.change(|it| it.pid = pid);
            let (ended, ending) = oneshot::channel();
            let result = self.result.clone();
            let wait = move || {
                let status = child.wait().map_err(|error| error.to_string());
                result.change(|it| it.status = Some(status.clone()));
                let _ = ended.send(status);
            };
            std::thread::Builder::new()
                .name("adjutant-program".to_owned())
                .spawn(wait)
                .map_err(|error| error.to_string())?;
            let status = ending.await.map_err(|_gone| "it cannot be waited for".to_owned())??;
            self.gateway.settle_open_calls(SETTLE_TIME).await;
            Ok(WorkerAnswer { text: format!("The program ended: {status}."), report: None })
        })
    }
}

/// Starts the command with the addresses of the gateway, without the person's keys.
fn start_command(words: &[OsString], secrets: &[String], gateway: &str) -> io::Result<Child> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::other("no command is given"))?;
    let openai = format!("{gateway}/v1");
    let mut command = Command::new(program);
    command.args(arguments);
    let is_key = |value: &OsString| secrets.iter().any(|key| value == key.as_str());
    for (name, _) in std::env::vars_os().filter(|(_, value)| is_key(value)) {
        command.env_remove(name);
    }
    for (name, value) in [
        ("ANTHROPIC_BASE_URL", gateway),
        ("OPENAI_BASE_URL", &openai),
        ("OPENAI_API_BASE", &openai),
        ("GEMINI_BASE_URL", gateway),
        ("GOOGLE_GEMINI_BASE_URL", gateway),
        ("ANTHROPIC_API_KEY", PLACEHOLDER_KEY),
        ("OPENAI_API_KEY", PLACEHOLDER_KEY),
        ("GEMINI_API_KEY", PLACEHOLDER_KEY),
    ] {
        command.env(name, value);
    }
    for name in INHERITED {
        command.env_remove(name);
    }
    command.spawn()
}

/// Variables that would give the program another key, or make an agent believe that it runs inside another.
const INHERITED: [&str; 8] = [
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "CODEX_API_KEY",
];
