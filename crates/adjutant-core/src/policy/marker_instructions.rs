//! The instructions for agents that delegate with markers: the syntax and their limits.

use super::Policy;

impl Policy {
    /// Returns the instructions for an agent at `depth`; `None` if it cannot delegate.
    #[must_use]
    pub fn marker_instructions(&self, depth: u64) -> Option<String> {
        self.judge_depth(depth, String::new).ok()?;
        let max_depth = self.max_depth;
        let most = self.children_per_parent.unwrap_or(self.tasks_per_call);
        let at_once = self.concurrency.min(most);
        let merged = if self.merge_children {
            "What they complete is merged into your workspace where it is clean; conflicts are named, and \
             are yours to settle."
        } else {
            "Their work stays on branches of their own."
        };
        Some(format!(
            "You can delegate complex subtasks using this syntax, as plain text in your answer, outside code:\n\
             [delegate:subtask_description:estimated_hours]\n\n\
             Example:\n\
             \\[delegate:Implement JWT token generation and validation:4]\n\
             \\[delegate:Create login UI component with form validation:3]\n\n\
             Constraints:\n\
             - Maximum delegation depth: {max_depth} (you are at depth {depth})\n\
             - At most {most} subtasks of yours in all; {at_once} work at once, the others wait\n\
             - Each subtask must be independently completable: its agent sees your workspace as it is now and \
             nothing of this conversation\n\
             - Estimated hours guide complexity selection; write them as a whole number\n\n\
             End your answer after the markers. You are told the results of all of them together. {merged}"
        ))
    }
}
