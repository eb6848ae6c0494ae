//! The arguments of `adjutant approve`, and the hidden flags with which the MCP server starts runs.

use adjutant_mcp::ApprovalMode;
use clap::Args;

/// The arguments of `adjutant approve`, which answers a call that waits for approval.
#[derive(Debug, Args)]
#[command(after_help = APPROVE_HELP)]
pub(crate) struct ApproveCallArgs {
    /// The id of the question, or its beginning.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The code that `adjutant approvals` prints with the question.
    #[arg(value_name = "CODE", required_unless_present = "deny")]
    pub(crate) code: Option<String>,

    /// Refuse the call; needs no code.
    #[arg(long, conflicts_with = "code")]
    pub(crate) deny: bool,
}

const APPROVE_HELP: &str = "Examples:
  adjutant approvals                       what waits, with its worst-case cost and what it may do
  adjutant approve 4f1c09a2be K7QM2P       start the call
  adjutant approve --deny 4f1c09a2be       refuse the call

An answer applies to this one call, once, and only until the question expires. Codes are printed only on a
terminal, and answers are accepted only from a terminal, so that a command run by a model cannot approve
anything by accident. The security boundary is your user account: a program that runs as you can approve as you.";

/// The hidden flags with which the MCP server starts a run.
#[derive(Debug, Default, Args)]
pub(crate) struct DetachedFlags {
    /// Start a new process session.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// What happens when the call needs approval.
    #[arg(long, hide = true, requires = "detached", value_name = "HOW")]
    pub(crate) approval: Option<ApprovalMode>,

    /// The MCP client that asked for the run.
    #[arg(long, hide = true, requires = "detached", value_name = "NAME")]
    pub(crate) client: Option<String>,

    /// The most runs of MCP clients at once in this directory.
    #[arg(long, hide = true, requires = "detached", value_name = "N")]
    pub(crate) max_runs: Option<u32>,

    /// End when this process ends; it must be the parent.
    #[arg(long, hide = true, requires = "detached", value_name = "PID")]
    pub(crate) leash: Option<i32>,
}
