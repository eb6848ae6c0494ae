//! Completes the commands that messages recommend with the `--home` and `--root` that were typed.

use std::path::Path;
use std::sync::OnceLock;

use adjutant_view::layout::{pad_right, width, wrap_lines};
use adjutant_view::sanitize;
pub(crate) use adjutant_view::sanitize::shell_word as quoted;

use crate::output::{say, say_view};
use crate::pager;

/// The program with `--home`, once that was typed.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// The flag `--root`, once it was typed.
static ROOT: OnceLock<String> = OnceLock::new();

/// The typed flags that a recommended command must repeat.
static TYPED: OnceLock<Vec<String>> = OnceLock::new();

/// The commands that take `--root`.
const OF_A_TREE: [&str; 5] = ["run", "story", "task", "commands", "agents"];

/// Remembers a typed state directory. One in the environment also applies to the next command.
pub(crate) fn remember_home(home: &Path) {
    // There is only one command line, so this is set once.
    let _ = PROGRAM.set(format!("adjutant --home {}", quoted(&home.display().to_string())));
}

/// Remembers a typed `--root`.
pub(crate) fn remember_root(root: &Path) {
    let _ = ROOT.set(format!(" --root {}", quoted(&root.display().to_string())));
}

/// Remembers the typed flags of a command that may recommend itself.
pub(crate) fn remember_typed(flags: Vec<String>) {
    let _ = TYPED.set(flags);
}

/// Returns the remembered flags.
pub(crate) fn typed_flags() -> &'static [String] {
    TYPED.get().map_or(&[], Vec::as_slice)
}

/// Returns the program name for recommended commands, with `--home` if it was typed.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("adjutant", String::as_str)
}

/// Returns the ` --root DIR` for recommended commands, if it was typed.
pub(crate) fn root() -> &'static str {
    ROOT.get().map_or("", String::as_str)
}

/// Returns whether `--home` was typed.
pub(crate) fn has_typed_home() -> bool {
    PROGRAM.get().is_some()
}

/// Completes the commands in backticks in a text.
pub(crate) fn completed(text: &str) -> String {
    let mut parts = text.split("`adjutant ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.split([' ', '`']).next().unwrap_or_default();
        let (typed, rest) = part.split_at(part.find('`').unwrap_or(part.len()));
        let root = if OF_A_TREE.contains(&name) { root() } else { "" };
        out += &format!("`{} {typed}{root}{rest}", program());
    }
    out
}

/// Prints a message with its commands completed.
pub(crate) fn advise(text: &str) {
    say(&completed(text));
}

/// Prints commands, one per line, each with what it does. A command is in backticks, as in other messages.
pub(crate) fn advise_commands(commands: &[(String, &str)]) {
    let unquoted = |command: &str| completed(command).trim_matches('`').to_owned();
    let commands: Vec<(String, String)> =
        commands.iter().map(|(typed, about)| (unquoted(typed), (*about).to_owned())).collect();
    // Not wrapped again: a command that is wider than the terminal stays one line, which can be copied.
    let list = command_list(&commands, pager::message_columns());
    say_view(&sanitize::block(list.trim_end()));
}

/// Lists commands, one per line, with the explanations in one column. If that is wider than `columns`, each explanation
/// is below its command, so that no command is broken.
pub(crate) fn command_list(commands: &[(String, String)], columns: Option<usize>) -> String {
    let longest = commands.iter().map(|(typed, _)| width(typed)).max().unwrap_or_default();
    let row = |(typed, about): &(String, String)| {
        format!("  {}   {about}", pad_right(typed, longest)).trim_end().to_owned() + "\n"
    };
    let rows: Vec<String> = commands.iter().map(row).collect();
    let Some(columns) = columns else { return rows.concat() };
    if rows.iter().all(|row| width(row.trim_end()) <= columns) {
        return rows.concat();
    }
    let below = |(typed, about): &(String, String)| {
        let about = wrap_lines(&format!("      {about}"), columns);
        format!("  {typed}\n{}", if about.trim().is_empty() { "" } else { about.as_str() })
    };
    commands.iter().map(below).collect()
}
