//! Replaces exact text in a file's content, or explains why that is not possible. Pure.

use adjutant_core::numbers::grouped;

/// The maximum number of lines compared when searching for similar ones.
const COMPARED_LINES: usize = 20_000;

/// The maximum number of bytes of a line that are compared and shown.
const COMPARED_BYTES: usize = 200;

/// The maximum number of line numbers listed in a message.
const NAMED: usize = 10;

/// A text after an edit, with the changed lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EditedText {
    pub(crate) text: String,
    /// The line numbers in the old text at which text was replaced, from 1.
    pub(crate) lines: Vec<usize>,
}

/// Replaces `old` by `new`: the only match, or every match if `all` is set.
pub(crate) fn replace_text(
    text: &str,
    old: &str,
    new: &str,
    all: bool,
) -> Result<EditedText, String> {
    if old == new {
        return Err("`old_string` and `new_string` are equal; nothing would change".to_owned());
    }
    let places: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    match places.len() {
        0 => Err(not_found(text, old)),
        2.. if !all => Err(ambiguous(text, &places)),
        _ => Ok(EditedText { text: text.replace(old, new), lines: line_numbers(text, &places) }),
    }
}

fn ambiguous(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> =
        line_numbers(text, places).iter().take(NAMED).map(usize::to_string).collect();
    let more = if places.len() > NAMED { ", …" } else { "" };
    format!(
        "`old_string` occurs {} times, at line {}{more}; add surrounding lines to it until it occurs once, or set \
         `replace_all`",
        grouped(places.len() as u64),
        lines.join(", ")
    )
}

/// Returns the line number of each byte offset, in one pass.
fn line_numbers(text: &str, places: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    places
        .iter()
        .map(|&at| {
            line += text[from..at].matches('\n').count();
            from = at;
            line
        })
        .collect()
}

fn not_found(text: &str, old: &str) -> String {
    if text.is_empty() {
        return "`old_string` was not found: the file is empty; use Write".to_owned();
    }
    if !old.contains('\r') && text.replace("\r\n", "\n").contains(old) {
        return "`old_string` was not found: the lines of the file end in CRLF; write \\r\\n where lines end, in \
                `new_string` too"
            .to_owned();
    }
    if let Some(bare) = without_numbers(old).filter(|bare| text.contains(bare.as_str())) {
        let first = bare.lines().next().unwrap_or_default();
        return format!(
            "`old_string` was not found: leave out the line numbers that Read shows; the text begins with {:?}",
            short(first)
        );
    }
    let Some(wanted) = old.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return "`old_string` was not found; it is blank, so give text beside it".to_owned();
    };
    let near = near_lines(text, wanted);
    if near.is_empty() {
        return "`old_string` was not found, nor any line like its first; read the file again"
            .to_owned();
    }
    let shown: Vec<String> =
        near.iter().map(|(number, line)| format!("{number}: {:?}", short(line))).collect();
    format!(
        "`old_string` was not found; it must match exactly, spaces and line ends included. Lines like its first: {}",
        shown.join("; ")
    )
}

/// Removes the line numbers from a text that was copied from Read's output.
fn without_numbers(old: &str) -> Option<String> {
    let bare = old.lines().map(|line| {
        let (number, rest) = line.split_once('\t')?;
        let is_number =
            !number.trim().is_empty() && number.trim().bytes().all(|b| b.is_ascii_digit());
        is_number.then_some(rest)
    });
    Some(bare.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// Returns up to three lines that are most similar to `wanted`, in file order.
fn near_lines<'text>(text: &'text str, wanted: &str) -> Vec<(usize, &'text str)> {
    let mut scored: Vec<(usize, usize, &str)> = text
        .lines()
        .take(COMPARED_LINES)
        .enumerate()
        .map(|(at, line)| (similarity(line.trim(), wanted), at + 1, line))
        .filter(|(score, ..)| *score >= 500)
        .collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.truncate(3);
    scored.sort_by_key(|(_, number, _)| *number);
    scored.into_iter().map(|(_, number, line)| (number, line)).collect()
}

/// Returns the similarity of two lines from 0 to 1,000, by the pairs of adjacent bytes that they share.
fn similarity(one: &str, two: &str) -> usize {
    if one == two {
        return 1_000;
    }
    let pairs = |text: &str| {
        let bytes = &text.as_bytes()[..text.len().min(COMPARED_BYTES)];
        let mut pairs: Vec<[u8; 2]> = bytes.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        pairs.sort_unstable();
        pairs
    };
    let (one, two) = (pairs(one), pairs(two));
    let (mut a, mut b, mut shared) = (0, 0, 0_usize);
    while a < one.len() && b < two.len() {
        match one[a].cmp(&two[b]) {
            std::cmp::Ordering::Less => a += 1,
            std::cmp::Ordering::Greater => b += 1,
            std::cmp::Ordering::Equal => (a, b, shared) = (a + 1, b + 1, shared + 1),
        }
    }
    (shared * 2_000).checked_div(one.len() + two.len()).unwrap_or(0)
}

fn short(line: &str) -> &str {
    &line[..line.floor_char_boundary(COMPARED_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_changes_what_matches_and_nothing_else() {
        for (text, old, new, all, after, lines) in [
            ("a\nb\nc\n", "b", "B", false, "a\nB\nc\n", vec![2]),
            ("a\r\nb\r\n", "b", "B", false, "a\r\nB\r\n", vec![2]),
            ("a\r\nb\r\nc", "a\r\nb", "x", false, "x\r\nc", vec![1]),
            ("no end", "end", "finish", false, "no finish", vec![1]),
            ("x\nx\nx", "x", "y", true, "y\ny\ny", vec![1, 2, 3]),
            ("grüße\n日本\n", "日本", "世界", false, "grüße\n世界\n", vec![2]),
            ("a b", " b", "", false, "a", vec![1]),
            ("aaa", "aa", "b", true, "ba", vec![1]),
            ("\u{feff}first\n", "first", "1st", false, "\u{feff}1st\n", vec![1]),
        ] {
            let edit = replace_text(text, old, new, all).unwrap();
            assert_eq!((edit.text.as_str(), edit.lines), (after, lines), "{text:?} {old:?}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_said_so_that_it_can_be_mended() {
        let code = "fn main() {\n    let total = 1;\n    print(total);\n}\n";
        for (text, old, hint) in [
            ("x\ny\nx\n", "x", "occurs 2 times, at line 1, 3; add surrounding lines"),
            (code, "    let total = 2;", "2: \"    let total = 1;\""),
            (code, "\tprint(total);", "3: \"    print(total);\""),
            (code, "2\t    let total = 1;\n3\t    print(total);", "leave out the line numbers"),
            ("a\r\nb\r\n", "a\nb", "CRLF"),
            ("a\n", "quite another thing", "nor any line like its first"),
            ("", "a", "the file is empty"),
            ("a\n", "\n\n\n", "blank"),
        ] {
            let why = replace_text(text, old, "new", false).unwrap_err();
            assert!(why.contains(hint), "{old:?}: {why}");
        }
        let why = replace_text("a", "a", "a", false).unwrap_err();
        assert!(why.contains("equal"), "{why}");
        let many = "x\n".repeat(1_000);
        let why = replace_text(&many, "x", "y", false).unwrap_err();
        assert!(why.contains("1,000 times") && why.contains("10, …"), "{why}");
    }

    #[test]
    fn a_long_file_is_searched_in_no_time() {
        let text = format!("{}\n", "let value = compute(index);".repeat(40)).repeat(7_000);
        assert!(replace_text(&text, "let value = compute(other)!", "", false).is_err());
    }
}
