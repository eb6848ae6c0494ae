//! One `[[turn]]` of a script: when it applies, what it says, how it ends.
//!
//! Reads a table into an [`ScriptEntry`] and refuses combinations that cannot mean anything. Which entry
//! answers which request is decided in `select`; what an answer looks like is made in `play`.
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
    /// Where it starts in the file.
    pub(crate) at: usize,
    pub(crate) agent: Option<String>,
    pub(crate) label: Option<String>,
    /// The only turn it answers, when it is pinned to one.
    pub(crate) turn: Option<u32>,
    /// What the last message must match.
    pub(crate) last: Option<ScriptPattern>,
    pub(crate) times: RepeatCount,
    pub(crate) text: Template,
    /// The exact length of the text, when the script asks for one.
    pub(crate) text_bytes: Option<usize>,
    pub(crate) pace: AnswerPace,
    pub(crate) ending: ScriptedEnding,
}

/// How often an entry answers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatCount {
    Count(u32),
    Forever,
}

/// How an answer arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerPace {
    /// The wait before the first byte.
    pub(crate) delay: Duration,
    /// The number of pieces the text comes in.
    pub(crate) chunks: usize,
    /// The wait between two pieces.
    pub(crate) chunk_delay: Duration,
}

/// What an answer ends in.
#[derive(Debug)]
pub(crate) enum ScriptedEnding {
    Reply { calls: Vec<ScriptedCall>, stop: Option<StopReason>, usage: UsageRule },
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

impl ScriptEntry {
    /// Reads one turn; `delay` is the script's own default.
    pub(crate) fn read(
        value: FieldValue<'_>,
        document: &str,
        delay: Duration,
    ) -> Result<Self, ScriptFault> {
        let fields = table(value, "a turn", &KEYS)?;
        require_content(&fields)?;
        let entry = Self {
            at: fields.at(),
            agent: read_string(&fields, "agent")?,
            label: read_string(&fields, "label")?,
            turn: fields.read("turn", small)?,
            last: read_pattern(&fields, "last")?,
            times: read_times(&fields)?,
            text: read_text(&fields, document)?,
            text_bytes: read_size(&fields, "text_bytes", MAX_TEXT_BYTES)?,
            pace: AnswerPace {
                delay: fields.read("delay_ms", millis)?.unwrap_or(delay),
                chunks: read_size(&fields, "chunks", MAX_CHUNKS)?.unwrap_or(1),
                chunk_delay: fields.read("chunk_delay_ms", millis)?.unwrap_or_default(),
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
    Err(ScriptFault::new(fields.at(), message))
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

fn small(value: FieldValue<'_>) -> Result<u32, FieldProblem> {
    value.integer(1..=u64::from(u32::MAX)).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

fn read_times(fields: &FieldReader<'_>) -> Result<RepeatCount, ScriptFault> {
    let times = fields.read("times", |value| {
        if value.string().is_ok_and(|word| word == "forever") {
            return Ok(RepeatCount::Forever);
        }
        if let FieldContent::Number(_) = value.content() {
            return small(value).map(RepeatCount::Count);
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
    const ERROR: [&str; 2] = ["message", "retry_after_ms"];
    if fields.read("panic", FieldValue::boolean)?.unwrap_or(false) {
        refuse(fields, "panic", &[&REPLY[..], &ERROR, &["error"]].concat())?;
        return Ok(ScriptedEnding::Panic);
    }
    if let Some(kind) = fields.read("error", |value| value.choice(&ERRORS))? {
        refuse(fields, "error", &REPLY)?;
        let message = read_string(fields, "message")?;
        let message = message.unwrap_or_else(|| "as the script says".to_owned());
        let retry_after_ms = fields.read("retry_after_ms", millis)?.map(as_millis);
        return Ok(ScriptedEnding::Error(AttemptError {
            kind,
            message,
            retry_after_ms,
            never_began: false,
        }));
    }
    if let Some(key) = ERROR.iter().find(|key| fields.get(key).is_some()) {
        return Err(fields.fault(key, "belongs to an `error`, there is none").into());
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
        Some(key) => Err(fields.fault(key, format!("cannot stand beside `{with}`")).into()),
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
