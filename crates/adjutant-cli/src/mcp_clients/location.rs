//! Knows where each client keeps its configuration.
//!
//! From their documentation, November 2026: code.claude.com/docs/en/mcp,
//! developers.openai.com/codex/mcp, opencode.ai/docs/config, geminicli.com/docs/tools/mcp-server,
//! code.visualstudio.com/docs/agents/reference/mcp-configuration, cursor.com/docs/mcp.

use std::env;
use std::path::{Path, PathBuf};

use adjutant_mcp::KnownClient;

use crate::args::McpScope;
use crate::delegate::absolute;
use crate::exit::Failure;

/// The path of a configuration file that exists or would be created.
#[derive(Clone, Debug)]
pub(crate) struct ConfigLocation {
    /// The path.
    pub(crate) path: PathBuf,
    /// Whether it is the project's or the user's.
    pub(crate) scope: McpScope,
    /// The directory that symbolic links must not leave; set for project files.
    pub(crate) within: Option<PathBuf>,
}

impl ConfigLocation {
    /// Returns the existing files that the client reads, or the one that would be created.
    pub(crate) fn find(
        client: KnownClient,
        scope: McpScope,
        root: &Path,
    ) -> Result<Vec<Self>, Failure> {
        let (folder, within) = match scope {
            McpScope::Project => {
                let root = absolute(root)?;
                (project(client, &root), Some(root))
            }
            McpScope::User => (user(client)?, None),
        };
        let names = names(client, scope);
        let mut paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        paths.retain(|path| path.symlink_metadata().is_ok());
        if paths.is_empty() {
            paths.push(folder.join(names[0]));
        }
        Ok(paths.into_iter().map(|path| Self { path, scope, within: within.clone() }).collect())
    }
}

/// Returns the possible file names, the default first.
const fn names(client: KnownClient, scope: McpScope) -> &'static [&'static str] {
    match (client, scope) {
        (KnownClient::Claude, McpScope::Project) => &[".mcp.json"],
        (KnownClient::Claude, McpScope::User) => &[".claude.json"],
        (KnownClient::Codex, _) => &["config.toml"],
        (KnownClient::Opencode, _) => &["opencode.json", "opencode.jsonc"],
        (KnownClient::Gemini, _) => &["settings.json"],
        (KnownClient::Vscode | KnownClient::Cursor, _) => &["mcp.json"],
    }
}

fn project(client: KnownClient, root: &Path) -> PathBuf {
    match client {
        KnownClient::Claude | KnownClient::Opencode => root.to_owned(),
        KnownClient::Codex => root.join(".codex"),
        KnownClient::Gemini => root.join(".gemini"),
        KnownClient::Vscode => root.join(".vscode"),
        KnownClient::Cursor => root.join(".cursor"),
    }
}

fn user(client: KnownClient) -> Result<PathBuf, Failure> {
    let home = || {
        absolute_variable("HOME")
            .ok_or_else(|| Failure::usage("cannot find your configuration: HOME is not set"))
    };
    let config = || match absolute_variable("XDG_CONFIG_HOME") {
        Some(config) => Ok(config),
        None => home().map(|home| home.join(".config")),
    };
    let named = |variable: &str| absolute_variable(variable).map(Ok);
    match client {
        KnownClient::Claude => named("CLAUDE_CONFIG_DIR").unwrap_or_else(home),
        KnownClient::Codex => named("CODEX_HOME").unwrap_or_else(|| Ok(home()?.join(".codex"))),
        KnownClient::Opencode => Ok(config()?.join("opencode")),
        KnownClient::Gemini => Ok(home()?.join(".gemini")),
        KnownClient::Vscode => Ok(config()?.join("Code/User")),
        KnownClient::Cursor => Ok(home()?.join(".cursor")),
    }
}

fn absolute_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
