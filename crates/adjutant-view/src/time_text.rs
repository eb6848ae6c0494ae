//! Instants and durations as text.

use std::time::Duration;

use adjutant_core::time::date;

const MS_PER_DAY: u64 = 86_400_000;

/// Returns a wall clock instant as RFC 3339 in UTC, to the second: `2025-01-31T12:34:56Z`.
#[must_use]
pub fn rfc3339(wall_ms: u64) -> String {
    adjutant_core::time::rfc3339(wall_ms)
}

/// Returns a wall clock instant as RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn rfc3339_ms(wall_ms: u64) -> String {
    let (date, ms) = split(wall_ms);
    format!("{date}T{}.{:03}Z", time_of_day(ms), ms % 1_000)
}

/// Returns a duration for people: `0.4s`, `12s`, `1m 02s`, `1h 02m`, `3d 04h`.
#[must_use]
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=9 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns how long ago something was, in one unit: `5s`, `12m`, `3h`, `16d`.
#[must_use]
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m", seconds / 60),
        3_600..=86_399 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn split(wall_ms: u64) -> (String, u64) {
    (date(wall_ms), wall_ms % MS_PER_DAY)
}

fn time_of_day(ms: u64) -> String {
    let seconds = ms / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}
