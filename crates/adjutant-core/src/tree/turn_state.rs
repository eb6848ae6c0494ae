//! Where an agent is in its turn: from the model call over the tools it asked for to the judgement of its answer.
//!
//! An agent that has ended keeps its turn, so that one that is taken up again goes on where it stopped.

use std::collections::{BTreeMap, BTreeSet};

use super::node::Node;
use crate::budget::Reservation;
use crate::message::{ModelSpec, StopReason, ToolCall};
use crate::story::AnswerMarkers;
use crate::time::Timestamp;
use crate::write::{ContentChange, is_in_turn};

/// Where an agent is in its turn.
#[derive(Clone, Debug)]
pub(super) enum TurnState {
    /// Its model is called, or is to be called next where no call is under way.
    Thinking(AttemptCounts, Option<ModelCall>),
    /// Its model call failed, and the clock tries it again at that instant.
    Retrying(AttemptCounts, Timestamp),
    /// The calls of its last answer are being made.
    UsingTools(OpenToolCalls),
    /// The markers of its last answer are to be handed down.
    Delegating(AnswerMarkers),
    /// It waits for what its markers led to. A node without a model does nothing else.
    AwaitingResults,
    /// Its last answer is to be judged.
    Judging(LastAnswer),
    /// The command runs that decides whether its work is done; with the answer that claims so, unless that was a call
    /// of `Return`.
    Checking(Option<LastAnswer>),
}

/// The attempts at the model call of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptCounts {
    /// Attempts made so far.
    pub(super) made: u32,
    /// Those of them that a resumption does not hold against the agent.
    pub(super) excused: u32,
}

/// A model call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelCall {
    pub(super) reservation: Reservation,
    /// When the model will have been silent for too long.
    pub(super) stall_at: Option<Timestamp>,
}

/// The calls of an answer, until each has its result.
#[derive(Clone, Debug)]
pub(super) struct OpenToolCalls {
    /// Every call of the answer; nothing in the place of one that has its result.
    calls: Vec<Option<ToolCall>>,
    /// How many of them lack their results.
    open: usize,
    /// Those that were begun.
    begun: BTreeSet<u32>,
    /// Those that were begun and change files.
    pub(super) writing: BTreeSet<u32>,
    /// What they are about to change, as far as that is known.
    pub(super) prepared: BTreeMap<u32, ContentChange>,
    /// What comes after the last result.
    then: Box<TurnState>,
}

/// The last answer of an agent that asked for no tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastAnswer {
    pub(super) stop: StopReason,
    /// Whether it has no text.
    pub(super) is_blank: bool,
}

impl LastAnswer {
    /// Says whether it ends the agent's work: it was not cut off.
    pub(super) const fn is_final(self) -> bool {
        matches!(self.stop, StopReason::EndTurn | StopReason::ToolUse)
    }
}

impl Default for TurnState {
    fn default() -> Self {
        Self::Thinking(AttemptCounts::default(), None)
    }
}

impl TurnState {
    /// Returns what a node does first that works on that model.
    pub(super) fn first(model: Option<&ModelSpec>) -> Self {
        if model.is_some() { Self::default() } else { Self::AwaitingResults }
    }
}

impl OpenToolCalls {
    pub(super) fn new(calls: &[ToolCall], then: TurnState) -> Self {
        Self {
            calls: calls.iter().cloned().map(Some).collect(),
            open: calls.len(),
            begun: BTreeSet::new(),
            writing: BTreeSet::new(),
            prepared: BTreeMap::new(),
            then: Box::new(then),
        }
    }

    /// Returns how many calls lack their results.
    pub(super) const fn count(&self) -> usize {
        self.open
    }

    /// Returns the call of that number while it lacks its result.
    pub(super) fn get(&self, number: u32) -> Option<&ToolCall> {
        self.calls.get(number as usize)?.as_ref()
    }

    /// Returns every call of the answer; nothing in the place of one that has its result.
    pub(super) fn all(&self) -> &[Option<ToolCall>] {
        &self.calls
    }

    /// Returns the calls that lack their results, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &ToolCall)> {
        (0_u32..).zip(&self.calls).filter_map(|(number, call)| Some((number, call.as_ref()?)))
    }

    pub(super) fn is_begun(&self, number: u32) -> bool {
        self.begun.contains(&number)
    }

    pub(super) fn begin(&mut self, number: u32) {
        self.begun.insert(number);
        if self.get(number).is_some_and(|call| is_in_turn(&call.name)) {
            self.writing.insert(number);
        }
    }
}

impl Node {
    /// Returns where it is in its turn, also while it waits or has ended.
    pub(super) const fn turn_state(&self) -> &TurnState {
        self.phase.turn_state()
    }

    pub(super) const fn turn_state_mut(&mut self) -> &mut TurnState {
        self.phase.turn_state_mut()
    }

    /// Returns the model call under way.
    #[must_use]
    pub const fn reservation(&self) -> Option<Reservation> {
        if let TurnState::Thinking(_, Some(call)) = self.turn_state() {
            Some(call.reservation)
        } else {
            None
        }
    }

    pub(super) const fn attempts(&self) -> Option<AttemptCounts> {
        if let TurnState::Thinking(attempts, _) | TurnState::Retrying(attempts, _) =
            self.turn_state()
        {
            Some(*attempts)
        } else {
            None
        }
    }

    /// Holds no attempt from before a resumption against it.
    pub(super) const fn excuse_attempts(&mut self) {
        if let TurnState::Thinking(attempts, _) | TurnState::Retrying(attempts, _) =
            self.turn_state_mut()
        {
            attempts.excused = attempts.made;
        }
    }

    /// Lets it think next, whatever it was at. Attempts that were made at the same turn count on.
    pub(super) fn think(&mut self) {
        *self.turn_state_mut() = TurnState::Thinking(self.attempts().unwrap_or_default(), None);
    }

    /// Folds in that its model is called.
    pub(super) fn call_model(&mut self, reservation: Reservation) {
        let excused = self.attempts().unwrap_or_default().excused;
        let attempts = AttemptCounts { made: reservation.attempt, excused };
        let call = ModelCall { reservation, stall_at: None };
        *self.turn_state_mut() = TurnState::Thinking(attempts, Some(call));
    }

    /// Returns the calls of its last answer, while one of them lacks its result.
    pub(super) const fn calls(&self) -> Option<&OpenToolCalls> {
        if let TurnState::UsingTools(calls) = self.turn_state() { Some(calls) } else { None }
    }

    pub(super) const fn calls_mut(&mut self) -> Option<&mut OpenToolCalls> {
        if let TurnState::UsingTools(calls) = self.turn_state_mut() { Some(calls) } else { None }
    }

    /// Returns the call of that number of its last answer, while it lacks its result.
    pub(super) fn open_call(&self, number: u32) -> Option<&ToolCall> {
        self.calls()?.get(number)
    }

    /// Takes the result of a call. Says no where it was not open. After the last one it goes on.
    pub(super) fn close_call(&mut self, number: u32) -> bool {
        let Some(calls) = self.calls_mut() else { return false };
        if calls.calls.get_mut(number as usize).and_then(Option::take).is_none() {
            return false;
        }
        calls.open -= 1;
        if calls.open == 0 {
            let then = std::mem::take(&mut *calls.then);
            *self.turn_state_mut() = then;
        }
        true
    }

    /// Returns the markers of its last answer, until they are read.
    pub(super) fn markers(&self) -> Option<&AnswerMarkers> {
        let state = self.calls().map_or_else(|| self.turn_state(), |calls| calls.then.as_ref());
        if let TurnState::Delegating(markers) = state { Some(markers) } else { None }
    }

    /// Takes the markers of its last answer, which are read now.
    pub(super) fn take_markers(&mut self) -> Option<AnswerMarkers> {
        let state = self.later_state();
        if !matches!(state, TurnState::Delegating(_)) {
            return None;
        }
        let TurnState::Delegating(markers) = std::mem::take(state) else { return None };
        Some(markers)
    }

    pub(super) const fn is_checking(&self) -> bool {
        matches!(self.turn_state(), TurnState::Checking(_))
    }

    /// Folds in that the command is run which decides whether its work is done.
    pub(super) fn check(&mut self) {
        let state = self.later_state();
        let answer = if let TurnState::Judging(answer) = state { Some(*answer) } else { None };
        *state = TurnState::Checking(answer);
    }

    /// Folds in that the command has ended. Says no where none was run.
    pub(super) fn end_check(&mut self) -> bool {
        let TurnState::Checking(answer) = *self.turn_state() else { return false };
        *self.turn_state_mut() = answer.map_or_else(TurnState::default, TurnState::Judging);
        true
    }

    /// Returns its last answer, while that is to be judged.
    pub(super) const fn last_answer(&self) -> Option<LastAnswer> {
        if let TurnState::Judging(answer) = self.turn_state() { Some(*answer) } else { None }
    }

    /// Folds in that someone spoke to it, so that its last answer counts no longer.
    pub(super) fn hear(&mut self) {
        if self.last_answer().is_some() {
            *self.turn_state_mut() = TurnState::default();
        }
    }

    /// Folds in that tasks were handed down for the markers of its last answer.
    pub(super) fn await_results(&mut self) {
        *self.later_state() = TurnState::AwaitingResults;
    }

    /// Folds in that it was told what its markers led to.
    pub(super) fn take_results(&mut self) {
        let state = self.later_state();
        if matches!(state, TurnState::AwaitingResults) {
            *state = TurnState::default();
        }
    }

    /// Returns what it is at, or what it will be at after the last result of its calls.
    fn later_state(&mut self) -> &mut TurnState {
        match self.turn_state_mut() {
            TurnState::UsingTools(calls) => &mut calls.then,
            state @ (TurnState::Thinking(..)
            | TurnState::Retrying(..)
            | TurnState::Delegating(_)
            | TurnState::AwaitingResults
            | TurnState::Judging(_)
            | TurnState::Checking(_)) => state,
        }
    }
}
