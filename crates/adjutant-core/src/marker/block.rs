//! Splits markdown into the stretches of prose between fences.
//!
//! Only as much markdown as decides what is code: fences, and where inline code must have ended.
//! Indented text is not code here: agents indent markers below list items.

use std::ops::Range;

/// Returns the prose of `text` in stretches that inline code cannot reach across.
///
/// A fence that is never closed lasts to the end of the text.
pub(super) fn prose(text: &str) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let (mut open, mut joins, mut at) = (None::<Fence>, false, 0);
    for line in text.split_inclusive('\n') {
        let span = at..at + line.len();
        at = span.end;
        let fence = Fence::of(line);
        match (&open, fence) {
            (Some(opening), fence) => {
                if fence.is_some_and(|fence| fence.closes(opening)) {
                    open = None;
                }
                joins = false;
            }
            (None, Some(fence)) if fence.may_open() => (open, joins) = (Some(fence), false),
            (None, _) => {
                match blocks.last_mut().filter(|_| joins && !starts_block(line)) {
                    Some(block) => block.end = span.end,
                    None => blocks.push(span),
                }
                joins = !line.trim().is_empty();
            }
        }
    }
    blocks
}

/// A line that begins with three or more backticks or tildes.
#[derive(Clone, Copy, Debug)]
struct Fence {
    mark: u8,
    len: usize,
    has_info: bool,
    info_has_backtick: bool,
}

impl Fence {
    fn of(line: &str) -> Option<Self> {
        let text = unindented(line)?;
        let mark = text.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let len = text.bytes().take_while(|byte| *byte == mark).count();
        let info = text[len..].trim();
        (len >= 3).then(|| Self {
            mark,
            len,
            has_info: !info.is_empty(),
            info_has_backtick: info.contains('`'),
        })
    }

    // "```a``` b" is inline code at the start of a line.
    const fn may_open(self) -> bool {
        self.mark == b'~' || !self.info_has_backtick
    }

    const fn closes(self, opening: &Self) -> bool {
        self.mark == opening.mark && self.len >= opening.len && !self.has_info
    }
}

/// Returns the line without its indentation, unless that is deeper than three spaces.
fn unindented(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ');
    (line.len() - text.len() <= 3).then_some(text)
}

/// Says whether a line begins something new, a list item or a heading.
fn starts_block(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or("");
    let is_heading = !first.is_empty() && first.bytes().all(|byte| byte == b'#');
    let is_bullet = matches!(first, "-" | "*" | "+");
    let is_number = first.strip_suffix(['.', ')']).is_some_and(|number| {
        matches!(number.len(), 1..=9) && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    is_heading || is_bullet || is_number
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
            ("    ```\nb\n", vec!["```\nb"]),
            ("````\n```\nb\n````\nc", vec!["c"]),
            ("```\nb\n`````\nc", vec!["c"]),
            ("```\nb\n~~~\nb\n```\nc", vec!["c"]),
            ("```\nb\n``` no close\nb", vec![]),
            ("a\n```\nnever closed", vec!["a"]),
            ("```a``` b", vec!["```a``` b"]),
            ("``\na\n``", vec!["``\na\n``"]),
            ("a\r\n```\r\nb\r\n```\r\nc", vec!["a", "c"]),
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
