//! The delegation tree of one run: who works for whom, how deep, until when, at what cost.
//!
//! Decides every command against the limits and folds the recorded events. It knows no provider and
//! no file (the engine reports results) and no clock (callers pass the time).
//!
//! Start at [`Tree::decide`]. Invariants: no node's deadline is later than its parent's; every
//! delegation ends exactly once; what a scope has spent and reserved stays within its cap, except
//! for what a provider billed beyond a reservation.
//!
//! `KnownAgent` is an agent that the run has defined; `PendingApproval` is one call about which a
//! person is being asked.

mod admission;
mod approvals;
mod auto_approval;
mod changed_limits;
mod continuation;
mod deadlines;
mod due;
mod environment;
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
mod rebase;
mod resume;
mod resume_time;
mod returns;
mod story_markers;
mod task_list;
mod tool_use;
mod turn;
mod turn_state;
mod verification;
mod whole_run;
mod workers;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::assignment::SlashCommandAssignment;
use crate::command::Command;
use crate::environment::{ProjectFacts, ProjectGuidance};
use crate::event::{Event, IllegalEvent};
use crate::ids::{AgentName, RunId, SessionId};
use crate::money::Usd;
use crate::outcome::Outcome;
use crate::policy::{Policy, Preset};
use crate::refusal::Refusal;
use crate::rights::{Rights, ToolSet};
use crate::story::StoryAssignment;
use crate::story_graph::StoryGraph;
use crate::time::Timestamp;
use crate::verify::VerifyCommand;
use crate::worker::WorkerTerms;
use adjutant_formats::contract::ORCHESTRATOR;

use node::PlannedEnd;

pub use admission::{Admission, QUEUE_LIMIT};
pub use approvals::{ANSWER_MIN_MS, APPROVAL_EXPIRES_S, worst_case, worst_case_within};
pub use continuation::HANDOVER_NOTE;
pub use deadlines::DeadlineKind;
pub use in_flight::{EffectKey, EffectsInFlight};
pub use mailbox::{MAILBOX, TELL_BYTES};
pub use node::Node;
pub(crate) use resume::INTERRUPTED;
pub use returns::MAX_REPAIRS;
pub(crate) use tool_use::uses_tools;
pub use tool_use::{CALLS_PER_TURN, LOOP_END, LOOP_TOLD};
pub use turn::{LAST_CALL, MAX_ATTEMPTS, MIN_OUTPUT};
pub use whole_run::{WHOLE_RUN, worst_case_of_run};

/// The state of one run, folded from its events.
#[derive(Clone, Debug)]
pub struct Tree {
    run: Option<RunId>,
    policy: Policy,
    nodes: Vec<Node>,
    by_session: BTreeMap<SessionId, usize>,
    agents: Option<BTreeMap<AgentName, KnownAgent>>,
    /// The slash command's assignment, if the run has one.
    assignment: Option<SlashCommandAssignment>,
    /// A hash of the events before the first turn; an approval of the whole run is bound to it.
    opening: Sha256,
    stories: StoryGraph,
    timers: BTreeSet<(Timestamp, usize, DeadlineKind)>,
    approvals: BTreeMap<String, PendingApproval>,
    /// The command that verifies the work of agents below the root, if a person set one.
    verify: Option<VerifyCommand>,
    /// The story that the run works on.
    story: Option<Box<StoryAssignment>>,
    /// What the agents are told about the project.
    environment: Option<Arc<ProjectGuidance>>,
    /// The facts about the base of the workspaces of a batch; `None` if its agents are told those of the run or of the
    /// workspace above.
    batch_facts: BTreeMap<String, Option<Arc<ProjectFacts>>>,
    /// The hosts that a person was asked about.
    domains: BTreeMap<String, host_approvals::HostApproval>,
    /// Delegations granted so far in the whole run.
    granted: u64,
    /// Delegations that have not ended.
    live: u64,
    /// Delegations that wait for a concurrency slot or for approval.
    waiting: u64,
    /// Pending updates of the task list.
    open_marks: u64,
    /// Workspaces whose work is not committed yet.
    open_keeps: u64,
    /// Whether the run was resumed without its root agent, which had ended.
    without_root: bool,
    /// The sum of the worst-case costs of auto-approved calls.
    auto_approved: Usd,
    /// What a person allowed at a question: the sum up to which calls start without asking.
    approved_up_to: Option<Usd>,
    /// The tools of the embedding program, whose names are never read as aliases.
    custom_tools: ToolSet,
    ended: Option<Outcome>,
}

/// A defined agent.
#[derive(Clone, Debug)]
struct KnownAgent {
    rights: Rights,
    /// The size of its system prompt and tools, which are part of every request.
    preamble_bytes: u64,
    /// The external agent that does its work.
    worker: Option<Box<WorkerTerms>>,
}

/// A call that waits for a person's approval.
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
            verify: None,
            story: None,
            environment: None,
            batch_facts: BTreeMap::new(),
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
            approved_up_to: None,
            custom_tools: ToolSet::default(),
            ended: None,
        }
    }
}

impl Tree {
    /// Returns the state of a run that has not begun, in a program with these tools of its own.
    #[must_use]
    pub fn with_custom_tools(custom_tools: ToolSet) -> Self {
        Self { custom_tools, ..Self::default() }
    }

    /// Judges `command` against the limits. It is the only function that can refuse something.
    pub fn decide(&self, now: Timestamp, command: Command) -> Result<Vec<Event>, Refusal> {
        match command {
            // A run begins only once; repeating the command has no effect.
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
                environment,
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
                environment,
            }]),
            Command::Define { agent, system, tools, rights, max_turns, worker } => {
                Ok(vec![Event::AgentDefined { agent, system, tools, rights, max_turns, worker }])
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
            Command::Approve { hash } => self.approve(now, hash, None),
            Command::ApproveUpTo { hash, amount } => self.approve(now, hash, Some(amount)),
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
            Command::AdmitCall { session, request } => Ok(self.admit_call(session, &request)),
            Command::SettleCall { session, call, end, usage, never_began } => {
                Ok(self.settle_call(session, call, end, usage, never_began))
            }
            Command::TakeWorkerSession { session, id, start } => {
                Ok(self.at_worker(session, Event::WorkerSessionOpened { session, id, start }))
            }
            Command::TakeWorkerAction { session, action } => {
                Ok(self.at_worker(session, Event::WorkerActed { session, action }))
            }
            Command::TakeWorkerUsage { session, report } => {
                Ok(self.at_worker(session, Event::WorkerReported { session, report }))
            }
            Command::UseTools { session } => Ok(self.use_tools(now, session)),
            Command::AllowDomain { host } => Ok(self.allow_domain(host)),
            Command::DenyDomain { host, reason } => Ok(self.deny_domain(&host, &reason)),
            Command::PrepareWrite { session, turn, call, intent } => {
                Ok(self.prepare_write(session, turn, call, intent))
            }
            Command::TakeOutput { session, turn, call, output } => {
                Ok(self.take_output(session, turn, call, output))
            }
            Command::Conclude { session, call, text, artifacts, changed } => {
                Ok(self.conclude(now, session, call, &text, &artifacts, changed))
            }
            Command::TakeReport { session } => Ok(self.conclude_report(session)),
            Command::Print { session, text } => {
                let works = self.live(session).is_some_and(|(_, node)| {
                    node.calls().is_some() || matches!(node.phase, phase::Phase::MakingWorkspace(_))
                });
                Ok(works.then_some(Event::Printed { session, text }).into_iter().collect())
            }
            Command::TakeWorkspace { session, made, project } => {
                Ok(self.take_space(session, made, project))
            }
            Command::TakeKeptWork { session, kept } => Ok(self.keep_space(session, kept)),
            Command::TakeMerge { session, merged } => Ok(self.take_merge(session, merged)),
            Command::TakeCheck { session, check, text, facts } => {
                Ok(self.take_check(session, check, text, facts))
            }
            Command::TakeListUpdate { session, mark, problem } => {
                Ok(self.record_list_update(session, mark, problem))
            }
            Command::TakeHandover { session, turn, handover } => {
                Ok(self.take_handover(session, turn, *handover))
            }
            Command::CutOff { session } => Ok(self.cut_off(session)),
            Command::Decline { session } => Ok(self.declined(session)),
            Command::Crash { session, message, backtrace } => {
                Ok(self.crash(session, message, backtrace))
            }
            Command::DiskFull { lost } => Ok(self.disk_full(&lost)),
            Command::Tell { session, text } => self.queue_message(session, text),
            Command::Cancel { session } => self.cancel(session),
            Command::Resume(resumption) => self.resume(now, *resumption),
            Command::Tick => Ok(self.expire(now)),
            Command::EndRun => Ok(self.end_run()),
        }
    }

    /// Returns the run's id, once it has begun.
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

    /// Returns the node with this session id.
    #[must_use]
    pub fn node(&self, session: SessionId) -> Option<&Node> {
        self.by_session.get(&session).map(|&index| &self.nodes[index])
    }

    /// Returns all nodes in the order of their grants, the root first.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Says whether a delegation below the root is still live.
    #[must_use]
    pub const fn has_live_delegations(&self) -> bool {
        self.live > 0
    }

    /// Says whether a tool call of that turn has no result yet.
    #[must_use]
    pub fn awaits_output(&self, session: SessionId, turn: u32, index: u32) -> bool {
        self.live(session).is_some_and(|(_, node)| node.awaits_result_of(turn, index))
    }

    /// Returns how many questions to a person are open.
    #[must_use]
    pub fn open_questions(&self) -> usize {
        self.approvals.len() + self.open_domains()
    }

    /// Says whether a delegation ended because its context was full. Resuming it needs a new
    /// conversation.
    #[must_use]
    pub fn needs_handover(&self, session: SessionId) -> bool {
        self.node(session).is_some_and(Node::is_exhausted)
    }

    /// Returns how many delegations wait for a concurrency slot or for approval.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Sets the context size of a node; only for `check`.
    pub(crate) fn give_context(&mut self, session: SessionId, tokens: u64) {
        if let Some(&index) = self.by_session.get(&session) {
            self.nodes[index].context.given = tokens;
            self.nodes[index].context.appended_bytes = 0;
        }
    }

    /// Makes agents unknown until they are defined; only for `check`.
    pub(crate) fn know_no_agent(&mut self) {
        self.agents.get_or_insert_default();
    }

    /// Adds an edge between stories without a grant; only for `check`.
    pub(crate) fn connect_stories(&mut self, parent: &str, child: &str) {
        self.stories.connect(parent, child);
    }

    /// Returns a node that has not ended, with its index.
    fn live(&self, session: SessionId) -> Option<(usize, &Node)> {
        let index = *self.by_session.get(&session)?;
        let node = &self.nodes[index];
        node.is_live().then_some((index, node))
    }

    /// Returns a node that has begun and not ended, with its index. Only such a node may delegate:
    /// one that is still waiting may yet be denied.
    fn at_work(&self, session: SessionId) -> Option<(usize, &Node)> {
        self.live(session).filter(|(_, node)| node.is_running())
    }

    /// Returns the node and its ancestors, the root last.
    fn chain(&self, index: usize) -> impl Iterator<Item = &Node> {
        self.scopes(index).map(|scope| &self.nodes[scope])
    }

    /// Returns the indexes of the node and its ancestors, the root last.
    fn scopes(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |scope| self.nodes[*scope].parent)
    }

    /// Returns the agent names from the root to the node at `index`.
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
        // A root without a model ends with its children; a root with a model ends by its own
        // answer.
        if root.model.is_some() && root.is_live() {
            return Vec::new();
        }
        let outcome = match root.outcome() {
            // The root agent ended before the run was resumed; its tasks may be completed now.
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

    /// Ends the node at `index` and all its live descendants, deepest first.
    fn end_subtree(&self, index: usize, end: &PlannedEnd) -> Vec<Event> {
        self.end_where(index, end, |_| true)
    }

    /// Like [`Tree::end_subtree`], but ends only the nodes that `ends` selects.
    fn end_where(
        &self,
        index: usize,
        end: &PlannedEnd,
        ends: impl Fn(usize) -> bool,
    ) -> Vec<Event> {
        let mut order = vec![index];
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            // Descend below ended nodes too: a person may have resumed one of their children.
            order.extend(&self.nodes[node].delegations.children);
            next += 1;
        }
        let mut events = Vec::new();
        for &node in order.iter().rev() {
            if !self.nodes[node].is_live() || !ends(node) {
                continue;
            }
            let session = self.nodes[node].session;
            let end =
                if node == index { end.clone() } else { PlannedEnd::of_descendant(end, session) };
            let is_asked_about = self.nodes[node].is_awaiting_approval();
            let end = if is_asked_about { end.before_it_began() } else { end };
            self.end_one(node, end, &mut events);
        }
        events
    }

    fn end_one(&self, index: usize, end: PlannedEnd, events: &mut Vec<Event>) {
        let node = &self.nodes[index];
        let session = node.session;
        events.extend(node.abandoned_calls());
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

    /// Ends all live nodes, except those with a running model call that is not `lost`, and their
    /// ancestors. Deciding it again after each reply ends the rest.
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

/// The index of the root.
const ROOT: usize = 0;

impl Tree {
    /// Folds a recorded event into the state. It judges nothing, and never fails on events that
    /// `decide` returned.
    pub fn evolve(&mut self, at: Timestamp, event: &Event) -> Result<(), IllegalEvent> {
        evolve::evolve(self, at, event)
    }
}
