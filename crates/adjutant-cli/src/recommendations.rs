//! Tests that the program accepts every command and flag that its messages recommend.
//!
//! The messages are collected from the sources of all crates, so that none can be forgotten: commands in backticks
//! that begin with `adjutant`, and flags in sentences. The commands of the README and the guide are parsed too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use adjutant_core::policy::PolicyKey;
use clap::{Command, CommandFactory};

use crate::args::Cli;

mod by_command;

/// Placeholder for a format argument.
const VALUE: char = '\u{1}';

/// Values for the placeholder; the command must be accepted with one of them.
const VALUES: [&str; 7] = ["1", "claude", "apply", "0.5", "concurrency=1", "agent", "status"];

/// Returns the string literals of a source file before its tests, with format arguments replaced.
fn texts(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut texts = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, from) = rest.split_at(at);
        if from.starts_with("//") {
            rest = from.split_once('\n').map_or("", |(_, after)| after);
        } else if from.starts_with("'\"'") || from.starts_with("'\\") {
            rest = &from[3..];
        } else if let Some(quoted) = from.strip_prefix('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let is_raw = before.trim_end_matches('#').ends_with('r');
            let (text, after) = if is_raw { raw(quoted, hashes) } else { escaped(quoted) };
            texts.push(fill_arguments(&text));
            rest = after;
        } else {
            rest = &from[1..];
        }
    }
    texts
}

fn raw(from: &str, hashes: usize) -> (String, &str) {
    let end = format!("\"{}", "#".repeat(hashes));
    from.split_once(&end).map_or((String::new(), ""), |(text, after)| (text.to_owned(), after))
}

fn escaped(from: &str) -> (String, &str) {
    let mut text = String::new();
    let mut letters = from.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &from[at + 1..]),
            '\\' => match letters.next() {
                // A line continuation: the indentation is not part of the string.
                Some((_, '\n')) => {
                    while letters.clone().next().is_some_and(|(_, next)| next.is_whitespace()) {
                        letters.next();
                    }
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, other)) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    (text, "")
}

/// Replaces format arguments such as `{}` and `{run}` by [`VALUE`].
fn fill_arguments(text: &str) -> String {
    let (mut filled, mut depth) = (String::new(), 0_u32);
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    filled.push(VALUE);
                }
            }
            _ if depth == 0 => filled.push(letter),
            _ => {}
        }
    }
    filled
}

/// Returns the string literals of all crates, each with its file.
fn all_texts() -> Vec<(String, String)> {
    fn visit(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let source = fs::read_to_string(&path).unwrap();
                let name = path.display().to_string();
                found.extend(texts(&source).into_iter().map(|text| (name.clone(), text)));
            }
        }
    }
    let mut found = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["core", "view", "engine", "cli", "mcp", "model", "store", "workspace", "tools"] {
        visit(&crates.join(format!("adjutant-{name}")).join("src"), &mut found);
    }
    assert!(found.len() > 1_000, "only {} texts were found", found.len());
    found
}

/// Splits a command into words, with quotes as in a shell.
fn split_words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match letter {
            '"' | '\'' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            _ if quote == Some(letter) => quote = None,
            ' ' if quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Returns what is wrong with a recommended command; `None` if it is accepted with some value.
fn complaint(command: &str) -> Option<String> {
    // A bare subcommand is only mentioned, not meant to be typed.
    let name = command.strip_prefix("adjutant ").unwrap_or_default();
    if Cli::command().find_subcommand(name).is_some() {
        return None;
    }
    // A placeholder at the end may stand for flags, which are checked in the message they come from.
    let without_flags = command.strip_suffix(&format!(" {VALUE}"));
    let mut said = None;
    for (command, value) in [Some(command), without_flags]
        .into_iter()
        .flatten()
        .flat_map(|command| VALUES.map(|value| (command, value)))
    {
        let is_name = |word: &str| {
            word.len() > 1
                && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        };
        let words = split_words(command)
            .into_iter()
            .map(|word| if is_name(&word) { value.to_owned() } else { word.replace(VALUE, value) });
        match Cli::command().try_get_matches_from(words) {
            Ok(_) => return None,
            Err(error) if !error.use_stderr() => return None,
            Err(error) => said = said.or_else(|| Some(error.to_string())),
        }
    }
    said
}

#[test]
fn every_command_that_is_recommended_is_accepted() {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (file, text) in all_texts() {
        for command in text.split('`').skip(1).step_by(2) {
            let is_command =
                command.trim_end().starts_with("adjutant ") && !command.contains(['…', '|', '[']);
            if is_command && seen.insert(command.to_owned()) {
                let complaint = complaint(command);
                wrong.extend(complaint.map(|said| format!("{file}: `{command}`\n{said}")));
            }
        }
    }
    assert!(seen.len() > 30, "only {} commands were found: {seen:?}", seen.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n").replace(VALUE, "{}"));
}

/// Adds the Markdown files below a directory.
fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            add_pages(&entry.path(), pages);
        } else if entry.path().extension().is_some_and(|it| it == "md") {
            pages.push(entry.path());
        }
    }
}

/// Returns the commands of this program in a line for a shell, without redirections and comments.
fn own_commands(line: &str) -> Vec<Vec<String>> {
    let line = line.trim_start_matches("$ ").split(" # ").next().unwrap_or_default();
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut typed = split_words(line).into_iter();
    while let Some(word) = typed.next() {
        match word.as_str() {
            "|" | "||" | "&&" | ";" | "&" => commands.push(std::mem::take(&mut words)),
            ">" | "<" | "2>" => _ = typed.next(),
            _ => words.push(word),
        }
    }
    commands.push(words);
    commands.retain(|words| words.first().is_some_and(|word| word == "adjutant"));
    commands
}

#[test]
fn every_command_of_the_readme_and_the_guide_is_accepted() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![repository.join("README.md")];
    add_pages(&repository.join("docs"), &mut pages);
    let (mut parsed, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("\n```").skip(1).step_by(2);
        let shell = blocks.filter(|it| it.starts_with("console\n") || it.starts_with("sh\n"));
        // Commands that are wrong on purpose say so.
        let lines = shell.flat_map(str::lines).skip(1).filter(|it| !it.contains("# exits with 2"));
        for words in lines.flat_map(own_commands) {
            parsed += 1;
            if let Err(error) = Cli::command().try_get_matches_from(&words)
                && error.use_stderr()
            {
                wrong.push(format!("{}: {}\n{error}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(parsed > 100, "only {parsed} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Adds the flags of a command and of its subcommands.
fn add_flags(command: &Command, flags: &mut BTreeSet<String>) {
    flags.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned));
    flags.extend(["help".to_owned(), "version".to_owned()]);
    command.get_subcommands().for_each(|below| add_flags(below, flags));
}

/// Returns a text without the commands of other programs in backticks, whose flags are not ours.
fn without_commands_of_others(text: &str) -> String {
    let is_of_others =
        |part: &str| ["git ", "docker ", "podman "].iter().any(|name| part.starts_with(name));
    let parts = text.split('`').enumerate();
    let ours = parts.filter(|(place, part)| place % 2 == 0 || !is_of_others(part));
    ours.map(|(_, part)| part).collect::<Vec<_>>().join("`")
}

#[test]
fn every_flag_that_is_recommended_is_one_of_a_command() {
    let mut known = BTreeSet::new();
    add_flags(&Cli::command(), &mut known);
    let mut wrong = Vec::new();
    for (file, text) in all_texts() {
        // A short literal is an argument for another program, not advice; the commands that update a copy are those of
        // package managers.
        let is_of_others =
            ["adjutant-workspace", "update/installation.rs"].iter().any(|it| file.contains(it));
        // Without the feature these commands do not exist.
        let is_of_others =
            is_of_others || (cfg!(not(feature = "restate")) && file.contains("src/cluster/"));
        if text.split_whitespace().count() < 4 || is_of_others {
            continue;
        }
        let sentence = without_commands_of_others(&text);
        let all: Vec<&str> =
            sentence.split(|it: char| it.is_whitespace() || "`(),;:".contains(it)).collect();
        for (place, word) in all.iter().enumerate() {
            let Some(flag) = word.strip_prefix("--").map(|it| it.trim_end_matches('.')) else {
                continue;
            };
            let flag = flag.split('=').next().unwrap_or_default();
            let is_flag = flag.starts_with(|it: char| it.is_ascii_lowercase())
                && flag.chars().all(|it| it.is_ascii_lowercase() || it == '-');
            if is_flag && !known.contains(flag) {
                wrong.push(format!("{file}: --{flag} in {text:?}"));
            }
            let set =
                all.get(place + 1).filter(|_| flag == "set").and_then(|it| it.split_once('='));
            if let Some((key, _)) = set.filter(|(key, _)| !key.contains(VALUE) && *key != "KEY")
                && PolicyKey::parse(key).is_none()
            {
                wrong.push(format!("{file}: --set {key} in {text:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_flags_that_raise_a_budget_are_accepted_by_every_command_that_begins_or_resumes_work() {
    let flags = "--budget-usd 0.13 --budget-tokens 8824 --set budget_tokens=8824";
    for command in
        ["resume sess_1735460684_a1b2c3", "delegate -t a=b", "run goal", "story prd.json"]
    {
        assert_eq!(complaint(&format!("adjutant {command} {flags}")), None);
    }
}
