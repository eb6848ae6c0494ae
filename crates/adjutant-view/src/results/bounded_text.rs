//! A text with a maximum size.
//!
//! A `BoundedText` grows by pieces and refuses pieces that do not fit.

use crate::sanitize;

/// The number of bytes that count as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns the number of bytes for a number of tokens; `None` means no limit.
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

    /// Returns the position at `parts`/`of` of the maximum size.
    pub(super) const fn share(&self, parts: usize, of: usize) -> usize {
        (self.max / of).saturating_mul(parts)
    }

    /// Returns the position that leaves `bytes` at the end, or the end if that is more than half of the size.
    pub(super) const fn position_leaving(&self, bytes: usize) -> usize {
        if bytes > self.max / 2 { self.max } else { self.max - bytes }
    }

    /// Appends a piece if it fits completely before `end`.
    pub(super) fn push(&mut self, piece: &str, end: usize) -> bool {
        let fits = piece.len() <= self.room(end);
        if fits {
            self.text.push_str(piece);
        }
        fits
    }

    /// Appends as much of a piece as fits.
    pub(super) fn push_cut(&mut self, piece: &str) {
        let cut = floor(piece, self.room(self.max));
        self.text.push_str(&piece[..cut]);
    }

    /// Appends as much untrusted text as fits before `end` as a block quote, each line with its own mark.
    /// Returns how many bytes of it are shown.
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

/// Returns how many bytes of `text` can be shown in `room` bytes. Escaped characters take more room than the
/// original.
fn shown_within(text: &str, room: usize) -> usize {
    let mut cut = floor(text, room);
    loop {
        let shown = sanitize::block(&text[..cut]).len();
        if shown <= room {
            return cut;
        }
        // Shrink proportionally, but at least by one byte; two or three iterations suffice.
        let next = (cut as u128 * room as u128 / shown as u128) as usize;
        cut = floor(text, next.min(cut - 1));
    }
}

/// Returns the last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
