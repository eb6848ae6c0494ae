//! Credentials that lie deeper in what a person granted: found once, and hidden from every command.
//!
//! Names decide, and only those that say what they hold wherever they stand. A file called `*.pem`, `*.key`, `*.crt`
//! or the like is looked into: most hold certificates, which programs need; those with a private key are hidden, and
//! so are small files without an extension that begin as PEM does. What has its name at the top of a grant is looked for by the sandbox itself, each time.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::sandbox::{CREDENTIALS, is_credential_only_as_file};

/// How deep a grant is looked into. Homes below a granted folder are within it, sources of a toolchain are
/// not.
const LEVELS: usize = 4;

/// The most folders of one grant that are looked into, the upper ones first.
const FOLDERS: usize = 5_000;

/// Extensions of files that may hold a private key, in any case.
const KEY_EXTENSIONS: [&str; 6] = ["cer", "crt", "key", "p8", "pem", "ppk"];

/// The largest file without an extension that is looked into.
const PLAIN_BYTES: u64 = 64 << 10;

/// How files of PEM begin.
const PEM_BEGIN: &[u8] = b"-----BEGIN";

/// What tells a private key, in PEM and in the format of PuTTY.
const KEY_MARKERS: [&[u8]; 2] = [b"PRIVATE KEY-----", b"PuTTY-User-Key-File-"];

/// How much of a file is searched for a private key.
const PEM_BYTES: u64 = 256 << 10;

/// What was found below each grant.
#[derive(Debug, Default)]
pub(super) struct CredentialScan(Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>);

impl CredentialScan {
    /// Returns what is to be hidden below these grants.
    pub(super) fn below(&self, grants: &[PathBuf]) -> Vec<PathBuf> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for grant in grants {
            all.extend_from_slice(
                known.entry(grant.clone()).or_insert_with(|| find_credentials(grant)),
            );
        }
        all
    }
}

/// Looks through the upper folders of a grant; what cannot be listed cannot be listed by a command either.
fn find_credentials(grant: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(grant.to_owned(), 0)]);
    let mut looked = 0;
    while let Some((folder, level)) = waiting.pop_front().filter(|_| looked < FOLDERS) {
        looked += 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_named = CREDENTIALS.iter().any(|name| path.ends_with(name))
                && !(is_directory && is_credential_only_as_file(&path));
            if is_named || (!is_directory && holds_private_key(&path)) {
                found.push(path);
            } else if level < LEVELS && is_directory {
                waiting.push_back((path, level + 1));
            }
        }
    }
    found
}

/// Says whether a file has a private key in it, alone or beside certificates; only files whose name or beginning says
/// that they may have one are read.
fn holds_private_key(path: &Path) -> bool {
    let extension = path.extension();
    let is_named = |end: &OsStr| KEY_EXTENSIONS.iter().any(|it| end.eq_ignore_ascii_case(it));
    if extension.is_some_and(|end| !is_named(end)) {
        return false;
    }
    let most = if extension.is_some() { u64::MAX } else { PLAIN_BYTES };
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= most) {
        return false;
    }
    // Does not wait if a pipe has taken the file's place meanwhile.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, path, flags, Mode::empty()) else { return false };
    let (mut file, mut head) = (fs::File::from(file), Vec::new());
    if extension.is_none() {
        let begun = file.by_ref().take(PEM_BEGIN.len() as u64).read_to_end(&mut head);
        if begun.is_err() || head != PEM_BEGIN {
            return false;
        }
    }
    let read = file.take(PEM_BYTES).read_to_end(&mut head);
    let has = |marker: &[u8]| head.windows(marker.len()).any(|part| part == marker);
    read.is_ok() && KEY_MARKERS.into_iter().any(has)
}
