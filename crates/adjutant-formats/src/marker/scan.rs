//! Finds marker candidates: `[delegate:` outside code and quotations, with or without a closing bracket.

use std::ops::Range;

use super::code_span::{BacktickRuns, run_len};
use super::prose_blocks::prose;

/// The start of every marker. Case-sensitive.
pub(super) const PREFIX: &str = "[delegate:";

/// A piece of text that starts like a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkerCandidate {
    /// Its byte range.
    pub(super) span: Range<usize>,
    /// Whether its bracket is closed on the same line.
    pub(super) is_closed: bool,
}

/// Returns all candidates in order; no candidate is inside another.
pub(super) fn candidates(text: &str) -> Vec<MarkerCandidate> {
    let mut scan = MarkerScanner::new(text);
    // Most prose has no marker, and searching for the prefix is much cheaper than a full scan.
    let brackets = text.match_indices('[').map(|(at, _)| at);
    let mut starts = brackets.filter(|at| is_start(text, *at)).peekable();
    let mut blocks = prose(text);
    while starts.peek().is_some()
        && let Some(block) = blocks.next()
    {
        while starts.next_if(|start| *start < block.start).is_some() {}
        if starts.peek().is_some_and(|start| *start < block.end) {
            scan.block(block);
        }
    }
    debug_assert!(scan.steps <= 4 * text.len(), "the scan is linear");
    scan.found.retain(|it| !is_cited(text, &it.span));
    scan.found
}

/// Returns whether a marker, closed or not, starts at `at`.
fn is_start(text: &str, at: usize) -> bool {
    text.as_bytes()[at..].starts_with(PREFIX.as_bytes())
}

/// Returns whether a marker is directly enclosed in quotation marks, that is, only mentioned.
fn is_cited(text: &str, span: &Range<usize>) -> bool {
    const MARKS: [(char, char); 5] = [('"', '"'), ('\'', '\''), ('“', '”'), ('‘', '’'), ('«', '»')];
    let (before, after) = (text[..span.start].chars().next_back(), text[span.end..].chars().next());
    before.zip(after).is_some_and(|marks| MARKS.contains(&marks))
}

/// An opening bracket whose closing bracket has not been found yet.
#[derive(Clone, Copy, Debug)]
struct OpenBracket {
    at: usize,
    is_marker: bool,
}

/// Scans the text in one pass that looks at each byte a bounded number of times.
struct MarkerScanner<'a> {
    text: &'a str,
    found: Vec<MarkerCandidate>,
    /// The backtick runs of the current block.
    runs: BacktickRuns,
    /// The open brackets of the current line.
    open: Vec<OpenBracket>,
    /// How many of the open brackets start a marker.
    open_markers: usize,
    /// The index in `found` of the current line's first candidate.
    line_found: usize,
    /// The byte offset of the end of the current line.
    line_end: usize,
    /// The work done so far: the number of bytes and candidates looked at.
    steps: usize,
}

impl<'a> MarkerScanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            found: Vec::new(),
            runs: BacktickRuns::default(),
            open: Vec::new(),
            open_markers: 0,
            line_found: 0,
            line_end: 0,
            steps: 0,
        }
    }

    fn block(&mut self, block: Range<usize>) {
        self.runs.collect(self.text, block.clone());
        let bytes = self.text.as_bytes();
        let mut at = block.start;
        while at < block.end {
            if at >= self.line_end {
                self.end_line(at);
                self.begin_line(at, block.end);
            }
            let rest = &bytes[at..self.line_end];
            let plain = rest.iter().position(|byte| matches!(byte, b'\\' | b'`' | b'[' | b']'));
            self.spend(plain.map_or(rest.len(), |plain| plain + 1));
            let Some(plain) = plain else {
                at = self.line_end;
                continue;
            };
            at += plain;
            at = match bytes[at] {
                b'\\' => at + 1 + usize::from(self.is_escapable(at + 1)),
                b'`' => self.backticks(at, block.end),
                b'[' => self.bracket_opens(at),
                b']' => self.bracket_closes(at),
                _ => at + 1,
            };
        }
        self.end_line(block.end);
    }

    /// Returns the offset at which scanning continues after the backticks at `at`.
    ///
    /// Inside a marker, code must end on the marker's line; otherwise a stray backtick in one marker would
    /// hide the next.
    fn backticks(&mut self, at: usize, end: usize) -> usize {
        let len = run_len(&self.text.as_bytes()[at..end]);
        self.spend(len);
        let (code_end, passed) = self.runs.end(len, at + len);
        self.spend(passed);
        code_end.filter(|end| self.open_markers == 0 || *end <= self.line_end).unwrap_or(at + len)
    }

    fn bracket_opens(&mut self, at: usize) -> usize {
        let is_marker = is_start(self.text, at);
        // Brackets outside a marker need not be balanced.
        if is_marker || self.open_markers > 0 {
            self.open.push(OpenBracket { at, is_marker });
        }
        self.open_markers += usize::from(is_marker);
        if is_marker { at + PREFIX.len() } else { at + 1 }
    }

    fn bracket_closes(&mut self, at: usize) -> usize {
        if let Some(OpenBracket { at: start, is_marker: true }) = self.open.pop() {
            self.open_markers -= 1;
            // Markers inside this one are part of its description.
            while self.found[self.line_found..].last().is_some_and(|it| it.span.start > start) {
                self.spend(1);
                self.found.pop();
            }
            self.found.push(MarkerCandidate { span: start..at + 1, is_closed: true });
        }
        at + 1
    }

    fn begin_line(&mut self, at: usize, end: usize) {
        let line = &self.text.as_bytes()[at..end];
        self.line_end = line
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\r'))
            .map_or(end, |len| at + len + 1);
        self.line_found = self.found.len();
        self.spend(self.line_end - at);
    }

    /// Adds the unclosed markers of a line as candidates, each extending to the next candidate.
    fn end_line(&mut self, next_line: usize) {
        if self.open_markers > 0 {
            let mut line = self.found.split_off(self.line_found);
            let unclosed = self.open.iter().filter(|open| open.is_marker);
            line.extend(
                unclosed.map(|open| MarkerCandidate { span: open.at..open.at, is_closed: false }),
            );
            line.sort_by_key(|candidate| candidate.span.start);
            self.close_gaps(line, next_line);
        }
        self.open.clear();
        self.open_markers = 0;
    }

    fn close_gaps(&mut self, line: Vec<MarkerCandidate>, next_line: usize) {
        let ends: Vec<usize> = line.iter().skip(1).map(|candidate| candidate.span.start).collect();
        let ends = ends.into_iter().chain([self.line_end.min(next_line)]);
        for (mut candidate, end) in line.into_iter().zip(ends) {
            if !candidate.is_closed {
                let start = candidate.span.start;
                candidate.span.end = start + self.text[start..end].trim_end().len();
            }
            self.found.push(candidate);
        }
    }

    fn is_escapable(&self, at: usize) -> bool {
        self.text.as_bytes().get(at).is_some_and(u8::is_ascii_punctuation)
    }

    /// Counts work, so that a test can check that it grows linearly.
    const fn spend(&mut self, steps: usize) {
        self.steps += steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        let shown = |it: MarkerCandidate| {
            let sign = if it.is_closed { "" } else { "? " };
            format!("{sign}{}", &text[it.span])
        };
        candidates(text).into_iter().map(shown).collect()
    }

    #[test]
    fn markers_are_found_in_prose_only() {
        let none: [&str; 0] = [];
        for text in [
            "no marker",
            "[delegate] [Delegate:a:1] [ delegate:a:1] delegate:a:1]",
            "```\n[delegate:a:1]\n```",
            "~~~~ text\n[delegate:a:1]\n~~~\n[delegate:b:1]\n~~~~",
            "say `[delegate:a:1]` here",
            "say ``[delegate:a`b:1]`` here",
            "say `over two\n[delegate:a:1] lines`",
            "\\[delegate:a:1]",
            "\\\\\\[delegate:a:1]",
            "> ```\n> [delegate:a:1]\n> ```",
            "\n      ```\n      [delegate:a:1]\n      ```",
            "> [delegate:a:1]",
            "It says:\n>[delegate:a:1]\n> and more",
            "- > [delegate:a:1]",
            "It says:\n\n    [delegate:a:1]\n\n    [delegate:b:1]",
            "\t[delegate:a:1]",
            "line 3 of notes.md says \"[delegate:a:1]\"",
            "“[delegate:a:1]”",
        ] {
            assert_eq!(check(text), none, "{text}");
        }
        for text in [
            "[delegate:a:1]",
            "  - [delegate:a:1] and more",
            "a ` b [delegate:a:1]",
            "a ` b\n\n[delegate:a:1] ` c",
            "- a ` b\n- [delegate:a:1] ` c",
            "a `` b [delegate:a:1] ` c",
            "\\` [delegate:a:1] `",
            "\\\\[delegate:a:1]",
            "`code\\` [delegate:a:1] `",
            "see [ this [delegate:a:1]",
            "] [delegate:a:1]",
            "```\ncode\n```\n[delegate:a:1]",
            "é[delegate:a:1]é",
            "> quoted\n[delegate:a:1]",
            "1. one\n\n   [delegate:a:1]",
            "- one\n    - two\n        [delegate:a:1]",
            "Parts:\n    [delegate:a:1]",
            "\"do [delegate:a:1] now\"",
        ] {
            assert_eq!(check(text), ["[delegate:a:1]"], "{text}");
        }
    }

    #[test]
    fn brackets_inside_a_marker_are_balanced() {
        for text in [
            "[delegate:fix a[0] and b[c[1]]:2]",
            "[delegate:fix the `]` key:2]",
            "[delegate:fix the `[` key:2]",
            "[delegate:fix \\] and \\[ keys:2]",
            "[delegate:outer [delegate:inner:1] rest:2]",
            "[delegate:a stray ` tick:2]",
        ] {
            assert_eq!(check(&format!("x {text} y")), [text]);
        }
    }

    #[test]
    fn a_marker_ends_on_its_line() {
        for (text, expected) in [
            ("[delegate:a\nb:1]", vec!["? [delegate:a"]),
            ("[delegate:a\r\nb:1]", vec!["? [delegate:a"]),
            ("[delegate:a[0:1] ", vec!["? [delegate:a[0:1]"]),
            ("[delegate:a [delegate:b:1]", vec!["? [delegate:a", "[delegate:b:1]"]),
            ("[delegate:[delegate:", vec!["? [delegate:", "? [delegate:"]),
            (
                "[delegate:a ` b:1]\n[delegate:c ` d:2]",
                vec!["[delegate:a ` b:1]", "[delegate:c ` d:2]"],
            ),
            ("[delegate:a\n```\n]\n```", vec!["? [delegate:a"]),
        ] {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn the_work_grows_with_the_text_and_not_faster() {
        const SIZE: usize = 200_000;
        for unit in [
            "[delegate:",
            "[",
            "]",
            "`",
            "` ",
            "`` ` ",
            "`[delegate:",
            "[delegate:`",
            "[delegate:`` ",
            "[delegate:a:1]",
            "[delegate:[delegate:]",
            "[[delegate:]",
            "\\",
            "\n",
            "[delegate:\n",
            "```\n",
            "~~~ x\n",
            "- `\n",
            "> [delegate:a:1]\n",
            "- ",
            "- - -\n",
            "    [delegate:a:1]\n",
        ] {
            let text = unit.repeat(SIZE / unit.len());
            let mut scan = MarkerScanner::new(&text);
            for block in prose(&text) {
                scan.block(block);
            }
            assert!(scan.steps <= 4 * text.len(), "{unit:?}: {}", scan.steps);
        }
        // Nesting that is closed only at the end.
        let text = "[delegate:".repeat(10_000) + &"]".repeat(10_000);
        let mut scan = MarkerScanner::new(&text);
        scan.block(0..text.len());
        assert_eq!(scan.found.len(), 1);
        assert!(scan.steps <= 3 * text.len());
    }
}
