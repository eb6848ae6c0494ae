//! The lines of a Markdown text: where each begins, and whether it is prose at all.
//!
//! Headings and fields count only in prose: what stands in a code fence, a comment or the front
//! matter is hidden. A fence or comment that nobody closes hides nothing, so that a slip does not
//! make every task below it disappear.

use std::ops::Range;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its first byte.
    pub(super) start: usize,
    /// Behind its last byte, without the line ending.
    pub(super) end: usize,
    /// Where the next one begins.
    pub(super) next: usize,
    /// Whether it is code, comment or front matter.
    pub(super) hidden: bool,
}

impl Line {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Says whether the line ends with a line ending.
    pub(super) fn is_ended(&self) -> bool {
        self.next > self.end
    }
}

/// Cuts a text into lines and marks the hidden ones.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut start = 0;
    for piece in text.split_inclusive('\n') {
        let bare = piece.strip_suffix('\n').unwrap_or(piece);
        let bare =
            if bare.len() < piece.len() { bare.strip_suffix('\r').unwrap_or(bare) } else { bare };
        let next = start + piece.len();
        lines.push(Line { start, end: start + bare.len(), next, hidden: false });
        start = next;
    }
    hide(text, &mut lines);
    lines
}

/// Returns the lines of the front matter, with both of its rules.
pub(super) fn front_matter(text: &str, lines: &[Line]) -> usize {
    let is_rule = |line: &Line| text[line.range()].trim_end() == "---";
    if !lines.first().is_some_and(is_rule) {
        return 0;
    }
    lines.iter().skip(1).position(is_rule).map_or(0, |place| place + 2)
}

fn hide(text: &str, lines: &mut [Line]) {
    let fences: Vec<Option<Fence>> = lines.iter().map(|line| fence(&text[line.range()])).collect();
    let longest = longest_closers(&fences);
    let last_close = lines.iter().rposition(|line| text[line.range()].contains("-->"));
    let mut at = front_matter(text, lines);
    lines[..at].iter_mut().for_each(|line| line.hidden = true);
    while at < lines.len() {
        let end = if let Some(open) = fences[at] {
            let closes = longest[at + 1][open.kind()] >= open.length;
            closes.then(|| closer(&fences, at, open)).flatten()
        } else if text[lines[at].range()].trim_start().starts_with("<!--") {
            let closes = last_close.is_some_and(|last| last >= at);
            closes.then(|| comment_end(text, lines, at)).flatten()
        } else {
            None
        };
        let Some(end) = end else {
            at += 1;
            continue;
        };
        lines[at..=end].iter_mut().for_each(|line| line.hidden = true);
        at = end + 1;
    }
}

/// A line that may open or close a block of code.
#[derive(Clone, Copy, Debug)]
struct Fence {
    mark: u8,
    length: usize,
    /// Whether nothing follows the marks; only such a line closes.
    is_bare: bool,
}

impl Fence {
    fn kind(self) -> usize {
        usize::from(self.mark == b'~')
    }
}

fn fence(line: &str) -> Option<Fence> {
    let body = line.trim_start_matches(' ');
    let mark = *body.as_bytes().first()?;
    if line.len() - body.len() > 3 || !matches!(mark, b'`' | b'~') {
        return None;
    }
    let length = body.bytes().take_while(|byte| *byte == mark).count();
    let rest = &body[length..];
    let is_code = length >= 3 && !(mark == b'`' && rest.contains('`'));
    is_code.then(|| Fence { mark, length, is_bare: rest.trim().is_empty() })
}

/// Returns the longest closing fence from each line on, by kind.
///
/// With it an opening fence knows at once that nothing closes it, so that a file full of such
/// fences costs no more than another.
fn longest_closers(fences: &[Option<Fence>]) -> Vec<[usize; 2]> {
    let mut longest = vec![[0; 2]; fences.len() + 1];
    for (at, fence) in fences.iter().enumerate().rev() {
        longest[at] = longest[at + 1];
        if let Some(fence) = fence.filter(|fence| fence.is_bare) {
            let known = &mut longest[at][fence.kind()];
            *known = fence.length.max(*known);
        }
    }
    longest
}

fn closer(fences: &[Option<Fence>], at: usize, open: Fence) -> Option<usize> {
    let closes =
        |fence: &Fence| fence.is_bare && fence.mark == open.mark && fence.length >= open.length;
    let below = fences.iter().enumerate().skip(at + 1);
    below.filter_map(|(place, fence)| fence.filter(closes).map(|_| place)).next()
}

fn comment_end(text: &str, lines: &[Line], at: usize) -> Option<usize> {
    let holds = |line: &Line| text[line.range()].contains("-->");
    lines[at..].iter().position(holds).map(|place| at + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text with every hidden line blotted out.
    fn seen(text: &str) -> String {
        let shown = |line: &Line| if line.hidden { "·" } else { &text[line.range()] }.to_owned();
        lines(text).iter().map(shown).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn code_comments_and_front_matter_are_hidden() {
        for (text, expected) in [
            ("a\r\nb", "a|b"),
            ("---\nnext: 1\n---\na\n", "·|·|·|a"),
            ("---\nnever closed\n", "---|never closed"),
            ("a\n```rust\n### 1. x\n```\nb", "a|·|·|·|b"),
            ("~~~\n```\n~~~~\nb", "·|·|·|b"),
            ("````\n```\n````\nb", "·|·|·|b"),
            ("```\nnever closed\n~~~", "```|never closed|~~~"),
            ("``` one line ```\nb", "``` one line ```|b"),
            ("    ```\nb\n```", "    ```|b|```"),
            ("<!-- a\n### 1. x\n-->\nb", "·|·|·|b"),
            ("<!-- a -->\nb", "·|b"),
            ("<!-- a\nb", "<!-- a|b"),
        ] {
            assert_eq!(seen(text), expected, "{text:?}");
        }
    }
}
