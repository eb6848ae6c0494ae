//! Questions that wait for a person who is not there: a small file for each, until it is answered.
//!
//! The question itself is in the journal of its run, and the run alone judges the answer. The file
//! says where to look, on whose behalf it is asked, and which code a person has to read before they
//! can say yes. Whoever can write here can do all that the person can.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use adjutant_core::RunId;
use adjutant_store::open_private;
use serde::{Deserialize, Serialize};

use crate::runner::clock::wall_now;

const FOLDER: &str = "approvals";

/// Characters of the hash that name a question: with ten, two of a million are equal once in a
/// thousand state directories.
const NAMED_BY: usize = 10;

/// Characters of a code, and those it is made of: none looks like another.
const CODE_CHARS: usize = 6;
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// The largest file that is read.
const FILE_BYTES: u64 = 64 << 10;

/// A question that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    v: u32,
    /// What it is called.
    pub id: String,
    /// What a person has to read before they can say yes.
    pub code: String,
    /// The run that asks.
    pub run: RunId,
    /// What the answer is bound to.
    pub hash: String,
    /// On whose behalf it is asked, as they call themselves.
    pub client: String,
    /// Since when, in milliseconds since 1970.
    pub asked_ms: u64,
}

/// The questions of one state directory.
#[derive(Clone, Debug)]
pub struct Inbox {
    folder: PathBuf,
}

impl Inbox {
    /// Returns that of a state directory.
    #[must_use]
    pub fn at(home: &Path) -> Self {
        Self { folder: home.join(FOLDER) }
    }

    /// Returns what the question about a call is called.
    #[must_use]
    pub fn name(hash: &str) -> String {
        hash.chars().filter(char::is_ascii_alphanumeric).take(NAMED_BY).collect()
    }

    /// Keeps a question, whole or not at all.
    ///
    /// # Errors
    ///
    /// Why it could not be kept; nobody would hear of it then.
    pub fn put(&self, run: RunId, hash: &str, client: &str) -> io::Result<Waiting> {
        let waiting = Waiting {
            v: 1,
            id: Self::name(hash),
            code: code()?,
            run,
            hash: hash.to_owned(),
            client: client.to_owned(),
            asked_ms: wall_now(),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let unfinished = self.folder.join(format!(".{}", waiting.id));
        let mut file = open_private(&unfinished)?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&waiting)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.file(&waiting.id))?;
        Ok(waiting)
    }

    /// Returns every question that was kept, the oldest first; some may have been answered since.
    ///
    /// # Errors
    ///
    /// Why the folder cannot be read. A file that is none of ours is passed over.
    pub fn all(&self) -> io::Result<Vec<Waiting>> {
        let entries = match self.folder.read_dir() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all: Vec<Waiting> =
            entries.flatten().filter_map(|entry| read(&entry.path())).collect();
        all.sort_by(|one, other| (one.asked_ms, &one.id).cmp(&(other.asked_ms, &other.id)));
        Ok(all)
    }

    /// Drops a question that nobody waits for any more.
    pub fn drop_one(&self, id: &str) {
        // One that stays is dropped another time.
        let _ = fs::remove_file(self.file(&Self::name(id)));
    }

    /// Returns where the questions are kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Says whether a question is kept.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.file(&Self::name(id)).is_file()
    }

    fn file(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }
}

fn read(path: &Path) -> Option<Waiting> {
    let is_ours = path.extension().is_some_and(|extension| extension == "json");
    let metadata = fs::symlink_metadata(path).ok().filter(|_| is_ours)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES {
        return None;
    }
    let waiting: Waiting = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (waiting.v == 1 && waiting.id == Inbox::name(&waiting.hash)).then_some(waiting)
}

fn code() -> io::Result<String> {
    let mut bytes = [0; CODE_CHARS];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    // Thirty-two divides what a byte can be, so every character is as likely as the others.
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_put_is_found_until_it_is_dropped_and_nobody_else_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let inbox = Inbox::at(home.path());
        assert_eq!(inbox.all().unwrap(), []);
        let run: RunId = "run_1700000000_abcdef".parse().unwrap();
        let one = inbox.put(run, &"a1".repeat(32), "tester").unwrap();
        let other = inbox.put(run, &"b2".repeat(32), "tester").unwrap();
        assert_eq!(inbox.all().unwrap().len(), 2);
        assert!(inbox.all().unwrap().contains(&one));
        assert_ne!(one.code, other.code);
        for entry in home.path().join(FOLDER).read_dir().unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        inbox.drop_one(&one.id);
        inbox.drop_one("../../nothing");
        assert_eq!(inbox.all().unwrap(), [other]);
    }

    #[test]
    fn what_is_none_of_ours_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let inbox = Inbox::at(home.path());
        let run: RunId = "run_1700000000_abcdef".parse().unwrap();
        let real = inbox.put(run, &"a1".repeat(32), "tester").unwrap();
        let folder = home.path().join(FOLDER);
        fs::write(folder.join("x.json"), "{").unwrap();
        fs::write(folder.join("y.json"), vec![b' '; 100_000]).unwrap();
        let mut renamed = real.clone();
        renamed.id = "another".into();
        fs::write(folder.join("z.json"), serde_json::to_vec(&renamed).unwrap()).unwrap();
        std::os::unix::fs::symlink(folder.join("x.json"), folder.join("link.json")).unwrap();
        assert_eq!(inbox.all().unwrap(), [real]);
    }
}
