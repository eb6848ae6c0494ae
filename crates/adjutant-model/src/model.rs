//! The one interface between an agent and whatever answers it.
//!
//! Owns the trait and what passes through it besides the shared words of `adjutant-core`. How a
//! provider spells a conversation, and what happens after a failed attempt, is decided elsewhere.
//!
//! Start at [`Model::turn`]. Invariant: nothing here costs more because earlier messages exist.

use std::fmt::Debug;
use std::pin::Pin;

use adjutant_core::{AttemptResult, Message, ModelSpec, SessionId, ToolSpec};

/// A boxed future that may move between threads, so that [`Model`] stays object-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that answers a conversation.
///
/// The contract, which every implementation keeps:
///
/// - **Complete means ended.** `Ok` is returned only after the provider's own end event. A stream
///   that breaks off is [`ErrorKind::Truncated`], however much text has arrived.
/// - **One call, one attempt.** There are no retries inside: each attempt is reserved and settled
///   on its own, so the engine must see every one. `retry_after_ms` carries a provider's wish.
/// - **Errors are typed.** [`ErrorKind`] decides what happens next; the message is for people and
///   holds no key, header or body.
/// - **Dropping cancels.** The future owns its connection; dropping it closes that at once.
/// - **Cost follows the new bytes.** The whole conversation is borrowed. An implementation that
///   serialises it keeps the serialised prefix by session and appends to it.
/// - **Progress feeds the stall clock.** Each piece that arrives from the provider is reported
///   when it arrives; keep-alives are not progress. A pause before sending is reported as such.
///
/// [`ErrorKind`]: adjutant_core::ErrorKind
/// [`ErrorKind::Truncated`]: adjutant_core::ErrorKind::Truncated
pub trait Model: Send + Sync + Debug {
    /// Returns what the model can hold and what it charges.
    fn spec(&self) -> &ModelSpec;

    /// Runs one turn to its provider's own end event.
    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult>;

    /// Drops what was kept for a session that will not ask again.
    fn forget(&self, session: SessionId) {
        let _ = session;
    }
}

/// What a model is asked in one turn; everything is borrowed from the engine.
#[derive(Clone, Copy, Debug)]
pub struct TurnRequest<'a> {
    /// The agent that asks.
    pub agent: &'a str,
    /// What its task is called.
    pub label: &'a str,
    /// The delegation this turn belongs to.
    pub session: SessionId,
    /// The number of this turn in the session; the first is 1. A resume goes on counting.
    pub turn: u32,
    /// The number of this try at the turn; the first is 1.
    pub attempt: u32,
    /// The system prompt.
    pub system: &'a str,
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// The tools the model may ask for.
    pub tools: &'a [ToolSpec],
    /// The most tokens the answer may have.
    pub max_output: u64,
    /// What the request holds by the engine's estimate, kept as a running sum.
    ///
    /// It is [`estimate::tokens`](crate::estimate::tokens) of the bytes that the other functions
    /// of [`estimate`](crate::estimate) weigh: the prefix once, then each message once.
    pub context_tokens: u64,
}

/// A sign of life during a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnProgress<'a> {
    /// A piece of the answer's text.
    Text(&'a str),
    /// Bytes of something that is not shown: tool arguments, thinking.
    Bytes(u64),
    /// Nothing was sent yet: the provider asked for a pause, and this is what is left of it.
    Waiting {
        /// Who asked.
        provider: &'a str,
        /// How long it is waited.
        ms: u64,
    },
}
