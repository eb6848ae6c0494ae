//! PRDs: files of stories, read, put in order and changed by splices.
//!
//! Owns what a story may say, which of them may run and when, what of it needs a person's consent,
//! and how the end of a story is written down. It reads and writes no file, and admits nothing: a
//! PRD is content of a repository, and may only tighten what a person allowed.
//!
//! Start at [`Prd::read`]. Invariant: [`Prd::edit`] changes the entry of one story and those of its
//! children; every other byte is the byte that came in.

mod asked;
mod config;
mod edit;
mod error;
mod finding;
mod id;
mod order;
mod outcome;
mod planned;
mod priority;
mod prompt;
mod read;
mod story;
mod wishes;

pub use asked::asked;
pub use config::DelegationConfig;
pub use error::PrdError;
pub use finding::Finding;
pub use order::child_number;
pub use outcome::{ChildOutcome, Outcome};
pub use planned::Planned;
pub use priority::Priority;
pub use prompt::story_prompt;
pub use read::Prd;
pub use story::{Context, Story};
pub use wishes::{Wish, Wishes};
