//! An event with the time of its record, the input of every fold.
//!
//! A [`TimedEvent`] is one event; an [`EventTime`] is one moment on two clocks: since the start of
//! the run, and wall-clock time.

use adjutant_core::{Event, Timestamp};

/// An event and when it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct TimedEvent<'a> {
    /// The time on the run's own clock.
    pub at: Timestamp,
    /// The wall-clock time in milliseconds since 1970; only for display.
    pub wall_ms: u64,
    /// The event.
    pub event: &'a Event,
}

impl<'a> TimedEvent<'a> {
    /// Combines an event and its time.
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

/// A time on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventTime {
    /// The time on the run's own clock, which durations are computed from.
    pub at: Timestamp,
    /// The wall-clock time, for display.
    pub wall_ms: u64,
}
