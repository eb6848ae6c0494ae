//! Questions that wait for a person who is not there.
//!
//! The question itself is in the journal of its run, and the run alone judges the answer. The registry
//! says where to look, on whose behalf it is asked, and which code a person has to read before they
//! can say yes. Whoever can write there can do all that the person can.

use adjutant_core::{RegistryCommand, RunId};

use super::{RegistryError, RegistryHandle, RegistryUnavailable};

/// Characters of the hash that name a question: with ten, two of a million are equal once in a
/// thousand state directories.
const NAMED_BY: usize = 10;

/// Characters of a code, and those it is made of: none looks like another.
const CODE_CHARS: usize = 6;
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingQuestion {
    /// What it is called.
    pub id: String,
    /// What a person has to read before they can say yes.
    pub code: String,
    /// The run that asks.
    pub run: RunId,
    /// What the answer is bound to.
    pub hash: String,
    /// On whose behalf it is asked, as they call themselves.
    pub client: String,
    /// Since when, in Unix milliseconds.
    pub asked_ms: u64,
}

/// Returns what the question with this hash is called.
#[must_use]
pub fn question_id(hash: &str) -> String {
    hash.chars().filter(char::is_ascii_alphanumeric).take(NAMED_BY).collect()
}

impl RegistryHandle {
    /// Registers a question that a run has recorded, with a new code.
    ///
    /// # Errors
    ///
    /// Why it could not be registered; nobody would hear of it then.
    pub fn open_question(&self, run: RunId, hash: &str, client: &str) -> Result<(), RegistryError> {
        let (id, code) = (question_id(hash), random_code()?);
        let (hash, client) = (hash.to_owned(), client.to_owned());
        self.submit(RegistryCommand::OpenQuestion { id, run, hash, code, client }).map(drop)
    }

    /// Returns every question that is registered, the oldest first; some may have been answered since.
    ///
    /// # Errors
    ///
    /// Why the registry cannot be read.
    pub fn open_questions(&self) -> Result<Vec<WaitingQuestion>, RegistryUnavailable> {
        let registry = self.look()?;
        let mut all: Vec<WaitingQuestion> = registry
            .questions()
            .map(|(id, open)| WaitingQuestion {
                id: id.to_owned(),
                code: open.code.clone(),
                run: open.run,
                hash: open.hash.clone(),
                client: open.client.clone(),
                asked_ms: open.asked_ms,
            })
            .collect();
        all.sort_by(|one, other| (one.asked_ms, &one.id).cmp(&(other.asked_ms, &other.id)));
        Ok(all)
    }

    /// Says whether a question is registered.
    #[must_use]
    pub fn has_question(&self, id: &str) -> bool {
        self.look().is_ok_and(|registry| registry.questions().any(|(known, _)| known == id))
    }

    /// Drops a question that nobody waits for any more.
    pub fn close_question(&self, id: &str) {
        // One that stays is dropped when its run ends.
        let _ = self.submit(RegistryCommand::CloseQuestion { id: id.to_owned() });
    }
}

fn random_code() -> Result<String, RegistryUnavailable> {
    let mut bytes = [0; CODE_CHARS];
    getrandom::fill(&mut bytes)?;
    // Thirty-two divides what a byte can be, so every character is as likely as the others.
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}
