//! Reads streamed answers of Anthropic Messages.
//!
//! Content blocks arrive one after the other, each with a start, deltas and a stop; `message_delta` brings
//! the stop reason and the usage, `message_stop` is the end. Thinking carries a signature that must be
//! returned unchanged, so a reply with thinking is kept as received.

use std::collections::BTreeMap;

use adjutant_core::{AttemptError, AttemptResult, ModelReply, StopReason, ToolCall, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::WireCodec;
use super::super::json::{EventText, arguments, tool_call};
use super::super::reader::{AnswerFold, ProgressListener, parse};
use crate::errors::{from_stream, truncated};
use crate::model::TurnProgress;

#[derive(Debug)]
pub(in super::super) struct AnthropicStream {
    codec: WireCodec,
    blocks: BTreeMap<u64, ContentBlock>,
    /// The number of started blocks that have not stopped.
    open: usize,
    stop: Option<String>,
    usage: Option<AnthropicUsage>,
    ended: bool,
}

#[derive(Debug)]
enum ContentBlock {
    Text(String),
    Call {
        id: String,
        name: String,
        /// The arguments in the start event, as JSON; empty if there were none.
        input: String,
        written: String,
    },
    Thinking {
        text: String,
        signature: String,
    },
    /// Any other block, which is returned unchanged.
    Other(Value),
}

#[derive(Deserialize)]
struct AnthropicEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: EventText<'a>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(default, borrow)]
    delta: BlockDelta<'a>,
    message: Option<MessageStart>,
    usage: Option<AnthropicUsage>,
    #[serde(default)]
    error: Value,
}

#[derive(Default, Deserialize)]
struct BlockDelta<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: EventText<'a>,
    #[serde(default, borrow)]
    text: EventText<'a>,
    #[serde(default, borrow)]
    partial_json: EventText<'a>,
    #[serde(default, borrow)]
    thinking: EventText<'a>,
    #[serde(default, borrow)]
    signature: EventText<'a>,
    #[serde(default, borrow)]
    stop_reason: EventText<'a>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<AnthropicUsage>,
}

/// The unparsed arguments in the start of a call; a parsed value would hide a repeated key.
#[derive(Deserialize)]
struct CallStart<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl CallStart<'_> {
    fn input(&self) -> String {
        let input = self.input.map_or("", RawValue::get);
        if input.starts_with('{') { input.to_owned() } else { String::new() }
    }
}

/// Token counts; later events are cumulative and may omit fields.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct AnthropicUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl AnthropicUsage {
    /// Returns these counts with the fields that a later event reports.
    pub(crate) fn updated(self, newer: Self) -> Self {
        Self {
            input_tokens: newer.input_tokens.or(self.input_tokens),
            output_tokens: newer.output_tokens.or(self.output_tokens),
            cache_creation_input_tokens: newer
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_read_input_tokens: newer.cache_read_input_tokens.or(self.cache_read_input_tokens),
        }
    }

    /// In this API, `input_tokens` excludes cached tokens.
    pub(crate) fn usage(self) -> Usage {
        Usage {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.unwrap_or(0),
        }
    }
}

impl AnthropicStream {
    pub(in super::super) fn new(codec: &WireCodec) -> Self {
        Self {
            codec: codec.clone(),
            blocks: BTreeMap::new(),
            open: 0,
            stop: None,
            usage: None,
            ended: false,
        }
    }

    fn bill(&mut self, counts: Option<AnthropicUsage>) {
        if let Some(counts) = counts {
            self.usage = Some(self.usage.unwrap_or_default().updated(counts));
        }
    }

    fn grow(
        &mut self,
        index: u64,
        delta: &BlockDelta<'_>,
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError> {
        let block =
            self.blocks.get_mut(&index).ok_or_else(|| truncated("a piece came without a start"))?;
        let hidden = match (&*delta.kind, block) {
            ("text_delta", ContentBlock::Text(text)) => {
                text.push_str(&delta.text);
                if !delta.text.is_empty() {
                    progress(TurnProgress::Text(&delta.text));
                }
                0
            }
            ("input_json_delta", ContentBlock::Call { written, .. }) => {
                written.push_str(&delta.partial_json);
                delta.partial_json.len()
            }
            ("thinking_delta", ContentBlock::Thinking { text, .. }) => {
                text.push_str(&delta.thinking);
                delta.thinking.len()
            }
            ("signature_delta", ContentBlock::Thinking { signature, .. }) => {
                signature.push_str(&delta.signature);
                delta.signature.len()
            }
            // Citations and unknown deltas, which do not affect the kept content.
            (_, _) => 0,
        };
        if hidden > 0 {
            progress(TurnProgress::Bytes(hidden as u64));
        }
        Ok(())
    }
}

/// Interprets the API's word for why an answer ended.
pub(crate) fn stop_reason(word: Option<&str>) -> Result<StopReason, AttemptError> {
    match word {
        Some("end_turn" | "stop_sequence") => Ok(StopReason::EndTurn),
        Some("tool_use") => Ok(StopReason::ToolUse),
        Some("max_tokens" | "model_context_window_exceeded") => Ok(StopReason::MaxOutput),
        Some("refusal") => Ok(StopReason::Refused),
        // `pause_turn` occurs only with the provider's own tools, which we never enable.
        Some(_) => Err(truncated("the answer stopped for a reason that is not known")),
        None => Err(truncated("the answer ended without a reason")),
    }
}

impl AnswerFold for AnthropicStream {
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError> {
        let event: AnthropicEvent<'_> = parse(data)?;
        match &*event.kind {
            "message_start" => self.bill(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                let block = event.content_block.map_or("null", RawValue::get);
                self.blocks.insert(event.index, begin(block)?);
                self.open += 1;
            }
            "content_block_delta" => self.grow(event.index, &event.delta, progress)?,
            "content_block_stop" => self.open = self.open.saturating_sub(1),
            "message_delta" => {
                if !event.delta.stop_reason.is_empty() {
                    self.stop = Some(event.delta.stop_reason.0.into_owned());
                }
                self.bill(event.usage);
            }
            "message_stop" => {
                if self.open > 0 {
                    return Err(truncated("the answer ended inside a block"));
                }
                self.ended = true;
            }
            "error" => return Err(from_stream(&event.error)),
            // `ping` and unknown events.
            _ => {}
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn finish(&mut self) -> AttemptResult {
        let stop = stop_reason(self.stop.as_deref())?;
        let cut = stop == StopReason::MaxOutput;
        let (mut text, mut tool_calls, mut content) = (String::new(), Vec::new(), Vec::new());
        let mut signed = false;
        for block in std::mem::take(&mut self.blocks).into_values() {
            signed |= matches!(block, ContentBlock::Thinking { .. } | ContentBlock::Other(_));
            if let Some(verbatim) = settle(block, &mut text, &mut tool_calls) {
                content.push(verbatim);
            }
        }
        if cut {
            tool_calls.clear();
        }
        let opaque = (signed && !cut).then(|| self.codec.seal(content));
        Ok(ModelReply {
            text,
            tool_calls,
            stop,
            opaque,
            usage: self.usage.map(AnthropicUsage::usage),
        })
    }
}

fn begin(block_json: &str) -> Result<ContentBlock, AttemptError> {
    let block: Value = parse(block_json.as_bytes())?;
    let word = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    Ok(match block["type"].as_str() {
        Some("text") => ContentBlock::Text(word("text")),
        Some("tool_use") => ContentBlock::Call {
            id: word("id"),
            name: word("name"),
            input: parse::<CallStart<'_>>(block_json.as_bytes())?.input(),
            written: String::new(),
        },
        Some("thinking") => {
            ContentBlock::Thinking { text: word("thinking"), signature: word("signature") }
        }
        Some(_) | None => ContentBlock::Other(block),
    })
}

/// Adds a block to the reply and returns it in the form in which it must be sent back.
fn settle(block: ContentBlock, text: &mut String, calls: &mut Vec<ToolCall>) -> Option<Value> {
    match block {
        // The API refuses blank text in a history.
        ContentBlock::Text(said) if said.trim().is_empty() => {
            text.push_str(&said);
            None
        }
        ContentBlock::Text(said) => {
            text.push_str(&said);
            Some(json!({ "type": "text", "text": said }))
        }
        ContentBlock::Call { id, name, input, written } => {
            // Servers that do not stream arguments send them in the start event.
            let written = if written.is_empty() { input } else { written };
            let call = tool_call(id, name, &written);
            let verbatim = json!({
                "type": "tool_use", "id": call.id, "name": call.name, "input": arguments(&call),
            });
            calls.push(call);
            Some(verbatim)
        }
        ContentBlock::Thinking { text, signature } => {
            Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        ContentBlock::Other(value) => value.is_object().then_some(value),
    }
}
