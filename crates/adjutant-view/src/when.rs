//! Instants and durations as people and programs write them.

use std::time::Duration;

const MS_PER_DAY: u64 = 86_400_000;

/// Returns a wall clock instant as RFC 3339 in UTC, to the second: `2025-01-31T12:34:56Z`.
#[must_use]
pub fn rfc3339(wall_ms: u64) -> String {
    let (date, ms) = split(wall_ms);
    format!("{date}T{}Z", time_of_day(ms))
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

fn split(wall_ms: u64) -> (String, u64) {
    let (year, month, day) = civil(wall_ms / MS_PER_DAY);
    (format!("{year:04}-{month:02}-{day:02}"), wall_ms % MS_PER_DAY)
}

fn time_of_day(ms: u64) -> String {
    let seconds = ms / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Returns the date `days` after 1 January 1970.
///
/// The arithmetic counts from 1 March of the year 0, where leap days fall at the end of a year and
/// 400 years have 146,097 days (Howard Hinnant, "chrono-compatible low-level date algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}
