//! Calls that need a person's approval: who is asked, and where the question waits.
//!
//! The run asks, keeps the question in its journal and judges the answer: an answer is bound to the hash of
//! the exact call, counts once, and expires. This module only carries question and answer between the run and
//! a client that can ask a person. If no client can, the question waits in the inbox.
//!
//! Start at `QuestionRelay::follow`. Invariant: no tool call can carry an answer; answers come from the
//! client's reply to a question of this server, or from a terminal.

pub(crate) mod ask;
mod mode;
mod open_question;
mod relay;
pub(crate) mod rounds;

pub(crate) use ask::{PersonAnswer, SentQuestion};
pub use mode::{ApprovalMode, MergeApproval};
pub(crate) use open_question::{OpenQuestion, RejectedAnswerReason};
pub(crate) use relay::{AskOutcome, QuestionRelay};
