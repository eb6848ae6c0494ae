//! Estimates tokens from bytes, for use before a provider reports the usage.
//!
//! The only definition, so that the engine's running sum and the scripted model's usage agree: a token is
//! four bytes, rounded up. It is an estimate, not an upper bound; reservations are more generous.

use std::io;

use adjutant_core::ToolCall;
use serde_json::Value;

/// The average number of bytes per token in English text and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns the estimated number of tokens in `bytes`.
#[must_use]
pub const fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Returns the size of a reply: its text, and the names and arguments of its calls.
#[must_use]
pub fn reply_bytes(text: &str, calls: &[ToolCall]) -> u64 {
    count(text.len()) + calls.iter().map(call_bytes).sum::<u64>()
}

fn call_bytes(call: &ToolCall) -> u64 {
    count(call.name.len()) + json_bytes(&call.arguments)
}

fn json_bytes(value: &Value) -> u64 {
    let mut counter = ByteCounter(0);
    // Serializing a `Value` into the counter cannot fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A writer that counts bytes and discards them.
struct ByteCounter(u64);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += count(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
