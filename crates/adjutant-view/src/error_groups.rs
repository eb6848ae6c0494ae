//! Errors that are alike, counted: a list of thousands is read by its kinds.
//!
//! Errors are alike if they have the same type, code and status, and messages that differ only in numbers, ids and
//! quoted names. Start at [`group`]; an [`ErrorGroup`] is one row.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::errors::{ErrorJson, FixStatus, WORD_COLUMNS, paragraph};
use crate::layout::fit;
use crate::palette::{Palette, TextStyle};
use crate::sanitize;

/// The maximum number of lines of a message, and of what to do about it.
const TEXT_LINES: usize = 3;

/// How much of a message is compared.
const COMPARED_CHARS: usize = 400;

/// The columns of the count and the time at the start of a row.
const HEAD_COLUMNS: usize = 29;

/// The columns before the texts below a row.
const INDENT: usize = 6;

/// Errors that are alike.
#[derive(Clone, Copy, Debug)]
pub struct ErrorGroup<'a> {
    /// How many they are.
    pub count: usize,
    /// The one recorded last.
    pub latest: &'a ErrorJson,
}

/// Groups errors, the group with the latest error first.
#[must_use]
pub fn group(errors: &[ErrorJson]) -> Vec<ErrorGroup<'_>> {
    let mut groups: Vec<ErrorGroup<'_>> = Vec::new();
    let mut places: BTreeMap<(FixStatus, &str, &str, String), usize> = BTreeMap::new();
    for error in errors {
        let key = (error.fix_status, &*error.kind, &*error.code, message_shape(&error.message));
        let place = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => {
                group.count += 1;
                // RFC 3339 in UTC sorts as text.
                if error.timestamp > group.latest.timestamp {
                    group.latest = error;
                }
            }
            None => groups.push(ErrorGroup { count: 1, latest: error }),
        }
    }
    groups.sort_by(|left, right| right.latest.timestamp.cmp(&left.latest.timestamp));
    groups
}

/// Returns what messages of the same kind have in common: quoted text and words with digits are left out.
fn message_shape(message: &str) -> String {
    let start =
        message.char_indices().nth(COMPARED_CHARS).map_or(message, |(end, _)| &message[..end]);
    let mut shape = String::new();
    for (place, part) in start.split('`').enumerate() {
        // Every second part is between backticks.
        if place % 2 == 1 {
            shape.push('`');
            continue;
        }
        for word in part.split_whitespace() {
            shape.push(' ');
            shape.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        }
    }
    shape
}

/// Draws one row per group, with the latest error as an example, for a terminal of `wide` columns.
#[must_use]
pub fn render(groups: &[ErrorGroup<'_>], wide: usize, palette: Palette) -> String {
    let mut text = String::new();
    for ErrorGroup { count, latest } in groups {
        let word = |text: &str| fit(&sanitize::collapsed(text), WORD_COLUMNS);
        let is_open = latest.is_unfixed();
        let (kind, severity) = (word(&latest.kind), latest.severity.word());
        let status = if is_open { "" } else { " · fixed" };
        let what = format!("{} · {severity}{status} · {kind}", word(&latest.code));
        let what = fit(&what, wide.saturating_sub(HEAD_COLUMNS).max(WORD_COLUMNS / 2));
        let style = if is_open { TextStyle::Bad } else { TextStyle::Quiet };
        // Writing to a string cannot fail, here and below.
        let _ =
            writeln!(text, "{count:>4}×  {}  {}", latest.timestamp, palette.paint(style, &what));
        let mut lines = |title: &str, value: &str| {
            text += &paragraph(INDENT, title, value, wide, TEXT_LINES);
        };
        lines("what", &latest.message);
        lines("next", &latest.recovery.suggested_action);
        lines("like", &format!("{} in {}", latest.id, latest.context.run));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::message_shape;

    #[test]
    fn messages_are_alike_that_differ_in_numbers_ids_and_quoted_names() {
        for (one, other, is_alike) in [
            ("timed out after 30s", "timed out after 1,200s", true),
            ("no turn 1 for label `a b`", "no turn 2 for  label `c`", true),
            ("sess_1738326896_aaaaac is gone", "sess_1738326897_bbbbbc is gone", true),
            ("`a` is gone", "`a` was gone", false),
            ("timed out", "stalled", false),
            ("open `quote", "open `other quote", true),
        ] {
            assert_eq!(message_shape(one) == message_shape(other), is_alike, "{one} and {other}");
        }
    }
}
