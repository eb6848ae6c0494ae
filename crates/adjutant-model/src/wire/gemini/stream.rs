//! Reads streamed answers of Gemini.
//!
//! Each event is a complete response with the new parts. There is no end event: the last chunk has a
//! `finishReason`, then the connection closes normally. Thought signatures belong to parts and must be sent
//! back on the same parts.

use adjutant_core::{
    AttemptError, AttemptResult, ModelErrorKind, ModelReply, StopReason, ToolCall, Usage,
};
use adjutant_formats::json::UniqueKeys;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::json::arguments;
use super::super::reader::{AnswerFold, ProgressListener, parse};
use super::super::{WireCodec, own_id};
use crate::errors::{error_of_kind, from_stream, truncated};
use crate::model::TurnProgress;

#[derive(Debug)]
pub(in super::super) struct GeminiStream {
    codec: WireCodec,
    turn: u32,
    text: String,
    calls: Vec<ToolCall>,
    /// The parts in the form in which they are sent back.
    parts: Vec<Value>,
    signed: bool,
    stop: Option<String>,
    usage: Option<GeminiUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    #[serde(default)]
    candidates: Vec<GeminiCandidate>,
    usage_metadata: Option<GeminiUsage>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate {
    #[serde(default)]
    index: u64,
    content: Option<GeminiContent>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct GeminiContent {
    #[serde(default)]
    parts: Vec<Box<RawValue>>,
}

/// A call whose arguments cannot be parsed: nested too deeply, or with a repeated key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnreadableCallPart<'a> {
    #[serde(borrow)]
    function_call: UnreadableCall<'a>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
struct UnreadableCall<'a> {
    id: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(borrow)]
    args: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptFeedback {
    pub(crate) block_reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiUsage {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
}

impl GeminiUsage {
    /// In this API, prompt tokens include cached tokens, and candidate tokens exclude thoughts.
    pub(crate) fn usage(self) -> Usage {
        let read = self.cached_content_token_count.unwrap_or(0);
        let prompt = self.prompt_token_count.unwrap_or(0).saturating_sub(read);
        Usage {
            input: prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0)),
            output: self
                .candidates_token_count
                .unwrap_or(0)
                .saturating_add(self.thoughts_token_count.unwrap_or(0)),
            cache_read: read,
            cache_write: 0,
        }
    }
}

impl GeminiStream {
    pub(in super::super) fn new(codec: &WireCodec, turn: u32) -> Self {
        Self {
            codec: codec.clone(),
            turn,
            text: String::new(),
            calls: Vec::new(),
            parts: Vec::new(),
            signed: false,
            stop: None,
            usage: None,
        }
    }

    fn part(&mut self, part: Map<String, Value>, progress: &mut ProgressListener<'_>) {
        let signed = part.contains_key("thoughtSignature");
        self.signed |= signed;
        if let Some(call) = part.get("functionCall") {
            progress(TurnProgress::Bytes(call.to_string().len() as u64));
            let call = self.call(call);
            let mut part = part;
            if call.malformed
                && let Some(made) = part.get_mut("functionCall")
            {
                made["args"] = arguments(&call).into_owned();
            }
            self.calls.push(call);
            self.parts.push(Value::Object(part));
            return;
        }
        let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
        let said = part.get("text").and_then(Value::as_str).unwrap_or_default();
        if is_thought {
            progress(TurnProgress::Bytes(said.len().max(1) as u64));
        } else if !said.is_empty() {
            self.text.push_str(said);
            progress(TurnProgress::Text(said));
        }
        match self.parts.last_mut() {
            // Unsigned thought summaries and empty parts need not be sent back.
            _ if !signed && (is_thought || part.len() == 1 && said.is_empty()) => {}
            // Plain text is joined; a part with a signature never is.
            Some(last) if !signed && !is_thought && is_plain_text(last) => {
                if let Some(Value::String(text)) = last.get_mut("text") {
                    text.push_str(said);
                }
            }
            Some(_) | None => self.parts.push(Value::Object(part)),
        }
    }

    fn call(&self, call: &Value) -> ToolCall {
        let word = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let id = Some(word("id")).filter(|id| !id.is_empty());
        let mut made = ToolCall {
            id: id.unwrap_or_else(|| own_id(self.turn, self.calls.len())),
            name: word("name"),
            arguments: call["args"].clone(),
            malformed: false,
        };
        if made.arguments.is_null() {
            made.arguments = json!({});
        }
        made.malformed = !made.arguments.is_object();
        if made.malformed && !made.arguments.is_string() {
            made.arguments = Value::String(made.arguments.to_string());
        }
        made
    }
}

/// Interprets the API's word for why an answer ended.
pub(crate) fn stop_reason(word: Option<&str>, has_calls: bool) -> Result<StopReason, AttemptError> {
    match word {
        // The second is used only by compatible servers.
        Some("STOP" | "FUNCTION_CALL") if has_calls => Ok(StopReason::ToolUse),
        Some("STOP") => Ok(StopReason::EndTurn),
        Some("MAX_TOKENS") => Ok(StopReason::MaxOutput),
        Some(
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
            | "IMAGE_SAFETY" | "MODEL_ARMOR",
        ) => Ok(StopReason::Refused),
        Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
            Err(truncated("the model wrote a tool call that the provider could not read"))
        }
        Some(_) => Err(truncated("the answer stopped for a reason that is not known")),
        None => Err(truncated("the answer ended without a reason")),
    }
}

/// Keeps unparsable arguments as text. They are not an object, so the engine answers the call as malformed.
fn unreadable(part: UnreadableCallPart<'_>) -> Map<String, Value> {
    let call = part.function_call;
    let mut made = json!({ "name": call.name, "args": call.args.get() });
    if let Some(id) = call.id {
        made["id"] = Value::String(id);
    }
    let signature = part.thought_signature.map(|text| ("thoughtSignature", Value::String(text)));
    let parts = [("functionCall", made)].into_iter().chain(signature);
    parts.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn is_plain_text(part: &Value) -> bool {
    part.as_object().is_some_and(|part| part.len() == 1 && part.contains_key("text"))
}

impl AnswerFold for GeminiStream {
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError> {
        let chunk: GeminiChunk = parse(data)?;
        if let Some(error) = chunk.error {
            return Err(from_stream(&error));
        }
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            return Err(error_of_kind(ModelErrorKind::Refused, "the provider blocked the prompt"));
        }
        self.usage = chunk.usage_metadata.or(self.usage);
        for candidate in chunk.candidates.into_iter().filter(|candidate| candidate.index == 0) {
            for part in candidate.content.map(|content| content.parts).unwrap_or_default() {
                let part = match serde_json::from_str(part.get()) {
                    Ok(UniqueKeys(Value::Object(part))) => part,
                    Ok(_) | Err(_) => unreadable(parse(part.get().as_bytes())?),
                };
                self.part(part, progress);
            }
            self.stop = candidate.finish_reason.or_else(|| self.stop.take());
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.stop.is_some()
    }

    fn wants_more(&self) -> bool {
        true
    }

    fn finish(&mut self) -> AttemptResult {
        let stop = stop_reason(self.stop.as_deref(), !self.calls.is_empty())?;
        let cut = stop == StopReason::MaxOutput;
        let parts = std::mem::take(&mut self.parts);
        let opaque = (self.signed && !cut).then(|| self.codec.seal(parts));
        let tool_calls = if cut { Vec::new() } else { std::mem::take(&mut self.calls) };
        let text = std::mem::take(&mut self.text);
        Ok(ModelReply { text, tool_calls, stop, opaque, usage: self.usage.map(GeminiUsage::usage) })
    }
}
