//! Tokens and money, and how sure we are of them.

use adjutant_core::budget::{Amount, Settlement};
use adjutant_core::numbers::{grouped, rounded};
use adjutant_core::{Usage, Usd};

/// Explains the sign `~`, where figures with it are printed.
pub(crate) const ESTIMATE_NOTE: &str =
    "~ estimated: calls whose usage no provider reported count in full";

/// What model calls came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spend {
    /// The tokens by kind.
    pub usage: Usage,
    /// What they cost, as far as models have a price.
    pub usd: Usd,
    /// How many calls were settled.
    pub calls: u64,
    /// The part that counts at its reservation because a provider never said.
    pub estimated: Amount,
    /// The tokens of models without a price, which `usd` knows nothing of.
    pub unpriced_tokens: u64,
    /// What was billed beyond its reservation.
    pub overrun: Amount,
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

    /// Returns what both come to.
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

    /// Returns what is left of it without `earlier`, which is part of it.
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

    /// Says whether part of it is an estimate.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        !self.estimated.is_zero()
    }

    /// Explains the sign `~` in a few words, where it is printed beside these figures.
    pub(crate) fn estimate_mark(&self) -> &'static str {
        if self.is_estimated() { " (~ estimated)" } else { "" }
    }

    /// Returns the money, or nothing when no token in it has a price.
    #[must_use]
    pub fn known_usd(&self) -> Option<Usd> {
        let nothing_priced = self.usd == Usd::ZERO && self.unpriced_tokens > 0;
        (!nothing_priced).then_some(self.usd)
    }

    /// Returns the tokens for a progress line: `in=45k out=2.1k`.
    #[must_use]
    pub fn tokens_short(&self) -> String {
        let about = self.about();
        let (input, output) = (rounded(self.usage.input_total()), rounded(self.usage.output));
        format!("in={about}{input} out={about}{output}")
    }

    /// Returns the tokens in full: `in=45,000 out=2,100`.
    #[must_use]
    pub fn tokens_full(&self) -> String {
        let about = self.about();
        let (input, output) = (grouped(self.usage.input_total()), grouped(self.usage.output));
        format!("in={about}{input} out={about}{output}")
    }

    /// Marks tokens as an estimate where no price beside them can carry the mark.
    fn about(&self) -> &'static str {
        if self.is_estimated() && self.known_usd().is_none() { "~" } else { "" }
    }

    /// Returns the money for people: `$0.05`, `~$0.05` when part is an estimate, `no price`,
    /// `$0.05+` when some of its models have no price.
    #[must_use]
    pub fn money(&self) -> String {
        let Some(usd) = self.known_usd() else { return "no price".into() };
        let about = if self.is_estimated() { "~" } else { "" };
        let more = if self.unpriced_tokens > 0 { "+" } else { "" };
        format!("{about}{usd}{more}")
    }
}
