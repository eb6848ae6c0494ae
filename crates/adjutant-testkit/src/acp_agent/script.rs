//! The script of the agent: what it offers and what each prompt makes it do.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::model_call::ModelCall;

/// What the agent offers, and its steps per prompt.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentScript {
    /// The protocol version it answers `initialize` with.
    pub protocol_version: u64,
    /// The version in its `agentInfo`.
    pub version: String,
    /// Whether it can load sessions of an earlier process.
    pub load_session: bool,
    /// Whether `session/new` is refused before `authenticate`.
    pub auth_required: bool,
    /// Whether MCP servers over HTTP are accepted.
    pub mcp_http: bool,
    /// Whether `session/new` and `session/load` accept a `systemPrompt`.
    pub system_prompt: bool,
    /// The ids of its modes, the first one in force at the start.
    pub modes: Vec<String>,
    /// How the process begins.
    pub start: StartBehaviour,
    /// Whether it stays alive after its standard input has ended.
    pub stay_after_eof: bool,
    /// The prompts in order; the last one repeats.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptScript>,
}

impl Default for AgentScript {
    fn default() -> Self {
        Self {
            protocol_version: 1,
            version: "1.0.0".into(),
            load_session: true,
            auth_required: false,
            mcp_http: true,
            system_prompt: true,
            modes: Vec::new(),
            start: StartBehaviour::Normal,
            stay_after_eof: false,
            prompts: Vec::new(),
        }
    }
}

/// How the process begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartBehaviour {
    /// Answers requests.
    #[default]
    Normal,
    /// Ends at once with this code, after a line on standard error.
    Exit(u8),
    /// Writes text that is not JSON before anything else, then answers requests.
    Garbage,
    /// Reads and never answers anything.
    Silent,
    /// Answers `initialize` and nothing after it.
    SilentAfterInitialize,
}

/// The steps of one prompt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptScript {
    /// Performed in order.
    pub steps: Vec<Step>,
}

/// One thing the agent does in its turn.
///
/// A turn ends with `end_turn` after its last step, or with `cancelled` as soon as the client cancels it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Says text. `{prompt}`, `{calls}`, `{violations}`, `{answers}` and `{cwd}` are filled in.
    Say(String),
    /// Thinks aloud.
    Think(String),
    /// Shows a plan with these entries.
    Plan(Vec<String>),
    /// Offers slash commands of these names.
    OfferCommands(Vec<String>),
    /// Changes its mode by itself.
    ChangeMode(String),
    /// Reports usage: an update and `usage` in the answer to the prompt.
    ReportUsage {
        /// Tokens of input.
        input: u64,
        /// Tokens of output.
        output: u64,
        /// The price it claims.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// Calls the model.
    CallModel(ModelCall),
    /// Makes the same call several times, all at once.
    CallModelsAtOnce {
        /// How many.
        times: usize,
        /// The call.
        call: ModelCall,
    },
    /// Makes the same call again and again until one is not answered with 200, at most `at_most` times.
    CallModelUntilRefused {
        /// The most calls.
        at_most: usize,
        /// The call.
        call: ModelCall,
    },
    /// Starts a thread that calls the model after the prompt has been answered, and again until it fails.
    CallAfterEnd(ModelCall),
    /// Runs a shell command in the session's directory, as a tool call.
    Run(String),
    /// Writes a file in the session's directory, as a tool call.
    Write {
        /// The path, relative to the directory.
        path: String,
        /// The new content.
        text: String,
    },
    /// Asks the client for permission and acts on the answer.
    AskPermission(PermissionQuestion),
    /// Calls a method of the client, whatever its capabilities say.
    AskClient {
        /// The method.
        method: String,
        /// Its parameters; `sessionId` is added.
        #[serde(default)]
        params: Value,
    },
    /// Waits for the cancellation of the turn.
    SleepUntilCancelled,
    /// Waits this long, or until the turn is cancelled.
    Sleep {
        /// Milliseconds.
        ms: u64,
    },
    /// Waits until this path exists, or until the turn is cancelled. Relative to the session's directory.
    WaitFor(String),
    /// Pays no attention to cancellation from now on.
    IgnoreCancel,
    /// Starts a shell command as a daemon: forked twice, in a session of its own.
    ForkDaemon(String),
    /// Ends the process.
    Exit(i32),
    /// Kills itself with SIGKILL.
    KillSelf,
    /// Writes lines that are not JSON.
    Garbage,
    /// Writes one line of this many bytes: a valid update.
    HugeLine(usize),
    /// Writes bytes without a line end.
    EndlessLine(usize),
    /// Sends this many updates as fast as it can.
    Flood(usize),
    /// Never answers the prompt.
    Silent,
    /// Answers the prompt this much later, cancelled or not.
    LateReply {
        /// Milliseconds.
        ms: u64,
    },
    /// Answers the prompt twice.
    DoubleReply,
    /// Sends updates of a session that does not exist.
    SecondSession,
    /// Sends notifications and updates of kinds that the protocol does not have.
    UnknownNotification,
    /// Sends messages that are JSON and not JSON-RPC 2.0.
    BadJsonRpc,
    /// Ends the turn with this stop reason, whatever it is.
    StopReason(String),
    /// Answers the prompt with an error.
    Fail {
        /// The code.
        code: i64,
        /// The message.
        message: String,
    },
}

impl Step {
    /// Whether the step says how the turn is answered, and so is performed even if the turn is cancelled already.
    pub(super) const fn holds_after_cancel(&self) -> bool {
        matches!(
            self,
            Self::IgnoreCancel | Self::LateReply { .. } | Self::DoubleReply | Self::Silent
        )
    }
}

/// A `session/request_permission`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionQuestion {
    /// The shell command that runs if it is permitted.
    pub run: String,
    /// The kinds of the options, in this order.
    #[serde(default = "PermissionQuestion::usual_options")]
    pub options: Vec<String>,
    /// How often it asks, whatever the answers are.
    #[serde(default = "one")]
    pub times: usize,
}

impl PermissionQuestion {
    fn usual_options() -> Vec<String> {
        // `always` first, as some agents list them: a client must choose by kind.
        ["allow_always", "allow_once", "reject_once"].map(String::from).into()
    }
}

const fn one() -> usize {
    1
}

impl AgentScript {
    /// Reads a script: a file, or JSON text, which a sandboxed agent gets in its environment. Unknown keys are errors.
    ///
    /// # Errors
    ///
    /// A description of the problem, if the file cannot be read or is not a valid script.
    pub fn read(source: &str) -> Result<Self, String> {
        if source.starts_with('{') {
            return serde_json::from_str(source).map_err(|error| error.to_string());
        }
        let path = Path::new(source);
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        if path.extension().is_some_and(|extension| extension == "json") {
            serde_json::from_str(&text).map_err(|error| error.to_string())
        } else {
            toml::from_str(&text).map_err(|error| error.to_string())
        }
    }

    /// Returns the steps of the prompt with this number, counted from 0.
    pub(super) fn steps(&self, number: usize) -> Vec<Step> {
        let prompt = self.prompts.get(number).or_else(|| self.prompts.last());
        prompt.map(|prompt| prompt.steps.clone()).unwrap_or_default()
    }
}
