//! The script of a fake server: which request gets which answer.
//!
//! A script is a list of conversations. A request belongs to the first one whose `when` is found
//! in its system prompt or first user message; the number of turns the model has already taken in
//! it says which turn is next. Start at [`Script::new`] or [`Script::from_toml`]:
//!
//! ```toml
//! delay_ms = 20                                  # before every answer
//! usage = { input = 100, output = 10 }           # of turns that name none
//!
//! [[conversation]]
//! when = "auth-check"                            # absent: everyone else
//!
//! [[conversation.turn]]
//! parts = [
//!     { thinking = "Let me look." },
//!     { text = "I will read." },
//!     { call = { name = "Read", arguments = { path = "a.rs" } } },
//! ]
//! fragment = [3, 5]                              # characters of each delta, cycled
//! delivery = { chunks = [1] }                    # bytes of each write, cycled
//! first = [{ error = { class = "rate_limited", retry_after_ms = "250" } }]
//!
//! [[conversation.turn]]
//! parts = [{ text = "Done." }]
//! delivery = { cut_after = 120 }
//! ```

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use super::api::ValidRequest;
use super::turn::{Turn, Usage};

/// The answers of a fake model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The tokens of a turn that does not name its own.
    pub usage: Option<Usage>,
    /// Waited before every answer, beside the turn's own delay.
    pub delay_ms: u64,
    /// The conversations; the first that matches a request answers it.
    #[serde(rename = "conversation")]
    pub conversations: Vec<Conversation>,
}

/// The turns of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conversation {
    /// Found in the system prompt or the first user message; empty: in every one.
    pub when: String,
    /// The replies, in order.
    #[serde(rename = "turn")]
    pub turns: Vec<Turn>,
    /// Repeats the last reply when there are no more.
    pub repeat_last: bool,
}

impl Script {
    /// Starts an empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script. Unknown keys are errors.
    ///
    /// # Errors
    ///
    /// If the text is not TOML or not a valid script.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Gives the same turns to every conversation.
    #[must_use]
    pub fn always(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::new().on("", turns)
    }

    /// Adds a conversation.
    #[must_use]
    pub fn on(mut self, when: &str, turns: impl IntoIterator<Item = Turn>) -> Self {
        self.conversations.push(Conversation {
            when: when.to_owned(),
            turns: turns.into_iter().collect(),
            repeat_last: false,
        });
        self
    }

    /// Reports these tokens for every turn that does not name its own.
    #[must_use]
    pub const fn using(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Waits before every answer.
    #[must_use]
    pub const fn delayed(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }
}

/// Finds the turn that a request is answered with.
#[derive(Debug)]
pub(super) struct TurnSelector {
    script: Script,
    // A std mutex: held for a map entry, never across an await.
    attempts: Mutex<HashMap<u64, usize>>,
}

/// The turn that answers a request, and its position in the script.
#[derive(Clone, Debug)]
pub(super) struct SelectedTurn<'s> {
    pub(super) turn: &'s Turn,
    pub(super) when: &'s str,
    pub(super) attempt: usize,
    /// Identifies this position in this script; ids are derived from it.
    pub(super) key: u64,
    pub(super) usage: Usage,
    pub(super) delay_ms: u64,
}

impl TurnSelector {
    pub(super) fn new(script: Script) -> Self {
        Self { script, attempts: Mutex::default() }
    }

    /// Selects the next turn, or returns what the script lacks.
    pub(super) fn select(&self, request: &ValidRequest) -> Result<SelectedTurn<'_>, String> {
        let belongs =
            |c: &&Conversation| request.system.contains(&c.when) || request.task.contains(&c.when);
        let Some(conversation) = self.script.conversations.iter().find(belongs) else {
            return Err("the script has no conversation for this request".into());
        };
        let last = conversation.turns.last().filter(|_| conversation.repeat_last);
        let Some(turn) = conversation.turns.get(request.turns).or(last) else {
            let (turns, when) = (request.turns, &conversation.when);
            return Err(format!("the script has no turn {turns} for `{when}`"));
        };
        let mut hasher = DefaultHasher::new();
        (&request.system, &request.task, request.turns).hash(&mut hasher);
        let key = hasher.finish();
        let attempt = self.attempt(key);
        let turn = turn.first.get(attempt).unwrap_or(turn);
        let usage = turn.usage.or(self.script.usage).unwrap_or_else(|| estimate(request, turn));
        let delay_ms = self.script.delay_ms + turn.delivery.delay_ms;
        Ok(SelectedTurn { turn, when: &conversation.when, attempt, key, usage, delay_ms })
    }

    fn attempt(&self, key: u64) -> usize {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = attempts.entry(key).or_default();
        *seen += 1;
        *seen - 1
    }
}

/// Counts four bytes as a token.
fn estimate(request: &ValidRequest, turn: &Turn) -> Usage {
    let output = turn.parts.iter().map(|part| super::sse::length(part) / 4 + 1).sum();
    Usage { input: request.bytes as u64 / 4, output, ..Usage::default() }
}
