//! Tokens estimated from bytes, for everyone who must know before a provider says.
//!
//! One definition, so that the engine's running sum and the scripted model's bill agree: a token
//! is four bytes, rounded up. It is an estimate, never a bound; reservations are more generous.

use std::io;

use adjutant_core::ToolCall;
use serde_json::Value;

/// Bytes that make a token, on average, in English text and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns the tokens that `bytes` are taken for.
#[must_use]
pub const fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Returns the bytes of an answer: its text, and the names and arguments of its calls.
#[must_use]
pub fn reply_bytes(text: &str, calls: &[ToolCall]) -> u64 {
    count(text.len()) + calls.iter().map(call_bytes).sum::<u64>()
}

fn call_bytes(call: &ToolCall) -> u64 {
    count(call.name.len()) + json_bytes(&call.arguments)
}

fn json_bytes(value: &Value) -> u64 {
    let mut counter = ByteCounter(0);
    // Neither the counter nor a `Value` can fail to be written.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Counts what is written and keeps nothing.
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
