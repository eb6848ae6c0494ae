//! Writing a recording.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjutant_core::ModelSpec;

use super::format::{ExchangeKey, RecordedExchange, RecordedModel, VERSION, WrittenLine, sent};
use super::response::ResponseRecorder;
use crate::model::TurnRequest;
use crate::wire::WireCodec;

/// The shortest key that is masked; shorter ones would tear up ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// What stands in a key's place; the same as in what tools return.
const MASK: &str = "[masked:own-key]";

/// Says why nothing, or not everything, was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is something of that name.
    #[error("{} exists already; a recording never replaces a file", path.display())]
    Exists {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("cannot create the recording {}", path.display())]
    Create {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be written on; it is of no use from there.
    #[error("the recording {} is incomplete", path.display())]
    Write {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Keeps what providers are asked and answer; clones write to the same file.
///
/// Exchanges are written when they are over, each as one line, by as many sessions at once as there
/// are. Attempts that are given up before their end are not written. A recording without any
/// exchange is removed again.
#[derive(Clone)]
pub struct Recorder(Arc<RecorderInner>);

struct RecorderInner {
    path: PathBuf,
    secrets: BTreeSet<String>,
    // A std mutex: held for one write to a file, never across an await.
    state: Mutex<RecorderState>,
}

struct RecorderState {
    file: File,
    models: BTreeSet<String>,
    exchanges: u64,
    failure: Option<io::Error>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Makes a file that only its owner may read; `secrets` are masked wherever they appear.
    ///
    /// # Errors
    ///
    /// If there is something of that name, or the file cannot be made.
    pub fn create(
        path: &Path,
        secrets: impl IntoIterator<Item = String>,
    ) -> Result<Self, RecordError> {
        let path = path.to_owned();
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RecordError::Exists { path });
            }
            Err(source) => return Err(RecordError::Create { path, source }),
        };
        let state = RecorderState { file, models: BTreeSet::new(), exchanges: 0, failure: None };
        let secrets = secrets.into_iter().flat_map(spellings).collect();
        let recorder = Self(Arc::new(RecorderInner { path, secrets, state: Mutex::new(state) }));
        recorder.write(&mut recorder.state(), &WrittenLine::Recording { version: VERSION });
        Ok(recorder)
    }

    /// Returns how many exchanges were recorded.
    ///
    /// # Errors
    ///
    /// If the file could not be written to its end; said once.
    pub fn finish(&self) -> Result<u64, RecordError> {
        let mut state = self.state();
        match state.failure.take() {
            Some(source) => Err(RecordError::Write { path: self.0.path.clone(), source }),
            None => Ok(state.exchanges),
        }
    }

    /// Notes a model; the first is the one that a replay begins with.
    pub(crate) fn introduce(&self, spec: &ModelSpec, codec: &WireCodec) {
        let mut state = self.state();
        if state.models.insert(spec.name.clone()) {
            self.write(&mut state, &WrittenLine::Model(&RecordedModel::new(spec, codec)));
        }
    }

    /// Keeps an exchange that is over.
    pub(crate) fn keep(
        &self,
        model: &str,
        request: &TurnRequest<'_>,
        body: &[u8],
        tape: ResponseRecorder,
    ) {
        let Some(response) = tape.into_response() else { return };
        let place = ExchangeKey::new(model, request);
        let exchange = RecordedExchange { place, request: sent(body), response };
        let mut state = self.state();
        state.exchanges += 1;
        self.write(&mut state, &WrittenLine::Exchange(&exchange));
    }

    fn write(&self, state: &mut RecorderState, line: &WrittenLine<'_>) {
        if state.failure.is_some() {
            return;
        }
        let written = serde_json::to_string(line).map_err(io::Error::from).and_then(|mut text| {
            for secret in &self.0.secrets {
                if text.contains(secret.as_str()) {
                    text = text.replace(secret.as_str(), MASK);
                }
            }
            text.push('\n');
            state.file.write_all(text.as_bytes())
        });
        state.failure = written.err();
    }

    fn state(&self) -> MutexGuard<'_, RecorderState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RecorderInner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.exchanges == 0 {
            // Ours since it was made; left behind it would only stand in the way of the next try.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns a key as it looks in JSON, and in JSON that is quoted once or twice more.
fn spellings(secret: String) -> impl Iterator<Item = String> {
    let quoted = |text: &String| {
        let json = serde_json::to_string(text).ok()?;
        Some(json.get(1..json.len() - 1)?.to_owned())
    };
    let long_enough = (secret.len() >= MIN_SECRET_BYTES).then_some(secret);
    std::iter::successors(long_enough, quoted).take(4)
}
