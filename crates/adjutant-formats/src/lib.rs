//! The text formats of Adjutant: read with positions, judged, and changed without touching other bytes.
//!
//! Holds markers, returns, PRDs, the task lists and JSON text, and the ids, codes and amounts that occur in them.
//! It knows no file, no clock and no chance, and no policy: what a text asks for is allowed or refused by
//! `adjutant-core`. Start at [`contract::validate()`], [`prd::Prd::read`], [`task::Book::read`] or [`marker::parse()`].

pub mod code;
pub mod contract;
pub mod document;
pub mod excerpt;
pub mod fields;
pub mod ids;
pub mod json;
pub mod marker;
pub mod money;
mod nearest;
pub mod numbers;
pub mod outcome;
pub mod prd;
pub mod task;
pub mod time;
pub mod usage;

pub use code::Code;
pub use ids::{AgentName, Label, RunId, SessionId};
pub use money::{Price, PriceOverride, Usd};
pub use nearest::nearest;
pub use outcome::{Outcome, Reason, State};
pub use time::Timestamp;
pub use usage::Usage;
