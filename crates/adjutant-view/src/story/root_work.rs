//! How a story changes the meaning of a run's work; other runs get the simple answers.

use super::StoryReport;
use crate::run::{Delegation, RunView};

impl RunView {
    /// Returns the commits of earlier runs that the work is based on, in order.
    #[must_use]
    pub fn begun_upon(&self) -> &[String] {
        self.story().map(|story| story.takes_in.as_slice()).unwrap_or_default()
    }

    /// Returns whether a delegation's work belongs to its parent's: it was merged into it, or can only be
    /// used through it.
    #[must_use]
    pub fn is_part_of_parent(&self, delegation: &Delegation) -> bool {
        let merges = self.policy().is_some_and(|policy| policy.merge_children);
        let is_below_story = delegation.parent.is_some() && self.story().is_some() && merges;
        is_below_story || delegation.is_merged()
    }

    /// Returns whether completed work of the root agent counts; in a story only if the story passes.
    #[must_use]
    pub fn is_root_work_accepted(&self) -> bool {
        StoryReport::of(self).is_none_or(|report| report.passes)
    }

    /// Returns whether the root agent changes files itself and does not only delegate.
    #[must_use]
    pub fn is_worked_on_at_root(&self) -> bool {
        self.story().is_some()
    }
}
