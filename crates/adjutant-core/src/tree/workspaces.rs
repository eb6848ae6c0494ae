//! Own workspaces of writers: made before the first turn, committed after the end.
//!
//! Both effects are idempotent. Invariant: a writer takes no turn before its workspace is recorded;
//! its result is returned and the run ends only when its work is committed or that has failed.

use super::node::{KeepDuty, Node, PlannedEnd};
use super::{ROOT, Tree};
use crate::code::ErrorCode;
use crate::command::Effect;
use crate::environment::ProjectFacts;
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::outcome::Outcome;
use crate::workspace::{KeptWork, OwnWorkspace, WorkspaceFailure};

impl Tree {
    /// Records a new workspace, or ends the delegation if it could not be made.
    pub(super) fn take_space(
        &self,
        session: SessionId,
        made: Result<OwnWorkspace, WorkspaceFailure>,
        project: Option<ProjectFacts>,
    ) -> Vec<Event> {
        let Some((index, node)) = self.at_work(session).filter(|(_, node)| node.needs_space())
        else {
            return Vec::new();
        };
        match made {
            Ok(space) => {
                let project = self.new_facts(index, project);
                vec![Event::SpaceMade { session, space, project }]
            }
            Err(none) => self.end_subtree(index, &no_space(node, &none)),
        }
    }

    /// Records the commit of a workspace's work.
    pub(super) fn keep_space(
        &self,
        session: SessionId,
        kept: Result<KeptWork, String>,
    ) -> Vec<Event> {
        let waits = self.node(session).is_some_and(|node| node.duties.keep == KeepDuty::Due);
        let (kept, problem) = match kept {
            Ok(kept) => (kept, None),
            Err(problem) => (KeptWork::default(), Some(problem)),
        };
        waits.then_some(Event::SpaceKept { session, kept, problem }).into_iter().collect()
    }

    pub(super) fn space_made(
        &mut self,
        session: SessionId,
        space: &OwnWorkspace,
        project: Option<&ProjectFacts>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("space_made", session)?;
        self.nodes[index].space = Some(space.clone());
        self.fold_facts(index, project);
        self.check_readiness(index);
        Ok(())
    }

    /// Schedules the commit of an ended node's work.
    pub(super) fn open_keep(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.space.is_some()
            && std::mem::replace(&mut node.duties.keep, KeepDuty::Due) != KeepDuty::Due
        {
            self.open_keeps += 1;
        }
    }

    pub(super) fn space_kept(
        &mut self,
        session: SessionId,
        kept: &KeptWork,
        problem: Option<&str>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("space_kept", session)?;
        let node = &mut self.nodes[index];
        if node.duties.keep != KeepDuty::Due {
            return Err(super::evolve::illegal_event("space_kept", "nothing was to be kept"));
        }
        let is_kept = problem.is_none() && kept.left.is_empty();
        node.duties.keep = if is_kept { KeepDuty::Nothing } else { KeepDuty::Failed };
        self.open_keeps -= 1;
        self.open_merge(index, kept);
        Ok(())
    }

    /// Cancels the pending commit and merge of a node that is resumed.
    pub(super) fn forget_keep(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.duties.merge = None;
        if std::mem::take(&mut node.duties.keep) == KeepDuty::Due {
            self.open_keeps -= 1;
        }
    }

    /// Returns the effect that makes a node's workspace.
    pub(super) fn make_space(&self, node: &Node) -> Effect {
        let index = self.by_session.get(&node.session).copied().unwrap_or(ROOT);
        let above = self.scopes(index).skip(1).map(|scope| &self.nodes[scope]);
        let above = above.filter(|node| node.space.is_some()).map(|node| node.session).next();
        let story = self.story.as_ref().filter(|_| index == ROOT);
        let takes_in = story.map(|story| story.takes_in.clone()).unwrap_or_default();
        Effect::MakeWorkspace { session: node.session, above, takes_in }
    }

    /// Returns the pending commits of all nodes.
    pub fn due_keeps(&self) -> impl Iterator<Item = Effect> {
        self.nodes.iter().filter_map(Self::due_keep)
    }

    pub(super) fn due_keep(node: &Node) -> Option<Effect> {
        let space = node.space.clone().filter(|_| node.duties.keep == KeepDuty::Due)?;
        Some(Effect::CommitWork { session: node.session, space })
    }

    /// Says whether a task of this call still has a pending commit.
    pub(super) fn is_keeping(&self, parent: SessionId, call: u32) -> bool {
        let parent = self.node(parent).filter(|_| self.open_keeps > 0);
        parent.is_some_and(|parent| {
            let mut children = parent.delegations.children.iter().map(|child| &self.nodes[*child]);
            children.any(|child| child.call == call && child.duties.keep == KeepDuty::Due)
        })
    }

    /// Lowers `Completed` to `Partial` if some work could not be committed.
    pub(super) fn as_kept(&self, outcome: Outcome) -> Outcome {
        let is_unkept = self.nodes.iter().any(|node| node.duties.keep == KeepDuty::Failed);
        if is_unkept && outcome == Outcome::Completed { Outcome::Partial } else { outcome }
    }

    /// Returns the id of the batch that a delegation belongs to. The tasks of one call start from
    /// the same snapshot.
    #[must_use]
    pub fn batch_of(&self, session: SessionId) -> String {
        let node = self.node(session);
        let parent = node.and_then(|node| node.parent).map(|parent| self.nodes[parent].session);
        match (node, parent) {
            (Some(node), Some(parent)) => format!("{parent}-{}", node.call),
            _ => session.to_string(),
        }
    }

    /// Returns the workspace that a delegation's tools use: its own, or that of its nearest
    /// ancestor with one.
    #[must_use]
    pub fn space_of(&self, session: SessionId) -> Option<(SessionId, &OwnWorkspace)> {
        let index = *self.by_session.get(&session)?;
        self.chain(index).find_map(|node| Some((node.session, node.space.as_ref()?)))
    }

    /// Returns the ancestors of a delegation that have workspaces of their own, the nearest first. Its workspace is made
    /// from theirs, and its work may be merged into them.
    pub fn ancestors_with_spaces(&self, session: SessionId) -> impl Iterator<Item = SessionId> {
        let index = self.by_session.get(&session).copied();
        let above = index.into_iter().flat_map(|index| self.chain(index)).skip(1);
        above.filter(|node| node.space.is_some()).map(|node| node.session)
    }
}

fn no_space(node: &Node, none: &WorkspaceFailure) -> PlannedEnd {
    if none.clash {
        let advice = "Merge the work it builds on and settle the conflict there, or take your own changes to \
                      these files back; then begin the story again.";
        let message = format!("The story could not begin: {}", none.problem);
        return PlannedEnd::new(Outcome::Failed, ErrorCode::ToolUnavailable, message, advice);
    }
    let child = match &node.terms.story {
        Some(story) => format!("Child story: {story}"),
        None => format!("Child: {}", node.label),
    };
    let path = none.path.as_ref().map(|path| format!("Worktree path: {path}\n"));
    PlannedEnd::new(
        Outcome::Failed,
        ErrorCode::ToolUnavailable,
        format!(
            "ERROR: Failed to create child worktree for delegation.\n\n{child}\n{}Git error: {}\n\n\
             Action: Cleanup old worktrees and retry\nCommand: adjutant prune",
            path.unwrap_or_default(),
            none.problem
        ),
        "`adjutant doctor` says what this machine allows; `adjutant prune` clears what old runs left.",
    )
}

impl Node {
    /// Says whether it needs an own workspace that was not made yet.
    pub(super) fn needs_space(&self) -> bool {
        self.terms.works && self.space.is_none() && self.rights.has_own_space()
    }
}
