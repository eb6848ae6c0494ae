//! Finds where inline code ends, in amortised constant time per question.

use std::collections::BTreeMap;
use std::ops::Range;

/// The backtick runs of one stretch of prose, by length.
///
/// Questions must come in the order of the text: each length remembers how far it was asked. Runs
/// of `k` different lengths take `k²/2` bytes, so the map stays small.
#[derive(Debug)]
pub(super) struct Runs {
    by_len: BTreeMap<usize, Starts>,
}

#[derive(Debug, Default)]
struct Starts {
    starts: Vec<usize>,
    next: usize,
}

impl Runs {
    /// Collects the runs inside `block`.
    pub(super) fn of(text: &str, block: Range<usize>) -> Self {
        let bytes = text.as_bytes();
        let mut by_len: BTreeMap<usize, Starts> = BTreeMap::new();
        let mut at = block.start;
        while at < block.end {
            let len = run_len(&bytes[at..block.end]);
            if len > 0 {
                by_len.entry(len).or_default().starts.push(at);
            }
            at += len.max(1);
        }
        Self { by_len }
    }

    /// Returns where the code ends that a run of `len` backticks ending at `after` opens, and how
    /// many runs had to be passed to know.
    pub(super) fn end(&mut self, len: usize, after: usize) -> (Option<usize>, usize) {
        let Some(Starts { starts, next }) = self.by_len.get_mut(&len) else { return (None, 0) };
        let asked = *next;
        while starts.get(*next).is_some_and(|start| *start < after) {
            *next += 1;
        }
        (starts.get(*next).map(|start| start + len), *next - asked)
    }
}

/// Counts the backticks that `bytes` starts with.
pub(super) fn run_len(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'`').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_at_the_next_run_of_the_same_length() {
        let text = "`a`` b ``c` ```";
        let mut runs = Runs::of(text, 0..text.len());
        assert_eq!(runs.end(1, 1).0, Some(11));
        assert_eq!(runs.end(2, 4).0, Some(9));
        assert_eq!(runs.end(3, 5).0, Some(15));
        assert_eq!(runs.end(1, 11).0, None);
        assert_eq!(runs.end(4, 12).0, None);
    }

    #[test]
    fn runs_outside_the_block_do_not_count() {
        let mut runs = Runs::of("`a` `b`", 2..6);
        assert_eq!(runs.end(1, 3).0, Some(5));
        assert_eq!(runs.end(1, 5).0, None);
    }
}
