//! Renders a turn as the events of a Responses stream.

use serde_json::{Value, json};

use super::super::api::{Api, ValidRequest};
use super::super::openai::failure;
use super::super::script::SelectedTurn;
use super::super::sse::{CREATED, ascii, event, fragments, seal};
use super::super::turn::{Call, Fault, Part, Stop, Usage};

/// Builds the numbered events of a stream and collects the output items.
struct StreamBuilder<'c> {
    request: &'c ValidRequest,
    selected: &'c SelectedTurn<'c>,
    events: Vec<String>,
    output: Vec<Value>,
}

/// Renders a turn.
pub(in super::super) fn stream(request: &ValidRequest, selected: &SelectedTurn<'_>) -> Vec<String> {
    let mut builder = StreamBuilder { request, selected, events: Vec::new(), output: Vec::new() };
    for name in ["response.created", "response.in_progress"] {
        let response = builder.response("in_progress");
        builder.push(name, json!({ "response": response }));
    }
    for part in &selected.turn.parts {
        match part {
            Part::Text(text) => builder.message("output_text", "text", text),
            Part::Refusal(text) => builder.message("refusal", "refusal", text),
            Part::Thinking(text) => builder.reasoning(text, true),
            Part::Redacted(text) => builder.reasoning(text, false),
            Part::Call(call) => builder.call(call),
        }
    }
    let status = if incomplete(selected).is_some() { "incomplete" } else { "completed" };
    let response = builder.response(status);
    builder.push(&format!("response.{status}"), json!({ "response": response }));
    builder.events
}

/// Renders a failure within a stream, after this many events.
pub(in super::super) fn fault_event(
    request: &ValidRequest,
    selected: &SelectedTurn<'_>,
    fault: &Fault,
    sequence: usize,
) -> String {
    let builder = StreamBuilder { request, selected, events: Vec::new(), output: Vec::new() };
    let failure = failure(Api::Responses, fault.class);
    let message = fault.message.as_deref().unwrap_or(failure.message);
    let mut response = builder.response("failed");
    response["error"] =
        json!({ "code": failure.code.unwrap_or("server_error"), "message": message });
    let name = "response.failed";
    event(name, &json!({ "type": name, "response": response, "sequence_number": sequence }))
}

impl StreamBuilder<'_> {
    fn push(&mut self, name: &str, fields: Value) {
        let mut data = json!({ "type": name });
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        data["sequence_number"] = json!(self.events.len());
        self.events.push(event(name, &data));
    }

    fn response(&self, status: &str) -> Value {
        let ended = matches!(status, "completed" | "incomplete");
        let usage = (ended && !self.selected.turn.no_usage).then(|| usage(&self.selected.usage));
        let why = (status == "incomplete").then(|| json!({ "reason": incomplete(self.selected) }));
        json!({
            "id": format!("resp_{:016x}", self.selected.key),
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": why,
            "instructions": null,
            "max_output_tokens": null,
            "model": self.request.model,
            "output": if ended { self.output.as_slice() } else { &[] },
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            "store": false,
            "temperature": 1.0,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": usage,
            "user": null,
            "metadata": {},
        })
    }

    /// Invents the id of the next item; `items` reads the `t` back.
    fn id(&self, prefix: &str) -> String {
        let thought = |part: &Part| matches!(part, Part::Thinking(_) | Part::Redacted(_));
        let mark = if self.selected.turn.parts.iter().any(thought) { "t" } else { "_" };
        format!("{prefix}_{:016x}{mark}{:02}", self.selected.key, self.output.len())
    }

    fn added(&mut self, item: Value) {
        self.push(
            "response.output_item.added",
            json!({ "output_index": self.output.len(), "item": item }),
        );
    }

    fn done(&mut self, item: Value) {
        self.push(
            "response.output_item.done",
            json!({ "output_index": self.output.len(), "item": item }),
        );
        self.output.push(item);
    }

    /// Adds a message with one part: a text, or a refusal.
    fn message(&mut self, kind: &str, field: &str, text: &str) {
        let id = self.id("msg");
        let at = json!({ "item_id": id, "output_index": self.output.len(), "content_index": 0 });
        let part = |text: &str| match kind {
            "refusal" => json!({ "type": kind, "refusal": text }),
            _ => json!({ "type": kind, "annotations": [], "logprobs": [], "text": text }),
        };
        let item = |status: &str, content: Vec<Value>| {
            json!({
                "id": id,
                "type": "message",
                "status": status,
                "content": content,
                "role": "assistant",
            })
        };
        self.added(item("in_progress", Vec::new()));
        self.push("response.content_part.added", with(&at, json!({ "part": part("") })));
        for piece in fragments(text, &self.selected.turn.fragment) {
            self.push(&format!("response.{kind}.delta"), with(&at, json!({ "delta": piece })));
        }
        self.push(&format!("response.{kind}.done"), with(&at, json!({ field: text })));
        self.push("response.content_part.done", with(&at, json!({ "part": part(text) })));
        let status = if incomplete(self.selected).is_some() { "incomplete" } else { "completed" };
        self.done(item(status, vec![part(text)]));
    }

    fn reasoning(&mut self, text: &str, summarised: bool) {
        let id = format!("rs_{:016x}", self.selected.key);
        let at = json!({ "item_id": id, "output_index": self.output.len(), "summary_index": 0 });
        let sealed = self.request.sealed.then(|| seal(text));
        let part = |text: &str| json!({ "type": "summary_text", "text": text });
        let item = |summary: Vec<Value>| {
            let mut item = json!({ "id": id, "type": "reasoning", "summary": summary });
            if let Some(sealed) = &sealed {
                item["encrypted_content"] = json!(sealed);
            }
            item
        };
        self.added(item(Vec::new()));
        if summarised {
            let name = "response.reasoning_summary";
            self.push(&format!("{name}_part.added"), with(&at, json!({ "part": part("") })));
            for piece in fragments(text, &self.selected.turn.fragment) {
                self.push(&format!("{name}_text.delta"), with(&at, json!({ "delta": piece })));
            }
            self.push(&format!("{name}_text.done"), with(&at, json!({ "text": text })));
            self.push(&format!("{name}_part.done"), with(&at, json!({ "part": part(text) })));
        }
        let summary = if summarised { vec![part(text)] } else { Vec::new() };
        self.done(item(summary));
    }

    fn call(&mut self, call: &Call) {
        let id = self.id("fc");
        let index = self.output.len();
        let call_id =
            call.id.clone().unwrap_or_else(|| format!("call_{:016x}{index:02}", self.selected.key));
        let text = if self.selected.turn.escape { ascii(&call.text()) } else { call.text() };
        let item = |status: &str, arguments: &str| {
            json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "arguments": arguments,
                "call_id": call_id,
                "name": call.name,
            })
        };
        let at = json!({ "item_id": id, "output_index": index });
        let name = "response.function_call_arguments";
        self.added(item("in_progress", ""));
        for piece in fragments(&text, &self.selected.turn.fragment) {
            self.push(&format!("{name}.delta"), with(&at, json!({ "delta": piece })));
        }
        let status = if incomplete(self.selected).is_some() { "incomplete" } else { "completed" };
        self.push(&format!("{name}.done"), with(&at, json!({ "arguments": text })));
        self.done(item(status, &text));
    }
}

fn with(at: &Value, more: Value) -> Value {
    let mut all = at.clone();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

/// Returns why the response is incomplete, if it is.
fn incomplete(selected: &SelectedTurn<'_>) -> Option<&'static str> {
    match selected.turn.stop {
        Some(Stop::Length | Stop::Window) => Some("max_output_tokens"),
        Some(Stop::Refused) => Some("content_filter"),
        Some(Stop::End | Stop::Calls | Stop::Sequence | Stop::Malformed) | None => None,
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.all_input(),
        "input_tokens_details": { "cached_tokens": usage.cache_read },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.thinking },
        "total_tokens": usage.all_input() + usage.output,
    })
}
