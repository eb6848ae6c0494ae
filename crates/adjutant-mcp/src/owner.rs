//! Whose runs are whose, where one server may serve several people's clients one after another.
//!
//! An owner is known by a hash of the token that its clients have. The hash is kept beside the run,
//! so that a server which is started again with the same token finds it, and one with another does not.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file in the folder of a run.
const FILE: &str = "owner";

/// Who has begun a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Owner(String);

impl Owner {
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
        fs::read_to_string(folder.join(FILE)).is_ok_and(|text| text.trim_end() == self.0)
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
