//! Tokens and cost of model calls, and how much of them is estimated.
//!
//! A [`Spend`] is a sum over any number of calls, an [`HourlySpend`] the sum of one agent and model in one hour.

use adjutant_core::AgentName;
use adjutant_core::budget::{BudgetAmount, Settlement};
use adjutant_core::numbers::{format_rounded, grouped};
use adjutant_core::{Usage, Usd};

/// Explains the sign `~`.
pub(crate) const ESTIMATE_NOTE: &str =
    "~ estimated: calls without reported usage are counted at the amount reserved for them";

/// The name of a model or agent that no record names.
pub(crate) const UNKNOWN: &str = "unknown";

pub(crate) const MS_PER_HOUR: u64 = 3_600_000;

/// What the calls of one agent to one model cost within one hour.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HourlySpend {
    /// The hours since 1970, by the wall clock.
    pub hour: u64,
    /// The agent.
    pub agent: AgentName,
    /// The model.
    pub model: String,
    /// Tokens and cost.
    pub spend: Spend,
}

impl HourlySpend {
    /// Returns when the hour begins, in Unix milliseconds.
    #[must_use]
    pub const fn began_ms(&self) -> u64 {
        self.hour.saturating_mul(MS_PER_HOUR)
    }
}

/// Returns the sum of the hour of `wall_ms`, which is added if it is missing.
pub(super) fn hourly_spend<'a>(
    all: &'a mut Vec<HourlySpend>,
    wall_ms: u64,
    agent: &AgentName,
    model: &str,
) -> &'a mut Spend {
    let hour = wall_ms / MS_PER_HOUR;
    let is_same = |it: &HourlySpend| it.hour == hour && it.agent == *agent && it.model == model;
    // Usually the latest entry fits.
    let place = all.iter().rposition(is_same).unwrap_or_else(|| {
        let (agent, model) = (agent.clone(), model.to_owned());
        all.push(HourlySpend { hour, agent, model, spend: Spend::default() });
        all.len() - 1
    });
    &mut all[place].spend
}

/// Tokens and cost of model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spend {
    /// The tokens by kind.
    pub usage: Usage,
    /// Their cost, as far as the models have a price.
    pub usd: Usd,
    /// The number of settled calls.
    pub calls: u64,
    /// The part counted at its reservation, because the provider did not report the usage.
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimated: BudgetAmount,
    /// The tokens of models without a price, which are not part of `usd`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unpriced_tokens: u64,
    /// What was billed beyond its reservation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overrun: BudgetAmount,
}

/// Returns whether a field has its usual value, which is not stored.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Spend {
    /// Adds a settled call.
    pub(super) fn settle(&mut self, settlement: &Settlement, is_priced: bool) {
        self.usage += settlement.usage;
        self.usd += settlement.usd;
        self.calls += 1;
        if settlement.estimated {
            self.estimated = self.estimated.plus(settlement.amount());
        }
        if !is_priced {
            self.unpriced_tokens = self.unpriced_tokens.saturating_add(settlement.usage.total());
        }
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            usage: self.usage + other.usage,
            usd: self.usd + other.usd,
            calls: self.calls + other.calls,
            estimated: self.estimated.plus(other.estimated),
            unpriced_tokens: self.unpriced_tokens.saturating_add(other.unpriced_tokens),
            overrun: self.overrun.plus(other.overrun),
        }
    }

    /// Returns the difference; `earlier` must be part of `self`.
    #[must_use]
    pub fn minus(self, earlier: &Self) -> Self {
        let tokens = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            usage: Usage {
                input: tokens(self.usage.input, earlier.usage.input),
                output: tokens(self.usage.output, earlier.usage.output),
                cache_read: tokens(self.usage.cache_read, earlier.usage.cache_read),
                cache_write: tokens(self.usage.cache_write, earlier.usage.cache_write),
            },
            usd: self.usd.saturating_sub(earlier.usd),
            calls: tokens(self.calls, earlier.calls),
            estimated: self.estimated.minus(earlier.estimated),
            unpriced_tokens: tokens(self.unpriced_tokens, earlier.unpriced_tokens),
            overrun: self.overrun.minus(earlier.overrun),
        }
    }

    /// Returns whether part of it is an estimate.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        !self.estimated.is_zero()
    }

    /// Explains the sign `~` briefly, for use beside the figures.
    pub(crate) fn estimate_mark(&self) -> &'static str {
        if self.is_estimated() { " (~ estimated)" } else { "" }
    }

    /// Returns the cost, or `None` if no token in it has a price.
    #[must_use]
    pub fn known_usd(&self) -> Option<Usd> {
        let nothing_priced = self.usd == Usd::ZERO && self.unpriced_tokens > 0;
        (!nothing_priced).then_some(self.usd)
    }

    /// Returns the tokens for a progress line: `in=45k out=2.1k`.
    #[must_use]
    pub fn tokens_short(&self) -> String {
        let about = self.estimate_sign();
        let (input, output) =
            (format_rounded(self.usage.input_total()), format_rounded(self.usage.output));
        format!("in={about}{input} out={about}{output}")
    }

    /// Returns the tokens in full: `in=45,000 out=2,100`.
    #[must_use]
    pub fn tokens_full(&self) -> String {
        let about = self.estimate_sign();
        let (input, output) = (grouped(self.usage.input_total()), grouped(self.usage.output));
        format!("in={about}{input} out={about}{output}")
    }

    /// Returns `~` if the tokens are estimated and no price beside them carries the sign.
    fn estimate_sign(&self) -> &'static str {
        if self.is_estimated() && self.known_usd().is_none() { "~" } else { "" }
    }

    /// Returns the cost in two parts if one of them is estimated: `$0.44 measured + ~$1.02 estimated`.
    #[must_use]
    pub(crate) fn money_in_parts(&self) -> Option<String> {
        let usd = self.known_usd().filter(|_| self.estimated.usd > Usd::ZERO)?;
        let measured = usd.saturating_sub(self.estimated.usd);
        let more = if self.unpriced_tokens > 0 { "+" } else { "" };
        Some(format!("{measured}{more} measured + ~{} estimated", self.estimated.usd))
    }

    /// Returns the cost as text: `$0.05`, `~$0.05` if partly estimated, `no price`, or `$0.05+` if some
    /// models have no price.
    #[must_use]
    pub fn money(&self) -> String {
        let Some(usd) = self.known_usd() else { return "no price".into() };
        let about = if self.is_estimated() { "~" } else { "" };
        let more = if self.unpriced_tokens > 0 { "+" } else { "" };
        format!("{about}{usd}{more}")
    }
}
