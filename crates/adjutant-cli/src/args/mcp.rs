//! The arguments and the help of `adjutant mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use adjutant_mcp::ApprovalMode;
use clap::{Args, Subcommand, ValueEnum};

use super::{PolicyFlags, dollars};

/// The arguments of `adjutant mcp`, which serves MCP clients or changes their configuration.
#[derive(Debug, Args)]
#[command(after_help = MCP_HELP)]
pub(crate) struct McpArgs {
    /// A subcommand; without one, the server runs.
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,

    /// The directory the subagents work on.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The model: provider/model, script:FILE or replay:FILE.
    #[arg(long, env = "ADJUTANT_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// What happens to a call that needs your approval. `inbox`: the client asks you if it can, otherwise the call
    /// waits for `adjutant approve`. `deny`: it is refused. `auto-below USD`: it starts without asking while the worst
    /// cases of today's calls of all clients fit the amount (ended runs count with their actual cost), otherwise as
    /// with `inbox` [default: `approval` in `[mcp]` of your config.toml, or else inbox].
    #[arg(long, value_name = "HOW")]
    pub(crate) approval: Option<ApprovalMode>,

    /// The same as --approval "auto-below USD".
    #[arg(
        long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars,
        conflicts_with = "approval"
    )]
    pub(crate) approve_below: Option<f64>,

    /// Ask you through the client if it supports MCP elicitation [default: `ask_client` in `[mcp]` of your config.toml, or else true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) ask_client: Option<bool>,

    /// What happens to the runs of a server that ends or is killed [default: `on_disconnect` in `[mcp]` of your
    /// config.toml, or else keep]. A client that only drops an HTTP request does not end a run; `delegate_cancel` and
    /// `tasks/cancel` do.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_disconnect: Option<OnDisconnect>,

    /// The most live runs of clients in this directory at once, including those that wait for approval
    /// [default: `max_runs` in `[mcp]` of your config.toml, or else 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_runs: Option<u32>,

    /// The most dollars each run may spend.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens each run may use.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// A git-ignored directory to include in the workspaces of `delegate_write`, such as target; can be repeated. You are
    /// asked about every such call then.
    #[arg(long, value_name = "DIR")]
    pub(crate) include_ignored: Vec<PathBuf>,

    /// A directory that commands of `delegate_write` may read in addition to the system's; can be repeated. You are asked
    /// about every such call then.
    #[arg(long, value_name = "DIR")]
    pub(crate) grant: Vec<PathBuf>,

    /// Answer a call with a handle after this many seconds, before the client times out; the run continues
    /// [default: depends on the client; 25 for unknown ones].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) detach_after: Option<u64>,

    /// The most bytes in one result, text and data together; longer reports are cut and link to the full text
    /// [default: depends on the client; 80000 for unknown ones].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(4000..))]
    pub(crate) result_bytes: Option<u32>,

    /// Serve HTTP on this loopback address instead, such as 127.0.0.1:8765; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,

    /// Accept HTTP requests from web pages of this origin, such as http://localhost:6274; can be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const MCP_HELP: &str = r#"Examples:
  adjutant mcp install claude                      add the server to this project's configuration
  adjutant mcp install codex --print               only print what would be added
  adjutant mcp --approval "auto-below 1.00" --budget-usd 0.25
  adjutant mcp --http 127.0.0.1:8765               for several clients at once, with a token
  adjutant approvals                               the calls that wait for you

An MCP client starts this command and talks to it on standard input and output. Each run has its own process and
continues when the client or the server ends; `adjutant status` shows it like any other. The client can start, watch
and cancel runs in this directory, but it cannot approve anything: a call that needs your approval is shown to you
by the client if it can do that, and otherwise waits for `adjutant approve` in any terminal. Slash commands and
stories always run under their own presets. If `auto-below` does not cover a run, you are asked about the whole run
before its agent starts, and then about what its agents delegate. What a PRD asks for beyond its limits is never
allowed through a client.

With --http, the address is printed to standard output and a new bearer token to standard error, unless
ADJUTANT_MCP_TOKEN contains yours (32 characters or more). Every request must send the token. Runs belong to the
token they were started with: a restarted server with the same token finds them again. A call continues when its
connection breaks; reconnect with Last-Event-ID, repeat the same call, or use its handle. The server speaks
revisions 2025-06-18, 2025-11-25 and 2026-07-28 of the protocol, on both transports."#;

/// What happens to runs when their server ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDisconnect {
    /// They continue; another server finds them.
    #[default]
    Keep,
    /// They are cancelled; partial results are kept.
    Cancel,
}

/// The subcommands of `adjutant mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add the server to a client's configuration; the rest of the file stays as it is.
    #[command(after_help = INSTALL_HELP)]
    Install {
        /// The client.
        #[arg(value_enum)]
        client: McpClient,

        /// Print the entry instead of changing the file.
        #[arg(long)]
        print: bool,

        /// Which configuration to change: this project's, or yours for all projects.
        #[arg(long, value_enum, value_name = "SCOPE")]
        scope: Option<McpScope>,

        /// The flags the client starts the server with, such as --model MODEL or --approve-below USD.
        #[arg(last = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },

    /// Remove the server from a client's configuration.
    Remove {
        /// The client.
        #[arg(value_enum)]
        client: McpClient,

        /// Which configuration to change: this project's, or yours for all projects.
        #[arg(long, value_enum, value_name = "SCOPE")]
        scope: Option<McpScope>,
    },
}

const INSTALL_HELP: &str = r#"Examples:
  adjutant mcp install claude
  adjutant mcp install codex --scope user -- --model ollama/qwen3 --approve-below 0.50

Without --scope, the project's file is changed; for Codex it is yours, because Codex reads a project's file only
after you trust the project. The first time, the old file is saved as FILE.before-adjutant. A second install changes
nothing, or only the path of this program, and keeps the flags unless you give others. An entry in a project's file
that starts another program with its own flags or variables is left alone until you give the flags: someone else may
have written it."#;

/// Which configuration file to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpScope {
    /// The project's, in the directory given with --root.
    Project,
    /// Yours, in your home directory.
    User,
}

/// The clients whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
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
