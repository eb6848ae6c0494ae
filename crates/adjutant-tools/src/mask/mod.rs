//! Secrets in text: found by their shape or known literally, replaced by `[masked:KIND]`.
//!
//! Runs once per tool result, before the model sees it, so that model, journal and transcript hold
//! the same bytes. It does not judge who may see what: a shape that is not known here passes.
//!
//! Start at [`Masker::mask`]. Invariants: linear in the text; masking twice equals masking once,
//! because every rule rejects what already holds `[masked:`.

mod assignment;
mod basic_auth;
mod key_block;
mod netrc;
mod tokens;
mod url;

use std::borrow::Cow;

use memchr::memmem::Finder;

pub(crate) use key_block::{KeyLineTracker, is_body_line};

/// The shortest literal that is masked; shorter ones would tear up ordinary text.
const MIN_LITERAL_BYTES: usize = 8;

/// How every replacement starts.
pub(crate) const OPENING: &str = "[masked:";

/// What was found, as shown in its place.
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

/// A stretch of bytes to replace; both ends lie next to ASCII, so they are character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SecretSpan {
    start: usize,
    end: usize,
    kind: SecretKind,
}

/// Masks secrets by shape, and the literals it was made with wherever they appear.
#[derive(Clone, Debug, Default)]
pub struct Masker {
    literals: Vec<Finder<'static>>,
}

impl Masker {
    /// Takes the keys to mask literally, such as the engine's own.
    ///
    /// Literals below eight bytes, and those that are part of a replacement text, are left out:
    /// the first would tear up ordinary text, the second would be found again in what replaced them.
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
        // Longest first, so that a key which contains another is replaced whole.
        kept.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        kept.dedup();
        Self { literals: kept.iter().map(|literal| Finder::new(literal).into_owned()).collect() }
    }

    /// Masks `text`; borrowed when there was nothing to mask.
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

    /// Masks an owned text without copying it when there was nothing to mask.
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

/// The pairs of bytes at which a rule may begin, so that ordinary text costs little per byte.
static STARTS: RuleStarts = RuleStarts::new();

/// Two tables of bits: a pair may begin a rule when its two entries share one.
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

    /// Returns where in `bytes` a rule may begin.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let may_begin =
            |pair: &[u8]| self.first[usize::from(pair[0])] & self.second[usize::from(pair[1])] != 0;
        bytes.windows(2).position(may_begin)
    }
}

/// Masks what the rules find, from left to right.
///
/// No rule looks at what lies before `copied`, because that is masked: otherwise the same text
/// would be judged differently once the mask stands there.
fn mask_shapes(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut from, mut copied) = (0, 0);
    let mut blocks = key_block::KeyBlockFinder::default();
    // A URL's password is found at its `://` but masked when reached: the name before it may be
    // a token of its own, or the password part of something larger.
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

/// Says whether a byte can be part of a word; tokens begin and end where words do.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_masked(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, OPENING.as_bytes()).is_some()
}
