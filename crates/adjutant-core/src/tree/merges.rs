//! Merging what children completed into the workspace of their parent, one after the other, before
//! the parent is told.
//!
//! Merging is an effect that may be done again after a crash. Invariant: a parent is handed the results
//! of a call only once every merge of it was made, was refused for a conflict, or has failed.

use super::Tree;
use super::node::Node;
use crate::command::Effect;
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::outcome::Outcome;
use crate::workspace::{KeptWork, MergedWork};

impl Tree {
    /// Records what came of a merge.
    pub(super) fn take_merge(
        &self,
        session: SessionId,
        merged: Result<MergedWork, String>,
    ) -> Vec<Event> {
        let Some(node) = self.node(session).filter(|node| node.duties.merge.is_some()) else {
            return Vec::new();
        };
        let above = node.parent.map(|parent| &self.nodes[parent]);
        let (merged, problem) = match merged {
            Ok(merged) => (merged, None),
            // Who has ended has its workspace shut; whoever takes it up again merges then.
            Err(_) if above.is_none_or(|above| !above.is_running()) => return Vec::new(),
            Err(problem) => (MergedWork::default(), Some(problem)),
        };
        vec![Event::Merged { session, merged, problem }]
    }

    /// Folds in that kept work is to be merged into the workspace above it.
    pub(super) fn open_merge(&mut self, index: usize, kept: &KeptWork) {
        let node = &self.nodes[index];
        let above = node.parent.map(|parent| &self.nodes[parent]);
        let takes = |above: &Node| above.space.is_some();
        let is_done = node.outcome() == Some(Outcome::Completed);
        // It waits while the one above has ended: that may be taken up again.
        if self.policy.merge_children && is_done && above.is_some_and(takes) {
            self.nodes[index].duties.merge.clone_from(&kept.commit);
        }
    }

    pub(super) fn merged(&mut self, session: SessionId) -> Result<(), IllegalEvent> {
        let index = self.known("merged", session)?;
        match self.nodes[index].duties.merge.take() {
            Some(_) => Ok(()),
            None => Err(super::evolve::unfit("merged", "nothing was to be merged")),
        }
    }

    /// Returns the next merge of a call, once all of its tasks are at rest.
    pub(super) fn due_merge(&self, parent: &Node, call: u32) -> Option<Effect> {
        let children = parent.delegations.children.iter().map(|child| &self.nodes[*child]);
        let mut waiting =
            children.filter(|child| child.call == call && child.duties.merge.is_some());
        let child = waiting.next().filter(|_| parent.is_running())?;
        let commit = child.duties.merge.clone()?;
        Some(Effect::Merge { session: child.session, into: parent.session, commit })
    }
}
