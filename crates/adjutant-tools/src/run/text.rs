//! A program's output as text that can be shown: what it may hold, and where it is cut.

use adjutant_core::numbers::grouped;
use adjutant_workspace::sandbox::Captured;

use crate::mask::is_body_line;

/// The shortest line that is taken for the body of a key whose beginning nobody saw.
const KEY_LINE_BYTES: usize = 40;

/// Returns what was kept, cleaned, with a line where the middle is missing.
///
/// Half a secret would not be known as one, so a cut falls between lines, or between words where a line is long;
/// what is longer than that and has no gap is left out whole.
pub(super) fn kept(captured: &Captured) -> String {
    let (head, tail) = captured.parts();
    if captured.cut_bytes() == 0 {
        return cleaned(&[head, &tail].concat());
    }
    let head = head.get(..last_gap(head)).unwrap_or_default();
    let tail = tail.get(first_gap(&tail)..).unwrap_or_default();
    let tail = tail.get(orphaned_key(tail)..).unwrap_or_default();
    let left_out = captured.total_bytes() - (head.len() + tail.len()) as u64;
    let mut text = cleaned(head);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("… ");
    text.push_str(&grouped(left_out));
    text.push_str(" bytes left out …\n");
    text.push_str(&cleaned(tail));
    text
}

/// Returns where the last line of a beginning ends, or its last word when that line is most of it.
fn last_gap(head: &[u8]) -> usize {
    let line = memchr::memrchr(b'\n', head).map_or(0, |at| at + 1);
    if line >= head.len() / 2 {
        return line;
    }
    let word = head.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    line.max(word)
}

/// Returns where the first line of an end begins, or its first word when what comes before is most of it.
fn first_gap(tail: &[u8]) -> usize {
    let line = memchr::memchr(b'\n', tail).map_or(tail.len(), |at| at + 1);
    if line <= tail.len() / 2 {
        return line;
    }
    let word = tail.iter().position(u8::is_ascii_whitespace).map_or(tail.len(), |at| at + 1);
    line.min(word)
}

/// Returns the length of what may be the rest of a private key that began before.
pub(super) fn orphaned_key(bytes: &[u8]) -> usize {
    let mut length = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let is_body = is_body_line(line);
        if !is_body || (length == 0 && line.len() < KEY_LINE_BYTES) {
            break;
        }
        length += line.len();
        if line.len() < KEY_LINE_BYTES {
            break;
        }
    }
    length
}

/// Returns output as text: no escape sequences, no control characters but line breaks and tabs.
///
/// A carriage return, which on a terminal writes over the line, becomes a line break.
pub(super) fn cleaned(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut rest),
            // The one-character form of the same.
            '\u{9b}' => skip_control(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || turns(c) => {}
            c => out.push(c),
        }
    }
    out
}

type Rest<'text> = std::iter::Peekable<std::str::Chars<'text>>;

/// Skips what follows an escape character; a line break always ends it, so that nobody can hide the rest.
fn skip_sequence(rest: &mut Rest<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        Some(' '..='/') => {
            while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
            rest.next_if(|c| ('0'..='~').contains(c));
        }
        Some('0'..='~') => {
            rest.next();
        }
        Some(_) | None => {}
    }
}

fn skip_control(rest: &mut Rest<'_>) {
    while rest.next_if(|c| (' '..='?').contains(c)).is_some() {}
    rest.next_if(|c| ('@'..='~').contains(c));
}

fn skip_string(rest: &mut Rest<'_>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// Says whether a character turns the text around it.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
