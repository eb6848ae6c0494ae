//! What the server tells the process of a run in the first line of its standard input, before the request
//! itself.
//!
//! The run's id and its call are in the registry before the process starts. The process claims a slot there
//! before it does anything. If it comes too late, because its server died and an equal call started another
//! run, the registry refuses the slot and the process exits.

use std::io::{self, BufRead, Read};
use std::path::Path;

use adjutant_core::RunId;
use adjutant_core::registry::CallKey;
use serde::{Deserialize, Serialize};

use crate::runs::owner::RunOwner;

/// The maximum length of the line, which holds an id, two hashes and a number.
const LINE_BYTES: u64 = 1024;

/// The first line that the server sends to the process of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LaunchHandover {
    pub(crate) run: RunId,
    pub(crate) call: CallKey,
    pub(crate) owner: Option<RunOwner>,
    /// How many bytes follow the line.
    pub(crate) bytes: usize,
}

impl LaunchHandover {
    /// Reads the line from standard input. Must be called before anything else reads from it.
    pub fn receive() -> io::Result<Self> {
        let mut line = Vec::new();
        io::stdin().lock().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Returns the line as the process reads it.
    pub(crate) fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Returns the id reserved for the run.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Returns the call that the run answers.
    #[must_use]
    pub const fn call(&self) -> &CallKey {
        &self.call
    }

    /// Returns how many bytes the server was going to send. Fewer arrive if it was killed.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records the run's owner in the run's directory.
    pub fn mark_owner(&self, folder: &Path) -> io::Result<()> {
        self.owner.as_ref().map_or(Ok(()), |owner| owner.mark(folder))
    }
}
