//! Checkpoints: the state folded from a journal, stored with the position up to which it was folded.
//!
//! A checkpoint only saves time. A checkpoint that is damaged, has another version or belongs to
//! another journal is ignored, and the caller folds the journal from its start.
//!
//! The file is one line with a checksum (see `seal`) whose seed is the run's:
//! `{"v":1,"fold":3,"offset":912,"seq":7,"chain":439041101,"state":{…},"crc":"…"}`.
//!
//! `CheckpointHead` and `CheckpointState` are the two parts of that line when it is parsed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext};
use crate::record::{JournalPosition, RecordNumber};
use crate::run_dir::RunDir;
use crate::seal::{self, SEAL_LEN};

/// The checkpoint format this build writes, and the only one it reads.
const FORMAT: u32 = 1;

/// The fields before `state`. Parsed first, because the state of another fold version may not parse.
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
    /// Saves `state`, the fold of all records before `position`.
    ///
    /// `fold` is the version of the folding code; [`RunDir::load_checkpoint`] ignores other versions.
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

    /// Returns the saved state and the position to continue reading from.
    ///
    /// Returns `None` if the checkpoint is missing, damaged, of another version or not of this journal.
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

    /// Returns whether the journal has a record that ends at `position` and has its checksum.
    ///
    /// Checksums are chained, so a match here covers all earlier records too.
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
