//! The right to work on a story of a PRD: one process has it at a time, until it ends.
//!
//! A story is known by the resolved path of its file and its id. The same file in two work trees is two files, and
//! so is one that was moved. Start at [`Archive::claim_story`]. Invariant: no story of a PRD is begun or gone on
//! with by a process that has not claimed it, and what ran before is read after the claim.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_store::{Claim, FileError, LockError};

use crate::archive::Archive;
use crate::prd::resolved;

/// A story that only this process works on, until it is dropped.
#[derive(Debug)]
pub struct StoryClaim {
    _held: Claim,
}

/// Says why a story could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process works on it.
    #[error("{} works on it", who(*pid))]
    Held {
        /// Its number, where that is known.
        pid: Option<u32>,
    },
    /// The claim could not be kept.
    #[error(transparent)]
    File(#[from] FileError),
}

fn who(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Archive {
    /// Claims a story of the PRD at `prd` for this process.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Held`] while another process has it; otherwise why it could not be claimed.
    pub fn claim_story(&self, prd: &Path, story: &str) -> Result<StoryClaim, ClaimError> {
        match self.home().claim(&claim_key(prd, story)) {
            Ok(held) => Ok(StoryClaim { _held: held }),
            Err(LockError::Held { pid }) => Err(ClaimError::Held { pid }),
            Err(LockError::File(error)) => Err(error.into()),
        }
    }
    /// Says whether a process has claimed a story of the PRD at `prd`, without claiming it.
    ///
    /// # Errors
    ///
    /// Why the claim cannot be read.
    pub fn is_story_claimed(&self, prd: &Path, story: &str) -> Result<bool, ClaimError> {
        Ok(self.home().is_claimed(&claim_key(prd, story))?)
    }
}

/// Returns what the claim on a story is known by.
fn claim_key(prd: &Path, story: &str) -> Vec<u8> {
    // No path holds a NUL, so no two stories are told apart by where the one ends.
    [resolved(prd).as_os_str().as_bytes(), b"\0", story.as_bytes()].concat()
}
