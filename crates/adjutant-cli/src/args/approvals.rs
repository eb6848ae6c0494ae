//! `adjutant approve`, and how the MCP server starts the runs that may have to wait for it.

use adjutant_mcp::ApprovalMode;
use clap::Args;

/// `adjutant approve`.
#[derive(Debug, Args)]
#[command(after_help = APPROVE_HELP)]
pub(crate) struct ApproveArgs {
    /// The question, by its id or the start of it.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The code that `adjutant approvals` shows beside it.
    #[arg(value_name = "CODE", required_unless_present = "deny")]
    pub(crate) code: Option<String>,

    /// Refuse the call instead; no code is needed.
    #[arg(long, conflicts_with = "code")]
    pub(crate) deny: bool,
}

const APPROVE_HELP: &str = "Examples:
  adjutant approvals                       what waits, with everything that is at stake
  adjutant approve 4f1c09a2be K7QM2P       the call starts
  adjutant approve --deny 4f1c09a2be       the call is refused

An answer is bound to exactly that call, counts once, and must come before the question expires. The code is
shown on a terminal only, and an answer is taken from a terminal only, so that what a model can run by itself
approves nothing by accident. The boundary is your user account: a program that can act as you can do what
you can.";

/// How the MCP server starts its runs.
#[derive(Debug, Default, Args)]
pub(crate) struct DetachedFlags {
    /// Leave the session of whoever starts it.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// What becomes of the call where it needs approval.
    #[arg(long, hide = true, requires = "detached", value_name = "HOW")]
    pub(crate) approval: Option<ApprovalMode>,

    /// On whose behalf it works.
    #[arg(long, hide = true, requires = "detached", value_name = "NAME")]
    pub(crate) client: Option<String>,

    /// The most such runs of the tree at once.
    #[arg(long, hide = true, requires = "detached", value_name = "N")]
    pub(crate) max_runs: Option<u32>,

    /// End with this process, which must be the one that started it.
    #[arg(long, hide = true, requires = "detached", value_name = "PID")]
    pub(crate) leash: Option<i32>,
}
