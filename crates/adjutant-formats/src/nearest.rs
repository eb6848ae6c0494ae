//! Finds the known name closest to a misspelt one.

/// Returns the candidate closest to `name`, if it is close enough to be a typing error.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A very long name is not a typing error, and comparing it would take quadratic time.
    if name.chars().count() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}

/// Counts the single-character edits between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitution = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_understood_and_another_word_is_not() {
        let known = ["label", "prompt", "context", "model", "max_output_tokens", "max_depth"];
        for (word, expected) in [
            ("promt", Some("prompt")),
            ("Prompt", Some("prompt")),
            ("contexts", Some("context")),
            ("max_dept", Some("max_depth")),
            ("maxOutputTokens", Some("max_output_tokens")),
            ("max_tokens", None),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }

    #[test]
    fn edits_are_counted_in_letters() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 2), ("é", "e", 1)]
        {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
    }
}
