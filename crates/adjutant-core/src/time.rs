//! Time as a number that can be invented in a test and written to a journal.
//!
//! A [`Timestamp`] counts milliseconds of a run's own monotonic life, so a clock jump or a
//! suspended machine changes no deadline. Wall time appears only where people read it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant in the life of a run: milliseconds since it began, monotonic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant at which a run begins.
    pub const ZERO: Self = Self(0);

    /// Returns the instant `millis` milliseconds into the run.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the run began.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the instant `seconds` later, or the last representable one.
    #[must_use]
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Returns the instant `millis` later, or the last representable one.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns how long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
