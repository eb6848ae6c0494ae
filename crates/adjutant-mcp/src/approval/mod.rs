//! Calls that need a person's yes: who is asked, and where the question waits meanwhile.
//!
//! The run asks, keeps the question in its journal and judges the answer: it is bound to the hash of
//! the exact call, counts once, and expires. This module only carries question and answer between the
//! run and a client that can put them to a person. Where none can, the question waits in the inbox.
//!
//! Start at `QuestionRelay::follow`. Invariant: no tool leads here with an answer; it comes from the client's own
//! reply to a question of ours, or from a terminal.

mod ask;
mod mode;
mod open_question;
mod relay;
pub(crate) mod rounds;

pub use mode::ApprovalMode;
pub(crate) use open_question::{OpenQuestion, UnansweredReason};
pub(crate) use relay::{AskOutcome, QuestionRelay};
