//! The token usage of model calls, normalised across providers.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// The tokens of one or more model calls, in four kinds that never overlap.
///
/// Providers disagree on whether cached tokens count as input. Here `input` excludes them, so that each kind
/// is priced once; [`Usage::input_total`] is what filled the context window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Uncached input tokens.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Input tokens served from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
}

impl Usage {
    /// Returns every input token, cached or not.
    #[must_use]
    pub const fn input_total(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns every billed token.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output)
    }
}

impl Add for Usage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
