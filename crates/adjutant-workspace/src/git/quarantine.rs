//! A place of our own among the objects of a repository, where git packs what it is given.
//!
//! What is whole is synced and then moved to the others, as it is or as loose objects. What git could not finish, as
//! on a full disk, goes with the place: git itself removes such files only when they are two weeks old, and until
//! then they take the room that is missing.
//!
//! Invariant: nothing is removed that another git made. Whether one still needs an unfinished pack cannot be seen:
//! it closes the file before it gives it its name, and may run where this process does not see it. An object gets
//! its name only once its bytes are on disk: after a power cut there is no empty object.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::sync::{sync_files, sync_folders};
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

    /// Opens the pack where there is exactly one, of at most so many objects.
    pub(super) fn pack_of_at_most(&self, max_objects: u32) -> io::Result<Option<File>> {
        let mut packs = self.whole_packs()?;
        packs.retain(|path| path.extension().is_some_and(|end| end == "pack"));
        let [path] = packs.as_slice() else { return Ok(None) };
        let mut pack = File::open(path)?;
        // `PACK`, the version and the number of objects, four bytes each.
        let mut header = [0; 12];
        pack.read_exact(&mut header)?;
        pack.rewind()?;
        let [.., a, b, c, d] = header;
        Ok((u32::from_be_bytes([a, b, c, d]) <= max_objects).then_some(pack))
    }

    /// Makes the directory that the loose objects of a pack are to be stored in.
    pub(super) fn make_loose(&self) -> io::Result<PathBuf> {
        let loose = self.loose();
        private::create_dir(&loose)?;
        Ok(loose)
    }

    fn loose(&self) -> PathBuf {
        self.folder.join("loose")
    }

    /// Moves the packs that are whole to the others.
    pub(super) fn release_packs(self) -> io::Result<()> {
        let mut packs = self.whole_packs()?;
        if packs.is_empty() {
            return Ok(());
        }
        sync_files(&packs)?;
        // A git that finds the index of a pack opens the pack.
        packs.sort_by_key(|path| path.extension().is_some_and(|end| end == "idx"));
        let into = self.objects.join("pack");
        fs::create_dir_all(&into)?;
        packs.iter().try_for_each(|path| move_file(path, &into))?;
        // The directory of packs may be new.
        sync_folders([into.as_path(), &self.objects])
    }

    fn whole_packs(&self) -> io::Result<Vec<PathBuf>> {
        let mut packs = match entries(&self.folder.join("pack")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let is_whole = |name: &OsStr| name.as_encoded_bytes().starts_with(b"pack-");
        packs.retain(|path| path.file_name().is_some_and(is_whole));
        Ok(packs)
    }

    /// Moves the loose objects to the others.
    pub(super) fn release_loose(self) -> io::Result<()> {
        let (mut objects, mut folders) = (Vec::new(), Vec::new());
        for folder in entries(&self.loose())? {
            objects.extend(entries(&folder)?);
            folders.push(folder);
        }
        sync_files(&objects)?;
        let mut changed = vec![self.objects.clone()];
        for folder in folders {
            let Some(name) = folder.file_name() else { continue };
            let into = self.objects.join(name);
            move_folder(&folder, &into)?;
            changed.push(into);
        }
        sync_folders(changed.iter().map(PathBuf::as_path))
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Moves a directory of loose objects, or its files where there is one of that name.
fn move_folder(from: &Path, into: &Path) -> io::Result<()> {
    loop {
        match fs::rename(from, into) {
            // File systems say either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) => {}
            moved => return moved,
        }
        match entries(from)?.iter().try_for_each(|object| move_file(object, into)) {
            // Another git packed what was there and removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => return moved,
        }
    }
}

fn move_file(from: &Path, into: &Path) -> io::Result<()> {
    from.file_name().map_or(Ok(()), |name| fs::rename(from, into.join(name)))
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
    fn packs_that_are_whole_are_moved_and_what_others_have_begun_stays() {
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
                ours.release_packs().unwrap();
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
            other.release_packs().unwrap();
            assert_eq!(names(objects.path()), ["pack"]);
        }
    }

    #[test]
    fn loose_objects_are_moved_beside_those_that_are_there() {
        let objects = tempfile::tempdir().unwrap();
        let put = |folder: &Path, name: &str, text: &str| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), text).unwrap();
        };
        put(&objects.path().join("ab"), "other", "theirs");
        // As a power cut leaves what was named before it was on disk.
        put(&objects.path().join("ab"), "same", "");
        let ours = Quarantine::new(objects.path().to_owned()).unwrap();
        let loose = ours.make_loose().unwrap();
        put(&loose.join("ab"), "same", "whole");
        put(&loose.join("cd"), "new", "whole");
        ours.release_loose().unwrap();
        assert_eq!(names(objects.path()), ["ab", "cd"]);
        assert_eq!(names(&objects.path().join("ab")), ["other", "same"]);
        assert_eq!(names(&objects.path().join("cd")), ["new"]);
        assert_eq!(fs::read(objects.path().join("ab/same")).unwrap(), b"whole");
    }
}
