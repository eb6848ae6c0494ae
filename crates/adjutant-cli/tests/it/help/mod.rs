//! `--help`, `--version`, `completions`, the hidden subcommand, and `adjutant` without a command.

mod next_steps;
mod sandbox;
mod texts;
mod widths;
