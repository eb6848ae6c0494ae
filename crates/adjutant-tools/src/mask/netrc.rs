//! Finds passwords in `.netrc` format: `machine HOST login NAME password SECRET`, on one or more lines.
//!
//! `password` alone is an ordinary word. The next word is a secret only if pairs of words before it lead back
//! to `machine` or `default`.

use super::{OPENING, SecretKind, SecretSpan, is_masked};

/// The word before the password.
pub(super) const PASSWORD: &[u8] = b"password";

/// How far back the start of an entry is searched; limits the work per word.
const MAX_ENTRY_BYTES: usize = 512;

/// Finds the password after the word at `at`.
pub(super) fn find(bytes: &[u8], floor: usize, at: usize) -> Option<SecretSpan> {
    let rest = bytes[at..].strip_prefix(PASSWORD)?;
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let before = &bytes[floor.max(at.saturating_sub(MAX_ENTRY_BYTES))..at];
    // The length of the value is determined last, because it may be long.
    if blanks == 0 || rest[blanks..].starts_with(OPENING.as_bytes()) || !is_entry(before) {
        return None;
    }
    let start = at + PASSWORD.len() + blanks;
    let length = bytes[start..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    (length > 0).then_some(SecretSpan { start, end: start + length, kind: SecretKind::Secret })
}

/// Returns whether a text ends with the start of a `.netrc` entry.
fn is_entry(before: &[u8]) -> bool {
    if !before.last().is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b'-'))
    {
        return false;
    }
    let mut words = before.split(|byte| *byte == b'\n').rev().flat_map(words_of_line);
    let mut has_login = false;
    while let Some(value) = words.next() {
        // `the default password is …` is prose, not an entry.
        if value == b"default" && has_login {
            return true;
        }
        // A masked value ends the search, because the first masking could not look back further either.
        match words.next() {
            Some(b"machine") => return !is_masked(value),
            Some(b"login" | b"account") if !is_masked(value) => has_login = true,
            Some(_) | None => return false,
        }
    }
    false
}

/// Returns the words of a line from its end, without a line number that tools add.
fn words_of_line(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let content = match line.get(digits) {
        Some(b'\t' | b':' | b'-') if digits > 0 => &line[digits + 1..],
        Some(_) | None => line,
    };
    content.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).rev()
}
