//! Masks secrets in text: those with a known shape and given literals become `[masked:KIND]`.
//!
//! Runs once per tool result before the model sees it, so that model, journal and transcript contain the same
//! bytes. Secrets of unknown shape are not detected.
//!
//! Start at [`Masker::mask`]. Invariants: linear time; masking is idempotent, because every rule skips text
//! that contains `[masked:`.

mod assignment;
mod basic_auth;
mod key_block;
mod netrc;
mod tokens;
mod url;

use std::borrow::Cow;

use memchr::memmem::Finder;

pub(crate) use key_block::{KeyLineTracker, is_body_line};

/// The minimum length of a literal; shorter ones would match ordinary text.
const MIN_LITERAL_BYTES: usize = 8;

/// The start of every replacement.
pub(crate) const OPENING: &str = "[masked:";

/// The kind of a secret, which its replacement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretKind {
    Aws,
    GitHub,
    GitLab,
    Slack,
    ApiKey,
    Stripe,
    Google,
    Npm,
    HuggingFace,
    Jwt,
    PrivateKey,
    Secret,
    UrlPassword,
    OwnKey,
}

impl SecretKind {
    const ALL: [Self; 14] = [
        Self::Aws,
        Self::GitHub,
        Self::GitLab,
        Self::Slack,
        Self::ApiKey,
        Self::Stripe,
        Self::Google,
        Self::Npm,
        Self::HuggingFace,
        Self::Jwt,
        Self::PrivateKey,
        Self::Secret,
        Self::UrlPassword,
        Self::OwnKey,
    ];

    pub(crate) const fn replacement(self) -> &'static str {
        match self {
            Self::Aws => "[masked:aws-key]",
            Self::GitHub => "[masked:github-token]",
            Self::GitLab => "[masked:gitlab-token]",
            Self::Slack => "[masked:slack-token]",
            Self::ApiKey => "[masked:api-key]",
            Self::Stripe => "[masked:stripe-key]",
            Self::Google => "[masked:google-key]",
            Self::Npm => "[masked:npm-token]",
            Self::HuggingFace => "[masked:huggingface-token]",
            Self::Jwt => "[masked:jwt]",
            Self::PrivateKey => "[masked:private-key]",
            Self::Secret => "[masked:secret]",
            Self::UrlPassword => "[masked:url-password]",
            Self::OwnKey => "[masked:own-key]",
        }
    }
}

/// A byte range to replace; both ends are next to ASCII, so they are character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SecretSpan {
    start: usize,
    end: usize,
    kind: SecretKind,
}

/// Masks secrets by shape, and a set of literals wherever they occur.
#[derive(Clone, Debug, Default)]
pub struct Masker {
    literals: Vec<Finder<'static>>,
}

impl Masker {
    /// Makes a masker for literals such as the engine's own keys.
    ///
    /// Ignores literals shorter than eight bytes, which would match ordinary text, and those that occur in a
    /// replacement, which would be found again in it.
    pub fn new<I>(literals: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut kept: Vec<String> = literals
            .into_iter()
            .map(|literal| literal.as_ref().trim().to_owned())
            .filter(|literal| literal.len() >= MIN_LITERAL_BYTES)
            .filter(|literal| {
                SecretKind::ALL.iter().all(|kind| !kind.replacement().contains(literal))
            })
            .collect();
        // Longest first, so that a key that contains another one is replaced completely.
        kept.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        kept.dedup();
        Self { literals: kept.iter().map(|literal| Finder::new(literal).into_owned()).collect() }
    }

    /// Masks `text`; borrowed if there is nothing to mask.
    #[must_use]
    pub fn mask<'text>(&self, text: &'text str) -> Cow<'text, str> {
        let mut known = Cow::Borrowed(text);
        for literal in &self.literals {
            if let Some(masked) = replace_literal(&known, literal) {
                known = Cow::Owned(masked);
            }
        }
        match known {
            Cow::Borrowed(text) => mask_shapes(text),
            Cow::Owned(text) => Cow::Owned(mask_shapes(&text).into_owned()),
        }
    }

    /// Masks an owned text without copying it if there is nothing to mask.
    pub(crate) fn mask_owned(&self, text: String) -> String {
        let masked = match self.mask(&text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(masked) => Some(masked),
        };
        masked.unwrap_or(text)
    }
}

fn replace_literal(text: &str, literal: &Finder<'_>) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    for start in literal.find_iter(text.as_bytes()) {
        out.push_str(&text[copied..start]);
        out.push_str(SecretKind::OwnKey.replacement());
        copied = start + literal.needle().len();
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        out
    })
}

/// The byte pairs at which a rule may match, so that ordinary text is scanned quickly.
static STARTS: RuleStarts = RuleStarts::new();

/// Two bit tables: a byte pair may start a match if its two entries share a bit.
struct RuleStarts {
    first: [u8; 256],
    second: [u8; 256],
}

impl RuleStarts {
    const TOKEN: u8 = 1;
    const DASHES: u8 = 2;
    const SEPARATOR: u8 = 4;
    const NETRC: u8 = 8;

    const fn new() -> Self {
        let (mut first, mut second) = ([0; 256], [Self::SEPARATOR; 256]);
        let mut index = 0;
        while index < tokens::PREFIXES.len() {
            let prefix = tokens::PREFIXES[index];
            first[prefix[0] as usize] |= Self::TOKEN;
            second[prefix[1] as usize] |= Self::TOKEN;
            index += 1;
        }
        first[b'-' as usize] |= Self::DASHES;
        second[b'-' as usize] |= Self::DASHES;
        first[netrc::PASSWORD[0] as usize] |= Self::NETRC;
        second[netrc::PASSWORD[1] as usize] |= Self::NETRC;
        first[b'=' as usize] |= Self::SEPARATOR;
        first[b':' as usize] |= Self::SEPARATOR;
        Self { first, second }
    }

    /// Returns the first offset in `bytes` at which a rule may match.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let may_begin =
            |pair: &[u8]| self.first[usize::from(pair[0])] & self.second[usize::from(pair[1])] != 0;
        bytes.windows(2).position(may_begin)
    }
}

/// Masks all matches of the rules from left to right.
///
/// No rule looks at text before `copied`, because that is already masked; otherwise masking again could give
/// another result.
fn mask_shapes(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut from, mut copied) = (0, 0);
    let mut blocks = key_block::KeyBlockFinder::default();
    // A URL's password is found at `://` but masked later: the user name before it may be a token itself, or
    // the password may be part of a larger match.
    let mut password: Option<SecretSpan> = None;
    loop {
        let next = STARTS.find(&bytes[from..]).map(|offset| from + offset);
        let reached = password.take_if(|span| next.is_none_or(|next| span.start <= next));
        let span = match (reached, next) {
            (Some(span), _) => Some(span).filter(|span| span.start >= copied),
            (None, None) => break,
            (None, Some(at)) => {
                from = at + 1;
                if bytes[at] == b':' {
                    password = url::password(bytes, copied, at).or(password);
                }
                detect(bytes, copied, at, &mut blocks)
            }
        };
        if let Some(span) = span {
            out.push_str(&text[copied..span.start]);
            out.push_str(span.kind.replacement());
            (from, copied) = (span.end, span.end);
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

fn detect(
    bytes: &[u8],
    floor: usize,
    at: usize,
    blocks: &mut key_block::KeyBlockFinder,
) -> Option<SecretSpan> {
    match bytes[at] {
        b'-' => blocks.find(bytes, at),
        b'=' | b':' => {
            assignment::find(bytes, floor, at).or_else(|| basic_auth::find(bytes, floor, at))
        }
        b'p' => netrc::find(bytes, floor, at),
        _ => tokens::find(bytes, floor, at),
    }
}

/// Returns whether a byte can be part of a word; tokens start and end at word boundaries.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_masked(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, OPENING.as_bytes()).is_some()
}
