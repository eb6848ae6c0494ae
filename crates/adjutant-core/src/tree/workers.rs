//! External workers: their prompts, and the model calls that they make through the gateway.
//!
//! A worker's turn is one prompt and its answer. Between the two it makes any number of model calls, several at a time;
//! each is admitted, reserved and settled here like a model call of Adjutant's own agents. Start at
//! [`Tree::admit_call`].
//!
//! Workers end their turns in the same way whether or not their last model call succeeded. So the model calls of a turn
//! decide whether its answer counts, not what the worker says; see `CallTrouble`.

use std::collections::BTreeMap;

use super::evolve::illegal_event;
use super::node::{Node, PlannedEnd};
use super::turn::{MIN_OUTPUT, UnrecordedReservations};
use super::{ROOT, Tree};
use crate::budget::{BudgetAmount, Reservation, Settlement};
use crate::code::ErrorCode;
use crate::command::Effect;
use crate::event::{AddedMessageReason, Event, IllegalEvent};
use crate::ids::{AgentName, SessionId};
use crate::message::ModelSpec;
use crate::money::Usd;
use crate::numbers::grouped;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::worker::{
    CallRefusal, FAILED_CALLS_IN_A_ROW, WorkerAction, WorkerCallEnd, WorkerCallRequest,
    WorkerPlace, WorkerTerms,
};
use crate::write::{EDIT, RUN, WRITE, WriteScope};

/// What the tree knows about the worker of a node.
#[derive(Clone, Debug)]
pub(super) struct WorkerState {
    terms: WorkerTerms,
    /// The running model calls, by number.
    open: BTreeMap<u32, OpenWorkerCall>,
    /// The number of the last admitted call.
    calls_made: u32,
    /// The calls admitted before the node was last resumed, which do not count against the limit of its definition.
    calls_before_resume: u32,
    /// How many calls in a row were refused or failed.
    failed_in_a_row: u32,
    /// Whether a call of the present turn was answered completely.
    has_answer: bool,
    trouble: Option<CallTrouble>,
    /// What the last call that was refused for a budget of the present turn needs at least.
    needed: Option<BudgetAmount>,
    /// The worker's own id of its last session.
    session_id: Option<String>,
}

/// A running model call of a worker.
#[derive(Clone, Debug)]
struct OpenWorkerCall {
    /// As `provider/model`.
    model: String,
    max_output: u64,
    amount: BudgetAmount,
}

/// A model call of the present turn that did not succeed. Unless a later call succeeds, the turn does not count.
#[derive(Clone, Debug)]
struct CallTrouble {
    kind: TroubleKind,
    /// The last call that was admitted before. Calls up to it ran at the same time and prove nothing.
    after_call: u32,
}

#[derive(Clone, Debug)]
enum TroubleKind {
    /// A call was refused for a reason that no later call can remove.
    Exhausted(CallRefusal),
    /// A request could not be forwarded.
    Refused(CallRefusal),
    Cut {
        max_output: u64,
    },
    Failed {
        message: String,
    },
}

impl WorkerState {
    fn new(terms: WorkerTerms) -> Self {
        Self {
            terms,
            open: BTreeMap::new(),
            calls_made: 0,
            calls_before_resume: 0,
            failed_in_a_row: 0,
            has_answer: false,
            trouble: None,
            needed: None,
            session_id: None,
        }
    }

    /// Forgets what happened in the turn before.
    pub(super) fn begin_turn(&mut self) {
        (self.has_answer, self.trouble, self.needed) = (false, None, None);
    }

    /// Records that the node was resumed.
    pub(super) const fn begin_again(&mut self) {
        self.calls_before_resume = self.calls_made;
        self.failed_in_a_row = 0;
    }

    /// Returns the models that it may call for a task.
    fn models<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a ModelSpec> {
        node.model.iter().chain(&self.terms.further_models)
    }

    /// Returns the model that a request names, with or without its provider.
    fn model_named<'a>(&'a self, node: &'a Node, name: &str) -> Option<&'a ModelSpec> {
        self.models(node).find(|model| {
            model.name == name || model.name.split_once('/').is_some_and(|(_, bare)| bare == name)
        })
    }

    /// Returns the limit on its model calls, if all of them were made.
    fn reached_limit(&self, each: Option<u32>) -> Option<u32> {
        let calls = self.calls_made.saturating_sub(self.calls_before_resume);
        each.filter(|max| calls >= *max)
    }

    fn note_trouble(&mut self, kind: TroubleKind) {
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        let is_final = |it: &CallTrouble| matches!(it.kind, TroubleKind::Exhausted(_));
        if !self.trouble.as_ref().is_some_and(is_final) {
            self.trouble = Some(CallTrouble { kind, after_call: self.calls_made });
        }
    }

    fn note_answer(&mut self, call: u32) {
        self.failed_in_a_row = 0;
        self.has_answer = true;
        let is_over = |it: &CallTrouble| {
            !matches!(it.kind, TroubleKind::Exhausted(_)) && call > it.after_call
        };
        if self.trouble.as_ref().is_some_and(is_over) {
            self.trouble = None;
        }
    }
}

impl OpenWorkerCall {
    /// Returns the settlement of a call without a usage record: its full reservation.
    const fn full_settlement(&self) -> Settlement {
        Settlement::estimated(&Reservation {
            turn: 0,
            attempt: 0,
            max_output: self.max_output,
            amount: self.amount,
            last_call: false,
        })
    }
}

impl Tree {
    /// Refuses a task whose worker is not available or could not be bound to the rights of the task.
    pub(super) fn check_worker(&self, agent: &AgentName, rights: &Rights) -> Result<(), Refusal> {
        let Some(terms) = self.worker_terms(agent) else { return Ok(()) };
        let refuse = |problem: String| Err(Refusal::Worker { worker: terms.name.clone(), problem });
        if let Some(problem) = &terms.problem {
            return refuse(problem.clone());
        }
        if terms.place == WorkerPlace::Terminal {
            return Ok(());
        }
        if rights.writes != WriteScope::Own {
            return refuse(
                "it works only in a workspace of its own, and this run gives agents none"
                    .to_owned(),
            );
        }
        if rights.network {
            return refuse(
                "it works only without network; its model calls go through the gateway".to_owned(),
            );
        }
        // A worker brings its own tools, which read, write and run commands.
        let missing = [EDIT, WRITE, RUN].into_iter().find(|tool| !rights.tools.contains(tool));
        match missing {
            Some(tool) => refuse(format!(
                "`{agent}` may not use {tool}, and this worker cannot be kept from it; leave `worker` out, or \
                 allow {EDIT}, {WRITE} and {RUN}"
            )),
            None => Ok(()),
        }
    }

    fn worker_terms(&self, agent: &AgentName) -> Option<&WorkerTerms> {
        self.agents.as_ref()?.get(agent)?.worker.as_deref()
    }

    /// Returns the name of the worker that does the work of an agent.
    #[must_use]
    pub fn worker_name(&self, agent: &AgentName) -> Option<&str> {
        self.worker_terms(agent).map(|terms| terms.name.as_str())
    }

    /// Returns the state of the worker that does the work of an agent, at its start.
    pub(super) fn worker_of(&self, agent: &AgentName) -> Option<Box<WorkerState>> {
        self.worker_terms(agent).map(|terms| Box::new(WorkerState::new(terms.clone())))
    }

    /// Gives a worker its next prompt, or ends it if it may make no further model call.
    pub(super) fn prompt_worker(&self, index: usize, held: &UnrecordedReservations) -> Vec<Event> {
        let node = &self.nodes[index];
        let session = node.session;
        let can_pay = self.scopes(index).all(|scope| {
            let left = self.nodes[scope].ledger.remaining().minus(held.held_in(scope));
            let is_priced = node.model.as_ref().is_some_and(|model| model.price.is_some());
            left.tokens >= MIN_OUTPUT && (!is_priced || left.usd > Usd::ZERO)
        });
        if !can_pay {
            return self.end_subtree(index, &self.exhausted_end(ErrorCode::BudgetExceeded, node));
        }
        let limit = node.turn_limit.each;
        if let Some(max) = node.worker.as_ref().and_then(|worker| worker.reached_limit(limit)) {
            return self.end_subtree(index, &all_calls_made(max));
        }
        let attempts = node.attempts().map_or(0, |attempts| attempts.made);
        let turn = if attempts > 0 { node.turn } else { node.turn + 1 };
        let person = |text| Event::Told { session, nudge: AddedMessageReason::Person, text };
        let mut events: Vec<Event> = self.mail(index, node, held).into_iter().map(person).collect();
        // Only model calls cost something; each is reserved when the worker makes it.
        let reservation = Reservation {
            turn,
            attempt: attempts + 1,
            max_output: 0,
            amount: BudgetAmount::default(),
            last_call: false,
        };
        events.push(Event::Reserved { session, reservation });
        events
    }

    /// Admits or refuses a model call of a worker. No events mean that no prompt is open.
    pub(super) fn admit_call(&self, session: SessionId, request: &WorkerCallRequest) -> Vec<Event> {
        let Some((index, node)) = self.at_work(session) else { return Vec::new() };
        let Some(worker) = &node.worker else { return Vec::new() };
        if node.reservation().is_none() {
            return Vec::new();
        }
        if let Some(problem) = &request.problem {
            return self.refuse_call(
                index,
                CallRefusal::Request { problem: problem.clone() },
                None,
            );
        }
        let Some(model) = worker.model_named(node, &request.model) else {
            let refusal = CallRefusal::Model { model: request.model.clone() };
            return self.refuse_call(index, refusal, None);
        };
        match self.judge_call(index, model, request) {
            Ok(max_output) => vec![Event::WorkerCallReserved {
                session,
                call: worker.calls_made + 1,
                model: model.name.clone(),
                max_output,
                amount: call_amount(model, request.input_bound, max_output),
                removed: request.removed.clone(),
            }],
            Err(refusal) => {
                let least = MIN_OUTPUT.min(self.call_wish(node, model, request)).max(1);
                let needed = (refusal == CallRefusal::Budget)
                    .then(|| call_amount(model, request.input_bound, least));
                self.refuse_call(index, refusal, needed)
            }
        }
    }

    /// Refuses a call, and ends the worker if too many in a row were refused or have failed.
    fn refuse_call(
        &self,
        index: usize,
        refusal: CallRefusal,
        needed: Option<BudgetAmount>,
    ) -> Vec<Event> {
        let node = &self.nodes[index];
        let session = node.session;
        let failed = node.worker.as_ref().map_or(0, |worker| worker.failed_in_a_row);
        let end = (failed + 1 >= FAILED_CALLS_IN_A_ROW).then(|| {
            if refusal == CallRefusal::Budget {
                self.exhausted_end(ErrorCode::BudgetExceeded, node)
            } else {
                failed_too_often(&refusal.to_string())
            }
        });
        let mut events = vec![Event::WorkerCallRefused { session, refusal, needed }];
        events.extend(end.iter().flat_map(|end| self.end_subtree(index, end)));
        events
    }

    /// Returns the output tokens that a call of this model may ask for.
    fn judge_call(
        &self,
        index: usize,
        model: &ModelSpec,
        request: &WorkerCallRequest,
    ) -> Result<u64, CallRefusal> {
        let node = &self.nodes[index];
        let limit = node.turn_limit.each;
        if let Some(max) = node.worker.as_ref().and_then(|worker| worker.reached_limit(limit)) {
            return Err(CallRefusal::Calls { max });
        }
        let wish = self.call_wish(node, model, request);
        let mut max_output = wish;
        for scope in self.scopes(index) {
            let left = self.nodes[scope].ledger.remaining();
            let tokens = left.tokens.saturating_sub(request.input_bound);
            max_output =
                max_output.min(tokens).min(affordable_output(model, request.input_bound, left.usd));
        }
        if max_output == 0 || max_output < MIN_OUTPUT.min(wish) {
            return Err(CallRefusal::Budget);
        }
        Ok(max_output)
    }

    /// Returns the output tokens that a call would ask for if no budget were too small.
    fn call_wish(&self, node: &Node, model: &ModelSpec, request: &WorkerCallRequest) -> u64 {
        let wish = node.terms.max_output_wish.unwrap_or(self.policy.max_output_tokens);
        wish.min(model.max_output).min(request.requested_output.unwrap_or(u64::MAX))
    }

    /// Settles a model call of a worker, and ends the worker if too many in a row have failed.
    pub(super) fn settle_call(
        &self,
        session: SessionId,
        call: u32,
        end: WorkerCallEnd,
        usage: Option<Usage>,
        never_began: bool,
    ) -> Vec<Event> {
        let late = || {
            let text = format!("model call {call}");
            vec![Event::Late { session, what: "worker call".into(), text }]
        };
        let Some((index, node)) = self.live(session) else { return late() };
        let Some(worker) = &node.worker else { return late() };
        let Some(open) = worker.open.get(&call) else { return late() };
        let price = worker.models(node).find(|it| it.name == open.model).and_then(|it| it.price);
        let settlement = match usage {
            Some(usage) => Settlement {
                usage,
                usd: price.map(|price| price.cost(&usage)).unwrap_or_default(),
                estimated: false,
            },
            None if never_began => Settlement::never_began(),
            None => open.full_settlement(),
        };
        let over = settlement.amount().minus(open.amount);
        let last = match &end {
            WorkerCallEnd::Failed { message } => Some(message.clone()),
            WorkerCallEnd::Complete | WorkerCallEnd::Cut | WorkerCallEnd::Abandoned => None,
        };
        let mut events = vec![Event::WorkerCallSettled { session, call, settlement, end }];
        if !over.is_zero() {
            events.push(Event::Overran { session, amount: over });
        }
        if let Some(last) = last.filter(|_| worker.failed_in_a_row + 1 >= FAILED_CALLS_IN_A_ROW) {
            let is_settled = |event: &Event| {
                matches!(event, Event::WorkerCallSettled { session: of, call: number, .. }
                    if *of == session && *number == call)
            };
            let ended = self.end_subtree(index, &failed_too_often(&last)).into_iter();
            events.extend(ended.filter(|event| !is_settled(event)));
        }
        events
    }

    /// Records a message of a worker that is at work.
    pub(super) fn at_worker(&self, session: SessionId, event: Event) -> Vec<Event> {
        let is_at_work = self.at_work(session).is_some_and(|(_, node)| node.worker.is_some());
        is_at_work.then_some(event).into_iter().collect()
    }

    /// Returns how a worker ends whose answer does not count, because of the model calls of its turn.
    pub(super) fn spoiled_turn_end(&self, node: &Node) -> Option<PlannedEnd> {
        let worker = node.worker.as_ref()?;
        // The gateway settles all calls of the turn before it reports the answer; one that is open now proves nothing.
        let Some(trouble) = &worker.trouble else {
            return (!worker.has_answer).then(no_model_call);
        };
        Some(match &trouble.kind {
            TroubleKind::Exhausted(CallRefusal::Calls { max }) => all_calls_made(*max),
            TroubleKind::Exhausted(_) => self.exhausted_end(ErrorCode::BudgetExceeded, node),
            TroubleKind::Refused(refusal) => PlannedEnd::partial(
                ErrorCode::ToolUnavailable,
                format!("The last model call of the worker was refused: {refusal}."),
                "Switch off what the worker asked for in its own settings, or change the task.",
            ),
            TroubleKind::Cut { max_output } => PlannedEnd::partial(
                ErrorCode::BudgetExceeded,
                format!("The last answer was cut off at {} output tokens.", grouped(*max_output)),
                "Ask for less at once, or start the run again with a larger max_output_tokens.",
            ),
            TroubleKind::Failed { message } => {
                let outcome =
                    if node.results.has_findings { Outcome::Partial } else { Outcome::Failed };
                PlannedEnd::new(
                    outcome,
                    ErrorCode::ProviderError,
                    format!("The last model call of the worker failed: {message}."),
                    "Try again later, or use another model.",
                )
            }
        })
    }
}

impl Tree {
    pub(super) fn fold_worker_terms(&mut self, agent: &AgentName, terms: Option<&WorkerTerms>) {
        if let Some(known) = self.agents.get_or_insert_default().get_mut(agent) {
            known.worker = terms.cloned().map(Box::new);
        }
        if !self.nodes.first().is_some_and(|it| it.agent == *agent && it.model.is_some()) {
            return;
        }
        let fresh = self.worker_of(agent);
        let root = &mut self.nodes[ROOT];
        root.worker = match (root.worker.take(), fresh) {
            // A second definition keeps its running calls and its session.
            (Some(known), Some(fresh)) => {
                Some(Box::new(WorkerState { terms: fresh.terms, ..*known }))
            }
            (_, fresh) => fresh,
        };
    }

    pub(super) fn fold_call_reserved(
        &mut self,
        at: Timestamp,
        session: SessionId,
        call: u32,
        (model, max_output, amount): (&str, u64, BudgetAmount),
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("worker_call_reserved", session)?;
        let worker = self.worker_mut("worker_call_reserved", index)?;
        worker.calls_made = call;
        let open = OpenWorkerCall { model: model.to_owned(), max_output, amount };
        worker.open.insert(call, open);
        self.each_scope(index, |ledger| ledger.reserve(amount));
        self.restart_stall_timer(at, index);
        Ok(())
    }

    pub(super) fn fold_call_refused(
        &mut self,
        session: SessionId,
        refusal: &CallRefusal,
        needed: Option<BudgetAmount>,
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("worker_call_refused", session)?;
        let worker = self.worker_mut("worker_call_refused", index)?;
        worker.needed = needed.or(worker.needed);
        match refusal {
            CallRefusal::Budget | CallRefusal::Calls { .. } => {
                worker.note_trouble(TroubleKind::Exhausted(refusal.clone()));
            }
            CallRefusal::Request { .. } => {
                worker.note_trouble(TroubleKind::Refused(refusal.clone()));
            }
            // Says nothing about the work, but a worker that asks for nothing else is ended too.
            CallRefusal::Model { .. } | CallRefusal::NoPrompt => {
                worker.failed_in_a_row = worker.failed_in_a_row.saturating_add(1);
            }
        }
        Ok(())
    }

    pub(super) fn fold_call_settled(
        &mut self,
        at: Timestamp,
        session: SessionId,
        call: u32,
        settlement: &Settlement,
        end: &WorkerCallEnd,
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("worker_call_settled", session)?;
        let worker = self.worker_mut("worker_call_settled", index)?;
        let open = worker.open.remove(&call).ok_or_else(|| {
            illegal_event("worker_call_settled", format!("call {call} is not open"))
        })?;
        match end {
            WorkerCallEnd::Complete => worker.note_answer(call),
            WorkerCallEnd::Cut => {
                worker.note_trouble(TroubleKind::Cut { max_output: open.max_output });
                // The provider did answer.
                worker.failed_in_a_row = 0;
            }
            WorkerCallEnd::Failed { message } => {
                worker.note_trouble(TroubleKind::Failed { message: message.clone() });
            }
            WorkerCallEnd::Abandoned => {}
        }
        self.each_scope(index, |ledger| ledger.settle(open.amount, settlement.amount()));
        let node = &mut self.nodes[index];
        node.usage += settlement.usage;
        node.cost += settlement.usd;
        self.restart_stall_timer(at, index);
        Ok(())
    }

    pub(super) fn fold_worker_session(
        &mut self,
        session: SessionId,
        id: &str,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("worker_session_opened", session)?;
        self.worker_mut("worker_session_opened", index)?.session_id = Some(id.to_owned());
        Ok(())
    }

    pub(super) fn fold_worker_acted(
        &mut self,
        at: Timestamp,
        session: SessionId,
        action: &WorkerAction,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("worker_acted", session)?;
        if let WorkerAction::Said { text } = action {
            self.nodes[index].results.has_findings |= !text.trim().is_empty();
        }
        self.restart_stall_timer(at, index);
        Ok(())
    }

    fn worker_mut(
        &mut self,
        event: &'static str,
        index: usize,
    ) -> Result<&mut WorkerState, IllegalEvent> {
        let session = self.nodes[index].session;
        let worker = self.nodes[index].worker.as_deref_mut();
        worker.ok_or_else(|| illegal_event(event, format!("{session} has no worker")))
    }
}

impl Node {
    /// Returns the terms of the external agent that does its work.
    #[must_use]
    pub fn worker(&self) -> Option<&WorkerTerms> {
        self.worker.as_ref().map(|worker| &worker.terms)
    }

    /// Returns the worker's own id of its last session.
    #[must_use]
    pub fn worker_session(&self) -> Option<&str> {
        self.worker.as_ref()?.session_id.as_deref()
    }

    /// Says that its worker, or the model that the worker waits for, was silent, as a sentence without its first word
    /// "The"; `None` without a worker.
    pub(super) fn worker_silence(&self, seconds: &str) -> Option<String> {
        let worker = self.worker.as_ref()?;
        let name = &worker.terms.name;
        Some(if worker.open.is_empty() {
            format!("worker {name} was silent for {seconds} s: no message and no model call")
        } else {
            format!("worker {name} waits for its model, which sent no byte for {seconds} s")
        })
    }

    /// Returns a running model call of its worker: the model as `provider/model`, and the output tokens it may ask for.
    #[must_use]
    pub fn worker_call(&self, call: u32) -> Option<(&str, u64)> {
        let open = self.worker.as_ref()?.open.get(&call)?;
        Some((&open.model, open.max_output))
    }

    /// Returns what the model call of its worker needs at least that was refused for a budget.
    pub(super) fn needed_for_call(&self) -> Option<BudgetAmount> {
        self.worker.as_ref()?.needed
    }

    /// Returns the effects of its worker's running model calls.
    pub(super) fn forwarded_calls(&self) -> impl Iterator<Item = Effect> {
        let session = self.session;
        let open = self.worker.iter().flat_map(|worker| worker.open.keys());
        open.map(move |call| Effect::ForwardCall { session, call: *call })
    }

    /// Returns the events that settle its worker's running model calls at their full reservation.
    pub(super) fn abandoned_calls(&self) -> impl Iterator<Item = Event> {
        let session = self.session;
        let open = self.worker.iter().flat_map(|worker| &worker.open);
        open.map(move |(call, open)| Event::WorkerCallSettled {
            session,
            call: *call,
            settlement: open.full_settlement(),
            end: WorkerCallEnd::Abandoned,
        })
    }
}

fn call_amount(model: &ModelSpec, input: u64, output: u64) -> BudgetAmount {
    let usd = model.price.map(|price| price.max_cost(input, output)).unwrap_or_default();
    BudgetAmount { tokens: input.saturating_add(output), usd }
}

/// Returns the output tokens that this much money can pay for after the input.
fn affordable_output(model: &ModelSpec, input: u64, left: Usd) -> u64 {
    let per_million = call_amount(model, 0, 1_000_000).usd.as_pico();
    if per_million == 0 {
        return u64::MAX;
    }
    let spare = left.saturating_sub(call_amount(model, input, 0).usd).as_pico();
    u64::try_from(u128::from(spare) * 1_000_000 / u128::from(per_million)).unwrap_or(u64::MAX)
}

fn failed_too_often(last: &str) -> PlannedEnd {
    PlannedEnd::partial(
        ErrorCode::ProviderError,
        format!(
            "{FAILED_CALLS_IN_A_ROW} model calls of the worker in a row were refused or failed; the last one: {last}."
        ),
        "`adjutant log` lists the calls; correct what the last one names, then resume.",
    )
}

fn all_calls_made(max: u32) -> PlannedEnd {
    let calls = if max == 1 { "1 model call".to_owned() } else { format!("{max} model calls") };
    PlannedEnd::partial(
        ErrorCode::BudgetExceeded,
        format!("The definition of the agent allows {calls}, and all were made."),
        "Split the task, or allow the agent more turns in its file.",
    )
}

fn no_model_call() -> PlannedEnd {
    PlannedEnd::new(
        Outcome::Failed,
        ErrorCode::ToolUnavailable,
        "The worker ended its turn without an answer from its model.".to_owned(),
        "`adjutant log` shows what it did; `adjutant workers` says what each worker needs.",
    )
}
