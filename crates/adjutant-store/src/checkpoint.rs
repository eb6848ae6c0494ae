//! Checkpoints: a fold of the journal kept with the place it reaches.
//!
//! A checkpoint saves reading; it is never the truth. One that is damaged, of another version, or
//! not of this journal is passed over as if it were not there, and the caller folds from the start.
//!
//! The file is one sealed line, the seed being the run's:
//! `{"v":1,"fold":3,"offset":912,"seq":7,"chain":439041101,"state":{…},"crc":"…"}`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext};
use crate::record::{JournalPosition, RecordNumber};
use crate::run_dir::RunDir;
use crate::seal::{self, SEAL_LEN};

/// The checkpoint format this build writes, and the only one it reads.
const FORMAT: u32 = 1;

/// What stands before the state, read first: the state of another fold may not even parse.
#[derive(Deserialize)]
struct CheckpointHead {
    v: u32,
    fold: u32,
    offset: u64,
    seq: RecordNumber,
    chain: u32,
}

#[derive(Deserialize)]
struct CheckpointState<T> {
    state: T,
}

impl RunDir {
    /// Keeps `state`, the fold of all records before `position`.
    ///
    /// `fold` is the version of the folding code; a checkpoint of another version is passed over.
    pub fn save_checkpoint<T: Serialize>(
        &self,
        fold: u32,
        position: JournalPosition,
        state: &T,
    ) -> Result<(), FileError> {
        let path = self.checkpoint_path();
        let line = encode(JournalPosition::start(self.id()).crc, fold, position, state);
        self.write(&path, &line.during("serialise", &path)?)
    }

    /// Returns the kept state and the place to go on reading from, if they can be trusted.
    #[must_use]
    pub fn load_checkpoint<T: DeserializeOwned>(&self, fold: u32) -> Option<(JournalPosition, T)> {
        let mut text = Vec::new();
        files::open_read(&self.checkpoint_path()).ok()?.read_to_end(&mut text).ok()?;
        let line = text.strip_suffix(b"\n")?;
        let start = JournalPosition::start(self.id());
        seal::check(line, start.crc).ok()?;
        let head: CheckpointHead = serde_json::from_slice(line).ok()?;
        if head.v != FORMAT || head.fold != fold {
            return None;
        }
        let position = JournalPosition { offset: head.offset, seq: head.seq, crc: head.chain };
        if position != start && !self.has_record_ending_at(position).ok()? {
            return None;
        }
        let body: CheckpointState<T> = serde_json::from_slice(line).ok()?;
        Some((position, body.state))
    }

    /// Says whether the journal has a record that ends at `position` with its checksum.
    ///
    /// Checksums are chained, so this one vouches for all the records before.
    fn has_record_ending_at(&self, position: JournalPosition) -> io::Result<bool> {
        let mut seal = [0; SEAL_LEN + 1];
        let Some(start) = position.offset.checked_sub(seal.len() as u64) else { return Ok(false) };
        let mut journal: File = files::open_read(&self.journal_path())?;
        journal.seek(SeekFrom::Start(start))?;
        journal.read_exact(&mut seal)?;
        Ok(seal.strip_suffix(b"\n").and_then(seal::read_checksum) == Some(position.crc))
    }
}

fn encode<T: Serialize>(
    seed: u32,
    fold: u32,
    position: JournalPosition,
    state: &T,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = Vec::new();
    let JournalPosition { offset, seq, crc } = position;
    let head = write!(
        line,
        r#"{{"v":{FORMAT},"fold":{fold},"offset":{offset},"seq":{seq},"chain":{crc},"state":"#
    );
    head.map_err(serde_json::Error::io)?;
    serde_json::to_writer(&mut line, state)?;
    seal::append_seal(&mut line, 0, seed);
    Ok(line)
}
