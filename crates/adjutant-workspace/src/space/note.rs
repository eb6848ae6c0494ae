//! The note of a state that is judged, beside the files of its workspace.
//!
//! Invariant: it is there whole or not at all, and while it is there the work is the commit it names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::SpaceError;
use crate::git::bytes_of;
use crate::private;
use crate::{ObjectId, SkipReason, Skipped};

/// Its name. No child is called so: names do not begin with a dot.
const CLAIMED: &str = ".claimed";

/// The first line, with the version of what follows.
const FORM: &str = "adjutant claimed 1";

/// What is noted of a state that is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The commit with the state.
    pub(super) claimed: ObjectId,
    /// What there was and is not in the commit, but for what is ignored.
    pub(super) skipped: Vec<Skipped>,
    /// What else there was that no commit takes, and that git says nothing of.
    pub(super) odd: Vec<PathBuf>,
    /// Files with patterns that are not in the commit, such as those that ignore themselves.
    pub(super) patterns: BTreeMap<PathBuf, Vec<u8>>,
    /// The permissions of files and folders of the commit that are not those of a checkout.
    pub(super) modes: BTreeMap<PathBuf, u32>,
}

impl Note {
    /// Says whether there is one in the folder of a workspace.
    pub(super) fn is_in(folder: &Path) -> bool {
        folder.join(CLAIMED).symlink_metadata().is_ok()
    }

    /// Reads the one in the folder of a workspace. One that means nothing is an error: it is there, so what
    /// lies in the workspace is not the work.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, SpaceError> {
        let path = folder.join(CLAIMED);
        match fs::read(&path) {
            Ok(bytes) => {
                let note = std::str::from_utf8(&bytes).ok().and_then(Self::parse);
                note.map(Some).ok_or(SpaceError::Note { path })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SpaceError::io("reading what is judged")(error)),
        }
    }

    /// Writes it, durably.
    pub(super) fn write(&self, folder: &Path) -> Result<(), SpaceError> {
        let write = || -> io::Result<()> {
            let next = folder.join(".claimed.next");
            let mut file = private::create_file(&next)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(next, folder.join(CLAIMED))?;
            File::open(folder)?.sync_all()
        };
        write().map_err(SpaceError::io("noting what is judged"))
    }

    /// Removes it, durably: what is written from here on is work, and must not be taken back later.
    pub(super) fn remove(folder: &Path) -> Result<(), SpaceError> {
        let removed = match fs::remove_file(folder.join(CLAIMED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.and_then(|()| File::open(folder)?.sync_all()),
        };
        removed.map_err(SpaceError::io("forgetting what was judged"))
    }

    fn text(&self) -> String {
        let mut text = format!("{FORM}\n{}\n", self.claimed);
        for Skipped { path, reason } in &self.skipped {
            text.push_str(&format!("skipped {} {}\n", word(*reason), hex(bytes_of(path))));
        }
        for path in &self.odd {
            text.push_str(&format!("odd - {}\n", hex(bytes_of(path))));
        }
        for (path, bytes) in &self.patterns {
            text.push_str(&format!("pattern {} {}\n", hex(bytes_of(path)), hex(bytes)));
        }
        for (path, mode) in &self.modes {
            text.push_str(&format!("mode {mode:o} {}\n", hex(bytes_of(path))));
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|form| *form == FORM)?;
        let claimed = ObjectId::parse(lines.next()?.trim())?;
        let (skipped, odd, patterns, modes) = Default::default();
        let mut note = Self { claimed, skipped, odd, patterns, modes };
        for line in lines {
            let mut parts = line.split(' ');
            let (kind, first, second) = (parts.next()?, parts.next()?, parts.next()?);
            match kind {
                "skipped" => {
                    let (path, reason) = (path(second)?, reason(first)?);
                    note.skipped.push(Skipped { path, reason });
                }
                "odd" => note.odd.push(path(second)?),
                "pattern" => {
                    note.patterns.insert(path(first)?, bytes(second)?);
                }
                "mode" => {
                    note.modes.insert(path(second)?, u32::from_str_radix(first, 8).ok()?);
                }
                _ => return None,
            }
        }
        Some(note)
    }
}

fn word(reason: SkipReason) -> String {
    match reason {
        SkipReason::NestedRepository => "nested".to_owned(),
        SkipReason::Reserved => "reserved".to_owned(),
        SkipReason::Special => "special".to_owned(),
        SkipReason::Unreadable => "unreadable".to_owned(),
        SkipReason::Ignored => "ignored".to_owned(),
        SkipReason::TooDeep => "deep".to_owned(),
        SkipReason::TooLarge(len) => format!("large:{len}"),
    }
}

fn reason(word: &str) -> Option<SkipReason> {
    Some(match word {
        "nested" => SkipReason::NestedRepository,
        "reserved" => SkipReason::Reserved,
        "special" => SkipReason::Special,
        "unreadable" => SkipReason::Unreadable,
        "ignored" => SkipReason::Ignored,
        "deep" => SkipReason::TooDeep,
        large => SkipReason::TooLarge(large.strip_prefix("large:")?.parse().ok()?),
    })
}

/// A path may hold any byte, so it is written in digits.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn path(digits: &str) -> Option<PathBuf> {
    bytes(digits).map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_with_any_path_and_any_content() {
        let folder = tempfile::tempdir().unwrap();
        let odd = PathBuf::from(OsString::from_vec(b"a b\n\xff/c".to_vec()));
        let reasons = [
            SkipReason::NestedRepository,
            SkipReason::Reserved,
            SkipReason::Special,
            SkipReason::Unreadable,
            SkipReason::Ignored,
            SkipReason::TooDeep,
            SkipReason::TooLarge(7),
        ];
        let skipped = reasons.map(|reason| Skipped { path: odd.clone(), reason }).to_vec();
        let patterns = BTreeMap::from([
            (odd.clone(), b"*\n\0\xff".to_vec()),
            (PathBuf::from(".gitignore"), Vec::new()),
        ]);
        let claimed = ObjectId::parse(&"a".repeat(40)).unwrap();
        let modes = BTreeMap::from([(odd.clone(), 0o600), (PathBuf::new(), 0o700)]);
        let note = Note { claimed, skipped, odd: vec![odd], patterns, modes };
        assert!(!Note::is_in(folder.path()));
        assert_eq!(Note::read(folder.path()).unwrap(), None);
        note.write(folder.path()).unwrap();
        assert!(Note::is_in(folder.path()));
        assert_eq!(Note::read(folder.path()).unwrap(), Some(note));
        Note::remove(folder.path()).unwrap();
        Note::remove(folder.path()).unwrap();
        assert_eq!(Note::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_note_that_means_nothing_is_there_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let id = "a".repeat(40);
        for text in [
            "",
            "\n",
            "abc\n",
            &format!("{id}\n"),
            &format!("{FORM}\n"),
            &format!("{FORM}\n{id}\nskipped"),
            &format!("{FORM}\n{id}\nother - 00\n"),
            &format!("adjutant claimed 2\n{id}\n"),
        ] {
            fs::write(folder.path().join(CLAIMED), text).unwrap();
            let read = Note::read(folder.path());
            assert!(matches!(read, Err(SpaceError::Note { .. })), "{text}: {read:?}");
        }
        fs::write(folder.path().join(CLAIMED), b"\xff").unwrap();
        assert!(matches!(Note::read(folder.path()), Err(SpaceError::Note { .. })));
    }
}
