//! The secret that a client must have.

use std::fmt::{self, Debug, Formatter};
use std::io;

use sha2::{Digest, Sha256};

use crate::runs::owner::RunOwner;

/// The environment variable that a token may be given in. Never an argument: other users read those.
pub const TOKEN_VARIABLE: &str = "ADJUTANT_MCP_TOKEN";

/// Characters that a token has at least.
const MIN_CHARS: usize = 32;

/// Characters that a token has at most; more would not fit into a header.
const MAX_CHARS: usize = 1024;

/// What a client must show with every request.
#[derive(Clone)]
pub struct BearerToken {
    text: String,
    digest: [u8; 32],
}

/// Says why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It could be guessed, or does not fit.
    #[error("a token has {MIN_CHARS} to {MAX_CHARS} characters, and this one has {0}")]
    Length(usize),
    /// It could not be sent.
    #[error("a token has no spaces and no characters beyond ASCII")]
    Characters,
}

impl BearerToken {
    /// Makes a token of 256 bits that nobody can guess.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Takes the token that a person chose.
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

    /// Returns the token itself, to be shown to the person once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Returns who has begun the runs of clients that have this token.
    pub(crate) fn owner(&self) -> RunOwner {
        RunOwner::of(&self.text)
    }

    /// Says whether a client has shown it.
    ///
    /// Takes as long whatever was shown: hashes are compared, and all of them.
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
    fn tokens_differ_and_only_the_whole_one_opens() {
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
    fn what_can_be_guessed_or_not_be_sent_is_no_token() {
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
