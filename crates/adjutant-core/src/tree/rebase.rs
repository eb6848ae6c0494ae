//! Resuming an ended delegation on the present state of the user's files.
//!
//! The engine merges the work into a new capture of the files before the resume is decided; here is
//! judged whether that makes sense, and what the agent is told. Start at [`Tree::check_rebase`].

use super::Tree;
use super::node::KeepDuty;
use crate::command::ResumeOptions;
use crate::ids::SessionId;
use crate::workspace::RebaseProblem;

/// The message to an agent whose work was moved onto the user's present files.
const REBASED: &str = "The files of the project changed since you began. Your workspace now has the present files, with \
your work merged into them. A file that both sides changed in the same place contains conflict markers: the present \
version after `<<<<<<< yours`, the common one after `|||||||`, and your version up to `>>>>>>> result`. Resolve every \
conflict so that both intentions hold, remove the markers, check the result, and finish your task.";

/// The most conflicts that the message lists.
const LISTED_CONFLICTS: usize = 20;

impl Tree {
    /// Checks whether the work of an ended delegation can be moved onto the user's present files.
    ///
    /// # Errors
    ///
    /// The first [`RebaseProblem`] that applies.
    pub fn check_rebase(&self, session: SessionId) -> Result<(), RebaseProblem> {
        let index = self.by_session.get(&session).copied().ok_or(RebaseProblem::Unknown)?;
        let node = &self.nodes[index];
        if node.is_live() {
            Err(RebaseProblem::Live)
        } else if node.space.is_none() {
            Err(RebaseProblem::NoWorkspace)
        } else if self.scopes(index).skip(1).any(|above| self.nodes[above].space.is_some()) {
            Err(RebaseProblem::BelowParent)
        } else if node.duties.keep != KeepDuty::Nothing {
            Err(RebaseProblem::Uncommitted)
        } else if !node.can_go_on(true) {
            Err(RebaseProblem::Final)
        } else {
            Ok(())
        }
    }
}

/// Adds to the person's message that the work was moved, and names its delegation as the one to resume.
pub(super) fn with_rebase_message(mut wish: ResumeOptions) -> ResumeOptions {
    let Some(rebased) = &wish.rebased else { return wish };
    let mut text = REBASED.to_owned();
    let listed = rebased.conflicts.iter().take(LISTED_CONFLICTS);
    text.extend(listed.map(|conflict| format!("\n- {}: {}", conflict.path, conflict.what)));
    text += match rebased.conflicts.len() {
        0 => " There were no conflicts.",
        count if count > LISTED_CONFLICTS => "\n- and more; search for the markers",
        _ => "",
    };
    if let Some(words) = &wish.say {
        text += &format!("\n\n{words}");
    }
    (wish.session, wish.say) = (Some(rebased.session), Some(text));
    wish
}
