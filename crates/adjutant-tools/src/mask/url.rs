//! Finds passwords in URLs: `scheme://name:password@host`.

use super::{SecretKind, SecretSpan, is_masked};

/// The maximum length of the name and password.
const MAX_BYTES: usize = 512;

/// Finds the password of the URL whose `://` begins at `at`.
pub(super) fn password(bytes: &[u8], floor: usize, at: usize) -> Option<SecretSpan> {
    let rest = bytes[at..].strip_prefix(b"://")?;
    if at == floor || !bytes[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let window = &rest[..rest.len().min(MAX_BYTES)];
    let authority = &window[..window.iter().position(ends_authority).unwrap_or(window.len())];
    let user_info = &authority[..memchr::memrchr(b'@', authority)?];
    let colon = memchr::memchr(b':', user_info)?;
    let secret = &user_info[colon + 1..];
    if secret.is_empty() || is_template(secret) || is_masked(user_info) {
        return None;
    }
    let start = at + 3 + colon + 1;
    Some(SecretSpan { start, end: start + secret.len(), kind: SecretKind::UrlPassword })
}

fn ends_authority(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'\\')
}

/// Returns whether the password is a placeholder such as `${DB_PASSWORD}` or `<password>`.
fn is_template(secret: &[u8]) -> bool {
    matches!(secret[0], b'$' | b'{' | b'<' | b'%' | b'*')
}
