//! Finds credentials in `Authorization: Basic …`, which are only base64-encoded.

use super::assignment::name_before;
use super::{SecretKind, SecretSpan};

/// The maximum length of a value; limits the work per separator.
const MAX_VALUE_BYTES: usize = 1024;

/// Finds the credentials in the header whose separator is at `at`.
pub(super) fn find(bytes: &[u8], floor: usize, at: usize) -> Option<SecretSpan> {
    let name = name_before(&bytes[floor..at])?;
    let ending = name.len().checked_sub(b"authorization".len())?;
    if !name[ending..].eq_ignore_ascii_case(b"authorization") {
        return None;
    }
    let blanks = |from: usize, quotes: &[u8]| {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t') || quotes.contains(byte);
        bytes[from..].iter().take(8).take_while(is_blank).count()
    };
    let scheme = at + 1 + blanks(at + 1, b"\"'`\\");
    let after = scheme + b"basic".len();
    if !bytes.get(scheme..after)?.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let start = after + blanks(after, b"");
    let window = &bytes[start..bytes.len().min(start + MAX_VALUE_BYTES)];
    let length = window.iter().take_while(|byte| sextet(**byte).is_some()).count();
    let is_credentials = start > after && holds_credentials(&window[..length]);
    let padding = window[length..].iter().take(2).take_while(|byte| **byte == b'=').count();
    let end = start + length + padding;
    is_credentials.then_some(SecretSpan { start, end, kind: SecretKind::Secret })
}

/// Returns whether base64 text decodes to `name:password`; ordinary words after `Basic` do not.
fn holds_credentials(base64: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(base64.len());
    for four in base64.chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, byte| bits << 6 | sextet(*byte).unwrap_or(0));
        let bits = bits << (6 * (4 - four.len()));
        decoded.extend(bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1));
    }
    let text = std::str::from_utf8(&decoded);
    decoded.contains(&b':') && text.is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Returns the six bits of a base64 character in either alphabet.
fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    }))
}
