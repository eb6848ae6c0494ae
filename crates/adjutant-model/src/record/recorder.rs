//! Recording the requests to a provider and its responses in a file, with keys masked.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjutant_core::ModelSpec;

use super::format::{
    ExchangeKey, RecordedExchange, RecordedModel, VERSION, WrittenLine, body_on_one_line,
};
use super::response::ResponseRecorder;
use crate::model::TurnRequest;
use crate::wire::WireCodec;

/// The minimum length of a key to be masked; shorter ones would match ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// The replacement for a key; the same as in tool results.
const MASK: &str = "[masked:own-key]";

/// Why a recording failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file already exists.
    #[error("{} already exists; a recording never replaces a file", path.display())]
    Exists {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file cannot be created.
    #[error("cannot create the recording {}", path.display())]
    Create {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A write failed; the recording is incomplete.
    #[error("the recording {} is incomplete", path.display())]
    Write {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Records requests and responses; clones write to the same file.
///
/// Each exchange is written as one line when it ends; several sessions may record at once. Cancelled attempts
/// are not written. A recording without exchanges is deleted.
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
    /// Creates a file that only its owner can read; `secrets` are masked everywhere.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be created.
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

    /// Returns the number of recorded exchanges.
    ///
    /// # Errors
    ///
    /// If a write failed; reported once.
    pub fn finish(&self) -> Result<u64, RecordError> {
        let mut state = self.state();
        match state.failure.take() {
            Some(source) => Err(RecordError::Write { path: self.0.path.clone(), source }),
            None => Ok(state.exchanges),
        }
    }

    /// Records a model; a replay starts with the first one.
    pub(crate) fn introduce(&self, spec: &ModelSpec, codec: &WireCodec) {
        let mut state = self.state();
        if state.models.insert(spec.name.clone()) {
            self.write(&mut state, &WrittenLine::Model(&RecordedModel::new(spec, codec)));
        }
    }

    /// Records a finished exchange.
    pub(crate) fn keep(
        &self,
        model: &str,
        request: &TurnRequest<'_>,
        body: &[u8],
        tape: ResponseRecorder,
    ) {
        let Some(response) = tape.into_response() else { return };
        let place = ExchangeKey::new(model, request);
        let exchange = RecordedExchange { place, request: body_on_one_line(body), response };
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
            // We created this file; leaving it empty would only block the next recording.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns a key as it appears in JSON, and in JSON that is escaped once or twice more.
fn spellings(secret: String) -> impl Iterator<Item = String> {
    let quoted = |text: &String| {
        let json = serde_json::to_string(text).ok()?;
        Some(json.get(1..json.len() - 1)?.to_owned())
    };
    let long_enough = (secret.len() >= MIN_SECRET_BYTES).then_some(secret);
    std::iter::successors(long_enough, quoted).take(4)
}
