//! Ids of runs and sessions, names of agents, and labels of tasks.
//!
//! The engine generates ids from secure randomness; this module only formats and parses them. Labels are free
//! text from a model or a person and never become file names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number of random characters that end an id.
pub const SUFFIX_LEN: usize = 6;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A timestamp and six random characters: the common form of run and session ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TimestampedId {
    stamp: u64,
    suffix: [u8; SUFFIX_LEN],
}

/// Returned for a text that is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id of the form {prefix}_{{unix seconds}}_{{6 characters of a-z0-9}}")]
pub struct InvalidId {
    text: String,
    prefix: &'static str,
}

impl TimestampedId {
    fn new(seconds: u64, chance: [u8; SUFFIX_LEN]) -> Self {
        // 256 is not a multiple of 36, so the first four letters occur in 8 of 256 draws instead of 7. The
        // bias does no harm, because the store checks that ids are unique.
        Self {
            stamp: seconds,
            suffix: chance.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]),
        }
    }

    fn parse(text: &str, prefix: &'static str) -> Result<Self, InvalidId> {
        Self::try_parse(text, prefix).ok_or_else(|| InvalidId { text: text.to_owned(), prefix })
    }

    fn try_parse(text: &str, prefix: &str) -> Option<Self> {
        let (stamp, suffix) = text.strip_prefix(prefix)?.strip_prefix('_')?.split_once('_')?;
        // Ten digits are Unix seconds from 2001 to 2286. Eight digits are a date, an old form accepted only
        // as input.
        let is_stamp = matches!(stamp.len(), 8 | 10)
            && !stamp.starts_with('0')
            && stamp.bytes().all(|byte| byte.is_ascii_digit());
        let suffix: [u8; SUFFIX_LEN] = suffix.as_bytes().try_into().ok()?;
        let known = suffix.iter().all(|byte| ALPHABET.contains(byte));
        (is_stamp && known).then_some(Self { stamp: stamp.parse().ok()?, suffix })
    }

    fn write(self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{prefix}_{}_", self.stamp)?;
        self.suffix.iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

macro_rules! stamped_id {
    ($(#[$meta:meta])* $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(TimestampedId);

        impl $name {
            /// Returns the creation time in Unix seconds, or the date as a number for the old form.
            #[must_use]
            pub const fn stamp(self) -> u64 {
                self.0.stamp
            }

            /// Makes an id from a creation time and six bytes of secure randomness.
            #[must_use]
            pub fn new(unix_seconds: u64, chance: [u8; SUFFIX_LEN]) -> Self {
                Self(TimestampedId::new(unix_seconds, chance))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write($prefix, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                TimestampedId::parse(text, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

stamped_id! {
    /// The id of a delegation: `sess_{unix seconds}_{6 characters of a-z0-9}`.
    SessionId, "sess"
}

stamped_id! {
    /// The id of a run: `run_{unix seconds}_{6 characters of a-z0-9}`.
    RunId, "run"
}

impl RunId {
    /// Returns the session id of the run's root, which has the same timestamp and suffix.
    #[must_use]
    pub const fn root_session(self) -> SessionId {
        SessionId(self.0)
    }
}

/// The name of an agent definition, or of the root command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Makes a name; any text is accepted.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The display name that the caller gives a task: 1 to 32 characters of any text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Label(Arc<str>);

/// Returned for a label that is empty or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label has {len} characters, allowed are 1 to {max}", max = Label::MAX_CHARS)]
pub struct InvalidLabel {
    len: usize,
}

impl Label {
    /// The maximum length of a label, in characters. Inclusive.
    pub const MAX_CHARS: usize = 32;

    /// Makes a label if the length of `text` is allowed.
    pub fn new(text: &str) -> Result<Self, InvalidLabel> {
        let len = text.chars().count();
        if (1..=Self::MAX_CHARS).contains(&len) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidLabel { len })
        }
    }

    /// Makes a label from the beginning of a text, cut at the end of a word.
    #[must_use]
    pub fn start_of(text: &str) -> Self {
        let text = text.trim();
        let Some((end, next)) = text.char_indices().nth(Self::MAX_CHARS) else {
            return Self::new(text).unwrap_or_else(|_| Self::unnamed());
        };
        let start = &text[..end];
        let words =
            if next.is_whitespace() { None } else { start.rsplit_once(char::is_whitespace) };
        // A single word longer than a label is cut at the maximum length.
        let kept = words.map_or(start, |(words, _)| words).trim_end();
        Self::new(kept).unwrap_or_else(|_| Self::unnamed())
    }

    /// Returns the label of a task without a name.
    #[must_use]
    pub fn unnamed() -> Self {
        Self("unnamed".into())
    }

    /// Returns the display label of the `nth` task with this label in one call.
    fn numbered(&self, nth: usize) -> Self {
        if nth <= 1 { self.clone() } else { Self(format!("{} ({nth})", self.0).into()) }
    }

    /// Returns the label as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes labels unique by numbering repeated ones: `name`, `name (2)`.
pub fn number_duplicates<'a>(labels: impl IntoIterator<Item = &'a mut Label>) {
    let mut seen: BTreeSet<Label> = BTreeSet::new();
    let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
    for label in labels {
        let count = counts.entry(label.clone()).or_default();
        // The caller may have used `label (2)` itself; then counting continues.
        *label = loop {
            *count += 1;
            let numbered = label.numbered(*count);
            if !seen.contains(&numbered) {
                break numbered;
            }
        };
        seen.insert(label.clone());
    }
}

/// Returns the id of a story's `number`-th child: `{parent}-DEL-{NNN}`.
#[must_use]
pub fn story_child(parent: &str, number: u32) -> String {
    format!("{parent}-DEL-{number:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_has_the_form_of_requirement_2() {
        let id = SessionId::new(1_735_460_684, [0, 27, 1, 28, 2, 29]);
        assert_eq!(id.to_string(), "sess_1735460684_a1b2c3");
        assert_eq!("sess_1735460684_a1b2c3".parse(), Ok(id));
    }

    #[test]
    fn the_date_form_is_accepted_as_input() {
        // D2: examples in the old guide have a date instead of Unix seconds.
        let id: SessionId = "sess_20251226_abc123".parse().unwrap();
        assert_eq!(id.to_string(), "sess_20251226_abc123");
    }

    #[test]
    fn anything_else_is_not_an_id() {
        for text in [
            "",
            "sess_",
            "sess_1735460684_ABC123",
            "sess_1735460684_abc12",
            "sess_1735460684_abc1234",
            "sess_173546068_abc123",
            "sess_0735460684_abc123",
            "run_1735460684_abc123",
            "sess_1735460684-abc123",
            "sess_1735460684_abc12é",
            "../sess_1735460684_abc123",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_label_counts_characters_not_bytes() {
        assert!(Label::new("").is_err());
        assert!(Label::new(&"ü".repeat(32)).is_ok());
        assert!(Label::new(&"x".repeat(33)).is_err());
    }

    #[test]
    fn equal_labels_are_shown_with_numbers() {
        for (labels, expected) in [
            (vec!["a", "b", "a"], "a, b, a (2)"),
            (vec!["a", "a", "a"], "a, a (2), a (3)"),
            (vec!["a", "a (2)", "a"], "a, a (2), a (3)"),
            (vec!["a", "a", "a (2)"], "a, a (2), a (2) (2)"),
        ] {
            let mut labels: Vec<Label> =
                labels.into_iter().map(|label| Label::new(label).unwrap()).collect();
            number_duplicates(&mut labels);
            assert_eq!(labels.iter().map(Label::as_str).collect::<Vec<_>>().join(", "), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_label_is_shown_twice(labels in proptest::collection::vec("a|b|a \\(2\\)|a \\(3\\)", 1..8)) {
            let mut shown: Vec<Label> = labels.iter().map(|label| Label::new(label).unwrap()).collect();
            number_duplicates(&mut shown);
            let distinct: BTreeSet<&Label> = shown.iter().collect();
            proptest::prop_assert_eq!(distinct.len(), labels.len());
        }
    }

    #[test]
    fn story_children_are_numbered_with_three_digits() {
        assert_eq!(story_child("US-007", 1), "US-007-DEL-001");
        assert_eq!(story_child("US-007", 1000), "US-007-DEL-1000");
    }

    #[test]
    fn a_text_that_is_too_long_for_a_label_is_cut_where_a_word_ends() {
        for (text, label) in [
            ("  short ", "short"),
            ("Implement advanced caching layer", "Implement advanced caching layer"),
            ("Implement advanced caching layers", "Implement advanced caching"),
            ("Implement advanced caching layer now", "Implement advanced caching layer"),
            (&"x".repeat(40), &"x".repeat(32)),
            ("größe der überschriften prüfen und", "größe der überschriften prüfen"),
            (" ", "unnamed"),
        ] {
            assert_eq!(Label::start_of(text).as_str(), label);
        }
    }
}
