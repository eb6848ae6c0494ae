//! Pieces of event streams that the APIs have in common: fragments, ids, signatures.

use std::fmt::Write as _;

use serde_json::Value;

use super::turn::Part;

/// A Unix time in 2024, so that streams are the same every day.
pub(super) const CREATED: u64 = 1_735_460_684;

/// Writes an event with a name.
pub(super) fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Writes an event without a name.
pub(super) fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Cuts a text into pieces of these sizes, in characters, cycled; without sizes it stays whole.
pub(super) fn fragments(text: &str, sizes: &[usize]) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    if sizes.iter().all(|size| *size == 0) {
        return vec![text.to_owned()];
    }
    let mut rest = text.chars().peekable();
    let mut pieces = Vec::new();
    for size in sizes.iter().filter(|size| **size > 0).cycle() {
        if rest.peek().is_none() {
            break;
        }
        pieces.push(rest.by_ref().take(*size).collect());
    }
    pieces
}

/// Writes JSON in ASCII: every other character becomes its `\u` escapes.
pub(super) fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(text, "\\u{unit:04x}").expect("a string takes everything");
        }
    }
    text
}

/// Signs a thought, so that a changed or invented one is detected. Valid base64, as the real ones.
pub(super) fn sign(thought: &str) -> String {
    format!("EqQB{:016x}{:016x}", fnv(thought, 0), fnv(thought, 1))
}

/// Encodes a thought as opaque content that only this fake can read.
pub(super) fn seal(thought: &str) -> String {
    format!("{}{}", sign(thought), thought.bytes().fold(String::new(), hex))
}

/// Returns whether opaque content was made by `seal` and is unchanged.
pub(super) fn is_sealed(seal: &str) -> bool {
    let (Some(signature), Some(hidden)) = (seal.get(..36), seal.get(36..)) else { return false };
    let byte = |at: usize| u8::from_str_radix(hidden.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hidden.len()).step_by(2).map(byte).collect();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .is_some_and(|thought| sign(&thought) == signature)
}

fn hex(mut text: String, byte: u8) -> String {
    write!(text, "{byte:02x}").expect("a string takes everything");
    text
}

fn fnv(text: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the bytes of a part.
pub(super) fn length(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text(text) | Part::Thinking(text) | Part::Redacted(text) | Part::Refusal(text) => {
            text.len()
        }
        Part::Call(call) => call.text().len() + call.name.len(),
    };
    bytes as u64
}
