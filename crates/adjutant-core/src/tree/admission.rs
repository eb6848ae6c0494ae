//! Admission: every check that a task must pass before it starts, in the order of the
//! specification.
//!
//! The first failed check decides. The tasks of a call are judged in order, and grants stand even
//! if a later task is refused; too many tasks refuse the whole call. Start at [`Tree::admit`].
//!
//! An [`Admission`] is what is decided about one granted task; `AdmissionBatch` counts the tasks of
//! the call that is being judged, and `TaskPosition` says where in it a task is.

use super::approvals::call_hash;
use super::auto_approval::start_without_asking;
use super::{Node, ROOT, Tree};
use crate::brief::{Brief, ContextFileStatus, RequestedTask};
use crate::budget::BudgetAmount;
use crate::event::{DelegationOrigin, Event, Grant};
use crate::fingerprint::Fingerprint;
use crate::ids::{AgentName, Label, SessionId, number_duplicates};
use crate::policy::{ApprovalRule, CycleKey};
use crate::refusal::{BudgetScope, ContextRemedy, FanOutScope, Refusal, TimeBound, target_name};
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::tree::turn::MIN_OUTPUT;

/// How many delegations of one run may be queued. Inclusive.
///
/// A queued delegation costs memory and a line in every listing; a thousand is more than any plan
/// needs and less than a runaway agent produces in a minute.
pub const QUEUE_LIMIT: u64 = 1_000;

/// What a granted task gets: depth, path, rights and timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// The depth in the tree.
    pub depth: u64,
    /// The agent names from the root to the agent.
    pub path: Vec<String>,
    /// Its rights.
    pub rights: Rights,
    /// Its timeout in seconds, within what is left of its parent's time.
    pub timeout_s: Option<u64>,
    /// Whether it asked for more time than it got.
    pub clamped: bool,
}

/// The call that is being judged, and how many of its tasks were granted so far.
#[derive(Clone, Copy)]
struct AdmissionBatch {
    /// The number of tasks of the call.
    tasks: u64,
    granted: u64,
    places: u64,
}

/// The position of a task: its parent, call and index.
struct TaskPosition {
    parent: SessionId,
    call: u32,
    index: u32,
    places: u64,
}

impl Tree {
    pub(super) fn admit(
        &self,
        now: Timestamp,
        parent: SessionId,
        mut tasks: Vec<RequestedTask>,
        concurrency: Option<u64>,
        origin: Option<DelegationOrigin>,
    ) -> Result<Vec<Event>, Refusal> {
        let (parent_index, parent_node) = self.check_open(parent)?;
        if origin.is_some_and(|origin| !parent_node.may_hand_down(origin)) {
            let text = format!("{} tasks", tasks.len());
            return Ok(vec![Event::Late { session: parent, what: "delegation".into(), text }]);
        }
        if tasks.is_empty() {
            return Err(Refusal::NoTasks);
        }
        let count = tasks.len() as u64;
        if count > self.policy.tasks_per_call {
            return Err(Refusal::TooMany {
                scope: FanOutScope::Call,
                count,
                max: self.policy.tasks_per_call,
            });
        }
        number_duplicates(tasks.iter_mut().map(|task| &mut task.brief.label));
        let call = parent_node.delegations.calls_made + 1;
        let asks = self.policy.approval == ApprovalRule::Batch;
        let mut batch =
            AdmissionBatch { tasks: count, granted: 0, places: self.places(concurrency) };
        let mut events = Vec::with_capacity(tasks.len() + 2);
        events.extend(origin.map(|origin| Event::Delegated { session: parent, call, origin }));
        for (index, mut task) in (0..).zip(tasks) {
            let own = self.check_named_story(parent_index, &task.brief);
            task.brief = self.with_story_id(parent_index, u64::from(index), task.brief);
            match own.and_then(|()| self.judge(now, parent_index, &task.brief, batch)) {
                Ok(admission) => {
                    let place = TaskPosition { parent, call, index, places: batch.places };
                    batch.granted += 1;
                    events.push(self.grant(place, task, admission, asks));
                }
                Err(refusal) => events.push(Event::Refused {
                    session: task.session,
                    parent,
                    call,
                    index,
                    label: task.brief.label,
                    agent: task.brief.agent,
                    story: task.brief.story.filter(|_| self.story.is_some()),
                    reason: refusal.reason(),
                }),
            }
        }
        if asks && batch.granted > 0 {
            let hash = call_hash(&events);
            match self.auto_approved_cost(parent, &events) {
                Some(amount) => start_without_asking(&mut events, parent, call, hash, amount),
                None => {
                    let expires = now.plus_seconds(self.policy.approval_s);
                    events.push(Event::ApprovalAsked { parent, call, hash, expires });
                }
            }
        }
        Ok(events)
    }

    /// The first two checks: delegation is enabled, and the parent is running.
    fn check_open(&self, parent: SessionId) -> Result<(usize, &Node), Refusal> {
        if !self.policy.enabled {
            return Err(Refusal::Disabled { preset: self.policy.preset });
        }
        self.at_work(parent).ok_or_else(|| Refusal::UnknownParent { parent: parent.to_string() })
    }

    /// Judges one task like a call with only this task, without granting it.
    pub fn judge_one(
        &self,
        now: Timestamp,
        parent: SessionId,
        brief: &Brief,
    ) -> Result<Admission, Refusal> {
        let (parent, _) = self.check_open(parent)?;
        self.judge(
            now,
            parent,
            brief,
            AdmissionBatch { tasks: 1, granted: 0, places: self.places(None) },
        )
    }

    /// Returns how many tasks of the call may run at once: the requested number up to
    /// `concurrency_max`, or the policy's `concurrency`.
    fn places(&self, wish: Option<u64>) -> u64 {
        wish.map_or(self.policy.concurrency, |wish| wish.clamp(1, self.policy.concurrency_max))
    }

    fn judge(
        &self,
        now: Timestamp,
        parent: usize,
        brief: &Brief,
        batch: AdmissionBatch,
    ) -> Result<Admission, Refusal> {
        let ceiling = self.check_agent(&brief.agent)?;
        self.check_cycle(parent, brief)?;
        let depth = self.check_depth(parent, brief)?;
        self.check_fan_out(parent, batch)?;
        let rights = self.check_rights(parent, brief, ceiling.as_ref(), depth)?;
        check_context_files(brief)?;
        check_model(brief)?;
        self.check_worker(&brief.agent, &rights)?;
        self.check_context(parent, brief, batch)?;
        self.check_budget(parent, brief)?;
        let (timeout_s, clamped) = self.check_time(now, parent, brief)?;
        self.check_queue(parent, batch)?;
        let mut path = self.path(parent);
        path.push(brief.agent.as_str().to_owned());
        Ok(Admission { depth, path, rights, timeout_s, clamped })
    }

    /// Returns the rights of the agent's definition; `None` if no agents were defined.
    fn check_agent(&self, agent: &AgentName) -> Result<Option<Rights>, Refusal> {
        let Some(agents) = &self.agents else { return Ok(None) };
        agents.get(agent).map(|known| Some(known.rights.clone())).ok_or_else(|| {
            let known: Vec<&str> = agents.keys().map(AgentName::as_str).collect();
            Refusal::UnknownAgent { agent: agent.clone(), known: known.join(", ") }
        })
    }

    fn check_cycle(&self, parent: usize, brief: &Brief) -> Result<(), Refusal> {
        let cycle = |target: &str| Refusal::Cycle {
            target: target.to_owned(),
            path: self.path(parent),
            stories: false,
        };
        match self.policy.cycle_key {
            CycleKey::Agent => {
                let target = brief.agent.as_str();
                if self.path(parent).iter().any(|name| name == target) {
                    return Err(cycle(target));
                }
            }
            CycleKey::Task => {
                if self.is_handed_down(parent, brief) {
                    return Err(cycle(brief.agent.as_str()));
                }
            }
            CycleKey::Story => self.check_story_cycle(parent, brief)?,
        }
        Ok(())
    }

    fn check_story_cycle(&self, parent: usize, brief: &Brief) -> Result<(), Refusal> {
        let own =
            self.nodes[parent].terms.story.as_deref().unwrap_or(self.nodes[parent].agent.as_str());
        let closed =
            brief.story.as_deref().and_then(|target| self.stories.cycle_closed_by(own, target));
        let path = match closed {
            Some(path) => path,
            None if self.is_handed_down(parent, brief) => {
                // The story names differ, but the task text repeats; show the labels too.
                let named = |story: Option<&str>, agent: &str, label: &Label| match story {
                    Some(story) if story == label.as_str() => story.to_owned(),
                    Some(story) => format!("{story} ({label})"),
                    None => agent.to_owned(),
                };
                let chain = self.chain(parent);
                let mut path: Vec<String> = chain
                    .map(|node| {
                        named(node.terms.story.as_deref(), node.agent.as_str(), &node.label)
                    })
                    .collect();
                path.reverse();
                path.push(named(brief.story.as_deref(), brief.label.as_str(), &brief.label));
                path
            }
            None => return Ok(()),
        };
        let target = path.last().cloned().unwrap_or_default();
        Err(Refusal::Cycle { target, path, stories: true })
    }

    /// Says whether an ancestor has the same task.
    fn is_handed_down(&self, parent: usize, brief: &Brief) -> bool {
        let fingerprint = fingerprint(brief);
        fingerprint.is_some()
            && self.chain(parent).any(|node| node.terms.fingerprint == fingerprint)
    }

    fn check_depth(&self, parent: usize, brief: &Brief) -> Result<u64, Refusal> {
        let target = || target_name(&brief.label, &brief.prompt);
        self.policy.judge_depth(self.nodes[parent].depth, target)
    }

    fn check_fan_out(&self, parent: usize, batch: AdmissionBatch) -> Result<(), Refusal> {
        let limits = [
            (
                FanOutScope::Parent,
                self.nodes[parent].delegations.granted,
                self.policy.children_per_parent,
            ),
            (FanOutScope::Run, self.granted, self.policy.children_per_run),
        ];
        for (scope, granted, max) in limits {
            let count = granted + batch.granted + 1;
            if let Some(max) = max.filter(|max| count > *max) {
                return Err(Refusal::TooMany { scope, count, max });
            }
        }
        Ok(())
    }

    /// Returns the effective rights: the intersection of the parent's, the definition's and the
    /// policy's. Asking for more is refused.
    fn check_rights(
        &self,
        parent: usize,
        brief: &Brief,
        definition: Option<&Rights>,
        depth: u64,
    ) -> Result<Rights, Refusal> {
        let policy = Rights::of(&self.policy);
        let mut ceiling = self.nodes[parent].rights.intersection(&policy);
        if let Some(definition) = definition {
            ceiling = ceiling.intersection(definition);
        }
        if let Some(wish) = &brief.rights_wish {
            let beyond = wish.tools.difference(&ceiling.tools);
            let network = wish.network && !ceiling.network;
            if !beyond.is_empty() || network {
                return Err(Refusal::Rights { beyond, network });
            }
            ceiling = ceiling.intersection(wish);
        }
        Ok(if depth >= self.policy.max_depth { ceiling.without_delegation() } else { ceiling })
    }

    /// In the preset `story`, the child's estimate is added to its parent's context. Otherwise the
    /// child must fit its own window, and the results must fit the parent's window.
    fn check_context(
        &self,
        parent: usize,
        brief: &Brief,
        batch: AdmissionBatch,
    ) -> Result<(), Refusal> {
        let node = &self.nodes[parent];
        let estimate = brief.estimate();
        let exceeded = |current: u64, estimate: u64, policy: Option<u64>, window: Option<u64>| {
            let total = current.saturating_add(estimate);
            let max = policy.into_iter().chain(window).min().filter(|max| total > *max)?;
            let settable = window.is_none_or(|window| total <= window);
            let remedy =
                if settable { ContextRemedy::RaiseLimit } else { ContextRemedy::LargerWindow };
            Some(Refusal::ContextBudget { current, estimate, max, remedy })
        };
        let refusal = if self.policy.cycle_key == CycleKey::Story {
            exceeded(node.context_estimate(), estimate, self.policy.context_tokens, None)
        } else {
            let window = brief.model.as_ref().map(|model| model.window);
            exceeded(0, estimate, self.policy.context_tokens, window).or_else(|| {
                let results = node.delegations.live + batch.granted + 1;
                let expected = self.policy.result_tokens?.saturating_mul(results);
                let max = node.model.as_ref()?.window;
                let current = node.context_estimate();
                let room = max.saturating_sub(current);
                // What each task may return so that the whole call fits.
                let result_tokens = room / (node.delegations.live + batch.tasks).max(1);
                let remedy = ContextRemedy::SmallerResults { result_tokens };
                let is_too_much = expected > room;
                is_too_much.then_some(Refusal::ContextBudget {
                    current,
                    estimate: expected,
                    max,
                    remedy,
                })
            })
        };
        refusal.map_or(Ok(()), Err)
    }

    fn check_budget(&self, parent: usize, brief: &Brief) -> Result<(), Refusal> {
        let needed = smallest_call(brief);
        for node in self.chain(parent) {
            let scope =
                if node.parent.is_none() { BudgetScope::Run } else { BudgetScope::Delegation };
            let left = node.ledger.remaining();
            if let Some(max) = node.ledger.cap.tokens.filter(|_| needed.tokens > left.tokens) {
                return Err(Refusal::Tokens {
                    scope,
                    needed: needed.tokens,
                    left: left.tokens,
                    max,
                });
            }
            if let Some(max) = node.ledger.cap.usd.filter(|_| needed.usd > left.usd) {
                return Err(Refusal::Money { scope, needed: needed.usd, left: left.usd, max });
            }
        }
        match self.policy.budget_tokens.filter(|max| needed.tokens > *max) {
            Some(max) => Err(Refusal::Tokens {
                scope: BudgetScope::Delegation,
                needed: needed.tokens,
                left: max,
                max,
            }),
            None => Ok(()),
        }
    }

    /// Returns the child's timeout, never more than its parent has left, and whether it was
    /// clamped.
    fn check_time(
        &self,
        now: Timestamp,
        parent: usize,
        brief: &Brief,
    ) -> Result<(Option<u64>, bool), Refusal> {
        let node = &self.nodes[parent];
        let total = node
            .delegations
            .total_deadline
            .or_else(|| self.policy.total_s.map(|total| now.plus_seconds(total)));
        let mut allotted = self.policy.allot(brief.operation, brief.timeout_wish);
        for (bound, deadline) in
            [(TimeBound::Parent, node.time.deadline), (TimeBound::Total, total)]
        {
            let Some(deadline) = deadline else { continue };
            let left = deadline.since(now);
            if left.as_secs() == 0 {
                let seconds = self.policy.total_s.filter(|_| bound == TimeBound::Total);
                return Err(Refusal::Time { bound, seconds });
            }
            // Rounded down, so that the parent has time to report a child that times out. The rest
            // of the total is rounded up, so that the total expires first and is the limit that is
            // named.
            let is_total = bound == TimeBound::Total;
            let left = left.as_secs() + u64::from(is_total && left.subsec_nanos() > 0);
            if allotted.seconds.is_none_or(|seconds| seconds > left) {
                allotted.clamped |= brief.timeout_wish.is_some_and(|wish| wish > left);
                allotted.seconds = Some(left);
            }
        }
        // The default timeout of a command or agent is not a request: below the root, clamping it
        // is not reported.
        let is_said = brief.is_timeout_requested || node.parent.is_none();
        Ok((allotted.seconds, allotted.clamped && is_said))
    }

    /// Refuses a task that would have to wait while the queue is full. Tasks that need approval
    /// always wait.
    fn check_queue(&self, parent: usize, batch: AdmissionBatch) -> Result<(), Refusal> {
        let node = &self.nodes[parent];
        let asks = self.policy.approval == ApprovalRule::Batch;
        let free = if asks { 0 } else { batch.places.saturating_sub(node.delegations.live) };
        let waiting = (self.waiting + batch.granted + 1).saturating_sub(free);
        if waiting > QUEUE_LIMIT {
            return Err(Refusal::QueueFull { waiting: waiting - 1, max: QUEUE_LIMIT });
        }
        Ok(())
    }

    /// Returns the number of the task list entry that a brief is for, and whether it is the work of
    /// the slash command. Deeper delegations are for the task of their parent.
    fn task_of(&self, parent: SessionId, brief: &Brief) -> (Option<u64>, bool) {
        let (Some(assignment), Some(above)) = (&self.assignment, self.node(parent)) else {
            return (None, false);
        };
        if above.parent.is_some() {
            return (above.terms.task, false);
        }
        (assignment.task_of(&brief.prompt), assignment.is_work_of(&brief.agent))
    }

    fn grant(
        &self,
        place: TaskPosition,
        mut task: RequestedTask,
        admission: Admission,
        asks: bool,
    ) -> Event {
        let preamble = self
            .agents
            .as_ref()
            .and_then(|agents| agents.get(&task.brief.agent))
            .map_or(0, |agent| agent.preamble_bytes);
        // Until it has a workspace of its own, it is told what its parent is told.
        let parent = self.by_session.get(&place.parent).copied().unwrap_or(ROOT);
        let instructions = task.brief.instructions.as_deref();
        let environment = self.environment_bytes(parent, &admission.rights, instructions);
        let (number, is_work) = self.task_of(place.parent, &task.brief);
        if let Some(number) = number.filter(|_| is_work) {
            task.brief.name_task(number);
        }
        task.brief.verify = self.verify_for(place.parent, &task.brief, &admission.rights);
        let preface = self.preface(task.session, &admission, number, &task.brief);
        let preface_bytes = preface.as_ref().map_or(0, String::len) as u64;
        Event::Granted(Box::new(Grant {
            session: task.session,
            preface,
            task: number,
            parent: place.parent,
            call: place.call,
            index: place.index,
            places: place.places,
            depth: admission.depth,
            path: admission.path,
            rights: admission.rights,
            timeout_s: admission.timeout_s,
            clamped: admission.clamped,
            opening_bytes: preamble
                + environment
                + preface_bytes
                + task.brief.opening().len() as u64,
            awaiting_approval: asks,
            brief: task.brief,
        }))
    }
}

/// Returns the fingerprint of a task; `None` if it has no text.
pub(super) fn fingerprint(brief: &Brief) -> Option<Fingerprint> {
    (!brief.prompt.trim().is_empty())
        .then(|| Fingerprint::of(&brief.agent, &brief.prompt, &brief.context_paths()))
}

/// Refuses context files that must not be read. A missing file is only a warning.
fn check_context_files(brief: &Brief) -> Result<(), Refusal> {
    for file in &brief.context {
        if let ContextFileStatus::Unusable(problem) = &file.found {
            return Err(Refusal::ContextFile { path: file.path.clone(), problem: problem.clone() });
        }
    }
    Ok(())
}

/// Refuses a task whose model is not available.
fn check_model(brief: &Brief) -> Result<(), Refusal> {
    match &brief.model_problem {
        Some(problem) => Err(Refusal::Model { problem: problem.clone() }),
        None => Ok(()),
    }
}

/// Returns the cost of the smallest useful model call of a task: its estimate and a short answer.
fn smallest_call(brief: &Brief) -> BudgetAmount {
    let tokens = brief.estimate().saturating_add(MIN_OUTPUT);
    let price = brief.model.as_ref().and_then(|model| model.price);
    let usd = price.map(|price| price.max_cost(brief.estimate(), MIN_OUTPUT)).unwrap_or_default();
    BudgetAmount { tokens, usd }
}
