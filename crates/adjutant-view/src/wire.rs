//! Parts that several JSON formats share.
//!
//! The formats are described in `docs/schemas`. Within one version, fields are only ever added.
//!
//! [`UsageJson`] are token counts, [`SpendJson`] token counts and cost, [`ReasonJson`] is why a
//! delegation ended as it did.

use adjutant_core::{OutcomeReason, Usage, Usd};
use serde::Serialize;

use crate::run::Spend;

/// The version that every JSON document and event of this crate contains as `v`.
pub const VERSION: u32 = 1;

/// Tokens, as in all JSON formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageJson {
    /// Every input token, cached ones included.
    pub input: u64,
    /// Every output token.
    pub output: u64,
    /// How many of the input tokens came from the provider's cache.
    pub cache_read: u64,
    /// How many of the input tokens were written to it.
    pub cache_write: u64,
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input_total(),
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
        }
    }
}

/// Tokens and cost, as in all JSON formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpendJson {
    /// The tokens.
    pub usage: UsageJson,
    /// The cost; absent if no model in it has a price.
    pub cost_usd: Option<Usd>,
    /// Whether part of it is counted at its reservation, because the provider did not report the usage.
    pub estimated: bool,
}

impl From<&Spend> for SpendJson {
    fn from(spend: &Spend) -> Self {
        Self {
            usage: spend.usage.into(),
            cost_usd: spend.known_usd(),
            estimated: spend.is_estimated(),
        }
    }
}

/// Why something ended the way it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonJson {
    /// The stable code.
    pub code: &'static str,
    /// What happened, with the relevant numbers.
    pub message: String,
    /// What to do next.
    pub recommendation: String,
    /// Whether a retry can help.
    pub recoverable: bool,
}

impl From<&OutcomeReason> for ReasonJson {
    fn from(reason: &OutcomeReason) -> Self {
        Self {
            code: reason.code.as_str(),
            message: reason.message.clone(),
            recommendation: reason.recommendation.clone(),
            recoverable: reason.recoverable,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
pub(crate) const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Returns a duration in seconds, to the millisecond.
#[must_use]
pub fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}

/// Returns any of the JSON formats as indented text that ends in a line break.
#[must_use]
pub fn pretty(shape: &impl Serialize) -> String {
    // The formats have string keys and do no IO, so serializing cannot fail.
    serde_json::to_string_pretty(shape).unwrap_or_default() + "\n"
}
