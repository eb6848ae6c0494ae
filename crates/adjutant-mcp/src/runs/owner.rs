//! The owner of a run, for servers that are started with different tokens.
//!
//! An owner is identified by a hash of the token. The hash is stored in the run's directory: a server with
//! the same token finds the run, a server with another token does not.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use adjutant_engine::open_private_existing;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file name in the run's directory.
const FILE: &str = "owner";

/// Upper bound for the file's size; longer than any owner.
const MAX_BYTES: u64 = 256;

/// The owner of a run: a hash of the token.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RunOwner(String);

impl RunOwner {
    /// Returns the owner for a token.
    pub(crate) fn of(token: &str) -> Self {
        // Salted, so that the file cannot be compared with hashes of the token elsewhere.
        let digest = Sha256::digest(format!("adjutant owner\0{token}"));
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Records this owner in a run's directory.
    pub(crate) fn mark(&self, folder: &Path) -> io::Result<()> {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(folder.join(FILE))?;
        file.write_all(format!("{self}\n").as_bytes())?;
        file.sync_all()?;
        File::open(folder)?.sync_all()
    }

    /// Returns whether a run's directory names this owner.
    pub(crate) fn has(&self, folder: &Path) -> bool {
        let mut text = String::new();
        let read = open_private_existing(&folder.join(FILE))
            .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
        read.is_ok() && text.trim_end() == self.0
    }
}

impl Display for RunOwner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
