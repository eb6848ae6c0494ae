//! The numbers of a group of attempts: how many were solved, what they cost, how long they took.

use std::time::Duration;

use adjutant_core::Usd;
use serde::Serialize;

use super::{EvalAttempt, EvalJudgement};

/// The quantile of the normal distribution for an interval of 95 %.
const Z_95: f64 = 1.959_963_984_540_054;

/// The numbers of some attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AttemptStatistics {
    /// The attempts that ran.
    pub attempts: usize,
    /// How many of them solved the task.
    pub solved: usize,
    /// The interval in which the rate of solving lies; absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<SuccessInterval>,
    /// The attempts that were skipped, because a toolchain is missing.
    pub skipped: usize,
    /// The cost of all; absent if no attempt has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// The tokens of all.
    pub tokens: u64,
    /// The median of the times, in milliseconds; absent without attempts, like the two below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<u64>,
    /// The shortest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ms: Option<u64>,
    /// The longest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Tool calls that failed or were refused.
    pub tool_errors: u64,
    /// The attempts with a false claim.
    pub false_claims: usize,
}

impl AttemptStatistics {
    /// Counts attempts.
    pub fn of<'a>(attempts: impl Iterator<Item = &'a EvalAttempt>) -> Self {
        let mut sum = Self::default();
        let mut times = Vec::new();
        for attempt in attempts {
            match attempt.judgement {
                EvalJudgement::Skipped => {
                    sum.skipped += 1;
                    continue;
                }
                EvalJudgement::Solved => sum.solved += 1,
                EvalJudgement::Unsolved => {}
            }
            sum.attempts += 1;
            if let Some(usd) = attempt.usd {
                sum.usd = Some(sum.usd.unwrap_or_default() + usd);
            }
            sum.tokens = sum.tokens.saturating_add(attempt.tokens);
            sum.tool_errors += u64::from(attempt.tool_errors);
            sum.false_claims += usize::from(attempt.false_claim.is_some());
            times.push(attempt.elapsed_ms);
        }
        times.sort_unstable();
        sum.interval = wilson_interval(sum.solved, sum.attempts);
        sum.median_ms = median(&times);
        (sum.min_ms, sum.max_ms) = (times.first().copied(), times.last().copied());
        sum
    }

    /// Returns the median and the range of the times, if there are any.
    pub(super) fn times(&self) -> Option<[Duration; 3]> {
        let all = [self.median_ms?, self.min_ms?, self.max_ms?];
        Some(all.map(Duration::from_millis))
    }
}

/// An interval in which a rate lies with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SuccessInterval {
    /// The lower end, from 0 to 1.
    pub low: f64,
    /// The upper end, from 0 to 1.
    pub high: f64,
}

/// Returns the Wilson score interval of a rate with a confidence of 95 %; `None` without attempts.
///
/// It is used because it stays within 0 and 1 and is usable with three attempts, for which the usual interval around
/// the rate is not.
#[must_use]
pub fn wilson_interval(solved: usize, attempts: usize) -> Option<SuccessInterval> {
    if attempts == 0 {
        return None;
    }
    let (solved, count) = (solved as f64, attempts as f64);
    let (rate, z2) = (solved / count, Z_95 * Z_95);
    let middle = rate + z2 / (2.0 * count);
    let half = Z_95 * (rate * (1.0 - rate) / count + z2 / (4.0 * count * count)).sqrt();
    let scale = 1.0 + z2 / count;
    let bounded = |end: f64| (end / scale).clamp(0.0, 1.0);
    Some(SuccessInterval { low: bounded(middle - half), high: bounded(middle + half) })
}

/// Returns the median of sorted values; of an even number, the mean of the two in the middle.
fn median(sorted: &[u64]) -> Option<u64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(lower.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected ends solve `(rate - p)² = z² p (1 - p) / n` for `p` and were found by bisection.
    #[test]
    fn the_ends_of_a_wilson_interval_are_the_rates_at_which_the_score_test_decides() {
        for (solved, attempts, low, high) in [
            (0, 3, 0.0, 0.561_497),
            (3, 3, 0.438_503, 1.0),
            (2, 3, 0.207_660, 0.938_508),
            (24, 48, 0.363_893, 0.636_107),
            (45, 48, 0.831_646, 0.978_517),
        ] {
            let found = wilson_interval(solved, attempts).unwrap();
            let is_near = |one: f64, other: f64| (one - other).abs() < 1e-6;
            assert!(is_near(found.low, low) && is_near(found.high, high), "{solved} {found:?}");
        }
        assert_eq!(wilson_interval(0, 0), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4]), Some(4));
        assert_eq!(median(&[1, 4, 9]), Some(4));
        assert_eq!(median(&[1, 4, 8, 100]), Some(6));
    }
}
