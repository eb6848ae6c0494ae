//! The arguments of `adjutant init`.

use clap::Args;

/// The arguments of `adjutant init`, which writes the user's configuration.
#[derive(Debug, Args)]
#[command(after_help = INIT_HELP)]
pub(crate) struct InitArgs {
    /// Ask nothing: write the commented file.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

const INIT_HELP: &str = "On a terminal, it asks for a provider with a key or a model server on this machine, checks the \
model with one small request if you want, writes config.toml, and offers to add the server to the MCP clients that it \
finds. Without a terminal, with --yes and with --json, it writes a file in which every setting is commented out. An \
existing file is never changed.";
