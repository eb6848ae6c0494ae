//! Joins UTF-16 surrogate pairs that a server split across events.
//!
//! Servers that count in UTF-16 may split a character between two deltas. Each delta then contains half of an
//! escaped pair, which is not valid text. The first half is held back and put before the second; an unpaired
//! half becomes U+FFFD.

use std::borrow::Cow;

use memchr::memchr;

const LOST: &[u8] = b"\\ufffd";
/// The length of an escape: a backslash, a `u` and four digits.
const LENGTH: usize = 6;

/// Joins split characters in the events of one answer.
#[derive(Debug, Default)]
pub(super) struct SurrogateJoiner {
    /// The escape of a first half at the end of an earlier event.
    held: Option<[u8; LENGTH]>,
}

/// The kind of an escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonEscape {
    Whole,
    First,
    Second,
}

impl SurrogateJoiner {
    /// Returns the event with joined characters; borrowed if nothing was split.
    pub(super) fn mend<'a>(&mut self, data: &'a [u8]) -> Cow<'a, [u8]> {
        let mut mended = Vec::new();
        let (mut at, mut copied) = (0, 0);
        while let Some(next) = memchr(b'\\', data.get(at..).unwrap_or_default()) {
            at += next;
            let kind = escape(data, at);
            let width = if data.get(at + 1) == Some(&b'u') { LENGTH } else { 2 };
            if kind == JsonEscape::First && escape(data, at + LENGTH) == JsonEscape::Second {
                at += 2 * LENGTH;
                continue;
            }
            if kind != JsonEscape::Whole {
                mended.extend_from_slice(&data[copied..at]);
                copied = at + LENGTH;
                let opens = data[..at].ends_with(b"\"");
                let closes = data[copied..].starts_with(b"\"");
                self.push_half(kind, &data[at..copied], opens, closes, &mut mended);
            }
            at += width;
        }
        if copied == 0 {
            return Cow::Borrowed(data);
        }
        mended.extend_from_slice(&data[copied..]);
        Cow::Owned(mended)
    }

    /// Holds back a first half at the end of a text and completes a second half at the start of one.
    fn push_half(
        &mut self,
        kind: JsonEscape,
        half: &[u8],
        opens: bool,
        closes: bool,
        out: &mut Vec<u8>,
    ) {
        if kind == JsonEscape::First && closes {
            self.held = half.try_into().ok();
            return;
        }
        match self.held.take().filter(|_| kind == JsonEscape::Second && opens) {
            Some(first) => out.extend(first.iter().chain(half)),
            None => out.extend_from_slice(LOST),
        }
    }
}

/// Classifies the escape at `at`.
fn escape(data: &[u8], at: usize) -> JsonEscape {
    let Some([b'\\', b'u', b'd' | b'D', half, rest @ ..]) = data.get(at..at + LENGTH) else {
        return JsonEscape::Whole;
    };
    match half.to_ascii_lowercase() {
        _ if !rest.iter().all(u8::is_ascii_hexdigit) => JsonEscape::Whole,
        b'8' | b'9' | b'a' | b'b' => JsonEscape::First,
        b'c'..=b'f' => JsonEscape::Second,
        _ => JsonEscape::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(events: &[&str]) -> Vec<String> {
        let mut mender = SurrogateJoiner::default();
        let mend = |event: &&str| String::from_utf8(mender.mend(event.as_bytes()).into()).unwrap();
        events.iter().map(mend).collect()
    }

    #[test]
    fn what_is_whole_stays_as_it_is() {
        for event in [
            r#"{"a":"plain"}"#,
            r#"{"a":"\ud83e\udd80 \u00e4 \n \"quoted\""}"#,
            r#"{"a":"a path: C:\\ud83e"}"#,
            r#"{"a":"\ud83"#,
            r"\",
        ] {
            assert!(
                matches!(SurrogateJoiner::default().mend(event.as_bytes()), Cow::Borrowed(_)),
                "{event}"
            );
        }
    }

    #[test]
    fn halves_meet_again_and_a_lonely_one_is_marked() {
        for (events, expected) in [
            (
                vec![r#"{"a":"x\ud83e"}"#, r#"{"a":"\udd80y"}"#],
                vec![r#"{"a":"x"}"#, r#"{"a":"\ud83e\udd80y"}"#],
            ),
            // A ping between the halves does not separate them.
            (
                vec![r#"{"a":"\uD83E"}"#, "{}", r#"{"a":"\uDD80"}"#],
                vec![r#"{"a":""}"#, "{}", r#"{"a":"\uD83E\uDD80"}"#],
            ),
            (vec![r#"{"a":"\ud83e!"}"#], vec![r#"{"a":"\ufffd!"}"#]),
            (vec![r"\udd80", r"\ud83e"], vec![r"\ufffd", r"\ufffd"]),
            (vec![r#"{"a":"\udd80"}"#], vec![r#"{"a":"\ufffd"}"#]),
            (vec![r#"{"a":"\ud83e\ud83e\udd80"}"#], vec![r#"{"a":"\ufffd\ud83e\udd80"}"#]),
            (
                vec![r#"{"a":"\\\ud83e"}"#, r#"{"a":"\udd80"}"#],
                vec![r#"{"a":"\\"}"#, r#"{"a":"\ud83e\udd80"}"#],
            ),
        ] {
            assert_eq!(mended(&events), expected);
        }
    }
}
