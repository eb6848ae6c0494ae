//! Commands that are recommended, complete: one that was given a state directory recommends with it.

use std::path::Path;
use std::sync::OnceLock;

use crate::output::say;

/// How this program is called, once `--home` was given.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Remembers the state directory that was given as a flag; one in the environment stays there.
pub(crate) fn keep_home(home: &Path) {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%".contains(letter);
    let home = home.display().to_string();
    let quoted = if !home.is_empty() && home.chars().all(plain) {
        home
    } else {
        format!("'{}'", home.replace('\'', r"'\''"))
    };
    // There is one command line, so it is kept once.
    let _ = PROGRAM.set(format!("adjutant --home {quoted}"));
}

/// Returns the beginning of every command that is recommended.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("adjutant", String::as_str)
}

/// Completes the commands that a text of ours recommends.
pub(crate) fn completed(text: &str) -> String {
    text.replace("`adjutant ", &format!("`{} ", program()))
}

/// Says something that recommends a command.
pub(crate) fn advise(text: &str) {
    say(&completed(text));
}
