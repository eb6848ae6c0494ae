//! The clock of a run: monotonic time since its start, independent of the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adjutant_core::Timestamp;
use tokio::time::Instant;

/// Returns the wall clock in Unix milliseconds. For output only, never for deadlines.
pub type WallClock = fn() -> u64;

/// Returns the wall clock in Unix milliseconds.
#[must_use]
pub fn wall_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The clock of one run, which stands still while no process works on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start: Instant,
    /// The age of the run when the clock started.
    age: Timestamp,
    wall: WallClock,
}

impl RunClock {
    /// Starts the clock of a run at `age`, the timestamp of its last record.
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

    /// Sets the clock forward to the timestamp of an event that another process recorded. It is never set back.
    pub(crate) fn catch_up(&mut self, at: Timestamp) {
        if at > self.now() {
            (self.start, self.age) = (Instant::now(), at);
        }
    }

    /// Converts a timestamp of the run to an instant.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        // An instant that the platform cannot represent becomes one year from now.
        let ahead = Duration::from_millis(at.as_millis().saturating_sub(self.age.as_millis()));
        self.start
            .checked_add(ahead)
            .unwrap_or_else(|| self.start + Duration::from_secs(31_536_000))
    }
}
