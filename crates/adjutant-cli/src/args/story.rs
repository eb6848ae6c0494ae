//! The arguments of `adjutant story`.

use std::path::PathBuf;

use clap::Args;

use super::{DetachedFlags, WorkFlags};

/// `adjutant story`.
#[derive(Debug, Args)]
#[command(after_help = STORY_HELP)]
pub(crate) struct StoryArgs {
    /// The PRD: a JSON file with a list of stories.
    #[arg(value_name = "PRD.json")]
    pub(crate) prd: PathBuf,

    /// Only the story of that id.
    #[arg(long, value_name = "ID")]
    pub(crate) story: Option<String>,

    /// Only the next story that is ready.
    #[arg(long, conflicts_with = "story")]
    pub(crate) next: bool,

    /// The command that has to succeed in the workspace before a story passes, in place of those of the PRD.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) verify: Option<String>,

    /// Begin a story anew whatever earlier runs on it came to, unless one is running.
    #[arg(long)]
    pub(crate) again: bool,

    /// Allow what the PRD asks for that only you can allow: models, verify commands, merging.
    #[arg(long)]
    pub(crate) trust_prd: bool,

    /// How the MCP server starts its runs.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// How it is done.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// Hides what means something only for other commands; `story` refuses it.
pub(super) fn hide_elsewhere(arg: clap::Arg) -> clap::Arg {
    let elsewhere = ["agent", "in_place", "preset", "system", "write"];
    if elsewhere.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }
}

/// What `--merge` says here; elsewhere nothing but a report is the default.
pub(super) const MERGE: &str = "What becomes of the work of a story that passes [default: branch, unless the PRD asks \
for something else and you allowed it]";

const STORY_HELP: &str = r#"Examples:
  adjutant story prd.json                          what would be delegated is reported, not run
  adjutant story prd.json --enable-delegation
  adjutant story prd.json --next                   one story, the next that is ready
  adjutant story prd.json --story US-007 --verify "make test"

Stories run one after the other, those they depend on first, each in a workspace of its own. An agent hands
work down by writing [delegate:what is to be done:hours]. A story passes once its agent hands back a valid
result and its verify command succeeds; what came of it is written into the PRD, and its work is a branch
to look at (--merge says otherwise). The budget is that of all stories together."#;
