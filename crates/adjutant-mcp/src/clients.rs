//! How clients are told of the server: the entry of each one's configuration.

use serde_json::{Value, json};

/// A program that speaks to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
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

/// What to put where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file, as people know it.
    pub file: &'static str,
    /// What it must hold.
    pub text: String,
}

/// Seconds that clients which can be told should wait for an answer; ours comes sooner.
const PATIENCE_S: u64 = 600;

impl Client {
    /// Returns the entry for a server that is started with `command`.
    #[must_use]
    pub fn entry(self, command: &[String]) -> Entry {
        let (program, arguments) =
            command.split_first().map_or(("", &[][..]), |(one, rest)| (one.as_str(), rest));
        let plain = json!({ "command": program, "args": arguments });
        let typed = json!({ "type": "stdio", "command": program, "args": arguments });
        let whole = |key: &str, server: &Value| json!({ key: { "adjutant": server } });
        let (file, json) = match self {
            Self::Claude => (".mcp.json", whole("mcpServers", &typed)),
            Self::Codex => {
                let list: Vec<String> = arguments.iter().map(|it| json!(it).to_string()).collect();
                let text = format!(
                    "[mcp_servers.adjutant]\ncommand = {}\nargs = [{}]\ntool_timeout_sec = {PATIENCE_S}\n",
                    json!(program),
                    list.join(", ")
                );
                return Entry { file: "~/.codex/config.toml", text };
            }
            Self::Opencode => (
                "opencode.json",
                whole("mcp", &json!({ "type": "local", "command": command, "enabled": true })),
            ),
            Self::Gemini => {
                let patience = json!(PATIENCE_S * 1000);
                let mut server = plain;
                server["timeout"] = patience;
                (".gemini/settings.json", whole("mcpServers", &server))
            }
            Self::Vscode => (".vscode/mcp.json", whole("servers", &typed)),
            Self::Cursor => (".cursor/mcp.json", whole("mcpServers", &plain)),
        };
        Entry { file, text: format!("{json:#}\n") }
    }
}
