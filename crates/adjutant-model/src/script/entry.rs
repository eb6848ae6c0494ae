//! One `[[turn]]` of a script: when it applies, what it says, how it ends.
//!
//! Reads a table into an [`Entry`] and refuses combinations that cannot mean anything. Which entry
//! answers which request is decided in `select`; what an answer looks like is made in `play`.
//!
//! Start at [`Entry::read`].

use std::time::Duration;

use adjutant_core::{AttemptError, ErrorKind, StopReason, Usage};

use super::call::Call;
use super::error::Flaw;
use super::fields::Fields;
use super::node::{Kind, Node};
use super::pattern::Pattern;
use super::placeholder;
use super::template::Template;

/// The largest text an entry may ask for with `text_bytes`: 64 MiB. Inclusive.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// The most pieces a text may be streamed in. Inclusive.
const MAX_CHUNKS: u64 = 100_000;

const KEYS: [&str; 17] = [
    "agent",
    "label",
    "turn",
    "last",
    "times",
    "text",
    "text_bytes",
    "delay_ms",
    "chunks",
    "chunk_delay_ms",
    "call",
    "stop",
    "usage",
    "error",
    "message",
    "retry_after_ms",
    "panic",
];
const STOPS: [(&str, StopReason); 4] = [
    ("end_turn", StopReason::EndTurn),
    ("tool_use", StopReason::ToolUse),
    ("max_output", StopReason::MaxOutput),
    ("refused", StopReason::Refused),
];
const ERRORS: [(&str, ErrorKind); 10] = [
    ("context_exhausted", ErrorKind::ContextExhausted),
    ("rate_limited", ErrorKind::RateLimited),
    ("overloaded", ErrorKind::Overloaded),
    ("authentication", ErrorKind::Authentication),
    ("out_of_credit", ErrorKind::OutOfCredit),
    ("bad_request", ErrorKind::BadRequest),
    ("refused", ErrorKind::Refused),
    ("network", ErrorKind::Network),
    ("truncated", ErrorKind::Truncated),
    ("idle", ErrorKind::Idle),
];

/// One scripted turn.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where it starts in the file.
    pub(crate) at: usize,
    pub(crate) agent: Option<String>,
    pub(crate) label: Option<String>,
    /// The only turn it answers, when it is pinned to one.
    pub(crate) turn: Option<u32>,
    /// What the last message must match.
    pub(crate) last: Option<Pattern>,
    pub(crate) times: Times,
    pub(crate) text: Template,
    /// The exact length of the text, when the script asks for one.
    pub(crate) text_bytes: Option<usize>,
    pub(crate) pace: Pace,
    pub(crate) ending: Ending,
}

/// How often an entry answers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Count(u32),
    Forever,
}

/// How an answer arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The wait before the first byte.
    pub(crate) delay: Duration,
    /// The number of pieces the text comes in.
    pub(crate) chunks: usize,
    /// The wait between two pieces.
    pub(crate) chunk_delay: Duration,
}

/// What an answer ends in.
#[derive(Debug)]
pub(crate) enum Ending {
    Reply { calls: Vec<Call>, stop: Option<StopReason>, usage: UsageRule },
    Error(AttemptError),
    Panic,
}

/// What the scripted provider says it consumed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UsageRule {
    /// The estimate from the bytes sent and said.
    Estimated,
    Given(Usage),
    /// Nothing, as when a provider leaves it out.
    Silent,
}

impl Entry {
    /// Reads one turn; `delay` is the script's own default.
    pub(crate) fn read(node: &Node, document: &str, delay: Duration) -> Result<Self, Flaw> {
        let fields = Fields::new(node, "a turn", &KEYS)?;
        require_content(&fields)?;
        let turn = fields.count("turn", 1..=u64::from(u32::MAX))?;
        let entry = Self {
            at: fields.at,
            agent: fields.text("agent")?.map(str::to_owned),
            label: fields.text("label")?.map(str::to_owned),
            turn: turn.and_then(|turn| u32::try_from(turn).ok()),
            last: read_pattern(&fields, "last")?,
            times: read_times(&fields)?,
            text: read_text(&fields, document)?,
            text_bytes: read_size(&fields, "text_bytes", MAX_TEXT_BYTES)?,
            pace: Pace {
                delay: fields.millis("delay_ms")?.unwrap_or(delay),
                chunks: read_size(&fields, "chunks", MAX_CHUNKS)?.unwrap_or(1),
                chunk_delay: fields.millis("chunk_delay_ms")?.unwrap_or_default(),
            },
            ending: read_ending(&fields, document)?,
        };
        entry.check_times(&fields)?;
        Ok(entry)
    }

    /// Says whether the entry takes a place in the sequence, rather than answering on a condition.
    pub(crate) const fn is_sequential(&self) -> bool {
        self.turn.is_none() && self.last.is_none()
    }

    /// Says whether the same turn will be tried again after this entry.
    pub(crate) const fn is_fault(&self) -> bool {
        match &self.ending {
            Ending::Error(error) => error.kind.is_transient(),
            Ending::Reply { .. } | Ending::Panic => false,
        }
    }

    fn check_times(&self, fields: &Fields<'_>) -> Result<(), Flaw> {
        if fields.get("times").is_none() || self.is_sequential() || self.is_fault() {
            return Ok(());
        }
        let message = "`times` needs a place in the sequence: an entry with `turn` answers that \
                       turn, one with `last` whenever it matches";
        Err(fields.flaw("times", message))
    }
}

fn require_content(fields: &Fields<'_>) -> Result<(), Flaw> {
    const CONTENT: [&str; 5] = ["text", "text_bytes", "call", "error", "panic"];
    if CONTENT.iter().any(|key| fields.get(key).is_some()) {
        return Ok(());
    }
    let message = "this turn says nothing: give it text, text_bytes, call, error or panic \
                   (text = \"\" is an empty answer)";
    Err(Flaw::new(fields.at, message))
}

fn read_pattern(fields: &Fields<'_>, key: &str) -> Result<Option<Pattern>, Flaw> {
    let source = fields.text(key)?;
    source.map(Pattern::new).transpose().map_err(|reason| fields.flaw(key, reason))
}

fn read_size(fields: &Fields<'_>, key: &str, max: u64) -> Result<Option<usize>, Flaw> {
    Ok(fields.count(key, 1..=max)?.and_then(|count| usize::try_from(count).ok()))
}

fn read_times(fields: &Fields<'_>) -> Result<Times, Flaw> {
    let Some(node) = fields.get("times") else { return Ok(Times::Count(1)) };
    match &node.kind {
        Kind::Text(word) if word == "forever" => Ok(Times::Forever),
        Kind::Number(_) => {
            let count = fields.count("times", 1..=u64::from(u32::MAX))?;
            Ok(Times::Count(count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)))
        }
        Kind::Text(_) | Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Table(_) => {
            Err(fields.flaw("times", "`times` must be a whole number or \"forever\""))
        }
    }
}

fn read_text(fields: &Fields<'_>, document: &str) -> Result<Template, Flaw> {
    match (fields.text("text")?, fields.get("text")) {
        (Some(text), Some(node)) => placeholder::parse(text, node, document),
        (_, _) => Ok(Template::default()),
    }
}

fn read_ending(fields: &Fields<'_>, document: &str) -> Result<Ending, Flaw> {
    const REPLY: [&str; 3] = ["call", "stop", "usage"];
    const ERROR: [&str; 2] = ["message", "retry_after_ms"];
    if fields.flag("panic")? {
        refuse(fields, "panic", &[&REPLY[..], &ERROR, &["error"]].concat())?;
        return Ok(Ending::Panic);
    }
    if let Some(kind) = fields.choice("error", &ERRORS)? {
        refuse(fields, "error", &REPLY)?;
        let message = fields.text("message")?.unwrap_or("as the script says").to_owned();
        let retry_after_ms = fields.millis("retry_after_ms")?.map(as_millis);
        return Ok(Ending::Error(AttemptError {
            kind,
            message,
            retry_after_ms,
            never_began: false,
        }));
    }
    if let Some(key) = ERROR.iter().find(|key| fields.get(key).is_some()) {
        return Err(fields.flaw(key, format!("`{key}` belongs to an `error`, there is none")));
    }
    let calls = fields.list("call", "a list of tables, written [[turn.call]]")?;
    Ok(Ending::Reply {
        calls: calls.iter().map(|call| Call::read(call, document)).collect::<Result<_, _>>()?,
        stop: fields.choice("stop", &STOPS)?,
        usage: read_usage(fields)?,
    })
}

fn refuse(fields: &Fields<'_>, with: &str, keys: &[&str]) -> Result<(), Flaw> {
    match keys.iter().find(|key| fields.get(key).is_some()) {
        Some(key) => Err(fields.flaw(key, format!("`{key}` cannot stand beside `{with}`"))),
        None => Ok(()),
    }
}

fn read_usage(fields: &Fields<'_>) -> Result<UsageRule, Flaw> {
    let Some(node) = fields.get("usage") else { return Ok(UsageRule::Estimated) };
    if let Kind::Text(word) = &node.kind {
        return if word == "none" {
            Ok(UsageRule::Silent)
        } else {
            Err(fields.flaw("usage", "`usage` must be a table or \"none\""))
        };
    }
    let kinds = Fields::new(node, "`usage`", &["input", "output", "cache_read", "cache_write"])?;
    let tokens = |key| Ok(kinds.count(key, 0..=u64::MAX)?.unwrap_or(0));
    Ok(UsageRule::Given(Usage {
        input: tokens("input")?,
        output: tokens("output")?,
        cache_read: tokens("cache_read")?,
        cache_write: tokens("cache_write")?,
    }))
}

fn as_millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
