//! Decisions about slots for live runs and the daily auto-approval allowance.

use crate::ids::RunId;
use crate::money::Usd;

use super::decide::RegistryDecision;
use super::event::RegistryEvent as Event;
use super::refusal::RegistryRefusal;
use super::state::{CallKey, HolderId, Registry, TreeKey, day_of};

impl Registry {
    pub(super) fn admit_run(
        &self,
        holder: HolderId,
        run: RunId,
        tree: TreeKey,
        max_runs: u32,
        call: Option<CallKey>,
    ) -> RegistryDecision {
        self.must_know(&holder)?;
        if self.live_runs.contains_key(&run) {
            return Err(RegistryRefusal::RunKnown { run });
        }
        if let Some(call) = &call {
            self.must_belong(call, run)?;
        }
        let taken = self.live_runs.values().filter(|live| live.tree == tree).count();
        if u32::try_from(taken).unwrap_or(u32::MAX) >= max_runs {
            return Err(RegistryRefusal::PlacesTaken { max_runs });
        }
        Ok(vec![Event::RunAdmitted { holder, run, tree, call }])
    }

    pub(super) fn end_run(&self, run: RunId) -> RegistryDecision {
        if !self.live_runs.contains_key(&run) {
            return Err(RegistryRefusal::RunUnknown { run });
        }
        Ok(vec![Event::RunEnded { run }])
    }

    pub(super) fn reserve_allowance(
        &self,
        wall_ms: u64,
        holder: HolderId,
        run: RunId,
        amount: Usd,
        limit: Usd,
    ) -> RegistryDecision {
        self.must_know(&holder)?;
        if self.has_reservation(run) {
            return Err(RegistryRefusal::RunKnown { run });
        }
        let left = limit.saturating_sub(self.spent_unasked(wall_ms));
        if amount > left {
            return Err(if left == Usd::ZERO {
                RegistryRefusal::AllowanceUsedUp { amount, limit }
            } else {
                RegistryRefusal::AllowanceExceeded { amount, left, limit }
            });
        }
        Ok(vec![Event::AllowanceReserved { holder, run, day: day_of(wall_ms), amount }])
    }

    pub(super) fn settle_allowance(&self, run: RunId, spent: Usd) -> RegistryDecision {
        if !self.has_reservation(run) {
            return Err(RegistryRefusal::RunUnknown { run });
        }
        Ok(vec![Event::AllowanceSettled { run, spent }])
    }

    fn has_reservation(&self, run: RunId) -> bool {
        self.allowance.values().any(|day| day.reserved.contains_key(&run))
    }
}
