//! Reserve, then settle: what a scope may spend, holds open and has spent.
//!
//! A scope is a delegation with all its descendants, or the run. The ledger only counts; whether
//! a reservation fits is asked by `Tree::decide` through [`BudgetLedger::left`].

use serde::{Deserialize, Serialize};

use crate::money::Usd;
use crate::usage::Usage;

/// An amount in both currencies of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAmount {
    /// Billed tokens.
    pub tokens: u64,
    /// Dollars; zero for a model without a price.
    pub usd: Usd,
}

impl BudgetAmount {
    /// Returns what both amounts come to.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), usd: self.usd + other.usd }
    }

    /// Returns what is left of this amount after taking `other` away, never below zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            usd: self.usd.saturating_sub(other.usd),
        }
    }

    /// Says whether there is nothing in it.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// What a scope may spend at the most; an absent cap is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCap {
    /// Billed tokens.
    pub tokens: Option<u64>,
    /// Dollars.
    pub usd: Option<Usd>,
}

/// The books of one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetLedger {
    /// What it may spend.
    pub cap: BudgetCap,
    /// What is held open for calls under way.
    pub reserved: BudgetAmount,
    /// What has been billed, or counts as billed.
    pub settled: BudgetAmount,
    /// What was billed beyond its reservation.
    pub overrun: BudgetAmount,
}

impl BudgetLedger {
    /// Returns what may still be reserved.
    #[must_use]
    pub fn left(&self) -> BudgetAmount {
        let taken = self.settled.plus(self.reserved);
        let cap = BudgetAmount {
            tokens: self.cap.tokens.unwrap_or(u64::MAX),
            usd: self.cap.usd.unwrap_or(Usd::MAX),
        };
        cap.minus(taken)
    }

    /// Holds `amount` open.
    pub fn reserve(&mut self, amount: BudgetAmount) {
        self.reserved = self.reserved.plus(amount);
    }

    /// Closes a reservation with what was really billed.
    pub fn settle(&mut self, reserved: BudgetAmount, billed: BudgetAmount) {
        self.reserved = self.reserved.minus(reserved);
        self.settled = self.settled.plus(billed);
        self.overrun = self.overrun.plus(billed.minus(reserved));
    }

    /// Says whether the books keep the promise: no more is spent or held than the cap, save what a
    /// provider billed beyond its reservation.
    #[must_use]
    pub fn holds(&self) -> bool {
        let taken = self.settled.plus(self.reserved);
        self.cap.tokens.is_none_or(|cap| taken.tokens <= cap.saturating_add(self.overrun.tokens))
            && self.cap.usd.is_none_or(|cap| taken.usd <= cap + self.overrun.usd)
    }
}

/// Tokens and money held open for one model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The turn the call belongs to, from 1.
    pub turn: u32,
    /// The attempt at that turn, from 1.
    pub attempt: u32,
    /// The most output tokens the call may ask for.
    pub max_output: u64,
    /// What is held open.
    pub amount: BudgetAmount,
    /// Whether this is the agent's last call: no tools, only the report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_call: bool,
}

/// What a model call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The tokens by kind; an estimate splits the reservation into input and output.
    pub usage: Usage,
    /// What it cost.
    pub usd: Usd,
    /// Whether the provider never said, so that the reservation counts in full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Settlement {
    /// Closes a call that its provider never began: it costs nothing.
    #[must_use]
    pub const fn never_began() -> Self {
        let usage = Usage { input: 0, output: 0, cache_read: 0, cache_write: 0 };
        Self { usage, usd: Usd::ZERO, estimated: false }
    }

    /// Closes a call that left no usage record at its full reservation.
    #[must_use]
    pub const fn estimated(reservation: &Reservation) -> Self {
        let output = reservation.max_output;
        let input = reservation.amount.tokens.saturating_sub(output);
        Self {
            usage: Usage { input, output, cache_read: 0, cache_write: 0 },
            usd: reservation.amount.usd,
            estimated: true,
        }
    }

    /// Returns what is taken from the budgets.
    #[must_use]
    pub const fn amount(&self) -> BudgetAmount {
        BudgetAmount { tokens: self.usage.total(), usd: self.usd }
    }
}
