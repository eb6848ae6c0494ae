//! The text formats of Adjutant: parsing with positions, validation, and edits that leave all other bytes
//! alone.
//!
//! Covers markers, returns, PRDs, the task files, JSON and TOML text, and the ids, codes and amounts in them.
//! It does no IO, reads no clock, uses no randomness and decides no policy: `adjutant-core` allows or refuses
//! what a text asks for. Start at [`contract::validate()`], [`prd::Prd::read`], [`task::TaskFiles::read`] or
//! [`marker::parse()`].

pub mod code;
pub mod contract;
pub mod document;
pub mod excerpt;
pub mod fields;
pub mod ids;
pub mod json;
pub mod line_diff;
pub mod marker;
pub mod money;
mod nearest;
pub mod numbers;
pub mod outcome;
pub mod patch;
pub mod prd;
pub mod search_replace;
pub mod task;
pub mod time;
pub mod usage;

pub use code::ErrorCode;
pub use ids::{AgentName, Label, RunId, SessionId};
pub use money::{Price, PriceOverride, Usd};
pub use nearest::nearest;
pub use outcome::{DelegationState, Outcome, OutcomeReason};
pub use time::Timestamp;
pub use usage::Usage;
