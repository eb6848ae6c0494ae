//! A coding agent as a process that speaks the Agent Client Protocol, version 1, over standard input and output.
//!
//! It is strict about what its client sends and does what a script says, good or bad: each `session/prompt` runs
//! the steps of one `[[prompt]]`. What it observed (messages, protocol violations, model calls) is a log of
//! one JSON object per line. It uses no ACP library, so that a mistake of one is not repeated here.
//! Start at [`main`]; the steps are in [`Step`].
//!
//! ```toml
//! modes = ["ask", "free"]                 # offered; absent: the agent has no modes
//! load_session = false                    # default true; sessions are files below $HOME
//!
//! [[prompt]]
//! steps = [
//!     { think = "Let me look." },
//!     { call_model = { wire = "chat", max_tokens = 100 } },
//!     { write = { path = "a.txt", text = "hello" } },
//!     { run = "wc a.txt" },
//!     { say = "Done: {calls}" },
//! ]
//!
//! [[prompt]]                              # the second prompt; the last one repeats
//! steps = ["sleep_until_cancelled"]
//! ```
//!
//! The environment: `ACP_AGENT_SCRIPT` (or the first argument) is the script, a file (TOML or JSON) or JSON text;
//! `ACP_AGENT_LOG` the log (default `$HOME/acp-agent.jsonl`); `ACP_AGENT_BASE_URL` the model endpoint without `/v1`, or else the
//! variables of the vendors; `ACP_AGENT_MODEL` the model of calls that name none.
//!
//! `--call CALL` makes one model call, described as in a script but in JSON, and prints what it got.

mod agent;
mod checks;
mod connection;
mod daemon;
mod model_call;
mod script;
mod session;
mod turn;

use std::process::ExitCode;

pub use model_call::{ModelCall, ModelWire};
pub use script::{AgentScript, PermissionQuestion, PromptScript, StartBehaviour, Step};

/// Serves one client until standard input ends, or until the script ends the process.
#[expect(clippy::print_stderr, reason = "stderr is where a command line tool complains")]
#[must_use]
pub fn main(mut words: impl Iterator<Item = String>) -> ExitCode {
    let first = words.next();
    if first.as_deref() == Some(daemon::FLAG) {
        return daemon::detach(words.next().as_deref().unwrap_or_default());
    }
    if first.as_deref() == Some("--call") {
        return call(words.next().as_deref().unwrap_or_default());
    }
    let Some(path) = first.or_else(|| std::env::var("ACP_AGENT_SCRIPT").ok()) else {
        eprintln!("usage: acp-agent SCRIPT (or ACP_AGENT_SCRIPT=SCRIPT acp-agent)");
        return ExitCode::from(2);
    };
    match AgentScript::read(&path) {
        Ok(script) => agent::serve(script),
        Err(why) => {
            eprintln!("acp-agent: {path}: {why}");
            ExitCode::from(2)
        }
    }
}

/// Makes one model call and prints its summary. The process succeeds if the call was answered with 200.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool prints its result"
)]
fn call(text: &str) -> ExitCode {
    match serde_json::from_str::<ModelCall>(text) {
        Ok(call) => {
            let summary = call.make(&|| false);
            println!("{summary}");
            ExitCode::from(u8::from(summary["status"] != 200))
        }
        Err(error) => {
            eprintln!("acp-agent: --call: {error}");
            ExitCode::from(2)
        }
    }
}
