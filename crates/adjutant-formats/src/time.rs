//! Time as plain numbers, which tests can choose and journals can store.
//!
//! A [`Timestamp`] counts milliseconds of a run's monotonic time, so a clock change or a suspended machine
//! does not affect deadlines. Wall clock time is used only for display.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in a run's time: milliseconds since the run began, monotonic.
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

    /// Returns the instant `seconds` later; saturates.
    #[must_use]
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Returns the instant `millis` later; saturates.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the time since `earlier`; zero if it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

const MS_PER_DAY: u64 = 86_400_000;

/// Formats a wall clock time as a UTC date: `2025-01-31`.
#[must_use]
pub fn date(wall_ms: u64) -> String {
    let (year, month, day) = civil(wall_ms / MS_PER_DAY);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Parses a UTC date such as `2025-01-31`, from 1970 on. Returns the wall clock time of its beginning.
#[must_use]
pub fn parse_date(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The inverse of `civil`.
    let (year_from_march, month_from_march) =
        if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    let wall_ms = days * MS_PER_DAY;
    // A day that the month does not have, and other spellings, give another date.
    (date(wall_ms) == text).then_some(wall_ms)
}

/// Formats a wall clock time as RFC 3339 in UTC, to the second: `2025-01-31T12:34:56Z`.
#[must_use]
pub fn rfc3339(wall_ms: u64) -> String {
    let seconds = wall_ms % MS_PER_DAY / 1_000;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", date(wall_ms))
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

#[cfg(test)]
mod tests {
    use super::{date, parse_date};

    #[test]
    fn a_date_is_parsed_as_it_is_printed() {
        for days in (0..800_000).step_by(13) {
            let wall_ms = days * super::MS_PER_DAY;
            assert_eq!(parse_date(&date(wall_ms)), Some(wall_ms), "{}", date(wall_ms));
        }
    }

    #[test]
    fn what_is_not_a_date_of_the_calendar_is_refused() {
        for text in [
            "",
            "2025",
            "2025-02",
            "2025-02-29",
            "2025-13-01",
            "2025-00-10",
            "2025-04-31",
            "2025-4-3",
            "1969-12-31",
            "10000-01-01",
            "2025-01-01T00:00:00Z",
            " 2025-01-01",
            "+2025-01-01",
            "99999999999999999999-01-01",
            "2025-01-00",
            "2025-01-99",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
