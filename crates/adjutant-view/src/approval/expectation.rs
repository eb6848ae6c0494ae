//! What tasks like those of a question consumed before: the median and the 90th percentile.
//!
//! It is information for a person; no decision uses it. [`UsageForecast::of`] computes it from samples of the registry.

use std::time::Duration;

use adjutant_core::numbers::grouped;
use adjutant_core::registry::{DelegationSample, SampleKey};
use adjutant_core::{Grant, Policy, Usd};
use serde::Serialize;

use crate::state_words::count_with_noun;
use crate::time_text::elapsed;

/// With fewer samples than this the question says that there are few.
const FEW_SAMPLES: usize = 5;

/// What one task usually consumes, as far as earlier delegations tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageForecast {
    /// How many ended delegations it rests on; with none, nothing is expected.
    pub samples: usize,
    /// The median of each amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<ExpectedAmounts>,
    /// What nine of ten did not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<ExpectedAmounts>,
}

/// Amounts of one task. Each is computed on its own, so they need not belong to the same delegation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpectedAmounts {
    /// The tokens.
    pub tokens: u64,
    /// The cost; `None` if no sample has a price.
    pub cost_usd: Option<Usd>,
    /// The time it worked, in milliseconds.
    pub elapsed_ms: u64,
}

impl UsageForecast {
    /// Computes what to expect from the samples of ended delegations.
    #[must_use]
    pub fn of(samples: &[DelegationSample]) -> Self {
        let sorted = |mut all: Vec<u64>| {
            all.sort_unstable();
            all
        };
        let tokens = sorted(samples.iter().map(|it| it.tokens).collect());
        let times = sorted(samples.iter().map(|it| it.elapsed_ms).collect());
        let mut costs: Vec<Usd> = samples.iter().filter_map(DelegationSample::cost).collect();
        costs.sort_unstable();
        let amounts = |percent| {
            let (tokens, elapsed_ms) =
                (percentile(&tokens, percent)?, percentile(&times, percent)?);
            Some(ExpectedAmounts { tokens, cost_usd: percentile(&costs, percent), elapsed_ms })
        };
        Self { samples: samples.len(), median: amounts(50), p90: amounts(90) }
    }

    /// Describes what each of `tasks` equal tasks consumes.
    pub(super) fn text(&self, tasks: usize) -> String {
        let (Some(median), Some(p90)) = (self.median, self.p90) else {
            return "no history yet".to_owned();
        };
        let each = if tasks > 1 { "each usually" } else { "usually" };
        format!("{each} {}; 9 of 10 at most {}", median.text(), p90.text())
    }

    /// Describes how many samples it rests on, and what `tasks` equal tasks consume together.
    pub(super) fn basis(&self, tasks: usize) -> Option<String> {
        let median = self.median?;
        let few = if self.samples < FEW_SAMPLES { "only " } else { "" };
        let count = count_with_noun(self.samples, "earlier delegation");
        let basis = format!("from {few}{count}");
        if tasks < 2 {
            return Some(basis);
        }
        let tokens = median.tokens.saturating_mul(tasks as u64);
        let usd = median.cost_usd.map(|usd| std::iter::repeat_n(usd, tasks).sum::<Usd>());
        let cost = usd.map(|usd| format!("{usd}, ")).unwrap_or_default();
        Some(format!("{tasks} times that is {cost}{} tokens; {basis}", grouped(tokens)))
    }
}

impl ExpectedAmounts {
    fn text(&self) -> String {
        let cost = self.cost_usd.map(|usd| format!("{usd}, ")).unwrap_or_default();
        let time = elapsed(Duration::from_millis(self.elapsed_ms));
        format!("{cost}{} tokens, {time}", grouped(self.tokens))
    }
}

/// Returns the smallest value that at least `percent` of the sorted values do not exceed.
fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns what makes a task comparable with ended delegations; `None` without a model.
pub(super) fn sample_key(
    policy: &Policy,
    grant: &Grant,
    worker: Option<String>,
) -> Option<SampleKey> {
    let model = grant.brief.model.as_ref()?.name.clone();
    Some(SampleKey { preset: policy.preset, model, worker })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(tokens: impl IntoIterator<Item = u64>) -> Vec<DelegationSample> {
        let usd = |tokens: u64| Usd::from_pico(tokens * 1_000_000);
        let sample = |tokens| DelegationSample::new(tokens, Some(usd(tokens)), tokens * 10);
        tokens.into_iter().map(sample).collect()
    }

    #[test]
    fn the_median_and_the_90th_percentile_are_values_that_occurred() {
        for (tokens, expected) in [
            (vec![7], (7, 7)),
            (vec![9, 1], (1, 9)),
            (vec![3, 1, 2], (2, 3)),
            ((1..=10).rev().collect(), (5, 9)),
            ((1..=200).collect(), (100, 180)),
        ] {
            let all = UsageForecast::of(&samples(tokens));
            let (median, p90) = (all.median.unwrap(), all.p90.unwrap());
            assert_eq!((median.tokens, p90.tokens), expected);
            assert_eq!((median.elapsed_ms, p90.elapsed_ms), (expected.0 * 10, expected.1 * 10));
        }
        assert_eq!(UsageForecast::of(&[]), UsageForecast { samples: 0, median: None, p90: None });
    }

    #[test]
    fn samples_without_a_price_have_no_cost() {
        let unpriced = DelegationSample::new(5, None, 20);
        assert_eq!(UsageForecast::of(&[unpriced]).median.unwrap().cost_usd, None);
        let mixed = [samples([5]), vec![unpriced]].concat();
        assert_eq!(
            UsageForecast::of(&mixed).median.unwrap().cost_usd,
            Some(Usd::from_pico(5_000_000))
        );
    }
}
