//! Finds private keys in PEM blocks: complete, truncated, or shown line by line.
//!
//! Source code that only mentions the markers has no key between them and is not masked.

use memchr::memmem;

use super::{SecretKind, SecretSpan, is_masked};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// The maximum length of a block; a 16,384-bit RSA key takes 13 KiB.
const MAX_BLOCK_BYTES: usize = 32 * 1024;

/// The maximum length of a line if no end marker is near; limits the work per begin marker.
const MAX_LINE_BYTES: usize = 1024;

/// A run of base64 of this length between the markers is a key, whatever surrounds it.
const KEY_RUN_BYTES: usize = 40;

/// The minimum length of base64 after a marker on the same line to count as a truncated key.
const INLINE_RUN_BYTES: usize = 16;

/// Finds key blocks in a text from left to right.
#[derive(Debug, Default)]
pub(super) struct KeyBlockFinder {
    /// The position of the next end marker, cached because several begin markers may share it.
    next_end: Option<usize>,
}

impl KeyBlockFinder {
    /// Finds the key whose begin marker is at `at`.
    pub(super) fn find(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let body = at + begin_marker(&bytes[at..])?;
        let end = match self.end_after(bytes, body) {
            Some((end, close)) if holds_key(&bytes[body..end]) => close,
            Some(_) | None => cut_body(bytes, body)?,
        };
        Some(SecretSpan { start: at, end, kind: SecretKind::PrivateKey })
    }

    /// Returns the start and end of the next end marker after `from`, if it is near.
    fn end_after(&mut self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let end = match self.next_end {
            Some(known) if known >= from => known,
            Some(_) | None => {
                memmem::find(&bytes[from..], END).map_or(bytes.len(), |offset| from + offset)
            }
        };
        self.next_end = Some(end);
        if end == bytes.len() || end - from > MAX_BLOCK_BYTES {
            return None;
        }
        let label = end + END.len();
        let near = &bytes[label..bytes.len().min(label + 64)];
        let close = memmem::find(near, DASHES).map_or(label, |dash| label + dash + DASHES.len());
        Some((end, close))
    }
}

/// Returns the length of a private key's begin marker at the start of `bytes`.
fn begin_marker(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(BEGIN)?;
    let label = &rest[..memmem::find(&rest[..rest.len().min(64)], DASHES)?];
    memmem::find(label, b"PRIVATE KEY")?;
    Some(BEGIN.len() + label.len() + DASHES.len())
}

/// Returns whether the text between two markers is a key, not code about keys.
fn holds_key(body: &[u8]) -> bool {
    // A second begin marker inside means that the first has no end marker.
    if memmem::find(body, BEGIN).is_some() || is_masked(body) {
        return false;
    }
    let run = body.split(|byte| !is_base64(*byte)).map(<[u8]>::len).max().unwrap_or(0);
    if run >= KEY_RUN_BYTES {
        return true;
    }
    let mut lines = body.split(|byte| *byte == b'\n').map(content).filter(|line| !line.is_empty());
    run > 0 && lines.all(is_body_line)
}

/// Returns the end of a key without an end marker; `None` if no key follows.
fn cut_body(bytes: &[u8], from: usize) -> Option<usize> {
    let inline = bytes[from..].iter().take_while(|byte| is_base64(**byte) || **byte == b'\\');
    let inline = inline.count();
    if inline >= INLINE_RUN_BYTES {
        return Some(from + inline);
    }
    let mut start = from + line_len(&bytes[from..]).filter(|len| *len == inline)? + 1;
    let (mut end, mut blank) = (None, 0);
    while start < bytes.len() {
        let Some(len) = line_len(&bytes[start..]) else { break };
        let line = &bytes[start..start + len];
        match content(line) {
            [] if blank < 2 => blank += 1,
            content if is_body_line(content) => end = Some(start + trimmed_len(line)),
            _ => break,
        }
        start += len + 1;
    }
    end
}

/// Returns the length of the line at the start of `bytes`; `None` if it is too long for a key.
fn line_len(bytes: &[u8]) -> Option<usize> {
    let near = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    memchr::memchr(b'\n', near).or_else(|| (near.len() == bytes.len()).then_some(near.len()))
}

fn trimmed_len(line: &[u8]) -> usize {
    line.trim_ascii_end().len()
}

/// Removes the prefix that tools add to a line: its number and a tab, colon or hyphen.
fn content(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match line.get(digits) {
        Some(b'\t' | b':' | b'-') if digits > 0 => line[digits + 1..].trim_ascii(),
        Some(_) | None => line,
    }
}

/// Returns whether a line could be part of a key block.
pub(crate) fn is_body_line(line: &[u8]) -> bool {
    const HEADERS: [&[u8]; 4] = [b"Proc-Type:", b"DEK-Info:", b"Comment:", b"Version:"];
    let line = line.trim_ascii();
    !line.is_empty()
        && (line.iter().all(|byte| is_base64(*byte))
            || HEADERS.iter().any(|header| line.starts_with(header)))
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Tracks, line by line, whether a file is inside a private key.
///
/// For tools that show part of a file, where the begin marker may not be visible.
#[derive(Debug, Default)]
pub(crate) struct KeyLineTracker {
    inside: bool,
}

impl KeyLineTracker {
    /// Processes the next line and returns whether it is part of a key.
    pub(crate) fn is_key(&mut self, line: &[u8]) -> bool {
        // Fast path: markers contain a hyphen, so most lines need only one byte search.
        if !self.inside && !line.contains(&b'-') {
            return false;
        }
        if self.inside {
            if is_body_line(line) {
                return true;
            }
            self.inside = line.trim_ascii().is_empty();
        }
        if let Some(begin) = memmem::rfind(line, BEGIN) {
            let ends = memmem::find(&line[begin..], END).is_some();
            self.inside = !ends && begin_marker(&line[begin..]).is_some();
        }
        false
    }
}
