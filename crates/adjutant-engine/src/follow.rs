//! Reading a journal while it is written: only what is new, each time one looks.

use std::io;

use adjutant_core::Event;
use adjutant_store::{Position, Record};

use crate::archive::{ArchiveError, RunFiles};

/// A place in a run's journal that moves on.
#[derive(Debug)]
pub struct Follow {
    files: RunFiles,
    position: Position,
}

impl RunFiles {
    /// Begins to read the run's journal.
    #[must_use]
    pub fn follow(&self) -> Follow {
        Follow { files: self.clone(), position: Position::start(self.id()) }
    }
}

impl Follow {
    /// Hands over every record that was added since the last time, oldest first.
    pub fn catch_up(&mut self, mut visit: impl FnMut(&Record<Event>)) -> Result<(), ArchiveError> {
        match self.files.folder.journal_path().metadata() {
            Ok(file) if file.len() <= self.position.offset => return Ok(()),
            // A run has a folder before it has a journal.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Opening it says what is wrong.
            Ok(_) | Err(_) => {}
        }
        let run = self.files.id();
        let failed = |source| ArchiveError::Read { run, source };
        let mut reader = self.files.folder.read_from::<Event>(self.position).map_err(failed)?;
        for record in &mut reader {
            visit(&record.map_err(failed)?);
        }
        self.position = reader.position();
        Ok(())
    }
}
