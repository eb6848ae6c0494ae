//! Words of other tools that people type in place of our commands.
//!
//! Clap suggests commands with a similar spelling. For these words the command with the same meaning is suggested instead:
//! `ps` is not spelled like `status`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What people type, and the commands they may mean.
const MEANINGS: [(&[&str], &[&str]); 21] = [
    (&["list", "ls", "lst", "ps", "runs", "jobs", "history"], &["status"]),
    (&["show", "info", "inspect", "describe", "view", "get"], &["status", "result"]),
    (&["stop", "kill", "abort", "end", "terminate", "quit"], &["cancel"]),
    (&["logs", "journal", "events"], &["log"]),
    (&["start", "exec", "new", "create", "ask", "prompt", "spawn"], &["run", "delegate"]),
    (&["tail", "follow", "attach", "monitor", "top", "live"], &["watch"]),
    (&["output", "results", "report", "answer"], &["result"]),
    (&["send", "say", "message", "msg", "chat"], &["tell"]),
    (&["continue", "restart", "retry", "recover"], &["resume"]),
    (&["rm", "remove", "delete", "drop"], &["discard", "prune"]),
    (&["clean", "cleanup", "gc", "purge"], &["prune"]),
    (&["apply", "accept", "land"], &["merge"]),
    (&["revert", "rollback", "restore"], &["undo"]),
    (&["changes", "patch"], &["diff"]),
    (&["usage", "spend", "spent", "bill", "billing", "price", "prices"], &["cost"]),
    (&["inbox", "pending", "questions"], &["approvals"]),
    (&["deny", "reject", "refuse", "allow"], &["approve"]),
    (&["serve", "server", "install"], &["mcp"]),
    (&["config", "configure", "setup"], &["init", "policy"]),
    (&["limits", "presets", "budget"], &["policy"]),
    (&["upgrade", "self-update"], &["update"]),
];

/// Suggests the commands that an unknown word probably means, instead of commands with a similar spelling.
///
/// `command` is the first word of the command line that is not a flag: words of nested commands, such as `task ls`,
/// have meanings of their own.
pub(super) fn suggest(mut error: clap::Error, command: Option<&str>) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    if error.kind() != ErrorKind::InvalidSubcommand || command != Some(typed) {
        return error;
    }
    let word = typed.to_lowercase();
    let Some((_, meant)) = MEANINGS.iter().find(|(words, _)| words.contains(&word.as_str())) else {
        return error;
    };
    let meant = meant.iter().map(|&it| it.to_owned()).collect();
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::MEANINGS;
    use crate::args::Cli;

    #[test]
    fn every_suggestion_is_a_command_and_no_word_is_one_or_stands_twice() {
        let cli = Cli::command();
        let mut seen = std::collections::BTreeSet::new();
        for (words, meant) in MEANINGS {
            for word in words {
                assert!(cli.find_subcommand(word).is_none(), "{word} is a command");
                assert!(seen.insert(word), "{word} stands twice");
            }
            for command in meant {
                assert!(cli.find_subcommand(command).is_some(), "{command}");
            }
        }
    }
}
