//! Reading a journal while it is written: only what is new, each time one looks.

use adjutant_core::Event;
use adjutant_store::{Position, Record, RunDir};

use crate::archive::{ArchiveError, RunFiles, torn};

/// A place in a run's journal from which reading goes on when more was written.
#[derive(Debug)]
pub struct JournalFollower {
    folder: RunDir,
    position: Position,
    /// How long the journal was when it was last read.
    seen: u64,
    torn: u64,
}

impl JournalFollower {
    /// Reads on from `position`, behind which there are `torn` bytes that are not a whole record.
    pub(crate) fn from(folder: RunDir, position: Position, torn: u64) -> Self {
        Self { folder, position, seen: position.offset + torn, torn }
    }

    /// Hands over what was recorded since, and says whether there was anything.
    ///
    /// Reads nothing when the journal did not grow, and never what was read before.
    pub fn read_new(
        &mut self,
        mut visit: impl FnMut(&Record<Event>),
    ) -> Result<bool, ArchiveError> {
        let run = self.folder.id();
        match std::fs::metadata(self.folder.journal_path()) {
            Ok(journal) if journal.len() == self.seen => return Ok(false),
            // A run that is just beginning.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Ok(_) | Err(_) => {}
        }
        let failed = |source| ArchiveError::Read { run, source };
        let mut reader = self.folder.read_from::<Event>(self.position).map_err(failed)?;
        let before = self.position;
        for record in &mut reader {
            visit(&record.map_err(failed)?);
        }
        self.position = reader.position();
        self.torn = torn(&reader);
        self.seen = self.position.offset + self.torn;
        Ok(self.position != before)
    }

    /// Returns how many bytes at the end are not a whole record.
    #[must_use]
    pub const fn torn(&self) -> u64 {
        self.torn
    }
}

impl RunFiles {
    /// Returns the journal's beginning, to read on from.
    #[must_use]
    pub fn follow(&self) -> JournalFollower {
        JournalFollower::from(self.folder.clone(), Position::start(self.id()), 0)
    }
}
