//! From a command to the disk: decide, stage, evolve, react; then, once durable, tell and act.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use adjutant_core::policy::Approval;
use adjutant_core::schema::{DELEGATE, TASK};
use adjutant_core::{Command, Event, Refusal, SessionId, Timestamp, ToolSpec, Tree};
use adjutant_store::{Durability, JournalError};

use super::{AgentPreamble, Runner, StagedEvent};
use crate::engine::EngineError;
use crate::engine::storage::SyncProgress;
use crate::runner::journal_reserve::{JournalReserve, closed_call};

impl Runner {
    /// Decides a command and everything that follows from it.
    pub(super) fn submit(&mut self, command: Command) -> Result<(), EngineError> {
        // What is refused here changed nothing: a stale approval or cancel has nobody left to tell.
        let _refusal = self.try_submit(command)?;
        Ok(())
    }

    /// Does the same, and says when the command itself was refused.
    pub(super) fn try_submit(
        &mut self,
        command: Command,
    ) -> Result<Result<(), Refusal>, EngineError> {
        let now = self.clock.now();
        match self.tree.decide(now, command) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(events) => self.take_decided(now, events).map(Ok),
        }
    }

    /// Records what was decided at `now`, and decides everything that follows from it.
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
            // What was decided together is on disk together or not at all.
            let staged = if nth < last || self.joined {
                self.journal.stage_open(now, wall_ms, event, durability)
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
            // Staged, and not written before this returns.
            self.guard = None;
        }
        let mut seq = start.seq;
        for event in events {
            seq = seq.next();
            self.tree.evolve(now, &event)?;
            self.fold(&event);
            if let Event::Ended { session, .. } | Event::Refused { session, .. } = &event {
                // Nobody will speak with it again; a thousand ended children must not keep their words.
                self.conversations.remove(session);
            }
            self.staged_events.push_back(StagedEvent {
                seq,
                at: now,
                wall_ms,
                event,
                effects: Vec::new(),
            });
        }
        // Reactions look at the tree after the whole decision, as a replay would.
        let decided =
            self.staged_events.iter().skip(first).map(|staged_events| &staged_events.event);
        let mut reaction = self.tree.react(decided, &mut self.in_flight);
        if self.full.is_some() {
            // An answer is kept; what it asks for waits until the run is resumed.
            reaction.commands.retain(|command| matches!(command, Command::EndRun));
        }
        queue.extend(reaction.commands);
        if let Some(last) = self.staged_events.back_mut().filter(|_| !reaction.effects.is_empty()) {
            last.effects = reaction.effects;
        }
        if self.full.is_some() && self.staged_events.len() > first {
            // Ends the delegations whose calls are over now, before the run may end.
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

    /// Lets the opening count as it is, also where its last command had nothing to add.
    ///
    /// What an earlier one led to is done as soon as it is on disk, and a crash must not undo that.
    pub(super) fn close_opening(&mut self) -> Result<(), EngineError> {
        self.joined = false;
        let (Some(begins), Some(last)) = (self.open.take(), self.staged_events.back()) else {
            return Ok(());
        };
        self.journal.unstage(begins);
        self.journal.stage(last.at, last.wall_ms, &last.event, durability(&last.event))?;
        Ok(())
    }

    /// Makes sure that, with these events staged, there is still room to end the run in order and
    /// to record every answer that is under way.
    fn reserve_space(&mut self, events: &[Event]) -> Result<(), JournalError> {
        events.iter().for_each(|event| self.reserve.fold(event));
        // Signs of life are part of the room of the answer they announce.
        let is_ending = self.full.is_some() && events.iter().all(is_part_of_end);
        if is_ending || !events.iter().any(Event::must_be_durable) {
            return Ok(());
        }
        self.journal.make_room(self.reserve.bytes())
    }

    /// Says whether what came of a task is still recorded on a full disk: an answer that has room, and the last
    /// steps of a delegation that has ended.
    pub(super) fn is_recorded_when_full(&self, result: &Command) -> bool {
        if let Command::Reply { session, .. }
        | Command::FailAttempt { session, .. }
        | Command::Crash { session, .. } = result
        {
            return self.tree.node(*session).is_some_and(|node| node.reservation().is_some());
        }
        matches!(result, Command::Mark { .. } | Command::KeepSpace { .. })
    }

    /// Ends everything while there is room to say so, except for the model calls under way: they are paid for, and
    /// their answers have room. `events` are what could not be recorded.
    fn end_on_full_disk(
        &mut self,
        events: &[Event],
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        if self.tree.run().is_none() {
            // Nothing has begun, so there is nothing to end.
            return Err(error.into());
        }
        if self.tree.outcome().is_some() || !self.tree.nodes().any(|node| node.is_live()) {
            // No delegation is left to end, so nothing would ever close the run.
            return Err(error.into());
        }
        // What was not recorded needs no room.
        self.reserve = JournalReserve::of(&self.tree);
        self.full = Some(error);
        // What else was to follow would only need more room.
        queue.clear();
        let lost = events.iter().filter_map(closed_call).collect();
        queue.push_back(Command::DiskFull { lost });
        Ok(())
    }

    /// An event no record can hold ends the delegation it is about, and nobody else.
    fn end_unrecordable(
        &mut self,
        event: &Event,
        error: JournalError,
        queue: &mut VecDeque<Command>,
    ) -> Result<(), EngineError> {
        match event.session() {
            Some(session) if !error.is_final() => {
                let message = format!("what it said cannot be recorded: {error}");
                queue.push_back(Command::Crash { session, message, backtrace: String::new() });
                Ok(())
            }
            Some(_) | None => Err(error.into()),
        }
    }

    /// Keeps what effects will need: conversations, preambles, open questions.
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
        if self.tree.policy().approval == Approval::Batch
            && let Some(call) = call_of(event)
        {
            self.asked.entry(call).or_default().push(event.clone());
        }
        let may_ask = self.tree.policy().approval == Approval::Batch;
        let is_new = |tree: &Tree| tree.nodes().next().is_some_and(|root| root.turn == 0);
        if may_ask && event.is_of_opening() && is_new(&self.tree) {
            self.opening.push(event.clone());
        } else if matches!(event, Event::Reserved { .. }) {
            self.opening = Vec::new();
        }
        // Whoever thinks right now shares the conversation: a sign of life must not copy it.
        let Some(session) = event.conversation().filter(|_| event.is_said()) else { return };
        Arc::make_mut(self.conversations.entry(session).or_default()).apply(event);
    }

    /// Reports and performs what the disk now holds.
    pub(super) fn release(&mut self) -> Result<(), EngineError> {
        let durable = self.durable.borrow_and_update().clone();
        let through = match durable {
            SyncProgress::Through(seq) => seq,
            SyncProgress::Failed(error) => return Err(error.into()),
        };
        // Everything is told before anything is done: what is done may quote what was told.
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
        if let (true, Some(run)) = (begins, self.tree.run()) {
            self.listener.start(run);
        }
        Ok(())
    }

    /// Signs of life are never waited for: they are reported when nothing before them is open.
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

    fn tell(&mut self, staged_events: &StagedEvent) {
        for reporter in &mut self.reporters {
            reporter.report(staged_events.at, staged_events.wall_ms, &staged_events.event);
        }
    }
}

fn durability(event: &Event) -> Durability {
    if event.must_be_durable() { Durability::Sync } else { Durability::Lazy }
}

/// Says whether an event has its place in the room that is kept for the end of each delegation.
const fn is_part_of_end(event: &Event) -> bool {
    matches!(
        event,
        Event::Settled { .. }
            | Event::Ended { .. }
            | Event::RunEnded { .. }
            | Event::Marked { .. }
            | Event::SpaceKept { .. }
    )
}

/// Returns the call that waits for a person, where an event of admission belongs to one.
fn call_of(event: &Event) -> Option<(SessionId, u32)> {
    if let Event::Granted(grant) = event {
        return grant.awaiting_approval.then_some((grant.parent, grant.call));
    }
    if let Event::Refused { parent, call, .. } | Event::ApprovalAsked { parent, call, .. } = event {
        return Some((*parent, *call));
    }
    None
}
