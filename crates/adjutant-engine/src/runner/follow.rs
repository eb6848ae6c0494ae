//! Following a run that a runtime decides and records: its decisions are folded, commands are sent to the runtime.
//!
//! Start at [`Runner::take_update`]. A front end mirrors the decisions into its journal; a worker only folds them.

use std::collections::BTreeMap;

use adjutant_core::{Command, Effect, Outcome, SessionId};
use tokio::sync::oneshot;

use super::Runner;
use crate::control::{ControlRefusal, QueuedRequest};
use crate::engine::EngineError;
use crate::remote::{
    FollowerRole, RecordedDecision, RemoteRun, RunAuthority, RunUpdate, SentCommand,
};
use crate::runner::effects::writing::check_interrupted_write;
use crate::runner::record::{durability, ended_sessions};

impl Runner {
    /// Performs effects for a run whose decisions so far are `opening`.
    pub(crate) async fn perform_requests(
        mut self,
        opening: Vec<RecordedDecision>,
        followed: RemoteRun,
    ) -> Result<Outcome, EngineError> {
        self.authority = RunAuthority::Remote(followed);
        self.take_update(RunUpdate::Recorded(opening))?;
        self.work().await
    }

    /// Follows a run whose records so far were replayed.
    pub(crate) async fn follow_on(mut self, followed: RemoteRun) -> Result<Outcome, EngineError> {
        let role = followed.role;
        self.authority = RunAuthority::Remote(followed);
        // The questions that the earlier process asked are asked again. If the run has ended here, it may have been
        // continued: the runtime tells.
        let due =
            if self.tree.outcome().is_none() { self.tree.all_due().effects } else { Vec::new() };
        due.into_iter()
            .filter(|effect| role.performs_itself(effect))
            .try_for_each(|effect| self.perform(effect))?;
        if let Some(run) = self.tree.run() {
            self.listener.start(run);
        }
        self.work().await
    }

    /// Sends a command to the runtime that decides the run.
    pub(super) fn send(
        &mut self,
        command: Command,
        answer: Option<oneshot::Sender<Result<(), ControlRefusal>>>,
    ) -> Result<(), EngineError> {
        let (at, wall_ms) = (self.clock.now(), self.clock.wall_ms());
        let RunAuthority::Remote(followed) = &self.authority else { return Ok(()) };
        let sent = followed.link.commands.send(SentCommand { at, wall_ms, command, answer });
        sent.map_err(|_gone| EngineError::Remote("the connection has ended".to_owned()))
    }

    /// Passes the request of another process to the runtime; a task answers it.
    pub(super) fn send_request(&mut self, order: QueuedRequest) -> Result<(), EngineError> {
        let Some(run) = self.tree.run() else { return Ok(()) };
        let outcome = self.tree.outcome();
        let Some(command) = order.request.command(run) else {
            self.listener.answer(run, outcome, order, Ok(None));
            return Ok(());
        };
        let (answer, answered) = oneshot::channel();
        self.send(command, Some(answer))?;
        tokio::spawn(async move {
            let gone = Err(ControlRefusal::over());
            order.send(run, outcome, answered.await.unwrap_or(gone));
        });
        Ok(())
    }

    /// Takes what the runtime tells about the run.
    pub(super) fn take_update(&mut self, update: RunUpdate) -> Result<(), EngineError> {
        match update {
            RunUpdate::Recorded(decisions) => {
                let (mut due, mut ended) = (Vec::new(), Vec::new());
                for decision in decisions {
                    ended.extend(ended_sessions(&decision.events));
                    due.extend(self.take_decision(decision)?);
                }
                self.forget_conversations(&ended);
                self.tell_awaited();
                // A run that was continued has an end before its last decision.
                let has_ended = self.tree.outcome().is_some();
                due.retain(|effect| has_ended || !matches!(effect, Effect::Close));
                due.into_iter().try_for_each(|effect| self.perform(effect))
            }
            RunUpdate::Perform { effect, is_repeated, done } => {
                self.take_request(*effect, is_repeated, done)
            }
            RunUpdate::Over => {
                // Otherwise the end is not on disk yet, and closes the run when it is.
                self.closed |= self.staged_events.is_empty();
                Ok(())
            }
            RunUpdate::Lost(reason) => Err(EngineError::Remote(reason)),
        }
    }

    /// Performs an effect for the runtime, unless it is performed already or no longer due.
    fn take_request(
        &mut self,
        effect: Effect,
        is_repeated: bool,
        done: oneshot::Sender<()>,
    ) -> Result<(), EngineError> {
        let is_order =
            matches!(effect, Effect::Stop { .. } | Effect::StopModel { .. } | Effect::Close);
        let key = effect.key();
        // Orders are carried out when the decision that they follow from is folded. Requests arrive in any order: a late
        // one would stop what was begun since.
        if is_order || !self.in_flight.has(&key) {
            // The runtime may have lost its connection, and asks again.
            let _ = done.send(());
            return Ok(());
        }
        let RunAuthority::Remote(followed) = &mut self.authority else { return Ok(()) };
        let waiting = followed.awaited.entry(key).or_default();
        waiting.push(done);
        if waiting.len() > 1 {
            return Ok(());
        }
        if !is_repeated {
            return self.perform(effect);
        }
        self.perform_or_say_interrupted(effect)
    }

    /// Performs an effect that an earlier process may have begun, unless that must not happen twice: then the agent is
    /// told what is known about it.
    fn perform_or_say_interrupted(&mut self, effect: Effect) -> Result<(), EngineError> {
        if let Effect::Write { session, turn, index, intent, .. } = effect {
            let tool_site = self.tool_site(session);
            self.tasks.spawn_blocking(move || {
                let findings = check_interrupted_write(&tool_site, session, turn, index, &intent);
                let output = tool_site.store_work(intent.interrupted_result(&findings));
                Command::TakeOutput { session, turn, call: index, output }.into()
            });
            return Ok(());
        }
        if let Effect::Tool { session, turn, index, .. } = effect
            && let Some(output) = self.tree.interrupted_output(session, index, &BTreeMap::new())
        {
            return self.send(Command::TakeOutput { session, turn, call: index, output }, None);
        }
        self.perform(effect)
    }

    /// Tells those who wait for effects that are no longer due.
    fn tell_awaited(&mut self) {
        let RunAuthority::Remote(followed) = &mut self.authority else { return };
        let over: Vec<_> =
            followed.awaited.keys().filter(|key| !self.in_flight.has(key)).cloned().collect();
        for waiting in over.iter().filter_map(|key| followed.awaited.remove(key)).flatten() {
            let _ = waiting.send(());
        }
    }

    /// Folds a decision of the runtime, and mirrors it if this is the front end. Returns the effects that a worker
    /// performs without being asked; those of a front end wait until the decision is on disk.
    fn take_decision(&mut self, decision: RecordedDecision) -> Result<Vec<Effect>, EngineError> {
        let RecordedDecision { at, wall_ms, mut events } = decision;
        let RunAuthority::Remote(followed) = &mut self.authority else { return Ok(Vec::new()) };
        let known =
            usize::try_from(followed.already_mirrored).unwrap_or(usize::MAX).min(events.len());
        followed.already_mirrored -= known as u64;
        events.drain(..known);
        let role = followed.role;
        self.clock.catch_up(at);
        let (first, start) = (self.staged_events.len(), self.journal.position());
        if role == FollowerRole::FrontEnd {
            let last = events.len().saturating_sub(1);
            for (nth, event) in events.iter().enumerate() {
                if nth < last {
                    self.journal.stage_continued(at, wall_ms, event, durability(event))?;
                } else {
                    self.journal.stage(at, wall_ms, event, durability(event))?;
                }
            }
        }
        self.fold_recorded(start.seq, (at, wall_ms), events)?;
        let decided = self.staged_events.iter().skip(first).map(|staged| &staged.event);
        let mut effects = self.tree.react(decided, &mut self.in_flight).effects;
        effects.retain(|effect| role.performs_itself(effect));
        match role {
            FollowerRole::FrontEnd => {
                if let Some(last) = self.staged_events.back_mut().filter(|_| !effects.is_empty()) {
                    last.effects.extend(effects);
                }
                Ok(Vec::new())
            }
            FollowerRole::Worker => {
                // The runtime has recorded them, so nothing is left to wait for.
                for staged in std::mem::take(&mut self.staged_events) {
                    self.tell(&staged);
                }
                Ok(effects)
            }
        }
    }

    /// Returns whether a sign of life may be sent now: at most one per second and agent goes to a runtime.
    pub(super) fn may_send_signal(&mut self, session: SessionId) -> bool {
        if matches!(self.authority, RunAuthority::Here) {
            return true;
        }
        let now = tokio::time::Instant::now();
        let last = self.signalled.insert(session, now);
        let is_early = last.is_some_and(|last| now - last < super::SIGNAL_PAUSE);
        if let (true, Some(last)) = (is_early, last) {
            self.signalled.insert(session, last);
        }
        !is_early
    }
}

impl FollowerRole {
    /// Returns whether a process in this role performs an effect as soon as it is due, without being asked.
    const fn performs_itself(self, effect: &Effect) -> bool {
        match self {
            Self::FrontEnd => matches!(
                effect,
                Effect::AskApproval { .. } | Effect::AskDomain { .. } | Effect::Close
            ),
            // A worker that learns late of an end must not go on.
            Self::Worker => {
                matches!(effect, Effect::Stop { .. } | Effect::StopModel { .. } | Effect::Close)
            }
        }
    }
}

impl RunAuthority {
    /// Returns the run that is followed, if another runtime decides it.
    pub(super) const fn followed(&mut self) -> Option<&mut RemoteRun> {
        match self {
            Self::Here => None,
            Self::Remote(followed) => Some(followed),
        }
    }
}
