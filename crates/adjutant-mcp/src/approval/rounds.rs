//! Asking a person in the era without sessions: a call is answered with the question, and made again
//! with the answer.
//!
//! What has to be known then travels with the client, sealed: which question of which run it was. The
//! seal is bound to the exact call and expires with the question. It says nothing about the answer and
//! opens nothing by itself: the run judges the answer as it does any other, and only once.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adjutant_engine::{open_private, open_private_existing};
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitResult, InputRequest, InputRequests,
    InputRequiredResult, RequestStateCodec, SealOptions,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::OpenQuestion;
use super::ask::{self, PersonAnswer};

/// What the one question is called among those a call may be answered with.
const QUESTION: &str = "approval";

/// Where the key of the seals lies in the state directory: any server opens what another sealed.
const FOLDER: &str = "approvals";
const FILE: &str = "seal";
const KEY_BYTES: usize = RequestStateCodec::MIN_KEY_LENGTH;

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct SealedQuestion {
    run: String,
    hash: String,
    /// When the client was asked, in milliseconds since 1970. Seals of version 0.1 do not have it.
    #[serde(default)]
    asked_ms: u64,
}

/// What a client brought back: the answer to a question of ours.
#[derive(Clone, Debug)]
pub(crate) struct ReturnedAnswer {
    /// The run that asked.
    pub(crate) run: String,
    /// What the answer is bound to.
    pub(crate) hash: String,
    /// What the person said; nothing where the question was dismissed.
    pub(crate) verdict: Option<PersonAnswer>,
    /// The time between the question and the answer.
    pub(crate) after: Duration,
}

/// A call, as one of perhaps several rounds.
#[derive(Clone, Debug)]
pub(crate) struct CallRound {
    /// The exact call, which seals are bound to.
    pub(crate) call: String,
    /// What it brought back.
    pub(crate) answered: Option<ReturnedAnswer>,
}

/// Seals questions, and opens what is brought back.
#[derive(Clone)]
pub(crate) struct QuestionSeals {
    codec: Arc<RequestStateCodec>,
}

impl QuestionSeals {
    /// Opens the seals of a state directory.
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let codec = RequestStateCodec::try_new(read_or_create_key(&home.join(FOLDER))?);
        Ok(Self { codec: Arc::new(codec.map_err(io::Error::other)?) })
    }

    /// Returns the question in place of the answer to a call; `now_ms` is the time since 1970.
    pub(crate) fn seal_question(
        &self,
        asking: &OpenQuestion,
        run: &str,
        root: &str,
        round: &CallRound,
        now_ms: u64,
    ) -> Result<InputRequiredResult, String> {
        let sealed =
            SealedQuestion { run: run.to_owned(), hash: asking.hash.clone(), asked_ms: now_ms };
        let options = SealOptions::new()
            .associated_data(round.call.as_bytes())
            .ttl(Duration::from_millis(asking.left_ms));
        let state = self.codec.seal_json_with(&sealed, &options);
        let state = state.map_err(|error| format!("the question cannot be sealed: {error}"))?;
        let form = ElicitRequest::new(ask::question_form(asking, root));
        let requests = InputRequests::from([(QUESTION.into(), InputRequest::Elicitation(form))]);
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Reads what a call brings back, for the call that it is; `now_ms` is the time since 1970.
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
            "requestState: it is not ours, belongs to another call, or has expired; make the call again \
             without it"
                .to_owned()
        })?;
        let said = request.input_responses.as_ref().and_then(|all| all.get(QUESTION));
        // Whoever brings no answer is asked again, and that is no error.
        let Some(said) = said else { return Ok(CallRound { call, answered: None }) };
        let said: ElicitResult = serde_json::from_value(said.clone())
            .map_err(|error| format!("inputResponses: `{QUESTION}`: {error}"))?;
        let answered = ReturnedAnswer {
            run: sealed.run,
            hash: sealed.hash,
            verdict: ask::person_answer(&said),
            // After a clock jump backwards the question stays open, which is the safe side.
            after: Duration::from_millis(now_ms.saturating_sub(sealed.asked_ms)),
        };
        Ok(CallRound { call, answered: Some(answered) })
    }
}

/// Reads the key, or makes one; of several who make one at once the first wins.
///
/// A key of the wrong length is what a crash left of one that was being made: it sealed nothing.
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

/// Reads a key that is whole.
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
    fn a_link_or_a_pipe_in_the_place_of_the_key_is_neither_followed_nor_waited_for() {
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
