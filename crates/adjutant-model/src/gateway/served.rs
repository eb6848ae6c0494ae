//! A request of an agent: read, checked, and rewritten for the provider.

use bytes::Bytes;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::endpoint::{GeminiDelivery, GenerateEndpoint};
use super::problem::RequestProblem;
use super::rules::{self, OutputCap};
use crate::wire::Wire;

/// The maximum size of a request: 32 MiB, which is the limit of Anthropic's API.
pub const MAX_REQUEST_BYTES: u64 = 32 << 20;

/// The bytes of a request that are counted as one token.
///
/// Text of programs has 3 to 4 bytes per token, and the JSON around it adds bytes without adding as many tokens.
const BYTES_PER_TOKEN: u64 = 3;
/// The tokens that providers add to a request of their own, for example for the instructions about tools.
const ADDED_TOKENS: u64 = 64;

/// The field that limits the output of a Chat request that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatCapField {
    /// `max_tokens`, the only name that most compatible servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, the only name that OpenAI's reasoning models accept.
    MaxCompletionTokens,
}

/// A request of an agent, read and checked.
#[derive(Clone, Debug)]
pub struct ServedRequest {
    /// The wire format.
    pub wire: Wire,
    /// The model's name as requested, without a provider.
    pub model: String,
    /// The size of the body as received.
    pub body_bytes: u64,
    /// The maximum output that the agent asks for, if it does.
    pub requested_output: Option<u64>,
    /// Whether the answer is a stream of server-sent events.
    pub is_streaming: bool,
    /// What was removed from the request: provider-side tools and fields that change the price, by the API's names.
    pub removed: Vec<String>,
    /// The body after the removals.
    body: Map<String, Value>,
    kept_bytes: u64,
}

impl ServedRequest {
    /// Reads and checks the body of a request; optional things that may not be used here are removed.
    pub fn parse(endpoint: &GenerateEndpoint, body: &[u8]) -> Result<Self, RequestProblem> {
        let body_bytes = body.len() as u64;
        if body_bytes > MAX_REQUEST_BYTES {
            return Err(RequestProblem::TooLarge { bytes: body_bytes, limit: MAX_REQUEST_BYTES });
        }
        let parsed = serde_json::from_slice(body).map_err(|_| RequestProblem::NotJson)?;
        let Value::Object(mut body) = parsed else { return Err(RequestProblem::NotJson) };
        let wire = endpoint.wire();
        let (model, is_streaming) = match endpoint {
            GenerateEndpoint::Gemini { model, delivery } => {
                // The path decides; a second name in the body must not disagree with it.
                body.shift_remove("model");
                (model.clone(), *delivery == GeminiDelivery::Events)
            }
            GenerateEndpoint::Messages
            | GenerateEndpoint::ChatCompletions
            | GenerateEndpoint::Responses => {
                let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
                let model = model.to_owned();
                (model, normalize_stream(&mut body))
            }
        };
        if model.is_empty() {
            return Err(RequestProblem::NoModel);
        }
        let removed = rules::check(wire, &mut body, is_streaming)?;
        let requested_output = rules::requested_output(wire, &body);
        let kept_bytes = json_len(&body);
        Ok(Self {
            wire,
            model,
            body_bytes,
            requested_output,
            is_streaming,
            removed,
            body,
            kept_bytes,
        })
    }

    /// Returns an upper estimate of the request's tokens.
    ///
    /// It is a third of the bytes that are left after the removals, plus a constant. Text with unusual characters
    /// and small files with many pages may have more tokens; the difference is an overrun that the settlement
    /// reports.
    #[must_use]
    pub const fn input_bound(&self) -> u64 {
        self.kept_bytes.div_ceil(BYTES_PER_TOKEN) + ADDED_TOKENS
    }

    /// Returns the body to forward: for the provider's model `model`, with at most `max_output` output tokens.
    ///
    /// All other fields and their order are kept. A thinking budget is lowered with the output.
    #[must_use]
    pub fn rewritten(&self, model: &str, max_output: u64) -> Bytes {
        self.rewritten_with(model, max_output, ChatCapField::default())
    }

    /// Like [`ServedRequest::rewritten`], with the field that limits a Chat request without a limit.
    #[must_use]
    pub fn rewritten_with(
        &self,
        model: &str,
        max_output: u64,
        chat_cap_field: ChatCapField,
    ) -> Bytes {
        let cap = OutputCap { max_output, requested: self.requested_output, chat_cap_field };
        let mut replaced = rules::capped_fields(self.wire, &self.body, &cap);
        if self.wire != Wire::Gemini {
            replaced.push(("model".to_owned(), Value::from(model)));
        }
        let mut out = Vec::with_capacity(self.body_bytes as usize + 256);
        let mut serializer = serde_json::Serializer::new(&mut out);
        // Writing to memory cannot fail, and every key is a string.
        let _ = write_with(&mut serializer, &self.body, &replaced);
        Bytes::from(out)
    }
}

/// Returns whether a stream is requested, and leaves no other spelling of it for a lenient server to interpret.
fn normalize_stream(body: &mut Map<String, Value>) -> bool {
    match body.get_mut("stream") {
        None => false,
        Some(Value::Bool(is_streaming)) => *is_streaming,
        Some(other) => {
            *other = Value::Bool(false);
            false
        }
    }
}

/// Writes an object with some fields replaced, without copying the others; missing fields are added at the end.
fn write_with<S: Serializer>(
    serializer: S,
    body: &Map<String, Value>,
    replaced: &[(String, Value)],
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in body {
        let new = replaced.iter().find(|(replaced, _)| replaced == name);
        map.serialize_entry(name, new.map_or(value, |(_, value)| value))?;
    }
    for (name, value) in replaced.iter().filter(|(name, _)| !body.contains_key(name)) {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

fn json_len(body: &Map<String, Value>) -> u64 {
    let mut counter = ByteCounter(0);
    let _ = serde_json::to_writer(&mut counter, body);
    counter.0
}

/// Counts what is written to it.
struct ByteCounter(u64);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
