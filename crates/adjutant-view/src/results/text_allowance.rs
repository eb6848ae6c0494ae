//! How much of a child's text its parent gets.
//!
//! A `TextAllowance` is the number of bytes that are left for the texts of one result.

use std::borrow::Cow;

use super::ResultOptions;

/// The number of bytes that count as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The number of bytes that one result may still use for untrusted text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextAllowance {
    left: usize,
    /// The total size of the texts so far, and how much of it was taken.
    total: usize,
    taken: usize,
    /// Whether a text that is cut keeps its end as well as its start.
    ends: bool,
}

/// Returns the start and the end of a text in at most `bytes` bytes, with the number of missing bytes between
/// them.
#[must_use]
pub fn start_and_end(text: &str, bytes: usize) -> String {
    let Some((head, tail)) = both_ends(text, bytes) else { return text.to_owned() };
    let missing = text.len() - head.len() - tail.len();
    format!("{head}\n[… {missing} bytes are left out here …]\n{tail}")
}

/// Returns the start and the end of a text, the start twice as long. Returns `None` if the text fits.
fn both_ends(text: &str, bytes: usize) -> Option<(&str, &str)> {
    if text.len() <= bytes {
        return None;
    }
    let tail = text.ceil_char_boundary(text.len() - bytes / 3);
    let head = text.floor_char_boundary(bytes - bytes / 3);
    Some((&text[..head], &text[tail..]))
}

impl TextAllowance {
    pub(super) fn new(options: &ResultOptions<'_>) -> Self {
        let bytes = options.result_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let left = bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { left, total: 0, taken: 0, ends: options.ends }
    }

    /// Takes as much of `text` as the allowance permits, cut at a character boundary.
    pub(super) fn take<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if let Some((head, tail)) =
            both_ends(text, self.left).filter(|_| self.ends && self.left > 0)
        {
            let room = std::mem::take(&mut self.left);
            self.total += text.len();
            self.taken += head.len() + tail.len();
            return start_and_end(text, room).into();
        }
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // After a cut, later texts get nothing instead of a few bytes.
        self.left = if end < text.len() { 0 } else { self.left - end };
        self.total += text.len();
        self.taken += end;
        text[..end].into()
    }

    /// Returns the number of taken and of all bytes, if they differ.
    pub(super) const fn cut_sizes(&self) -> Option<(usize, usize)> {
        if self.taken < self.total { Some((self.taken, self.total)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_keeps_both_ends_and_counts_the_middle() {
        let text = format!("begin{}end", "ä".repeat(10_000));
        for bytes in [30, 1_000, 1_001, 1_002, 1_003] {
            let cut = start_and_end(&text, bytes);
            assert!(cut.starts_with("begin") && cut.ends_with("end"), "{cut}");
            let kept = cut.matches('ä').count() * 2 + "beginend".len();
            assert!(kept <= bytes, "{kept} of {bytes}");
            assert!(cut.contains(&format!("{} bytes are left", text.len() - kept)), "{cut}");
        }
        assert_eq!(start_and_end("short", 5), "short");
    }
}
