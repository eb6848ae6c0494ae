//! Replaces exact text in a file's content, or explains why that is not possible. Pure.

use std::collections::{BTreeMap, HashMap};

use adjutant_core::numbers::grouped;

use crate::output::count;

/// The maximum number of lines compared when searching for similar ones.
const COMPARED_LINES: usize = 20_000;

/// The maximum number of bytes of a line that are compared and shown.
const COMPARED_BYTES: usize = 200;

/// The maximum number of differing lines that are described.
const SHOWN_DIFFERENCES: usize = 10;

/// The maximum number of equal lines that are considered when a place is searched.
const COMPARED_PLACES: usize = 8;

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
    let near = near_lines(text.lines(), wanted);
    if near.is_empty() {
        return "`old_string` was not found, nor any line like its first; read the file again"
            .to_owned();
    }
    let shown: Vec<String> =
        near.iter().map(|(number, line)| format!("{number}: {:?}", short(line))).collect();
    let differs = what_differs(text, old).map(|it| format!(". {it}")).unwrap_or_default();
    format!(
        "`old_string` was not found; it must match exactly, spaces and line ends included. Lines like its first: {}{differs}",
        shown.join("; ")
    )
}

/// Compares each line of a text that was not found with the lines of the file that are most like it, and says what
/// differs. Returns `None` if no place in the file is like it.
pub(crate) fn what_differs(text: &str, old: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(COMPARED_LINES).collect();
    let wanted: Vec<&str> = old.lines().take(COMPARED_LINES).collect();
    let start = most_alike(&lines, &wanted)?;
    let mut differences = Vec::new();
    for (index, line) in wanted.iter().enumerate() {
        let place = start + i64::try_from(index).ok()?;
        let held = usize::try_from(place).ok().and_then(|place| lines.get(place));
        match held {
            Some(held) if held == line => {}
            Some(held) => {
                differences.push(format!("line {}: {}", place + 1, difference(held, line)))
            }
            None => differences.push(format!("{:?} is beyond the end of the file", short(line))),
        }
    }
    let equal = wanted.len() - differences.len();
    let more = differences.len().saturating_sub(SHOWN_DIFFERENCES);
    differences.truncate(SHOWN_DIFFERENCES);
    let more = if more > 0 { format!("; {more} more lines differ") } else { String::new() };
    let first = (start + 1).max(1);
    let last = start + i64::try_from(wanted.len()).ok()?;
    Some(format!(
        "Compared with lines {first} to {last}, {equal} of {} lines are equal; {}{more}",
        wanted.len(),
        differences.join("; ")
    ))
}

/// Returns the line index at which most lines of `wanted` stand, without regard to spaces and case.
fn most_alike(lines: &[&str], wanted: &[&str]) -> Option<i64> {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let known = places.entry(without_spacing(line)).or_default();
        // Lines that stand everywhere, such as a lone brace, say nothing about the place.
        if known.len() < COMPARED_PLACES {
            known.push(at);
        }
    }
    let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
    for (index, line) in wanted.iter().enumerate() {
        let key = without_spacing(line);
        for at in places.get(&key).into_iter().flatten().filter(|_| !key.is_empty()) {
            *votes.entry(i64::try_from(*at).ok()? - i64::try_from(index).ok()?).or_default() += 1;
        }
    }
    let best = votes.iter().max_by_key(|(start, votes)| (**votes, std::cmp::Reverse(**start)));
    if let Some((start, _)) = best {
        return Some(*start);
    }
    let (index, line) = wanted.iter().enumerate().find(|(_, line)| !line.trim().is_empty())?;
    let near = near_lines(lines.iter().copied(), line.trim());
    let best = near.iter().max_by_key(|(number, near)| {
        (similarity(near.trim(), line.trim()), std::cmp::Reverse(*number))
    })?;
    Some(i64::try_from(best.0).ok()? - 1 - i64::try_from(index).ok()?)
}

fn without_spacing(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
}

/// Says how the line of a file differs from the one that was looked for.
fn difference(held: &str, wanted: &str) -> String {
    let (held_text, wanted_text) = (held.trim(), wanted.trim());
    if held_text != wanted_text {
        let kind =
            match (without_spacing(held) == without_spacing(wanted), held_text.to_lowercase()) {
                (true, lower) if lower == wanted_text.to_lowercase() => {
                    "upper and lower case differ, the file has"
                }
                (true, _) => "spaces within the line differ, the file has",
                (false, _) => "the file has",
            };
        return format!("{kind} {:?}", short(held));
    }
    let indents = [held, wanted].map(|line| &line[..line.len() - line.trim_start().len()]);
    if indents[0] != indents[1] {
        let [held, wanted] = indents.map(indentation);
        return format!("the file has {held} before the text, `old_string` {wanted}");
    }
    let ends = [held, wanted].map(|line| &line[line.trim_end().len()..]);
    let [held, wanted] = ends.map(indentation);
    format!("the file has {held} after the text, `old_string` {wanted}")
}

/// Describes whitespace: `4 spaces`, `1 tab and 2 spaces`.
fn indentation(space: &str) -> String {
    let tabs = space.matches('\t').count();
    let spaces = space.matches(' ').count();
    let others = space.chars().count() - tabs - spaces;
    let kinds = [(tabs, "tab"), (spaces, "space"), (others, "other blank")];
    let present = kinds.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = present.map(|(number, noun)| count(number, noun)).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(" and ") }
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
fn near_lines<'text>(
    lines: impl Iterator<Item = &'text str>,
    wanted: &str,
) -> Vec<(usize, &'text str)> {
    let mut scored: Vec<(usize, usize, &str)> = lines
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
    fn every_line_that_differs_is_described() {
        let code = "fn main() {\n    let total = 1;\n    Print(total);\n\treturn;  \n}\n";
        for (old, said) in [
            (
                "fn main() {\n\tlet total = 1;\n    print(total);\n\treturn;\n}",
                "Compared with lines 1 to 5, 2 of 5 lines are equal; line 2: the file has 4 spaces before the text, \
                 `old_string` 1 tab; line 3: upper and lower case differ, the file has \"    Print(total);\"; line 4: \
                 the file has 2 spaces after the text, `old_string` nothing",
            ),
            (
                "    let  total = 1;\n    Print(sum);",
                "Compared with lines 2 to 3, 0 of 2 lines are equal; line 2: spaces within the line differ, the file \
                 has \"    let total = 1;\"; line 3: the file has \"    Print(total);\"",
            ),
            (
                "    let total = 2;",
                "Compared with lines 2 to 2, 0 of 1 lines are equal; line 2: the file has \"    let total = 1;\"",
            ),
            (
                "\treturn;  \n}\n}",
                "Compared with lines 4 to 6, 2 of 3 lines are equal; \"}\" is beyond the end of the file",
            ),
        ] {
            assert_eq!(what_differs(code, old).as_deref(), Some(said), "{old}");
        }
        assert_eq!(what_differs(code, "something else altogether"), None);
        let many = what_differs(&"a b\n".repeat(40), &"a  b\n".repeat(30)).unwrap();
        assert!(many.contains("; 20 more lines differ"), "{many}");
    }

    #[test]
    fn a_long_file_is_searched_in_no_time() {
        let text = format!("{}\n", "let value = compute(index);".repeat(40)).repeat(7_000);
        assert!(replace_text(&text, "let value = compute(other)!", "", false).is_err());
    }
}
