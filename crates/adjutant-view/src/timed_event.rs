//! A fact and when it was recorded: what every fold takes.

use adjutant_core::{Event, Timestamp};

/// One record of a run, as a fold reads it.
#[derive(Clone, Copy, Debug)]
pub struct TimedEvent<'a> {
    /// The instant in the run's own time.
    pub at: Timestamp,
    /// The wall clock at that instant, in milliseconds since 1970; only for people.
    pub wall_ms: u64,
    /// What happened.
    pub event: &'a Event,
}

impl<'a> TimedEvent<'a> {
    /// Joins a fact and its time.
    #[must_use]
    pub const fn new(at: Timestamp, wall_ms: u64, event: &'a Event) -> Self {
        Self { at, wall_ms, event }
    }

    /// Returns when it was recorded.
    #[must_use]
    pub const fn moment(&self) -> EventTime {
        EventTime { at: self.at, wall_ms: self.wall_ms }
    }
}

/// An instant on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventTime {
    /// In the run's own time, which durations come from.
    pub at: Timestamp,
    /// On the wall, which people read.
    pub wall_ms: u64,
}
