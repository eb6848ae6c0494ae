//! A place of our own among the objects of a repository, where git packs what it is given.
//!
//! What is whole is moved to the others. What git could not finish, as on a full disk, goes with the place: git
//! itself removes such files only when they are two weeks old, and until then they take the room that is missing.
//!
//! Invariant: nothing is removed that another git made. Whether one still needs an unfinished pack cannot be seen:
//! it closes the file before it gives it its name, and may run where this process does not see it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::private;

/// How such places are called: as git calls its own, so that it removes in time what a crash left.
const NAME: &str = "tmp_objdir-adjutant";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The place; it goes with its value.
#[derive(Debug)]
pub(super) struct Quarantine {
    objects: PathBuf,
    folder: PathBuf,
}

impl Quarantine {
    /// Makes one among the objects of a repository.
    pub(super) fn new(objects: PathBuf) -> io::Result<Self> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = objects.join(format!("{NAME}-{}-{number}", std::process::id()));
            match private::create_dir(&folder) {
                Ok(()) => return Ok(Self { objects, folder }),
                // A process of the same number in another container may have one.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns where git is to store.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves the packs that are whole to the others.
    pub(super) fn release(self) -> io::Result<()> {
        let from = self.folder.join("pack");
        let entries = match fs::read_dir(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(b"pack-") {
                names.push(name);
            }
        }
        // Whoever finds the list of a pack looks for the pack.
        names.sort_by_key(|name| Path::new(name).extension().is_some_and(|end| end == "idx"));
        let into = self.objects.join("pack");
        fs::create_dir_all(&into)?;
        names.iter().try_for_each(|name| fs::rename(from.join(name), into.join(name)))
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // Best effort: git collects what stays.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            all.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_whole_is_moved_and_what_others_have_begun_stays() {
        for is_whole in [true, false] {
            let objects = tempfile::tempdir().unwrap();
            let put = |folder: &Path, name: &str| {
                fs::create_dir_all(folder.join("pack")).unwrap();
                fs::write(folder.join("pack").join(name), name).unwrap();
            };
            put(objects.path(), "pack-1.pack");
            let ours = Quarantine::new(objects.path().to_owned()).unwrap();
            let other = Quarantine::new(objects.path().to_owned()).unwrap();
            // Another git has closed it and not named it yet.
            put(objects.path(), "tmp_pack_other");
            for name in ["pack-2.idx", "pack-2.pack", "tmp_pack_ours"] {
                put(ours.folder(), name);
            }
            if is_whole {
                ours.release().unwrap();
            } else {
                drop(ours);
            }
            let mut expected = vec!["pack-1.pack", "tmp_pack_other"];
            if is_whole {
                expected.splice(1..1, ["pack-2.idx", "pack-2.pack"]);
            }
            assert_eq!(names(&objects.path().join("pack")), expected);
            let left = other.folder().file_name().unwrap().to_str().unwrap().to_owned();
            assert_eq!(names(objects.path()), ["pack".to_owned(), left]);
            // Where nothing was packed there is nothing to move.
            other.release().unwrap();
            assert_eq!(names(objects.path()), ["pack"]);
        }
    }
}
