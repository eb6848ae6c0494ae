//! Questions that wait for a person who is not there.
//!
//! The question itself is in the journal of its run, and the run alone judges the answer. The registry
//! says where to look, on whose behalf it is asked, and which code a person has to read before they
//! can say yes. Whoever can write there can do all that the person can.

use adjutant_core::registry::QuestionPointer;
use adjutant_core::{RegistryCommand, RunId};

use super::{RegistryError, RegistryHandle, RegistryUnavailable, import};

/// Characters of the hash that name a question: with ten, two of a million are equal once in a
/// thousand state directories.
const NAMED_BY: usize = 10;

/// Characters of a code, and those it is made of: none looks like another.
const CODE_CHARS: usize = 6;
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

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

    /// Returns every question that is registered with what it is called, the oldest first; some may have been answered
    /// since.
    ///
    /// # Errors
    ///
    /// Why the registry cannot be read.
    pub fn open_questions(&self) -> Result<Vec<(String, QuestionPointer)>, RegistryUnavailable> {
        let registry = self.look()?;
        let all = registry.questions().map(|(id, question)| (id.to_owned(), question.clone()));
        let mut all: Vec<_> = all.collect();
        for (id, question) in import::questions(&self.shared.home) {
            if all.iter().all(|(known, _)| *known != id) {
                all.push((id, question));
            }
        }
        // Equally old ones stay in the order of their names.
        all.sort_by_key(|(_, question)| question.asked_ms);
        Ok(all)
    }

    /// Says whether a question is registered.
    #[must_use]
    pub fn has_question(&self, id: &str) -> bool {
        self.open_questions().is_ok_and(|all| all.iter().any(|(known, _)| known == id))
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
