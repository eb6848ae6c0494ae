//! Splits markdown into the stretches of prose between code and quotations.
//!
//! Only as much markdown as decides what is code or quoted: fences, indented code, block quotes, and
//! where inline code must have ended. Lists are followed because they move what counts as indented:
//! agents indent markers below list items.

use std::ops::Range;

/// Returns the prose of `text` in stretches that inline code cannot reach across.
///
/// A fence that is never closed lasts to the end of the text. Only a line with its own `>` is quoted.
pub(super) fn prose(text: &str) -> Vec<Range<usize>> {
    let mut reader = Reader::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        reader.line(line, at..at + line.len());
        at += line.len();
    }
    reader.blocks
}

/// Columns of indentation that make code of a line which begins something.
const CODE_INDENT: usize = 4;

#[derive(Default)]
struct Reader {
    blocks: Vec<Range<usize>>,
    open: Option<Fence>,
    /// The columns at which the text of the list items begins that are open, from the outermost.
    items: Vec<usize>,
    /// Whether the line before was prose, which this one may go on with.
    joins: bool,
}

impl Reader {
    fn line(&mut self, line: &str, span: Range<usize>) {
        let (indent, rest) = unindented(line);
        if let Some(opening) = &self.open {
            if Fence::of(rest, indent).is_some_and(|fence| fence.closes(opening)) {
                self.open = None;
            }
            return;
        }
        if rest.is_empty() {
            self.joins = false;
            return;
        }
        let begins = !self.joins || starts_block(line);
        if begins {
            self.leave_items(indent);
        }
        let base = self.items.last().copied().unwrap_or(0);
        let is_deep = indent >= base + CODE_INDENT;
        if is_deep && !self.joins {
            return;
        }
        let (column, rest) = self.enter_items(indent, rest);
        let fence = Fence::of(rest, column).filter(|fence| !is_deep && fence.may_open());
        if fence.is_some() || (rest.starts_with('>') && !is_deep) {
            (self.open, self.joins) = (fence, false);
            return;
        }
        match self.blocks.last_mut().filter(|_| !begins) {
            Some(block) => block.end = span.end,
            None => self.blocks.push(span),
        }
        self.joins = true;
    }

    /// Forgets the list items that a line with this indentation is no part of.
    fn leave_items(&mut self, indent: usize) {
        while self.items.last().is_some_and(|item| *item > indent) {
            self.items.pop();
        }
    }

    /// Enters the list items that a line begins; returns what is left of it and at which column.
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
struct Fence {
    mark: u8,
    len: usize,
    column: usize,
    has_info: bool,
    info_has_backtick: bool,
}

impl Fence {
    fn of(text: &str, column: usize) -> Option<Self> {
        let mark = text.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let len = text.bytes().take_while(|byte| *byte == mark).count();
        let info = text[len..].trim();
        (len >= 3).then(|| Self {
            mark,
            len,
            column,
            has_info: !info.is_empty(),
            info_has_backtick: info.contains('`'),
        })
    }

    // "```a``` b" is inline code at the start of a line.
    const fn may_open(self) -> bool {
        self.mark == b'~' || !self.info_has_backtick
    }

    const fn closes(self, opening: &Self) -> bool {
        let is_near = self.column < opening.column + CODE_INDENT;
        self.mark == opening.mark && self.len >= opening.len && !self.has_info && is_near
    }
}

/// Returns the columns of a line's indentation, and the line without it and without its end.
fn unindented(line: &str) -> (usize, &str) {
    let text = line.trim_start_matches([' ', '\t']);
    let space = line[..line.len() - text.len()].bytes();
    let next_stop = |column: usize| column - column % CODE_INDENT + CODE_INDENT;
    let step = |column, byte| if byte == b'\t' { next_stop(column) } else { column + 1 };
    (space.fold(0, step), text.trim_end())
}

/// Returns what follows the bullet or number of a list item; nothing where a line begins none.
fn after_bullet(text: &str) -> Option<&str> {
    let first = text.split([' ', '\t']).next().filter(|first| is_bullet(first))?;
    Some(text[first.len()..].trim_start_matches([' ', '\t']))
}

fn is_bullet(word: &str) -> bool {
    let is_number = word.strip_suffix(['.', ')']).is_some_and(|number| {
        matches!(number.len(), 1..=9) && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    is_number || matches!(word, "-" | "*" | "+")
}

/// Says whether a line begins something new, a list item or a heading.
fn starts_block(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or("");
    let is_heading = !first.is_empty() && first.bytes().all(|byte| byte == b'#');
    is_heading || is_bullet(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<&str> {
        prose(text).into_iter().map(|span| text[span].trim()).filter(|it| !it.is_empty()).collect()
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
            ("a\n-b\n#c\n1.d\n1234567890. e", vec!["a\n-b\n#c\n1.d\n1234567890. e"]),
        ] {
            assert_eq!(check(text), expected, "{text:?}");
        }
    }
}
