//! Tokens that announce themselves by a prefix.
//!
//! Each shape is one row of [`SHAPES`]; a JSON web token is the one that needs a function.

use super::{SecretKind, SecretSpan, is_word};

/// One family of tokens: its prefix and what must follow.
struct TokenShape {
    prefix: &'static [u8],
    kind: SecretKind,
    body: TokenAlphabet,
    /// The fewest bytes after the prefix.
    min: usize,
    /// The most, for tokens of one fixed length.
    max: usize,
}

/// Which bytes a token is made of, and what else it must satisfy.
#[derive(Clone, Copy)]
enum TokenAlphabet {
    /// Capital letters and digits.
    Capitals,
    /// Letters, digits, underscores.
    Word,
    /// Letters, digits, underscores, hyphens.
    Dashed,
    /// As `Dashed`, and digits alternate with letters, which names in ordinary code do not do.
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

/// How every token begins: the prefixes of [`SHAPES`], and that of a web token.
pub(super) const PREFIXES: [&[u8]; SHAPES.len() + 1] = {
    let mut prefixes: [&[u8]; SHAPES.len() + 1] = [WEB_TOKEN; SHAPES.len() + 1];
    let mut index = 0;
    while index < SHAPES.len() {
        prefixes[index] = SHAPES[index].prefix;
        index += 1;
    }
    prefixes
};

/// How a JSON object begins in base64.
const WEB_TOKEN: &[u8] = b"eyJ";

/// How much of a long token is looked at when its mixture is judged; keeps a rejection cheap.
const JUDGED_BYTES: usize = 64;

/// Finds a token that begins exactly at `at`.
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
    /// Returns the token's whole length when `body`, the text after the prefix, fits.
    fn length(&self, body: &[u8]) -> Option<(usize, SecretKind)> {
        // The first bytes are judged before the end is looked for, so that a text full of
        // prefixes costs a bounded look at each and not a run to the end.
        let head = body.get(..self.min)?;
        if !head.iter().all(|byte| self.allows(*byte)) {
            return None;
        }
        if matches!(self.body, TokenAlphabet::Mixed) {
            let judged = &body[..body.len().min(JUDGED_BYTES)];
            let run = &judged[..run_length(judged, |byte| self.allows(byte))];
            if flips(run) < 3 {
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

/// Finds `eyJ….eyJ…`, with or without a signature: a token cut short is still one.
fn web_token(bytes: &[u8], floor: usize, at: usize) -> Option<(usize, SecretKind)> {
    // Strict about what precedes, so that each run of characters is examined once.
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

/// Returns the length of one encoded JSON object at the start of `bytes`.
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

/// Counts how often a letter stands next to a digit: random text does it all the time, names seldom.
pub(super) fn flips(bytes: &[u8]) -> usize {
    bytes
        .windows(2)
        .filter(|pair| {
            (pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic())
                || (pair[0].is_ascii_alphabetic() && pair[1].is_ascii_digit())
        })
        .count()
}
