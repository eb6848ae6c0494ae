//! Makes text of the project safe to quote on one line of a prompt.

use crate::Masker;

/// The most characters of one name or command.
const MAX_CHARS: usize = 120;

/// The most characters of a path of this machine.
const MAX_PATH_CHARS: usize = 250;

/// Returns a name or command of the project for a prompt: secrets masked, control and bidirectional characters and
/// line breaks escaped, and cut at 120 characters.
#[must_use]
pub fn shown(text: &str, masker: &Masker) -> String {
    escape(text, masker, MAX_CHARS)
}

/// Like [`shown`] for a path of this machine, which agents use: cut at 250 characters.
#[must_use]
pub fn shown_path(path: &str, masker: &Masker) -> String {
    escape(path, masker, MAX_PATH_CHARS)
}

fn escape(text: &str, masker: &Masker, max_chars: usize) -> String {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let masked = masker.mask(text);
    if masked.len() <= max_chars && masked.bytes().all(is_plain) {
        return masked.into_owned();
    }
    let mut out = String::new();
    for c in masked.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    match out.char_indices().nth(max_chars) {
        Some(_) => out.chars().take(max_chars - 1).chain(['…']).collect(),
        None => out,
    }
}

/// Returns whether a character is invisible or changes the direction of the text around it.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}
