//! From tasks to briefs: who works on a task, on which model, and what they are told first.
//!
//! `brief_builder` builds briefs from tasks, `role` says what a definition may do in a run, `prompt` words what
//! every subagent is told.

pub(crate) mod brief_builder;
pub(crate) mod prompt;
pub(crate) mod role;
