//! Claims: the right of one process to do something that must not be done twice at once.
//!
//! A claim is an exclusive `flock` on a file of its own below `claims`, with the holder's name in it as in
//! the lock of a run. Its name is a hash of what is claimed. The kernel drops it with the
//! process; the file goes with the claim, so none is left but by those who were killed.
//!
//! Start at [`Home::claim`]. Invariant: at most one process holds a claim, and the file it holds is the one
//! that others find.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use adjutant_core::content_hash;

use crate::files::{self, During, FileError};
use crate::home::Home;
use crate::lock::{Liveness, LockError, acquire_at, liveness_at, write_name};

/// The folder with the files of claims.
const CLAIMS: &str = "claims";

/// How often a claim is tried anew because its file went with the one who held it before.
const TRIES: u32 = 100;

/// Something that only this process does, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _file: File,
}

impl Home {
    /// Claims something for this process, by what says exactly what it is.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] with the one who has it; otherwise why the file cannot be used.
    pub fn claim(&self, what: &[u8]) -> Result<Claim, LockError> {
        let folder = self.beside(CLAIMS);
        files::ensure_dir(&folder).during("create", &folder)?;
        let path = folder.join(content_hash(what));
        for _ in 0..TRIES {
            let file = acquire_at(&path)?;
            if is_found(&file, &path).during("look at", &path)? {
                write_name(&file, &path)?;
                return Ok(Claim { path, _file: file });
            }
        }
        Err(LockError::Held { pid: None })
    }

    /// Says whether a process holds a claim, without taking it.
    ///
    /// # Errors
    ///
    /// Why the file of the claim cannot be read.
    pub fn is_claimed(&self, what: &[u8]) -> Result<bool, FileError> {
        let path = self.beside(CLAIMS).join(content_hash(what));
        Ok(matches!(liveness_at(&path)?, Liveness::Live { .. }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While the lock is held: whoever waits at this file looks whether it is still the one.
        let _ = fs::remove_file(&self.path);
    }
}

/// Says whether the file that was locked is the one that others would open.
fn is_found(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
