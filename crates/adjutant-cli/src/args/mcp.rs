//! `adjutant mcp`: its flags and their help.

use std::net::SocketAddr;
use std::path::PathBuf;

use adjutant_mcp::ApprovalMode;
use clap::{Args, Subcommand, ValueEnum};

use super::{PolicyFlags, dollars};

/// `adjutant mcp`.
#[derive(Debug, Args)]
#[command(after_help = MCP_HELP)]
pub(crate) struct McpArgs {
    /// What else to do.
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,

    /// The tree the subagents look at.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The model, as provider/model, script:FILE or replay:FILE.
    #[arg(long, env = "ADJUTANT_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// What becomes of a call that needs your approval: `inbox` (a client that can asks you, else it waits for
    /// `adjutant approve`), `deny` (it is refused), or `auto-below USD` (it starts while the worst cases of all
    /// clients' calls of today fit the amount, where ended runs count with what they cost; else as with inbox) [default: `approval` in `[mcp]` of your config.toml, else inbox].
    #[arg(long, value_name = "HOW")]
    pub(crate) approval: Option<ApprovalMode>,

    /// The same as --approval "auto-below USD".
    #[arg(
        long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars,
        conflicts_with = "approval"
    )]
    pub(crate) approve_below: Option<f64>,

    /// Ask you through a client that can (MCP elicitation) [default: `ask_client` in `[mcp]` of your config.toml, else true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) ask_client: Option<bool>,

    /// What becomes of the runs of a server that ends or is killed [default: `on_disconnect` in `[mcp]` of
    /// your config.toml, else keep]. A client that only breaks off a request over HTTP ends no run; that
    /// takes delegate_cancel or tasks/cancel.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_disconnect: Option<OnDisconnect>,

    /// The most runs of this tree that clients may have alive at once, those that wait for approval included
    /// [default: `max_runs` in `[mcp]` of your config.toml, else 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_runs: Option<u32>,

    /// The most dollars each run may spend.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens each run may use.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// Answer a call with a handle after so long, before the client gives up; the run goes on. Each
    /// known client has a time of its own; others get one after 25 seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) detach_after: Option<u64>,

    /// The most bytes of one result, text and data together; longer reports are cut, and a link leads to the
    /// whole. Each known client has a size of its own; others get 80000.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(4000..))]
    pub(crate) result_bytes: Option<u32>,

    /// Serve HTTP on this loopback address instead, such as 127.0.0.1:8765; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,

    /// Let pages of this origin ask over HTTP, such as http://localhost:6274; can be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const MCP_HELP: &str = r#"Examples:
  adjutant mcp install claude                      add the server to this project's configuration
  adjutant mcp install codex --print               only show what would be added
  adjutant mcp --approval "auto-below 1.00" --budget-usd 0.25
  adjutant mcp --http 127.0.0.1:8765               for several clients at once, with a token
  adjutant approvals                               the calls that wait for you

A client starts this command and speaks to it on standard input and output. Each run lives in a process
of its own and goes on when the client or the server ends; `adjutant status` shows it like any other. The
client can start, watch and cancel runs of this tree, and approve nothing: a call that needs your approval
is put to you through a client that can do so, and else waits for `adjutant approve` in any terminal.
Slash commands and stories run under their own presets, --preset or not. Beyond an amount of `auto-below` you
are asked about the whole run before its agent begins, and then about what its agents hand down; what a PRD
wishes for is not granted through a client.

With --http the address is printed on standard output, and a bearer token once on standard error, unless
ADJUTANT_MCP_TOKEN (32 characters or more) holds yours. Every request must show it. Runs belong to the token
they were begun with: with the same one a server that is started again finds them, with another it does not.
A call whose connection breaks goes on; it is heard again with Last-Event-ID, by an equal call or by its
handle. Revisions 2025-06-18, 2025-11-25 and 2026-07-28 of the protocol are spoken, here and on standard
input and output."#;

/// What becomes of runs when their server is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDisconnect {
    /// They go on; another server finds them.
    #[default]
    Keep,
    /// They are cancelled, and what was found is kept.
    Cancel,
}

/// What `adjutant mcp` does beside serving.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add the server to a client's configuration; everything else in the file stays as it is.
    #[command(after_help = INSTALL_HELP)]
    Install {
        /// The client.
        #[arg(value_enum)]
        client: McpClient,

        /// Print what the file must hold; the file itself is left to you.
        #[arg(long)]
        print: bool,

        /// Whose configuration: this project's, or yours for all projects.
        #[arg(long, value_enum, value_name = "SCOPE")]
        scope: Option<McpScope>,

        /// What the client starts the server with, such as --model MODEL or --approve-below USD.
        #[arg(last = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },

    /// Take the server out of a client's configuration again.
    Remove {
        /// The client.
        #[arg(value_enum)]
        client: McpClient,

        /// Whose configuration: this project's, or yours for all projects.
        #[arg(long, value_enum, value_name = "SCOPE")]
        scope: Option<McpScope>,
    },
}

const INSTALL_HELP: &str = r#"Examples:
  adjutant mcp install claude
  adjutant mcp install codex --scope user -- --model ollama/qwen3 --approve-below 0.50

Without --scope the project's file is changed, for Codex yours, since it reads a project's file only
once you trust the project. The old file is kept beside the new one as FILE.before-adjutant, the first
time. A second install changes nothing, or only the path of this program, and keeps the flags unless
others are given. A project's entry that starts another program and has flags or variables of its own is
left alone until you type the flags: it may be somebody else's."#;

/// Whose configuration is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpScope {
    /// The project's, in the folder of --root.
    Project,
    /// The person's, in their home.
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
