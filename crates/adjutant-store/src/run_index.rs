//! The index of ended runs: what lists need of each, so that they need not read its journal.
//!
//! The file `index.json` of the state directory is one line with a checksum (see `seal`):
//! `{"v":1,"summary":3,"runs":[{"run":"run_…","journal":{"bytes":912,"modified_ns":…},"summary":{…}},…],"crc":"…"}`.
//!
//! Every journal is the truth about its run. An entry counts only while the journal has the stamp that it had before
//! it was summarized; an index that is missing, damaged or of another version is empty. So processes need no lock to
//! replace the file: a run that one of them does not know is summarized again. A [`RunIndexEntry`] is one run.

use std::io::Read;
use std::path::PathBuf;

use adjutant_core::RunId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext};
use crate::run_dir::JournalStamp;
use crate::seal;
use crate::state_dir::StateDir;

/// The index format that this version writes, and the only one that it reads.
const FORMAT: u32 = 1;

const FILE: &str = "index.json";

/// An ended run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIndexEntry<T> {
    /// The run.
    pub run: RunId,
    /// The stamp of its journal before it was summarized.
    pub journal: JournalStamp,
    /// What lists need of it.
    pub summary: T,
}

#[derive(Deserialize)]
struct IndexRuns<T> {
    runs: Vec<RunIndexEntry<T>>,
}

impl StateDir {
    /// Returns the entries of the index; none if it is missing, damaged or of another version.
    ///
    /// `version` is that of the code that makes summaries.
    #[must_use]
    pub fn load_run_index<T: DeserializeOwned>(&self, version: u32) -> Vec<RunIndexEntry<T>> {
        self.try_load(version).unwrap_or_default()
    }

    fn try_load<T: DeserializeOwned>(&self, version: u32) -> Option<Vec<RunIndexEntry<T>>> {
        let mut text = Vec::new();
        files::open_read(&self.run_index_path()).ok()?.read_to_end(&mut text).ok()?;
        let line = text.strip_suffix(b"\n")?;
        seal::check(line, seal::chain_seed(FILE)).ok()?;
        // Compared as text: summaries of another version need not be parsed, and may not parse.
        if !line.starts_with(index_head(version).as_bytes()) {
            return None;
        }
        serde_json::from_slice(line).ok().map(|IndexRuns { runs }| runs)
    }

    /// Replaces the index atomically.
    pub fn save_run_index<T: Serialize>(
        &self,
        version: u32,
        runs: &[RunIndexEntry<T>],
    ) -> Result<(), FileError> {
        let path = self.run_index_path();
        let mut line = index_head(version).into_bytes();
        serde_json::to_writer(&mut line, runs).during("serialise", &path)?;
        seal::append_seal(&mut line, 0, seal::chain_seed(FILE));
        files::replace(&path, &line).during("write", &path)
    }

    /// Returns the path of the index.
    #[must_use]
    pub fn run_index_path(&self) -> PathBuf {
        self.path().join(FILE)
    }
}

/// Returns the start of an index, up to its runs.
fn index_head(version: u32) -> String {
    format!(r#"{{"v":{FORMAT},"summary":{version},"runs":"#)
}
