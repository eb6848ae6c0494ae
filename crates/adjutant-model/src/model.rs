//! The interface between an agent and the model that answers it.
//!
//! Owns the trait and its request and progress types; messages and replies are types of `adjutant-core`. Wire
//! formats and retries are implemented elsewhere.
//!
//! Start at [`Model::turn`]. Invariant: the cost of a call does not grow with the number of earlier messages.

use std::fmt::Debug;
use std::pin::Pin;

use adjutant_core::{AttemptResult, Message, ModelSpec, ReasoningEffort, SessionId, ToolSpec};

/// A boxed future that may move between threads, so that [`Model`] stays object-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A language model, or a substitute for one.
///
/// The contract of every implementation:
///
/// - **Complete means ended.** `Ok` is returned only after the provider's own end event. A stream
///   that breaks off is [`ModelErrorKind::Truncated`], however much text has arrived.
/// - **One call, one attempt.** There are no retries inside: each attempt is reserved and settled
///   on its own, so the engine must see every one. `retry_after_ms` carries the wait that a
///   provider asks for.
/// - **Errors are typed.** [`ModelErrorKind`] decides what happens next; the message is for people and
///   holds no key, header or body.
/// - **Dropping cancels.** The future owns its connection; dropping it closes the connection at once.
/// - **Cost is proportional to the new bytes.** The whole conversation is borrowed. An implementation that
///   serialises it keeps the serialised prefix by session and appends to it.
/// - **Progress resets the stall timer.** Each piece from the provider is reported when it
///   arrives; keep-alives are not progress. A pause before sending is reported as such.
///
/// [`ModelErrorKind`]: adjutant_core::ModelErrorKind
/// [`ModelErrorKind::Truncated`]: adjutant_core::ModelErrorKind::Truncated
pub trait Model: Send + Sync + Debug {
    /// Returns the model's context window, maximum output and price.
    fn spec(&self) -> &ModelSpec;

    /// Runs one turn to its provider's own end event.
    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult>;

    /// Drops cached data of a session that has ended.
    fn forget(&self, session: SessionId) {
        let _ = session;
    }
}

/// The request of one turn; all data is borrowed from the engine.
#[derive(Clone, Copy, Debug)]
pub struct TurnRequest<'a> {
    /// The name of the agent.
    pub agent: &'a str,
    /// The label of its task.
    pub label: &'a str,
    /// The delegation this turn belongs to.
    pub session: SessionId,
    /// The number of this turn in the session, from 1. A resumed run continues the count.
    pub turn: u32,
    /// The number of this attempt at the turn, from 1.
    pub attempt: u32,
    /// The system prompt.
    pub system: &'a str,
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// The tools of the conversation. They stay the same in all its turns, so that providers can cache them.
    pub tools: &'a [ToolSpec],
    /// Whether the model may call them in this turn.
    pub may_call_tools: bool,
    /// The maximum number of output tokens.
    pub max_output: u64,
    /// The reasoning effort of this conversation; `None` uses the provider's default.
    pub effort: Option<ReasoningEffort>,
    /// The engine's running estimate of the tokens in this request.
    ///
    /// It is [`estimate::tokens`](crate::estimate::tokens) of the sizes that the other functions of
    /// [`estimate`](crate::estimate) return: the prefix once, then each message once.
    pub context_tokens: u64,
}

/// What a model reports while a turn runs: text, hidden bytes, or a pause before the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnProgress<'a> {
    /// A piece of the reply's text.
    Text(&'a str),
    /// The number of received bytes that are not shown: tool arguments or reasoning.
    Bytes(u64),
    /// Nothing was sent yet, because the provider asked for a pause.
    Waiting {
        /// The provider.
        provider: &'a str,
        /// The remaining pause in milliseconds.
        ms: u64,
    },
}
