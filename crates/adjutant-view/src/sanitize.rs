//! Makes untrusted text safe to show: no character may move the cursor, reverse the line or be invisible.
//!
//! There is one rule and no parser to fool: such a character is replaced by its number in visible brackets,
//! `⟨U+202E⟩`. Nothing is dropped, so a reader sees that something was there. An escape sequence loses its
//! escape character and thereby its effect. Start at [`line()`] or [`block`].
//!
//! `LineBreaks` says whether line breaks and tabs are kept or shown as characters.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` safe for one line: line breaks become `⏎`, tabs become spaces.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    clean(text, LineBreaks::Shown)
}

/// Returns `text` safe for many lines: line breaks and tabs stay.
#[must_use]
pub fn block(text: &str) -> Cow<'_, str> {
    clean(text, LineBreaks::Kept)
}

/// Returns `text` safe for one line, with each sequence of white space replaced by one space.
#[must_use]
pub fn collapsed(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    line(&words.join(" ")).into_owned()
}

/// Returns a label that can be put in square brackets.
///
/// A label that closes the bracket could imitate a state after it: `[x] ✓ complete]`.
#[must_use]
pub fn label(text: &str) -> String {
    line(text).replace('[', "(").replace(']', ")")
}

/// Returns whether a character controls a terminal, reverses text or is invisible. Line breaks do not count.
#[must_use]
pub fn is_terminal_control(character: char) -> bool {
    character != '\n' && is_unsafe(character)
}

/// How line breaks and tabs are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineBreaks {
    Kept,
    Shown,
}

fn clean(text: &str, breaks: LineBreaks) -> Cow<'_, str> {
    let plain = |byte: u8| {
        (b' '..=b'~').contains(&byte)
            || (breaks == LineBreaks::Kept && matches!(byte, b'\n' | b'\t'))
    };
    if text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // Half of a Windows line break. Alone it would move the cursor to the start of the line.
            '\r' if rest.peek() == Some(&'\n') => continue,
            '\n' | '\t' if breaks == LineBreaks::Kept => shown.push(c),
            '\n' => shown.push('⏎'),
            '\t' => shown.push(' '),
            c if joins(c) && is_foreign(before) && is_foreign(rest.peek().copied()) => {
                shown.push(c)
            }
            c if styles(c) && is_foreign(before) => shown.push(c),
            c if is_unsafe(c) => escape(c, &mut shown),
            c => shown.push(c),
        }
        before = Some(c);
    }
    Cow::Owned(shown)
}

fn escape(c: char, shown: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
}

/// Returns whether the character joins its neighbours; Persian, Indic scripts and emoji need this.
const fn joins(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Returns whether the character selects the text or emoji form of the previous one.
const fn styles(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}')
}

/// Returns whether a neighbour may need a joiner; ASCII never does.
fn is_foreign(c: Option<char>) -> bool {
    c.is_some_and(|c| !c.is_ascii() && !c.is_whitespace() && (styles(c) || !is_unsafe(c)))
}

/// Returns whether a character controls a terminal, reverses text or is invisible.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{e0000}'..='\u{e0fff}'
            | '\u{f0000}'..='\u{10ffff}')
}

/// Quotes a word for a shell if necessary.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
