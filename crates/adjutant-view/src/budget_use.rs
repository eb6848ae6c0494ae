//! How much of the budgets of a run, or of one delegation, is spent, reserved and free.
//!
//! Start at [`of_run`] or [`of_delegation`]. A [`BudgetUse`] is one budget; budgets without a cap are not listed.

use adjutant_core::Usd;
use adjutant_core::budget::BudgetAmount;
use adjutant_core::numbers::format_rounded;

use crate::run::{Delegation, RunView, Spend};

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUnit {
    /// Money, in the smallest unit of [`Usd`].
    Usd,
    /// Tokens.
    Tokens,
}

/// One budget and its use, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// What it counts.
    pub unit: BudgetUnit,
    /// The cap.
    pub cap: u64,
    /// What settled model calls took.
    pub spent: u64,
    /// What running model calls may take at most.
    pub reserved: u64,
    /// Whether some of what is spent is estimated.
    pub is_estimated: bool,
}

impl BudgetUse {
    /// Returns what is neither spent nor reserved.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.cap.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// Returns an amount of this budget as text.
    #[must_use]
    pub fn text(&self, amount: u64) -> String {
        match self.unit {
            BudgetUnit::Usd => Usd::from_pico(amount).to_string(),
            BudgetUnit::Tokens => format_rounded(amount),
        }
    }

    /// Returns what is spent as text, with `~` if it is partly estimated.
    #[must_use]
    pub fn spent_text(&self) -> String {
        let about = if self.is_estimated { "~" } else { "" };
        format!("{about}{}", self.text(self.spent))
    }

    /// Returns the columns of a bar for what is spent, reserved and free. What is not zero has at least one column,
    /// as far as there is space.
    #[must_use]
    pub fn columns(&self, wide: usize) -> [usize; 3] {
        let share = |amount: u64| {
            let exact = u128::from(amount) * wide as u128 / u128::from(self.cap.max(1));
            usize::try_from(exact).unwrap_or(wide).max(usize::from(amount > 0))
        };
        let spent = share(self.spent).min(wide);
        let reserved = share(self.reserved).min(wide - spent);
        [spent, reserved, wide - spent - reserved]
    }
}

/// Returns the budgets of a whole run: money, then tokens.
#[must_use]
pub fn of_run(view: &RunView) -> Vec<BudgetUse> {
    let Some(policy) = view.policy() else { return Vec::new() };
    uses(policy.budget_usd, policy.budget_tokens_run, view.total(), reserved(view.preorder()))
}

/// Returns the token budget of one delegation and what is below it, which counts against it too.
#[must_use]
pub fn of_delegation(view: &RunView, delegation: &Delegation) -> Vec<BudgetUse> {
    let all = reserved(view.subtree(delegation));
    uses(None, tokens_of(view, delegation), &delegation.inclusive, all)
}

/// Returns how many tokens a delegation and what is below it may use: the root as many as the run.
pub(crate) fn tokens_of(view: &RunView, delegation: &Delegation) -> Option<u64> {
    let policy = view.policy()?;
    if delegation.parent.is_none() { policy.budget_tokens_run } else { policy.budget_tokens }
}

fn reserved(delegations: Vec<&Delegation>) -> BudgetAmount {
    let reserved = delegations.into_iter().map(Delegation::reserved);
    reserved.fold(BudgetAmount::default(), BudgetAmount::plus)
}

fn uses(
    usd: Option<Usd>,
    tokens: Option<u64>,
    spent: &Spend,
    reserved: BudgetAmount,
) -> Vec<BudgetUse> {
    let usd = usd.map(|cap| BudgetUse {
        unit: BudgetUnit::Usd,
        cap: cap.as_pico(),
        spent: spent.usd.as_pico(),
        reserved: reserved.usd.as_pico(),
        is_estimated: spent.is_estimated(),
    });
    let tokens = tokens.map(|cap| BudgetUse {
        unit: BudgetUnit::Tokens,
        cap,
        spent: spent.usage.total(),
        reserved: reserved.tokens,
        is_estimated: spent.is_estimated(),
    });
    usd.into_iter().chain(tokens).collect()
}
