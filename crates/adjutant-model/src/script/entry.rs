//! One `[[turn]]` of a script: when it applies, what it answers and how it ends.
//!
//! Reads a table into a [`ScriptEntry`] and rejects meaningless combinations of keys. `select` chooses the
//! entry for a request; `scripted_model` makes the answer.
//!
//! Start at [`ScriptEntry::read`].

use std::time::Duration;

use adjutant_core::{AttemptError, ModelErrorKind, StopReason, Usage};
use adjutant_formats::fields::{FieldContent, FieldFault, FieldProblem, FieldReader, FieldValue};

use super::call::ScriptedCall;
use super::error::{ScriptFault, millis, table, tables};
use super::pattern::ScriptPattern;
use super::placeholder;
use super::template::Template;

/// The maximum of `text_bytes`: 64 MiB. Inclusive.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// The maximum number of chunks in which a text is streamed. Inclusive.
const MAX_CHUNKS: u64 = 100_000;

const KEYS: [&str; 18] = [
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
    "never_began",
    "panic",
];
const STOPS: [(&str, StopReason); 4] = [
    ("end_turn", StopReason::EndTurn),
    ("tool_use", StopReason::ToolUse),
    ("max_output", StopReason::MaxOutput),
    ("refused", StopReason::Refused),
];
const ERRORS: [(&str, ModelErrorKind); 10] = [
    ("context_exhausted", ModelErrorKind::ContextExhausted),
    ("rate_limited", ModelErrorKind::RateLimited),
    ("overloaded", ModelErrorKind::Overloaded),
    ("authentication", ModelErrorKind::Authentication),
    ("out_of_credit", ModelErrorKind::OutOfCredit),
    ("bad_request", ModelErrorKind::BadRequest),
    ("refused", ModelErrorKind::Refused),
    ("network", ModelErrorKind::Network),
    ("truncated", ModelErrorKind::Truncated),
    ("idle", ModelErrorKind::Idle),
];

/// One scripted turn.
#[derive(Debug)]
pub(crate) struct ScriptEntry {
    /// Its byte offset in the file.
    pub(crate) at: usize,
    pub(crate) agent: Option<String>,
    pub(crate) label: Option<String>,
    /// The only turn that it answers, if it is pinned to one.
    pub(crate) turn: Option<u32>,
    /// The pattern that the last message must match.
    pub(crate) last: Option<ScriptPattern>,
    pub(crate) times: RepeatCount,
    pub(crate) text: Template,
    /// The exact length of the text, if the script sets one.
    pub(crate) text_bytes: Option<usize>,
    pub(crate) pace: AnswerTiming,
    pub(crate) ending: ScriptedEnding,
}

/// How many turns in a row an entry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatCount {
    Count(u32),
    Forever,
}

/// How a scripted answer is delivered: the delay before it, its chunks, and the delay between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTiming {
    /// The delay before the first byte.
    pub(crate) delay: Duration,
    /// The number of chunks.
    pub(crate) chunks: usize,
    /// The delay between two chunks.
    pub(crate) chunk_delay: Duration,
}

/// How a scripted answer ends: as a complete reply, with an error, or with a panic of the model.
#[derive(Debug)]
pub(crate) enum ScriptedEnding {
    Reply { calls: Vec<ScriptedCall>, stop: Option<StopReason>, usage: UsageRule },
    Error(AttemptError),
    Panic,
}

/// The token usage that the scripted model reports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UsageRule {
    /// An estimate from the bytes of the request and the answer.
    Estimated,
    Given(Usage),
    /// No usage, like a provider that does not report it.
    Silent,
}

impl ScriptEntry {
    /// Reads one turn; `delay` is the default of the script.
    pub(crate) fn read(
        value: FieldValue<'_>,
        document: &str,
        delay: Duration,
    ) -> Result<Self, ScriptFault> {
        let fields = table(value, "a turn", &KEYS)?;
        require_content(&fields)?;
        let entry = Self {
            at: fields.offset(),
            agent: read_string(&fields, "agent")?,
            label: read_string(&fields, "label")?,
            turn: fields.read("turn", read_u32)?,
            last: read_pattern(&fields, "last")?,
            times: read_times(&fields)?,
            text: read_text(&fields, document)?,
            text_bytes: read_size(&fields, "text_bytes", MAX_TEXT_BYTES)?,
            pace: AnswerTiming {
                delay: fields.read("delay_ms", millis)?.unwrap_or(delay),
                chunks: read_size(&fields, "chunks", MAX_CHUNKS)?.unwrap_or(1),
                chunk_delay: fields.read("chunk_delay_ms", millis)?.unwrap_or_default(),
            },
            ending: read_ending(&fields, document)?,
        };
        entry.check_times(&fields)?;
        Ok(entry)
    }

    /// Returns whether the entry belongs to the sequence, instead of answering on a condition.
    pub(crate) const fn is_sequential(&self) -> bool {
        self.turn.is_none() && self.last.is_none()
    }

    /// Returns whether the entry is an error after which the engine retries the turn.
    pub(crate) const fn is_fault(&self) -> bool {
        match &self.ending {
            ScriptedEnding::Error(error) => error.kind.is_transient(),
            ScriptedEnding::Reply { .. } | ScriptedEnding::Panic => false,
        }
    }

    fn check_times(&self, fields: &FieldReader<'_>) -> Result<(), ScriptFault> {
        if fields.get("times").is_none() || self.is_sequential() || self.is_fault() {
            return Ok(());
        }
        let message = "`times` needs a place in the sequence: an entry with `turn` answers that \
                       turn, one with `last` whenever it matches";
        Err(ScriptFault::new(fields.at_field("times"), message))
    }
}

fn require_content(fields: &FieldReader<'_>) -> Result<(), ScriptFault> {
    const CONTENT: [&str; 5] = ["text", "text_bytes", "call", "error", "panic"];
    if CONTENT.iter().any(|key| fields.get(key).is_some()) {
        return Ok(());
    }
    let message = "this turn says nothing: give it text, text_bytes, call, error or panic \
                   (text = \"\" is an empty answer)";
    Err(ScriptFault::new(fields.offset(), message))
}

fn read_pattern(fields: &FieldReader<'_>, key: &str) -> Result<Option<ScriptPattern>, ScriptFault> {
    let source = read_string(fields, key)?;
    let pattern = source.as_deref().map(ScriptPattern::new).transpose();
    pattern.map_err(|reason| ScriptFault::new(fields.at_field(key), reason))
}

fn read_size(fields: &FieldReader<'_>, key: &str, max: u64) -> Result<Option<usize>, ScriptFault> {
    let count = fields.read(key, |value| value.integer(1..=max))?;
    Ok(count.and_then(|count| usize::try_from(count).ok()))
}

fn read_string(fields: &FieldReader<'_>, key: &str) -> Result<Option<String>, FieldFault> {
    fields.read(key, |value| value.string().map(String::from))
}

fn read_u32(value: FieldValue<'_>) -> Result<u32, FieldProblem> {
    value.integer(1..=u64::from(u32::MAX)).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

fn read_times(fields: &FieldReader<'_>) -> Result<RepeatCount, ScriptFault> {
    let times = fields.read("times", |value| {
        if value.string().is_ok_and(|word| word == "forever") {
            return Ok(RepeatCount::Forever);
        }
        if let FieldContent::Number(_) = value.content() {
            return read_u32(value).map(RepeatCount::Count);
        }
        Err(value.unfit_as_written("a whole number or \"forever\""))
    });
    Ok(times?.unwrap_or(RepeatCount::Count(1)))
}

fn read_text(fields: &FieldReader<'_>, document: &str) -> Result<Template, ScriptFault> {
    match (read_string(fields, "text")?, fields.get("text")) {
        (Some(text), Some(value)) => placeholder::parse(&text, value.range(), document),
        (_, _) => Ok(Template::default()),
    }
}

fn read_ending(fields: &FieldReader<'_>, document: &str) -> Result<ScriptedEnding, ScriptFault> {
    const REPLY: [&str; 3] = ["call", "stop", "usage"];
    const ERROR: [&str; 3] = ["message", "retry_after_ms", "never_began"];
    if fields.read("panic", FieldValue::boolean)?.unwrap_or(false) {
        refuse(fields, "panic", &[&REPLY[..], &ERROR, &["error"]].concat())?;
        return Ok(ScriptedEnding::Panic);
    }
    if let Some(kind) = fields.read("error", |value| value.choice(&ERRORS))? {
        refuse(fields, "error", &REPLY)?;
        let message = read_string(fields, "message")?;
        let message = message.unwrap_or_else(|| "as the script says".to_owned());
        let retry_after_ms = fields.read("retry_after_ms", millis)?.map(as_millis);
        let never_began = fields.read("never_began", FieldValue::boolean)?.unwrap_or(false);
        let error = AttemptError { kind, message, retry_after_ms, never_began };
        return Ok(ScriptedEnding::Error(error));
    }
    if let Some(key) = ERROR.iter().find(|key| fields.get(key).is_some()) {
        return Err(fields.fault(key, "is only allowed beside `error`").into());
    }
    let calls = tables(fields, "call", "[[turn.call]]")?.into_iter();
    Ok(ScriptedEnding::Reply {
        calls: calls.map(|call| ScriptedCall::read(call, document)).collect::<Result<_, _>>()?,
        stop: fields.read("stop", |value| value.choice(&STOPS))?,
        usage: read_usage(fields)?,
    })
}

fn refuse(fields: &FieldReader<'_>, with: &str, keys: &[&str]) -> Result<(), ScriptFault> {
    match keys.iter().find(|key| fields.get(key).is_some()) {
        Some(key) => Err(fields.fault(key, format!("is not allowed beside `{with}`")).into()),
        None => Ok(()),
    }
}

fn read_usage(fields: &FieldReader<'_>) -> Result<UsageRule, ScriptFault> {
    let Some(value) = fields.get("usage") else { return Ok(UsageRule::Estimated) };
    if let Ok(word) = value.string() {
        let problem = value.unfit_as_written("a table or \"none\"");
        return if word == "none" {
            Ok(UsageRule::Silent)
        } else {
            Err(fields.fault("usage", problem).into())
        };
    }
    let kinds = table(value, "`usage`", &["input", "output", "cache_read", "cache_write"])?;
    let tokens = |key| Ok::<_, ScriptFault>(kinds.read(key, FieldValue::any_integer)?.unwrap_or(0));
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
