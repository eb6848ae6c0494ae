//! What the agents of a run were told about the project, and how much of their context it takes.

use std::sync::Arc;

use super::{Node, ROOT, Tree};
use crate::environment::{Environment, GrantedLimits};
use crate::rights::Rights;
use crate::verify::VerifyCommand;
use crate::write::RUN;

impl Tree {
    /// Returns what the agents of the run were told about the project; `None` if nothing was recorded.
    #[must_use]
    pub const fn environment(&self) -> Option<&Arc<Environment>> {
        self.environment.as_ref()
    }

    pub(super) fn fold_environment(&mut self, environment: Option<&Environment>) {
        self.environment = environment.cloned().map(Arc::new);
        let bytes = self.environment_bytes(&self.nodes[ROOT].rights, None);
        let tokens = self.policy.budget_tokens_run;
        let root = &mut self.nodes[ROOT];
        root.context.environment_bytes = bytes;
        root.context.appended_bytes += bytes;
        root.continuations.brief_bytes += bytes;
        root.granted_limits = GrantedLimits { tokens, ..GrantedLimits::default() };
    }

    /// Returns the bytes that the environment adds to the first request of an agent. `instructions` are those of its
    /// brief.
    pub(super) fn environment_bytes(&self, rights: &Rights, instructions: Option<&str>) -> u64 {
        let runs_commands = rights.usable_tools().contains(RUN);
        self.environment.as_ref().map_or(0, |it| it.bytes(runs_commands, instructions))
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
