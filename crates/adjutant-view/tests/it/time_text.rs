//! Dates by arithmetic, and durations as text.

use std::time::Duration;

use adjutant_view::time_text::{elapsed, rfc3339, rfc3339_ms};

#[test]
fn dates_match_the_calendar() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_738_326_896, "2025-01-31T12:34:56Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(rfc3339(seconds * 1_000), expected);
    }
    assert_eq!(rfc3339_ms(1_738_326_896_007), "2025-01-31T12:34:56.007Z");
    // The largest value does not overflow.
    assert!(rfc3339(u64::MAX).ends_with('Z'));
}

#[test]
fn durations_have_two_units() {
    let shown = [0, 450, 9_990, 12_345, 62_000, 3_725_000, 273_600_000]
        .map(|millis| elapsed(Duration::from_millis(millis)));
    assert_eq!(shown, ["0.0s", "0.4s", "9.9s", "12s", "1m 02s", "1h 02m", "3d 04h"]);
}
