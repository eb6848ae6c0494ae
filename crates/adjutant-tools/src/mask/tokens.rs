//! Finds tokens with a known prefix.
//!
//! Each shape is a row of [`SHAPES`]; only JSON web tokens need their own function.

use super::{SecretKind, SecretSpan, is_word};

/// A kind of token: its prefix and what must follow.
struct TokenShape {
    prefix: &'static [u8],
    kind: SecretKind,
    body: TokenAlphabet,
    /// The minimum number of bytes after the prefix.
    min: usize,
    /// The maximum, for tokens of a fixed length.
    max: usize,
}

/// The characters that a token may contain.
#[derive(Clone, Copy)]
enum TokenAlphabet {
    /// Capital letters and digits.
    Capitals,
    /// Letters, digits, underscores.
    Word,
    /// Letters, digits, underscores, hyphens.
    Dashed,
    /// Like `Dashed`, but digits must alternate with letters, which they do not in ordinary identifiers.
    Mixed,
}

const fn shape(
    prefix: &'static [u8],
    kind: SecretKind,
    body: TokenAlphabet,
    min: usize,
) -> TokenShape {
    TokenShape { prefix, kind, body, min, max: usize::MAX }
}

const fn fixed(
    prefix: &'static [u8],
    kind: SecretKind,
    body: TokenAlphabet,
    len: usize,
) -> TokenShape {
    TokenShape { prefix, kind, body, min: len, max: len }
}

const SHAPES: [TokenShape; 22] = [
    fixed(b"AKIA", SecretKind::Aws, TokenAlphabet::Capitals, 16),
    fixed(b"ASIA", SecretKind::Aws, TokenAlphabet::Capitals, 16),
    shape(b"ghp_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"gho_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"ghu_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"ghs_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"ghr_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"github_pat_", SecretKind::GitHub, TokenAlphabet::Word, 30),
    shape(b"glpat-", SecretKind::GitLab, TokenAlphabet::Dashed, 20),
    shape(b"xoxa-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxb-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxe-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxo-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxp-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxr-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"xoxs-", SecretKind::Slack, TokenAlphabet::Dashed, 10),
    shape(b"sk_live_", SecretKind::Stripe, TokenAlphabet::Word, 16),
    shape(b"sk-ant-", SecretKind::ApiKey, TokenAlphabet::Dashed, 16),
    shape(b"sk-", SecretKind::ApiKey, TokenAlphabet::Mixed, 20),
    fixed(b"AIza", SecretKind::Google, TokenAlphabet::Dashed, 35),
    fixed(b"npm_", SecretKind::Npm, TokenAlphabet::Word, 36),
    shape(b"hf_", SecretKind::HuggingFace, TokenAlphabet::Word, 30),
];

/// All prefixes: those of [`SHAPES`] and that of a web token.
pub(super) const PREFIXES: [&[u8]; SHAPES.len() + 1] = {
    let mut prefixes: [&[u8]; SHAPES.len() + 1] = [WEB_TOKEN; SHAPES.len() + 1];
    let mut index = 0;
    while index < SHAPES.len() {
        prefixes[index] = SHAPES[index].prefix;
        index += 1;
    }
    prefixes
};

/// The base64 encoding of the start of a JSON object.
const WEB_TOKEN: &[u8] = b"eyJ";

/// How many bytes of a long token are checked for alternation; keeps a rejection cheap.
const JUDGED_BYTES: usize = 64;

/// Finds a token that starts exactly at `at`.
pub(super) fn find(bytes: &[u8], floor: usize, at: usize) -> Option<SecretSpan> {
    if at > floor && is_word(bytes[at - 1]) {
        return None;
    }
    let rest = &bytes[at..];
    SHAPES
        .iter()
        .filter(|shape| rest.starts_with(shape.prefix))
        .find_map(|shape| shape.length(&rest[shape.prefix.len()..]))
        .or_else(|| web_token(bytes, floor, at))
        .map(|(length, kind)| SecretSpan { start: at, end: at + length, kind })
}

impl TokenShape {
    /// Returns the total length of the token if `body`, the text after the prefix, matches.
    fn length(&self, body: &[u8]) -> Option<(usize, SecretKind)> {
        // The first bytes are checked before the end is searched, so that a text full of prefixes costs
        // bounded work at each one.
        let head = body.get(..self.min)?;
        if !head.iter().all(|byte| self.allows(*byte)) {
            return None;
        }
        if matches!(self.body, TokenAlphabet::Mixed) {
            let judged = &body[..body.len().min(JUDGED_BYTES)];
            let run = &judged[..run_length(judged, |byte| self.allows(byte))];
            if letter_digit_changes(run) < 3 {
                return None;
            }
        }
        let length = if self.max == self.min {
            self.min
        } else {
            run_length(body, |byte| self.allows(byte))
        };
        let ends = body.get(length).is_none_or(|next| !is_word(*next));
        ends.then_some((self.prefix.len() + length, self.kind))
    }

    fn allows(&self, byte: u8) -> bool {
        match self.body {
            TokenAlphabet::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            TokenAlphabet::Word => is_word(byte),
            TokenAlphabet::Dashed | TokenAlphabet::Mixed => is_dashed(byte),
        }
    }
}

/// Finds `eyJ….eyJ…`, with or without a signature, because a truncated token is still a secret.
fn web_token(bytes: &[u8], floor: usize, at: usize) -> Option<(usize, SecretKind)> {
    // Requires a boundary before the token, so that each run of characters is examined once.
    if at > floor && is_dashed(bytes[at - 1]) {
        return None;
    }
    let rest = &bytes[at..];
    let header = segment(rest)?;
    let payload = segment(rest.get(header + 1..).filter(|_| rest.get(header) == Some(&b'.'))?)?;
    let mut length = header + 1 + payload;
    if rest.get(length) == Some(&b'.') {
        length += 1 + run_length(&rest[length + 1..], is_dashed);
    }
    Some((length, SecretKind::Jwt))
}

/// Returns the length of the encoded JSON object at the start of `bytes`.
fn segment(bytes: &[u8]) -> Option<usize> {
    let length = if bytes.starts_with(WEB_TOKEN) { run_length(bytes, is_dashed) } else { 0 };
    (length >= 12).then_some(length)
}

fn is_dashed(byte: u8) -> bool {
    is_word(byte) || byte == b'-'
}

fn run_length(bytes: &[u8], allowed: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !allowed(*byte)).unwrap_or(bytes.len())
}

/// Counts how often a letter is next to a digit: often in random text, rarely in names.
pub(super) fn letter_digit_changes(bytes: &[u8]) -> usize {
    bytes
        .windows(2)
        .filter(|pair| {
            (pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic())
                || (pair[0].is_ascii_alphabetic() && pair[1].is_ascii_digit())
        })
        .count()
}
