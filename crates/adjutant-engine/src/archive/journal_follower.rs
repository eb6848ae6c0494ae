//! Reading a journal while another process appends to it: each call returns only the new records.

use adjutant_core::Event;
use adjutant_store::{JournalPosition, JournalRecord, RunDir};

use crate::archive::read_ahead::visit_records;
use crate::archive::{ArchiveError, RunFiles, torn_bytes_of};

/// Reads the records that are appended to a run's journal after a position.
#[derive(Debug)]
pub struct JournalFollower {
    folder: RunDir,
    position: JournalPosition,
    /// The journal's length in bytes when it was last read.
    seen: u64,
    torn: u64,
}

impl JournalFollower {
    /// Continues at `position`, which is followed by `torn` bytes of an incomplete record.
    pub(crate) fn from(folder: RunDir, position: JournalPosition, torn: u64) -> Self {
        Self { folder, position, seen: position.offset + torn, torn }
    }

    /// Passes every record appended since the last call to `visit`. Returns whether there was one.
    ///
    /// If the journal's length has not changed, the file is not opened.
    pub fn read_new(
        &mut self,
        mut visit: impl FnMut(&JournalRecord<Event>),
    ) -> Result<bool, ArchiveError> {
        let run = self.folder.id();
        let bytes = match std::fs::metadata(self.folder.journal_path()) {
            Ok(journal) if journal.len() == self.seen => return Ok(false),
            // The run was created a moment ago and has no journal yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Ok(journal) => journal.len().saturating_sub(self.seen),
            Err(_) => 0,
        };
        let failed = |source| ArchiveError::Read { run, source };
        let mut reader = self.folder.read_from::<Event>(self.position).map_err(failed)?;
        let before = self.position;
        visit_records(&mut reader, bytes, &mut visit).map_err(failed)?;
        self.position = reader.position();
        self.torn = torn_bytes_of(&reader);
        self.seen = self.position.offset + self.torn;
        Ok(self.position != before)
    }

    /// Returns the length of an incomplete record at the end, in bytes.
    #[must_use]
    pub const fn torn_bytes(&self) -> u64 {
        self.torn
    }
}

impl RunFiles {
    /// Returns a follower that starts at the first record.
    #[must_use]
    pub fn follow(&self) -> JournalFollower {
        JournalFollower::from(self.folder.clone(), JournalPosition::start(self.id()), 0)
    }
}
