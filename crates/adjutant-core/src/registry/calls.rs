//! Decisions about client calls: which run each call started, who waits for it, and when it may be
//! cancelled.

use crate::ids::RunId;

use super::decide::RegistryDecision;
use super::event::RegistryEvent as Event;
use super::refusal::RegistryRefusal;
use super::state::{CallKey, HolderId, Registry};

impl Registry {
    /// Starts a run for a call that has none, or whose run has no process any more and is named by
    /// `instead_of`.
    ///
    /// The caller reads from the journal whether an ended run still answers an equal call. Naming
    /// that run proves that the caller read the latest one.
    pub(super) fn begin_call(
        &self,
        holder: HolderId,
        call: CallKey,
        run: RunId,
        instead_of: Option<RunId>,
    ) -> RegistryDecision {
        self.must_know(&holder)?;
        if let Some(known) = self.calls.get(&call) {
            self.must_not_be_cancelled(known.run)?;
            if known.holder.is_some() || instead_of != Some(known.run) {
                return Err(RegistryRefusal::CallHasRun { run: known.run });
            }
        }
        let is_taken = self.calls.values().any(|known| known.run == run);
        if is_taken || self.live_runs.contains_key(&run) {
            return Err(RegistryRefusal::RunKnown { run });
        }
        Ok(vec![Event::CallBegun { holder, call, run }])
    }

    /// Refuses if the call does not belong to this run, or not any more.
    pub(super) fn must_belong(&self, call: &CallKey, run: RunId) -> Result<(), RegistryRefusal> {
        match self.calls.get(call) {
            Some(known) if known.run == run => Ok(()),
            Some(known) => Err(RegistryRefusal::CallSuperseded { run: known.run }),
            None => Err(RegistryRefusal::CallAbandoned { run }),
        }
    }

    pub(super) fn wait(&self, holder: HolderId, run: RunId) -> RegistryDecision {
        self.must_know(&holder)?;
        self.must_not_be_cancelled(run)?;
        Ok(vec![Event::WaitBegun { holder, run }])
    }

    pub(super) fn stop_waiting(&self, holder: HolderId, run: RunId) -> RegistryDecision {
        if !self.waits.get(&run).is_some_and(|waits| waits.contains_key(&holder)) {
            return Err(RegistryRefusal::NotWaiting { run });
        }
        Ok(vec![Event::WaitEnded { holder, run }])
    }

    pub(super) fn start_cancelling(&self, holder: HolderId, run: RunId) -> RegistryDecision {
        self.must_know(&holder)?;
        self.must_not_be_cancelled(run)?;
        match self.waits_for(run) {
            0 => Ok(vec![Event::CancellingStarted { holder, run }]),
            count => Err(RegistryRefusal::OthersWait { run, count }),
        }
    }

    pub(super) fn stop_cancelling(&self, run: RunId) -> RegistryDecision {
        if !self.cancelling.contains_key(&run) {
            return Err(RegistryRefusal::RunUnknown { run });
        }
        Ok(vec![Event::CancellingStopped { run }])
    }

    fn must_not_be_cancelled(&self, run: RunId) -> Result<(), RegistryRefusal> {
        if self.cancelling.contains_key(&run) {
            return Err(RegistryRefusal::BeingCancelled { run });
        }
        Ok(())
    }
}
