//! The clients known by name: their configuration entry for this server, and how long they wait for an
//! answer.
//!
//! This file is data only. Finding and changing the configuration files is the command line's task.

use std::time::Duration;

use serde_json::{Value, json};

/// The server's name in client configurations.
pub const SERVER: &str = "adjutant";

/// An MCP client with known configuration and timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownClient {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// opencode.
    Opencode,
    /// Gemini CLI.
    Gemini,
    /// VS Code.
    Vscode,
    /// Cursor.
    Cursor,
}

/// The timeout written into client configurations that have one. The server answers earlier.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

/// A client name prefix, and how long a call may block without and with a progress token.
type ClientPatience = (&'static str, Duration, Duration);

const SHORT_WAIT: Duration = Duration::from_secs(25);
const USUAL_WAIT: Duration = Duration::from_secs(45);
const LONG_WAIT: Duration = Duration::from_secs(240);
const LONGEST_WAIT: Duration = Duration::from_secs(540);

/// How long a call may block per client: well below the client's own timeout. Where client versions differ,
/// the shortest timeout counts.
const CLIENT_WAITS: [ClientPatience; 7] = [
    // MCP_TOOL_TIMEOUT is about 28 hours by default, with or without progress (code.claude.com/docs/en/mcp,
    // and the description of `timeout` in 2.1.325). Blocking longer than nine minutes would try people's
    // patience.
    ("claude-code", LONGEST_WAIT, LONGEST_WAIT),
    // The desktop app gives up after a minute (anthropics/claude-code#58687).
    ("claude-ai", USUAL_WAIT, USUAL_WAIT),
    // tool_timeout_sec was 60 by default, later 120 and 300 (openai/codex, codex-mcp/src/rmcp_client.rs).
    // The entry that is installed says 600, and --detach-after to match.
    ("codex", USUAL_WAIT, USUAL_WAIT),
    // 60 seconds, the SDK's default, between two progress messages; versions that do not request progress
    // wait 60 seconds in all (anomalyco/opencode#24964; 1.18 requests it).
    ("opencode", USUAL_WAIT, LONGEST_WAIT),
    // 10 minutes by default (google-gemini/gemini-cli, docs/tools/mcp-server.md).
    ("gemini-cli", LONGEST_WAIT, LONGEST_WAIT),
    // No limit of its own, but calls were cancelled after 5 minutes (microsoft/vscode#261734).
    ("Visual Studio Code", LONG_WAIT, LONG_WAIT),
    // Undocumented; the SDK it is built on gives up after 60 seconds.
    ("cursor", USUAL_WAIT, USUAL_WAIT),
];

/// Returns how long a call may block before it is answered with a handle.
///
/// Client names are compared by prefix, ignoring case, because some clients append a version or the server's
/// name. An unknown client may give up after only 30 seconds.
#[must_use]
pub fn detach_after(client: &str, hears_progress: bool) -> Duration {
    let client = client.to_lowercase();
    let known = CLIENT_WAITS.iter().find(|(name, ..)| client.starts_with(&name.to_lowercase()));
    known.map_or(SHORT_WAIT, |(_, silent, told)| if hears_progress { *told } else { *silent })
}

impl KnownClient {
    /// All known clients.
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Opencode, Self::Gemini, Self::Vscode, Self::Cursor];

    /// Returns the product name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Opencode => "opencode",
            Self::Gemini => "Gemini CLI",
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
        }
    }

    /// Returns the name on our command line; also the client's own command if it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Gemini => "gemini",
            Self::Vscode => "vscode",
            Self::Cursor => "cursor",
        }
    }

    /// Returns the configuration key under which the client lists servers.
    #[must_use]
    pub const fn config_section(self) -> &'static str {
        match self {
            Self::Claude | Self::Gemini | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::Opencode => "mcp",
            Self::Vscode => "servers",
        }
    }

    /// Returns the timeout for calls that the configuration entry sets.
    #[must_use]
    pub fn timeout(self, entry: &Value) -> Option<Duration> {
        let (key, per_second) = match self {
            Self::Codex => ("tool_timeout_sec", 1.0),
            Self::Gemini | Self::Opencode => ("timeout", 1000.0),
            Self::Claude | Self::Vscode | Self::Cursor => return None,
        };
        let seconds = entry[key].as_f64().map(|number| number / per_second);
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Returns the server's arguments in the entry: those this client needs, followed by those the user gave.
    ///
    /// Editors start servers in an arbitrary directory and substitute the open one. Clients with a
    /// configurable timeout also get `--detach-after` to match it.
    #[must_use]
    pub fn arguments(self, given: &[String], gives_up: Option<Duration>) -> Vec<String> {
        let waits =
            gives_up.unwrap_or(CLIENT_TIMEOUT).mul_f64(0.75).min(LONGEST_WAIT).as_secs().max(1);
        let detach = ("--detach-after", waits.to_string());
        let needed: &[(&str, String)] = match self {
            Self::Vscode | Self::Cursor => &[("--root", "${workspaceFolder}".into())],
            Self::Codex => &[detach],
            Self::Opencode | Self::Gemini if gives_up.is_some_and(|it| it < CLIENT_TIMEOUT) => {
                &[detach]
            }
            Self::Claude | Self::Opencode | Self::Gemini => &[],
        };
        let is_given = |flag: &str| {
            given.iter().any(|it| {
                it.strip_prefix(flag).is_some_and(|it| it.is_empty() || it.starts_with('='))
            })
        };
        let mut all = vec!["mcp".to_owned()];
        for (flag, value) in needed.iter().filter(|(flag, _)| !is_given(flag)) {
            all.extend([(*flag).to_owned(), value.clone()]);
        }
        all.extend_from_slice(given);
        all
    }

    /// Returns the members that the entry must contain for the client to start `command`.
    #[must_use]
    pub fn required_members(self, command: &[String]) -> Vec<(&'static str, Value)> {
        let (program, arguments) =
            command.split_first().map_or(("", &[][..]), |(one, rest)| (one.as_str(), rest));
        let plain = [("command", json!(program)), ("args", json!(arguments))];
        match self {
            Self::Claude | Self::Vscode => {
                [("type", json!("stdio"))].into_iter().chain(plain).collect()
            }
            Self::Codex | Self::Gemini | Self::Cursor => plain.into(),
            Self::Opencode => vec![("type", json!("local")), ("command", json!(command))],
        }
    }

    /// Returns the members that a new entry gets unless it already has them.
    #[must_use]
    pub fn default_members(self) -> Vec<(&'static str, Value)> {
        let seconds = CLIENT_TIMEOUT.as_secs();
        match self {
            Self::Codex => vec![("tool_timeout_sec", json!(seconds))],
            Self::Gemini => vec![("timeout", json!(seconds * 1000))],
            Self::Opencode => vec![("enabled", json!(true)), ("timeout", json!(seconds * 1000))],
            Self::Claude | Self::Vscode | Self::Cursor => Vec::new(),
        }
    }

    /// Returns the command that an entry starts, or `None` if it starts none.
    #[must_use]
    pub fn command_of(self, entry: &Value) -> Option<Vec<String>> {
        let texts = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|it| it.as_str().map(str::to_owned)).collect()
        };
        let command = if let Some(program) = entry["command"].as_str() {
            let arguments =
                if entry["args"].is_null() { Vec::new() } else { texts(&entry["args"])? };
            [vec![program.to_owned()], arguments].concat()
        } else {
            texts(&entry["command"])?
        };
        (!command.is_empty()).then_some(command)
    }

    /// Returns whether the entry exists but is switched off.
    #[must_use]
    pub fn is_disabled(self, entry: &Value) -> bool {
        entry["enabled"] == false || entry["disabled"] == true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No client reaches its timeout, whether its name is known or not.
    #[test]
    fn every_client_is_answered_before_it_gives_up() {
        let minute = Duration::from_secs(60);
        for (name, hears, gives_up) in [
            ("claude-code", true, Duration::from_secs(100_000)),
            ("codex-mcp-client", true, minute),
            ("opencode", true, CLIENT_TIMEOUT),
            ("opencode", false, minute),
            ("gemini-cli-mcp-client-adjutant", false, CLIENT_TIMEOUT),
            ("Visual Studio Code", true, minute * 5),
            ("Visual Studio Code - Insiders", true, minute * 5),
            ("cursor-vscode", true, minute),
            ("Cursor", false, minute),
            ("mcp-inspector", true, Duration::from_secs(30)),
            ("", false, Duration::from_secs(30)),
        ] {
            let waits = detach_after(name, hears);
            assert!(waits + Duration::from_secs(5) <= gives_up, "{name} {hears}: {waits:?}");
            assert!(waits >= SHORT_WAIT, "{name} {hears}: {waits:?}");
        }
    }

    #[test]
    fn an_entry_yields_the_command_it_was_made_from() {
        for client in KnownClient::ALL {
            let given = ["--model=x".to_owned()];
            let command = [vec!["/bin/us".to_owned()], client.arguments(&given, None)].concat();
            let entry: Value = client
                .required_members(&command)
                .into_iter()
                .chain(client.default_members())
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into();
            assert_eq!(client.command_of(&entry), Some(command), "{client:?}");
            assert!(!client.is_disabled(&entry), "{client:?}");
            let again = ["--root=/x".to_owned(), "--detach-after".to_owned(), "9".to_owned()];
            assert_eq!(client.arguments(&again, None)[1..], again, "what is given counts");
        }
        for (client, entry, waits) in [
            (KnownClient::Codex, json!({ "tool_timeout_sec": 60 }), Some("45")),
            (KnownClient::Codex, json!({ "tool_timeout_sec": 0.5 }), Some("1")),
            (KnownClient::Codex, json!({ "tool_timeout_sec": 9000 }), Some("540")),
            (KnownClient::Codex, json!({}), Some("450")),
            (KnownClient::Gemini, json!({ "timeout": 60_000 }), Some("45")),
            (KnownClient::Gemini, json!({ "timeout": 600_000 }), None),
            (KnownClient::Gemini, json!({ "timeout": -1 }), None),
            (KnownClient::Opencode, json!({ "timeout": 30_000 }), Some("22")),
            (KnownClient::Claude, json!({ "timeout": 1 }), None),
        ] {
            let found = client.arguments(&[], client.timeout(&entry));
            assert_eq!(found.get(2).map(String::as_str), waits, "{client:?} {entry}");
        }
        for entry in [json!({ "url": "http://x" }), json!(null), json!({ "command": [] })] {
            assert_eq!(KnownClient::Claude.command_of(&entry), None, "{entry}");
        }
    }
}
