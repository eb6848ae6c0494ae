//! Repairs a model's tool calls, so that APIs accept them in the history.
//!
//! A model may call a tool without a name or use an id twice. The engine answers such calls with an error,
//! but APIs refuse a history that contains them. Only requests are repaired; the engine and the journal keep
//! the original.

use std::borrow::Cow;
use std::collections::BTreeSet;

use adjutant_core::{Message, ToolCall};

/// The maximum length of names and ids that every API accepts.
const MAX_NAME_CHARS: usize = 64;

/// The replacement for an empty name.
const NAMELESS: &str = "unnamed";

/// Repairs messages one by one; remembers the changed call ids of the latest answer.
#[derive(Debug, Default)]
pub(super) struct HistoryRepair {
    ids: Vec<String>,
    results: usize,
}

impl HistoryRepair {
    /// Returns the next message in a form that APIs accept.
    pub(super) fn next<'m>(&mut self, message: &'m Message) -> Cow<'m, Message> {
        match message {
            Message::User { .. } => Cow::Borrowed(message),
            Message::Assistant { content, tool_calls, .. } => {
                *self = Self::default();
                if is_tidy(tool_calls) {
                    return Cow::Borrowed(message);
                }
                let tool_calls = repair_calls(tool_calls);
                self.ids = tool_calls.iter().map(|call| call.id.clone()).collect();
                // The raw reply has the same faults, so it is dropped.
                Cow::Owned(Message::Assistant {
                    content: content.clone(),
                    tool_calls,
                    opaque: None,
                })
            }
            Message::Tool { content, is_error, .. } => {
                // Results have the same order as the calls.
                let id = self.ids.get(self.results);
                self.results += 1;
                id.map_or(Cow::Borrowed(message), |id| {
                    let (tool_call_id, content) = (id.clone(), content.clone());
                    Cow::Owned(Message::Tool { tool_call_id, content, is_error: *is_error })
                })
            }
        }
    }
}

/// Converts a name to one that every API accepts.
pub(super) fn name(written: &str) -> Cow<'_, str> {
    if is_word(written) {
        return Cow::Borrowed(written);
    }
    let fits = |letter: char| if is_letter(letter) { letter } else { '_' };
    let name: String = written.chars().take(MAX_NAME_CHARS).map(fits).collect();
    Cow::Owned(if name.is_empty() { NAMELESS.to_owned() } else { name })
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-".contains(letter)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_CHARS && text.chars().all(is_letter)
}

fn is_tidy(calls: &[ToolCall]) -> bool {
    let mut seen = BTreeSet::new();
    calls.iter().all(|call| is_word(&call.name) && is_id(&call.id) && seen.insert(call.id.as_str()))
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_letter)
}

fn repair_calls(calls: &[ToolCall]) -> Vec<ToolCall> {
    let mut seen = BTreeSet::new();
    let tidy = |(place, call): (usize, &ToolCall)| {
        let fits = |letter: char| if is_letter(letter) { letter } else { '_' };
        let mut id: String = call.id.chars().map(fits).collect();
        if id.is_empty() || !seen.insert(id.clone()) {
            id = format!("{id}{}{place}", if id.is_empty() { "call_" } else { "_" });
            while !seen.insert(id.clone()) {
                id.push('_');
            }
        }
        ToolCall { id, name: name(&call.name).into_owned(), ..call.clone() }
    };
    calls.iter().enumerate().map(tidy).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str) -> ToolCall {
        let (id, name) = (id.to_owned(), name.to_owned());
        ToolCall { id, name, arguments: json!({}), malformed: false }
    }

    #[test]
    fn calls_get_names_and_ids_of_their_own_and_results_follow_them() {
        let flawed = [call("a", ""), call("a", "Read"), call("", "no good"), call("a_1", "x")];
        let mut tidy = HistoryRepair::default();
        let said = Message::Assistant {
            content: String::new(),
            tool_calls: flawed.to_vec(),
            opaque: Some(json!(1)),
        };
        let Message::Assistant { tool_calls, opaque: None, .. } = tidy.next(&said).into_owned()
        else {
            panic!("an answer stays one")
        };
        let made: Vec<(&str, &str)> =
            tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect();
        let expected = [("a", "unnamed"), ("a_1", "Read"), ("call_2", "no_good"), ("a_1_3", "x")];
        assert_eq!(made, expected);
        for (id, _) in expected {
            let told = Message::Tool {
                tool_call_id: "a".to_owned(),
                content: String::new(),
                is_error: true,
            };
            let Message::Tool { tool_call_id, .. } = tidy.next(&told).into_owned() else {
                panic!("a result stays one")
            };
            assert_eq!(tool_call_id, id);
        }
    }

    #[test]
    fn what_is_in_order_is_not_touched() {
        let said = Message::Assistant {
            content: String::new(),
            tool_calls: vec![call("a", "Read"), call("b", "Read")],
            opaque: Some(json!(1)),
        };
        assert!(matches!(HistoryRepair::default().next(&said), Cow::Borrowed(_)));
    }
}
