//! Flags of another tool that stand for commands of ours (requirement 56).
//!
//! `--delegation-status` is `status` and `--delegation-tree` is `tree`, in place of a command or behind
//! one of the two. Anywhere else they stay what they are: unknown.

use std::ffi::{OsStr, OsString};

const ALIASES: [(&str, &str); 2] =
    [("--delegation-status", "status"), ("--delegation-tree", "tree")];

/// Returns the words of a command line with the aliases as commands.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let meant = |word: &OsString| ALIASES.iter().find(|(alias, _)| word == alias);
    let Some((at, (_, command))) =
        words[..end].iter().enumerate().find_map(|(at, word)| Some((at, meant(word)?)))
    else {
        return words;
    };
    let first = first_word(&words[..end]);
    match first.filter(|first| is_either(&words[*first])) {
        Some(first) => {
            words[first] = (*command).into();
            words.remove(at);
        }
        None if first.is_none_or(|first| at < first) => words[at] = (*command).into(),
        None => {}
    }
    words
}

/// Returns the first word that is neither a flag nor the value of one: the command.
pub(super) fn first_command(words: impl IntoIterator<Item = OsString>) -> Option<String> {
    let words: Vec<OsString> = words.into_iter().collect();
    first_word(&words).map(|at| words[at].to_string_lossy().into_owned())
}

/// Returns the place of the first word that is neither a flag nor the value of one.
fn first_word(words: &[OsString]) -> Option<usize> {
    let is_flag = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    (1..words.len()).find(|&at| !is_flag(&words[at]) && words[at - 1] != "--home")
}

fn is_either(word: &OsStr) -> bool {
    ALIASES.iter().any(|(_, command)| word == *command)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn the_flags_are_commands_where_a_command_may_stand() {
        for (typed, meant) in [
            ("--delegation-tree", "tree"),
            ("--delegation-status", "status"),
            ("--delegation-tree run_1 --json", "tree run_1 --json"),
            ("--json --home d --delegation-tree", "--json --home d tree"),
            ("status --delegation-tree", "tree"),
            ("status run_1 --delegation-tree --json", "tree run_1 --json"),
            ("tree --delegation-tree run_1", "tree run_1"),
            ("tree --delegation-status run_1", "status run_1"),
            ("--delegation-status tree run_1", "status run_1"),
            ("run --delegation-tree", "run --delegation-tree"),
            ("run -- --delegation-tree", "run -- --delegation-tree"),
            ("status", "status"),
            ("", ""),
        ] {
            let words = std::iter::once("adjutant").chain(typed.split_whitespace());
            let read: Vec<String> =
                read(words.map(Into::into)).iter().map(|it| it.to_string_lossy().into()).collect();
            assert_eq!(read[1..].join(" "), meant, "{typed}");
        }
    }
}
