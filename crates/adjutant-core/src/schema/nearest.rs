//! Guesses which known word a misspelled one was meant to be.

/// Returns the known word that `word` was probably meant to be.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    const MAX_EDITS: usize = 2;
    let longest = known.iter().map(|known| known.len()).max().unwrap_or(0);
    if word.len() > longest + MAX_EDITS {
        return None;
    }
    let word = word.to_lowercase();
    let nearest = known.iter().map(|known| (edits(&word, known), *known)).min()?;
    (nearest.0 <= MAX_EDITS && nearest.0 < nearest.1.len()).then_some(nearest.1)
}

/// Counts the letters to insert, delete or change to get from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (above, from) in from.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (left, to) in to.chars().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[left + 1];
            row[left + 1] = change.min(diagonal + 1).min(row[left] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["label", "prompt", "context", "model", "max_output_tokens"];
        for (word, expected) in [
            ("promt", Some("prompt")),
            ("Prompt", Some("prompt")),
            ("labels", Some("label")),
            ("contexts", Some("context")),
            ("max_tokens", None),
            ("maxOutputTokens", Some("max_output_tokens")),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), &known), None);
    }

    #[test]
    fn edits_are_counted_in_letters() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 2), ("é", "e", 1)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
            assert_eq!(edits(to, from), expected, "{to} {from}");
        }
    }
}
