//! The arguments of `adjutant story`.

use std::path::PathBuf;

use clap::Args;

use super::{DetachedFlags, WorkFlags};

/// The arguments of `adjutant story`, which works through the stories of a PRD.
#[derive(Debug, Args)]
#[command(after_help = STORY_HELP)]
pub(crate) struct StoryArgs {
    /// The PRD: a JSON file with a list of stories.
    #[arg(value_name = "PRD.json")]
    pub(crate) prd: PathBuf,

    /// Work on this story only.
    #[arg(long, value_name = "ID")]
    pub(crate) story: Option<String>,

    /// Work on the next ready story only.
    #[arg(long, conflicts_with = "story")]
    pub(crate) next: bool,

    /// Start a story again even if an earlier run worked on it, unless that run is still live.
    #[arg(long)]
    pub(crate) again: bool,

    /// Allow what the PRD asks for and only you can allow: models, verify commands, merging.
    #[arg(long)]
    pub(crate) trust_prd: bool,

    /// The hidden flags with which the MCP server starts a run.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// The flags of all commands that start work.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// Hides the flags that have no meaning for `story`, which refuses them.
pub(super) fn hide_elsewhere(arg: clap::Arg) -> clap::Arg {
    let elsewhere = ["agent", "in_place", "preset", "system", "write"];
    if elsewhere.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }
}

/// The help of `--merge` for `story`, whose default differs from the other commands.
pub(super) const MERGE: &str = "What happens to the work of a story that passes [default: branch, or what the PRD \
asks for if you allowed it]";

/// The help of `--verify` for `story`, whose PRD has commands of its own.
pub(super) const VERIFY: &str = "The command that must succeed in a fresh copy of the work for a story to pass, \
instead of the PRD's own commands";

const STORY_HELP: &str = r#"Examples:
  adjutant story prd.json                          agents work alone; markers are reported, not run
  adjutant story prd.json --enable-delegation
  adjutant story prd.json --next                   only the next ready story
  adjutant story prd.json --story US-007 --verify "make test"

Stories run one after the other in the order of their dependencies, each in its own workspace. An agent delegates
by writing [delegate:what is to be done:hours]. A story passes when its agent returns a valid result and its verify
command succeeds. The outcome is written to the PRD, and the work becomes a branch for you to review (change this
with --merge). The budget covers all stories together."#;
