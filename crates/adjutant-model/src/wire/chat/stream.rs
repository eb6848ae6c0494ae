//! Reads streamed answers of Chat Completions.
//!
//! Tool calls arrive in fragments with an index; the stop reason and the usage arrive in chunks of their own,
//! and `[DONE]` is the end. Servers differ: ids, indexes and the usage may be missing.

use std::collections::BTreeMap;

use adjutant_core::{
    AttemptError, AttemptResult, ModelErrorKind, ModelReply, StopReason, ToolCall, Usage,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::json::{EventText, tool_call};
use super::super::reader::{AnswerFold, ProgressListener, parse};
use super::super::{WireCodec, own_id};
use super::reasoning::Reasoning;
use crate::errors::{error_of_kind, from_stream, truncated};
use crate::model::TurnProgress;

#[derive(Debug)]
pub(in super::super) struct ChatStream {
    codec: WireCodec,
    turn: u32,
    text: String,
    refusal: String,
    reasoning: Reasoning,
    calls: BTreeMap<u64, PartialCall>,
    latest: Option<u64>,
    stop: Option<String>,
    usage: Option<ChatUsage>,
    ended: bool,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    written: String,
}

#[derive(Deserialize)]
struct ChatChunk<'a> {
    #[serde(default, borrow)]
    choices: Vec<ChatChoice<'a>>,
    usage: Option<ChatUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(default, borrow)]
    delta: Option<ChatDelta<'a>>,
    #[serde(default, borrow)]
    finish_reason: EventText<'a>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
struct ChatDelta<'a> {
    #[serde(default, borrow)]
    content: EventText<'a>,
    #[serde(default, borrow)]
    refusal: EventText<'a>,
    #[serde(default, borrow)]
    reasoning_content: Option<EventText<'a>>,
    #[serde(default, borrow)]
    reasoning: EventText<'a>,
    reasoning_details: Option<Vec<Value>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallFragment<'a>>>,
}

#[derive(Deserialize)]
struct CallFragment<'a> {
    index: Option<u64>,
    #[serde(default, borrow)]
    id: EventText<'a>,
    #[serde(default, borrow)]
    function: Option<FunctionFragment<'a>>,
}

#[derive(Deserialize)]
struct FunctionFragment<'a> {
    #[serde(default, borrow)]
    name: EventText<'a>,
    /// A string with a piece of the arguments; a few servers send the whole object instead.
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ChatUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptTokenDetails>,
    /// DeepSeek's name for the cached tokens that others report in the details.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PromptTokenDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl ChatUsage {
    /// In this API, `prompt_tokens` includes cached tokens.
    pub(crate) fn usage(self) -> Usage {
        let details = self.prompt_tokens_details;
        let read = details.and_then(|details| details.cached_tokens);
        let read = read.or(self.prompt_cache_hit_tokens).unwrap_or(0);
        let written = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
        let prompt = self.prompt_tokens.unwrap_or(0);
        Usage {
            input: prompt.saturating_sub(read).saturating_sub(written),
            output: self.completion_tokens.unwrap_or(0),
            cache_read: read,
            cache_write: written,
        }
    }
}

impl ChatStream {
    pub(in super::super) fn new(codec: &WireCodec, turn: u32) -> Self {
        Self {
            codec: codec.clone(),
            turn,
            text: String::new(),
            refusal: String::new(),
            reasoning: Reasoning::default(),
            calls: BTreeMap::new(),
            latest: None,
            stop: None,
            usage: None,
            ended: false,
        }
    }

    fn grow(&mut self, delta: ChatDelta<'_>, progress: &mut ProgressListener<'_>) {
        if !delta.content.is_empty() {
            self.text.push_str(&delta.content);
            progress(TurnProgress::Text(&delta.content));
        }
        self.refusal.push_str(&delta.refusal);
        let mut hidden = delta.refusal.len() + delta.reasoning.len();
        if let Some(thought) = delta.reasoning_content {
            self.reasoning.text(&thought);
            hidden += thought.len();
        }
        if let Some(details) = delta.reasoning_details {
            self.reasoning.details(details);
            hidden = hidden.max(1);
        }
        for fragment in delta.tool_calls.into_iter().flatten() {
            hidden += self.fragment(fragment);
        }
        if hidden > 0 {
            progress(TurnProgress::Bytes(hidden as u64));
        }
    }

    /// Adds a fragment of a call and returns its size in bytes.
    fn fragment(&mut self, fragment: CallFragment<'_>) -> usize {
        let index = fragment.index.unwrap_or_else(|| self.place(&fragment.id));
        self.latest = Some(index);
        let call = self.calls.entry(index).or_default();
        if call.id.is_empty() {
            call.id = fragment.id.0.into_owned();
        }
        let Some(function) = fragment.function else { return 0 };
        if call.name.is_empty() {
            call.name = function.name.0.into_owned();
        }
        let before = call.written.len();
        let json = function.arguments.map_or("null", RawValue::get);
        match serde_json::from_str::<EventText<'_>>(json) {
            Ok(piece) => call.written.push_str(&piece),
            Err(_) => json.clone_into(&mut call.written),
        }
        call.name.len() + call.written.len().saturating_sub(before)
    }

    /// Returns the index for a fragment without one: a new id starts a new call.
    fn place(&self, id: &str) -> u64 {
        match self.latest {
            None => 0,
            Some(latest) => {
                let known = self.calls.get(&latest).is_some_and(|call| call.id == id);
                if id.is_empty() || known { latest } else { latest.saturating_add(1) }
            }
        }
    }

    fn content(&self) -> ChatContent {
        if !self.calls.is_empty() {
            ChatContent::Calls
        } else if self.text.is_empty() && !self.refusal.is_empty() {
            ChatContent::Refusal
        } else {
            ChatContent::Text
        }
    }
}

/// The content of an answer, as far as it decides why the answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatContent {
    /// Text or nothing.
    Text,
    /// Tool calls.
    Calls,
    /// Only an explanation why the model refuses.
    Refusal,
}

/// Interprets the API's word for why an answer ended.
pub(crate) fn stop_reason(
    word: Option<&str>,
    content: ChatContent,
) -> Result<StopReason, AttemptError> {
    match word {
        None => Err(truncated("the answer ended without a reason")),
        Some("length") => Ok(StopReason::MaxOutput),
        Some("content_filter") => Ok(StopReason::Refused),
        // The second is DeepSeek's reason for an answer that it could not continue.
        Some("error" | "insufficient_system_resource") => {
            Err(error_of_kind(ModelErrorKind::Overloaded, "the model behind this server failed"))
        }
        // `stop`, and the equivalents of compatible servers.
        Some(_) => Ok(match content {
            ChatContent::Text => StopReason::EndTurn,
            ChatContent::Calls => StopReason::ToolUse,
            ChatContent::Refusal => StopReason::Refused,
        }),
    }
}

impl AnswerFold for ChatStream {
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError> {
        if data == b"[DONE]" {
            if self.stop.is_none() {
                return Err(truncated("the answer ended without a reason"));
            }
            self.ended = true;
            return Ok(());
        }
        let chunk: ChatChunk<'_> = parse(data)?;
        if let Some(error) = chunk.error {
            return Err(from_stream(&error));
        }
        self.usage = chunk.usage.or(self.usage);
        // Only one choice is requested.
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(error) = choice.error {
                return Err(from_stream(&error));
            }
            self.grow(choice.delta.unwrap_or_default(), progress);
            if !choice.finish_reason.is_empty() {
                self.stop = Some(choice.finish_reason.0.into_owned());
            }
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn finish(&mut self) -> AttemptResult {
        let stop = stop_reason(self.stop.as_deref(), self.content())?;
        let cut = stop == StopReason::MaxOutput;
        let turn = self.turn;
        let finished = |(place, call): (usize, PartialCall)| {
            let id = if call.id.is_empty() { own_id(turn, place) } else { call.id };
            tool_call(id, call.name, &call.written)
        };
        let calls = std::mem::take(&mut self.calls).into_values().enumerate();
        let tool_calls: Vec<ToolCall> =
            if cut { Vec::new() } else { calls.map(finished).collect() };
        let mut text = std::mem::take(&mut self.text);
        if text.is_empty() {
            text = std::mem::take(&mut self.refusal);
        }
        let fields = std::mem::take(&mut self.reasoning).into_fields().filter(|_| !cut);
        let opaque = fields.map(|fields| self.codec.seal(vec![fields]));
        Ok(ModelReply { text, tool_calls, stop, opaque, usage: self.usage.map(ChatUsage::usage) })
    }
}
