//! One page of a long text. The text is produced piece by piece, and production stops when the page is full.

use std::mem;

/// Bytes reserved for the note at the end of a page.
const NOTE_BYTES: usize = 256;

/// One page of a resource: collects text from an offset until the page is full.
pub(crate) struct ResourcePage {
    /// The offset in the text at which the page starts.
    offset: usize,
    /// The bytes that are left on the page, counted as escaped JSON.
    room: usize,
    /// How many bytes of the text were consumed so far.
    seen: usize,
    text: String,
    is_full: bool,
}

impl ResourcePage {
    /// Starts a page at `offset` that takes at most `bytes` of the message, including its note.
    pub(crate) const fn new(offset: usize, bytes: usize) -> Self {
        let room = bytes.saturating_sub(NOTE_BYTES);
        Self { offset, room, seen: 0, text: String::new(), is_full: false }
    }

    /// Adds the next piece of the text. Returns whether the page can take more.
    pub(crate) fn add(&mut self, piece: &str) -> bool {
        if self.is_full {
            return false;
        }
        let passed = piece.floor_char_boundary(self.offset.saturating_sub(self.seen));
        self.seen += passed;
        for character in piece[passed..].chars() {
            let size = escaped_len(character);
            // A page always has at least one character, so that following the pages reaches the end.
            self.is_full = size > self.room && !self.text.is_empty();
            if self.is_full {
                return false;
            }
            self.room = self.room.saturating_sub(size);
            self.text.push(character);
            self.seen += character.len_utf8();
        }
        true
    }

    /// Returns the page. Unless it is the whole text, a note says where the next page is.
    pub(crate) fn finish(mut self, address: &str) -> String {
        let text = mem::take(&mut self.text);
        let (begin, end) = (self.seen - text.len(), self.seen);
        match (begin, self.is_full) {
            (0, false) => text,
            (_, false) => format!("{text}\n[bytes {begin} to {end}; end of text]\n"),
            (_, true) => {
                let next = format!("continued at {address}?offset={end}");
                format!("{text}\n[bytes {begin} to {end}; {next}]\n")
            }
        }
    }
}

/// Returns the length of a character inside a JSON string.
fn escaped_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Following the pages yields every byte exactly once, and each page keeps to its size.
    #[test]
    fn pages_together_are_the_whole_text() {
        let pieces: Vec<_> = (0..500).map(|n| format!("Zeile {n} \"äöü\" \u{1}\n")).collect();
        for bytes in [0, NOTE_BYTES + 1, NOTE_BYTES + 2, NOTE_BYTES + 101, NOTE_BYTES + 4000] {
            let (mut offset, mut all) = (0, String::new());
            loop {
                let mut page = ResourcePage::new(offset, bytes);
                // No piece is produced beyond the page.
                let made = pieces.iter().take_while(|piece| page.add(piece)).count();
                let text = page.finish("x");
                let size = json!(text).to_string().len() - 2;
                assert!(size <= bytes.max(NOTE_BYTES + 6), "{size} of {bytes}");
                let (body, note) = text.rsplit_once("\n[bytes ").unwrap();
                all += body;
                let Some((_, next)) = note.split_once("?offset=") else { break };
                assert!(made < pieces.len(), "{note}");
                offset = next.trim_end_matches("]\n").parse().unwrap();
            }
            assert_eq!(all, pieces.concat(), "pages of {bytes}");
        }
    }

    #[test]
    fn a_text_that_fits_has_no_note_and_a_page_behind_the_end_is_empty() {
        let mut page = ResourcePage::new(0, NOTE_BYTES + 3);
        assert!(page.add("ab") && page.add("c"));
        assert_eq!(page.finish("x"), "abc");
        let mut page = ResourcePage::new(usize::MAX, NOTE_BYTES + 3);
        assert!(page.add("abc"));
        assert_eq!(page.finish("x"), "\n[bytes 3 to 3; end of text]\n");
    }
}
