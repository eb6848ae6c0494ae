//! The way of a command to the disk: decide, stage in the journal, evolve; once durable, report and perform.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use adjutant_core::policy::ApprovalRule;
use adjutant_core::schema::{DELEGATE, TASK};
use adjutant_core::{Command, Conversation, Event, Refusal, SessionId, Timestamp, ToolSpec, Tree};
use adjutant_store::{Durability, JournalError, RecordNumber};

use super::{AgentPreamble, Runner, StagedEvent};
use crate::engine::EngineError;
use crate::engine::storage::SyncProgress;
use crate::remote::RunAuthority;
use crate::runner::journal_reserve::{JournalReserve, closed_call};

impl Runner {
    /// Decides a command and the commands that follow from it. A refusal is ignored.
    pub(super) fn submit(&mut self, command: Command) -> Result<(), EngineError> {
        // Results of tasks and stale approvals have no caller that a refusal could be returned to.
        let _refusal = self.try_submit(command)?;
        Ok(())
    }

    /// Like [`Runner::submit`], and returns the refusal of the command itself.
    pub(super) fn try_submit(
        &mut self,
        command: Command,
    ) -> Result<Result<(), Refusal>, EngineError> {
        if let RunAuthority::Remote(_) = self.authority {
            return self.send(command, None).map(Ok);
        }
        let now = self.clock.now();
        match self.tree.decide(now, command) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(events) => self.take_decided(now, events).map(Ok),
        }
    }

    /// Records events that were decided at `now`, and decides the commands that follow from them.
    pub(super) fn take_decided(
        &mut self,
        now: Timestamp,
        events: Vec<Event>,
    ) -> Result<(), EngineError> {
        let mut queue = VecDeque::new();
        self.record(now, events, &mut queue)?;
        while let Some(command) = queue.pop_front() {
            let now = self.clock.now();
            let Ok(events) = self.tree.decide(now, command) else { continue };
            self.record(now, events, &mut queue)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        now: Timestamp,
        events: Vec<Event>,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        let wall_ms = self.clock.wall_ms();
        let (first, start) = (self.staged_events.len(), self.journal.position());
        let last = events.len().saturating_sub(1);
        let mut last_begins = start;
        for (nth, event) in events.iter().enumerate() {
            let durability = durability(event);
            last_begins = self.journal.position();
            // The events of one decision become durable together or not at all.
            let staged = if nth < last || self.joined {
                self.journal.stage_continued(now, wall_ms, event, durability)
            } else {
                self.journal.stage(now, wall_ms, event, durability)
            };
            if let Err(error) = staged {
                self.journal.unstage(start);
                return self.end_unrecordable(event, error, queue);
            }
        }
        if let Err(error) = self.reserve_space(&events) {
            self.journal.unstage(start);
            return self.end_on_full_disk(&events, error, queue);
        }
        if !events.is_empty() {
            self.open = self.joined.then_some(last_begins);
        }
        if events.iter().any(|event| matches!(event, Event::RunEnded { .. })) {
            // `RunEnded` is staged and cannot reach the disk before this function returns.
            self.guard = None;
        }
        let ended = ended_sessions(&events);
        self.fold_recorded(start.seq, (now, wall_ms), events)?;
        self.forget_conversations(&ended);
        // Reactions see the tree after the whole decision, as in a replay.
        let decided =
            self.staged_events.iter().skip(first).map(|staged_events| &staged_events.event);
        let mut reaction = self.tree.react(decided, &mut self.in_flight);
        if self.full.is_some() {
            // The reply is recorded; the tools it calls wait until the run is resumed.
            reaction.commands.retain(|command| matches!(command, Command::EndRun));
        }
        queue.extend(reaction.commands);
        if let Some(last) = self.staged_events.back_mut().filter(|_| !reaction.effects.is_empty()) {
            last.effects = reaction.effects;
        }
        if self.full.is_some() && self.staged_events.len() > first {
            // Ends the delegations whose model calls are over, before the run ends.
            queue.push_front(Command::DiskFull { lost: BTreeSet::new() });
        }
        if self
            .staged_events
            .front()
            .is_some_and(|staged_events| !staged_events.event.must_be_durable())
        {
            self.report_lazy();
        }
        Ok(())
    }

    /// Folds events that are staged after record `seq`.
    pub(super) fn fold_recorded(
        &mut self,
        mut seq: RecordNumber,
        (at, wall_ms): (Timestamp, u64),
        events: Vec<Event>,
    ) -> Result<(), EngineError> {
        for event in events {
            seq = seq.next();
            self.tree.evolve(at, &event)?;
            self.fold(&event);
            self.staged_events.push_back(StagedEvent {
                seq,
                at,
                wall_ms,
                event,
                effects: Vec::new(),
            });
        }
        Ok(())
    }

    /// Frees the memory of the conversations of these sessions, unless one goes on.
    pub(super) fn forget_conversations(&mut self, ended: &[SessionId]) {
        for session in ended {
            if !self.tree.node(*session).is_some_and(|node| node.is_live()) {
                self.conversations.remove(session);
            }
        }
    }

    /// Closes the group of opening records, even if its last command had no events.
    ///
    /// Otherwise a crash would drop the open group although its effects were performed.
    pub(super) fn close_opening(&mut self) -> Result<(), EngineError> {
        self.joined = false;
        let (Some(begins), Some(last)) = (self.open.take(), self.staged_events.back()) else {
            return Ok(());
        };
        self.journal.unstage(begins);
        self.journal.stage(last.at, last.wall_ms, &last.event, durability(&last.event))?;
        Ok(())
    }

    /// Reserves disk space so that, after these events, the end of the run and the reply of every running model
    /// call can still be recorded.
    fn reserve_space(&mut self, events: &[Event]) -> Result<(), JournalError> {
        events.iter().for_each(|event| self.reserve.fold(event));
        // Progress events use the space that is reserved for the reply.
        let is_ending = self.full.is_some() && events.iter().all(is_part_of_end);
        if is_ending || !events.iter().any(Event::must_be_durable) {
            return Ok(());
        }
        self.journal.ensure_space(self.reserve.bytes())
    }

    /// Returns whether the result of an effect is still recorded on a full disk: a reply, for which space is
    /// reserved, and the last steps of an ended delegation.
    pub(super) fn is_recorded_when_full(&self, result: &Command) -> bool {
        if let Command::Reply { session, .. }
        | Command::FailAttempt { session, .. }
        | Command::Crash { session, .. } = result
        {
            return self.tree.node(*session).is_some_and(|node| node.reservation().is_some());
        }
        matches!(
            result,
            Command::TakeListUpdate { .. }
                | Command::TakeKeptWork { .. }
                | Command::SettleCall { .. }
        )
    }

    /// Ends the run while there is space to record that. Running model calls are paid for, so their replies are
    /// awaited; space for them is reserved. `events` could not be recorded.
    fn end_on_full_disk(
        &mut self,
        events: &[Event],
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        if self.tree.run().is_none() {
            // The run has not started, so there is nothing to end.
            return Err(error.into());
        }
        if self.tree.outcome().is_some() || !self.tree.nodes().any(|node| node.is_live()) {
            // No live delegation is left whose end would close the run.
            return Err(error.into());
        }
        // Recomputed without the events that were not recorded.
        self.reserve = JournalReserve::of(&self.tree);
        self.full = Some(error);
        // Further commands would need more space.
        queue.clear();
        let lost = events.iter().filter_map(closed_call).collect();
        queue.push_back(Command::DiskFull { lost });
        Ok(())
    }

    /// Ends the delegation of an event that is too large to be recorded. Other delegations continue.
    fn end_unrecordable(
        &mut self,
        event: &Event,
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        match event.session() {
            Some(session) if !error.is_final() => {
                let message = format!("its reply cannot be recorded: {error}");
                queue.push_back(Command::Crash { session, message, backtrace: String::new() });
                Ok(())
            }
            Some(_) | None => Err(error.into()),
        }
    }

    /// Updates what effects need: conversations, preambles and the events of open questions.
    pub(super) fn fold(&mut self, event: &Event) {
        if let Event::AgentDefined { agent, system, tools, .. } = event {
            let works = |tool: &&ToolSpec| tool.name != DELEGATE && tool.name != TASK;
            let preamble = AgentPreamble {
                system: system.as_str().into(),
                tools: tools.as_slice().into(),
                tools_to_work: tools.iter().filter(works).cloned().collect(),
            };
            self.preambles.insert(agent.clone(), preamble);
        }
        if self.tree.policy().approval == ApprovalRule::Batch
            && let Some(call) = call_of(event)
        {
            self.asked.entry(call).or_default().push(event.clone());
        }
        let may_ask = self.tree.policy().approval == ApprovalRule::Batch;
        let is_new = |tree: &Tree| tree.nodes().next().is_some_and(|root| root.turn == 0);
        if may_ask && event.is_of_opening() && is_new(&self.tree) {
            self.opening.push(event.clone());
        } else if matches!(event, Event::Reserved { .. }) {
            self.opening = Vec::new();
        }
        // A running model call shares the conversation, and `make_mut` copies it then. Progress events, which are
        // frequent, must not do that.
        let Some(session) = event.conversation().filter(|_| event.is_said()) else { return };
        let environment = self.tree.environment();
        let conversation = self
            .conversations
            .entry(session)
            .or_insert_with(|| Arc::new(Conversation::in_environment(environment.cloned())));
        Arc::make_mut(conversation).apply(event);
    }

    /// Reports the events that are durable now and performs their effects.
    pub(super) fn release(&mut self) -> Result<(), EngineError> {
        let durable = self.durable.borrow_and_update().clone();
        let through = match durable {
            SyncProgress::Through(seq) => seq,
            SyncProgress::Failed(error) => return Err(error.into()),
        };
        // All events are reported before any effect: the narrator reads what reporters have seen.
        let mut effects = Vec::new();
        while self.staged_events.front().is_some_and(|staged_events| staged_events.seq <= through) {
            let Some(staged_events) = self.staged_events.pop_front() else { break };
            self.tell(&staged_events);
            effects.extend(staged_events.effects);
        }
        self.report_lazy();
        self.listener.send_answers(through);
        let begins = !effects.is_empty();
        effects.into_iter().try_for_each(|effect| self.perform(effect))?;
        // The front end of a remote run performs nothing when it begins.
        let begins = begins || matches!(self.authority, RunAuthority::Remote(_));
        if let (true, Some(run)) = (begins, self.tree.run()) {
            self.listener.start(run);
        }
        Ok(())
    }

    /// Reports events that need not be durable, such as progress, once all events before them were reported.
    fn report_lazy(&mut self) {
        while self
            .staged_events
            .front()
            .is_some_and(|staged_events| !staged_events.event.must_be_durable())
        {
            let Some(staged_events) = self.staged_events.pop_front() else { break };
            self.tell(&staged_events);
        }
    }

    pub(super) fn tell(&mut self, staged_events: &StagedEvent) {
        for reporter in &mut self.reporters {
            reporter.report(staged_events.at, staged_events.wall_ms, &staged_events.event);
        }
    }
}

pub(super) fn durability(event: &Event) -> Durability {
    if event.must_be_durable() { Durability::Sync } else { Durability::Lazy }
}

/// Returns whether an event uses the space that is reserved for the end of a delegation.
const fn is_part_of_end(event: &Event) -> bool {
    matches!(
        event,
        Event::Settled { .. }
            | Event::WorkerCallSettled { .. }
            | Event::Ended { .. }
            | Event::RunEnded { .. }
            | Event::Marked { .. }
            | Event::SpaceKept { .. }
    )
}

/// Returns the call that waits for approval to which a grant, refusal or question belongs.
fn call_of(event: &Event) -> Option<(SessionId, u32)> {
    if let Event::Granted(grant) = event {
        return grant.awaiting_approval.then_some((grant.parent, grant.call));
    }
    if let Event::Refused { parent, call, .. } | Event::ApprovalAsked { parent, call, .. } = event {
        return Some((*parent, *call));
    }
    None
}

/// Returns the sessions that end with these events.
pub(super) fn ended_sessions(events: &[Event]) -> Vec<SessionId> {
    let mut ended = Vec::new();
    for event in events {
        if let Event::Ended { session, .. } | Event::Refused { session, .. } = event {
            ended.push(*session);
        }
    }
    ended
}
