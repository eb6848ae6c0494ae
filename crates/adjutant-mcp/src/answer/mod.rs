//! Answers to tool calls: the results of a run in the requested form, cut to the size that the client
//! accepts.

pub(crate) mod form_file;
pub(crate) mod page;
pub(crate) mod patches;
mod render;
pub(crate) mod root_summary;
pub(crate) mod sizes;

pub(crate) use render::{
    AnswerForm, MergeStep, approval_instructions, merge_text, of_cancel, of_diff, of_failure,
    of_list, of_merge, of_run, of_start, of_status, of_validation, run_status_json, state, title,
};
