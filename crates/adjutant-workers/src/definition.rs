//! The known workers: how each is started, which API it speaks, and how its own prompts and extras are switched off.
//!
//! A definition is data; `find` looks for its program, `host` starts it. [`BUILT_IN`] lists the names of the definitions
//! that need no configuration.

use adjutant_model::wire::Wire;
use serde_json::{Value, json};

/// The workers that are known without configuration.
pub const BUILT_IN: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

/// How a worker is told what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerProtocol {
    /// The Agent Client Protocol, version 1, over standard input and output.
    Acp,
}

impl WorkerProtocol {
    /// Returns the word in configuration files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acp => "acp",
        }
    }
}

/// How a worker is started and talked to.
///
/// In `environment` and `arguments`, `{gateway}` is the base URL of the gateway without an API version, `{model}` the
/// provider's name of the model, `{home}` the private home directory, `{output}` the most output tokens of one call,
/// and `{window}` the context window.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerDefinition {
    /// The name, as in `--worker NAME`.
    pub name: String,
    /// The programs to look for, the best first; or one command with its arguments from the person's configuration.
    pub programs: Vec<String>,
    /// The npm packages that contain the programs, for advice and for installations outside the search path.
    pub packages: Vec<String>,
    /// The arguments after the program.
    pub arguments: Vec<String>,
    /// How it is told what to do.
    pub protocol: WorkerProtocol,
    /// The APIs that it speaks.
    pub wires: Vec<Wire>,
    /// The variables that it gets beside those of all commands.
    pub environment: Vec<(String, String)>,
    /// A shell command that prepares its private home.
    pub prepare: Option<String>,
    /// The lowest major version of Node.js that it needs; `None` if it is not a Node program.
    pub node: Option<u32>,
    /// The parameters of `authenticate`, if it needs that call.
    pub authenticate: Option<Value>,
    /// Further parameters of `session/new`.
    pub session: Option<Value>,
    /// The session mode in which it does not ask for permissions.
    pub mode: Option<String>,
    /// Whether its sessions get a title, so that it does not ask a model for one.
    pub sets_title: bool,
    /// Whether its commands need pseudo-terminals.
    pub pseudo_terminals: bool,
    /// The beginnings of texts that it writes as if they were answers, and that are none.
    pub remarks: Vec<String>,
}

impl WorkerDefinition {
    /// Returns a definition for a program that speaks ACP, with nothing else set.
    #[must_use]
    pub fn new(name: &str, wires: Vec<Wire>) -> Self {
        Self {
            name: name.to_owned(),
            programs: Vec::new(),
            packages: Vec::new(),
            arguments: Vec::new(),
            protocol: WorkerProtocol::Acp,
            wires,
            environment: Vec::new(),
            prepare: None,
            node: None,
            authenticate: None,
            session: None,
            mode: None,
            sets_title: false,
            pseudo_terminals: false,
            remarks: Vec::new(),
        }
    }

    /// Returns a built-in definition.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        match name {
            "claude" => Some(claude()),
            "codex" => Some(codex()),
            "opencode" => Some(opencode()),
            "gemini" => Some(gemini()),
            _ => None,
        }
    }
}

/// What the placeholders of a definition stand for.
#[derive(Clone)]
pub(crate) struct PlaceholderValues {
    /// The provider's name of the model.
    pub(crate) model: String,
    /// The most output tokens of one call.
    pub(crate) output: u64,
    /// The context window.
    pub(crate) window: u64,
}

impl PlaceholderValues {
    /// Fills a text, given the base URL of the gateway and the home directory.
    pub(crate) fn fill(&self, text: &str, gateway: &str, home: &str) -> String {
        text.replace("{gateway}", gateway)
            .replace("{home}", home)
            .replace("{model}", &self.model)
            .replace("{output}", &self.output.to_string())
            .replace("{window}", &self.window.to_string())
    }

    /// Fills the texts of a JSON value.
    pub(crate) fn fill_json(&self, value: Value, gateway: &str) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(&text, gateway, "")),
            Value::Array(items) => {
                items.into_iter().map(|item| self.fill_json(item, gateway)).collect()
            }
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, value)| (name, self.fill_json(value, gateway)))
                .collect(),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn claude() -> WorkerDefinition {
    WorkerDefinition {
        programs: vec!["claude-agent-acp".to_owned()],
        packages: vec!["@agentclientprotocol/claude-agent-acp".to_owned()],
        node: Some(22),
        environment: variables(&[
            ("ANTHROPIC_BASE_URL", "{gateway}"),
            ("ANTHROPIC_API_KEY", "held-by-adjutant"),
            // One model for everything, sub-agents and titles included.
            ("ANTHROPIC_MODEL", "{model}"),
            ("ANTHROPIC_SMALL_FAST_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_SONNET_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_FABLE_MODEL", "{model}"),
            ("CLAUDE_CODE_SUBAGENT_MODEL", "{model}"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "{output}"),
            // A refused call must end the turn, not be repeated.
            ("CLAUDE_CODE_MAX_RETRIES", "0"),
            ("DISABLE_AUTO_COMPACT", "1"),
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
            // Otherwise it makes a call with the whole conversation after each turn.
            ("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", "false"),
            // Lets uid 0 work without questions: this is a sandbox.
            ("IS_SANDBOX", "1"),
        ]),
        session: Some(json!({ "_meta": { "claudeCode": { "options": {
            "disallowedTools": ["WebFetch", "WebSearch"],
            "settingSources": [],
            "strictMcpConfig": true,
        } } } })),
        mode: Some("bypassPermissions".to_owned()),
        ..WorkerDefinition::new("claude", vec![Wire::Anthropic])
    }
}

fn codex() -> WorkerDefinition {
    let config = json!({
        "model": "{model}",
        "model_providers": { "adjutant": {
            "name": "adjutant",
            "base_url": "{gateway}/v1",
            "wire_api": "responses",
            "request_max_retries": 0,
            "stream_max_retries": 0,
        } },
        "web_search": "disabled",
        "features": { "plugins": false },
    });
    WorkerDefinition {
        programs: vec!["codex-acp".to_owned()],
        packages: vec!["@agentclientprotocol/codex-acp".to_owned()],
        node: Some(20),
        environment: variables(&[
            ("CODEX_HOME", "{home}/.codex"),
            // Its own sandbox cannot be nested in ours.
            ("INITIAL_AGENT_MODE", "agent-full-access"),
            ("MODEL_PROVIDER", "adjutant"),
            ("CODEX_CONFIG", &config.to_string()),
        ]),
        prepare: Some("mkdir -p \"$CODEX_HOME\"".to_owned()),
        sets_title: true,
        remarks: vec!["Warning: Model metadata for ".to_owned()],
        ..WorkerDefinition::new("codex", vec![Wire::Responses])
    }
}

fn opencode() -> WorkerDefinition {
    let config = json!({
        "autoupdate": false,
        "share": "disabled",
        "snapshot": false,
        "lsp": false,
        "formatter": false,
        // Without this list it offers cloud models of its own.
        "enabled_providers": ["adjutant"],
        "model": "adjutant/{model}",
        "small_model": "adjutant/{model}",
        "permission": {
            "edit": "allow", "bash": "allow", "webfetch": "deny", "external_directory": "deny",
        },
        "agent": { "title": { "disable": true } },
        "provider": { "adjutant": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "adjutant",
            "options": { "baseURL": "{gateway}/v1", "apiKey": "held-by-adjutant" },
            "models": { "{model}": {
                "name": "{model}",
                "tool_call": true,
                "limit": { "context": "{window}", "output": "{output}" },
            } },
        } },
    });
    // Limits are numbers.
    let config =
        config.to_string().replace("\"{window}\"", "{window}").replace("\"{output}\"", "{output}");
    WorkerDefinition {
        programs: vec!["opencode".to_owned()],
        packages: vec!["opencode-ai".to_owned()],
        arguments: vec!["acp".to_owned()],
        environment: variables(&[
            ("OPENCODE_CONFIG_CONTENT", &config),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "true"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "true"),
            ("OPENCODE_PURE", "1"),
        ]),
        ..WorkerDefinition::new("opencode", vec![Wire::Chat])
    }
}

fn gemini() -> WorkerDefinition {
    let settings = json!({
        "general": { "maxAttempts": 1 },
        // Loop detection asks another model.
        "model": { "disableLoopDetection": true },
        "tools": { "exclude": ["google_web_search", "web_fetch"] },
    });
    WorkerDefinition {
        programs: vec!["gemini".to_owned()],
        packages: vec!["@google/gemini-cli".to_owned()],
        arguments: ["--acp", "--skip-trust", "-m", "{model}"].map(str::to_owned).into(),
        node: Some(20),
        environment: variables(&[
            // Otherwise a second Node process does the work.
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
            ("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "{home}/.gemini/adjutant.json"),
            ("ADJUTANT_GEMINI_SETTINGS", &settings.to_string()),
        ]),
        prepare: Some(
            "mkdir -p \"$HOME/.gemini\" && \
             printf %s \"$ADJUTANT_GEMINI_SETTINGS\" > \"$GEMINI_CLI_SYSTEM_SETTINGS_PATH\""
                .to_owned(),
        ),
        authenticate: Some(json!({
            "methodId": "gateway",
            "_meta": { "gateway": { "baseUrl": "{gateway}", "headers": {} } },
        })),
        mode: Some("yolo".to_owned()),
        pseudo_terminals: true,
        remarks: vec!["[MODE_UPDATE] ".to_owned()],
        ..WorkerDefinition::new("gemini", vec![Wire::Gemini])
    }
}
