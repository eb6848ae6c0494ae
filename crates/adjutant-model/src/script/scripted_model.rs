//! The scripted model: loads a script and answers like a provider.
//!
//! Owns loading and the processing of one turn. It keeps no state between turns; `select` chooses the entry
//! for a request.
//!
//! Start at [`ScriptedModel::load`] and its [`Model::turn`].

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use adjutant_core::{
    AttemptError, AttemptResult, ModelErrorKind, ModelReply, ModelSpec, Price, StopReason, Usage,
};
use adjutant_formats::document::{
    DocumentNode, SyntaxError, parse_toml, parse_unique_json, position,
};
use adjutant_formats::fields::{FieldReader, FieldValue};

use super::entry::{AnswerTiming, ScriptEntry, ScriptedEnding, UsageRule};
use super::error::{ScriptError, ScriptFault, millis, table, tables};
use super::select::ScriptIndex;
use crate::estimate;
use crate::model::{BoxFuture, Model, TurnProgress, TurnRequest};

/// The maximum size of a script file: 16 MiB. Inclusive.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The context window of a script that sets none.
const DEFAULT_WINDOW: u64 = 200_000;
/// The maximum output tokens per call of a script that sets none.
const DEFAULT_MAX_OUTPUT: u64 = 16_384;
/// The name of a script without a file in error messages.
const INLINE: &str = "script";
/// The text that `text_bytes` repeats if the turn has none.
const FILLER: &str = "The quick brown fox jumps over the lazy dog.\n";

const KEYS: [&str; 5] = ["window", "max_output", "price", "delay_ms", "turn"];

/// A model that answers from a script.
///
/// The same request always gets the same answer: selection depends only on the request, so the interleaving
/// of sessions and restarts make no difference.
#[derive(Debug)]
pub struct ScriptedModel {
    spec: ModelSpec,
    index: ScriptIndex,
    /// The line of each entry, for errors during a turn.
    lines: Vec<usize>,
}

impl ScriptedModel {
    /// Reads a script from a `.toml` or `.json` file; the model is named `script:PATH`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => parse_toml,
            Some("json") => parse_unique_json,
            Some(_) | None => return Err(ScriptError::UnknownFormat { path: path.to_owned() }),
        };
        let text = read(path)?;
        Self::build(&text, parse).map_err(|flaw| flaw.at_position(&file, &text)).map(|model| {
            let name = format!("script:{file}");
            model.with_name(name)
        })
    }

    /// Reads a script from TOML text; the model is named `script:inline`.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        Self::build(text, parse_toml).map_err(|flaw| flaw.at_position(INLINE, text))
    }

    /// Reads a script from JSON text; the model is named `script:inline`.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Self::build(text, parse_unique_json).map_err(|flaw| flaw.at_position(INLINE, text))
    }

    /// Replaces the model's name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    fn build(
        text: &str,
        parse: fn(&str) -> Result<DocumentNode, SyntaxError>,
    ) -> Result<Self, ScriptFault> {
        let document =
            parse(text).map_err(|error| ScriptFault::new(error.byte(text), error.reason))?;
        let fields = table(FieldValue::Text(&document, text), "a script", &KEYS)?;
        let tokens = |key| fields.read(key, |value| value.integer(1..=u64::MAX));
        let spec = ModelSpec {
            name: "script:inline".to_owned(),
            window: tokens("window")?.unwrap_or(DEFAULT_WINDOW),
            max_output: tokens("max_output")?.unwrap_or(DEFAULT_MAX_OUTPUT),
            price: read_price(&fields)?,
            effort: None,
        };
        let delay = fields.read("delay_ms", millis)?.unwrap_or_default();
        let turns = tables(&fields, "turn", "[[turn]]")?;
        if turns.is_empty() {
            return Err(ScriptFault::new(
                0,
                "the script has no turns: add a [[turn]] with a `text`",
            ));
        }
        let entries = turns
            .into_iter()
            .map(|turn| ScriptEntry::read(turn, text, delay))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { spec, lines: lines_of(text, &entries), index: ScriptIndex::new(entries)? })
    }

    async fn play(
        &self,
        request: TurnRequest<'_>,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        if request.context_tokens > self.spec.window {
            return Err(self.context_overflow_error(&request));
        }
        let (number, entry) =
            self.index.select(&request).ok_or_else(|| self.exhausted_error(&request))?;
        wait(entry.pace.delay).await;
        let text =
            entry.text.render(&request).map_err(|reason| self.entry_error(number, &reason))?;
        let text = match entry.text_bytes {
            Some(bytes) => repeat_to_length(text, bytes),
            None => text,
        };
        stream(&text, entry.pace, progress).await;
        match &entry.ending {
            ScriptedEnding::Error(error) => Err(error.clone()),
            ScriptedEnding::Panic => {
                panic!("the script asks for a panic at {}", self.entry_location(number))
            }
            ScriptedEnding::Reply { calls, stop, usage } => {
                let mut tool_calls = Vec::with_capacity(calls.len());
                for call in calls {
                    call.render(&request, &mut tool_calls)
                        .map_err(|reason| self.entry_error(number, &reason))?;
                }
                let said = estimate::reply_bytes(&text, &tool_calls);
                if !tool_calls.is_empty() {
                    progress(TurnProgress::Bytes(said - text.len() as u64));
                }
                let natural =
                    if tool_calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
                let usage = settled(*usage, &request, said);
                let stop = stop.unwrap_or(natural);
                Ok(ModelReply { text, tool_calls, stop, opaque: None, usage })
            }
        }
    }

    /// Returns the error of a provider whose context window is exceeded.
    fn context_overflow_error(&self, request: &TurnRequest<'_>) -> AttemptError {
        let message = format!(
            "the request has about {} tokens, the window holds {}",
            request.context_tokens, self.spec.window
        );
        refusal(ModelErrorKind::ContextExhausted, message)
    }

    fn exhausted_error(&self, request: &TurnRequest<'_>) -> AttemptError {
        let TurnRequest { agent, label, turn, .. } = request;
        let way_out = if self.index.has_entry_for(request) {
            "add one, or repeat the last one with times = \"forever\"".to_owned()
        } else {
            let labels: Vec<_> = self.index.labels().map(|label| format!("`{label}`")).collect();
            match labels.len() {
                0 => "none of its turns is for this agent".to_owned(),
                1..=8 => format!("it has turns for the labels {}", labels.join(", ")),
                more => format!("none of its {more} labels matches"),
            }
        };
        let message =
            format!("script has no turn {turn} for label `{label}` (agent `{agent}`); {way_out}");
        refusal(ModelErrorKind::ScriptEnded, message)
    }

    fn entry_error(&self, number: usize, reason: &str) -> AttemptError {
        refusal(ModelErrorKind::BadRequest, format!("{} {reason}", self.entry_location(number)))
    }

    /// Returns the file and line of an entry.
    fn entry_location(&self, number: usize) -> String {
        let line = self.lines.get(number).copied().unwrap_or(0);
        format!("{}:{line}", self.spec.name)
    }
}

impl Model for ScriptedModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        Box::pin(self.play(request, progress))
    }
}

fn read(path: &Path) -> Result<String, ScriptError> {
    let failed = |source| ScriptError::Read { path: path.to_owned(), source };
    // Checked before opening, because opening a pipe would block until there is a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ScriptError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ScriptError::TooLarge { path: path.to_owned(), max_bytes: MAX_FILE_BYTES });
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        ScriptFault::new(at, "this byte is not UTF-8")
            .at_position(&path.display().to_string(), &text)
    })
}

fn read_price(fields: &FieldReader<'_>) -> Result<Option<Price>, ScriptFault> {
    let Some(value) = fields.get("price") else { return Ok(None) };
    let kinds = table(value, "`price`", &["input", "output", "cache_read", "cache_write"])?;
    let amount = |key: &str| kinds.read(key, FieldValue::number);
    let required = |key: &str| {
        let missing =
            || ScriptFault::new(kinds.offset(), format!("`price` needs `{key}`, USD per million"));
        amount(key)?.ok_or_else(missing)
    };
    Ok(Some(Price {
        input: required("input")?,
        output: required("output")?,
        cache_read: amount("cache_read")?.unwrap_or(0.0),
        cache_write: amount("cache_write")?.unwrap_or(0.0),
    }))
}

/// Returns the line of each entry in one pass over the text.
fn lines_of(text: &str, entries: &[ScriptEntry]) -> Vec<usize> {
    let mut line = 1;
    let mut done = 0;
    let mut lines = Vec::with_capacity(entries.len());
    for entry in entries {
        // Entries are in file order; `max` only protects the slice index.
        let at = entry.at.max(done);
        line += position(text.get(done..at).unwrap_or_default(), at - done).0 - 1;
        done = at;
        lines.push(line);
    }
    lines
}

/// Repeats `text` to exactly `bytes` bytes; spaces replace a character that does not fit.
fn repeat_to_length(text: String, bytes: usize) -> String {
    let unit = if text.is_empty() { FILLER } else { &text };
    let mut long = unit.repeat(bytes / unit.len());
    let rest = (0..=bytes - long.len()).rev().find(|end| unit.is_char_boundary(*end));
    long.push_str(&unit[..rest.unwrap_or(0)]);
    long.extend(std::iter::repeat_n(' ', bytes - long.len()));
    long
}

/// Reports the text in equal chunks, with a delay between them.
async fn stream(
    text: &str,
    pace: AnswerTiming,
    progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
) {
    let mut start = 0;
    for piece in 1..=pace.chunks {
        if piece > 1 {
            wait(pace.chunk_delay).await;
        }
        let target =
            text.len() / pace.chunks * piece + text.len() % pace.chunks * piece / pace.chunks;
        let end = (target..=text.len()).find(|end| text.is_char_boundary(*end));
        let end = end.unwrap_or(text.len());
        if end > start {
            progress(TurnProgress::Text(&text[start..end]));
        }
        start = end.max(start);
    }
}

/// Sleeps on tokio's clock, which tests can pause; a zero delay does not use the timer.
async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn settled(rule: UsageRule, request: &TurnRequest<'_>, said_bytes: u64) -> Option<Usage> {
    match rule {
        UsageRule::Silent => None,
        UsageRule::Given(usage) => Some(usage),
        UsageRule::Estimated => Some(Usage {
            input: request.context_tokens,
            output: estimate::tokens(said_bytes),
            ..Usage::default()
        }),
    }
}

fn refusal(kind: ModelErrorKind, message: String) -> AttemptError {
    AttemptError { kind, message, retry_after_ms: None, never_began: false }
}
