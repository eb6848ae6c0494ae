//! The run's own time: monotonic since it began, whatever the wall clock does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adjutant_core::Timestamp;
use tokio::time::Instant;

/// Tells the wall clock in Unix milliseconds; for people, never for deadlines.
pub type WallClock = fn() -> u64;

/// Returns the wall clock in Unix milliseconds.
#[must_use]
pub fn wall_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The clock of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start: Instant,
    /// How old the run was when the clock started.
    age: Timestamp,
    wall: WallClock,
}

impl RunClock {
    /// Starts the clock of a run that is `age` old: time in which nobody worked on it does not count.
    pub(crate) fn start(wall: WallClock, age: Timestamp) -> Self {
        Self { start: Instant::now(), age, wall }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = self.start.elapsed().as_millis();
        self.age.plus_millis(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        (self.wall)()
    }

    /// Returns the instant at which the run is `at` old.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        // A deadline beyond what the platform can count is as good as a year away.
        let ahead = Duration::from_millis(at.as_millis().saturating_sub(self.age.as_millis()));
        self.start
            .checked_add(ahead)
            .unwrap_or_else(|| self.start + Duration::from_secs(31_536_000))
    }
}
