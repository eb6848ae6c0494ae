//! `--help`, `--version`, `completions`, and the hidden subcommand.

mod sandbox;
mod texts;
