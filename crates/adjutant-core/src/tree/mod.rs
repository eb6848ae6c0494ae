//! The delegation tree: who works for whom, how deep, until when, at what cost.
//!
//! Owns the shape of the tree, the legality of every transition and every limit. It does not know
//! what a provider or a file is (the engine reports), nor what time it is (callers say).
//!
//! Start at [`Tree::decide`]. Invariants: every node's deadline is at or before its parent's;
//! every delegation ends exactly once; what is settled and reserved in a scope stays within its
//! cap, save what a provider billed beyond a reservation.

mod admission;
mod approvals;
mod auto_approval;
mod changed_limits;
mod deadlines;
mod due;
mod evolve;
mod file_writes;
mod host_approvals;
mod in_flight;
mod mailbox;
mod merges;
mod node;
mod node_parts;
mod phase;
mod queue;
mod resume;
mod resume_time;
mod returns;
mod story_markers;
mod task_list;
mod turn;
mod turn_state;
mod verification;
mod whole_run;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::assignment::Assignment;
use crate::command::Command;
use crate::event::{Event, IllegalEvent};
use crate::ids::{AgentName, RunId, SessionId};
use crate::money::Usd;
use crate::outcome::Outcome;
use crate::policy::{Policy, Preset};
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::story::StoryAssignment;
use crate::story_graph::StoryGraph;
use crate::time::Timestamp;
use adjutant_formats::contract::ORCHESTRATOR;

use node::PlannedEnd;

pub use admission::{Admission, QUEUE_LIMIT};
pub use approvals::{ANSWER_MIN_MS, APPROVAL_EXPIRES_S, worst_case, worst_case_within};
pub use deadlines::DeadlineKind;
pub use in_flight::{EffectKey, EffectsInFlight};
pub use mailbox::{MAILBOX, TELL_BYTES};
pub use node::Node;
pub(crate) use resume::INTERRUPTED;
pub use returns::MAX_REPAIRS;
pub(crate) use turn::uses_tools;
pub use turn::{CALLS_PER_TURN, LAST_CALL, LOOP_END, LOOP_TOLD, MAX_ATTEMPTS, MIN_OUTPUT};
pub use whole_run::{WHOLE_RUN, worst_case_of_run};

/// The state of one run, folded from its events.
#[derive(Clone, Debug)]
pub struct Tree {
    run: Option<RunId>,
    policy: Policy,
    nodes: Vec<Node>,
    by_session: BTreeMap<SessionId, usize>,
    agents: Option<BTreeMap<AgentName, KnownAgent>>,
    /// What a slash command said the run is about.
    assignment: Option<Assignment>,
    /// What was recorded before the first turn; an answer about the whole run is bound to it.
    opening: Sha256,
    stories: StoryGraph,
    timers: BTreeSet<(Timestamp, usize, DeadlineKind)>,
    approvals: BTreeMap<String, PendingApproval>,
    /// The story the run works on.
    story: Option<Box<StoryAssignment>>,
    /// Hosts a person was asked about.
    domains: BTreeMap<String, host_approvals::HostApproval>,
    /// Delegations granted so far in the whole run.
    granted: u64,
    /// Delegations that have not ended.
    live: u64,
    /// Delegations waiting for a place or for a person.
    waiting: u64,
    /// Marks on the project's list that are not made yet.
    open_marks: u64,
    /// Workspaces whose work is not kept yet.
    open_keeps: u64,
    /// Whether the run goes on without its root, which had ended before.
    without_root: bool,
    /// Worst cases of the calls that started without asking.
    auto_approved: Usd,
    ended: Option<Outcome>,
}

/// What is known of an agent definition.
#[derive(Clone, Debug)]
struct KnownAgent {
    rights: Rights,
    /// Bytes of its system prompt and tools, which open every conversation.
    preamble_bytes: u64,
}

/// A call that waits for a person.
#[derive(Clone, Debug)]
struct PendingApproval {
    expires: Timestamp,
    parent: usize,
    nodes: Vec<usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            run: None,
            policy: Preset::Scout.policy(),
            nodes: Vec::new(),
            by_session: BTreeMap::new(),
            agents: None,
            assignment: None,
            opening: Sha256::new(),
            story: None,
            stories: StoryGraph::default(),
            timers: BTreeSet::new(),
            approvals: BTreeMap::new(),
            domains: BTreeMap::new(),
            granted: 0,
            live: 0,
            waiting: 0,
            open_marks: 0,
            open_keeps: 0,
            without_root: false,
            auto_approved: Usd::ZERO,
            ended: None,
        }
    }
}

impl Tree {
    /// Judges `command` against the limits; the only place that can say no.
    pub fn decide(&self, now: Timestamp, command: Command) -> Result<Vec<Event>, Refusal> {
        match command {
            // A run begins once.
            Command::Begin { .. } if self.run.is_some() => Ok(Vec::new()),
            Command::Begin { policy, base_depth, .. } if base_depth > policy.max_depth => {
                Err(Refusal::StartsTooDeep { base_depth, max_depth: policy.max_depth })
            }
            Command::Begin {
                run,
                agent,
                goal,
                workdir,
                policy,
                version,
                model,
                terms,
                base_depth,
            } => Ok(vec![Event::RunStarted {
                run,
                agent,
                goal,
                workdir,
                policy,
                version,
                model,
                terms,
                base_depth,
            }]),
            Command::Define { agent, system, tools, rights, max_turns } => {
                Ok(vec![Event::AgentDefined { agent, system, tools, rights, max_turns }])
            }
            Command::Assign(assignment) => Ok(self.assign(now, assignment)),
            Command::TakeStory(story) => Ok(self.take_story(now, story)),
            Command::AskToBegin { assignment, story } => {
                Ok(self.ask_to_begin(now, assignment, story))
            }
            Command::DelegateMarkers { session, turn, tasks, rejected } => {
                Ok(self.delegate_markers(now, session, turn, tasks, rejected))
            }
            Command::TellResults { session, turn, text } => {
                Ok(self.tell_results(session, turn, &text))
            }
            Command::Delegate { parent, tasks, concurrency, origin } => {
                self.admit(now, parent, tasks, concurrency, origin)
            }
            Command::Approve { hash } => self.approve(now, hash),
            Command::Deny { hash, reason } => self.deny_open(&hash, &reason),
            Command::RelayAnswer { hash, answer, after_ms } => {
                self.relay_answer(now, hash, answer, after_ms)
            }
            Command::StartQueued { parent } => Ok(self.start_queued(now, parent)),
            Command::TakeTurn { session } => Ok(self.take_turn(session)),
            Command::Reply { session, turn, attempt, reply } => {
                Ok(self.take_reply(session, turn, attempt, reply))
            }
            Command::FailAttempt { session, turn, attempt, error } => {
                Ok(self.fail_attempt(now, session, turn, attempt, error))
            }
            Command::Progress { session, bytes } => {
                let open = self.live(session).is_some_and(|(_, node)| node.reservation().is_some());
                Ok(open.then_some(Event::Progressed { session, bytes }).into_iter().collect())
            }
            Command::Pause { session, provider, ms } => {
                let open = self.live(session).is_some_and(|(_, node)| node.reservation().is_some());
                let until = now.plus_millis(ms);
                let paused = Event::Paused { session, provider, until };
                Ok(open.then_some(paused).into_iter().collect())
            }
            Command::UseTools { session } => Ok(self.use_tools(now, session)),
            Command::AllowDomain { host } => Ok(self.allow_domain(host)),
            Command::DenyDomain { host, reason } => Ok(self.deny_domain(&host, &reason)),
            Command::PrepareWrite { session, turn, call, change } => {
                Ok(self.prepare_write(session, turn, call, change))
            }
            Command::TakeOutput { session, turn, call, output } => {
                Ok(self.take_output(session, turn, call, output))
            }
            Command::Conclude { session, call, text, artifacts } => {
                Ok(self.conclude(now, session, call, &text, &artifacts))
            }
            Command::TakeReport { session } => Ok(self.conclude_report(session)),
            Command::Print { session, text } => {
                let works = self.live(session).is_some_and(|(_, node)| node.calls().is_some());
                Ok(works.then_some(Event::Printed { session, text }).into_iter().collect())
            }
            Command::TakeSpace { session, made } => Ok(self.take_space(session, made)),
            Command::KeepSpace { session, kept } => Ok(self.keep_space(session, kept)),
            Command::TakeMerge { session, merged } => Ok(self.take_merge(session, merged)),
            Command::TakeCheck { session, check, text } => {
                Ok(self.take_check(session, check, text))
            }
            Command::Mark { session, mark, problem } => Ok(self.marked(session, mark, problem)),
            Command::CutOff { session } => Ok(self.cut_off(session)),
            Command::Decline { session } => Ok(self.declined(session)),
            Command::Crash { session, message, backtrace } => {
                Ok(self.crash(session, message, backtrace))
            }
            Command::DiskFull { lost } => Ok(self.disk_full(&lost)),
            Command::Tell { session, text } => self.hear(session, text),
            Command::Cancel { session } => self.cancel(session),
            Command::Resume(resumption) => self.resume(now, *resumption),
            Command::Tick => Ok(self.expire(now)),
            Command::EndRun => Ok(self.end_run()),
        }
    }

    /// Returns the run's id, once it began.
    #[must_use]
    pub const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the limits in force.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns how the run ended, if it did.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.ended
    }

    /// Returns the delegation of that id.
    #[must_use]
    pub fn node(&self, session: SessionId) -> Option<&Node> {
        self.by_session.get(&session).map(|&index| &self.nodes[index])
    }

    /// Returns every node in the order of its grant, the root first.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Says whether a delegation below the root is still live.
    #[must_use]
    pub const fn has_live_delegations(&self) -> bool {
        self.live > 0
    }

    /// Says whether a tool call of that turn still lacks its result.
    #[must_use]
    pub fn awaits_output(&self, session: SessionId, turn: u32, index: u32) -> bool {
        self.live(session).is_some_and(|(_, node)| node.awaits(turn, index))
    }

    /// Returns how many questions wait for a person.
    #[must_use]
    pub fn open_questions(&self) -> usize {
        self.approvals.len() + self.open_domains()
    }

    /// Says whether a delegation ended because its conversation no longer fits: taking it up again
    /// needs a new start.
    #[must_use]
    pub fn needs_handover(&self, session: SessionId) -> bool {
        self.node(session).is_some_and(Node::is_exhausted)
    }

    /// Returns how many delegations wait for a place or for a person.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Sets the whole context a node holds, which no model call has measured; for `check` alone.
    pub(crate) fn give_context(&mut self, session: SessionId, tokens: u64) {
        if let Some(&index) = self.by_session.get(&session) {
            self.nodes[index].context.given = tokens;
            self.nodes[index].context.appended_bytes = 0;
        }
    }

    /// Knows no agent until one is defined; for `check` alone.
    pub(crate) fn know_no_agent(&mut self) {
        self.agents.get_or_insert_default();
    }

    /// Records an edge between stories that did not arise by a grant; for `check` alone.
    pub(crate) fn connect_stories(&mut self, parent: &str, child: &str) {
        self.stories.connect(parent, child);
    }

    /// Returns a delegation that can still change, with its place.
    fn live(&self, session: SessionId) -> Option<(usize, &Node)> {
        let index = *self.by_session.get(&session)?;
        let node = &self.nodes[index];
        node.is_live().then_some((index, node))
    }

    /// Returns a delegation that has begun and not ended, with its place. Only such a one delegates:
    /// whoever still waits may yet be denied.
    fn at_work(&self, session: SessionId) -> Option<(usize, &Node)> {
        self.live(session).filter(|(_, node)| node.is_running())
    }

    /// Returns the node and its ancestors, the root last.
    fn chain(&self, index: usize) -> impl Iterator<Item = &Node> {
        self.scopes(index).map(|scope| &self.nodes[scope])
    }

    /// Returns the places of the node and its ancestors, the root last.
    fn scopes(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |scope| self.nodes[*scope].parent)
    }

    /// Returns the names from the root to the node at `index`.
    fn path(&self, index: usize) -> Vec<String> {
        let mut path: Vec<String> =
            self.chain(index).map(|node| node.agent.as_str().to_owned()).collect();
        if self.policy.preset == Preset::Command
            && path.last().is_some_and(|root| root != ORCHESTRATOR)
        {
            path.push(ORCHESTRATOR.to_owned());
        }
        path.reverse();
        path
    }

    fn end_run(&self) -> Vec<Event> {
        let waits = self.has_live_delegations() || self.open_marks + self.open_keeps > 0;
        if self.ended.is_some() || waits {
            return Vec::new();
        }
        let Some(root) = self.nodes.first() else { return Vec::new() };
        // A root without a model only waits for its children; one with a model ends by its own word.
        if root.model.is_some() && root.is_live() {
            return Vec::new();
        }
        let outcome = match root.outcome() {
            // What a command fell short of may be done by now, though nobody asked its agent again.
            Some(_) if self.without_root && self.assignment.is_some() => self.command_end().outcome,
            Some(outcome) => outcome,
            None => Outcome::of_all(root.delegations.ends.iter().copied()),
        };
        let outcome = self.as_kept(outcome);
        let mut events = Vec::new();
        if root.is_live() {
            events.push(Event::Ended { session: root.session, outcome, reason: None });
        }
        events.push(Event::RunEnded { outcome });
        events
    }

    /// Ends the delegation at `index` and everything live below it, the deepest first.
    fn end_subtree(&self, index: usize, end: &PlannedEnd) -> Vec<Event> {
        self.end_where(index, end, |_| true)
    }

    /// Like [`Tree::end_subtree`], for those delegations only that `ends` selects.
    fn end_where(
        &self,
        index: usize,
        end: &PlannedEnd,
        ends: impl Fn(usize) -> bool,
    ) -> Vec<Event> {
        let mut order = vec![index];
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            // Also below who has ended: a person may have taken up one of its own again.
            order.extend(&self.nodes[node].delegations.children);
            next += 1;
        }
        let mut events = Vec::new();
        for &node in order.iter().rev() {
            if !self.nodes[node].is_live() || !ends(node) {
                continue;
            }
            let session = self.nodes[node].session;
            let end = if node == index { end.clone() } else { PlannedEnd::below(end, session) };
            let is_asked_about = self.nodes[node].is_awaiting_approval();
            let end = if is_asked_about { end.before_it_began() } else { end };
            self.end_one(node, end, &mut events);
        }
        events
    }

    fn end_one(&self, index: usize, end: PlannedEnd, events: &mut Vec<Event>) {
        let node = &self.nodes[index];
        let session = node.session;
        if let Some(open) = &node.reservation() {
            events.push(Event::Settled {
                session,
                turn: open.turn,
                attempt: open.attempt,
                settlement: crate::budget::Settlement::estimated(open),
            });
        }
        events.push(Event::Ended { session, outcome: end.outcome, reason: end.reason });
    }

    fn cancel(&self, session: SessionId) -> Result<Vec<Event>, Refusal> {
        let index = self.by_session.get(&session);
        let events = index.map_or_else(Vec::new, |index| {
            self.end_subtree(*index, &PlannedEnd::cancelled(session))
        });
        if events.is_empty() {
            return Err(Refusal::UnknownParent { parent: session.to_string() });
        }
        Ok(events)
    }

    /// Ends everything that is live, the root included, except for open model calls that are not `lost` and the
    /// ancestors of those. Deciding it again after each answer ends the rest.
    fn disk_full(&self, lost: &BTreeSet<SessionId>) -> Vec<Event> {
        let Some(run) = self.run.filter(|_| self.ended.is_none()) else { return Vec::new() };
        let is_awaited = |node: &Node| {
            node.is_live() && node.reservation().is_some() && !lost.contains(&node.session)
        };
        let awaited = (0..self.nodes.len()).filter(|index| is_awaited(&self.nodes[*index]));
        let kept: BTreeSet<usize> = awaited.flat_map(|index| self.scopes(index)).collect();
        self.end_where(ROOT, &PlannedEnd::disk_full(run), |index| !kept.contains(&index))
    }

    fn crash(&self, session: SessionId, message: String, backtrace: String) -> Vec<Event> {
        let Some((index, _)) = self.live(session) else {
            return vec![Event::Late { session, what: "crash".into(), text: message }];
        };
        let end = PlannedEnd::crashed(&message);
        let mut events = vec![Event::Crashed { session, message, backtrace }];
        events.extend(self.end_subtree(index, &end));
        events
    }
}

/// The place of the root.
const ROOT: usize = 0;

impl Tree {
    /// Folds a recorded fact into the state; never judges, never fails on its own output.
    pub fn evolve(&mut self, at: Timestamp, event: &Event) -> Result<(), IllegalEvent> {
        evolve::evolve(self, at, event)
    }
}
