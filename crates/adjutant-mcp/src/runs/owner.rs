//! Whose runs are whose, where one server may serve several people's clients one after another.
//!
//! An owner is known by a hash of the token that its clients have. The hash is kept beside the run,
//! so that a server which is started again with the same token finds it, and one with another does not.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use adjutant_engine::open_private_existing;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file in the folder of a run.
const FILE: &str = "owner";

/// More bytes than an owner has in it.
const MAX_BYTES: u64 = 256;

/// Who has begun a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RunOwner(String);

impl RunOwner {
    /// Returns the owner that has a token.
    pub(crate) fn of(token: &str) -> Self {
        // Not the bare hash: the file must not help to recognise the token elsewhere.
        let digest = Sha256::digest(format!("adjutant owner\0{token}"));
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Says that the run in this folder is the owner's.
    pub(crate) fn mark(&self, folder: &Path) -> io::Result<()> {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(folder.join(FILE))?;
        file.write_all(format!("{self}\n").as_bytes())?;
        file.sync_all()?;
        File::open(folder)?.sync_all()
    }

    /// Says whether the run in this folder is the owner's.
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
