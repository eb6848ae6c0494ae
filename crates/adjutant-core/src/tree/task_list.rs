//! How work on a task shows on the project's list: marked when it begins and when it ends.
//!
//! A mark is an effect that may be made again after a crash, for making it twice changes nothing.
//! Only those who work directly for a slash command mark: what they hand further down is part of
//! their own work. Invariants: nobody takes a turn before the beginning is marked; a delegation is handed up, and the run ends, only once its marks are
//! made or have failed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, ROOT, Tree};
use crate::assignment::{
    Assignment, TaskListUpdate, WorkStage, kind_written, status_after, status_of_work,
};
use crate::code::Code;
use crate::command::Effect;
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::outcome::{Outcome, Reason};
use crate::policy::Operation;
use crate::time::Timestamp;
use crate::tree::node::PlannedEnd;
use adjutant_formats::task::{Artifact, Status};

/// The most files that are linked in an entry for one piece of work.
const MAX_LINKS: usize = 20;

/// The marks of one delegation.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingListUpdates {
    /// Its beginning is to be marked.
    pub(super) begin: bool,
    /// Whether its end is to be marked.
    end: EndUpdate,
}

/// Whether the end of a delegation is to be marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum EndUpdate {
    /// It has not ended, there is nothing to mark, or it was marked.
    #[default]
    Nothing,
    /// It is to be marked.
    Due,
    /// It could not be marked, for this reason.
    Failed(String),
}

impl Tree {
    /// Records what a slash command is about and how long the agent at the root may work on it.
    pub(super) fn assign(&self, now: Timestamp, assignment: Box<Assignment>) -> Vec<Event> {
        if self.assignment.is_some() {
            return Vec::new();
        }
        let timed = self.time_root(now, assignment.operation);
        [Event::Assigned(assignment)].into_iter().chain(timed).collect()
    }

    pub(super) fn marked(
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
        // A list that takes no beginning takes no end: nothing is paid for what cannot be shown.
        let stops = problem.clone().filter(|_| mark.work == WorkStage::Begun && node.is_live());
        let end = stops.map(|problem| not_markable(mark.task, &problem));
        let mut events = vec![Event::Marked { session, mark, problem }];
        events.extend(end.map(|end| self.end_subtree(index, &end)).unwrap_or_default());
        events
    }

    /// Folds in that a mark is to be made, where there is anything to mark.
    pub(super) fn open_mark(&mut self, index: usize, work: WorkStage) {
        let node = &self.nodes[index];
        // Whoever never began has nothing to show, and changed nothing.
        if node.time.started.is_none() || self.mark(node, work).is_none() {
            return;
        }
        let marks = &mut self.nodes[index].duties.list_updates;
        if !marks.is_open(work) {
            self.open_marks += 1;
        }
        match work {
            WorkStage::Begun => marks.begin = true,
            WorkStage::Ended => marks.end = EndUpdate::Due,
        }
    }

    /// Work that goes on has no end to mark.
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
        let index = self.known("marked", session)?;
        let marks = &mut self.nodes[index].duties.list_updates;
        if !marks.is_open(mark.work) {
            return Err(super::evolve::unfit("marked", "nothing was to be marked"));
        }
        match mark.work {
            WorkStage::Begun => marks.begin = false,
            WorkStage::Ended => {
                let failed = |problem: &str| EndUpdate::Failed(problem.to_owned());
                marks.end = problem.map_or(EndUpdate::Nothing, failed);
            }
        }
        self.open_marks -= 1;
        self.check_readiness(index);
        Ok(())
    }

    /// Says whether a task of that call of a parent is yet to be marked.
    pub(super) fn is_marking(&self, parent: SessionId, call: u32) -> bool {
        let is_open = |child: &&usize| {
            let child = &self.nodes[**child];
            child.call == call && child.duties.list_updates.next().is_some()
        };
        let parent = self.node(parent).filter(|_| self.open_marks > 0);
        parent.is_some_and(|parent| parent.delegations.children.iter().any(|child| is_open(&child)))
    }

    /// Returns every mark that is to be made next.
    pub fn due_marks(&self) -> impl Iterator<Item = Effect> {
        self.nodes.iter().filter_map(|node| self.due_mark(node))
    }

    /// Returns what is to be marked next for a delegation.
    pub(super) fn due_mark(&self, node: &Node) -> Option<Effect> {
        let work = node.duties.list_updates.next()?;
        self.mark(node, work).map(|mark| Effect::Mark { session: node.session, mark })
    }

    fn mark(&self, node: &Node, work: WorkStage) -> Option<TaskListUpdate> {
        let assignment = self.assignment.as_ref()?;
        // The root works itself, or hands the work of the command to its agent; the rest are errands.
        let is_work =
            node.parent.is_none_or(|parent| parent == ROOT && assignment.is_work_of(&node.agent));
        let task = node.terms.task.filter(|_| is_work)?;
        let operation = assignment.operation;
        let (status, links) = match (work, node.outcome()) {
            (WorkStage::Begun, _) => (status_of_work(operation), Vec::new()),
            (WorkStage::Ended, Some(outcome)) => {
                (status_after(operation, outcome), self.links(node))
            }
            (WorkStage::Ended, None) => return None,
        };
        if status.is_none() && links.is_empty() {
            return None;
        }
        let reason = node.ending().and_then(|ending| ending.reason.as_ref());
        let reason = reason.filter(|_| status == Some(Status::Blocked));
        let reason = reason.map(|reason| reason.message.clone());
        Some(TaskListUpdate { task, work, status, reason, links })
    }

    /// Returns the files a delegation named, or else those it and all below it changed; so many that
    /// an entry can still be read.
    fn links(&self, node: &Node) -> Vec<Artifact> {
        if !node.results.artifacts.is_empty() {
            let named = node.results.artifacts.iter();
            let links = named.map(|it| Artifact { kind: it.kind, path: it.path.clone() });
            return links.take(MAX_LINKS).collect();
        }
        let operation = self.assignment.as_ref().map(|it| it.operation).unwrap_or_default();
        let kind = kind_written(operation);
        let changed = self.changed_below(node).into_iter().map(str::to_owned);
        changed.take(MAX_LINKS).map(|path| Artifact { kind, path }).collect()
    }

    /// Returns the files that a delegation and all below it changed.
    pub(super) fn changed_below<'a>(&'a self, node: &'a Node) -> BTreeSet<&'a str> {
        let mut changed = BTreeSet::new();
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            changed.extend(node.results.changed.iter().map(String::as_str));
            waiting.extend(node.delegations.children.iter().map(|child| &self.nodes[*child]));
        }
        changed
    }

    /// Folds in what a slash command is about. One that works itself works on the only task it names.
    pub(super) fn assigned(&mut self, assignment: &Assignment) {
        if let (None, [only], Some(root)) =
            (&assignment.agent, assignment.tasks.as_slice(), self.nodes.first_mut())
        {
            root.terms.task = Some(*only);
        }
        self.assignment = Some(assignment.clone());
        self.open_mark(ROOT, WorkStage::Begun);
        self.check_readiness(ROOT);
    }

    /// Returns how a slash command ends once its agent has said so: as the work it handed down did.
    ///
    /// The latest delegation of each task counts, for what failed may have been tried again. Why one
    /// fell short is its own to say.
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
        Code::StatusSyncFailed,
        format!("Task {task} cannot be marked, so no work was begun on it: {problem}"),
        "Put the list right, then run the command again.",
    )
}

/// Says that the work of a command is done and its list does not show it.
fn unmarked_end(operation: Operation, task: u64, problem: &str) -> PlannedEnd {
    let status = status_after(operation, Outcome::Completed).map_or("STATUS", Status::as_str);
    PlannedEnd::partial(
        Code::StatusSyncFailed,
        format!("The work is done, but task {task} could not be marked: {problem}"),
        &format!("Put the list right, then `adjutant task set {task} {status}`."),
    )
}

/// A command that handed down only some of its tasks is not done with the others.
fn left_out(agent: &str, tasks: &[String], refusal: Option<&Reason>) -> PlannedEnd {
    let (s, were) = if tasks.len() == 1 { ("", "was") } else { ("s", "were") };
    let why = refusal.map(|reason| format!(" {}", reason.message)).unwrap_or_default();
    PlannedEnd::partial(
        Code::ValidationFailed,
        format!("Task{s} {} {were} not handed to `{agent}`.{why}", tasks.join(", ")),
        "Run the command again for what is left.",
    )
}

/// A command that was to hand its work to an agent and did not has nothing to show for itself.
fn nothing_done(agent: &str, refusal: Option<Reason>) -> PlannedEnd {
    if refusal.is_some() {
        return PlannedEnd { outcome: Outcome::Failed, reason: refusal };
    }
    PlannedEnd::new(
        Outcome::Failed,
        Code::ValidationFailed,
        format!("Nothing was handed to `{agent}`, so nothing was done."),
        "Run the command again, or with another model.",
    )
}

impl PendingListUpdates {
    fn is_open(&self, work: WorkStage) -> bool {
        match work {
            WorkStage::Begun => self.begin,
            WorkStage::Ended => self.end == EndUpdate::Due,
        }
    }

    /// Returns what is to be marked next.
    fn next(&self) -> Option<WorkStage> {
        [WorkStage::Begun, WorkStage::Ended].into_iter().find(|work| self.is_open(*work))
    }

    /// Returns why the end could not be marked.
    fn problem(&self) -> Option<&str> {
        if let EndUpdate::Failed(problem) = &self.end { Some(problem) } else { None }
    }
}
