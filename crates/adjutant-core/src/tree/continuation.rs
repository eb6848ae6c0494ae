//! Going on in a fresh conversation after the context of an agent was full.
//!
//! While there is still room, the agent is asked for a handover note. The engine then collects the
//! note, the changed files and their diff, and one event records the exact opening of the next
//! conversation. It stays the same delegation: time, budgets, turns, repairs, failed verifications
//! and loop detection go on counting. Start at [`Tree::may_continue`].

use super::Tree;
use super::evolve::illegal_event;
use super::node::{Node, PlannedEnd};
use super::node_parts::{ContextSize, ContinuationCounts};
use super::turn::{
    MIN_OUTPUT, OutputAllowance, UnrecordedReservations, settle_failed, worst_case_cost,
};
use super::turn_state::TurnState;
use crate::budget::BudgetAmount;
use crate::code::ErrorCode;
use crate::command::Effect;
use crate::event::{Event, IllegalEvent};
use crate::handover::CollectedHandover;
use crate::ids::SessionId;
use crate::message::{AttemptError, ModelErrorKind};
use crate::numbers::grouped;
use crate::policy::OnFullContext;
use crate::write::{EDIT, RUN, WRITE, WriteScope};

/// The message that asks an agent with a full context for its handover note.
pub const HANDOVER_NOTE: &str = "Your context is nearly full. The task goes on in a new conversation that sees \
only the task, this note, the names of the files you changed and, if it can be made, their diff. Tools are \
not available now. Write the handover note: what is done, what is left to do, what you decided and why, and what failed. Be brief.";
const SMALLER_CONTEXT: &str = "Split the task, or use a model with a larger window.";
/// How many turns must be left after the note: one to work and one to report.
const TURNS_LEFT: u32 = 2;

impl Tree {
    /// Says whether an agent whose context is full goes on in a fresh conversation, as far as that
    /// is known before its handover is collected. `turn` is the number of the turn in which it
    /// writes its note, for which `note` is reserved.
    pub(super) fn may_continue(
        &self,
        index: usize,
        turn: u32,
        note: BudgetAmount,
        held: &UnrecordedReservations,
    ) -> bool {
        let node = &self.nodes[index];
        let counts = &node.continuations;
        self.is_continued_when_full(index)
            && u64::from(counts.made) < self.policy.continuations
            && counts.has_used_tool
            && node.turn_limit.max.is_none_or(|max| turn.saturating_add(TURNS_LEFT) <= max)
            && counts.brief_bytes <= self.max_opening_bytes(node)
            && self.holds_two_turns(index, counts.brief_bytes, note, held)
    }

    /// Says whether the next turn of an agent, for which there is this much `room`, is to be its
    /// handover note: its window is full, and it goes on in a fresh conversation.
    pub(super) fn hands_over(
        &self,
        index: usize,
        turn: u32,
        room: &OutputAllowance,
        mail_bytes: u64,
        held: &UnrecordedReservations,
    ) -> bool {
        let node = &self.nodes[index];
        let told_bytes = mail_bytes + HANDOVER_NOTE.len() as u64;
        let input = node.context.input_bound().saturating_add(told_bytes);
        let output = room.max_output.min(self.longest_note(node));
        let note = BudgetAmount {
            tokens: input.saturating_add(output),
            usd: worst_case_cost(node, input, output),
        };
        room.code == ErrorCode::ContextExhausted && self.may_continue(index, turn, note, held)
    }

    /// Returns the most output tokens of a handover note: half of what a fresh conversation may
    /// begin with.
    pub(super) fn longest_note(&self, node: &Node) -> u64 {
        let window = node.window(self.policy.context_tokens).unwrap_or(u64::MAX);
        (window / 4).max(MIN_OUTPUT)
    }

    /// Says whether an agent whose provider rejects a request as too long goes on in a fresh
    /// conversation, with a note that the engine makes.
    pub(super) fn goes_on_without_note(&self, index: usize, error: &AttemptError) -> bool {
        let node = &self.nodes[index];
        let (note, none) = (BudgetAmount::default(), UnrecordedReservations::default());
        error.kind == ModelErrorKind::ContextExhausted
            && node.worker.is_none()
            && node.corrections.last_call.is_none()
            && self.may_continue(index, node.turn, note, &none)
    }

    /// Settles an attempt that the provider rejected as too long.
    pub(super) fn fail_full_attempt(&self, index: usize, error: AttemptError) -> Vec<Event> {
        let Some(open) = self.nodes[index].reservation() else { return Vec::new() };
        let session = self.nodes[index].session;
        let settlement = settle_failed(&error, &open);
        let (turn, attempt) = (open.turn, open.attempt);
        vec![
            Event::AttemptFailed { session, turn, attempt, error, settlement, retry_at: None },
            Event::NoteSkipped { session },
        ]
    }

    /// Returns what a person can do about a context that was full once too often.
    pub(super) fn larger_context_text(&self, node: &Node) -> String {
        let made = u64::from(node.continuations.made);
        if made < self.policy.continuations {
            return SMALLER_CONTEXT.to_owned();
        }
        let more = made.saturating_mul(2);
        format!(
            "Split the task, use a model with a larger window, or start the run again with \
             --set continuations={more}."
        )
    }

    /// Returns the end of an agent whose provider reports a full context, with the provider's
    /// figures.
    pub(super) fn context_rejected(&self, error: &AttemptError, node: &Node) -> PlannedEnd {
        let window = node.window(self.policy.context_tokens).unwrap_or_default();
        let message = format!(
            "The provider reports that the context is full: {} (estimated before the call: {} of {} tokens).",
            error.message,
            grouped(node.context_estimate()),
            grouped(window),
        );
        PlannedEnd::partial(ErrorCode::ContextExhausted, message, SMALLER_CONTEXT)
    }

    /// Applies the policy key `on_full`.
    fn is_continued_when_full(&self, index: usize) -> bool {
        match self.policy.on_full {
            OnFullContext::Handover => false,
            OnFullContext::Continue => true,
            OnFullContext::ByAgent => {
                let usable = self.usable(index);
                let writes = matches!(
                    self.nodes[index].rights.writes,
                    WriteScope::Own | WriteScope::Anywhere
                );
                writes && [EDIT, WRITE, RUN].iter().any(|tool| usable.contains(tool))
            }
        }
    }

    /// Returns how many bytes a fresh conversation may begin with, system prompt and tools
    /// included: half the window.
    fn max_opening_bytes(&self, node: &Node) -> u64 {
        let window = node.window(self.policy.context_tokens).unwrap_or(u64::MAX);
        ContextSize::bytes_within(window / 2)
    }

    /// Says whether every budget holds `first` and then two turns of a conversation that begins
    /// with this many bytes.
    fn holds_two_turns(
        &self,
        index: usize,
        opening_bytes: u64,
        first: BudgetAmount,
        held: &UnrecordedReservations,
    ) -> bool {
        let node = &self.nodes[index];
        let opening = ContextSize { appended_bytes: opening_bytes, ..ContextSize::default() };
        let inputs = opening.input_bound().saturating_mul(2);
        let outputs = self.output_wish(node).saturating_mul(2);
        let turns = BudgetAmount {
            tokens: inputs.saturating_add(outputs),
            usd: worst_case_cost(node, inputs, outputs),
        };
        let needed = first.plus(turns);
        self.scopes(index).all(|scope| {
            let left = self.nodes[scope].ledger.remaining().minus(held.held_in(scope));
            needed.tokens <= left.tokens && needed.usd <= left.usd
        })
    }

    /// Returns the effect that collects the handover of a node.
    pub(super) fn due_handover(&self, node: &Node, has_note: bool) -> Effect {
        let max_bytes = self.max_opening_bytes(node);
        Effect::CollectHandover { session: node.session, turn: node.turn, has_note, max_bytes }
    }

    /// Begins a fresh conversation with the collected handover, or ends the delegation as if it
    /// could not be continued.
    pub(super) fn take_handover(
        &self,
        session: SessionId,
        turn: u32,
        handover: CollectedHandover,
    ) -> Vec<Event> {
        let Some((index, node)) = self.at_work(session) else { return Vec::new() };
        if node.turn != turn || !node.is_continuing() {
            return Vec::new();
        }
        let begun = self.preamble_bytes(node) + total_bytes(&handover.brief);
        let left = self.max_opening_bytes(node).saturating_sub(begun);
        let max_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let see_rest = if self.usable(index).contains(RUN) {
            "`git status` and `git diff` show the rest; read files that are new."
        } else {
            "Read the files to see the rest."
        };
        let none = UnrecordedReservations::default();
        let fits = |text: &String| {
            let opening_bytes = begun + text.len() as u64;
            self.may_continue(index, turn, BudgetAmount::default(), &none)
                && self.holds_two_turns(index, opening_bytes, BudgetAmount::default(), &none)
        };
        match handover.text(max_bytes, see_rest).filter(fits) {
            Some(text) => vec![Event::Continued { session, brief: handover.brief, handover: text }],
            None => self.end_subtree(index, &self.exhausted_end(ErrorCode::ContextExhausted, node)),
        }
    }

    /// Folds in that the handover is collected without a note of the agent.
    pub(super) fn fold_note_skipped(&mut self, session: SessionId) -> Result<(), IllegalEvent> {
        let index = self.running_index("note_skipped", session)?;
        let node = &mut self.nodes[index];
        if node.reservation().is_some() || node.calls().is_some() {
            return Err(illegal_event("note_skipped", "the turn is not over"));
        }
        *node.turn_state_mut() = TurnState::Continuing { has_note: false };
        Ok(())
    }

    /// Folds in that a fresh conversation begins.
    pub(super) fn fold_continued(
        &mut self,
        session: SessionId,
        brief: &[String],
        handover: &str,
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("continued", session)?;
        let brief_bytes = self.preamble_bytes(&self.nodes[index]) + total_bytes(brief);
        let node = &mut self.nodes[index];
        if !node.is_continuing() {
            return Err(illegal_event("continued", "its context was not full"));
        }
        node.context.settled_input = None;
        node.context.appended_bytes = brief_bytes + handover.len() as u64;
        node.continuations = ContinuationCounts {
            made: node.continuations.made + 1,
            brief_bytes,
            ..ContinuationCounts::default()
        };
        *node.turn_state_mut() = TurnState::default();
        Ok(())
    }

    /// Returns the size of what every conversation of a node begins with: the system prompt and the
    /// tools of its agent, and the environment.
    pub(super) fn preamble_bytes(&self, node: &Node) -> u64 {
        let agent = self.agents.as_ref().and_then(|agents| agents.get(&node.agent));
        agent.map_or(0, |agent| agent.preamble_bytes) + node.context.environment_bytes
    }
}

/// Says how often a node was continued, to be appended to a sentence; empty if it was not.
pub(super) fn continued_text(node: &Node) -> String {
    match node.continuations.made {
        0 => String::new(),
        1 => " It had gone on in a fresh conversation once before.".to_owned(),
        made => format!(" It had gone on in a fresh conversation {made} times before."),
    }
}

fn total_bytes(texts: &[String]) -> u64 {
    texts.iter().map(|text| text.len() as u64).sum()
}
