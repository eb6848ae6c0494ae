//! What a person agreed to once and is not asked again.
//!
//! A consent is known by the hash of exactly what was agreed to, as an empty file of that name in the
//! state directory. Whoever can write there can do all that the person can.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::prd::PrdFile;

const FOLDER: &str = "consents";

/// The consents of one person.
#[derive(Clone, Debug)]
pub struct Consents {
    folder: PathBuf,
}

impl Consents {
    /// Returns those kept in a state directory.
    #[must_use]
    pub fn at(home: &Path) -> Self {
        Self { folder: home.join(FOLDER) }
    }

    /// Says whether a person agreed to what has this hash.
    #[must_use]
    pub fn has(&self, digest: &str) -> bool {
        is_digest(digest)
            && fs::symlink_metadata(self.folder.join(digest)).is_ok_and(|it| it.is_file())
    }

    /// Returns what a PRD asks for that no person has agreed to; nothing of one that cannot be read.
    #[must_use]
    pub fn lacking(&self, prd: &Path) -> Vec<String> {
        // Looked at only: whoever asks leaves the person's tree as it is.
        let Ok(found) = PrdFile::look(prd) else { return Vec::new() };
        let wishes = found.wishes();
        let place = prd.canonicalize().unwrap_or_else(|_| prd.to_owned());
        if wishes.is_empty() || self.has(&wishes.digest_at(place.as_os_str().as_bytes())) {
            return Vec::new();
        }
        wishes.iter().map(ToString::to_string).collect()
    }

    /// Remembers that a person agreed to what has this hash.
    ///
    /// # Errors
    ///
    /// Why it could not be written; the person is asked again then.
    pub fn give(&self, digest: &str) -> io::Result<()> {
        if !is_digest(digest) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let made =
            File::options().write(true).create_new(true).mode(0o600).open(self.folder.join(digest));
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|file| file.sync_all()),
        }
    }
}

/// A name comes from a hash and from nothing else.
fn is_digest(digest: &str) -> bool {
    digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_agreed_to_once_is_known_and_nothing_else_is() {
        let home = tempfile::tempdir().unwrap();
        let consents = Consents::at(home.path());
        let (one, other) = ("a".repeat(64), "b".repeat(64));
        assert!(!consents.has(&one));
        consents.give(&one).unwrap();
        consents.give(&one).unwrap();
        assert!(Consents::at(home.path()).has(&one));
        assert!(!consents.has(&other));
        for odd in ["", "../../etc/passwd", &"A".repeat(64), &"a".repeat(63)] {
            assert!(consents.give(odd).is_err(), "{odd}");
            assert!(!consents.has(odd), "{odd}");
        }
    }
}
