//! The bearer token that HTTP clients must send.

use std::fmt::{self, Debug, Formatter};
use std::io;

use sha2::{Digest, Sha256};

use crate::runs::owner::RunOwner;

/// The environment variable for the token. There is no flag for it, because other users can read command
/// lines.
pub const TOKEN_VARIABLE: &str = "ADJUTANT_MCP_TOKEN";

/// The minimum length of a token.
const MIN_CHARS: usize = 32;

/// The maximum length of a token; it must fit into a header.
const MAX_CHARS: usize = 1024;

/// A bearer token that clients must send with every request.
#[derive(Clone)]
pub struct BearerToken {
    text: String,
    digest: [u8; 32],
}

/// Explains why a text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is short enough to be guessed, or too long for a header.
    #[error("the token has {0} characters; expected {MIN_CHARS} to {MAX_CHARS} characters")]
    Length(usize),
    /// It contains characters that a header cannot carry.
    #[error("the token must consist of printable ASCII characters without spaces")]
    Characters,
}

impl BearerToken {
    /// Generates a random token of 256 bits.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Parses a token that a person chose.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let length = text.chars().count();
        if !(MIN_CHARS..=MAX_CHARS).contains(&length) {
            return Err(TokenError::Length(length));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        Ok(Self::new(text.to_owned()))
    }

    /// Returns the token's text, to be shown to the person once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Returns the owner of the runs that clients with this token start.
    pub(crate) fn owner(&self) -> RunOwner {
        RunOwner::of(&self.text)
    }

    /// Returns whether this is the token that a client sent.
    ///
    /// Compares hashes in constant time.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let differing =
            self.digest.iter().zip(shown).fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(differing) == 0
    }

    fn new(text: String) -> Self {
        let digest = Sha256::digest(&text).into();
        Self { text, digest }
    }
}

impl Debug for BearerToken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_differ_and_only_the_complete_token_matches() {
        let token = BearerToken::generate().unwrap();
        assert_eq!(token.reveal().len(), 64);
        assert_ne!(token.reveal(), BearerToken::generate().unwrap().reveal());
        assert!(token.matches(token.reveal().as_bytes()));
        let text = token.reveal();
        for wrong in ["", &text[1..], &text[..63], &format!("{text} "), &text.to_uppercase()] {
            assert!(!token.matches(wrong.as_bytes()) || wrong == text, "{wrong}");
        }
        assert!(!format!("{token:?}").contains(text));
    }

    #[test]
    fn tokens_that_are_guessable_or_unsendable_are_rejected() {
        for (text, expected) in [
            ("short".to_owned(), Err(TokenError::Length(5))),
            ("x".repeat(31), Err(TokenError::Length(31))),
            ("x".repeat(32), Ok(())),
            ("x".repeat(1024), Ok(())),
            ("x".repeat(1025), Err(TokenError::Length(1025))),
            ("x".repeat(31) + " ", Err(TokenError::Characters)),
            ("x".repeat(31) + "ä", Err(TokenError::Characters)),
            ("x".repeat(31) + "\n", Err(TokenError::Characters)),
        ] {
            assert_eq!(BearerToken::parse(&text).map(|_| ()), expected, "{text:?}");
        }
    }
}
