//! What the server tells the process of a run beside what is asked: the first line of its standard input.
//!
//! The run has its id, and the registry knows which call it is for, before the process starts. The process gives
//! itself a place there before it begins anything; one that comes too late, because its server died and an equal
//! call began another run, is refused that place and begins nothing.

use std::io::{self, BufRead, Read};
use std::path::Path;

use adjutant_core::RunId;
use adjutant_core::registry::CallKey;
use serde::{Deserialize, Serialize};

use crate::runs::owner::RunOwner;

/// The longest line taken; it holds an id, two hashes and a number.
const LINE_BYTES: u64 = 1024;

/// What the process of a run is told by the server that starts it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LaunchHandover {
    pub(crate) run: RunId,
    pub(crate) call: CallKey,
    pub(crate) owner: Option<RunOwner>,
    /// How many bytes follow.
    pub(crate) bytes: usize,
}

impl LaunchHandover {
    /// Takes it from standard input, of which nothing may have been read.
    pub fn receive() -> io::Result<Self> {
        let mut line = Vec::new();
        io::stdin().lock().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Returns it as the process reads it.
    pub(crate) fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Returns the id that the run has.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Returns the call that the run is for.
    #[must_use]
    pub const fn call(&self) -> &CallKey {
        &self.call
    }

    /// Returns how many bytes the server meant to send; one that is killed sends fewer.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says in the folder of the run whose it is.
    pub fn mark_owner(&self, folder: &Path) -> io::Result<()> {
        self.owner.as_ref().map_or(Ok(()), |owner| owner.mark(folder))
    }
}
