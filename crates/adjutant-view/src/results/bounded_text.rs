//! A text that never grows beyond its bytes, however its pieces are shown.

use crate::sanitize;

/// Bytes counted as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns the bytes that so many tokens have; `None` for no limit.
pub(super) fn bytes(tokens: Option<u64>) -> usize {
    let bytes = tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
    bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A text with a limit. Invariant: it is never longer than `max` bytes.
#[derive(Debug)]
pub(super) struct BoundedText {
    pub(super) text: String,
    max: usize,
}

impl BoundedText {
    pub(super) const fn new(max: usize) -> Self {
        Self { text: String::new(), max }
    }

    /// Returns the place where the text stands after `parts` of `of` parts of its room.
    pub(super) const fn share(&self, parts: usize, of: usize) -> usize {
        (self.max / of).saturating_mul(parts)
    }

    /// Returns the place that leaves so many bytes at the end; the end where there are too few.
    pub(super) const fn without(&self, bytes: usize) -> usize {
        if bytes > self.max / 2 { self.max } else { self.max - bytes }
    }

    /// Appends a piece if all of it fits before `end`.
    pub(super) fn push(&mut self, piece: &str, end: usize) -> bool {
        let fits = piece.len() <= self.room(end);
        if fits {
            self.text.push_str(piece);
        }
        fits
    }

    /// Appends a piece, or as much of it as fits.
    pub(super) fn push_cut(&mut self, piece: &str) {
        let cut = floor(piece, self.room(self.max));
        self.text.push_str(&piece[..cut]);
    }

    /// Appends foreign text as a block quote, every line behind its own mark, as much of it as fits
    /// before `end`; returns how many bytes of it are shown.
    pub(super) fn quote(&mut self, foreign: &str, end: usize) -> usize {
        let mut shown = 0;
        if foreign.is_empty() || !self.push("\n", end) {
            return 0;
        }
        for (place, line) in foreign.split_inclusive('\n').enumerate() {
            let bare = line.trim_end_matches(['\n', '\r']);
            let mark = if bare.is_empty() { ">" } else { "> " };
            let room = self.room(end).saturating_sub(mark.len() + 1);
            let cut = shown_within(bare, room);
            let nothing = cut == 0 && !(bare.is_empty() && self.room(end) > mark.len());
            if nothing {
                if place == 0 {
                    self.text.pop();
                }
                return shown;
            }
            self.text.push_str(mark);
            self.text.push_str(&sanitize::block(&bare[..cut]));
            self.text.push('\n');
            if cut < bare.len() {
                return shown + cut;
            }
            shown += line.len();
        }
        shown
    }

    fn room(&self, end: usize) -> usize {
        end.min(self.max).saturating_sub(self.text.len())
    }
}

/// Returns how many bytes of `text` are shown in at most `room` bytes: what steers is written out,
/// and that is longer.
fn shown_within(text: &str, room: usize) -> usize {
    let mut cut = floor(text, room);
    loop {
        let shown = sanitize::block(&text[..cut]).len();
        if shown <= room {
            return cut;
        }
        // In proportion, and at least one less: two or three rounds are enough.
        let next = (cut as u128 * room as u128 / shown as u128) as usize;
        cut = floor(text, next.min(cut - 1));
    }
}

/// Returns the last place at or before `at` that lies between characters.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
