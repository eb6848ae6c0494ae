//! Merges completed work of children into their parent's workspace, one after the other, before the
//! parent gets the results.
//!
//! A merge is idempotent. Invariant: a parent gets the results of a call only when every merge of
//! it was made, had a conflict, or failed.

use super::Tree;
use super::node::Node;
use crate::command::Effect;
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::outcome::Outcome;
use crate::workspace::{KeptWork, MergedWork};

impl Tree {
    /// Records the result of a merge.
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
            // The workspace of an ended parent is closed; the merge is made if it is resumed.
            Err(_) if above.is_none_or(|above| !above.is_running()) => return Vec::new(),
            Err(problem) => (MergedWork::default(), Some(problem)),
        };
        vec![Event::Merged { session, merged, problem }]
    }

    /// Schedules the merge of committed work into the parent's workspace.
    pub(super) fn open_merge(&mut self, index: usize, kept: &KeptWork) {
        let node = &self.nodes[index];
        let above = node.parent.map(|parent| &self.nodes[parent]);
        let takes = |above: &Node| above.space.is_some();
        let is_done = node.outcome() == Some(Outcome::Completed);
        // It stays pending while the parent has ended, because the parent may be resumed.
        if self.policy.merge_children && is_done && above.is_some_and(takes) {
            self.nodes[index].duties.merge.clone_from(&kept.commit);
        }
    }

    pub(super) fn fold_merged(&mut self, session: SessionId) -> Result<(), IllegalEvent> {
        let index = self.known_index("merged", session)?;
        match self.nodes[index].duties.merge.take() {
            Some(_) => Ok(()),
            None => Err(super::evolve::illegal_event("merged", "nothing was to be merged")),
        }
    }

    /// Returns the next pending merge of a call whose tasks have all ended.
    pub(super) fn due_merge(&self, parent: &Node, call: u32) -> Option<Effect> {
        let children = parent.delegations.children.iter().map(|child| &self.nodes[*child]);
        let mut waiting =
            children.filter(|child| child.call == call && child.duties.merge.is_some());
        let child = waiting.next().filter(|_| parent.is_running())?;
        let commit = child.duties.merge.clone()?;
        Some(Effect::Merge { session: child.session, into: parent.session, commit })
    }
}
