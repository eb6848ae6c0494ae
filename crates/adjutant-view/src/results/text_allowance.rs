//! What of a child's text is handed to its parent.

use std::borrow::Cow;

use super::ResultOptions;

/// Bytes counted as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The room one result has left for foreign text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextAllowance {
    left: usize,
    /// Bytes there were and bytes that were taken.
    total: usize,
    taken: usize,
    /// Whether the end of a text that is cut is kept as well.
    ends: bool,
}

/// Returns the beginning and the end of a text, in so many bytes, with what is missing counted between.
#[must_use]
pub fn ends(text: &str, bytes: usize) -> String {
    let Some((head, tail)) = both_ends(text, bytes) else { return text.to_owned() };
    let missing = text.len() - head.len() - tail.len();
    format!("{head}\n[… {missing} bytes are left out here …]\n{tail}")
}

/// Returns the beginning and the end, the beginning twice as long; nothing where all of it fits.
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

    /// Takes as much of `text` as there is room for, cut between characters.
    pub(super) fn take<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if let Some((head, tail)) =
            both_ends(text, self.left).filter(|_| self.ends && self.left > 0)
        {
            let room = std::mem::take(&mut self.left);
            self.total += text.len();
            self.taken += head.len() + tail.len();
            return ends(text, room).into();
        }
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Once something was cut, what follows is not squeezed into the last bytes.
        self.left = if end < text.len() { 0 } else { self.left - end };
        self.total += text.len();
        self.taken += end;
        text[..end].into()
    }

    /// Returns the bytes taken and the bytes there were, when these differ.
    pub(super) const fn cut(&self) -> Option<(usize, usize)> {
        if self.taken < self.total { Some((self.taken, self.total)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_text_stay_and_the_middle_is_counted() {
        let text = format!("begin{}end", "ä".repeat(10_000));
        for bytes in [30, 1_000, 1_001, 1_002, 1_003] {
            let cut = ends(&text, bytes);
            assert!(cut.starts_with("begin") && cut.ends_with("end"), "{cut}");
            let kept = cut.matches('ä').count() * 2 + "beginend".len();
            assert!(kept <= bytes, "{kept} of {bytes}");
            assert!(cut.contains(&format!("{} bytes are left", text.len() - kept)), "{cut}");
        }
        assert_eq!(ends("short", 5), "short");
    }
}
