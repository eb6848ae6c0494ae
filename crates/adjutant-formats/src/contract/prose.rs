//! Heuristics for prose: counts sentences and finds emoji and markup.
//!
//! Accurate enough for warnings, in one pass and without a dictionary. No return is rejected because of them.

/// Words whose full stop does not end a sentence.
///
/// `etc` is not among them: it ends more sentences than it interrupts.
const ABBREVIATIONS: &[&str] = &[
    "al", "approx", "ca", "cf", "dr", "eg", "e.g", "esp", "fig", "ie", "i.e", "incl", "jr", "max",
    "min", "mr", "mrs", "ms", "no", "nr", "p", "pp", "prof", "resp", "sec", "sr", "st", "u.s",
    "vol", "vs",
];

/// Counts the sentences of `text`; words after the last full stop count as another sentence.
pub(super) fn sentences(text: &str) -> usize {
    let (mut count, mut begun, mut at) = (0, 0, 0);
    while let Some(offset) = text[at..].find(is_stop) {
        let stop = at + offset;
        at = stop + run_len(&text[stop..], is_stop);
        let before = &text[begun..stop];
        if !has_words(before) {
            // No words yet. Moving the start forward keeps the look back short and the total time linear.
            begun = at;
        } else if ends_sentence(before, &text[stop..at], &text[at..]) {
            count += 1;
            begun = at;
        }
    }
    count + usize::from(has_words(&text[begun..]))
}

const fn is_stop(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？')
}

const fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '}' | '”' | '’' | '»')
}

fn run_len(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn has_words(text: &str) -> bool {
    text.contains(char::is_alphanumeric)
}

/// Returns whether a run of stops ends a sentence, given the text before and after it.
fn ends_sentence(before: &str, stops: &str, after: &str) -> bool {
    if stops.contains(['。', '！', '？']) {
        return true;
    }
    // In `3.5`, `a.rs` and `e.g` no space follows the stop.
    let after = after.trim_start_matches(is_closing);
    if !after.is_empty() && !after.starts_with(char::is_whitespace) {
        return false;
    }
    !has_words(after) || stops != "." || !interrupts(before)
}

/// Returns whether the word before a full stop is an abbreviation, an initial or a list number.
fn interrupts(before: &str) -> bool {
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    // The space may take several bytes; what remains of it is trimmed together with the brackets.
    let word = before.get(start..).unwrap_or("");
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_first = !has_words(&before[..before.len() - word.len()]);
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let mut letters = word.chars();
    let is_initial = letters.next().is_some_and(char::is_uppercase) && letters.next().is_none();
    is_initial
        || (is_first && is_number)
        || ABBREVIATIONS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns the first emoji in `text`.
pub(super) fn first_emoji(text: &str) -> Option<char> {
    text.chars().find(|c| {
        matches!(c,
            '\u{1F000}'..='\u{1FAFF}'
            | '\u{2600}'..='\u{27BF}'
            | '\u{231A}' | '\u{231B}' | '\u{23E9}'..='\u{23FA}'
            | '\u{2B50}' | '\u{2B55}' | '\u{20E3}' | '\u{FE0F}')
    })
}

/// Returns the first formatting markup in `text`.
pub(super) fn markup(text: &str) -> Option<&'static str> {
    let by_line = || text.lines().find_map(|line| line_markup(line.trim_start()));
    inline_markup(text).or_else(by_line)
}

fn inline_markup(text: &str) -> Option<&'static str> {
    [("`", 1), ("**", 2), ("](", 1), ("</", 1), ("<br", 1)]
        .into_iter()
        .find(|(sign, times)| text.matches(sign).take(*times).count() == *times)
        .map(|(sign, _)| sign)
}

fn line_markup(line: &str) -> Option<&'static str> {
    let marks = ["#", "##", "###", "####", "-", "*", "+", ">", "|"];
    let first = line.split_whitespace().next()?;
    marks.into_iter().find(|mark| *mark == first && line.len() > first.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentences_end_where_a_reader_would_end_them() {
        for (text, expected) in [
            ("", 0),
            ("...", 0),
            ("No full stop", 1),
            ("One.", 1),
            ("One. Two.", 2),
            ("One. Two", 2),
            ("One! Two? Three…", 3),
            ("Really?! Yes.", 2),
            ("Wait... what? Yes.", 3),
            ("Took 3.5 hours. Done.", 2),
            ("Took 14. Done.", 2),
            ("1. First point", 1),
            ("Changed a.rs and lib/b.py. Done.", 2),
            ("Checked .mcp.json and more.", 1),
            ("Use caches, e.g. the local one. Done.", 2),
            ("Use it (i.e. call it). Done.", 2),
            ("Files, tests etc. Everything works.", 2),
            ("See J. Smith for it.", 1),
            ("It said \"stop.\" Then it stopped.", 2),
            ("Done (see the log.) Next.", 2),
            ("Limits approx. 5 vs. 6.", 1),
            ("Ends with e.g.", 1),
            ("完了。次へ。", 2),
            ("Two gaps.\u{2003}Wide one.", 2),
            ("Version 1.2.3 is out.\nUpgrade now.", 2),
        ] {
            assert_eq!(sentences(text), expected, "{text}");
        }
    }

    #[test]
    fn emoji_are_seen_and_arrows_are_not() {
        assert_eq!(first_emoji("All good ✅"), Some('✅'));
        assert_eq!(first_emoji("Launch 🚀"), Some('🚀'));
        assert_eq!(first_emoji("lead → planner, 5 °C, naïve, 完了"), None);
    }

    #[test]
    fn markup_is_seen_and_plain_signs_are_not() {
        for (text, expected) in [
            ("Plain text, a - b, 2 * 3, x_y.", None),
            ("Uses Vec<String> and a[0].", None),
            ("Uses `code`.", Some("`")),
            ("Is **bold** here.", Some("**")),
            ("2 ** 3 is eight.", None),
            ("See [this](that).", Some("](")),
            ("Is <b>bold</b>.", Some("</")),
            ("# Title", Some("#")),
            ("Points:\n- one\n- two", Some("-")),
            ("-", None),
        ] {
            assert_eq!(markup(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn plain_sentences_are_counted_exactly(
            all in prop::collection::vec("[A-Z][a-z]{2,8}( [a-z]{4,8}){1,4}", 1..8),
        ) {
            let text = all.iter().map(|it| format!("{it}tion.")).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(sentences(&text), all.len());
        }

        #[test]
        fn any_text_can_be_looked_at(text in "\\PC{0,40}|[a.!? \\u{2003}é。\"0]{0,40}") {
            sentences(&text);
            first_emoji(&text);
            markup(&text);
        }
    }
}
