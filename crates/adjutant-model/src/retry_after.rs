//! Reads from response headers how long a provider asks us to wait.

use std::time::SystemTime;

use reqwest::header::HeaderMap;

use crate::errors::millis;

/// Returns the wait in milliseconds, from `retry-after-ms`, or from `retry-after` in seconds or as a date.
pub(crate) fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.trim().parse::<f64>().ok()) {
        return millis(&(ms / 1_000.0).to_string());
    }
    let wish = text("retry-after")?;
    millis(wish).or_else(|| milliseconds_until(wish, now))
}

fn milliseconds_until(date: &str, now: SystemTime) -> Option<u64> {
    let at = jiff::fmt::rfc2822::parse(date.trim()).ok()?.timestamp();
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now_ms = i64::try_from(now.as_millis()).ok()?;
    u64::try_from(at.as_millisecond().saturating_sub(now_ms).max(0)).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_spelling_of_a_wish_is_understood() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        for (headers, expected) in [
            (&[("retry-after-ms", "1500"), ("retry-after", "9")][..], Some(1_500)),
            (&[("retry-after", "9")], Some(9_000)),
            (&[("retry-after", "0.25")], Some(250)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(7_000)),
            (&[("retry-after", "Sun, 06 Nov 1983 08:49:37 GMT")], Some(0)),
            (&[("retry-after-ms", "soon"), ("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "-3")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "later")], None),
            (&[], None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            assert_eq!(retry_after_ms(&map, now), expected, "{headers:?}");
        }
    }
}
