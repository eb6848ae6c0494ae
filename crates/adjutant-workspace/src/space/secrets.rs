//! Credentials that lie deeper in what a person granted: found once, and hidden from every command.
//!
//! Names alone decide, and only those that say what they hold wherever they stand. What lies at the top of a
//! grant is looked for by the sandbox itself, each time.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::sandbox::CREDENTIALS;

/// How deep a grant is looked into. Homes below a granted folder are within it, sources of a toolchain are
/// not.
const LEVELS: usize = 4;

/// The most folders of one grant that are looked into, the upper ones first.
const FOLDERS: usize = 5_000;

/// What was found below each grant.
#[derive(Debug, Default)]
pub(super) struct Secrets(Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>);

impl Secrets {
    /// Returns what is to be hidden below these grants.
    pub(super) fn below(&self, grants: &[PathBuf]) -> Vec<PathBuf> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for grant in grants {
            all.extend_from_slice(known.entry(grant.clone()).or_insert_with(|| buried(grant)));
        }
        all
    }
}

/// Looks through the upper folders of a grant; what cannot be listed cannot be listed by a command either.
fn buried(grant: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(grant.to_owned(), 0)]);
    let mut looked = 0;
    while let Some((folder, level)) = waiting.pop_front().filter(|_| looked < FOLDERS) {
        looked += 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if CREDENTIALS.iter().any(|name| path.ends_with(name)) {
                found.push(path);
            } else if level < LEVELS && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push_back((path, level + 1));
            }
        }
    }
    found
}
