//! Compares two texts line by line and writes the difference as a unified diff.
//!
//! For texts that differ in very many lines the diff is not the shortest one, so that the time stays bounded.
//!
//! Start at [`unified_diff`].

/// The lines around a change that are shown with it.
const CONTEXT: usize = 3;

/// The most removed and added lines for which the shortest diff is searched. The search takes the square of it.
const MAX_EDITS: usize = 500;

/// One line of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEdit<'t> {
    Same(&'t str),
    Removed(&'t str),
    Added(&'t str),
}

/// Returns the difference between two contents of the file `path` as `git diff` shows it; empty if there is none. `None`
/// is the content of a file that does not exist.
#[must_use]
pub fn unified_diff(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let name = |side: char, text: Option<&str>| match text {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let mut diff = format!("--- {}\n+++ {}\n", name('a', before), name('b', after));
    let [old, new] = [before, after].map(|text| lines(text.unwrap_or_default()));
    let edits = compare(&old, &new);
    let changes: Vec<usize> =
        (0..edits.len()).filter(|at| !matches!(edits[*at], LineEdit::Same(_))).collect();
    // Changes with at most twice the context between them share a hunk.
    for near in changes.chunk_by(|one, next| next - one <= 2 * CONTEXT + 1) {
        let (Some(first), Some(last)) = (near.first(), near.last()) else { continue };
        let start = first.saturating_sub(CONTEXT);
        let end = (last + 1 + CONTEXT).min(edits.len());
        write_hunk(&edits, start, end, &mut diff);
    }
    diff
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn write_hunk(edits: &[LineEdit<'_>], start: usize, end: usize, diff: &mut String) {
    let count = |part: &[LineEdit<'_>]| {
        let old = part.iter().filter(|edit| !matches!(edit, LineEdit::Added(_))).count();
        let new = part.iter().filter(|edit| !matches!(edit, LineEdit::Removed(_))).count();
        [old, new]
    };
    let [above, shown] = [count(&edits[..start]), count(&edits[start..end])];
    // A range without lines is named after the line above it.
    let from = |side: usize| above[side] + usize::from(shown[side] > 0);
    diff.push_str(&format!("@@ -{},{} +{},{} @@\n", from(0), shown[0], from(1), shown[1]));
    for edit in &edits[start..end] {
        let (sign, line) = match edit {
            LineEdit::Same(line) => (' ', line),
            LineEdit::Removed(line) => ('-', line),
            LineEdit::Added(line) => ('+', line),
        };
        diff.push(sign);
        diff.push_str(line);
        if !line.ends_with('\n') {
            diff.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Returns the lines of both texts in one order.
fn compare<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<LineEdit<'t>> {
    let same = |(one, other): &(&&str, &&str)| one == other;
    let head = old.iter().zip(new).take_while(same).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
    let removed = &old_rest[..old_rest.len() - tail];
    let added = &new_rest[..new_rest.len() - tail];
    let between = shortest_edits(removed, added).unwrap_or_else(|| {
        let removed = removed.iter().copied().map(LineEdit::Removed);
        removed.chain(added.iter().copied().map(LineEdit::Added)).collect()
    });
    let kept = |lines: &[&'t str]| lines.iter().copied().map(LineEdit::Same).collect::<Vec<_>>();
    [kept(&old[..head]), between, kept(&old[old.len() - tail..])].concat()
}

/// Finds the fewest removed and added lines with the algorithm of Myers; `None` if there are more than [`MAX_EDITS`].
fn shortest_edits<'t>(old: &[&'t str], new: &[&'t str]) -> Option<Vec<LineEdit<'t>>> {
    let most = (old.len() + new.len()).min(MAX_EDITS);
    // Diagonal `d` holds the places where `old` is `d` lines further than `new`; it is stored at `d + middle`.
    let middle = most + 1;
    // How many lines of `old` are passed at the furthest place of each diagonal that so many edits reach.
    let mut furthest = vec![0; 2 * middle + 1];
    let mut steps = Vec::new();
    for edits in 0..=most {
        steps.push(furthest.clone());
        for diagonal in (middle - edits..=middle + edits).step_by(2) {
            let mut at_old = match comes_from_above(&furthest, diagonal, middle, edits) {
                true => furthest[diagonal + 1],
                false => furthest[diagonal - 1] + 1,
            };
            let mut at_new = at_old + middle - diagonal;
            while at_old < old.len() && at_new < new.len() && old[at_old] == new[at_new] {
                (at_old, at_new) = (at_old + 1, at_new + 1);
            }
            furthest[diagonal] = at_old;
            if at_old >= old.len() && at_new >= new.len() {
                return Some(trace_back(old, new, &steps, middle));
            }
        }
    }
    None
}

/// Says whether the last edit on the way to a diagonal adds a line; otherwise it removes one.
fn comes_from_above(furthest: &[usize], diagonal: usize, middle: usize, edits: usize) -> bool {
    diagonal == middle - edits
        || (diagonal != middle + edits && furthest[diagonal - 1] < furthest[diagonal + 1])
}

fn trace_back<'t>(
    old: &[&'t str],
    new: &[&'t str],
    steps: &[Vec<usize>],
    middle: usize,
) -> Vec<LineEdit<'t>> {
    let (mut at_old, mut at_new) = (old.len(), new.len());
    let mut all = Vec::new();
    for (edits, furthest) in steps.iter().enumerate().rev() {
        let diagonal = at_old + middle - at_new;
        let adds = comes_from_above(furthest, diagonal, middle, edits);
        let before = if adds { diagonal + 1 } else { diagonal - 1 };
        let (from_old, from_new) = match edits {
            0 => (0, 0),
            _ => (furthest[before], furthest[before] + middle - before),
        };
        let edited = usize::from(edits > 0);
        let (to_old, to_new) =
            if adds { (from_old, from_new + edited) } else { (from_old + edited, from_new) };
        while at_old > to_old && at_new > to_new {
            (at_old, at_new) = (at_old - 1, at_new - 1);
            all.push(LineEdit::Same(old[at_old]));
        }
        if edits > 0 {
            all.push(match adds {
                true => LineEdit::Added(new[from_new]),
                false => LineEdit::Removed(old[from_old]),
            });
        }
        (at_old, at_new) = (from_old, from_new);
    }
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_around_them_and_near_ones_together() {
        let old: Vec<String> = (1..=30).map(|number| format!("line {number}\n")).collect();
        let mut new = old.clone();
        new[1] = "changed\n".to_owned();
        new[6] = "changed too\n".to_owned();
        new.remove(24);
        new.push("the end".to_owned());
        let diff = unified_diff("src/a.rs", Some(&old.concat()), Some(&new.concat()));
        insta::assert_snapshot!(diff, @r"
        --- a/src/a.rs
        +++ b/src/a.rs
        @@ -1,10 +1,10 @@
         line 1
        -line 2
        +changed
         line 3
         line 4
         line 5
         line 6
        -line 7
        +changed too
         line 8
         line 9
         line 10
        @@ -22,9 +22,9 @@
         line 22
         line 23
         line 24
        -line 25
         line 26
         line 27
         line 28
         line 29
         line 30
        +the end
        \ No newline at end of file
        ");
    }

    #[test]
    fn new_and_removed_files_are_named_as_git_names_them() {
        insta::assert_snapshot!(unified_diff("a", None, Some("one\n")), @r"
        --- /dev/null
        +++ b/a
        @@ -0,0 +1,1 @@
        +one
        ");
        insta::assert_snapshot!(unified_diff("a", Some("one\n"), None), @r"
        --- a/a
        +++ /dev/null
        @@ -1,1 +0,0 @@
        -one
        ");
        assert_eq!(unified_diff("a", Some("one\n"), Some("one\n")), "");
    }

    /// Applies a comparison to neither text: returns the two texts that it is made of.
    fn sides(edits: &[LineEdit<'_>]) -> [String; 2] {
        let side = |left_out: fn(&LineEdit<'_>) -> bool| {
            let kept = edits.iter().filter(|edit| !left_out(edit));
            kept.map(|edit| match edit {
                LineEdit::Same(line) | LineEdit::Removed(line) | LineEdit::Added(line) => *line,
            })
            .collect()
        };
        [
            side(|edit| matches!(edit, LineEdit::Added(_))),
            side(|edit| matches!(edit, LineEdit::Removed(_))),
        ]
    }

    /// Returns the length of the longest common subsequence, the slow way.
    fn common(old: &[&str], new: &[&str]) -> usize {
        let mut row = vec![0; new.len() + 1];
        for one in old {
            let mut diagonal = 0;
            for (at, other) in new.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if one == other { diagonal + 1 } else { above.max(row[at]) };
                diagonal = above;
            }
        }
        row[new.len()]
    }

    proptest! {
        #[test]
        fn a_comparison_contains_both_texts_and_is_the_shortest(
            old in "([abc]\n){0,12}[ab]?", new in "([abc]\n){0,12}[ab]?",
        ) {
            let (old_lines, new_lines) = (lines(&old), lines(&new));
            let edits = compare(&old_lines, &new_lines);
            prop_assert_eq!(sides(&edits), [old.clone(), new.clone()]);
            let same = edits.iter().filter(|edit| matches!(edit, LineEdit::Same(_))).count();
            prop_assert_eq!(same, common(&old_lines, &new_lines));
        }
    }

    #[test]
    fn texts_without_a_common_line_are_replaced_as_a_whole() {
        let text = |word: &str| (0..20_000).map(|at| format!("{word} {at}\n")).collect::<String>();
        let (old, new) = (text("old"), text("new"));
        let edits = compare(&lines(&old), &lines(&new));
        assert_eq!(sides(&edits), [old.clone(), new.clone()]);
        assert_eq!(edits.len(), 40_000);
    }
}
