//! A patch for a terminal: coloured, and without characters that control the terminal.
//!
//! The position of a line decides what it is, never its first characters alone: the removed line `-- x` looks
//! like a file header.
//!
//! `HunkLinesLeft` counts the lines of the current hunk that are still to come.

use crate::palette::{Palette, TextStyle};
use crate::sanitize;

/// Returns a patch safe and coloured for a terminal.
#[must_use]
pub fn render(patch: &[u8], palette: Palette) -> String {
    let text = String::from_utf8_lossy(patch);
    let mut shown = String::with_capacity(text.len());
    let mut left = HunkLinesLeft::default();
    for line in text.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        // The carriage return of a Windows line break is not part of the change.
        let safe = sanitize::block(line.strip_suffix('\r').unwrap_or(line));
        match left.style(line) {
            Some(style) => shown.push_str(&palette.paint(style, &safe)),
            None => shown.push_str(&safe),
        }
        shown.push('\n');
    }
    shown
}

/// How many lines of the current hunk are still to come.
#[derive(Default)]
struct HunkLinesLeft {
    old: u64,
    new: u64,
}

impl HunkLinesLeft {
    fn style(&mut self, line: &str) -> Option<TextStyle> {
        if self.old == 0 && self.new == 0 {
            let Some(hunk) = counts(line) else {
                // A remark about the previous line, for example that it has no line break.
                let quiet = line.starts_with('\\');
                return Some(if quiet { TextStyle::Quiet } else { TextStyle::Strong });
            };
            *self = hunk;
            return Some(TextStyle::Active);
        }
        match line.as_bytes().first() {
            Some(b'+') => {
                self.new = self.new.saturating_sub(1);
                Some(TextStyle::Good)
            }
            Some(b'-') => {
                self.old = self.old.saturating_sub(1);
                Some(TextStyle::Bad)
            }
            Some(b'\\') => Some(TextStyle::Quiet),
            Some(_) | None => {
                self.old = self.old.saturating_sub(1);
                self.new = self.new.saturating_sub(1);
                None
            }
        }
    }
}

/// Parses a hunk header such as `@@ -1,2 +3,4 @@`.
fn counts(line: &str) -> Option<HunkLinesLeft> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| match range.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => Some(1),
    };
    Some(HunkLinesLeft { old: count(old)?, new: count(new)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n same\n--- x\n-old\n+new\n\
                         \\ No newline at end of file\ndiff --git a/y b/y\n";

    #[test]
    fn a_removed_line_that_looks_like_a_file_header_is_shown_as_removed() {
        let shown = render(PATCH.as_bytes(), Palette::Ansi).replace('\u{1b}', "^");
        assert_eq!(
            shown,
            "^[1mdiff --git a/x b/x^[0m\n^[1m--- a/x^[0m\n^[1m+++ b/x^[0m\n^[36m@@ -1,3 +1,2 @@^[0m\n same\n\
             ^[31m--- x^[0m\n^[31m-old^[0m\n^[32m+new^[0m\n^[2m\\ No newline at end of file^[0m\n\
             ^[1mdiff --git a/y b/y^[0m\n"
        );
        assert_eq!(render(PATCH.as_bytes(), Palette::Plain), PATCH);
    }

    #[test]
    fn no_character_of_a_patch_controls_the_terminal() {
        let patch = b"@@ -0,0 +1 @@\n+\x1b[2J\x07\xff\xe2\x80\xae\r\n";
        assert_eq!(
            render(patch, Palette::Plain),
            "@@ -0,0 +1 @@\n+⟨U+001B⟩[2J⟨U+0007⟩\u{fffd}⟨U+202E⟩\n"
        );
    }
}
