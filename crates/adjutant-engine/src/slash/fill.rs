//! Substituting arguments in a command's body, and warning about syntax of other programs that is left as text.

/// The most characters of the body that a warning quotes.
const SHOWN_CHARS: usize = 40;

/// Splits arguments at white space; single and double quotes keep words together.
///
/// A quote that is never closed is a plain character, as in `don't`.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        rest = after;
        if letter.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let held = word.get_or_insert_default();
        // A quote inside a word is an apostrophe.
        let opens = matches!(letter, '"' | '\'') && held.is_empty();
        match after.find(letter).filter(|_| opens) {
            Some(end) => {
                held.push_str(&after[..end]);
                rest = &after[end + letter.len_utf8()..];
            }
            None => held.push(letter),
        }
    }
    words.extend(word);
    words
}

/// Substitutes arguments in a body.
///
/// `$ARGUMENTS` becomes all of them as they were typed, `$1` to `$99` one word each, or empty if there are
/// fewer. `\$` is a dollar sign; every other `$` stays. Substituted text is not scanned again. A body without
/// placeholders gets the arguments at its end.
#[must_use]
pub fn fill(body: &str, arguments: &str) -> String {
    let arguments = arguments.trim();
    let words = words(arguments);
    let mut filled = String::with_capacity(body.len() + arguments.len());
    let (mut rest, mut asked) = (body, false);
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if let Some(before) = before.strip_suffix('\\') {
            filled.push_str(before);
            filled.push('$');
            rest = after;
            continue;
        }
        filled.push_str(before);
        let Some((length, value)) = placeholder(after, arguments, &words) else {
            filled.push('$');
            rest = after;
            continue;
        };
        asked = true;
        filled.push_str(value);
        rest = &after[length..];
    }
    filled.push_str(rest);
    if !asked && !arguments.is_empty() {
        filled = format!("{}\n\nARGUMENTS: {arguments}", filled.trim_end());
    }
    filled
}

/// Parses a placeholder after a dollar sign. Returns its length and its value.
fn placeholder<'a>(
    text: &str,
    arguments: &'a str,
    words: &'a [String],
) -> Option<(usize, &'a str)> {
    const ALL: &str = "ARGUMENTS";
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    if let Some(after) = text.strip_prefix(ALL) {
        return (!after.starts_with(is_part)).then_some((ALL.len(), arguments));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = text[..digits].parse().ok().filter(|_| digits <= 2)?;
    let is_one = number > 0 && !text.starts_with('0') && !text[digits..].starts_with(is_part);
    is_one.then(|| (digits, words.get(number - 1).map_or("", String::as_str)))
}

/// Returns warnings about text that other programs would execute or include, and Adjutant does not.
pub(super) fn syntax_left_as_text(body: &str) -> Vec<String> {
    let said = |found: Vec<&str>, what: &str| {
        let first = found.first()?;
        let shown: String = first.chars().take(SHOWN_CHARS).collect();
        let more = match found.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!("`{}`{more}: {what}, it is left as text", shown.escape_debug()))
    };
    let shell = said(commands(body), "nothing is executed");
    let files = said(files(body), "no file is included");
    shell.into_iter().chain(files).collect()
}

/// Returns the parts that look like a shell command: !`…` anywhere, `!word` at the start of a line.
fn commands(body: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in body.lines() {
        let line = line.trim_start().trim_start_matches("- ");
        let word = line.strip_prefix('!').filter(|rest| rest.starts_with(char::is_alphanumeric));
        if word.is_some() {
            found.push(line.trim_end());
            continue;
        }
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("!`") {
            let end = after.find('`').map_or(after.len(), |end| end + 1);
            found.push(&rest[rest.len() - after.len() - 2..][..end + 2]);
            rest = &after[end..];
        }
    }
    found
}

/// Returns the words that look like a file to include: they begin with `@`.
fn files(body: &str) -> Vec<&str> {
    let is_file = |word: &str| {
        let path = word.strip_prefix('@').unwrap_or_default();
        path.starts_with(|first: char| {
            first.is_alphanumeric() || matches!(first, '.' | '/' | '~' | '$' | '_')
        })
    };
    body.split(|letter: char| letter.is_whitespace() || matches!(letter, '(' | '"' | '\'' | '`'))
        .map(|word| word.trim_end_matches([',', ';', ')', ':', '.']))
        .filter(|word| is_file(word))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_respect_quotes_and_apostrophes() {
        for (text, expected) in [
            ("", &[][..]),
            ("  12  keep   it ", &["12", "keep", "it"]),
            (r#"one "two three" 'four five'"#, &["one", "two three", "four five"]),
            (r#""" '' x"#, &["", "", "x"]),
            ("don't stop", &["don't", "stop"]),
            ("it isn't 'so", &["it", "isn't", "'so"]),
            (r#"a"b c"d"#, &["a\"b", "c\"d"]),
            (r#""a b"c"#, &["a bc"]),
            ("ä\u{a0}ö", &["ä", "ö"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_are_substituted_once() {
        for (body, arguments, expected) in [
            ("Do $ARGUMENTS.", "a  'b c' ", "Do a  'b c'."),
            ("$1-$2-$3|", "a 'b c'", "a-b c-|"),
            ("$10 $1", "a b c d e f g h i ten", "ten a"),
            ("$ARGUMENTS and $1", "$1 $ARGUMENTS", "$1 $ARGUMENTS and $1"),
            ("costs $0, $01, $100, $x, $ and $$1", "a", "costs $0, $01, $100, $x, $ and $a"),
            (r"\$1 \$ARGUMENTS \\$1 $1", "a", r"$1 $ARGUMENTS \$1 a"),
            (
                "$ARGUMENTS_OLD $ARGUMENTSX $1st",
                "a",
                "$ARGUMENTS_OLD $ARGUMENTSX $1st\n\nARGUMENTS: a",
            ),
            ("Plain.\n", "a b", "Plain.\n\nARGUMENTS: a b"),
            ("Plain.\n", " ", "Plain.\n"),
            ("Say $ARGUMENTS!", "", "Say !"),
            ("$1.50", "3", "3.50"),
            ("end $", "a", "end $\n\nARGUMENTS: a"),
        ] {
            assert_eq!(fill(body, arguments), expected, "{body} with {arguments}");
        }
    }

    #[test]
    fn shell_and_file_syntax_is_reported_as_text() {
        for (body, expected) in [
            ("Nothing here! me@example.com ![image](x.png) a != b", &[][..]),
            (
                "Look at !`git status` now",
                &["`!`git status``: nothing is executed, it is left as text"],
            ),
            (
                "!git log\n- !`git diff`",
                &["`!git log` and 1 more: nothing is executed, it is left as text"],
            ),
            (
                "See @src/main.rs and @$1, (@a.md).",
                &["`@src/main.rs` and 2 more: no file is included, it is left as text"],
            ),
            ("!`unclosed", &["`!`unclosed`: nothing is executed, it is left as text"]),
        ] {
            assert_eq!(syntax_left_as_text(body), expected, "{body}");
        }
    }

    proptest! {
        #[test]
        fn substitution_never_panics_and_keeps_the_arguments(
            body in "([a-zä\\\\$ ]|\\$ARGUMENTS|\\$[0-9]{1,3}|!`|@x){0,30}",
            arguments in "[a-z$0-9'\" ä\\\\!@`]{0,20}",
        ) {
            let _words = words(&arguments);
            let _left = syntax_left_as_text(&body);
            let filled = fill(&format!("$ARGUMENTS|{body}"), &arguments);
            let begins = filled.strip_prefix(arguments.trim()).is_some_and(|it| it.starts_with('|'));
            prop_assert!(begins);
        }
    }
}
