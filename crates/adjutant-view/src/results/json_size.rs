//! Cuts a JSON result within a story to the tokens of one result: texts first, then patches, then file lists.
//! The facts stay.

use super::json::{ResultJson, TextCutJson};

/// The indentation of each line where results are printed.
const INDENT: usize = 4;

/// Cuts a result until it takes at most `max` bytes when printed, as far as possible.
pub(super) fn cut_to_size(entry: &mut ResultJson, max: usize) {
    if size(entry) <= max {
        return;
    }
    let total = texts(entry).iter().map(|text| text.len()).sum();
    let before = entry.cut.map_or(total, |cut| cut.total_bytes);
    entry.cut = Some(TextCutJson { shown_bytes: total, total_bytes: before });
    // The report has the same text.
    entry.returned = None;
    for place in (0..3).rev() {
        let over = size(entry).saturating_sub(max);
        if let Some(text) = texts(entry).into_iter().nth(place).filter(|_| over > 0) {
            shorten(text, over);
        }
    }
    for most in [usize::MAX, 30, 10, 3, 0] {
        if size(entry) <= max {
            break;
        }
        lists(entry, most);
    }
    for (place, least) in [(0, 1_000), (1, 400), (0, 0), (1, 0)] {
        let over = size(entry).saturating_sub(max);
        if let Some(reason) = entry.reason.as_mut().filter(|_| over > 0) {
            let text = if place == 0 { &mut reason.message } else { &mut reason.recommendation };
            let over = over.min(text.len().saturating_sub(least));
            shorten(text, over);
        }
    }
    let shown_bytes = texts(entry).iter().map(|text| text.len()).sum();
    entry.cut = Some(TextCutJson { shown_bytes, total_bytes: before });
}

/// Returns the texts, the most important first.
fn texts(entry: &mut ResultJson) -> Vec<&mut String> {
    [&mut entry.report, &mut entry.scratchpad, &mut entry.last_text].into_iter().flatten().collect()
}

/// Drops the patches, and all but the first `most` list items.
fn lists(entry: &mut ResultJson, most: usize) {
    entry.files.truncate(most);
    entry.warnings.truncate(most);
    if let Some(error) = entry.error.as_mut().filter(|_| most == 0) {
        error.clear();
    }
    if let Some(story) = &mut entry.story {
        story.files_changed.truncate(most);
        story.conflicts.truncate(most);
    }
    if let Some(kept) = &mut entry.kept {
        kept.work.files.truncate(most);
        kept.work.skipped.truncate(most);
    }
    if let Some(merge) = &mut entry.merge {
        merge.files.truncate(most);
        merge.conflicts.truncate(most);
        merge.conflicts.iter_mut().for_each(|clash| clash.patch = None);
    }
}

/// Removes at least `over` bytes from the end of a text. The JSON form shrinks by at least as much.
fn shorten(text: &mut String, over: usize) {
    let mut end = text.len().saturating_sub(over);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

fn size(entry: &ResultJson) -> usize {
    // Serialising our own shape cannot fail.
    let text = serde_json::to_string_pretty(entry).unwrap_or_default();
    text.len() + INDENT * text.lines().count() + 2
}
