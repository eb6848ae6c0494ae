//! The fields of answers that matter for the bill: usage, stop reason and errors. All others are skipped
//! without being decoded.

use adjutant_core::{AttemptError, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::UnreadableAnswer;
use crate::errors::from_stream;
use crate::wire::Wire;
use crate::wire::anthropic::{self, AnthropicUsage};
use crate::wire::chat::{self, ChatContent, ChatUsage};
use crate::wire::gemini::{self, GeminiUsage, PromptFeedback};
use crate::wire::json::EventText;
use crate::wire::responses::{IncompleteDetails, ResponsesUsage, incomplete_stop_reason};

/// What is known about an answer so far.
#[derive(Debug)]
pub(super) struct AnswerFacts {
    wire: Wire,
    usage: Option<Usage>,
    /// The counts of Anthropic, which come in several events.
    anthropic_usage: Option<AnthropicUsage>,
    /// The API's word for why the answer ended. For Responses: why it is incomplete.
    stop: Option<String>,
    has_ended: bool,
    has_text: bool,
    has_refusal: bool,
    is_blocked: bool,
    /// The provider's error.
    pub(super) failure: Option<String>,
}

impl AnswerFacts {
    pub(super) const fn new(wire: Wire) -> Self {
        Self {
            wire,
            usage: None,
            anthropic_usage: None,
            stop: None,
            has_ended: false,
            has_text: false,
            has_refusal: false,
            is_blocked: false,
            failure: None,
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.anthropic_usage.map(AnthropicUsage::usage).or(self.usage)
    }

    /// Returns whether the provider's end has arrived.
    pub(super) fn has_ended(&self) -> bool {
        match self.wire {
            Wire::Anthropic | Wire::Chat | Wire::Responses => self.has_ended,
            // There is no end event; the last chunk has a reason.
            Wire::Gemini => self.is_blocked || self.stop.is_some(),
        }
    }

    /// Returns whether further events could matter.
    pub(super) fn wants_more(&self) -> bool {
        self.failure.is_none() && (self.wire == Wire::Gemini || !self.has_ended)
    }

    pub(super) fn stop_reason(&self) -> Result<StopReason, AttemptError> {
        let stop = self.stop.as_deref();
        let only_refusal = self.has_refusal && !self.has_text;
        match self.wire {
            Wire::Anthropic => anthropic::stop_reason(stop),
            Wire::Chat => {
                let content = if only_refusal { ChatContent::Refusal } else { ChatContent::Text };
                chat::stop_reason(stop, content)
            }
            Wire::Responses => Ok(match stop {
                Some(word) => incomplete_stop_reason(word),
                None if only_refusal => StopReason::Refused,
                None => StopReason::EndTurn,
            }),
            Wire::Gemini if self.is_blocked => Ok(StopReason::Refused),
            // Whether there are calls does not change how the answer is billed.
            Wire::Gemini => gemini::stop_reason(stop, true),
        }
    }

    /// Reads the data of one event of a stream.
    pub(super) fn read_event(&mut self, data: &[u8]) -> Result<(), UnreadableAnswer> {
        match self.wire {
            Wire::Anthropic => self.read_anthropic(serde_json::from_slice(data)?),
            Wire::Chat if data == b"[DONE]" => self.has_ended = true,
            Wire::Chat => self.read_chat(serde_json::from_slice(data)?),
            Wire::Responses if data == b"[DONE]" => return Err(UnreadableAnswer),
            Wire::Responses => {
                let event: ResponsesEvent<'_> = serde_json::from_slice(data)?;
                self.read_responses(event, data);
            }
            Wire::Gemini => self.read_gemini(serde_json::from_slice(data)?),
        }
        Ok(())
    }

    /// Reads a whole answer.
    pub(super) fn read_body(&mut self, body: &[u8]) -> Result<(), UnreadableAnswer> {
        match self.wire {
            Wire::Anthropic => self.read_anthropic(serde_json::from_slice(body)?),
            Wire::Chat => {
                self.read_chat(serde_json::from_slice(body)?);
                self.has_ended = self.stop.is_some();
            }
            Wire::Responses => {
                let mut response: ResponseObject<'_> = serde_json::from_slice(body)?;
                let status = response.status.take().unwrap_or_default();
                self.read_response(&status, response);
            }
            Wire::Gemini if body.trim_ascii_start().starts_with(b"[") => {
                let chunks: Vec<GeminiChunk> = serde_json::from_slice(body)?;
                chunks.into_iter().for_each(|chunk| self.read_gemini(chunk));
            }
            Wire::Gemini => self.read_gemini(serde_json::from_slice(body)?),
        }
        Ok(())
    }

    fn fail(&mut self, error: &Value) {
        self.failure = Some(from_stream(error).message);
    }

    fn read_anthropic(&mut self, event: AnthropicEvent<'_>) {
        match &*event.kind {
            "message_start" => {
                self.count_anthropic(event.message.and_then(|message| message.usage));
            }
            "message_delta" => {
                self.note_stop(event.delta.and_then(|delta| delta.stop_reason));
                self.count_anthropic(event.usage);
            }
            "message_stop" => self.has_ended = true,
            // The whole answer.
            "message" => {
                self.note_stop(event.stop_reason);
                self.count_anthropic(event.usage);
                self.has_ended = true;
            }
            "error" => self.fail(&event.error.unwrap_or_default()),
            _ => {}
        }
    }

    fn count_anthropic(&mut self, counts: Option<AnthropicUsage>) {
        if let Some(counts) = counts {
            let before = self.anthropic_usage.unwrap_or_default();
            self.anthropic_usage = Some(before.updated(counts));
        }
    }

    fn note_stop(&mut self, stop: Option<EventText<'_>>) {
        if let Some(stop) = stop.filter(|stop| !stop.is_empty()) {
            self.stop = Some(stop.0.into_owned());
        }
    }

    fn read_chat(&mut self, chunk: ChatChunk<'_>) {
        self.usage = chunk.usage.map(ChatUsage::usage).or(self.usage);
        if let Some(error) = chunk.error {
            self.fail(&error);
        }
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            if let Some(error) = choice.error {
                self.fail(&error);
            }
            for message in [choice.delta, choice.message].into_iter().flatten() {
                self.has_text |= [message.content, message.tool_calls].into_iter().any(says);
                self.has_refusal |= says(message.refusal);
            }
            self.note_stop(choice.finish_reason);
        }
    }

    fn read_responses(&mut self, event: ResponsesEvent<'_>, data: &[u8]) {
        match &*event.kind {
            "response.output_text.delta" | "response.function_call_arguments.delta" => {
                self.has_text = true;
            }
            "response.refusal.delta" => self.has_refusal = true,
            kind @ ("response.completed" | "response.incomplete" | "response.failed") => {
                if let Some(response) = event.response {
                    self.read_response(&kind["response.".len()..], response);
                }
            }
            "error" => self.fail(&serde_json::from_slice(data).unwrap_or_default()),
            _ => {}
        }
    }

    /// Reads a response with the given status.
    fn read_response(&mut self, status: &str, response: ResponseObject<'_>) {
        self.usage = response.usage.map(ResponsesUsage::usage).or(self.usage);
        for item in response.output.into_iter().flatten() {
            match &*item.kind {
                "message" => {
                    let content = item.content.map_or("[]", RawValue::get);
                    let parts: Vec<ResponsePart<'_>> =
                        serde_json::from_str(content).unwrap_or_default();
                    self.has_text |= parts.iter().any(|part| says(part.text));
                    self.has_refusal |= parts.iter().any(|part| says(part.refusal));
                }
                "reasoning" => {}
                _ => self.has_text = true,
            }
        }
        match (status, response.error) {
            ("failed", error) => self.fail(&error.unwrap_or_default()),
            // The body of a failed request has an error and no status.
            ("", Some(error)) => self.fail(&error),
            ("incomplete", _) => {
                let reason = response.incomplete_details.and_then(|details| details.reason);
                self.stop = Some(reason.unwrap_or_default());
                self.has_ended = true;
            }
            ("queued" | "in_progress" | "cancelled", _) => {}
            (_, _) => self.has_ended = true,
        }
    }

    fn read_gemini(&mut self, chunk: GeminiChunk) {
        self.usage = chunk.usage_metadata.map(GeminiUsage::usage).or(self.usage);
        if let Some(error) = chunk.error {
            self.fail(&error);
        }
        self.is_blocked |=
            chunk.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        for candidate in chunk.candidates.into_iter().filter(|candidate| candidate.index == 0) {
            self.stop = candidate.finish_reason.or_else(|| self.stop.take());
        }
    }
}

/// Returns whether a field has content.
fn says(field: Option<&RawValue>) -> bool {
    field.is_some_and(|json| !matches!(json.get(), "\"\"" | "null" | "[]"))
}

#[derive(Deserialize)]
struct AnthropicEvent<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: EventText<'a>,
    message: Option<MessageStart>,
    #[serde(borrow)]
    delta: Option<MessageDelta<'a>>,
    usage: Option<AnthropicUsage>,
    #[serde(borrow)]
    stop_reason: Option<EventText<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    #[serde(borrow)]
    stop_reason: Option<EventText<'a>>,
}

#[derive(Deserialize)]
struct ChatChunk<'a> {
    #[serde(default, borrow)]
    choices: Option<Vec<ChatChoice<'a>>>,
    usage: Option<ChatUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(default, borrow)]
    delta: Option<ChatMessage<'a>>,
    #[serde(default, borrow)]
    message: Option<ChatMessage<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<EventText<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChatMessage<'a> {
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(default, borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: EventText<'a>,
    #[serde(borrow)]
    response: Option<ResponseObject<'a>>,
}

#[derive(Deserialize)]
struct ResponseObject<'a> {
    #[serde(default, borrow)]
    status: Option<EventText<'a>>,
    usage: Option<ResponsesUsage>,
    incomplete_details: Option<IncompleteDetails>,
    error: Option<Value>,
    #[serde(default, borrow)]
    output: Option<Vec<ResponseItem<'a>>>,
}

#[derive(Deserialize)]
struct ResponseItem<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: EventText<'a>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ResponsePart<'a> {
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
    #[serde(default, borrow)]
    refusal: Option<&'a RawValue>,
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
    finish_reason: Option<String>,
}
