//! Private keys in PEM blocks, whole, cut off, or shown line by line.
//!
//! Source code that merely mentions the markers has no key between them and stays as it is.

use memchr::memmem;

use super::{SecretKind, SecretSpan, is_masked};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// The longest block; a 16,384-bit RSA key takes 13 KiB.
const MAX_BLOCK_BYTES: usize = 32 * 1024;

/// The longest line looked at where no end marker is near; bounds the work per beginning.
const MAX_LINE_BYTES: usize = 1024;

/// A run of base64 this long between the markers is a key, whatever surrounds it.
const KEY_RUN_BYTES: usize = 40;

/// The shortest run after a marker on the same line that is taken for a key cut short.
const INLINE_RUN_BYTES: usize = 16;

/// Finds key blocks in one text, from left to right.
#[derive(Debug, Default)]
pub(super) struct KeyBlockFinder {
    /// Where the next end marker is, once looked for: many beginnings share one search.
    next_end: Option<usize>,
}

impl KeyBlockFinder {
    /// Finds the key whose beginning marker is at `at`.
    pub(super) fn find(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let body = at + begin_marker(&bytes[at..])?;
        let end = match self.end_after(bytes, body) {
            Some((end, close)) if holds_key(&bytes[body..end]) => close,
            Some(_) | None => cut_body(bytes, body)?,
        };
        Some(SecretSpan { start: at, end, kind: SecretKind::PrivateKey })
    }

    /// Returns where the next end marker after `from` begins and closes, when it is near.
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

/// Returns the length of a private key's beginning marker at the start of `bytes`.
fn begin_marker(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(BEGIN)?;
    let label = &rest[..memmem::find(&rest[..rest.len().min(64)], DASHES)?];
    memmem::find(label, b"PRIVATE KEY")?;
    Some(BEGIN.len() + label.len() + DASHES.len())
}

/// Says whether what stands between two markers is a key and not code about keys.
fn holds_key(body: &[u8]) -> bool {
    // A second beginning inside means that the first has no end of its own.
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

/// Returns where a key ends that has no end marker, or nothing when no key follows.
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

/// Returns the length of the line at the start of `bytes`, unless it is too long for a key's.
fn line_len(bytes: &[u8]) -> Option<usize> {
    let near = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    memchr::memchr(b'\n', near).or_else(|| (near.len() == bytes.len()).then_some(near.len()))
}

fn trimmed_len(line: &[u8]) -> usize {
    line.trim_ascii_end().len()
}

/// Strips what tools put before a line: its number, and a tab, colon or hyphen.
fn content(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match line.get(digits) {
        Some(b'\t' | b':' | b'-') if digits > 0 => line[digits + 1..].trim_ascii(),
        Some(_) | None => line,
    }
}

/// Says whether a line could stand inside a key block.
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

/// Follows a file line by line and knows which lines are inside a private key.
///
/// For tools that show a part of a file: a part without the beginning marker has no shape.
#[derive(Debug, Default)]
pub(crate) struct KeyLineTracker {
    inside: bool,
}

impl KeyLineTracker {
    /// Takes the next line; says whether it is the body of a key.
    pub(crate) fn is_key(&mut self, line: &[u8]) -> bool {
        // The common line costs one search for one byte: markers begin with a hyphen.
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
