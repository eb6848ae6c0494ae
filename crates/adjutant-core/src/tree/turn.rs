//! The turns of one agent: reserving a model call and taking the reply. `tool_use` runs its tools.
//!
//! Budgets and the context window of a running agent are checked here. Start at
//! [`Tree::take_turn`].
//!
//! `OutputAllowance` is how many output tokens the next model call may ask for.
//! `UnrecordedReservations` are budget amounts that this decision has reserved but no event records
//! yet.

use std::collections::BTreeMap;

use super::Tree;
use super::continuation::{HANDOVER_NOTE, continued_text};
use super::node::{Node, PlannedEnd};
use crate::budget::{BudgetAmount, Reservation, Settlement};
use crate::code::ErrorCode;
use crate::event::{AddedMessageReason, Event};
use crate::ids::SessionId;
use crate::message::{AttemptError, ModelErrorKind, ModelReply};
use crate::money::Usd;
use crate::numbers::grouped;
use crate::outcome::Outcome;
use crate::refusal::{BudgetScope, RAISE};
use crate::time::Timestamp;

/// The fewest output tokens for which a model call is worthwhile.
pub const MIN_OUTPUT: u64 = 100;
/// The most attempts at one model call, the first included.
pub const MAX_ATTEMPTS: u32 = 3;
/// The message to an agent that is close to a limit.
pub const LAST_CALL: &str = "You are close to your limit and this is your last turn. Tools are no longer \
available. Write your report now: what you found, and what is left to do.";
const SHORTEN: &str =
    "Your answer was cut off at the output limit. Say it again, shorter, in one message.";
const FIRST_RETRY_MS: u64 = 500;
/// The longest pause of a provider that is waited for; a child must not be parked for days.
const LONGEST_PAUSE_MS: u64 = 10 * 60 * 1000;

/// How many output tokens a call may ask for, and which limit is the tightest.
pub(super) struct OutputAllowance {
    pub(super) max_output: u64,
    pub(super) code: ErrorCode,
    is_last: bool,
}

/// Reservations of the same decision that the tree does not know yet, by scope.
#[derive(Default)]
pub(super) struct UnrecordedReservations(BTreeMap<usize, BudgetAmount>);

impl UnrecordedReservations {
    pub(super) fn add(&mut self, tree: &Tree, index: usize, amount: BudgetAmount) {
        for scope in tree.scopes(index) {
            let held = self.0.entry(scope).or_default();
            *held = held.plus(amount);
        }
    }

    pub(super) fn held_in(&self, scope: usize) -> BudgetAmount {
        self.0.get(&scope).copied().unwrap_or_default()
    }
}

impl Tree {
    /// Reserves the next model call, warns an agent close to a limit, or ends it.
    pub(super) fn take_turn(&self, session: SessionId) -> Vec<Event> {
        // Not due: a retry is scheduled, or another step comes first and leads to the next turn.
        let is_due = self.node(session).is_some_and(Node::is_to_think);
        if is_due {
            self.take_turn_beside(session, &UnrecordedReservations::default())
        } else {
            Vec::new()
        }
    }

    /// Like [`Tree::take_turn`], with reservations that the tree does not know yet.
    pub(super) fn take_turn_beside(
        &self,
        session: SessionId,
        held: &UnrecordedReservations,
    ) -> Vec<Event> {
        let Some((index, node)) = self.at_work(session) else { return Vec::new() };
        if node.reservation().is_some() || node.calls().is_some() || node.model.is_none() {
            return Vec::new();
        }
        if node.worker.is_some() {
            return self.prompt_worker(index, held);
        }
        let attempts = node.attempts().map_or(0, |attempts| attempts.made);
        let retried = attempts > 0;
        let turn = if retried { node.turn } else { node.turn + 1 };
        let mail = self.mail(index, node, held);
        let mail_bytes = mail.iter().map(|word| word.len() as u64).sum();
        let mut room = self.room(index, node, mail_bytes, held);
        room.is_last |= node.turn_limit.max.is_some_and(|max| turn >= max);
        let is_note_asked = node.continuations.is_note_asked;
        let tells = room.is_last && node.corrections.last_call.is_none() && !is_note_asked;
        let hands_over = tells && self.hands_over(index, turn, &room, mail_bytes, held);
        let warning = if hands_over { HANDOVER_NOTE } else { LAST_CALL };
        let told_bytes = mail_bytes + if tells { warning.len() as u64 } else { 0 };
        if tells {
            // The warning is input too, so compute the allowance again with it.
            room = self.room(index, node, told_bytes, held);
        }
        let is_note = hands_over || is_note_asked;
        if room.max_output < MIN_OUTPUT.min(self.output_wish(node)) {
            return if is_note && room.code == ErrorCode::ContextExhausted {
                vec![Event::NoteSkipped { session }]
            } else {
                self.end_subtree(index, &self.exhausted_end(room.code, node))
            };
        }
        let person = |text| Event::Told { session, nudge: AddedMessageReason::Person, text };
        let mut events: Vec<Event> = mail.into_iter().map(person).collect();
        if tells {
            let nudge = if hands_over {
                AddedMessageReason::HandoverNote
            } else {
                AddedMessageReason::LastCall(room.code)
            };
            events.push(Event::Told { session, nudge, text: warning.into() });
        }
        let input = node.context.input_bound().saturating_add(told_bytes);
        let max_output =
            if is_note { room.max_output.min(self.longest_note(node)) } else { room.max_output };
        events.push(Event::Reserved {
            session,
            reservation: Reservation {
                turn,
                attempt: attempts + 1,
                max_output,
                amount: BudgetAmount {
                    tokens: input.saturating_add(max_output),
                    usd: worst_case_cost(node, input, max_output),
                },
                last_call: tells || is_note || node.corrections.last_call.is_some(),
            },
        });
        events
    }

    pub(super) fn output_wish(&self, node: &Node) -> u64 {
        let wish = node.terms.max_output_wish.unwrap_or(self.policy.max_output_tokens);
        node.model.as_ref().map_or(wish, |model| wish.min(model.max_output))
    }

    /// Computes the tightest of window, tokens and money, and whether another turn fits after this
    /// one.
    ///
    /// `told_bytes` are about to be added to the conversation.
    pub(super) fn room(
        &self,
        index: usize,
        node: &Node,
        told_bytes: u64,
        held: &UnrecordedReservations,
    ) -> OutputAllowance {
        let wish = self.output_wish(node);
        let input = node.context.input_bound().saturating_add(told_bytes);
        let window = node.window(self.policy.context_tokens).unwrap_or(u64::MAX);
        let in_window =
            window.saturating_sub(node.context_estimate()).saturating_sub(told_bytes.div_ceil(4));
        let (mut tokens, mut money) = (u64::MAX, u64::MAX);
        let mut next_fits = in_window >= wish.saturating_add(grace(wish));
        let mut code =
            if next_fits { ErrorCode::BudgetExceeded } else { ErrorCode::ContextExhausted };
        for scope in self.scopes(index) {
            let left = self.nodes[scope].ledger.remaining().minus(held.held_in(scope));
            tokens = tokens.min(left.tokens.saturating_sub(input));
            money = money.min(affordable_output(node, input, left));
            // Every turn pays for the whole conversation again: after this one, a last turn with a
            // full answer must still fit.
            let (inputs, outputs) = (input.saturating_mul(2), wish.saturating_mul(2));
            next_fits &= left.tokens >= inputs.saturating_add(outputs)
                && worst_case_cost(node, inputs, outputs) <= left.usd;
        }
        let max_output = wish.min(in_window).min(tokens).min(money);
        if in_window > max_output && max_output < wish {
            code = ErrorCode::BudgetExceeded;
        }
        OutputAllowance { max_output, code, is_last: !next_fits }
    }

    /// Records and settles a reply; what follows from it is decided next.
    pub(super) fn take_reply(
        &self,
        session: SessionId,
        turn: u32,
        attempt: u32,
        reply: ModelReply,
    ) -> Vec<Event> {
        let late = || vec![Event::Late { session, what: "reply".into(), text: reply.text.clone() }];
        let Some((index, node)) = self.live(session) else { return late() };
        let Some(open) = node.open(turn, attempt) else { return late() };
        let settlement = settle(node, &open, &reply);
        let over = settlement.amount().minus(open.amount);
        let translations = self.translations(node, &reply);
        let mut events: Vec<Event> = node.abandoned_calls().collect();
        events.push(Event::Replied {
            session,
            turn,
            attempt,
            text: reply.text,
            translations,
            tool_calls: reply.tool_calls,
            stop: reply.stop,
            opaque: reply.opaque,
            settlement,
        });
        if !over.is_zero() {
            events.push(Event::Overran { session, amount: over });
        }
        if let Some(end) = self.spoiled_turn_end(node) {
            events.extend(self.end_settled(index, &end));
        }
        events
    }

    /// Settles a failed attempt, then schedules a retry or ends the agent.
    ///
    /// An attempt that the provider never began costs nothing, but counts as an attempt. Every
    /// other one costs its full reservation, because the provider may bill it.
    pub(super) fn fail_attempt(
        &self,
        now: Timestamp,
        session: SessionId,
        turn: u32,
        attempt: u32,
        error: AttemptError,
    ) -> Vec<Event> {
        let late = |error: &AttemptError| {
            vec![Event::Late { session, what: "error".into(), text: error.to_string() }]
        };
        let Some((index, node)) = self.live(session) else { return late(&error) };
        if node.open(turn, attempt).is_none() {
            return late(&error);
        }
        if self.goes_on_without_note(index, &error) {
            return self.fail_full_attempt(index, error);
        }
        let end = self.provider_failed(&error, node);
        self.fail_open_attempt(now, index, error, &end)
    }

    /// Settles the open attempt, then schedules a retry or ends the agent with `end`.
    pub(super) fn fail_open_attempt(
        &self,
        now: Timestamp,
        index: usize,
        error: AttemptError,
        end: &PlannedEnd,
    ) -> Vec<Event> {
        let node = &self.nodes[index];
        let Some(open) = &node.reservation() else { return Vec::new() };
        let (session, turn, attempt) = (node.session, open.turn, open.attempt);
        let tried = node.open_attempt_number();
        let pause = error.retry_after_ms.unwrap_or(FIRST_RETRY_MS << (tried - 1).min(16));
        // A worker that has stalled would be asked the same again.
        let tries = error.kind.is_transient()
            && tried < MAX_ATTEMPTS
            && pause <= LONGEST_PAUSE_MS
            && node.worker.is_none();
        let retry_at = tries.then(|| now.plus_millis(pause));
        let settlement = settle_failed(&error, open);
        let mut events: Vec<Event> = node.abandoned_calls().collect();
        events.push(Event::AttemptFailed { session, turn, attempt, error, settlement, retry_at });
        if retry_at.is_none() {
            events.extend(self.end_settled(index, end));
        }
        events
    }

    /// Ends a node whose open attempt and calls the events before have settled already.
    fn end_settled(&self, index: usize, end: &PlannedEnd) -> Vec<Event> {
        let session = self.nodes[index].session;
        let again = |event: &Event| {
            matches!(event, Event::Settled { session: of, .. } | Event::WorkerCallSettled { session: of, .. }
                if *of == session)
        };
        let ended = self.end_subtree(index, end).into_iter();
        ended.filter(|event| !again(event)).collect()
    }

    /// Handles a cut-off answer: asks once for a shorter one, then ends as partial.
    pub(super) fn cut_off(&self, session: SessionId) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        if node.corrections.last_call.is_none() && !node.corrections.shortened {
            return vec![Event::Told {
                session,
                nudge: AddedMessageReason::Shorten,
                text: SHORTEN.into(),
            }];
        }
        if let Some(code) = node.corrections.last_call {
            return self.end_subtree(index, &self.exhausted_end(code, node));
        }
        let limit = self.output_wish(node);
        let message = format!("The answer was cut off at {} output tokens.", grouped(limit));
        let most = node.model.as_ref().map_or(u64::MAX, |model| model.max_output);
        let shorter = format!("Ask for a shorter answer with `adjutant resume {session} --say`");
        // If the task or the model sets the limit, no setting can raise it.
        let recommendation = if node.terms.max_output_wish.is_none() && limit < most {
            let more = limit.saturating_mul(2).min(most);
            format!("{shorter}, or start the run again with --set max_output_tokens={more}.")
        } else {
            format!("{shorter}.")
        };
        self.end_subtree(
            index,
            &PlannedEnd::partial(ErrorCode::BudgetExceeded, message, &recommendation),
        )
    }

    pub(super) fn declined(&self, session: SessionId) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        let error = AttemptError {
            kind: ModelErrorKind::Refused,
            message: "the model declined to answer".into(),
            retry_after_ms: None,
            never_began: false,
        };
        self.end_subtree(index, &self.provider_failed(&error, node))
    }

    pub(super) fn exhausted_end(&self, code: ErrorCode, node: &Node) -> PlannedEnd {
        // The limit of a worker counts its model calls, not its prompts.
        if let Some(max) = node.turn_limit.max.filter(|max| node.turn >= *max)
            && code == ErrorCode::BudgetExceeded
            && node.worker.is_none()
        {
            return out_of_turns(max);
        }
        let message = if code == ErrorCode::ContextExhausted {
            let window = node.window(self.policy.context_tokens).unwrap_or_default();
            format!(
                "The context was exhausted: {} of {} tokens, and an answer may need {} more.{}",
                grouped(node.context_estimate()),
                grouped(window),
                grouped(self.output_wish(node)),
                continued_text(node)
            )
        } else {
            self.out_of_budget(node)
        };
        let recommendation = if code == ErrorCode::ContextExhausted {
            self.larger_context_text(node)
        } else {
            self.raising_flags_text(node).map_or_else(
                || "Split the task.".to_owned(),
                |flags| {
                    let in_place = if self.policy.in_place { " --in-place" } else { "" };
                    format!("Split the task, or {RAISE}{}{in_place} {flags}`.", node.session)
                },
            )
        };
        PlannedEnd::partial(code, message, &recommendation)
    }

    fn out_of_budget(&self, node: &Node) -> String {
        let used = node.ledger.settled.tokens;
        if used > 0 {
            return format!("The budget was exhausted after {} tokens.", grouped(used));
        }
        let (call, bound) = match node.needed_for_call() {
            Some(needed) => (needed, "needs at least"),
            None => (self.worst_case(node, 1), "may take up to"),
        };
        let usd = if call.usd == Usd::ZERO { String::new() } else { format!(" and {}", call.usd) };
        format!(
            "The next call does not fit into the budget: it {bound} {} tokens{usd}.",
            grouped(call.tokens)
        )
    }

    /// Returns the most that this many further calls of an agent can cost, with a full answer each.
    fn worst_case(&self, node: &Node, calls: u64) -> BudgetAmount {
        let told = node.context.input_bound().saturating_add(LAST_CALL.len() as u64);
        let input = told.saturating_mul(calls);
        let output = self.output_wish(node).saturating_mul(calls);
        BudgetAmount {
            tokens: input.saturating_add(output),
            usd: worst_case_cost(node, input, output),
        }
    }

    /// Returns the flags that raise every budget that is too small.
    ///
    /// A turn is taken only if a last one fits after it, and more may follow, so at least twice the
    /// budget is recommended.
    fn raising_flags_text(&self, node: &Node) -> Option<String> {
        let own = *self.by_session.get(&node.session)?;
        let twice = |needed: BudgetAmount| needed.plus(needed);
        let needed = node.needed_for_call().map_or_else(|| self.worst_case(node, 2), twice);
        let mut flags = Vec::new();
        for scope in self.scopes(own) {
            let Node { ledger, parent, .. } = &self.nodes[scope];
            let (left, taken) = (ledger.remaining(), ledger.settled.plus(ledger.reserved));
            let fits = taken.plus(needed);
            if let Some(cap) = ledger.cap.tokens.filter(|_| left.tokens < needed.tokens) {
                let kind =
                    if parent.is_none() { BudgetScope::Run } else { BudgetScope::Delegation };
                flags.push(kind.flag(cap.saturating_mul(2).max(fits.tokens)));
            }
            if let Some(cap) = ledger.cap.usd.filter(|_| left.usd < needed.usd) {
                let usd = (cap + cap).max(fits.usd).as_dollars();
                flags.push(format!("--budget-usd {:.2}", (usd * 100.0).ceil() / 100.0));
            }
        }
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    fn provider_failed(&self, error: &AttemptError, node: &Node) -> PlannedEnd {
        if error.kind == ModelErrorKind::ContextExhausted {
            return self.context_rejected(error, node);
        }
        let recommendation = match error.kind {
            ModelErrorKind::RateLimited
            | ModelErrorKind::Overloaded
            | ModelErrorKind::Network
            | ModelErrorKind::Truncated
            | ModelErrorKind::Idle => "Try again later, or use another model.",
            ModelErrorKind::Authentication => "Check the key of this provider.",
            ModelErrorKind::OutOfCredit => {
                "Add credit to the account of this provider or raise its spend limit, or use another model."
            }
            ModelErrorKind::BadRequest | ModelErrorKind::ContextExhausted => {
                "Use another model, or change the task."
            }
            ModelErrorKind::Refused => "Change the task, or use another model.",
            ModelErrorKind::WorkerFailed => {
                "`adjutant workers` says what each worker needs; `adjutant log` shows what it did."
            }
            ModelErrorKind::ScriptEnded => "Add the missing turn to the script, or record again.",
        };
        let outcome = if node.results.has_findings { Outcome::Partial } else { Outcome::Failed };
        let code = if error.kind == ModelErrorKind::WorkerFailed {
            ErrorCode::ToolUnavailable
        } else {
            ErrorCode::ProviderError
        };
        PlannedEnd::new(outcome, code, error.to_string(), recommendation)
    }
}

/// Tokens kept free beyond a full answer, so that an agent close to a limit can be warned and still
/// report.
const fn grace(wish: u64) -> u64 {
    wish / 4 + LAST_CALL.len() as u64
}

fn out_of_turns(max: u32) -> PlannedEnd {
    let s = if max == 1 { "" } else { "s" };
    PlannedEnd::partial(
        ErrorCode::BudgetExceeded,
        format!("The definition of the agent allows {max} turn{s}, and all were taken."),
        "Split the task, or allow the agent more turns in its file.",
    )
}

pub(super) fn worst_case_cost(node: &Node, input: u64, output: u64) -> crate::Usd {
    node.model
        .as_ref()
        .and_then(|model| model.price)
        .map(|price| price.max_cost(input, output))
        .unwrap_or_default()
}

/// Returns the output tokens that the rest of the money can pay for.
fn affordable_output(node: &Node, input: u64, left: BudgetAmount) -> u64 {
    let per_million = worst_case_cost(node, 0, 1_000_000).as_pico();
    let spare = left.usd.saturating_sub(worst_case_cost(node, input, 0)).as_pico();
    if per_million == 0 {
        return u64::MAX;
    }
    u64::try_from(u128::from(spare) * 1_000_000 / u128::from(per_million)).unwrap_or(u64::MAX)
}

fn settle(node: &Node, open: &Reservation, reply: &ModelReply) -> Settlement {
    let price = node.model.as_ref().and_then(|model| model.price);
    reply.usage.map_or_else(
        || Settlement::estimated(open),
        |usage| Settlement {
            usage,
            usd: price.map(|price| price.cost(&usage)).unwrap_or_default(),
            estimated: false,
        },
    )
}

pub(super) fn settle_failed(error: &AttemptError, open: &Reservation) -> Settlement {
    if error.never_began { Settlement::never_began() } else { Settlement::estimated(open) }
}

impl Node {
    /// Returns the number of the open attempt, not counting attempts before a resume.
    pub(super) fn open_attempt_number(&self) -> u32 {
        self.attempts().map_or(1, |it| it.made.saturating_sub(it.excused).max(1))
    }

    /// Returns the open reservation, if it is for this turn and attempt.
    fn open(&self, turn: u32, attempt: u32) -> Option<Reservation> {
        let open = self.reservation();
        open.filter(|open| open.turn == turn && open.attempt == attempt)
    }
}
