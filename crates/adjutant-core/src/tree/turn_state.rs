//! The state of an agent's turn: model call, tool calls, and the judgement of its answer.
//!
//! An ended agent keeps its turn state, so that a resumed one continues where it stopped.
//!
//! `TurnState` says what the agent does now. `AttemptCounts` counts the attempts at the model call,
//! `ModelCall` is the running one, `OpenToolCalls` are the tool calls that have no result yet, and
//! `LastAnswer` is an answer without tool calls that has to be judged.

use std::collections::{BTreeMap, BTreeSet};

use super::node::Node;
use crate::budget::Reservation;
use crate::message::{ModelSpec, StopReason, ToolCall};
use crate::story::AnswerMarkers;
use crate::time::Timestamp;
use crate::tool_call::{CallTranslation, TranslatedCall, calls_as_run};
use crate::write::{WriteIntent, is_in_turn};

/// What an agent does in its current turn.
#[derive(Clone, Debug)]
pub(super) enum TurnState {
    /// Its model is being called, or has to be called next if there is no [`ModelCall`].
    Thinking(AttemptCounts, Option<ModelCall>),
    /// Its model call failed and is retried at this time.
    Retrying(AttemptCounts, Timestamp),
    /// The tool calls of its last answer are running.
    UsingTools(OpenToolCalls),
    /// The markers of its last answer have to be delegated.
    Delegating(AnswerMarkers),
    /// It waits for the results of its markers. A node without a model stays in this state.
    AwaitingResults,
    /// Its last answer has to be judged.
    Judging(LastAnswer),
    /// Its context is full, and its handover is being collected. If `has_note`, its last answer is
    /// the handover note.
    Continuing { has_note: bool },
    /// The verify command runs. Holds the answer that claimed completion, unless that was a call of
    /// `Return`.
    Checking(Option<LastAnswer>),
}

/// How often the model call of a turn was attempted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptCounts {
    /// Attempts made so far.
    pub(super) made: u32,
    /// How many of them were before a resume and do not count.
    pub(super) excused: u32,
}

/// A running model call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelCall {
    pub(super) reservation: Reservation,
    /// When the call counts as stalled.
    pub(super) stall_at: Option<Timestamp>,
}

/// The tool calls of an answer, until each has its result.
#[derive(Clone, Debug)]
pub(super) struct OpenToolCalls {
    /// Every call of the answer; `None` for a call that has its result.
    calls: Vec<Option<ToolCall>>,
    /// How many have no result yet.
    open: usize,
    /// The numbers of the calls that were started.
    begun: BTreeSet<u32>,
    /// The numbers of the started calls that run in order, because they change files.
    pub(super) writing: BTreeSet<u32>,
    /// The file changes that they are about to make, once known.
    pub(super) prepared: BTreeMap<u32, WriteIntent>,
    /// How calls were read that the model wrote in another form.
    readings: BTreeMap<u32, TranslationNotes>,
    /// The turn state after the last result.
    then: Box<TurnState>,
}

/// What to say about a call that was translated from another form.
#[derive(Clone, Debug)]
pub(super) struct TranslationNotes {
    /// The name that the model wrote.
    pub(super) called: String,
    /// What it is told beside the result.
    pub(super) remarks: Vec<String>,
    /// Why it is not run.
    pub(super) refusal: Option<String>,
}

impl TranslationNotes {
    fn new(called: &str, reading: &TranslatedCall) -> Self {
        let (remarks, refusal) = match reading {
            TranslatedCall::RunAs { remarks, .. } => (remarks.clone(), None),
            TranslatedCall::Refused { text } => (Vec::new(), Some(text.clone())),
        };
        Self { called: called.to_owned(), remarks, refusal }
    }
}

/// An answer without tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastAnswer {
    pub(super) stop: StopReason,
    /// Whether it has no text.
    pub(super) is_blank: bool,
}

impl LastAnswer {
    /// Says whether it is complete, neither cut off nor declined.
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
    /// Returns the first turn state of a node with this model.
    pub(super) fn first(model: Option<&ModelSpec>) -> Self {
        if model.is_some() { Self::default() } else { Self::AwaitingResults }
    }
}

impl OpenToolCalls {
    pub(super) fn new(
        calls: &[ToolCall],
        translations: &[CallTranslation],
        then: TurnState,
    ) -> Self {
        let readings = translations.iter().filter_map(|it| {
            let called = &calls.get(it.call as usize)?.name;
            Some((it.call, TranslationNotes::new(called, &it.reading)))
        });
        Self {
            readings: readings.collect(),
            calls: calls_as_run(calls, translations).map(|call| Some(call.into_owned())).collect(),
            open: calls.len(),
            begun: BTreeSet::new(),
            writing: BTreeSet::new(),
            prepared: BTreeMap::new(),
            then: Box::new(then),
        }
    }

    /// Returns how many calls have no result yet.
    pub(super) const fn count(&self) -> usize {
        self.open
    }

    /// Returns the call with this number, if it has no result yet.
    pub(super) fn get(&self, number: u32) -> Option<&ToolCall> {
        self.calls.get(number as usize)?.as_ref()
    }

    /// Returns how a call was read, if the model wrote it in another form.
    pub(super) fn reading(&self, number: u32) -> Option<&TranslationNotes> {
        self.readings.get(&number)
    }

    /// Returns every call of the answer; `None` for a call that has its result.
    pub(super) fn call_slots(&self) -> &[Option<ToolCall>] {
        &self.calls
    }

    /// Returns the calls that have no result yet, with their numbers.
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
    /// Returns its turn state, also while it waits or has ended.
    pub(super) const fn turn_state(&self) -> &TurnState {
        self.phase.turn_state()
    }

    pub(super) const fn turn_state_mut(&mut self) -> &mut TurnState {
        self.phase.turn_state_mut()
    }

    /// Returns the reservation of the running model call.
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

    /// Does not count attempts from before a resume.
    pub(super) const fn excuse_attempts(&mut self) {
        if let TurnState::Thinking(attempts, _) | TurnState::Retrying(attempts, _) =
            self.turn_state_mut()
        {
            attempts.excused = attempts.made;
        }
    }

    /// Makes a model call its next step, keeping the attempt counts of the same turn.
    pub(super) fn think(&mut self) {
        *self.turn_state_mut() = TurnState::Thinking(self.attempts().unwrap_or_default(), None);
    }

    /// Records that its model is being called.
    pub(super) fn call_model(&mut self, reservation: Reservation) {
        let excused = self.attempts().unwrap_or_default().excused;
        let attempts = AttemptCounts { made: reservation.attempt, excused };
        let call = ModelCall { reservation, stall_at: None };
        *self.turn_state_mut() = TurnState::Thinking(attempts, Some(call));
    }

    /// Returns the tool calls of its last answer, while one of them has no result.
    pub(super) const fn calls(&self) -> Option<&OpenToolCalls> {
        if let TurnState::UsingTools(calls) = self.turn_state() { Some(calls) } else { None }
    }

    pub(super) const fn calls_mut(&mut self) -> Option<&mut OpenToolCalls> {
        if let TurnState::UsingTools(calls) = self.turn_state_mut() { Some(calls) } else { None }
    }

    /// Returns the call with this number of its last answer, if it has no result yet.
    pub(super) fn open_call(&self, number: u32) -> Option<&ToolCall> {
        self.calls()?.get(number)
    }

    /// Marks a call as answered, and moves on after the last one. Returns `false` if the call was
    /// not open.
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

    /// Returns the markers of its last answer, until they are delegated.
    pub(super) fn markers(&self) -> Option<&AnswerMarkers> {
        let state = self.calls().map_or_else(|| self.turn_state(), |calls| calls.then.as_ref());
        if let TurnState::Delegating(markers) = state { Some(markers) } else { None }
    }

    /// Removes and returns the markers of its last answer.
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

    pub(super) const fn is_continuing(&self) -> bool {
        matches!(self.turn_state(), TurnState::Continuing { .. })
    }

    /// Records that the verify command is about to run.
    pub(super) fn check(&mut self) {
        let state = self.later_state();
        let answer = if let TurnState::Judging(answer) = state { Some(*answer) } else { None };
        *state = TurnState::Checking(answer);
    }

    /// Records that the verify command ended. Returns `false` if none was running.
    pub(super) fn end_check(&mut self) -> bool {
        let TurnState::Checking(answer) = *self.turn_state() else { return false };
        *self.turn_state_mut() = answer.map_or_else(TurnState::default, TurnState::Judging);
        true
    }

    /// Returns its last answer, if it has to be judged.
    pub(super) const fn last_answer(&self) -> Option<LastAnswer> {
        if let TurnState::Judging(answer) = self.turn_state() { Some(*answer) } else { None }
    }

    /// Discards its last answer, because a message was added after it.
    pub(super) fn discard_last_answer(&mut self) {
        if self.last_answer().is_some() {
            *self.turn_state_mut() = TurnState::default();
        }
    }

    /// Records that the markers of its last answer were delegated.
    pub(super) fn await_results(&mut self) {
        *self.later_state() = TurnState::AwaitingResults;
    }

    /// Records that it was told the results of its markers.
    pub(super) fn take_results(&mut self) {
        let state = self.later_state();
        if matches!(state, TurnState::AwaitingResults) {
            *state = TurnState::default();
        }
    }

    /// Returns its turn state, or the one that follows its open tool calls.
    fn later_state(&mut self) -> &mut TurnState {
        match self.turn_state_mut() {
            TurnState::UsingTools(calls) => &mut calls.then,
            state @ (TurnState::Thinking(..)
            | TurnState::Retrying(..)
            | TurnState::Delegating(_)
            | TurnState::AwaitingResults
            | TurnState::Judging(_)
            | TurnState::Continuing { .. }
            | TurnState::Checking(_)) => state,
        }
    }
}
