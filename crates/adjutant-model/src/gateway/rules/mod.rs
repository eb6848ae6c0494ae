//! What a request may contain, for each wire format.
//!
//! A request must be bounded before it is sent and must give a sandboxed agent no network. So tools that the
//! provider runs, references to things outside of the request, and options with another price are removed if the
//! agent can do without them, and refused otherwise. Unknown tools count as tools of the provider.

mod anthropic;
mod chat;
mod gemini;
mod openai;
mod responses;

use serde_json::{Map, Value};

use super::problem::RequestProblem;
use super::served::ChatCapField;
use crate::wire::Wire;

/// The limit for the output of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputCap {
    /// The granted output tokens.
    pub(super) max_output: u64,
    /// The output tokens that the agent asked for.
    pub(super) requested: Option<u64>,
    pub(super) chat_cap_field: ChatCapField,
}

impl OutputCap {
    /// Returns the value for a field that may hold a smaller limit already.
    fn lowered(&self, current: Option<&Value>) -> Value {
        let current = current.and_then(count).unwrap_or(self.max_output);
        Value::from(current.min(self.max_output))
    }

    /// Returns whether less output is granted than was asked for.
    fn is_lowered(&self) -> bool {
        self.requested.is_none_or(|requested| self.max_output < requested)
    }

    /// Returns the output tokens of the forwarded request.
    fn effective(&self) -> u64 {
        self.requested.map_or(self.max_output, |requested| requested.min(self.max_output))
    }

    /// Returns the largest thinking budget that leaves room for an answer: half of the output, or more if `least`
    /// requires it. `None` if not even `least` fits.
    fn thinking_budget(&self, least: u64) -> Option<u64> {
        let output = self.effective();
        (output > least).then(|| (output / 2).max(least))
    }
}

/// Checks a request and removes what may not be used; returns the names of what was removed.
pub(super) fn check(
    wire: Wire,
    body: &mut Map<String, Value>,
    is_streaming: bool,
) -> Result<Vec<String>, RequestProblem> {
    let mut removed = Removals::default();
    match wire {
        Wire::Anthropic => anthropic::check(body, &mut removed)?,
        Wire::Chat => chat::check(body, is_streaming, &mut removed)?,
        Wire::Responses => responses::check(body, &mut removed)?,
        Wire::Gemini => gemini::check(body, &mut removed)?,
    }
    Ok(removed.0)
}

/// Returns the output limit that the agent asked for.
pub(super) fn requested_output(wire: Wire, body: &Map<String, Value>) -> Option<u64> {
    match wire {
        Wire::Anthropic => body.get("max_tokens").and_then(count),
        Wire::Chat => smallest(["max_completion_tokens", "max_tokens"].map(|name| body.get(name))),
        Wire::Responses => body.get("max_output_tokens").and_then(count),
        Wire::Gemini => gemini::requested_output(body),
    }
}

/// Returns the fields that differ in the forwarded request, so that its output stays below the cap.
pub(super) fn capped_fields(
    wire: Wire,
    body: &Map<String, Value>,
    cap: &OutputCap,
) -> Vec<(String, Value)> {
    match wire {
        Wire::Anthropic => anthropic::capped_fields(body, cap),
        Wire::Chat => chat::capped_fields(body, cap),
        Wire::Responses => {
            let field = "max_output_tokens";
            vec![(field.to_owned(), cap.lowered(body.get(field)))]
        }
        Wire::Gemini => gemini::capped_fields(body, cap),
    }
}

/// The names of what was removed from a request, each once.
#[derive(Debug, Default)]
struct Removals(Vec<String>);

impl Removals {
    fn record(&mut self, name: &str) {
        let name: String = name.chars().filter(|letter| !letter.is_control()).take(80).collect();
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    /// Removes these fields and records those that had a value.
    fn remove_fields(&mut self, body: &mut Map<String, Value>, names: &[&str]) {
        for name in names {
            if body.shift_remove(*name).is_some_and(|value| is_used(&value)) {
                self.record(name);
            }
        }
    }
}

/// Returns whether a value asks for something; null, false and empty lists do not, but empty options do.
fn is_used(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(values) => !values.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
    }
}

/// Returns a field that is present and not null.
fn present<'v>(body: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    body.get(name).filter(|value| !value.is_null())
}

/// Returns a text field of an object.
fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Reads a number of tokens; protocol buffers also write numbers as text.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn smallest(values: [Option<&Value>; 2]) -> Option<u64> {
    values.into_iter().flatten().filter_map(count).min()
}

/// Refuses a request with a number of answers other than one.
fn refuse_several_answers(
    body: &Map<String, Value>,
    fields: &[&str],
) -> Result<(), RequestProblem> {
    match fields.iter().find(|name| present(body, name).is_some_and(|n| count(n) != Some(1))) {
        Some(field) => Err(RequestProblem::SeveralAnswers { field: (*field).to_owned() }),
        None => Ok(()),
    }
}

/// Refuses content that is not part of the request; `field` names the reference.
fn refuse_remote(url: &Value, field: &str) -> Result<(), RequestProblem> {
    let is_data = |url: &str| url.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"));
    if url.is_null() || url.as_str().is_some_and(is_data) {
        return Ok(());
    }
    Err(RequestProblem::RemoteContent { field: field.to_owned() })
}

/// Refuses the tier in `field` unless it is one of `known`, which have the usual price.
fn refuse_other_tier(field: &str, tier: &Value, known: &[&str]) -> Result<(), RequestProblem> {
    if tier.as_str().is_some_and(|tier| known.contains(&tier)) {
        return Ok(());
    }
    let tier = tier.as_str().map_or_else(|| tier.to_string(), str::to_owned);
    let tier = tier.chars().filter(|letter| !letter.is_control()).take(80).collect();
    Err(RequestProblem::ServiceTier { field: field.to_owned(), tier })
}

fn required_tool(tool: &str) -> RequestProblem {
    RequestProblem::RequiredTool { tool: tool.to_owned() }
}

/// Returns the items of a list, or none for any other value.
fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}
