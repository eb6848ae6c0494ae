//! Finds the end of inline code, in amortised constant time per query.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs up to this length are common and are looked up without a search.
const SHORT: usize = 3;

/// The backtick runs of one block of prose, by length.
///
/// Queries must be made in text order: each length remembers the last position. Runs of `k` different lengths
/// take at least `k²/2` bytes of text, so the map stays small.
#[derive(Debug, Default)]
pub(super) struct BacktickRuns {
    /// Runs of one backtick, of two, and so on. The allocations are reused for the next block.
    short: [RunStarts; SHORT],
    long: BTreeMap<usize, RunStarts>,
}

#[derive(Debug, Default)]
struct RunStarts {
    starts: Vec<usize>,
    next: usize,
}

impl BacktickRuns {
    /// Clears the old runs and collects the runs inside `block`.
    pub(super) fn collect(&mut self, text: &str, block: Range<usize>) {
        for RunStarts { starts, next } in &mut self.short {
            starts.clear();
            *next = 0;
        }
        self.long.clear();
        let bytes = text.as_bytes();
        let mut at = block.start;
        while let Some(plain) = bytes[at..block.end].iter().position(|byte| *byte == b'`') {
            at += plain;
            let len = run_len(&bytes[at..block.end]);
            let of_len = match self.short.get_mut(len - 1) {
                Some(short) => short,
                None => self.long.entry(len).or_default(),
            };
            of_len.starts.push(at);
            at += len;
        }
    }

    /// Returns the end of the code that a run of `len` backticks ending at `after` opens, and the number of
    /// runs passed during the search.
    pub(super) fn end(&mut self, len: usize, after: usize) -> (Option<usize>, usize) {
        let short = len.checked_sub(1).and_then(|nth| self.short.get_mut(nth));
        let Some(RunStarts { starts, next }) = short.or_else(|| self.long.get_mut(&len)) else {
            return (None, 0);
        };
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
        let mut runs = BacktickRuns::default();
        runs.collect(text, 0..text.len());
        assert_eq!(runs.end(1, 1).0, Some(11));
        assert_eq!(runs.end(2, 4).0, Some(9));
        assert_eq!(runs.end(3, 5).0, Some(15));
        assert_eq!(runs.end(1, 11).0, None);
        assert_eq!(runs.end(4, 12).0, None);
    }

    #[test]
    fn runs_outside_the_block_do_not_count() {
        let mut runs = BacktickRuns::default();
        runs.collect("`a` `b`", 2..6);
        assert_eq!(runs.end(1, 3).0, Some(5));
        assert_eq!(runs.end(1, 5).0, None);
    }

    #[test]
    fn runs_of_the_stretch_before_are_forgotten() {
        let text = "`a` ````b```` `c ````d";
        let mut runs = BacktickRuns::default();
        runs.collect(text, 0..14);
        assert_eq!((runs.end(1, 1).0, runs.end(4, 8).0), (Some(3), Some(13)));
        runs.collect(text, 14..text.len());
        assert_eq!((runs.end(1, 15).0, runs.end(4, 21).0), (None, None));
    }
}
