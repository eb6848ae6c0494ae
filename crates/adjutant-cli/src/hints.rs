//! Commands that are recommended, complete: one that was given a state directory or another tree
//! recommends with it.

use std::path::Path;
use std::sync::OnceLock;

pub(crate) use adjutant_view::sanitize::shell_word as quoted;

use crate::output::say;

/// How this program is called, once `--home` was given.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// The flag for another tree, once `--root` was given.
static ROOT: OnceLock<String> = OnceLock::new();

/// The flags that were typed and count the next time too.
static TYPED: OnceLock<Vec<String>> = OnceLock::new();

/// The commands that look at the tree that `--root` names.
const OF_A_TREE: [&str; 5] = ["run", "story", "task", "commands", "agents"];

/// Remembers the state directory that was given as a flag; one in the environment stays there.
pub(crate) fn keep_home(home: &Path) {
    // There is one command line, so it is kept once.
    let _ = PROGRAM.set(format!("adjutant --home {}", quoted(&home.display().to_string())));
}

/// Remembers the tree that was given as a flag.
pub(crate) fn keep_root(root: &Path) {
    let _ = ROOT.set(format!(" --root {}", quoted(&root.display().to_string())));
}

/// Remembers the flags that were typed for a command which may recommend itself.
pub(crate) fn keep_typed(flags: Vec<String>) {
    let _ = TYPED.set(flags);
}

/// Returns the flags that were typed.
pub(crate) fn typed() -> &'static [String] {
    TYPED.get().map_or(&[], Vec::as_slice)
}

/// Returns the beginning of every command that is recommended.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("adjutant", String::as_str)
}

/// Returns the end of every recommended command that looks at the tree.
pub(crate) fn root() -> &'static str {
    ROOT.get().map_or("", String::as_str)
}

/// Completes the commands that a text of ours recommends.
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

/// Says something that recommends a command.
pub(crate) fn advise(text: &str) {
    say(&completed(text));
}
