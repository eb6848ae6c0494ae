//! The lines of a Markdown text: their positions, and whether they are prose.
//!
//! Headings and fields count only in prose; lines in a code fence, a comment or the front matter are hidden.
//! An unclosed fence or comment hides nothing, so that a typing error does not make all following tasks
//! disappear.

use std::ops::Range;

/// A line of a Markdown text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkdownLine {
    /// The offset of its first byte.
    pub(super) start: usize,
    /// The offset after its last byte, without the line ending.
    pub(super) end: usize,
    /// The offset of the next line.
    pub(super) next: usize,
    /// Whether it is code, a comment or front matter.
    pub(super) hidden: bool,
}

impl MarkdownLine {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Returns whether it has a line ending.
    pub(super) fn is_ended(&self) -> bool {
        self.next > self.end
    }
}

/// Splits a text into lines and marks the hidden ones.
pub(super) fn lines(text: &str) -> Vec<MarkdownLine> {
    let count = text.bytes().filter(|byte| *byte == b'\n').count();
    let mut lines = Vec::with_capacity(count + 1);
    let mut start = 0;
    for piece in text.split_inclusive('\n') {
        let bare = piece.strip_suffix('\n').unwrap_or(piece);
        let bare =
            if bare.len() < piece.len() { bare.strip_suffix('\r').unwrap_or(bare) } else { bare };
        let next = start + piece.len();
        lines.push(MarkdownLine { start, end: start + bare.len(), next, hidden: false });
        start = next;
    }
    hide_code_and_comments(text, &mut lines);
    lines
}

/// Returns the number of lines of the front matter, including its delimiters.
pub(super) fn front_matter(text: &str, lines: &[MarkdownLine]) -> usize {
    let is_rule = |line: &MarkdownLine| text[line.range()].trim_end() == "---";
    if !lines.first().is_some_and(is_rule) {
        return 0;
    }
    lines.iter().skip(1).position(is_rule).map_or(0, |place| place + 2)
}

fn hide_code_and_comments(text: &str, lines: &mut [MarkdownLine]) {
    let marks: Vec<(usize, BlockMark)> = lines
        .iter()
        .enumerate()
        .filter_map(|(place, line)| Some((place, mark(&text[line.range()])?)))
        .collect();
    let longest = longest_closers(&marks);
    let has_comment = marks.iter().any(|(_, mark)| matches!(mark, BlockMark::Comment));
    let last_close = has_comment.then(|| text.rfind("-->")).flatten();
    let mut shown = front_matter(text, lines);
    lines[..shown].iter_mut().for_each(|line| line.hidden = true);
    for (nth, (place, mark)) in marks.iter().enumerate() {
        if *place < shown {
            continue;
        }
        let end = match mark {
            BlockMark::Fence(open) if longest[nth + 1][open.kind()] >= open.length => {
                closer(&marks[nth + 1..], *open)
            }
            BlockMark::Comment if last_close.is_some_and(|last| last >= lines[*place].start) => {
                comment_end(text, lines, *place)
            }
            BlockMark::Fence(_) | BlockMark::Comment => None,
        };
        if let Some(end) = end {
            lines[*place..=end].iter_mut().for_each(|line| line.hidden = true);
            shown = end + 1;
        }
    }
}

/// A line that may start or end a hidden block.
#[derive(Clone, Copy, Debug)]
enum BlockMark {
    Fence(FenceLine),
    Comment,
}

fn mark(line: &str) -> Option<BlockMark> {
    let body = line.trim_start();
    match body.as_bytes().first()? {
        b'<' => body.starts_with("<!--").then_some(BlockMark::Comment),
        b'`' | b'~' => fence(line).map(BlockMark::Fence),
        _ => None,
    }
}

/// A line that may open or close a code block.
#[derive(Clone, Copy, Debug)]
struct FenceLine {
    mark: u8,
    length: usize,
    /// Whether nothing follows the fence characters; only such a line can close a block.
    is_bare: bool,
}

impl FenceLine {
    fn kind(self) -> usize {
        usize::from(self.mark == b'~')
    }
}

fn fence(line: &str) -> Option<FenceLine> {
    let body = line.trim_start_matches(' ');
    let mark = *body.as_bytes().first()?;
    if line.len() - body.len() > 3 || !matches!(mark, b'`' | b'~') {
        return None;
    }
    let length = body.bytes().take_while(|byte| *byte == mark).count();
    let rest = &body[length..];
    let is_code = length >= 3 && !(mark == b'`' && rest.contains('`'));
    is_code.then(|| FenceLine { mark, length, is_bare: rest.trim().is_empty() })
}

/// Returns, for each mark, the length of the longest closing fence after it, per fence character.
///
/// This tells at once whether an opening fence is ever closed, so a file full of unclosed fences takes linear
/// time.
fn longest_closers(marks: &[(usize, BlockMark)]) -> Vec<[usize; 2]> {
    let mut longest = vec![[0; 2]; marks.len() + 1];
    for (nth, (_, mark)) in marks.iter().enumerate().rev() {
        longest[nth] = longest[nth + 1];
        if let BlockMark::Fence(fence) = mark
            && fence.is_bare
        {
            let known = &mut longest[nth][fence.kind()];
            *known = fence.length.max(*known);
        }
    }
    longest
}

fn closer(below: &[(usize, BlockMark)], open: FenceLine) -> Option<usize> {
    let closes = |mark: &BlockMark| match mark {
        BlockMark::Fence(fence) => {
            fence.is_bare && fence.mark == open.mark && fence.length >= open.length
        }
        BlockMark::Comment => false,
    };
    below.iter().find(|(_, mark)| closes(mark)).map(|(place, _)| *place)
}

fn comment_end(text: &str, lines: &[MarkdownLine], at: usize) -> Option<usize> {
    let holds = |line: &MarkdownLine| text[line.range()].contains("-->");
    lines[at..].iter().position(holds).map(|place| at + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text with all hidden lines masked.
    fn seen(text: &str) -> String {
        let shown =
            |line: &MarkdownLine| if line.hidden { "·" } else { &text[line.range()] }.to_owned();
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
