//! What each subagent is doing, as text: a display for a live terminal, lines for a pipe.
//!
//! Both read the same [`RunView`](crate::RunView) and use the same words; only the layout differs.

mod budget;
mod frame;
mod line;
mod words;

pub(crate) use budget::newly_reached;
pub use frame::ProgressFrame;
pub use line::line;
pub(crate) use words::{
    WORDS_COLUMNS, activity_text, doing_text, end_text, kept_counts, kept_words, list_update_text,
    merged_words, time,
};
pub use words::{slow_commit_text, total};
