//! The tool calls of an answer: how they are read, which are run, and their results.
//!
//! Loops and permitted tools are checked here. Start at [`Tree::use_tools`].

use serde_json::Value;

use super::Tree;
use super::node::{Node, PlannedEnd};
use crate::code::ErrorCode;
use crate::event::{Event, ToolOutput};
use crate::fingerprint::Fingerprint;
use crate::ids::SessionId;
use crate::message::{ModelReply, StopReason, ToolCall};
use crate::rights::ToolSet;
use crate::schema::RETURN;
use crate::time::Timestamp;
use crate::tool_call::{CallTranslation, needed_tools, translate};
use crate::write::RUN;
use adjutant_formats::json;

/// After this many equal recent calls an agent is warned.
pub const LOOP_TOLD: usize = 5;
/// After this many equal recent calls an agent is ended.
pub const LOOP_END: usize = 8;
/// The most tool calls of one answer that are run; the rest are answered with an error.
pub const CALLS_PER_TURN: usize = 64;

impl Tree {
    /// Returns how the tool calls of a reply are read that the model wrote in another form.
    pub(super) fn translations(&self, node: &Node, reply: &ModelReply) -> Vec<CallTranslation> {
        let is_last = node.continuations.is_note_asked || node.corrections.last_call.is_some();
        if !uses_tools(reply.stop, &reply.tool_calls, is_last) {
            return Vec::new();
        }
        let calls = (0_u32..).zip(&reply.tool_calls).take(CALLS_PER_TURN);
        let readings = calls.filter_map(|(call, made)| {
            let reading = translate(made, |name| self.custom_tools.contains(name))?;
            Some(CallTranslation { call, reading })
        });
        readings.collect()
    }

    /// Starts or refuses each tool call of the last answer.
    pub(super) fn use_tools(&self, now: Timestamp, session: SessionId) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        let Some(calls) = node.calls() else { return Vec::new() };
        let usable = self.usable(index);
        let mut recent = node.loops.clone();
        let mut events = Vec::new();
        for (number, call) in calls.iter() {
            if calls.is_begun(number) || self.is_held(index, number) {
                continue;
            }
            let fingerprint = Fingerprint::of_call(&call.name, &call.arguments);
            recent.remember(fingerprint);
            let equal = recent.recent_calls.iter().filter(|seen| **seen == fingerprint).count();
            if equal >= LOOP_END {
                events.extend(self.end_subtree(index, &loop_end(session, &call.name, equal)));
                return events;
            }
            let complaint = self
                .return_objection(index, number)
                .or_else(|| objection(call, number, calls.call_slots()))
                .or_else(|| {
                    let refusal = calls.reading(number)?.refusal.as_ref()?;
                    Some(format!("Not run: {refusal}."))
                })
                .or_else(|| {
                    let needed = needed_tools(call);
                    let missing = needed.into_iter().find(|tool| !usable.contains(tool))?;
                    let called = calls.reading(number).map_or(missing, |it| it.called.as_str());
                    Some(not_allowed(called, missing, &usable))
                })
                .or_else(|| (equal >= LOOP_TOLD).then(|| repeated_call_text(&call.name, equal)));
            events.push(match complaint {
                None => self.run_or_ask(now, session, number, call),
                Some(text) => Event::ToolRefused { session, call: number, text },
            });
        }
        events
    }

    pub(super) fn take_output(
        &self,
        session: SessionId,
        turn: u32,
        call: u32,
        output: ToolOutput,
    ) -> Vec<Event> {
        match self.live(session) {
            Some((index, node))
                if node.awaits_result_of(turn, call) && !self.is_held(index, call) =>
            {
                let reading = node.calls().and_then(|calls| calls.reading(call));
                let remarks = reading.map_or(&[][..], |it| &it.remarks);
                let output = remarked(output, remarks);
                vec![Event::ToolReturned { session, call, output }]
            }
            Some(_) | None => {
                vec![Event::Late { session, what: "tool result".into(), text: output.content }]
            }
        }
    }
}

/// Says whether the tool calls of an answer are run.
pub(crate) fn uses_tools(stop: StopReason, calls: &[ToolCall], last_call: bool) -> bool {
    match stop {
        StopReason::EndTurn | StopReason::ToolUse => !calls.is_empty() && !last_call,
        StopReason::MaxOutput | StopReason::Refused => false,
    }
}

/// Says why a call is invalid, before its permission is checked.
fn objection(call: &ToolCall, number: u32, all: &[Option<ToolCall>]) -> Option<String> {
    let number = number as usize;
    if number >= CALLS_PER_TURN {
        return Some(format!("Not run: one turn may make {CALLS_PER_TURN} calls."));
    }
    if call.name.is_empty() {
        return Some("Not run: the call names no tool.".into());
    }
    // A `Return` call with invalid JSON is judged like any other invalid return.
    if call.malformed && call.name != RETURN {
        return Some(unreadable(&call.arguments));
    }
    let same_id =
        |other: &&Option<ToolCall>| other.as_ref().is_some_and(|other| other.id == call.id);
    all.iter()
        .take(number)
        .find(same_id)
        .map(|_| format!("Not run: the call id `{}` was used twice.", call.id))
}

/// Says why the arguments of a call could not be parsed.
fn unreadable(arguments: &Value) -> String {
    let error = arguments.as_str().and_then(|text| json::from_str(text).err());
    match error.filter(json::is_repeated_key) {
        Some(error) => format!("Not run: {error} of the arguments. Send each key once."),
        None => "Not run: the arguments are not valid JSON. Send one JSON object.".into(),
    }
}

/// Says that a call needs a tool that the agent does not have. `called` is the name that the model wrote.
fn not_allowed(called: &str, name: &str, usable: &ToolSet) -> String {
    let alias =
        if called == name { String::new() } else { format!("`{called}` is `{name}` here. ") };
    if name == RUN {
        return format!(
            "Not run: {alias}`{RUN}` needs a workspace of your own, which you do not have. Available: {usable}."
        );
    }
    format!("Not run: {alias}`{name}` is not available to you. Available: {usable}.")
}

/// Adds remarks about how a call was read to its result, each in brackets on its own line.
fn remarked(mut output: ToolOutput, remarks: &[String]) -> ToolOutput {
    for remark in remarks {
        if !output.content.is_empty() && !output.content.ends_with('\n') {
            output.content.push('\n');
        }
        output.content.push_str(&format!("[{remark}]"));
    }
    output
}

fn repeated_call_text(name: &str, times: usize) -> String {
    format!(
        "Not run: you have made this exact {name} call {times} times and its result does not change. \
         Do something else, or write your report; at {LOOP_END} you will be stopped."
    )
}

fn loop_end(session: SessionId, name: &str, times: usize) -> PlannedEnd {
    PlannedEnd::partial(
        ErrorCode::LoopDetected,
        format!("The agent made the same {name} call {times} times."),
        &format!("Say what to do differently, with `adjutant resume {session} --say`."),
    )
}
