//! The tables "by message" of the guide quote messages that the program has today.
//!
//! A quoted message has example values, so only a run of its words is looked for in the sources: three words, or all of
//! the words between two values if there are fewer.

use std::fs;
use std::path::Path;

use crate::docs::commands::repository;
use crate::docs::pages::{pages, read};

/// All sources below a directory, with string literals that are continued on the next line joined.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, text);
        } else if entry.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&entry).unwrap();
            let mut parts = source.split("\\\n");
            *text += parts.next().unwrap();
            parts.for_each(|part| *text += part.trim_start());
        }
    }
}

/// The code spans of a table's cell. A span that contains backticks is fenced by two.
fn code_spans(cell: &str) -> Vec<String> {
    let fence = regex::Regex::new("``(.+?)``|`([^`]+)`").unwrap();
    let span =
        |it: regex::Captures<'_>| it.get(1).or(it.get(2)).unwrap().as_str().trim().to_owned();
    fence.captures_iter(cell).map(span).collect()
}

/// Whether a word is an example of a value or the name of a file.
fn is_value(word: &str) -> bool {
    let is_mark = |it: char| it.is_ascii_digit() || matches!(it, '…' | '[' | '`' | '/');
    word.contains(is_mark) || word.trim_end_matches('.').contains('.')
}

/// Returns whether the sources have a run of words of the message.
fn is_printed(message: &str, sources: &str) -> bool {
    // What comes before a colon and after it may be of two messages, one inside the other.
    let parts: Vec<&str> = message.split(": ").collect();
    let words = parts.iter().map(|part| part.split_whitespace().collect::<Vec<_>>());
    let fixed = words
        .flat_map(|it| it.split(|word| is_value(word)).map(<[&str]>::to_vec).collect::<Vec<_>>());
    let longest = fixed.max_by_key(Vec::len).unwrap_or_default();
    let length = longest.len().min(3);
    length > 0 && longest.windows(length).any(|it| sources.contains(&it.join(" ")))
}

#[test]
fn every_message_in_a_table_by_message_is_in_the_sources() {
    let mut all = String::new();
    for entry in fs::read_dir(repository().join("crates")).unwrap().map(Result::unwrap) {
        sources(&entry.path().join("src"), &mut all);
    }
    let (mut count, mut gone) = (0, Vec::new());
    for name in pages() {
        let page = read(&name);
        let is_header =
            |line: &str| line.starts_with("| message |") || line.starts_with("| symptom |");
        let tables = page.lines().scan(false, |is_table, line| {
            *is_table = is_header(line) || *is_table && line.starts_with('|');
            Some((*is_table && !is_header(line), line))
        });
        for (_, row) in tables.filter(|(is_row, line)| *is_row && !line.starts_with("|-")) {
            for message in code_spans(row.split(" | ").next().unwrap()) {
                count += 1;
                // The number of a protocol's error.
                if message != "-32700" && !is_printed(&message, &all) {
                    gone.push(format!("{name}: {message}"));
                }
            }
        }
    }
    println!("{count} messages");
    assert_eq!(gone, Vec::<String>::new());
    assert!(count > 50, "{count}");
}

#[test]
fn a_message_that_is_not_in_the_sources_is_noticed() {
    assert!(is_printed("run_1: it was interrupted at 12 s", "it was interrupted"));
    assert!(!is_printed("No model can be reached yet", "a model was named"));
}
