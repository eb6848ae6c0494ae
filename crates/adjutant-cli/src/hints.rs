//! Completes the commands that messages recommend with the `--home` and `--root` that were typed.

use std::path::Path;
use std::sync::OnceLock;

pub(crate) use adjutant_view::sanitize::shell_word as quoted;

use crate::output::say;

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
