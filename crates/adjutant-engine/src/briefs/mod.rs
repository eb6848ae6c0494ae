//! From tasks to briefs: which agent works on a task, on which model, with which system prompt.
//!
//! `brief_builder` builds briefs from tasks, `role` applies a policy to an agent definition, `effort` says how
//! much an agent reasons, `prompt` has the system prompts.

pub(crate) mod brief_builder;
pub(crate) mod effort;
pub(crate) mod environment;
pub(crate) mod instructions;
pub(crate) mod prompt;
pub(crate) mod role;
pub(crate) mod working_method;
