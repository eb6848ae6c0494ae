//! Budgets in tokens and money: amounts are reserved before a model call and settled after it.
//!
//! A scope is one delegation with all its descendants, or the whole run. A ledger only counts;
//! `Tree::decide` asks [`BudgetLedger::remaining`] whether a reservation fits.
//!
//! A [`BudgetAmount`] is a number of tokens and dollars, a [`BudgetCap`] the most that one scope
//! may spend, and a [`BudgetLedger`] the account of one scope. Each model call has one
//! [`Reservation`] before it and one [`Settlement`] after it.

use serde::{Deserialize, Serialize};

use crate::money::Usd;
use crate::usage::Usage;

/// An amount of tokens and dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAmount {
    /// Billed tokens.
    pub tokens: u64,
    /// Dollars; zero for a model without a price.
    pub usd: Usd,
}

impl BudgetAmount {
    /// Returns the sum, saturating at the maximum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), usd: self.usd + other.usd }
    }

    /// Returns the difference, never below zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            usd: self.usd.saturating_sub(other.usd),
        }
    }

    /// Says whether tokens and dollars are both zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// The most a scope may spend; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCap {
    /// Billed tokens.
    pub tokens: Option<u64>,
    /// Dollars.
    pub usd: Option<Usd>,
}

/// What one scope may spend, has reserved and has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetLedger {
    /// The most it may spend.
    pub cap: BudgetCap,
    /// Reserved for model calls that are running.
    pub reserved: BudgetAmount,
    /// Billed by the provider, or counted at the full reservation if the provider sent no usage.
    pub settled: BudgetAmount,
    /// Billed in excess of reservations.
    pub overrun: BudgetAmount,
}

impl BudgetLedger {
    /// Returns what can still be reserved.
    #[must_use]
    pub fn remaining(&self) -> BudgetAmount {
        let taken = self.settled.plus(self.reserved);
        let cap = BudgetAmount {
            tokens: self.cap.tokens.unwrap_or(u64::MAX),
            usd: self.cap.usd.unwrap_or(Usd::MAX),
        };
        cap.minus(taken)
    }

    /// Adds a reservation.
    pub fn reserve(&mut self, amount: BudgetAmount) {
        self.reserved = self.reserved.plus(amount);
    }

    /// Replaces a reservation with the amount that was billed.
    pub fn settle(&mut self, reserved: BudgetAmount, billed: BudgetAmount) {
        self.reserved = self.reserved.minus(reserved);
        self.settled = self.settled.plus(billed);
        self.overrun = self.overrun.plus(billed.minus(reserved));
    }

    /// Says whether spent plus reserved is within the cap, except for overruns. This is the
    /// invariant that tests check.
    #[must_use]
    pub fn is_within_cap(&self) -> bool {
        let taken = self.settled.plus(self.reserved);
        self.cap.tokens.is_none_or(|cap| taken.tokens <= cap.saturating_add(self.overrun.tokens))
            && self.cap.usd.is_none_or(|cap| taken.usd <= cap + self.overrun.usd)
    }
}

/// Tokens and money reserved for one model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The turn, from 1.
    pub turn: u32,
    /// The attempt at this turn, from 1.
    pub attempt: u32,
    /// The output tokens that the request asks for at most.
    pub max_output: u64,
    /// The reserved amount.
    pub amount: BudgetAmount,
    /// Whether this is the last call of the conversation: the agent gets no tools and has to write
    /// its report or its handover note.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_call: bool,
}

/// What a model call consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// Tokens by kind; an estimate splits the reservation into input and output.
    pub usage: Usage,
    /// The cost.
    pub usd: Usd,
    /// Whether the provider sent no usage, so that the full reservation counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Settlement {
    /// Returns the settlement of a call that the provider never began: zero.
    #[must_use]
    pub const fn never_began() -> Self {
        let usage = Usage { input: 0, output: 0, cache_read: 0, cache_write: 0 };
        Self { usage, usd: Usd::ZERO, estimated: false }
    }

    /// Returns the settlement of a call without a usage record: its full reservation.
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

    /// Returns the amount to subtract from the budgets.
    #[must_use]
    pub const fn amount(&self) -> BudgetAmount {
        BudgetAmount { tokens: self.usage.total(), usd: self.usd }
    }
}
