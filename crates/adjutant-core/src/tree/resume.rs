//! Resumes a run after a crash or after its end.
//!
//! Nothing that was done is repeated. A model call that was running counts as spent; a tool that
//! may have had effects is not run again, and its agent is told so. Start at [`Tree::resume`].

use std::collections::{BTreeMap, BTreeSet};

use super::evolve::illegal_event;
use super::mailbox::TELL_BYTES;
use super::node::Node;
use super::node_parts::{ContinuationCounts, CorrectionCounts};
use super::phase::Phase;
use super::rebase::with_rebase_message;
use super::turn_state::{OpenToolCalls, TurnState};
use super::{DeadlineKind, ROOT, Tree};
use crate::budget::Settlement;
use crate::command::ResumeOptions;
use crate::event::{Event, IllegalEvent, Reopening, ToolOutput};
use crate::ids::{AgentName, SessionId};
use crate::message::{ModelSpec, ToolCall};
use crate::outcome::Outcome;
use crate::refusal::{Refusal, TellProblem};
use crate::rights::{Rights, is_repeatable};
use crate::schema::{DELEGATE, RETURN, TASK};
use crate::time::Timestamp;
use crate::tool_call::needed_tools;
use crate::tree::file_writes::WriteFindings;
use crate::workspace::RebasedWork;
use crate::write::is_write;

/// The result of a tool call whose outcome is unknown.
pub(crate) const INTERRUPTED: &str = "Interrupted: nobody knows whether this call took effect, and it was not \
repeated. Look before you make it again.";

/// The message to a resumed agent that had answered last, if the person has none.
const GO_ON: &str = "Go on with your task from where you stopped.";

impl Tree {
    /// Decides what is resumed. No events mean that nothing can be.
    pub(super) fn resume(
        &self,
        now: Timestamp,
        wish: ResumeOptions,
    ) -> Result<Vec<Event>, Refusal> {
        if self.run.is_none() {
            return Ok(Vec::new());
        }
        if let Some(rebased) = &wish.rebased
            && self.check_rebase(rebased.session).is_err()
        {
            return Ok(Vec::new());
        }
        let wish = self.with_default_recipient(with_rebase_message(wish));
        let again = self.to_reopen(&wish);
        if self.ended.is_some() && again.is_empty() {
            return Ok(Vec::new());
        }
        let words = self.queue_messages(&wish)?;
        let times = self.renewed_times(&wish);
        let mut events = vec![Event::Resumed {
            version: wish.version.clone(),
            rights: wish.rights.clone(),
            agents: wish.agents.clone(),
            model: wish.model.clone(),
            timeout_s: times.timeout_s(),
            clamped: times.is_cut(&again),
            deadlines: times.deadlines(now),
            questions_until: now.plus_seconds(times.policy().approval_s),
            terms: wish.terms.clone().map(Box::new),
            limits: self.changed_limits(&wish),
        }];
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            close_open_call(node, &mut events);
            self.close_tool_calls(node, &wish, &mut events);
        }
        for index in again {
            let node = &self.nodes[index];
            let say = wish.say.as_ref().filter(|_| self.is_meant(wish.session, index));
            let handover = wish.handovers.get(&node.session).filter(|_| node.is_exhausted());
            let again = reopening(node, say, handover, times.seconds(index), &wish);
            events.push(Event::Reopened(Box::new(again)));
        }
        if let Some(RebasedWork { session, space, .. }) = wish.rebased {
            events.push(Event::SpaceMade { session, space, project: None });
        }
        events.extend(words);
        Ok(events)
    }

    /// Addresses a message without a session to the only blocked delegation, if there is exactly
    /// one.
    fn with_default_recipient(&self, mut wish: ResumeOptions) -> ResumeOptions {
        let is_over = self.ended.is_some() && self.assignment.is_some();
        if is_over && wish.session.is_none() && wish.say.is_some() {
            let asks =
                |node: &&Node| node.outcome() == Some(Outcome::Blocked) && node.parent.is_some();
            let mut asking = self.nodes.iter().filter(asks).map(|node| node.session);
            wish.session = asking.next().filter(|_| asking.next().is_none());
        }
        wish
    }

    /// Queues the person's message for running nodes; nodes that are reopened get it with that.
    fn queue_messages(&self, wish: &ResumeOptions) -> Result<Vec<Event>, Refusal> {
        let Some(text) = &wish.say else { return Ok(Vec::new()) };
        let root = self.nodes[ROOT].session;
        check_words(wish.session.unwrap_or(root), text)?;
        let meant = (0..self.nodes.len())
            .filter(|index| self.nodes[*index].is_live())
            .filter(|index| self.nodes[*index].model.is_some())
            .filter(|index| self.is_meant(wish.session, *index));
        let mut events = Vec::new();
        for index in meant {
            events.extend(self.queue_message(self.nodes[index].session, text.clone())?);
        }
        Ok(events)
    }

    /// Returns what an agent is told about a tool call whose process ended while it ran; `None` if the call can be
    /// repeated, because it only reads.
    #[must_use]
    pub fn interrupted_output(
        &self,
        session: SessionId,
        call: u32,
        findings: &WriteFindings,
    ) -> Option<ToolOutput> {
        let node = self.node(session)?;
        let made = node.open_call(call)?;
        let looked = node.looked_at(call, findings);
        looked.or_else(|| (!node.may_run(call, made)).then(|| ToolOutput::error(INTERRUPTED)))
    }

    /// Answers the open calls of a node that must not, or may no longer, be run.
    fn close_tool_calls(&self, node: &Node, wish: &ResumeOptions, events: &mut Vec<Event>) {
        let session = node.session;
        for (call, made) in node.open_calls() {
            let is_begun = node.is_begun(call);
            let unknown = || ToolOutput::error(INTERRUPTED);
            let known = node.looked_at(call, &wish.write_findings).filter(|_| is_begun);
            let known = known.or_else(|| (!node.may_run(call, made)).then(unknown));
            if let Some(output) = known {
                events.push(Event::ToolReturned { session, call, output });
            } else if !node.may_still_use(made, wish) {
                let text = format!("Not run: `{}` is no longer available to you.", made.name);
                events.push(Event::ToolRefused { session, call, text });
            }
        }
    }

    /// Says whether a person's message is for this node: the named session, else the root agent,
    /// else every direct child of the root.
    fn is_meant(&self, session: Option<SessionId>, index: usize) -> bool {
        match session {
            Some(session) => self.nodes[index].session == session,
            None if self.nodes[ROOT].model.is_some() => index == ROOT,
            None => self.nodes[index].parent == Some(ROOT),
        }
    }

    /// Returns the ended nodes to resume, parents first.
    fn to_reopen(&self, wish: &ResumeOptions) -> BTreeSet<usize> {
        let mut again = BTreeSet::new();
        let named = wish.session.and_then(|session| self.by_session.get(&session).copied());
        match (named, wish.session) {
            // An unknown session resumes nothing.
            (None, Some(_)) => {}
            (Some(index), _) if index != ROOT || self.nodes[ROOT].model.is_some() => {
                if self.nodes[index].can_go_on(wish.say.is_some()) {
                    self.reopen_with_helpers(index, &mut again);
                }
            }
            // In an interrupted run, nodes that had ended stay ended.
            _ if self.ended.is_none() && !self.is_all_cancelled() => {}
            _ => {
                let Some(root) = self.nodes.first() else { return again };
                if root.model.is_none() {
                    for &child in &root.delegations.children {
                        let asks = self.nodes[child].outcome() == Some(Outcome::Blocked);
                        if self.nodes[child].can_go_on(asks && wish.say.is_some()) {
                            self.reopen_with_helpers(child, &mut again);
                        }
                    }
                } else if root.can_go_on(wish.say.is_some()) {
                    self.reopen_with_helpers(ROOT, &mut again);
                }
            }
        }
        again
    }

    /// Says whether everything was cancelled and only committing work is left. Such a run is
    /// resumed as if its end were recorded.
    fn is_all_cancelled(&self) -> bool {
        let root = self.nodes.first().and_then(Node::outcome);
        let is_cancelled = root == Some(Outcome::Cancelled);
        is_cancelled && !self.nodes.iter().any(|node| node.is_live())
    }

    /// Adds a node and its children of calls that were never answered.
    fn reopen_with_helpers(&self, index: usize, again: &mut BTreeSet<usize>) {
        let mut waiting = vec![index];
        while let Some(index) = waiting.pop() {
            again.insert(index);
            let node = &self.nodes[index];
            // A new conversation has no open calls.
            if node.is_exhausted() {
                continue;
            }
            waiting.extend(node.delegations.children.iter().copied().filter(|&child| {
                let child = &self.nodes[child];
                node.delegations.open.contains_key(&child.call) && child.can_go_on(false)
            }));
        }
    }

    /// Folds in that the run was resumed.
    pub(super) fn resumed(
        &mut self,
        rights: &Rights,
        agents: &BTreeMap<AgentName, Rights>,
        model: Option<&ModelSpec>,
    ) {
        self.ended = None;
        self.without_root = self.nodes.first().is_some_and(|root| !root.is_live());
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.rights = bound_rights(&node.rights, &node.agent, rights, agents);
            node.excuse_attempts();
            if let (Some(old), Some(new)) = (&node.model, model) {
                // The conversation goes on, so its reasoning effort stays.
                node.model = Some(ModelSpec { effort: old.effort, ..new.clone() });
            }
            if index == ROOT && node.model.is_none() && !node.is_live() {
                // A root without a model only waits for its children.
                node.phase = Phase::Working(TurnState::first(None));
            }
        }
        // With fewer rights, a node may no longer need a workspace.
        (0..self.nodes.len()).for_each(|index| self.check_readiness(index));
        for (name, agent) in self.agents.iter_mut().flatten() {
            agent.rights = bound_rights(&agent.rights, name, rights, agents);
        }
    }

    /// Extends every open question to `expires`.
    pub(super) fn ask_until(&mut self, expires: Timestamp) {
        self.timers.retain(|(_, _, why)| *why != DeadlineKind::Approval);
        for open in self.approvals.values_mut() {
            open.expires = expires;
            self.timers.insert((expires, open.parent, DeadlineKind::Approval));
        }
        self.renew_domain_questions(expires);
    }

    /// Folds in that an ended node was resumed. It is queued like any other; the root needs no
    /// slot.
    pub(super) fn fold_reopened(
        &mut self,
        at: Timestamp,
        reopening: &Reopening,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("reopened", reopening.session)?;
        let Some(outcome) = self.nodes[index].outcome() else {
            return Err(illegal_event("reopened", format!("{} has not ended", reopening.session)));
        };
        let preamble = self.preamble_bytes(&self.nodes[index]);
        self.forget_end_mark(index);
        self.forget_keep(index);
        self.without_root &= index != ROOT;
        self.nodes[index].begin_again(reopening, preamble);
        if index == ROOT {
            self.enter_work(index);
        } else {
            self.enter(index, Phase::Queued);
        }
        let call = self.nodes[index].call;
        let total = self.policy.total_s.map(|seconds| at.plus_seconds(seconds));
        let Some(parent) = self.nodes[index].parent else {
            let time = self.nodes[index].time.timeout_s.map(|seconds| at.plus_seconds(seconds));
            return time.map_or(Ok(()), |deadline| self.root_renewed(index, at, deadline));
        };
        self.live += 1;
        let above = &mut self.nodes[parent];
        above.delegations.live += 1;
        // It may still be in the queue, if it ended while waiting.
        above.delegations.queue.retain(|waiting| *waiting != index);
        above.delegations.queue.push_back(index);
        above.delegations.total_deadline = total;
        if let Some(old) = above.delegations.ends.iter().position(|end| *end == outcome) {
            above.delegations.ends.swap_remove(old);
        }
        if let Some(open) = above.delegations.open.get_mut(&call) {
            open.live += 1;
        }
        Ok(())
    }

    /// Gives a resumed root that had a deadline a new one.
    fn root_renewed(
        &mut self,
        index: usize,
        at: Timestamp,
        deadline: Timestamp,
    ) -> Result<(), IllegalEvent> {
        self.nodes[index].time.started = Some(at);
        let bound = self.nodes[index].time.bound;
        self.root_timed(index, Some(deadline), bound)
    }
}

/// Refuses an invalid message before anything is resumed for it.
fn check_words(session: SessionId, text: &str) -> Result<(), Refusal> {
    let problem = if text.trim().is_empty() {
        TellProblem::Empty
    } else if text.len() > TELL_BYTES {
        TellProblem::TooLong { bytes: text.len(), max: TELL_BYTES }
    } else {
        return Ok(());
    };
    Err(Refusal::MessageRejected { session, problem })
}

/// Returns the rights an agent still has, within what is permitted now.
fn bound_rights(
    held: &Rights,
    agent: &AgentName,
    rights: &Rights,
    agents: &BTreeMap<AgentName, Rights>,
) -> Rights {
    let held = held.intersection(rights);
    agents.get(agent).map_or_else(|| held.clone(), |own| held.intersection(own))
}

fn close_open_call(node: &Node, events: &mut Vec<Event>) {
    events.extend(node.abandoned_calls());
    if let Some(open) = &node.reservation() {
        events.push(Event::Settled {
            session: node.session,
            turn: open.turn,
            attempt: open.attempt,
            settlement: Settlement::estimated(open),
        });
    }
}

/// Says whether a started call may be started again: it only reads; or it delegates, and its grants
/// are recorded; or it writes and did not get as far as writing, which would be recorded.
fn may_begin_again(call: &ToolCall) -> bool {
    is_repeatable(&call.name)
        || is_write(&call.name)
        || [DELEGATE, TASK, RETURN].contains(&call.name.as_str())
}

fn reopening(
    node: &Node,
    say: Option<&String>,
    handover: Option<&String>,
    timeout_s: Option<u64>,
    wish: &ResumeOptions,
) -> Reopening {
    let afresh = handover.is_some();
    let words = say.map(String::as_str);
    let text = match handover {
        Some(handover) => {
            Some(words.map_or_else(|| handover.clone(), |words| format!("{handover}\n\n{words}")))
        }
        // An answer that was not judged yet is judged first, without a new message.
        None if node.is_checking() || node.is_answer_unjudged() => words.map(str::to_owned),
        None => words.or_else(|| node.last_answer().map(|_| GO_ON)).map(str::to_owned),
    };
    let handed_down = |number: u32| node.delegations.tool_call(node.turn, number).is_some();
    // A message must follow the results of all calls, so no call stays open if there is a message.
    let stays_open = |number: u32, made: &ToolCall| {
        let may_run = node.may_run(number, made) && node.may_still_use(made, wish);
        text.is_none() && node.is_ended_by_full_disk() && may_run
    };
    let (mut unanswered, mut seen) = (Vec::new(), Vec::new());
    let open = node.open_calls().filter(|(number, _)| !afresh && !handed_down(*number));
    for (number, made) in open {
        match node.looked_at(number, &wish.write_findings) {
            Some(output) => seen.push((number, output)),
            None if stays_open(number, made) => {}
            None => unanswered.push(number),
        }
    }
    Reopening { session: node.session, afresh, text, timeout_s, unanswered, looked: seen }
}

impl Node {
    /// Returns the calls of the last answer that have no result yet, with their numbers.
    fn open_calls(&self) -> impl Iterator<Item = (u32, &ToolCall)> {
        self.calls().into_iter().flat_map(OpenToolCalls::iter)
    }

    fn is_begun(&self, call: u32) -> bool {
        self.calls().is_some_and(|calls| calls.is_begun(call))
    }

    /// Says whether an open call may run on resume: it was not started, or starting it again does
    /// no harm.
    fn may_run(&self, call: u32, made: &ToolCall) -> bool {
        !self.is_begun(call) || self.waits_its_turn(call) || may_begin_again(made)
    }

    /// Says whether a tool is still available with the rights of the resume.
    fn may_still_use(&self, call: &ToolCall, wish: &ResumeOptions) -> bool {
        let rights = bound_rights(&self.rights, &self.agent, &wish.rights, &wish.agents);
        let usable = rights.usable_tools();
        call.name == RETURN || needed_tools(call).iter().all(|tool| usable.contains(tool))
    }

    /// Says whether an ended node can be resumed. Completed and blocked nodes need a message from a
    /// person; unrecoverable failures stay ended.
    pub(super) fn can_go_on(&self, with_words: bool) -> bool {
        let Some(ending) = self.ending() else { return false };
        // A resume must not bypass a missing approval.
        if ending.is_unapproved {
            return false;
        }
        let recoverable = ending.reason.as_ref().is_none_or(|reason| reason.recoverable);
        match ending.outcome {
            Outcome::Refused => false,
            Outcome::Completed | Outcome::Blocked => with_words,
            Outcome::Partial | Outcome::Cancelled => true,
            Outcome::Failed => recoverable,
        }
    }

    fn begin_again(&mut self, reopening: &Reopening, preamble_bytes: u64) {
        let said = reopening.text.as_ref().map_or(0, String::len) as u64;
        if reopening.afresh {
            self.context.settled_input = None;
            self.context.appended_bytes = preamble_bytes + said;
            self.continuations =
                ContinuationCounts { brief_bytes: preamble_bytes + said, ..Default::default() };
            self.think();
            self.delegations.open.clear();
        } else {
            let looked = reopening.looked.iter().map(|(_, output)| output.content.len());
            let answers = reopening.unanswered.len() * INTERRUPTED.len() + looked.sum::<usize>();
            self.context.appended_bytes += said + answers as u64;
            self.continuations.brief_bytes += said;
            (self.continuations.made, self.continuations.is_note_asked) = (0, false);
        }
        let looked = reopening.looked.iter().map(|(call, _)| call);
        for call in reopening.unanswered.iter().chain(looked) {
            self.close_call(*call);
        }
        if let Some(worker) = &mut self.worker {
            worker.begin_again();
        }
        self.time.timeout_s = reopening.timeout_s;
        self.turn_limit.max = self.turn_limit.each.map(|each| self.turn.saturating_add(each));
        self.time.deadline = None;
        self.excuse_attempts();
        self.corrections = CorrectionCounts::default();
        if reopening.text.is_some() && (self.is_checking() || self.last_answer().is_some()) {
            self.think();
        }
        // Without a message, a pending verification continues and needs the artifacts.
        if !self.is_checking() {
            self.results.artifacts.clear();
        }
    }
}
