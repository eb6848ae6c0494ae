//! What a story means for the work that its run left; every other run has the plain answer.

use super::StoryReport;
use crate::run::{Delegation, RunView};

impl RunView {
    /// Returns the commits of earlier runs that the work began with, first things first.
    #[must_use]
    pub fn begun_upon(&self) -> &[String] {
        self.story().map(|story| story.takes_in.as_slice()).unwrap_or_default()
    }

    /// Says whether the work of a delegation belongs to that of its parent: it was merged into it, or may only be used
    /// through it.
    #[must_use]
    pub fn is_part_of_parent(&self, delegation: &Delegation) -> bool {
        let merges = self.policy().is_some_and(|policy| policy.merge_children);
        let is_below_story = delegation.parent.is_some() && self.story().is_some() && merges;
        is_below_story || delegation.is_merged()
    }

    /// Says whether completed work of the agent at the root counts: that of a story does only where the story passes.
    #[must_use]
    pub fn is_root_work_accepted(&self) -> bool {
        StoryReport::of(self).is_none_or(|report| report.passes)
    }

    /// Says whether the agent at the root works itself and does not only lead others.
    #[must_use]
    pub fn is_worked_on_at_root(&self) -> bool {
        self.story().is_some()
    }
}
