//! What the agents of a run were told about the project, and how much of their context it takes.
//!
//! Facts are recorded for the whole run, and for each batch of workspaces whose base has others. Invariant: agents of
//! one batch that have workspaces are told the same facts.

use std::sync::Arc;

use super::{Node, ROOT, Tree};
use crate::environment::{GrantedLimits, ProjectFacts, ProjectGuidance};
use crate::ids::SessionId;
use crate::rights::Rights;
use crate::verify::VerifyCommand;
use crate::write::RUN;

impl Tree {
    /// Returns what the agents of the run were told about the project; `None` if nothing was recorded.
    #[must_use]
    pub const fn environment(&self) -> Option<&Arc<ProjectGuidance>> {
        self.environment.as_ref()
    }

    /// Returns the facts that a delegation is told about the project: those of the workspace in which its tools act,
    /// or those of the run. `None` if nothing was recorded.
    #[must_use]
    pub fn project_facts(&self, session: SessionId) -> Option<&ProjectFacts> {
        self.facts_at(*self.by_session.get(&session)?)
    }

    fn facts_at(&self, index: usize) -> Option<&ProjectFacts> {
        let run_wide = &self.environment.as_ref()?.project;
        let own = |node: &Node| {
            node.space.as_ref()?;
            self.batch_facts.get(&self.batch_of(node.session))?.as_deref()
        };
        Some(self.chain(index).find_map(own).unwrap_or(run_wide))
    }

    /// Returns the facts that a delegation is told until it has a workspace of its own.
    fn inherited_facts(&self, index: usize) -> Option<&ProjectFacts> {
        let run_wide = || self.environment.as_ref().map(|environment| &environment.project);
        self.nodes[index].parent.map_or_else(run_wide, |parent| self.facts_at(parent))
    }

    /// Says whether the facts about the base of a delegation's workspace are still unknown: it is the first of its
    /// batch that gets one.
    #[must_use]
    pub fn needs_project_facts(&self, session: SessionId) -> bool {
        self.environment.is_some() && !self.batch_facts.contains_key(&self.batch_of(session))
    }

    /// Returns the facts to record with a new workspace: none if those of its batch are known, or if the delegation is
    /// told the same anyway.
    pub(super) fn new_facts(
        &self,
        index: usize,
        facts: Option<ProjectFacts>,
    ) -> Option<Box<ProjectFacts>> {
        let is_first = self.needs_project_facts(self.nodes[index].session);
        let facts = facts.filter(|facts| is_first && self.inherited_facts(index) != Some(facts));
        facts.map(Box::new)
    }

    /// Folds the facts that were recorded with the workspace of a node.
    pub(super) fn fold_facts(&mut self, index: usize, facts: Option<&ProjectFacts>) {
        let batch = self.batch_of(self.nodes[index].session);
        self.batch_facts.entry(batch).or_insert_with(|| facts.cloned().map(Arc::new));
        let bytes = |facts: Option<&ProjectFacts>| facts.map_or(0, |it| it.text.len() as u64);
        let counted = bytes(self.inherited_facts(index));
        let more = bytes(self.facts_at(index)).saturating_sub(counted);
        let node = &mut self.nodes[index];
        node.context.environment_bytes += more;
        node.context.appended_bytes += more;
        node.continuations.brief_bytes += more;
    }

    pub(super) fn fold_environment(&mut self, environment: Option<&ProjectGuidance>) {
        self.environment = environment.cloned().map(Arc::new);
        let bytes = self.environment_bytes(ROOT, &self.nodes[ROOT].rights, None);
        let tokens = self.policy.budget_tokens_run;
        let root = &mut self.nodes[ROOT];
        root.context.environment_bytes = bytes;
        root.context.appended_bytes += bytes;
        root.continuations.brief_bytes += bytes;
        root.granted_limits = GrantedLimits { tokens, ..GrantedLimits::default() };
    }

    /// Returns the bytes that the environment adds to the first request of an agent that is told the facts of `like`.
    /// `instructions` are those of its brief.
    pub(super) fn environment_bytes(
        &self,
        like: usize,
        rights: &Rights,
        instructions: Option<&str>,
    ) -> u64 {
        let runs_commands = rights.usable_tools().contains(RUN);
        let known = self.environment.as_ref().zip(self.facts_at(like));
        known.map_or(0, |(it, facts)| it.bytes(facts, runs_commands, instructions))
    }
}

impl Node {
    /// Returns the limits it was told: those at the time of its grant.
    #[must_use]
    pub const fn granted_limits(&self) -> GrantedLimits {
        self.granted_limits
    }

    /// Returns the verify command that must succeed before its work counts as done.
    #[must_use]
    pub const fn verify(&self) -> Option<&VerifyCommand> {
        self.terms.verify.as_ref()
    }
}
