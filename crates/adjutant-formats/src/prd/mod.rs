//! PRDs: JSON files of user stories, and how they are read, ordered and edited.
//!
//! Owns the fields of a story, which stories may run and in which order, which parts need the user's consent,
//! and how the outcome of a story is recorded. It does no IO and grants nothing: a PRD is content of a
//! repository and may only tighten what the user allowed.
//!
//! Start at [`Prd::read`]. Invariant: [`Prd::edit`] changes only the entry of one story and the entries of
//! its children; every other byte stays unchanged.

mod config;
mod consent;
mod edit;
mod error;
mod finding;
mod order;
mod outcome;
mod planned_child;
mod priority;
mod prompt;
mod read;
mod story;
mod story_digest;
mod story_id;

pub use config::PrdDelegationConfig;
pub use consent::{ConsentRequest, ConsentRequests};
pub use error::PrdError;
pub use finding::PrdFinding;
pub use order::child_number;
pub use outcome::{PrdChildOutcome, PrdOutcome};
pub use planned_child::PlannedChild;
pub use priority::StoryPriority;
pub use prompt::story_prompt;
pub use read::Prd;
pub use story::{ChildStoryContext, Story};
pub use story_digest::story_digest;
