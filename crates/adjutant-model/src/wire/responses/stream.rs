//! Reads streamed answers of OpenAI Responses.
//!
//! Items are added, grow and are done; only a done item counts. `response.completed` and
//! `response.incomplete` are end events, `response.failed` is an error. If there is reasoning, the finished
//! items are sent back unchanged.

use std::collections::BTreeMap;

use adjutant_core::{AttemptError, AttemptResult, ModelReply, StopReason, ToolCall, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::super::json::{EventText, tool_call};
use super::super::reader::{AnswerFold, ProgressListener, parse};
use super::super::{WireCodec, own_id};
use crate::errors::{from_stream, truncated};
use crate::model::TurnProgress;

#[derive(Debug)]
pub(in super::super) struct ResponsesStream {
    codec: WireCodec,
    turn: u32,
    /// The items by index; `None` while an item is incomplete.
    items: BTreeMap<u64, Option<Value>>,
    end: Option<ResponseEnd>,
}

#[derive(Debug)]
struct ResponseEnd {
    incomplete: Option<String>,
    usage: Option<ResponsesUsage>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: EventText<'a>,
    #[serde(default)]
    output_index: u64,
    #[serde(default)]
    item: Value,
    #[serde(default, borrow)]
    delta: Option<DeltaPiece<'a>>,
    response: Option<ResponseObject>,
}

/// A delta; in a few events it is an object, which is ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum DeltaPiece<'a> {
    Text(#[serde(borrow)] EventText<'a>),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct ResponseObject {
    usage: Option<ResponsesUsage>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
pub(crate) struct IncompleteDetails {
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ResponsesUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputTokenDetails>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct InputTokenDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl ResponsesUsage {
    /// In this API, `input_tokens` includes cached tokens.
    pub(crate) fn usage(self) -> Usage {
        let details = self.input_tokens_details;
        let read = details.and_then(|details| details.cached_tokens).unwrap_or(0);
        let written = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
        let input = self.input_tokens.unwrap_or(0);
        Usage {
            input: input.saturating_sub(read).saturating_sub(written),
            output: self.output_tokens.unwrap_or(0),
            cache_read: read,
            cache_write: written,
        }
    }
}

impl ResponsesStream {
    pub(in super::super) fn new(codec: &WireCodec, turn: u32) -> Self {
        Self { codec: codec.clone(), turn, items: BTreeMap::new(), end: None }
    }

    fn end(
        &mut self,
        response: Option<ResponseObject>,
        incomplete: bool,
    ) -> Result<(), AttemptError> {
        let response = response.ok_or_else(|| truncated("the end came without its response"))?;
        if !incomplete && self.items.values().any(Option::is_none) {
            return Err(truncated("the answer ended inside an item"));
        }
        let reason = response.incomplete_details.and_then(|details| details.reason);
        let incomplete = incomplete.then(|| reason.unwrap_or_default());
        self.end = Some(ResponseEnd { incomplete, usage: response.usage });
        Ok(())
    }
}

impl AnswerFold for ResponsesStream {
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError> {
        // Some servers end with Chat's `[DONE]`, after the end event or instead of it.
        if data == b"[DONE]" {
            return Err(truncated("the stream closed without its end event"));
        }
        let event: ResponsesEvent<'_> = parse(data)?;
        match &*event.kind {
            "response.output_item.added" => {
                self.items.insert(event.output_index, None);
            }
            "response.output_item.done" => {
                self.items.insert(event.output_index, Some(event.item));
            }
            "response.completed" => self.end(event.response, false)?,
            "response.incomplete" => self.end(event.response, true)?,
            "response.failed" => {
                let error = event.response.map(|response| response.error).unwrap_or_default();
                return Err(from_stream(&error));
            }
            "error" => {
                let error: Value = parse(data)?;
                return Err(from_stream(&error));
            }
            kind => {
                if let Some(DeltaPiece::Text(piece)) = &event.delta
                    && !piece.is_empty()
                {
                    progress(match kind {
                        "response.output_text.delta" => TurnProgress::Text(piece),
                        _ => TurnProgress::Bytes(piece.len() as u64),
                    });
                }
            }
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn finish(&mut self) -> AttemptResult {
        let end = self.end.take().ok_or_else(|| truncated("the answer has no end"))?;
        let items: Vec<Value> = std::mem::take(&mut self.items).into_values().flatten().collect();
        let said = finished_items(&items, self.turn);
        let cut = end.incomplete.is_some();
        let stop = match end.incomplete.as_deref() {
            Some(reason) => incomplete_stop_reason(reason),
            None if !said.calls.is_empty() => StopReason::ToolUse,
            None if said.text.is_empty() && !said.refusal.is_empty() => StopReason::Refused,
            None => StopReason::EndTurn,
        };
        let tool_calls = if cut { Vec::new() } else { said.calls };
        let text = if said.text.is_empty() { said.refusal } else { said.text };
        let opaque = (said.verbatim && !cut).then(|| self.codec.seal(items));
        let usage = end.usage.map(ResponsesUsage::usage);
        Ok(ModelReply { text, tool_calls, stop, opaque, usage })
    }
}

/// Interprets the API's word for why a response is incomplete.
pub(crate) fn incomplete_stop_reason(word: &str) -> StopReason {
    if word == "content_filter" { StopReason::Refused } else { StopReason::MaxOutput }
}

/// The text and calls of the finished items.
#[derive(Default)]
struct FinishedItems {
    text: String,
    refusal: String,
    calls: Vec<ToolCall>,
    /// Whether the items must be sent back unchanged.
    verbatim: bool,
}

fn finished_items(items: &[Value], turn: u32) -> FinishedItems {
    let mut said = FinishedItems::default();
    for item in items {
        let word = |name: &str| item[name].as_str().unwrap_or_default();
        match word("type") {
            "message" => {
                said.verbatim |= !item["phase"].is_null();
                for part in item["content"].as_array().into_iter().flatten() {
                    said.text.push_str(part["text"].as_str().unwrap_or_default());
                    said.refusal.push_str(part["refusal"].as_str().unwrap_or_default());
                }
            }
            "function_call" => {
                let id = word("call_id");
                let id = if id.is_empty() { own_id(turn, said.calls.len()) } else { id.to_owned() };
                said.calls.push(tool_call(id, word("name").to_owned(), word("arguments")));
            }
            "reasoning" => said.verbatim = true,
            _ => {}
        }
    }
    said
}
