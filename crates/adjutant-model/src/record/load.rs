//! Loading a recording of model calls, with errors that name the file and the line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::format::{RecordedExchange, RecordedModel, RecordingLine, VERSION};

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is missing or cannot be read.
    #[error("cannot read the recording {}", path.display())]
    Read {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is a directory, a pipe or a device.
    #[error("the recording {} is not a regular file", path.display())]
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A line is not valid.
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        /// The path as it was given.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// The recording was written by a newer version.
    #[error("{} is a recording of version {version}; this build reads up to {VERSION}", path.display())]
    Newer {
        /// The path as it was given.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// The content of a recording file.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The model that the run started with.
    pub(super) first: Option<String>,
    pub(super) models: BTreeMap<String, RecordedModel>,
    /// The exchanges in the order in which they ended.
    pub(super) exchanges: Vec<RecordedExchange>,
}

/// The first line, parsed on its own to distinguish a newer version from a broken file.
#[derive(Deserialize)]
struct RecordingHead {
    recording: RecordingVersion,
}

#[derive(Deserialize)]
struct RecordingVersion {
    version: u32,
}

impl Recording {
    pub(super) fn load(path: &Path) -> Result<Self, ReplayError> {
        let unread = |source| ReplayError::Read { path: path.to_owned(), source };
        // Checked before opening, because opening a pipe would block until there is a writer.
        if !std::fs::metadata(path).map_err(unread)?.is_file() {
            return Err(ReplayError::NotAFile { path: path.to_owned() });
        }
        let mut lines = BufReader::new(File::open(path).map_err(unread)?);
        let mut recording = Self::default();
        let (mut text, mut number) = (Vec::new(), 0);
        loop {
            text.clear();
            if lines.read_until(b'\n', &mut text).map_err(unread)? == 0 {
                break;
            }
            number += 1;
            let flaw = |problem| malformed(path, number, problem);
            if text.pop_if(|byte| *byte == b'\n').is_none() {
                return Err(flaw("the line is cut off; the recording is incomplete".into()));
            }
            if number == 1 {
                check_head(path, &text)?;
            } else {
                recording.take(&text).map_err(flaw)?;
            }
        }
        if recording.first.is_none() {
            return Err(malformed(
                path,
                number.max(1),
                "the recording ends before any model".into(),
            ));
        }
        Ok(recording)
    }

    fn take(&mut self, text: &[u8]) -> Result<(), String> {
        let line = serde_json::from_slice(text)
            .map_err(|error| format!("not a line of a recording: {error}"))?;
        match line {
            RecordingLine::Recording { version } => {
                return Err(format!("a second recording, of version {version}, starts here"));
            }
            RecordingLine::Model(model) => {
                self.first.get_or_insert_with(|| model.spec.name.clone());
                self.models.insert(model.spec.name.clone(), model);
            }
            RecordingLine::Exchange(exchange)
                if self.models.contains_key(&exchange.place.model) =>
            {
                self.exchanges.push(exchange);
            }
            RecordingLine::Exchange(exchange) => {
                let model = exchange.place.model.escape_debug();
                return Err(format!("an exchange with `{model}`, which no line introduced"));
            }
        }
        Ok(())
    }
}

fn check_head(path: &Path, text: &[u8]) -> Result<(), ReplayError> {
    let head: RecordingHead = serde_json::from_slice(text).map_err(|_| {
        malformed(path, 1, "this is not a recording; --record FILE writes one".into())
    })?;
    match head.recording.version {
        VERSION => Ok(()),
        0 => Err(malformed(path, 1, "there is no version 0 of recordings".into())),
        version => Err(ReplayError::Newer { path: path.to_owned(), version }),
    }
}

fn malformed(path: &Path, line: usize, problem: String) -> ReplayError {
    ReplayError::Malformed { path: path.to_owned(), line, problem }
}
