//! Converts a program's output to safe text: removes control sequences and cuts it to size.

use adjutant_core::numbers::grouped;
use adjutant_workspace::sandbox::BoundedOutput;

use crate::Masker;
use crate::mask::is_body_line;

/// The minimum length of a line to be taken for part of a key whose start was cut off.
const KEY_LINE_BYTES: usize = 40;

/// Returns the kept output, cleaned and masked, with a remark where the middle is missing.
///
/// Part of a secret would not be recognized, so cuts are between lines, or between words of a long line. A
/// long text without any gap is left out completely.
pub(super) fn kept_output_text(captured: &BoundedOutput, masker: &Masker) -> String {
    let (head, tail) = captured.parts();
    if captured.cut_bytes() == 0 {
        return masker.mask_owned(clean_output(&[head, &tail].concat()));
    }
    let head = head.get(..last_gap(head)).unwrap_or_default();
    let tail = tail.get(first_gap(&tail)..).unwrap_or_default();
    let tail = tail.get(orphaned_key(tail)..).unwrap_or_default();
    let left_out = captured.total_bytes() - (head.len() + tail.len()) as u64;
    // Both parts are masked separately; otherwise a key that spans the cut would hide the remark about it.
    let mut text = masker.mask_owned(clean_output(head));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("… ");
    text.push_str(&grouped(left_out));
    text.push_str(" bytes left out …\n");
    text.push_str(&masker.mask_owned(clean_output(tail)));
    text
}

/// Returns the end of the last whole line of a head, or of its last word if that line is most of it.
fn last_gap(head: &[u8]) -> usize {
    let line = memchr::memrchr(b'\n', head).map_or(0, |at| at + 1);
    if line >= head.len() / 2 {
        return line;
    }
    let word = head.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    line.max(word)
}

/// Returns the start of the first whole line of a tail, or of its first word if the line before is most of
/// it.
fn first_gap(tail: &[u8]) -> usize {
    let line = memchr::memchr(b'\n', tail).map_or(tail.len(), |at| at + 1);
    if line <= tail.len() / 2 {
        return line;
    }
    let word = tail.iter().position(u8::is_ascii_whitespace).map_or(tail.len(), |at| at + 1);
    line.min(word)
}

/// Returns the length of text that may be the rest of a private key that started earlier.
pub(super) fn orphaned_key(bytes: &[u8]) -> usize {
    let mut length = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let is_body = is_body_line(line);
        if !is_body || (length == 0 && line.len() < KEY_LINE_BYTES) {
            break;
        }
        length += line.len();
        if line.len() < KEY_LINE_BYTES {
            break;
        }
    }
    length
}

/// Converts output to text without escape sequences and control characters other than line breaks and tabs.
///
/// A carriage return, which overwrites the line on a terminal, becomes a line break.
pub(super) fn clean_output(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut rest),
            // The one-character form of the same sequence.
            '\u{9b}' => skip_control(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || turns(c) => {}
            c => out.push(c),
        }
    }
    out
}

type RemainingChars<'text> = std::iter::Peekable<std::str::Chars<'text>>;

/// Skips an escape sequence. A line break always ends it, so that it cannot hide the rest of the output.
fn skip_sequence(rest: &mut RemainingChars<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        Some(' '..='/') => {
            while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
            rest.next_if(|c| ('0'..='~').contains(c));
        }
        Some('0'..='~') => {
            rest.next();
        }
        Some(_) | None => {}
    }
}

fn skip_control(rest: &mut RemainingChars<'_>) {
    while rest.next_if(|c| (' '..='?').contains(c)).is_some() {}
    rest.next_if(|c| ('@'..='~').contains(c));
}

fn skip_string(rest: &mut RemainingChars<'_>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// Returns whether a character changes the direction of the text around it.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use adjutant_workspace::sandbox::{OutputSink as _, OutputStream};
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "k3y-of-the-engine";
    const CAP_BYTES: usize = 512;

    fn shown(said: &str) -> String {
        let mut captured = BoundedOutput::new(CAP_BYTES);
        captured.chunk(OutputStream::Out, said.as_bytes());
        kept_output_text(&captured, &Masker::new([SECRET]))
    }

    /// Returns whether any four consecutive characters of the secret are shown.
    fn leaks(shown: &str) -> bool {
        SECRET
            .as_bytes()
            .windows(4)
            .any(|part| memchr::memmem::find(shown.as_bytes(), part).is_some())
    }

    #[test]
    fn no_cut_shows_half_a_secret_wherever_it_falls() {
        for gap in ["\n", " ", "."] {
            let filler = format!("filler{gap}");
            for before in (150..350).chain(800..1_100) {
                let mut said = filler.repeat(300);
                said.truncate(before);
                said.push_str(gap);
                said.push_str(SECRET);
                said.push_str(gap);
                let rest = filler.repeat(300);
                said.push_str(&rest[..1_300 - said.len()]);
                let shown = shown(&said);
                assert!(!leaks(&shown), "{before} {gap:?}: {shown}");
                assert!(shown.contains(" bytes left out …"), "{shown}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_key_whose_beginning_was_cut_is_left_out() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n";
        let body = line.repeat(40);
        let said = format!(
            "-----BEGIN PRIVATE KEY-----\n{body}AbCd==\n-----END PRIVATE KEY-----\nafter\n"
        );
        let shown = shown(&said);
        assert!(!shown.contains("MIIE") && !shown.contains("AbCd"), "{shown}");
        assert!(shown.ends_with("bytes left out …\n-----END PRIVATE KEY-----\nafter\n"), "{shown}");
    }

    #[test]
    fn lines_of_one_short_word_are_no_key() {
        let said: String = (0..1_000).map(|number| format!("{number}\n")).collect();
        assert!(shown(&said).ends_with("\n990\n991\n992\n993\n994\n995\n996\n997\n998\n999\n"));
    }

    proptest! {
        #[test]
        fn what_is_cleaned_cannot_act_and_plain_text_stays(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'\r')], 0..200),
            plain in "[ -~\\n\\té日]*",
        ) {
            let text = clean_output(&bytes);
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{text:?}");
            prop_assert_eq!(clean_output(text.as_bytes()), text);
            prop_assert_eq!(clean_output(plain.as_bytes()), plain);
        }

        #[test]
        fn what_is_shown_and_what_is_left_out_is_all_there_was(
            lines in proptest::collection::vec("[a-z. ]{0,60}", 0..60),
        ) {
            let said = lines.join("\n");
            let shown = shown(&said);
            let Some(at) = shown.find("… ") else {
                prop_assert_eq!(shown, said);
                return Ok(());
            };
            let (head, rest) = shown.split_at(at);
            let (mark, tail) = rest.split_once('\n').unwrap();
            let count: usize = mark[4..].split(' ').next().unwrap().replace(',', "").parse().unwrap();
            // A line break may have been inserted before the remark.
            let whole = head.len() + count + tail.len();
            prop_assert!(whole == said.len() || whole == said.len() + 1, "{shown}");
            prop_assert!(said.ends_with(tail) && said.starts_with(head.trim_end_matches('\n')));
            prop_assert!(head.len() + tail.len() <= CAP_BYTES + 1);
        }
    }
}
