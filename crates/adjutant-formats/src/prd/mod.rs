//! PRDs: files of stories, read, put in order and changed by splices.
//!
//! Owns what a story may say, which of them may run and when, what of it needs a person's consent,
//! and how the end of a story is written down. It reads and writes no file, and admits nothing: a
//! PRD is content of a repository, and may only tighten what a person allowed.
//!
//! Start at [`Prd::read`]. Invariant: [`Prd::edit`] changes the entry of one story and those of its
//! children; every other byte is the byte that came in.

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
pub use story::{Story, StoryContext};
pub use story_digest::story_digest;
