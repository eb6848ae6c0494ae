//! Finds secrets that are assigned to a name: `password = "…"`, `API_KEY=…`, `"token": "…"`.
//!
//! The name makes a value suspicious, and its characters decide: random text mixes letters and digits, while
//! identifiers, types and placeholders do not.

use super::tokens::letter_digit_changes;
use super::{OPENING, SecretKind, SecretSpan, is_masked, is_word};

/// The maximum lengths of names and values; they limit the work per separator.
const MAX_NAME_BYTES: usize = 64;
const MAX_QUOTED_BYTES: usize = 1024;
const MAX_BARE_BYTES: usize = 256;

/// Suffixes of names whose values are passwords chosen by people, which may be short.
const PASSWORDS: [&[u8]; 4] = [b"password", b"passwd", b"passphrase", b"pwd"];

/// Suffixes of names whose values are generated, which are long.
const SECRETS: [&[u8]; 9] = [
    b"secret",
    b"token",
    b"apikey",
    b"accesskey",
    b"secretkey",
    b"privatekey",
    b"signingkey",
    b"encryptionkey",
    b"accountkey",
];

/// Substrings of placeholder values, which are not secrets.
const PLACEHOLDERS: [&[u8]; 8] =
    [b"example", b"changeme", b"placeholder", b"your-", b"your_", b"xxxx", b"redacted", b"dummy"];

/// The kind of secret that a name suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretNameKind {
    Password,
    Secret,
}

/// How an assigned value is written, which decides whether it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    Quoted,
    /// `NAME=value` as in an environment file; treated like a quoted value.
    Environment,
    /// Unquoted text after a separator, which may be code.
    Bare,
}

/// Finds a secret value assigned by the `=` or `:` at `at`.
pub(super) fn find(bytes: &[u8], floor: usize, at: usize) -> Option<SecretSpan> {
    let name = name_before(&bytes[floor..at])?;
    let who = classify(name)?;
    let (from, typed) = value_start(bytes, at)?;
    let (start, end, form) = match quoted(bytes, from) {
        Some((start, end)) => (start, end, ValueForm::Quoted),
        None if typed => return None,
        None => unquoted_value(bytes, at, from, name)?,
    };
    is_secret(&bytes[start..end], who, form).then_some(SecretSpan {
        start,
        end,
        kind: SecretKind::Secret,
    })
}

/// Returns the name before a separator, skipping spaces and closing quotes; only the end of a long name.
pub(super) fn name_before(head: &[u8]) -> Option<&[u8]> {
    let head = trim_end_while(head, |byte| matches!(byte, b' ' | b'\t'), 4);
    let head = trim_end_while(head, |byte| matches!(byte, b']' | b'"' | b'\'' | b'`' | b'\\'), 3);
    let run = head.iter().rev().take(MAX_NAME_BYTES).take_while(|byte| is_name(**byte));
    let length = run.count();
    let (before, name) = head.split_at(head.len() - length);
    // `[masked:secret]` is not a name, although it ends like one.
    let ours = before.ends_with(OPENING.as_bytes());
    (!ours && !name.is_empty()).then_some(name)
}

fn trim_end_while(bytes: &[u8], drop: impl Fn(u8) -> bool, most: usize) -> &[u8] {
    let count = bytes.iter().rev().take(most).take_while(|byte| drop(**byte)).count();
    &bytes[..bytes.len() - count]
}

const fn is_name(byte: u8) -> bool {
    is_word(byte) || matches!(byte, b'-' | b'.')
}

/// Returns the start of the value, and whether a type annotation precedes it.
fn value_start(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let next = bytes.get(at + 1).copied()?;
    let after = match (bytes[at], next) {
        (b'=', b'=' | b'~') | (b':', b':' | b'/') => return None,
        (b'=', b'>') | (b':', b'=') => at + 2,
        _ => at + 1,
    };
    let spaces = bytes[after..].iter().take(8).take_while(|byte| matches!(byte, b' ' | b'\t'));
    let start = after + spaces.count();
    Some(match typed_value(bytes, at, start) {
        Some(value) => (value, true),
        None => (start, false),
    })
}

/// Skips a type annotation: `API_KEY: &str = "…"`.
fn typed_value(bytes: &[u8], at: usize, start: usize) -> Option<usize> {
    let window = &bytes[start..bytes.len().min(start + 40)];
    let equals = memchr::memchr(b'=', window).filter(|_| bytes[at] == b':')?;
    let is_type = |byte: &u8| is_word(*byte) || b"&'<> :".contains(byte);
    if equals == 0 || !window[..equals].iter().all(is_type) || window[equals - 1] != b' ' {
        return None;
    }
    (window.get(equals + 1) == Some(&b' ')).then_some(start + equals + 2)
}

fn classify(name: &[u8]) -> Option<SecretNameKind> {
    // Fast path: the last letters of all suffixes; most names have another last letter.
    if !matches!(name.last()?.to_ascii_lowercase(), b'd' | b'e' | b't' | b'n' | b'y') {
        return None;
    }
    let mut plain = [0; MAX_NAME_BYTES];
    let mut length = 0;
    for byte in name.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        *plain.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    let plain = &plain[..length];
    if PASSWORDS.iter().any(|ending| plain.ends_with(ending)) {
        return Some(SecretNameKind::Password);
    }
    SECRETS.iter().any(|ending| plain.ends_with(ending)).then_some(SecretNameKind::Secret)
}

/// Returns the content of the string literal at `from`, including escaped quotes.
fn quoted(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let prefix = match bytes.get(from..from + 2) {
        Some([b'\\', b'"' | b'\''] | [b'a'..=b'z' | b'@', b'"' | b'\'']) => 1,
        Some(_) | None => 0,
    };
    let escaped = prefix == 1 && bytes[from] == b'\\';
    let quote = *bytes.get(from + prefix).filter(|byte| matches!(byte, b'"' | b'\'' | b'`'))?;
    let start = from + prefix + 1;
    let window = &bytes[start..bytes.len().min(start + MAX_QUOTED_BYTES)];
    let mut skip = false;
    for (index, byte) in window.iter().enumerate() {
        match byte {
            b'\n' => return None,
            byte if *byte == quote && escaped => return Some((start, start + index.max(1) - 1)),
            byte if *byte == quote && !skip => return Some((start, start + index)),
            byte => skip = *byte == b'\\' && !skip,
        }
    }
    None
}

/// Returns an unquoted value, which ends at the next space or delimiter.
fn unquoted_value(
    bytes: &[u8],
    at: usize,
    from: usize,
    name: &[u8],
) -> Option<(usize, usize, ValueForm)> {
    let window = &bytes[from..bytes.len().min(from + MAX_BARE_BYTES)];
    let cut = from + window.len() < bytes.len();
    let length = match window.iter().position(|byte| ends_bare(*byte)) {
        None if cut => return None,
        end => end.unwrap_or(window.len()),
    };
    // Only the last word counts, because the text before it may be masked when the text is masked again.
    let word = name.rsplit(|byte| !is_word(*byte)).next().unwrap_or(name);
    let environment = bytes[at] == b'='
        && from == at + 1
        && bytes[..at].ends_with(word)
        && !word.iter().any(u8::is_ascii_lowercase);
    let form = if environment { ValueForm::Environment } else { ValueForm::Bare };
    Some((from, from + length, form))
}

fn ends_bare(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`,;&|)}<>\\".contains(&byte)
}

fn is_secret(value: &[u8], name: SecretNameKind, form: ValueForm) -> bool {
    if is_masked(value) || is_placeholder(value) {
        return false;
    }
    let mix = CharacterMix::of(value);
    match (form, name) {
        (ValueForm::Bare, _) => {
            let code = value.starts_with(b"0x") || value.iter().any(|b| b"([{$*!.:".contains(b));
            !code && mix.is_random(value.len(), 12)
        }
        (ValueForm::Quoted | ValueForm::Environment, SecretNameKind::Password) => {
            value.len() >= 8 && mix.distinct >= 5 && mix.classes() >= 2
        }
        (ValueForm::Quoted | ValueForm::Environment, SecretNameKind::Secret) => {
            mix.is_random(value.len(), 16)
        }
    }
}

fn is_placeholder(value: &[u8]) -> bool {
    let template = value.iter().any(|b| b.is_ascii_whitespace() || b"<>(){}$".contains(b))
        || matches!(value.first(), Some(b'%' | b'/' | b'[') | None);
    let lower = value.to_ascii_lowercase();
    template || PLACEHOLDERS.iter().any(|part| memchr::memmem::find(&lower, part).is_some())
}

/// Which kinds of characters a value has and how often they alternate, to tell random keys from words.
#[derive(Clone, Copy, Debug, Default)]
struct CharacterMix {
    lower: bool,
    upper: bool,
    digit: bool,
    symbol: bool,
    separator: bool,
    distinct: u32,
    flips: usize,
}

impl CharacterMix {
    fn of(value: &[u8]) -> Self {
        let mut mix = Self { flips: letter_digit_changes(value), ..Self::default() };
        let mut seen = [0_u64; 4];
        for byte in value {
            seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
            match byte {
                b'a'..=b'z' => mix.lower = true,
                b'A'..=b'Z' => mix.upper = true,
                b'0'..=b'9' => mix.digit = true,
                b'_' | b'-' | b'.' | b'/' | b':' => mix.separator = true,
                _ => mix.symbol = true,
            }
        }
        mix.distinct = seen.iter().map(|bits| bits.count_ones()).sum();
        mix
    }

    fn classes(self) -> usize {
        [self.lower, self.upper, self.digit, self.symbol].into_iter().filter(|has| *has).count()
    }

    fn is_random(self, length: usize, min: usize) -> bool {
        let letters = self.lower || self.upper;
        let dense = self.lower && self.upper && !self.separator && length >= 20;
        length >= min && letters && self.digit && self.distinct >= 8 && (self.flips >= 3 || dense)
    }
}
