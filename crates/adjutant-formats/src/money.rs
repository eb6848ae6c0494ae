//! Money and prices in exact integer arithmetic.
//!
//! Amounts are whole picodollars, so that the smallest published price (a few cents per million cached
//! tokens) is an integer per token and sums never drift. A `u64` holds eighteen million dollars; arithmetic
//! saturates instead of wrapping a budget back to zero.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::usage::Usage;

const PICO_PER_USD: f64 = 1e12;

/// An amount of US dollars in whole picodollars; serialized as a decimal number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

impl Usd {
    /// No money.
    pub const ZERO: Self = Self(0);
    /// The largest amount, which stands for "no limit".
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the amount of `pico` picodollars.
    #[must_use]
    pub const fn from_pico(pico: u64) -> Self {
        Self(pico)
    }

    /// Returns the amount in picodollars.
    #[must_use]
    pub const fn as_pico(self) -> u64 {
        self.0
    }

    /// Converts from dollars; `None` if the number is negative, not finite or too large.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let pico = (dollars * PICO_PER_USD).round();
        // The bound is exclusive: `u64::MAX as f64` rounds up past the largest integer.
        (dollars.is_finite() && pico >= 0.0 && pico < u64::MAX as f64).then_some(Self(pico as u64))
    }

    /// Returns the amount in dollars, for people and for wire formats.
    #[must_use]
    pub fn as_dollars(self) -> f64 {
        self.0 as f64 / PICO_PER_USD
    }

    /// Returns `self - other`, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Usd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Formats whole cents as `$1.25` and other amounts with four decimals, such as `$0.0031`.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            return f.write_str("unlimited");
        }
        let dollars = self.as_dollars();
        if self.0.is_multiple_of(10_000_000_000) || dollars >= 10.0 {
            write!(f, "${dollars:.2}")
        } else {
            write!(f, "${dollars:.4}")
        }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        if !dollars.is_finite() || dollars < 0.0 {
            return Err(serde::de::Error::custom("not an amount of dollars"));
        }
        // A saturated sum was serialized as a float and must be read back as `MAX`.
        Ok(Self::from_dollars(dollars).unwrap_or(Self::MAX))
    }
}

/// The price of a model, in dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Uncached input tokens.
    pub input: f64,
    /// Output tokens, thinking included.
    pub output: f64,
    /// Input tokens served from the provider's cache.
    #[serde(default)]
    pub cache_read: f64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write: f64,
}

/// Configured prices for a model, in dollars per million tokens. An absent price falls back to the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceOverride {
    /// Uncached input tokens.
    pub input: Option<f64>,
    /// Output tokens, thinking included.
    pub output: Option<f64>,
    /// Input tokens served from the provider's cache.
    pub cache_read: Option<f64>,
    /// Input tokens written to the provider's cache.
    pub cache_write: Option<f64>,
}

impl PriceOverride {
    /// Returns `listed` with these prices replacing its own.
    ///
    /// An unlisted model has a price only if both input and output are given; its cache prices default to
    /// zero.
    #[must_use]
    pub fn apply_to(self, listed: Option<Price>) -> Option<Price> {
        Some(Price {
            input: self.input.or(listed.map(|it| it.input))?,
            output: self.output.or(listed.map(|it| it.output))?,
            cache_read: self.cache_read.or(listed.map(|it| it.cache_read)).unwrap_or_default(),
            cache_write: self.cache_write.or(listed.map(|it| it.cache_write)).unwrap_or_default(),
        })
    }
}

impl Price {
    /// Returns what `usage` costs.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Usd {
        priced(self.input, usage.input)
            + priced(self.output, usage.output)
            + priced(self.cache_read, usage.cache_read)
            + priced(self.cache_write, usage.cache_write)
    }

    /// Returns the highest possible cost of `input` and `output` tokens, however the cache behaves.
    #[must_use]
    pub fn max_cost(&self, input: u64, output: u64) -> Usd {
        let dearest_input = self.input.max(self.cache_write).max(self.cache_read);
        priced(dearest_input, input) + priced(self.output, output)
    }
}

/// A dollar per million tokens is a million picodollars per token. Fractions round up, so that a sum of parts
/// is never less than the whole.
fn priced(dollars_per_million: f64, tokens: u64) -> Usd {
    let pico_per_token = (dollars_per_million * 1e6).ceil().max(0.0) as u64;
    Usd(pico_per_token.saturating_mul(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_tokens_cost_the_published_price() {
        let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
        let usage = Usage {
            input: 1_000_000,
            output: 1_000_000,
            cache_read: 1_000_000,
            cache_write: 1_000_000,
        };
        assert_eq!(price.cost(&usage), Usd::from_dollars(22.05).unwrap());
    }

    #[test]
    fn the_ceiling_covers_every_way_the_input_may_be_billed() {
        let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
        for usage in [
            Usage { input: 70, output: 9, ..Usage::default() },
            Usage { cache_write: 70, output: 9, ..Usage::default() },
            Usage { cache_read: 35, input: 35, output: 9, ..Usage::default() },
        ] {
            assert!(price.cost(&usage) <= price.max_cost(70, 9));
        }
    }

    #[test]
    fn dollars_that_are_no_amount_are_refused() {
        for bad in [-0.01, f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(Usd::from_dollars(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_amount_survives_the_wire() {
        for pico in [0, 1, 310_000_000, 5_000_000_000_000, 123_456_789_012, u64::MAX] {
            let text = serde_json::to_string(&Usd::from_pico(pico)).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), Usd::from_pico(pico), "{text}");
        }
    }
}
