//! What of a child's text is handed to its parent.

/// Bytes counted as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The room one result has left for foreign text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    left: usize,
    /// Bytes there were and bytes that were taken.
    total: usize,
    taken: usize,
}

impl Room {
    pub(super) fn new(result_tokens: Option<u64>) -> Self {
        let bytes = result_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let left = bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { left, total: 0, taken: 0 }
    }

    /// Takes as much of `text` as there is room for, cut between characters.
    pub(super) fn take<'t>(&mut self, text: &'t str) -> &'t str {
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Once something was cut, what follows is not squeezed into the last bytes.
        self.left = if end < text.len() { 0 } else { self.left - end };
        self.total += text.len();
        self.taken += end;
        &text[..end]
    }

    /// Returns the bytes taken and the bytes there were, when these differ.
    pub(super) const fn cut(&self) -> Option<(usize, usize)> {
        if self.taken < self.total { Some((self.taken, self.total)) } else { None }
    }
}
