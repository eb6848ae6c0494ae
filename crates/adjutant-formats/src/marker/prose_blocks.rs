//! Splits Markdown into blocks of prose, leaving out code and block quotes.
//!
//! Understands only the Markdown that decides what is code or quoted: fences, indented code, block quotes,
//! and where inline code must end. Lists are tracked because they change which indentation makes code, and
//! agents indent markers below list items.

use std::ops::Range;

/// Returns the blocks of prose of `text` in order. Inline code never crosses the end of a block.
///
/// An unclosed fence extends to the end of the text. A line is quoted only if it has its own `>`.
pub(super) const fn prose(text: &str) -> ProseBlocks<'_> {
    ProseBlocks { text, at: 0, block: None, open: None, items: Vec::new(), joins: false }
}

/// The number of columns of indentation that turn the first line of a block into code.
const CODE_INDENT: usize = 4;

/// Iterates over blocks of prose; a block is returned when the next one begins.
pub(super) struct ProseBlocks<'a> {
    text: &'a str,
    /// The byte offset of the next line.
    at: usize,
    /// The block that the next line may continue.
    block: Option<Range<usize>>,
    open: Option<CodeFence>,
    /// The columns at which the text of each open list item begins, outermost first.
    items: Vec<usize>,
    /// Whether the previous line was prose that this one may continue.
    joins: bool,
}

impl Iterator for ProseBlocks<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while self.at < self.text.len() {
            let rest = &self.text.as_bytes()[self.at..];
            let len = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let line = self.at..self.at + len;
            self.at = line.end;
            match self.part_of(&self.text[line.clone()]) {
                None => {}
                Some(ProseLine::Begins) => {
                    if let Some(block) = self.block.replace(line) {
                        return Some(block);
                    }
                }
                Some(ProseLine::GoesOn) => {
                    if let Some(block) = &mut self.block {
                        block.end = line.end;
                    }
                }
            }
        }
        self.block.take()
    }
}

/// How a line of prose relates to the line before it.
enum ProseLine {
    /// It begins a new block.
    Begins,
    /// It continues the current block.
    GoesOn,
}

impl ProseBlocks<'_> {
    /// Processes a line; returns `None` if it is not prose.
    fn part_of(&mut self, line: &str) -> Option<ProseLine> {
        let (indent, rest) = unindented(line);
        if let Some(opening) = &self.open {
            if CodeFence::of(rest, indent).is_some_and(|fence| fence.closes(opening)) {
                self.open = None;
            }
            return None;
        }
        if rest.is_empty() {
            self.joins = false;
            return None;
        }
        let begins = !self.joins || starts_block(rest);
        if begins {
            self.leave_items(indent);
        }
        let base = self.items.last().copied().unwrap_or(0);
        let is_deep = indent >= base + CODE_INDENT;
        if is_deep && !self.joins {
            return None;
        }
        let (column, rest) = self.enter_items(indent, rest);
        let fence = CodeFence::of(rest, column).filter(|fence| !is_deep && fence.may_open());
        if fence.is_some() || (rest.starts_with('>') && !is_deep) {
            (self.open, self.joins) = (fence, false);
            return None;
        }
        self.joins = true;
        Some(if begins { ProseLine::Begins } else { ProseLine::GoesOn })
    }

    /// Closes the list items that a line with this indentation does not belong to.
    fn leave_items(&mut self, indent: usize) {
        while self.items.last().is_some_and(|item| *item > indent) {
            self.items.pop();
        }
    }

    /// Opens the list items that a line begins; returns the column and text after the bullets.
    fn enter_items<'a>(&mut self, indent: usize, line: &'a str) -> (usize, &'a str) {
        let (mut column, mut rest) = (indent, line);
        while let Some(after) = after_bullet(rest) {
            column += rest.len() - after.len();
            rest = after;
            if rest.is_empty() {
                break;
            }
            self.items.push(column);
        }
        (column, rest)
    }
}

/// A line that begins with three or more backticks or tildes.
#[derive(Clone, Copy, Debug)]
struct CodeFence {
    mark: u8,
    len: usize,
    column: usize,
    has_info: bool,
    info_has_backtick: bool,
}

impl CodeFence {
    /// Parses a line that has been stripped of its indentation and trailing whitespace.
    #[inline]
    fn of(text: &str, column: usize) -> Option<Self> {
        let mark = text.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
        Self::of_marks(mark, text, column)
    }

    // A separate function, so that lines without a fence cost only a look at their first byte.
    fn of_marks(mark: u8, text: &str, column: usize) -> Option<Self> {
        let len = text.bytes().take_while(|byte| *byte == mark).count();
        let info = &text[len..];
        (len >= 3).then(|| Self {
            mark,
            len,
            column,
            has_info: !info.is_empty(),
            info_has_backtick: info.contains('`'),
        })
    }

    // "```a``` b" is inline code at the start of a line, not a fence.
    const fn may_open(self) -> bool {
        self.mark == b'~' || !self.info_has_backtick
    }

    const fn closes(self, opening: &Self) -> bool {
        let is_near = self.column < opening.column + CODE_INDENT;
        self.mark == opening.mark && self.len >= opening.len && !self.has_info && is_near
    }
}

/// Returns the width of a line's indentation and the line without it and its line ending.
fn unindented(line: &str) -> (usize, &str) {
    let (mut column, mut len) = (0, 0);
    for byte in line.bytes() {
        match byte {
            b' ' => column += 1,
            b'\t' => column += CODE_INDENT - column % CODE_INDENT,
            _ => break,
        }
        len += 1;
    }
    let text = &line[len..];
    let text = text.strip_suffix('\n').unwrap_or(text);
    // Skips `trim_end` for lines that end in a visible ASCII character, as most do.
    let is_bare = text.bytes().next_back().is_some_and(|byte| byte.is_ascii_graphic());
    (column, if is_bare { text } else { text.trim_end() })
}

/// Returns the text after the bullet or number of a list item; `None` if the line begins no item.
fn after_bullet(text: &str) -> Option<&str> {
    let after = &text[bullet_len(text)?..];
    let spaces = after.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (after.is_empty() || spaces > 0).then(|| &after[spaces..])
}

/// Returns the length of the bullet or number at the start of a text.
fn bullet_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes.first()? {
        b'-' | b'*' | b'+' => Some(1),
        b'0'..=b'9' => {
            let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is_number = digits <= 9 && matches!(bytes.get(digits), Some(b'.' | b')'));
            is_number.then_some(digits + 1)
        }
        _ => None,
    }
}

/// Returns whether a line begins a list item or a heading.
fn starts_block(line: &str) -> bool {
    let text = line.trim_start();
    let hashes = || text.bytes().take_while(|byte| *byte == b'#').count();
    let len = bullet_len(text).unwrap_or_else(hashes);
    len > 0 && text[len..].chars().next().is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<&str> {
        prose(text).map(|span| text[span].trim()).filter(|it| !it.is_empty()).collect()
    }

    #[test]
    fn fences_are_left_out() {
        for (text, expected) in [
            ("a\n```\nb\n```\nc", vec!["a", "c"]),
            ("a\n```rust title=x\nb\n```\nc", vec!["a", "c"]),
            ("a\n~~~ any `info`\nb\n~~~\nc", vec!["a", "c"]),
            ("   ```\nb\n  ```\nc", vec!["c"]),
            ("    ```\nb\n", vec!["b"]),
            ("````\n```\nb\n````\nc", vec!["c"]),
            ("```\nb\n`````\nc", vec!["c"]),
            ("```\nb\n~~~\nb\n```\nc", vec!["c"]),
            ("```\nb\n``` no close\nb", vec![]),
            ("a\n```\nnever closed", vec!["a"]),
            ("```a``` b", vec!["```a``` b"]),
            ("``\na\n``", vec!["``\na\n``"]),
            ("a\r\n```\r\nb\r\n```\r\nc", vec!["a", "c"]),
            ("- a\n  ```\n  b\n\n  b\n  ```\n- c", vec!["- a", "- c"]),
            ("10. a\n\n    ```\n    b\n\n    b\n    ```\n    c", vec!["10. a", "c"]),
            ("- ```\n  b\n\n  b\n  ```\n- c", vec!["- c"]),
            ("1. a\n```\nb\n\n```\nc", vec!["1. a", "c"]),
        ] {
            assert_eq!(check(text), expected, "{text:?}");
        }
    }

    #[test]
    fn indented_code_is_left_out_and_indented_prose_is_not() {
        for (text, expected) in [
            ("    b", vec![]),
            ("\tb", vec![]),
            ("  \tb", vec![]),
            ("a\n\n    b\n\n    b\nc", vec!["a", "c"]),
            ("   a", vec!["a"]),
            ("a\n    goes on", vec!["a\n    goes on"]),
            ("- a\n\n  c", vec!["- a", "c"]),
            ("- a\n\n     c", vec!["- a", "c"]),
            ("- a\n\n      b", vec!["- a"]),
            ("1. a\n   - b\n\n     c", vec!["1. a", "- b", "c"]),
            ("- a\n    - b\n        - c", vec!["- a", "- b", "- c"]),
            ("- a\n\nc\n\n    b", vec!["- a", "c"]),
            ("-\n\n      b", vec!["-"]),
        ] {
            assert_eq!(check(text), expected, "{text:?}");
        }
    }

    #[test]
    fn block_quotes_are_left_out() {
        for (text, expected) in [
            ("a\n> b\nc", vec!["a", "c"]),
            (">b\n   > b\n>> b", vec![]),
            ("- > b\n- c", vec!["- c"]),
            ("- a\n  > b", vec!["- a"]),
            ("> ```\n> b\nc", vec!["c"]),
            ("a > c", vec!["a > c"]),
            ("a\n    > goes on", vec!["a\n    > goes on"]),
        ] {
            assert_eq!(check(text), expected, "{text:?}");
        }
    }

    #[test]
    fn prose_breaks_at_blank_lines_lists_and_headings() {
        for (text, expected) in [
            ("a\nb", vec!["a\nb"]),
            ("a\n\nb", vec!["a", "b"]),
            ("a\n  \nb", vec!["a", "b"]),
            ("- a\n- b", vec!["- a", "- b"]),
            ("1. a\n2) b\n* c\n+ d", vec!["1. a", "2) b", "* c", "+ d"]),
            ("a\n## b\nc", vec!["a", "## b\nc"]),
            ("a\n#\nb\n-\nc\n1)", vec!["a", "#\nb", "-\nc", "1)"]),
            ("a\n-\u{a0}b\n\u{2003}- c\n##\u{b}d", vec!["a", "-\u{a0}b", "- c", "##\u{b}d"]),
            ("a\n-b\n#c\n1.d\n1234567890. e", vec!["a\n-b\n#c\n1.d\n1234567890. e"]),
        ] {
            assert_eq!(check(text), expected, "{text:?}");
        }
    }
}
