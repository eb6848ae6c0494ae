//! Why a person is asked about a call although an amount for automatic approval is set.
//!
//! An `AutoApprovalGap` is that reason: no known price, the amount is used up, or the call may cost
//! too much.

use adjutant_core::Usd;

use super::{ApprovalQuestion, is_priced};
use crate::sanitize;

/// Why the amount for automatic approval does not cover a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AutoApprovalGap {
    /// These models have no known price, so their cost cannot be bounded.
    Unpriced(Vec<String>),
    /// Nothing is left of the amount.
    UsedUp,
    /// The worst case exceeds what is left.
    TooHigh { worst: Usd, left: Usd },
}

impl ApprovalQuestion {
    fn gap(&self) -> Option<AutoApprovalGap> {
        let left = self.policy.approve_below_usd.filter(|_| !self.is_automatic())?;
        let unpriced = self.grants.iter().filter(|grant| !is_priced(grant));
        let models = unpriced.filter_map(|grant| grant.brief.model.as_ref());
        let mut models: Vec<String> = models.map(|model| model.name.clone()).collect();
        models.sort();
        models.dedup();
        match self.worst_usd() {
            None => Some(AutoApprovalGap::Unpriced(models)),
            Some(_) if left == Usd::ZERO => Some(AutoApprovalGap::UsedUp),
            Some(worst) => Some(AutoApprovalGap::TooHigh { worst, left }),
        }
    }

    /// Warns that an amount for further calls would not cover another call like this one.
    #[must_use]
    pub fn amount_note(&self, amount: Usd) -> Option<String> {
        let worst = self.worst_usd().filter(|worst| *worst > amount)?;
        Some(format!(
            "Note: the worst case of this call is {worst}.\nAnother like it exceeds {amount} and is asked about;\n\
             --budget-usd lowers the worst case."
        ))
    }

    /// Explains briefly why the amount does not cover the call.
    pub(super) fn why_asked(&self) -> Option<String> {
        Some(match self.gap()? {
            AutoApprovalGap::Unpriced(models) => {
                format!("no price is known for {}", sanitize::line(&models.join(", ")))
            }
            AutoApprovalGap::UsedUp => "the limit for automatic approval is used up".to_owned(),
            AutoApprovalGap::TooHigh { left, .. } => {
                format!("the worst case exceeds the {left} for automatic approval")
            }
        })
    }

    /// Explains why an MCP client's call is not covered by `auto-below`, and what a person can change so that
    /// it is.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        let what = match self.gap()? {
            AutoApprovalGap::Unpriced(models) => {
                let entry = |model: &String| {
                    let name = model.replace('\\', "\\\\").replace('"', "\\\"");
                    format!("\n  [models.\"{name}\"]\n  price = {{ input = 0, output = 0 }}")
                };
                let lines: String = models.iter().map(entry).collect();
                format!(
                    "no price is known for {}, so its cost has no upper limit. Add the price in dollars per \
                     million tokens, 0 for a local model, to your own config.toml:{lines}",
                    models.join(", ")
                )
            }
            AutoApprovalGap::UsedUp => "today's amount is spent, or reserved for runs that have not ended. It is \
                              reset every day at 00:00 UTC. To allow more, raise USD in `approval = \
                              \"auto-below USD\"` in [mcp] of your own config.toml."
                .to_owned(),
            AutoApprovalGap::TooHigh { worst, left } => format!(
                "its worst case is {worst}, but only {left} of today's amount is left. Start the server with \
                 a lower --budget-usd or --budget-tokens, or raise USD in `approval = \"auto-below USD\"` in \
                 [mcp] of your own config.toml."
            ),
        };
        let what = sanitize::block(&what);
        Some(format!("`auto-below` does not let this call start without asking: {what}"))
    }
}
