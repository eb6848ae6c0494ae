//! Edits of a text as data: byte ranges and their replacements.

use std::ops::Range;

/// A byte range and the text that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl Splice {
    pub(crate) fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, text: text.into() }
    }

    pub(crate) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self::replace(at..at, text)
    }
}

/// Applies splices; returns `None` if two of them overlap.
///
/// An insertion goes before a replacement at the same position, and several insertions keep their order.
pub(crate) fn apply(text: &str, mut splices: Vec<Splice>) -> Option<String> {
    splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let added: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = String::with_capacity(text.len() + added);
    let mut at = 0;
    for Splice { range, text: new } in splices {
        out.push_str(text.get(at..range.start)?);
        out.push_str(&new);
        at = range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splices_that_touch_have_an_order_and_those_that_overlap_are_refused() {
        let at = |range: Range<usize>, text: &str| Splice::replace(range, text);
        let applied = |splices: &[Splice]| apply("abc", splices.to_vec());
        for (splices, expected) in [
            (vec![at(1..2, ""), at(1..1, "x"), at(1..1, "y")], Some("axyc")),
            (vec![at(2..2, "x"), at(1..2, "y")], Some("ayxc")),
            (vec![at(3..3, "x"), at(0..3, "")], Some("x")),
            (vec![at(0..2, "x"), at(1..3, "y")], None),
            (vec![at(0..3, "x"), at(0..3, "y")], None),
            (vec![at(0..3, "x"), at(1..1, "y")], None),
        ] {
            assert_eq!(applied(&splices).as_deref(), expected, "{splices:?}");
        }
    }
}
