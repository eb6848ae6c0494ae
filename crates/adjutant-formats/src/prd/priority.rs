//! The priority of a story, given as a number or a word.

use std::cmp::Ordering;

/// The priority of a story; lower numbers run earlier.
///
/// Numbers are used directly. The words `critical`, `high`, `medium` and `low` mean 0 to 3, and `P2` means 2.
/// A story without a priority comes last.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct StoryPriority(f64);

impl StoryPriority {
    /// The priority of a story that has none.
    pub const NONE: Self = Self(f64::INFINITY);

    /// Makes a priority from a number.
    #[must_use]
    pub const fn new(number: f64) -> Self {
        Self(number)
    }

    /// Parses a word; `None` for an unknown one.
    pub(super) fn word(word: &str) -> Option<Self> {
        let word = word.trim().to_lowercase();
        let rank = match word.as_str() {
            "critical" | "urgent" | "highest" | "blocker" => 0.0,
            "high" => 1.0,
            "medium" | "normal" => 2.0,
            "low" => 3.0,
            "lowest" => 4.0,
            other => {
                let digits = other.strip_prefix('p').unwrap_or(other);
                let is_plain =
                    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse().ok().filter(|_| is_plain)?
            }
        };
        Some(Self(rank))
    }

    /// Compares two priorities; the one that runs earlier is less.
    #[must_use]
    pub fn order(self, other: Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
