//! Folds recorded events into the tree. Nothing is judged here; an event that contradicts the state
//! means a damaged or foreign journal and is an [`IllegalEvent`].

use std::collections::VecDeque;

use super::admission::fingerprint;
use super::host_approvals::HostApproval;
use super::node::Node;
use super::node_parts::{OpenDelegation, TurnLimit};
use super::phase::Phase;
use super::tool_use::uses_tools;
use super::turn_state::{LastAnswer, OpenToolCalls, TurnState};
use super::{DeadlineKind, KnownAgent, ROOT, Tree};
use crate::assignment::UpdateTrigger;
use crate::budget::{BudgetCap, BudgetLedger, Reservation, Settlement};
use crate::environment::GrantedLimits;
use crate::event::{AddedMessageReason, Event, Grant, IllegalEvent};
use crate::fingerprint::Fingerprint;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::{ModelSpec, StopReason, ToolSpec};
use crate::outcome::{Outcome, OutcomeReason};
use crate::policy::Policy;
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::write::WriteIntent;

pub(super) fn evolve(tree: &mut Tree, at: Timestamp, event: &Event) -> Result<(), IllegalEvent> {
    tree.read_opening(event);
    match event {
        Event::RunStarted {
            run,
            agent,
            goal,
            policy,
            model,
            base_depth,
            terms,
            environment,
            ..
        } => {
            tree.fold_run_started(*run, agent, goal, policy, model.as_ref())?;
            tree.nodes[ROOT].depth = *base_depth;
            tree.fold_environment(environment.as_deref());
            tree.verify = terms.as_ref().and_then(|terms| terms.verify.clone());
            Ok(())
        }
        Event::AgentDefined { agent, system, tools, rights, max_turns, worker } => {
            tree.fold_agent_defined(agent, system, tools, rights, *max_turns);
            tree.fold_worker_terms(agent, worker.as_deref());
            Ok(())
        }
        Event::Delegated { session, call, origin } => {
            let index = tree.running_index("delegated", *session)?;
            let open = OpenDelegation { origin: *origin, live: 0 };
            let node = &mut tree.nodes[index];
            node.delegations.open.insert(*call, open);
            if origin.index.is_none() {
                node.await_results();
            }
            Ok(())
        }
        Event::Granted(grant) => tree.fold_granted(at, grant),
        Event::Refused { parent, call, reason, .. } => {
            let parent = tree.known_index("refused", *parent)?;
            tree.nodes[parent].delegations.numbered += 1;
            tree.nodes[parent].delegations.refusal = Some(reason.clone());
            tree.nodes[parent].delegations.calls_made = *call;
            tree.nodes[parent].delegations.ends.push(Outcome::Refused);
            Ok(())
        }
        Event::ApprovalAsked { parent, call, hash, expires } => {
            tree.fold_approval_asked(*parent, *call, hash, *expires)
        }
        Event::AutoApproved { amount, .. } => {
            tree.auto_approved += *amount;
            Ok(())
        }
        Event::Approved { hash, up_to, .. } => {
            tree.fold_approval_answered("approved", hash, true)?;
            tree.allow_further_calls(*up_to);
            Ok(())
        }
        Event::Denied { hash, .. } => tree.fold_approval_answered("denied", hash, false),
        Event::Started { session, deadline, bound } => {
            tree.fold_started(at, *session, *deadline, *bound)
        }
        Event::Reserved { session, reservation } => tree.fold_reserved(at, *session, *reservation),
        Event::Replied { .. } => tree.fold_replied(event),
        Event::AttemptFailed { session, settlement, retry_at, .. } => {
            let index = tree.close("attempt_failed", *session, settlement)?;
            if let Some(at) = retry_at {
                tree.retry_at(index, *at);
            }
            Ok(())
        }
        Event::Settled { session, settlement, .. } => {
            tree.close("settled", *session, settlement).map(drop)
        }
        Event::WorkerCallReserved { session, call, model, max_output, amount, .. } => {
            tree.fold_call_reserved(at, *session, *call, (model, *max_output, *amount))
        }
        Event::WorkerCallRefused { session, refusal, needed } => {
            tree.fold_call_refused(*session, refusal, *needed)
        }
        Event::WorkerCallSettled { session, call, settlement, end } => {
            tree.fold_call_settled(at, *session, *call, settlement, end)
        }
        Event::WorkerSessionOpened { session, id, .. } => tree.fold_worker_session(*session, id),
        Event::WorkerActed { session, action } => tree.fold_worker_acted(at, *session, action),
        Event::Progressed { session, .. } => {
            let index = tree.known_index("progressed", *session)?;
            tree.restart_stall_timer(at, index);
            Ok(())
        }
        // The request is not sent before `until`, so the stall timer starts then.
        Event::Paused { session, until, .. } => {
            let index = tree.known_index("paused", *session)?;
            tree.restart_stall_timer(at.max(*until), index);
            Ok(())
        }
        Event::Messaged { session, text } => tree.fold_messaged(*session, text),
        Event::Told { session, nudge, text } => tree.fold_told(*session, *nudge, text),
        Event::NoteSkipped { session } => tree.fold_note_skipped(*session),
        Event::Continued { session, brief, handover } => {
            tree.fold_continued(*session, brief, handover)
        }
        Event::ToolCalled { session, call } => {
            let index = tree.running_index("tool_called", *session)?;
            if let Some(calls) = tree.nodes[index].calls_mut() {
                calls.begin(*call);
            }
            tree.remember_call(index, *call);
            Ok(())
        }
        Event::WritePrepared { session, call, intent } => {
            let index = tree.running_index("write_prepared", *session)?;
            let node = &mut tree.nodes[index];
            for change in intent.changes() {
                let originals = &mut node.results.originals;
                originals.entry(change.path.clone()).or_insert_with(|| change.before.clone());
            }
            if let Some(calls) = node.calls_mut() {
                calls.prepared.insert(*call, intent.clone());
            }
            Ok(())
        }
        Event::DomainAsked { session, call, host, expires } => {
            let index = tree.running_index("domain_asked", *session)?;
            tree.domain_asked(index, *call, host, *expires);
            Ok(())
        }
        Event::DomainAllowed { host } => {
            tree.domains.insert(host.clone(), HostApproval::Allowed);
            Ok(())
        }
        Event::DomainDenied { host, reason } => {
            tree.domains.insert(host.clone(), HostApproval::Denied(reason.clone()));
            Ok(())
        }
        Event::ToolRefused { session, call, text } => {
            let index = tree.running_index("tool_refused", *session)?;
            tree.let_go(index, *call);
            tree.remember_call(index, *call);
            tree.answer_call(index, *call, text.len())
        }
        Event::ToolReturned { session, call, output } => {
            let index = tree.running_index("tool_returned", *session)?;
            let node = &mut tree.nodes[index];
            node.results.has_findings |= output.note.is_some();
            node.continuations.has_used_tool |= !output.is_error;
            let writes = node.calls().filter(|calls| calls.writing.contains(call));
            if let Some(calls) = writes {
                // A write that found the file already as wanted has no prepared change, and a patch that failed
                // halfway has written only what the result names.
                let prepared = calls.prepared.get(call);
                let made = prepared.filter(|_| !output.is_error).into_iter();
                let paths = made.flat_map(WriteIntent::changes).map(|change| change.path.clone());
                let touched =
                    output.touched.iter().filter(|_| !output.is_error || prepared.is_some());
                let changed: Vec<String> = paths.chain(touched.cloned()).collect();
                node.results.changed.extend(changed);
            }
            let is_open = |open: &OpenDelegation| open.origin.index != Some(*call) || open.live > 0;
            node.delegations.open.retain(|_, open| is_open(open));
            tree.answer_call(index, *call, output.content.len())
        }
        Event::Assigned(assignment) => {
            tree.assigned(assignment);
            Ok(())
        }
        Event::StoryTaken { story, deadline } => tree.story_taken(story, *deadline),
        Event::MarkersRead { session, rejected, refused, .. } => {
            tree.markers_read(*session, rejected, refused.as_ref())
        }
        Event::Checking { session, .. } => tree.checking(*session),
        Event::Checked { session, passed, .. } => tree.checked(*session, *passed),
        Event::Merged { session, .. } => tree.fold_merged(*session),
        Event::Judged { session, call, returned, .. } => {
            tree.fold_judged(*session, *call, returned.as_deref())
        }
        Event::SpaceMade { session, space, project } => {
            tree.space_made(*session, space, project.as_deref())
        }
        Event::SpaceKept { session, kept, problem } => {
            tree.space_kept(*session, kept, problem.as_deref())
        }
        Event::Marked { session, mark, problem } => {
            tree.mark_made(*session, mark, problem.as_deref())
        }
        Event::Resumed {
            rights,
            agents,
            model,
            timeout_s,
            deadlines,
            questions_until,
            limits,
            terms,
            ..
        } => {
            if let Some(terms) = terms {
                tree.verify.clone_from(&terms.verify);
            }
            tree.set_limits(limits)?;
            tree.resumed(rights, agents, model.as_ref());
            tree.ask_until(*questions_until);
            tree.give_time(at, *timeout_s, deadlines, limits);
            Ok(())
        }
        Event::Reopened(reopening) => tree.fold_reopened(at, reopening),
        Event::Ended { session, outcome, reason } => {
            tree.fold_ended(*session, *outcome, reason.as_ref())
        }
        Event::RunEnded { outcome } => {
            tree.ended = Some(*outcome);
            Ok(())
        }
        Event::Overran { .. }
        | Event::WorkerReported { .. }
        | Event::Printed { .. }
        | Event::Crashed { .. }
        | Event::Late { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::ErrorFixed { .. } => Ok(()),
    }
}

pub(super) fn illegal_event(event: &'static str, problem: impl Into<String>) -> IllegalEvent {
    IllegalEvent { event, problem: problem.into() }
}

impl Tree {
    fn fold_run_started(
        &mut self,
        run: RunId,
        agent: &AgentName,
        goal: &str,
        policy: &Policy,
        model: Option<&ModelSpec>,
    ) -> Result<(), IllegalEvent> {
        if self.run.is_some() {
            return Err(illegal_event("run_started", "the run had already started"));
        }
        self.run = Some(run);
        self.policy = policy.clone();
        let session = run.root_session();
        let label =
            Label::new("root").map_err(|error| illegal_event("run_started", error.to_string()))?;
        let rights = Rights::of(policy);
        let cap = BudgetCap { tokens: policy.budget_tokens_run, usd: policy.budget_usd };
        let mut root = Node::blank(session, agent.clone(), label, rights, cap);
        root.phase = Phase::Working(TurnState::first(model));
        root.terms.works = false;
        root.time.started = Some(Timestamp::ZERO);
        root.delegations.places = policy.concurrency;
        root.model = model.cloned();
        root.context.appended_bytes = goal.len() as u64;
        root.continuations.brief_bytes = goal.len() as u64;
        root.terms.fingerprint =
            (!goal.trim().is_empty()).then(|| Fingerprint::of(agent, goal, &[]));
        self.by_session.insert(session, 0);
        self.nodes.push(root);
        Ok(())
    }

    fn fold_agent_defined(
        &mut self,
        agent: &AgentName,
        system: &str,
        tools: &[ToolSpec],
        rights: &Rights,
        max_turns: Option<u32>,
    ) {
        let tool_bytes: usize = tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len())
            .sum();
        let preamble_bytes = (system.len() + tool_bytes) as u64;
        let known = KnownAgent { rights: rights.clone(), preamble_bytes, worker: None };
        if let Some(root) = self.nodes.first_mut()
            && root.agent == *agent
        {
            root.context.appended_bytes += preamble_bytes;
            root.continuations.brief_bytes += preamble_bytes;
            root.rights = root.rights.intersection(rights);
            root.turn_limit = TurnLimit::new(max_turns);
            root.granted_limits.turns = max_turns;
            self.check_readiness(ROOT);
        }
        self.agents.get_or_insert_default().insert(agent.clone(), known);
    }

    fn fold_reserved(
        &mut self,
        at: Timestamp,
        session: SessionId,
        reservation: Reservation,
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("reserved", session)?;
        self.each_scope(index, |ledger| ledger.reserve(reservation.amount));
        self.take_model_call(index);
        let node = &mut self.nodes[index];
        node.turn = reservation.turn;
        node.call_model(reservation);
        if let Some(worker) = &mut node.worker {
            worker.begin_turn();
        }
        self.restart_stall_timer(at, index);
        Ok(())
    }

    fn fold_replied(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        let Event::Replied {
            session,
            text,
            tool_calls,
            translations,
            stop,
            opaque,
            settlement,
            ..
        } = event
        else {
            return Ok(());
        };
        let index = self.close("replied", *session, settlement)?;
        let is_whole = matches!(stop, StopReason::EndTurn | StopReason::ToolUse);
        let is_note = self.nodes[index].continuations.is_note_asked;
        let is_last = is_note || self.nodes[index].corrections.last_call.is_some();
        let markers = if is_whole && !is_last { self.markers_in(text) } else { None };
        let node = &mut self.nodes[index];
        let arguments: usize =
            tool_calls.iter().map(|call| call.arguments.to_string().len() + call.name.len()).sum();
        let opaque = opaque.as_ref().map_or(0, |opaque| opaque.to_string().len());
        node.context.settled_input = Some(settlement.usage.input_total());
        node.context.appended_bytes = (text.len() + arguments + opaque) as u64;
        node.results.has_findings |= !text.trim().is_empty();
        let uses_tools = uses_tools(*stop, tool_calls, is_last);
        let is_blank = text.trim().is_empty();
        let next = match markers {
            None if is_note => TurnState::Continuing { has_note: is_whole && !is_blank },
            Some(markers) => TurnState::Delegating(markers),
            None if uses_tools => TurnState::default(),
            None => TurnState::Judging(LastAnswer { stop: *stop, is_blank }),
        };
        *node.turn_state_mut() = if uses_tools {
            TurnState::UsingTools(OpenToolCalls::new(tool_calls, translations, next))
        } else {
            next
        };
        Ok(())
    }

    fn fold_granted(&mut self, at: Timestamp, grant: &Grant) -> Result<(), IllegalEvent> {
        let parent = self.known_index("granted", grant.parent)?;
        if self.by_session.contains_key(&grant.session) {
            return Err(illegal_event("granted", format!("{} exists already", grant.session)));
        }
        let index = self.nodes.len();
        let cap = BudgetCap { tokens: self.policy.budget_tokens, usd: None };
        let brief = &grant.brief;
        let mut node = Node::blank(
            grant.session,
            brief.agent.clone(),
            brief.label.clone(),
            grant.rights.clone(),
            cap,
        );
        node.depth = grant.depth;
        node.parent = Some(parent);
        node.call = grant.call;
        node.model.clone_from(&brief.model);
        node.worker = self.worker_of(&brief.agent);
        let first = TurnState::first(brief.model.as_ref());
        node.phase = if grant.awaiting_approval {
            Phase::AwaitingApproval(first)
        } else {
            Phase::Queued(first)
        };
        node.terms.fingerprint = fingerprint(brief);
        node.terms.story.clone_from(&brief.story);
        node.time.timeout_s = grant.timeout_s;
        node.terms.task = grant.task;
        node.terms.artifacts_required = brief.artifacts_required;
        node.terms.verify.clone_from(&brief.verify);
        node.terms.max_output_wish = brief.max_output_tokens;
        node.turn_limit = TurnLimit::new(brief.max_turns);
        node.context.appended_bytes = grant.opening_bytes;
        node.continuations.brief_bytes = grant.opening_bytes;
        node.context.environment_bytes =
            self.environment_bytes(parent, &grant.rights, brief.instructions.as_deref());
        node.granted_limits = GrantedLimits {
            seconds: grant.timeout_s,
            tokens: self.policy.budget_tokens,
            turns: brief.max_turns,
        };
        node.delegations.places = self.policy.concurrency;
        if let Some(story) = &brief.story {
            let above = self.nodes[parent]
                .terms
                .story
                .clone()
                .unwrap_or_else(|| self.nodes[parent].agent.to_string());
            self.stories.connect(&above, story);
        }
        self.nodes.push(node);
        self.by_session.insert(grant.session, index);
        self.granted += 1;
        self.live += 1;
        let total = self.policy.total_s.map(|seconds| at.plus_seconds(seconds));
        let above = &mut self.nodes[parent];
        above.delegations.children.push(index);
        above.delegations.granted += 1;
        above.delegations.numbered += 1;
        above.loops.vain_markers = 0;
        above.delegations.live += 1;
        above.delegations.calls_made = grant.call;
        if let Some(open) = above.delegations.open.get_mut(&grant.call) {
            open.live += 1;
        }
        above.delegations.places = grant.places;
        above.delegations.total_deadline = above.delegations.total_deadline.or(total);
        self.waiting += 1;
        if !grant.awaiting_approval {
            self.nodes[parent].delegations.queue.push_back(index);
        }
        Ok(())
    }

    fn fold_started(
        &mut self,
        at: Timestamp,
        session: SessionId,
        deadline: Option<Timestamp>,
        bound: TimeBound,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("started", session)?;
        let Some(parent) = self.nodes[index].parent else {
            return self.root_started(at, index, deadline, bound);
        };
        // Slots are given in order; children that ended while waiting are skipped.
        let next = loop {
            match self.nodes[parent].delegations.queue.pop_front() {
                Some(ended) if !self.nodes[ended].is_live() => {}
                next => break next,
            }
        };
        if next != Some(index) {
            return Err(illegal_event("started", format!("{session} was not next in the queue")));
        }
        self.nodes[parent].delegations.running += 1;
        let node = &mut self.nodes[index];
        node.time.started = Some(at);
        node.time.deadline = deadline;
        node.time.bound = bound;
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, index, DeadlineKind::Timeout));
        }
        self.open_mark(index, UpdateTrigger::Begun);
        self.enter_work(index);
        Ok(())
    }

    fn fold_messaged(&mut self, session: SessionId, text: &str) -> Result<(), IllegalEvent> {
        let index = self.known_index("messaged", session)?;
        let node = &mut self.nodes[index];
        if !node.is_live() {
            return Err(illegal_event("messaged", format!("{session} had already ended")));
        }
        node.mailbox.push_back(text.to_owned());
        Ok(())
    }

    fn fold_told(
        &mut self,
        session: SessionId,
        nudge: AddedMessageReason,
        text: &str,
    ) -> Result<(), IllegalEvent> {
        let index = self.running_index("told", session)?;
        let node = &mut self.nodes[index];
        node.context.appended_bytes += text.len() as u64;
        node.discard_last_answer();
        match nudge {
            AddedMessageReason::LastCall(code) => node.corrections.last_call = Some(code),
            AddedMessageReason::Shorten => node.corrections.shortened = true,
            AddedMessageReason::Repair => node.corrections.repairs += 1,
            AddedMessageReason::Check => {}
            AddedMessageReason::HandoverNote => node.continuations.is_note_asked = true,
            AddedMessageReason::Results => {
                node.delegations.open.retain(|_, open| open.origin.index.is_some());
                node.delegations.rejected.clear();
                node.take_results();
            }
            AddedMessageReason::Person => {
                node.mailbox.pop_front().ok_or_else(|| illegal_event("told", "no word waits"))?;
                node.continuations.brief_bytes += text.len() as u64;
            }
        }
        Ok(())
    }

    fn fold_ended(
        &mut self,
        session: SessionId,
        outcome: Outcome,
        reason: Option<&OutcomeReason>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("ended", session)?;
        if !self.nodes[index].is_live() {
            return Err(illegal_event("ended", format!("{session} had already ended")));
        }
        let was_running = self.nodes[index].is_running();
        let was_asked_about = self.nodes[index].is_awaiting_approval();
        self.enter_end(index, outcome, reason.cloned());
        let node = &mut self.nodes[index];
        // Open calls and undelivered messages are kept for a resume.
        node.loops.recent_calls = VecDeque::new();
        if let Some(deadline) = node.time.deadline {
            self.timers.remove(&(deadline, index, DeadlineKind::Timeout));
        }
        self.forget_fetches(index);
        if was_asked_about {
            self.forget_idle_questions();
        }
        self.open_mark(index, UpdateTrigger::Ended);
        self.open_keep(index);
        let call = self.nodes[index].call;
        if let Some(parent) = self.nodes[index].parent {
            self.live -= 1;
            let above = &mut self.nodes[parent];
            above.delegations.live -= 1;
            if let Some(open) = above.delegations.open.get_mut(&call) {
                // In a damaged journal a call may have been recorded after its grants.
                open.live = open.live.saturating_sub(1);
            }
            above.delegations.ends.push(outcome);
            if was_running {
                above.delegations.running -= 1;
            }
        }
        Ok(())
    }

    /// Settles the running model call in every scope.
    fn close(
        &mut self,
        event: &'static str,
        session: SessionId,
        settlement: &Settlement,
    ) -> Result<usize, IllegalEvent> {
        let index = self.running_index(event, session)?;
        let call = self.take_model_call(index);
        let open = call.ok_or_else(|| illegal_event(event, "no call is under way"))?.reservation;
        self.each_scope(index, |ledger| ledger.settle(open.amount, settlement.amount()));
        let node = &mut self.nodes[index];
        node.usage += settlement.usage;
        node.cost += settlement.usd;
        Ok(index)
    }

    pub(super) fn each_scope(&mut self, index: usize, mut change: impl FnMut(&mut BudgetLedger)) {
        let mut scope = Some(index);
        while let Some(index) = scope {
            change(&mut self.nodes[index].ledger);
            scope = self.nodes[index].parent;
        }
    }

    fn remember_call(&mut self, index: usize, call: u32) {
        let node = &mut self.nodes[index];
        let Some(call) = node.open_call(call) else { return };
        let fingerprint = Fingerprint::of_call(&call.name, &call.arguments);
        node.loops.remember(fingerprint);
    }

    fn answer_call(&mut self, index: usize, call: u32, bytes: usize) -> Result<(), IllegalEvent> {
        let node = &mut self.nodes[index];
        if !node.close_call(call) {
            return Err(illegal_event("tool result", format!("call {call} is not open")));
        }
        node.context.appended_bytes += bytes as u64;
        Ok(())
    }

    pub(super) fn known_index(
        &self,
        event: &'static str,
        session: SessionId,
    ) -> Result<usize, IllegalEvent> {
        self.by_session
            .get(&session)
            .copied()
            .ok_or_else(|| illegal_event(event, format!("{session} is unknown")))
    }

    pub(super) fn running_index(
        &self,
        event: &'static str,
        session: SessionId,
    ) -> Result<usize, IllegalEvent> {
        let index = self.known_index(event, session)?;
        if self.nodes[index].is_running() {
            Ok(index)
        } else {
            Err(illegal_event(event, format!("{session} is {}", self.nodes[index].state().word())))
        }
    }
}
