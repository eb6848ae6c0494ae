//! Open questions of runs that no terminal is attached to.
//!
//! The question itself is in the journal of its run, and only the run decides about the answer. The registry has
//! the run's id, the client that asks, and the code a person has to type to approve. A process that can write to
//! the registry has all rights of the person anyway.

use adjutant_core::registry::QuestionPointer;
use adjutant_core::{RegistryCommand, RunId};

use super::{RegistryError, RegistryHandle, RegistryUnavailable, import};

/// The length of a question's id, which is the start of its hash. Ten characters make a collision
/// among a million questions very unlikely.
const NAMED_BY: usize = 10;

/// The length of an approval code. Its alphabet has no characters that look alike.
const CODE_CHARS: usize = 6;
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// Returns the id of the question with this hash.
#[must_use]
pub fn question_id(hash: &str) -> String {
    hash.chars().filter(char::is_ascii_alphanumeric).take(NAMED_BY).collect()
}

/// How long a question about a merge stays open, in milliseconds.
const MERGE_QUESTION_MS: u64 = 15 * 60 * 1000;

/// A client's question whether results may be merged into the user's files.
///
/// Unlike other questions it is in no journal: the run has usually ended. The registry has all of it, and whoever
/// approves it merges exactly these commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeQuestion {
    /// The id of the run or session whose results are meant.
    pub name: String,
    /// The commits of all its results, in order.
    pub commits: Vec<String>,
}

impl MergeQuestion {
    /// Returns the text that identifies the question in the registry.
    #[must_use]
    pub fn hash(&self) -> String {
        format!("{}{MERGE_MARK}{}", self.commits.join("."), self.name)
    }

    /// Reads a question from the text that identifies it. `None` if it is about something else.
    #[must_use]
    pub fn parse(hash: &str) -> Option<Self> {
        let (commits, name) = hash.split_once(MERGE_MARK)?;
        let commits = commits.split('.').map(str::to_owned).collect();
        Some(Self { name: name.to_owned(), commits })
    }

    /// Returns for how many more milliseconds a question that was asked at `asked_ms` is open.
    #[must_use]
    pub const fn left_ms(asked_ms: u64, now_ms: u64) -> u64 {
        MERGE_QUESTION_MS.saturating_sub(now_ms.saturating_sub(asked_ms))
    }
}

/// Separates the commits from the name. The hashes of other questions are hexadecimal.
const MERGE_MARK: &str = ":merge:";

impl RegistryHandle {
    /// Registers a question that a run has recorded, with a new approval code.
    ///
    /// # Errors
    ///
    /// Why it could not be registered. `adjutant approvals` does not list it then.
    pub fn open_question(&self, run: RunId, hash: &str, client: &str) -> Result<(), RegistryError> {
        self.open(run, hash, client, false)
    }

    /// Registers a question that is shown at the prompt of a terminal, so that another terminal can answer it too.
    ///
    /// # Errors
    ///
    /// Why it could not be registered. It can then be answered only at its prompt.
    pub fn open_prompt_question(&self, run: RunId, hash: &str) -> Result<(), RegistryError> {
        self.open(run, hash, "", true)
    }

    fn open(
        &self,
        run: RunId,
        hash: &str,
        client: &str,
        at_prompt: bool,
    ) -> Result<(), RegistryError> {
        let (id, code) = (question_id(hash), random_code()?);
        let (hash, client) = (hash.to_owned(), client.to_owned());
        self.submit(RegistryCommand::OpenQuestion { id, run, hash, code, client, at_prompt })
            .map(drop)
    }

    /// Returns every registered question with its id, oldest first. Some may have been answered since.
    ///
    /// # Errors
    ///
    /// Why the registry cannot be read.
    pub fn open_questions(&self) -> Result<Vec<(String, QuestionPointer)>, RegistryUnavailable> {
        let registry = self.read_unlocked()?;
        let all = registry.questions().map(|(id, question)| (id.to_owned(), question.clone()));
        let mut all: Vec<_> = all.collect();
        for (id, question) in import::questions(&self.shared.home) {
            if all.iter().all(|(known, _)| *known != id) {
                all.push((id, question));
            }
        }
        // A stable sort: questions of the same age stay ordered by id.
        all.sort_by_key(|(_, question)| question.asked_ms);
        Ok(all)
    }

    /// Returns whether a question is registered.
    #[must_use]
    pub fn has_question(&self, id: &str) -> bool {
        self.open_questions().is_ok_and(|all| all.iter().any(|(known, _)| known == id))
    }

    /// Removes a question that is answered or withdrawn.
    pub fn close_question(&self, id: &str) {
        // Best effort: the end of the run removes it as well.
        let _ = self.submit(RegistryCommand::CloseQuestion { id: id.to_owned() });
    }
}

fn random_code() -> Result<String, RegistryUnavailable> {
    let mut bytes = [0; CODE_CHARS];
    getrandom::fill(&mut bytes)?;
    // 256 is a multiple of 32, so all characters are equally likely.
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}
