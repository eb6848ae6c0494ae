//! Asking in the protocol version without sessions: a call is answered with the question, and the client
//! repeats the call with the answer.
//!
//! The client carries a signed state that says which question of which run was
//! asked. The seal is bound to the exact call and expires with the question. It contains no answer and grants
//! nothing by itself: the run judges the answer like any other, and only once.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adjutant_engine::{MergeQuestion, open_private, open_private_existing};
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, InputRequest,
    InputRequests, InputRequiredResult, RequestStateCodec, SealOptions,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::ask::{self, PersonAnswer};

/// The key of the question in `inputRequests`.
const QUESTION: &str = "approval";

/// Location of the sealing key in the state directory. It is shared, so that any server can open what another
/// sealed.
const FOLDER: &str = "approvals";
const FILE: &str = "seal";
const KEY_BYTES: usize = RequestStateCodec::MIN_KEY_LENGTH;

/// What `requestState` contains: the question that a client was sent, and when.
#[derive(Serialize, Deserialize)]
struct SealedQuestion {
    run: String,
    hash: String,
    /// When the client was asked, in milliseconds since 1970. Seals of version 0.1 do not contain it.
    #[serde(default)]
    asked_ms: u64,
}

/// A question that a call is answered with.
pub(crate) struct AskedQuestion<'a> {
    /// The run that asks, or the run or session whose results would be merged.
    pub(crate) run: &'a str,
    /// The hash of the question.
    pub(crate) hash: &'a str,
    /// For how many more milliseconds it is open.
    pub(crate) left_ms: u64,
    pub(crate) form: ElicitRequestParams,
}

/// The answer to a question that a repeated call brings.
#[derive(Clone, Debug)]
pub(crate) struct ReturnedAnswer {
    /// The run that asked, or the run or session whose results would be merged.
    pub(crate) run: String,
    /// The hash of the call that the question is about.
    pub(crate) hash: String,
    /// The person's answer, or `None` if the question was dismissed.
    pub(crate) verdict: Option<PersonAnswer>,
    /// The time between question and answer.
    pub(crate) after: Duration,
}

/// A call, which may be repeated to bring an answer.
#[derive(Clone, Debug)]
pub(crate) struct CallRound {
    /// The hash of the exact call, which seals are bound to.
    pub(crate) call: String,
    /// The answer that this call brings, if any.
    pub(crate) answered: Option<ReturnedAnswer>,
}

/// Seals questions and opens the state that clients bring back.
#[derive(Clone)]
pub(crate) struct QuestionSeals {
    codec: Arc<RequestStateCodec>,
}

impl QuestionSeals {
    /// Reads the sealing key of a state directory, and creates it if needed.
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let codec = RequestStateCodec::try_new(read_or_create_key(&home.join(FOLDER))?);
        Ok(Self { codec: Arc::new(codec.map_err(io::Error::other)?) })
    }

    /// Returns the question as the answer to a call. `now_ms` is the time since 1970 in milliseconds.
    pub(crate) fn seal(
        &self,
        asked: AskedQuestion<'_>,
        round: &CallRound,
        now_ms: u64,
    ) -> Result<InputRequiredResult, String> {
        let (run, hash) = (asked.run.to_owned(), asked.hash.to_owned());
        let sealed = SealedQuestion { run, hash, asked_ms: now_ms };
        let options = SealOptions::new()
            .associated_data(round.call.as_bytes())
            .ttl(Duration::from_millis(asked.left_ms));
        let state = self.codec.seal_json_with(&sealed, &options);
        let state = state
            .map_err(|error| format!("cannot create the requestState of the question: {error}"))?;
        let form = ElicitRequest::new(asked.form);
        let requests = InputRequests::from([(QUESTION.into(), InputRequest::Elicitation(form))]);
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Reads the answer that a call brings, after checking that the seal belongs to `call`. `now_ms` is the
    /// time since 1970 in milliseconds.
    pub(crate) fn open_round(
        &self,
        call: String,
        request: &CallToolRequestParams,
        now_ms: u64,
    ) -> Result<CallRound, String> {
        let Some(state) = &request.request_state else {
            return Ok(CallRound { call, answered: None });
        };
        let sealed: SealedQuestion = self.codec.open_json_with(state, call.as_bytes()).map_err(|_| {
            "requestState: not issued by this server, for another call, or expired; repeat the call \
                without it"
                .to_owned()
        })?;
        let said = request.input_responses.as_ref().and_then(|all| all.get(QUESTION));
        // A repeated call without an answer is not an error: the question is asked again.
        let Some(said) = said else { return Ok(CallRound { call, answered: None }) };
        let said: ElicitResult = serde_json::from_value(said.clone())
            .map_err(|error| format!("inputResponses: `{QUESTION}`: {error}"))?;
        let is_merge = MergeQuestion::parse(&sealed.hash).is_some();
        let verdict = if is_merge { ask::merge_answer(&said) } else { ask::person_answer(&said) };
        let answered = ReturnedAnswer {
            run: sealed.run,
            hash: sealed.hash,
            verdict,
            // If the clock was set back, the time is zero and the question stays open, which is safe.
            after: Duration::from_millis(now_ms.saturating_sub(sealed.asked_ms)),
        };
        Ok(CallRound { call, answered: Some(answered) })
    }
}

/// Reads the key, or creates it. If several processes create it at once, the first one wins.
///
/// A file of the wrong length was left by a crash during creation; that key was never used.
fn read_or_create_key(folder: &Path) -> io::Result<Vec<u8>> {
    let path = folder.join(FILE);
    if let Some(key) = read_whole_key(&path)? {
        return Ok(key);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let held = File::open(folder)?;
    flock(&held, FlockOperation::LockExclusive)?;
    if let Some(key) = read_whole_key(&path)? {
        return Ok(key);
    }
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let unfinished = folder.join(format!(".{FILE}.{}", std::process::id()));
    let mut file = open_private(&unfinished)?;
    file.set_len(0)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    held.sync_all()?;
    Ok(bytes.to_vec())
}

/// Reads the key. Returns `None` if it is missing or incomplete.
fn read_whole_key(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match open_private_existing(path) {
        Ok(file) => {
            let mut key = Vec::new();
            file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key)?;
            Ok(Some(key).filter(|key| key.len() == KEY_BYTES))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted_files;

    #[test]
    fn a_key_file_that_is_a_symlink_or_fifo_is_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(FOLDER);
        let made = read_or_create_key(&folder).unwrap();
        assert_eq!(read_or_create_key(&folder).unwrap(), made);
        let victim = home.path().join("victim");
        fs::write(&victim, &made).unwrap();
        for plant in planted_files::ALL {
            plant(&folder.join(FILE), &victim);
            assert!(read_or_create_key(&folder).is_err());
            fs::remove_file(folder.join(FILE)).unwrap();
            let unfinished = folder.join(format!(".{FILE}.{}", std::process::id()));
            plant(&unfinished, &victim);
            assert!(read_or_create_key(&folder).is_err());
            assert_eq!(fs::read(&victim).unwrap(), made);
            fs::remove_file(unfinished).unwrap();
        }
    }
}
