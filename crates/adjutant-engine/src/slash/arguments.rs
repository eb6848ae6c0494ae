//! Parsing the arguments of a slash command, with the error texts for wrong ones.

use adjutant_core::nearest;

use super::fill::words;

/// The most tasks one command may name. Inclusive; a run could not delegate more.
pub(super) const MAX_TASKS: u64 = 50;

/// The form of a command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentForm {
    /// Anything, unchanged.
    Free,
    /// A required text, with options before or after it.
    Text(&'static [&'static str]),
    /// The number of a task, then options, then a prompt.
    Task(&'static [&'static str]),
    /// Numbers of tasks, as `7`, `3,5` or `3-5`, then a prompt.
    Tasks,
    /// Only these options; one that ends in `=` has a value.
    Options(&'static [&'static str]),
}

impl ArgumentForm {
    /// Returns the word it is shown as.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Text(_) => "text",
            Self::Task(_) => "task",
            Self::Tasks => "tasks",
            Self::Options(_) => "options",
        }
    }
}

/// The parsed arguments of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandArguments {
    /// All arguments as they were typed.
    pub typed: String,
    /// The numbers of the named tasks, in order and without duplicates.
    pub tasks: Vec<u64>,
    /// The options without dashes, with their values.
    pub options: Vec<(String, Option<String>)>,
    /// The remaining text.
    pub prompt: String,
}

/// The option that lets agents write in the working tree itself.
const IN_PLACE: &str = "--in-place";

/// Where `--in-place` occurs in a command's arguments. Only `AsOption` lets agents write in the working tree
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceMention {
    /// As an option.
    AsOption,
    /// Within the prompt, so it is text.
    InPrompt,
    /// Not at all.
    Absent,
}

/// Why the arguments of a command are wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The number of a task is missing.
    #[error("Task number required for /{command} command")]
    TaskMissing {
        /// The command.
        command: String,
    },
    /// The number of a task is not a positive integer.
    #[error("Task number must be positive integer, got: {got}")]
    NotANumber {
        /// What was typed instead.
        got: String,
    },
    /// The end of a range is below its start.
    #[error("Task range must ascend, got: {got}")]
    Descends {
        /// The range.
        got: String,
    },
    /// More tasks than one command may name.
    #[error("Too many tasks ({count}). Maximum: {MAX_TASKS}")]
    TooMany {
        /// How many.
        count: u64,
    },
    /// The required text is missing.
    #[error("Text required for /{command} command")]
    TextMissing {
        /// The command.
        command: String,
    },
    /// The command has no such option.
    #[error("Unknown option for /{command} command: {got}{meant}")]
    UnknownOption {
        /// The command.
        command: String,
        /// What was typed.
        got: String,
        /// The end of the sentence: the most similar option, or a hint.
        meant: String,
    },
    /// A command that Adjutant carries out itself, in the task of an agent.
    #[error(
        "/{command} is carried out by adjutant itself when a person types it, so no agent can be given it"
    )]
    Ours {
        /// The command.
        command: String,
    },
    /// The value of an option is missing.
    #[error("Option --{option} of /{command} command needs a value")]
    ValueMissing {
        /// The command.
        command: String,
        /// The option.
        option: String,
    },
}

/// Parses what was typed after a command's name.
pub(super) fn read(
    command: &str,
    form: ArgumentForm,
    typed: &str,
) -> Result<CommandArguments, ArgumentError> {
    let typed = typed.trim();
    let mut arguments = CommandArguments {
        typed: typed.to_owned(),
        prompt: typed.to_owned(),
        ..CommandArguments::default()
    };
    let command = || command.to_owned();
    match form {
        ArgumentForm::Free => {}
        ArgumentForm::Text(options) => {
            let (mut taken, text, behind) = split_options(command, options, typed)?;
            // Quotes around the whole text are removed, as a shell would do.
            arguments.prompt = match &words(text)[..] {
                [only] => only.trim().to_owned(),
                _ => text.to_owned(),
            };
            if arguments.prompt.is_empty() {
                return Err(ArgumentError::TextMissing { command: command() });
            }
            taken.extend(behind);
            arguments.options = taken;
        }
        ArgumentForm::Task(options) => {
            let (first, rest) = first_word(typed);
            arguments.tasks = vec![number(command, first)?];
            let (taken, rest) = leading_options(command, options, rest)?;
            (arguments.options, arguments.prompt) = (taken, rest.to_owned());
        }
        ArgumentForm::Tasks => {
            let (first, rest) = first_word(typed);
            arguments.tasks = numbers(command, first)?;
            leading_options(command, &[], rest)?;
            rest.clone_into(&mut arguments.prompt);
        }
        ArgumentForm::Options(options) => {
            let (taken, rest) = leading_options(command, options, typed)?;
            if let Some(got) = words(rest).into_iter().next() {
                let meant = String::new();
                return Err(ArgumentError::UnknownOption { command: command(), got, meant });
            }
            (arguments.options, arguments.prompt) = (taken, typed.to_owned());
        }
    }
    Ok(arguments)
}

/// Removes the option `--in-place` from what a person typed after a command.
///
/// It is an option of Adjutant, not of the command, and counts only among the options before the prompt; in
/// the prompt it is text. `--` ends the options.
pub(super) fn without_in_place(form: ArgumentForm, typed: &str) -> (String, InPlaceMention) {
    let (mut kept, mut found): (Vec<&str>, bool) = (Vec::new(), false);
    let known = match form {
        ArgumentForm::Task(known) | ArgumentForm::Options(known) => known,
        ArgumentForm::Free | ArgumentForm::Text(_) | ArgumentForm::Tasks => &[],
    };
    let mut needs_number = matches!(form, ArgumentForm::Task(_) | ArgumentForm::Tasks);
    let mut text = typed.trim();
    while !text.is_empty() {
        let (word, rest) = first_word(text);
        if word == IN_PLACE {
            (found, text) = (true, rest);
            continue;
        }
        if !word.starts_with("--") && needs_number {
            needs_number = false;
        } else if !word.starts_with("--") || word == "--" {
            break;
        } else if known.iter().any(|known| known.strip_suffix('=') == Some(&word[2..])) {
            // The next word is the option's value; `read` checks it later.
            kept.push(word);
            let (value, behind) = first_word(rest);
            (kept, text) = ([kept, vec![value]].concat(), behind);
            continue;
        }
        kept.push(word);
        text = rest;
    }
    let in_place = match (found, words(text).iter().any(|word| word == IN_PLACE)) {
        (true, _) => InPlaceMention::AsOption,
        (false, true) => InPlaceMention::InPrompt,
        (false, false) => InPlaceMention::Absent,
    };
    // Without the option the text is returned unchanged, including its spaces.
    if !found {
        return (typed.to_owned(), in_place);
    }
    let kept = kept.into_iter().chain([text]).filter(|part| !part.is_empty());
    (kept.collect::<Vec<_>>().join(" "), in_place)
}

fn first_word(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim_start())
}

/// Splits off the value of an option: one word, or several in quotes.
fn value_of(text: &str) -> (String, &str) {
    for quote in ['"', '\''] {
        let quoted = text.strip_prefix(quote).and_then(|text| text.split_once(quote));
        if let Some((value, rest)) = quoted.filter(|(value, _)| !value.trim().is_empty()) {
            return (value.to_owned(), rest.trim_start());
        }
    }
    let (word, rest) = first_word(text);
    (word.to_owned(), rest)
}

/// Parses the number of a task: `^[1-9][0-9]*$`.
fn number(command: impl Fn() -> String, word: &str) -> Result<u64, ArgumentError> {
    if word.is_empty() || word.starts_with("--") {
        return Err(ArgumentError::TaskMissing { command: command() });
    }
    positive(word).ok_or_else(|| ArgumentError::NotANumber { got: escape_typed(word) })
}

fn positive(word: &str) -> Option<u64> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit()) && !word.starts_with('0');
    word.parse().ok().filter(|_| plain)
}

/// Parses numbers of tasks, with lists and ranges.
fn numbers(command: impl Fn() -> String, word: &str) -> Result<Vec<u64>, ArgumentError> {
    let mut tasks = Vec::new();
    for part in word.split(',') {
        let Some((from, to)) = part.split_once('-').filter(|_| !part.starts_with('-')) else {
            tasks.push(match (number(&command, part), word == part) {
                (Err(ArgumentError::TaskMissing { .. }), false) => {
                    return Err(ArgumentError::NotANumber { got: escape_typed(word) });
                }
                (read, _) => read?,
            });
            continue;
        };
        let (Some(from), Some(to)) = (positive(from), positive(to)) else {
            return Err(ArgumentError::NotANumber { got: escape_typed(part) });
        };
        if from > to {
            return Err(ArgumentError::Descends { got: escape_typed(part) });
        }
        // Checked before the range is expanded, because it may have up to 2^64 numbers.
        let count = (to - from).saturating_add(1);
        if count > MAX_TASKS {
            return Err(ArgumentError::TooMany { count });
        }
        tasks.extend(from..=to);
    }
    let mut seen = std::collections::BTreeSet::new();
    tasks.retain(|task| seen.insert(*task));
    let count = tasks.len() as u64;
    if count > MAX_TASKS { Err(ArgumentError::TooMany { count }) } else { Ok(tasks) }
}

/// Parses the options at the start of a text. From the first other word on, everything is the prompt, which
/// may contain words such as `--release`.
#[expect(clippy::type_complexity, reason = "options with their values, and the rest")]
fn leading_options<'t>(
    command: impl Fn() -> String,
    known: &[&str],
    text: &'t str,
) -> Result<(Vec<(String, Option<String>)>, &'t str), ArgumentError> {
    let mut taken = Vec::new();
    let mut text = text;
    while text.starts_with("--") {
        let (word, mut rest) = first_word(text);
        if word == "--" {
            return Ok((taken, rest));
        }
        let (name, mut value) = match word[2..].split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&word[2..], None),
        };
        let with_value = known.contains(&format!("{name}=").as_str());
        if !with_value && (value.is_some() || !known.contains(&name)) {
            let names = known.iter().map(|known| known.trim_end_matches('='));
            let meant = nearest(name, names)
                .map_or_else(String::new, |meant| format!(", did you mean --{meant}?"));
            return Err(ArgumentError::UnknownOption {
                command: command(),
                got: escape_typed(word),
                meant,
            });
        }
        if with_value && value.is_none() {
            let (next, after) = value_of(rest);
            if next.is_empty() || next.starts_with("--") {
                let option = name.to_owned();
                return Err(ArgumentError::ValueMissing { command: command(), option });
            }
            (value, rest) = (Some(next), after);
        }
        taken.push((name.to_owned(), value));
        text = rest;
    }
    Ok((taken, text))
}

/// Splits off the options before and after a text. If the command has no options, all of it is text. Within
/// quotes `--` is always text.
#[expect(clippy::type_complexity, reason = "options before, the text, options behind")]
fn split_options<'t>(
    command: impl Fn() -> String + Copy,
    known: &[&str],
    typed: &'t str,
) -> Result<(Vec<(String, Option<String>)>, &'t str, Vec<(String, Option<String>)>), ArgumentError>
{
    if known.is_empty() {
        return Ok((Vec::new(), typed, Vec::new()));
    }
    let (before, rest) = leading_options(command, known, typed)?;
    // After `--` the rest is text even if it begins with dashes.
    let plain = rest.starts_with("--");
    let end = first_option(rest).filter(|_| !plain).unwrap_or(rest.len());
    let quoted = "; put the text in quotes where that is part of it";
    let mut read = leading_options(command, known, &rest[end..]);
    if let Err(ArgumentError::UnknownOption { meant, .. }) = &mut read
        && meant.is_empty()
    {
        quoted.clone_into(meant);
    }
    let (behind, left) = read?;
    if let Some(got) = words(left).first() {
        let meant = quoted.to_owned();
        return Err(ArgumentError::UnknownOption {
            command: command(),
            got: escape_typed(got),
            meant,
        });
    }
    Ok((before, rest[..end].trim_end(), behind))
}

/// Returns the offset of the first word outside quotes that begins with `--`.
fn first_option(text: &str) -> Option<usize> {
    let (mut at, mut is_begun) = (0, false);
    while let Some(letter) = text[at..].chars().next() {
        let after = at + letter.len_utf8();
        if !is_begun && text[at..].starts_with("--") {
            return Some(at);
        }
        let opens = matches!(letter, '"' | '\'') && !is_begun;
        at = match text[after..].find(letter).filter(|_| opens) {
            Some(end) => after + end + letter.len_utf8(),
            None => after,
        };
        is_begun = !letter.is_whitespace();
    }
    None
}

/// Shortens and escapes typed text for a message.
fn escape_typed(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(form: ArgumentForm, typed: &str) -> String {
        match read("name", form, typed) {
            Ok(it) => format!("{:?} {:?} {}", it.tasks, it.options, it.prompt),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn section_10_task_number_is_a_positive_integer() {
        let form = ArgumentForm::Task(&["divide"]);
        for (typed, expected) in [
            ("12", "[12] [] "),
            ("12 keep it  small", "[12] [] keep it  small"),
            ("12 --divide by topic", r#"[12] [("divide", None)] by topic"#),
            ("12 use --release", "[12] [] use --release"),
            ("12 -- --release first", "[12] [] --release first"),
            ("", "Task number required for /name command"),
            ("--divide 12", "Task number required for /name command"),
            ("0", "Task number must be positive integer, got: 0"),
            ("007", "Task number must be positive integer, got: 007"),
            ("-3", "Task number must be positive integer, got: -3"),
            ("+3", "Task number must be positive integer, got: +3"),
            ("abc", "Task number must be positive integer, got: abc"),
            ("12abc", "Task number must be positive integer, got: 12abc"),
            ("1.5", "Task number must be positive integer, got: 1.5"),
            ("3,4", "Task number must be positive integer, got: 3,4"),
            ("١٢", "Task number must be positive integer, got: ١٢"),
            (
                "99999999999999999999",
                "Task number must be positive integer, got: 99999999999999999999",
            ),
            ("12 --divde", "Unknown option for /name command: --divde, did you mean --divide?"),
            (
                "12 --divide=2",
                "Unknown option for /name command: --divide=2, did you mean --divide?",
            ),
        ] {
            assert_eq!(check(form, typed), expected, "{typed}");
        }
    }

    #[test]
    fn section_10_implement_takes_lists_and_ranges() {
        for (typed, expected) in [
            ("7 now", "[7] [] now"),
            ("132,134,136", "[132, 134, 136] [] "),
            ("105-107 go", "[105, 106, 107] [] go"),
            ("1,3-5,4,9", "[1, 3, 4, 5, 9] [] "),
            ("", "Task number required for /name command"),
            ("3-", "Task number must be positive integer, got: 3-"),
            ("-3", "Task number must be positive integer, got: -3"),
            ("1,,2", "Task number must be positive integer, got: 1,,2"),
            ("0-2", "Task number must be positive integer, got: 0-2"),
            ("5-3", "Task range must ascend, got: 5-3"),
            ("1-50", &format!("{:?} [] ", (1..=50).collect::<Vec<u64>>())),
            ("1-51", "Too many tasks (51). Maximum: 50"),
            ("1-30,31-60", "Too many tasks (60). Maximum: 50"),
            ("1-50,2-50,7", &format!("{:?} [] ", (1..=50).collect::<Vec<u64>>())),
            ("1-18446744073709551615", "Too many tasks (18446744073709551615). Maximum: 50"),
            ("7 --fast", "Unknown option for /name command: --fast"),
        ] {
            assert_eq!(check(ArgumentForm::Tasks, typed), expected, "{typed}");
        }
    }

    #[test]
    fn section_10_free_and_text_arguments_are_accepted() {
        assert_eq!(check(ArgumentForm::Free, ""), "[] [] ");
        assert_eq!(check(ArgumentForm::Free, " src/ --all "), "[] [] src/ --all");
        assert_eq!(check(ArgumentForm::Text(&[]), "\"Fix the parser\""), "[] [] Fix the parser");
        assert_eq!(check(ArgumentForm::Text(&[]), "Fix \"it\" now"), "[] [] Fix \"it\" now");
        assert_eq!(check(ArgumentForm::Text(&[]), "\"\""), "Text required for /name command");
        let form = ArgumentForm::Text(&["language=", "effort="]);
        for (typed, expected) in [
            ("Add JWT", "[] [] Add JWT"),
            ("\"Add JWT\" --language rust", r#"[] [("language", Some("rust"))] Add JWT"#),
            ("Add JWT --language=rust", r#"[] [("language", Some("rust"))] Add JWT"#),
            (
                "--effort '2 hours' Add JWT --language rust",
                r#"[] [("effort", Some("2 hours")), ("language", Some("rust"))] Add JWT"#,
            ),
            ("\"Fix the --release build\"", "[] [] Fix the --release build"),
            ("-- --release fails", "[] [] --release fails"),
            ("don't stop", "[] [] don't stop"),
            (
                "\"Add JWT\" --langage rust",
                "Unknown option for /name command: --langage, did you mean --language?",
            ),
            (
                "Add --language rust JWT",
                "Unknown option for /name command: JWT; put the text in quotes where that is part \
                 of it",
            ),
            ("\"Add\" --language", "Option --language of /name command needs a value"),
            ("--language rust", "Text required for /name command"),
            ("\" \" --language rust", "Text required for /name command"),
        ] {
            assert_eq!(check(form, typed), expected, "{typed}");
        }
        let form = ArgumentForm::Options(&["all", "type="]);
        for (typed, expected) in [
            ("", "[] [] "),
            (
                "--all --type timeout",
                r#"[] [("all", None), ("type", Some("timeout"))] --all --type timeout"#,
            ),
            ("--type=x", r#"[] [("type", Some("x"))] --type=x"#),
            ("--type", "Option --type of /name command needs a value"),
            ("--type --all", "Option --type of /name command needs a value"),
            ("--al", "Unknown option for /name command: --al, did you mean --all?"),
            ("12", "Unknown option for /name command: 12"),
        ] {
            assert_eq!(check(form, typed), expected, "{typed}");
        }
    }

    #[test]
    fn in_place_is_recognised_only_among_the_options() {
        use InPlaceMention::{Absent, AsOption, InPrompt};
        let task = ArgumentForm::Task(&["divide", "by="]);
        for (form, typed, expected, in_place) in [
            (ArgumentForm::Tasks, "1 --in-place", "1", AsOption),
            (ArgumentForm::Tasks, "--in-place 3-5,9 keep  it", "3-5,9 keep  it", AsOption),
            (ArgumentForm::Tasks, "1  keep it --in-place", "1  keep it --in-place", InPrompt),
            (ArgumentForm::Tasks, "1 -- --in-place", "1 -- --in-place", InPrompt),
            (ArgumentForm::Tasks, "1 --in-placed", "1 --in-placed", Absent),
            (ArgumentForm::Tasks, "1 --in-place=no", "1 --in-place=no", Absent),
            (task, "1 --divide --in-place by topic", "1 --divide by topic", AsOption),
            (task, "1 --by --in-place x", "1 --by --in-place x", Absent),
            (task, "1 --by=a --in-place --in-place x", "1 --by=a x", AsOption),
            (ArgumentForm::Free, "--in-place src", "src", AsOption),
            (ArgumentForm::Free, "src --in-place", "src --in-place", InPrompt),
            (
                ArgumentForm::Text(&[]),
                "\"what --in-place means\"",
                "\"what --in-place means\"",
                Absent,
            ),
            (ArgumentForm::Options(&["all"]), "--all --in-place", "--all", AsOption),
            (ArgumentForm::Free, "", "", Absent),
        ] {
            let (rest, found) = without_in_place(form, typed);
            assert_eq!((rest.as_str(), found), (expected, in_place), "{typed}");
        }
    }

    proptest! {
        #[test]
        fn removing_in_place_keeps_all_other_words(
            parts in proptest::collection::vec("(--in-place|--by|--divide|--|[0-9]{1,2}|[a-c]{1,3})", 0..8),
        ) {
            for form in [ArgumentForm::Task(&["divide", "by="]), ArgumentForm::Tasks, ArgumentForm::Free] {
                let (rest, found) = without_in_place(form, &parts.join(" "));
                let others = |words: Vec<&str>| -> Vec<String> {
                    words.into_iter().filter(|word| *word != IN_PLACE).map(str::to_owned).collect()
                };
                prop_assert_eq!(
                    others(rest.split_whitespace().collect()),
                    others(parts.iter().map(String::as_str).collect())
                );
                let again = without_in_place(form, &rest);
                prop_assert!(found != InPlaceMention::AsOption || again.1 != InPlaceMention::AsOption);
            }
        }

        #[test]
        fn argument_parser_never_panics(typed in "([0-9]{1,3}|[,\\- ]|--[a-z]{0,3}|[\"'=ä]){0,12}") {
            for form in [ArgumentForm::Task(&["a", "b="]), ArgumentForm::Tasks, ArgumentForm::Options(&["b="]), ArgumentForm::Text(&["b="])] {
                let _read = read("name", form, &typed);
            }
        }
    }
}
