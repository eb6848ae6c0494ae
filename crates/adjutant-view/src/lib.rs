//! Pure folds of the event stream into what people and programs read.
//!
//! [`RunView`] is the only fold; everything else renders from it, so that a number shown in two places is the
//! same number. Nothing here prints, reads a clock or queries the terminal's width: the caller passes `now`
//! and `width`, and gets text or a serializable type.
//!
//! Text from models and people passes through [`sanitize`] wherever a terminal may show it. JSON keeps it
//! unchanged.

pub mod approval;
pub mod budget_use;
pub mod cost;
pub mod cost_sums;
pub mod delegations;
pub mod error_groups;
pub mod errors;
pub mod eval;
pub mod events;
pub mod layout;
pub mod log;
pub mod palette;
pub mod patch;
pub mod progress;
pub mod receipt;
pub mod results;
pub mod run;
pub mod run_summary;
pub mod samples;
pub mod sanitize;
pub mod stages;
mod state_words;
pub mod status;
pub mod story;
pub mod terminal_markdown;
pub mod time_text;
pub mod timed_event;
pub mod timeline;
pub mod transcript;
pub mod tree;
pub mod turn_costs;
pub mod wire;
mod worker_text;

pub use palette::Palette;
pub use run::{Delegation, OutcomeCounts, ProcessLiveness, RunView, Spend, WorkerRecord};
pub use run_summary::RunSummary;
pub use timed_event::TimedEvent;
pub use worker_text::{WorkerJson, WorkerReportJson};
