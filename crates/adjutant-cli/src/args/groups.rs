//! The groups in which `adjutant --help` lists the commands; clap itself lists them in one column.
//!
//! Start at [`grouped`]. Invariant: every visible command is in exactly one group, and its summary is clap's `about`.

use std::io;

use adjutant_view::layout::wrap;
use clap::Command;
use rustix::termios::tcgetwinsize;

/// The headings of the help, in order, with the commands below each.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Start work", &["demo", "run", "delegate", "story", "gateway", "resume", "task"]),
    ("Look at runs", &["status", "tree", "watch", "result", "transcript", "cost", "errors", "log"]),
    ("Steer runs", &["tell", "wait", "cancel", "approvals", "approve"]),
    ("Review changes", &["diff", "merge", "discard", "undo", "prune"]),
    (
        "Set up",
        &[
            "init",
            "models",
            "workers",
            "agents",
            "commands",
            "policy",
            "mcp",
            "completions",
            "update",
            #[cfg(feature = "restate")]
            "serve-worker",
            #[cfg(feature = "restate")]
            "cluster",
        ],
    ),
    ("Check", &["doctor", "eval", "check", "parse", "validate"]),
];

/// Gives the command a help that lists its subcommands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let style = *command.get_styles().get_header();
    let heading = |text: &str| format!("{style}{text}:{style:#}\n");
    let groups: String = GROUPS
        .iter()
        .map(|(name, commands)| format!("{}{}\n", heading(name), lines(&command, commands)))
        .collect();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\
         `adjutant help COMMAND` describes a command.\n\n{}{{options}}{{after-help}}",
        heading("Options"),
    );
    command.help_template(template)
}

/// Returns one line per command: its name and its summary.
fn lines(command: &Command, names: &[&str]) -> String {
    let (style, columns) = (*command.get_styles().get_literal(), help_columns());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let found = names.iter().filter_map(|name| command.find_subcommand(name));
    let line = |it: &Command| {
        let (name, about) = (it.get_name(), it.get_about().map(ToString::to_string));
        let about = wrap(&about.unwrap_or_default(), columns.saturating_sub(width + 4).max(1));
        let about = about.join(&format!("\n{:indent$}", "", indent = width + 4));
        format!("  {style}{name:width$}{style:#}  {about}\n")
    };
    found.map(line).collect()
}

/// Returns the width of the help as clap determines it: that of the terminal, or `COLUMNS`, or 100.
fn help_columns() -> usize {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0);
    let of_terminal = size.map(|size| usize::from(size.ws_col));
    let of_variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    of_terminal.or_else(of_variable).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{GROUPS, grouped};
    use crate::args::Cli;

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let cli = Cli::command();
        let mut visible: Vec<&str> =
            cli.get_subcommands().filter(|it| !it.is_hide_set()).map(|it| it.get_name()).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
    }

    #[test]
    fn the_help_shows_the_summary_of_every_command_within_80_columns() {
        let help = grouped(Cli::command()).render_help().to_string();
        for command in Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let (name, about) = (command.get_name(), command.get_about().unwrap().to_string());
            let is_row = |line: &&str| {
                line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with("  "))
            };
            let row = help.lines().find(is_row).unwrap_or_else(|| panic!("no line for {name}"));
            assert!(row.ends_with(&about), "{row}");
            assert!(row.chars().count() <= 80, "{} columns: {row}", row.chars().count());
        }
    }
}
