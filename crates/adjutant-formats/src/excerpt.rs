//! Shortening untrusted text so that it fits into a message.

use std::borrow::Cow;

/// Returns `text`, or its first `max - 1` characters and `…` if it is longer than `max` characters.
pub fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    // A text of `max` bytes has at most `max` characters, so the usual case needs no counting.
    if text.len() <= max || text.chars().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    Cow::Owned(kept + "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_counts_characters_and_shows_its_cut() {
        for (text, max, expected) in [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äö…"),
        ] {
            assert_eq!(excerpt(text, max), expected, "{text}");
        }
    }
}
