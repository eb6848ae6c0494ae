//! Updates of the project's task list when the work of a slash command begins and ends.
//!
//! An update is idempotent, so it can be repeated after a crash. Only the root and its direct
//! delegations update the list; deeper delegations are part of their parent's work. Invariants: no
//! turn is taken before the begin update is made; results are returned and the run ends only when
//! all updates were made or have failed.
//!
//! `PendingListUpdates` are the updates that one delegation still has to make; `EndUpdate` is the
//! state of the last one: none, due or failed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, ROOT, Tree};
use crate::assignment::{
    SlashCommandAssignment, TaskListUpdate, UpdateTrigger, kind_written, status_after,
    status_of_work,
};
use crate::code::ErrorCode;
use crate::command::Effect;
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::outcome::{Outcome, OutcomeReason};
use crate::policy::Operation;
use crate::time::Timestamp;
use crate::tree::node::PlannedEnd;
use adjutant_formats::task::{TaskArtifact, TaskStatus};

/// The most files that are linked in one entry.
const MAX_LINKS: usize = 20;

/// The pending task list updates of one delegation.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingListUpdates {
    /// Whether the list has to be updated for its begin.
    pub(super) begin: bool,
    /// The update for its end.
    end: EndUpdate,
}

/// The state of the task list update for the end of a delegation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum EndUpdate {
    /// None is needed, or it was made.
    #[default]
    Nothing,
    /// It has to be made.
    Due,
    /// It failed, for this reason.
    Failed(String),
}

impl Tree {
    /// Records a slash command's assignment and gives the root its deadline.
    pub(super) fn assign(
        &self,
        now: Timestamp,
        assignment: Box<SlashCommandAssignment>,
    ) -> Vec<Event> {
        if self.assignment.is_some() {
            return Vec::new();
        }
        let timed = self.time_root(now, assignment.operation);
        [Event::Assigned(assignment)].into_iter().chain(timed).collect()
    }

    pub(super) fn record_list_update(
        &self,
        session: SessionId,
        mark: TaskListUpdate,
        problem: Option<String>,
    ) -> Vec<Event> {
        let Some(node) =
            self.node(session).filter(|node| node.duties.list_updates.is_open(mark.work))
        else {
            return Vec::new();
        };
        let index = self.by_session.get(&session).copied().unwrap_or(ROOT);
        // If the list cannot be updated at the begin, end the work before it costs anything.
        let stops = problem.clone().filter(|_| mark.work == UpdateTrigger::Begun && node.is_live());
        let end = stops.map(|problem| not_markable(mark.task, &problem));
        let mut events = vec![Event::Marked { session, mark, problem }];
        events.extend(end.map(|end| self.end_subtree(index, &end)).unwrap_or_default());
        events
    }

    /// Schedules an update of the task list, if there is anything to update.
    pub(super) fn open_mark(&mut self, index: usize, work: UpdateTrigger) {
        let node = &self.nodes[index];
        // A delegation that never began changes nothing.
        if node.time.started.is_none() || self.mark(node, work).is_none() {
            return;
        }
        let marks = &mut self.nodes[index].duties.list_updates;
        if !marks.is_open(work) {
            self.open_marks += 1;
        }
        match work {
            UpdateTrigger::Begun => marks.begin = true,
            UpdateTrigger::Ended => marks.end = EndUpdate::Due,
        }
    }

    /// Cancels the end update of a delegation that is resumed.
    pub(super) fn forget_end_mark(&mut self, index: usize) {
        let marks = &mut self.nodes[index].duties.list_updates;
        if std::mem::take(&mut marks.end) == EndUpdate::Due {
            self.open_marks -= 1;
        }
    }

    pub(super) fn mark_made(
        &mut self,
        session: SessionId,
        mark: &TaskListUpdate,
        problem: Option<&str>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("marked", session)?;
        let marks = &mut self.nodes[index].duties.list_updates;
        if !marks.is_open(mark.work) {
            return Err(super::evolve::illegal_event("marked", "nothing was to be marked"));
        }
        match mark.work {
            UpdateTrigger::Begun => marks.begin = false,
            UpdateTrigger::Ended => {
                let failed = |problem: &str| EndUpdate::Failed(problem.to_owned());
                marks.end = problem.map_or(EndUpdate::Nothing, failed);
            }
        }
        self.open_marks -= 1;
        self.check_readiness(index);
        Ok(())
    }

    /// Says whether a task of this call still has a pending update.
    pub(super) fn is_marking(&self, parent: SessionId, call: u32) -> bool {
        let is_open = |child: &&usize| {
            let child = &self.nodes[**child];
            child.call == call && child.duties.list_updates.next().is_some()
        };
        let parent = self.node(parent).filter(|_| self.open_marks > 0);
        parent.is_some_and(|parent| parent.delegations.children.iter().any(|child| is_open(&child)))
    }

    /// Returns the next pending update of each node.
    pub fn due_marks(&self) -> impl Iterator<Item = Effect> {
        self.nodes.iter().filter_map(|node| self.due_mark(node))
    }

    /// Returns the next pending update of a node.
    pub(super) fn due_mark(&self, node: &Node) -> Option<Effect> {
        let work = node.duties.list_updates.next()?;
        self.mark(node, work).map(|mark| Effect::UpdateTaskList { session: node.session, mark })
    }

    fn mark(&self, node: &Node, work: UpdateTrigger) -> Option<TaskListUpdate> {
        let assignment = self.assignment.as_ref()?;
        // Only the root and its delegations to the command's agent do the work of the command.
        let is_work =
            node.parent.is_none_or(|parent| parent == ROOT && assignment.is_work_of(&node.agent));
        let task = node.terms.task.filter(|_| is_work)?;
        let operation = assignment.operation;
        let (status, links) = match (work, node.outcome()) {
            (UpdateTrigger::Begun, _) => (status_of_work(operation), Vec::new()),
            (UpdateTrigger::Ended, Some(outcome)) => {
                (status_after(operation, outcome), self.links(node))
            }
            (UpdateTrigger::Ended, None) => return None,
        };
        if status.is_none() && links.is_empty() {
            return None;
        }
        let reason = node.ending().and_then(|ending| ending.reason.as_ref());
        let reason = reason.filter(|_| status == Some(TaskStatus::Blocked));
        let reason = reason.map(|reason| reason.message.clone());
        Some(TaskListUpdate { task, work, status, reason, links })
    }

    /// Returns the artifacts that a delegation named, or else the files that it and its descendants
    /// changed, up to [`MAX_LINKS`].
    fn links(&self, node: &Node) -> Vec<TaskArtifact> {
        if !node.results.artifacts.is_empty() {
            let named = node.results.artifacts.iter();
            let links = named.map(|it| TaskArtifact { kind: it.kind, path: it.path.clone() });
            return links.take(MAX_LINKS).collect();
        }
        let operation = self.assignment.as_ref().map(|it| it.operation).unwrap_or_default();
        let kind = kind_written(operation);
        let changed = self.changed_below(node).into_iter().map(str::to_owned);
        changed.take(MAX_LINKS).map(|path| TaskArtifact { kind, path }).collect()
    }

    /// Returns the files that a delegation and its descendants changed.
    pub(super) fn changed_below<'a>(&'a self, node: &'a Node) -> BTreeSet<&'a str> {
        let mut changed = BTreeSet::new();
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            changed.extend(node.results.changed.iter().map(String::as_str));
            waiting.extend(node.delegations.children.iter().map(|child| &self.nodes[*child]));
        }
        changed
    }

    /// Folds in an assignment. A root that works itself works on the only task that the command
    /// names.
    pub(super) fn assigned(&mut self, assignment: &SlashCommandAssignment) {
        if let (None, [only], Some(root)) =
            (&assignment.agent, assignment.tasks.as_slice(), self.nodes.first_mut())
        {
            root.terms.task = Some(*only);
        }
        self.assignment = Some(assignment.clone());
        self.open_mark(ROOT, UpdateTrigger::Begun);
        self.check_readiness(ROOT);
    }

    /// Returns how a slash command ends when its root agent is done: like the work that it
    /// delegated.
    ///
    /// The latest delegation of each task counts, because a failed one may have been retried. Its
    /// own end has the reason.
    pub(super) fn command_end(&self) -> PlannedEnd {
        let Some(assignment) = &self.assignment else { return PlannedEnd::completed() };
        let Some(agent) = &assignment.agent else { return PlannedEnd::completed() };
        let root = &self.nodes[ROOT];
        let of_agent = |node: &&Node| node.agent.as_str() == agent;
        let children =
            root.delegations.children.iter().map(|child| &self.nodes[*child]).filter(of_agent);
        let latest: BTreeMap<Option<u64>, &Node> = children.map(|it| (it.terms.task, it)).collect();
        if latest.is_empty() {
            return nothing_done(agent, root.delegations.refusal.clone());
        }
        let missing = assignment.tasks.iter().filter(|task| !latest.contains_key(&Some(**task)));
        let missing: Vec<String> = missing.map(u64::to_string).collect();
        if !missing.is_empty() {
            return left_out(agent, &missing, root.delegations.refusal.as_ref());
        }
        let outcome = Outcome::of_all(latest.values().filter_map(|node| node.outcome()));
        if outcome != Outcome::Completed {
            return PlannedEnd { outcome, reason: None };
        }
        let problem =
            |node: &&Node| Some((node.terms.task?, node.duties.list_updates.problem()?.to_owned()));
        let unmarked = latest.values().find_map(problem);
        unmarked.map_or_else(PlannedEnd::completed, |(task, problem)| {
            unmarked_end(assignment.operation, task, &problem)
        })
    }
}

fn not_markable(task: u64, problem: &str) -> PlannedEnd {
    PlannedEnd::new(
        Outcome::Failed,
        ErrorCode::StatusSyncFailed,
        format!("Task {task} cannot be marked, so no work was begun on it: {problem}"),
        "Put the list right, then run the command again.",
    )
}

/// The end of a command whose work is done but whose task could not be updated.
fn unmarked_end(operation: Operation, task: u64, problem: &str) -> PlannedEnd {
    let status = status_after(operation, Outcome::Completed).map_or("STATUS", TaskStatus::as_str);
    PlannedEnd::partial(
        ErrorCode::StatusSyncFailed,
        format!("The work is done, but task {task} could not be marked: {problem}"),
        &format!("Put the list right, then `adjutant task set {task} {status}`."),
    )
}

/// The end of a command that delegated only some of its tasks.
fn left_out(agent: &str, tasks: &[String], refusal: Option<&OutcomeReason>) -> PlannedEnd {
    let (s, were) = if tasks.len() == 1 { ("", "was") } else { ("s", "were") };
    let why = refusal.map(|reason| format!(" {}", reason.message)).unwrap_or_default();
    PlannedEnd::partial(
        ErrorCode::ValidationFailed,
        format!("Task{s} {} {were} not handed to `{agent}`.{why}", tasks.join(", ")),
        "Run the command again for what is left.",
    )
}

/// The end of a command that should have delegated its work and did not.
fn nothing_done(agent: &str, refusal: Option<OutcomeReason>) -> PlannedEnd {
    if refusal.is_some() {
        return PlannedEnd { outcome: Outcome::Failed, reason: refusal };
    }
    PlannedEnd::new(
        Outcome::Failed,
        ErrorCode::ValidationFailed,
        format!("Nothing was handed to `{agent}`, so nothing was done."),
        "Run the command again, or with another model.",
    )
}

impl PendingListUpdates {
    fn is_open(&self, work: UpdateTrigger) -> bool {
        match work {
            UpdateTrigger::Begun => self.begin,
            UpdateTrigger::Ended => self.end == EndUpdate::Due,
        }
    }

    /// Returns the stage whose update is pending.
    fn next(&self) -> Option<UpdateTrigger> {
        [UpdateTrigger::Begun, UpdateTrigger::Ended].into_iter().find(|work| self.is_open(*work))
    }

    /// Returns why the end update failed.
    fn problem(&self) -> Option<&str> {
        if let EndUpdate::Failed(problem) = &self.end { Some(problem) } else { None }
    }
}
