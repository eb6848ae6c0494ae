//! Fingerprints of tasks and tool calls, to detect delegation cycles and loops.
//!
//! A [`Fingerprint`] is a hash; equal tasks or calls have equal ones.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::assignment::without_task_lines;
use crate::ids::AgentName;

/// A hash of a task (agent, prompt and context files, but not the label), of a tool call or of a
/// file's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Computes the fingerprint of a task. Spacing and case of the prompt do not count, nor do
    /// lines `Task: N` at its beginning: the engine writes those.
    #[must_use]
    pub fn of(agent: &AgentName, prompt: &str, context: &[String]) -> Self {
        let mut hash = Sha256::new();
        part(&mut hash, agent.as_str());
        part(&mut hash, &normalise(words_of(prompt)));
        context.iter().for_each(|path| part(&mut hash, path));
        Self::truncated(hash)
    }

    /// Computes the fingerprint of a tool call.
    #[must_use]
    pub fn of_call(tool: &str, arguments: &Value) -> Self {
        let mut hash = Sha256::new();
        part(&mut hash, tool);
        part(&mut hash, &canonicalize(arguments).to_string());
        Self::truncated(hash)
    }

    /// Computes the fingerprint of the content of a file.
    #[must_use]
    pub fn of_content(bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(bytes);
        Self::truncated(hash)
    }

    /// Keeps half of the digest, which is enough to rule out accidental collisions.
    fn truncated(hash: Sha256) -> Self {
        let digest = hash.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(half))
    }
}

/// Hashes the length first, so that ("ab", "c") and ("a", "bc") differ.
fn part(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// Sorts the keys of every object, so that their order does not matter.
fn canonicalize(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key.clone(), canonicalize(value))).collect()
        }
        Value::Array(items) => items.iter().map(canonicalize).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the part of a prompt that identifies the task: without `Task: N` lines, unless nothing
/// else is there.
fn words_of(prompt: &str) -> &str {
    let words = without_task_lines(prompt);
    if words.trim().is_empty() { prompt } else { words }
}

fn normalise(prompt: &str) -> String {
    let mut words = prompt.split_whitespace();
    let mut text = String::with_capacity(prompt.len());
    if let Some(first) = words.next() {
        text.push_str(first);
    }
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    text.to_lowercase()
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(agent: &str, prompt: &str, context: &[&str]) -> Fingerprint {
        let context: Vec<String> = context.iter().map(|path| (*path).to_owned()).collect();
        Fingerprint::of(&AgentName::new(agent), prompt, &context)
    }

    #[test]
    fn spacing_and_case_do_not_change_the_fingerprint() {
        assert_eq!(print("a", "Find  the\nbug ", &[]), print("a", "find the bug", &[]));
    }

    #[test]
    fn a_task_line_does_not_change_the_fingerprint() {
        let base = print("a", "find the bug", &[]);
        assert_eq!(print("a", "Task: 271\n\nFind the bug", &[]), base);
        assert_ne!(print("a", "Find the bug\nTask: 271", &[]), base);
        assert_ne!(print("a", "Task: 271", &[]), print("a", "Task: 272", &[]));
    }

    #[test]
    fn the_order_of_keys_does_not_change_the_fingerprint_of_a_call() {
        let call = |text: &str| Fingerprint::of_call("Read", &serde_json::from_str(text).unwrap());
        assert_eq!(call(r#"{"a":1,"b":{"c":2,"d":3}}"#), call(r#"{"b":{"d":3,"c":2},"a":1}"#));
        assert_ne!(call(r#"{"a":[1,2]}"#), call(r#"{"a":[2,1]}"#));
    }

    #[test]
    fn agent_prompt_and_context_each_change_the_fingerprint() {
        let base = print("a", "find the bug", &["x"]);
        for other in [
            print("b", "find the bug", &["x"]),
            print("a", "find the bugs", &["x"]),
            print("a", "find the bug", &["y"]),
            print("a", "find the bug", &["x", "y"]),
            print("a", "find the bug", &["xy"]),
        ] {
            assert_ne!(base, other);
        }
    }
}
