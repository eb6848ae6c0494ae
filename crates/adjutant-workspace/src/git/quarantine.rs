//! A temporary object directory in which git packs new objects before they become part of the repository.
//!
//! Complete packs are fsynced and then moved to the others, as they are or as loose objects. What git could not
//! finish, for example on a full disk, is removed with the directory: git itself removes such files only after two
//! weeks, and until then they use the space that is missing.
//!
//! Invariant: no file of another git is removed. Whether it still needs an unfinished pack is not visible: it
//! closes the file before it renames it, and may run in another namespace. An object gets its name only after its
//! bytes are on disk, so a power cut leaves no empty objects.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::sync::{sync_files, sync_folders};
use crate::private;

/// The prefix of these directories. It is git's own, so that git eventually removes those that a crash left.
const NAME: &str = "tmp_objdir-adjutant";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary object directory, removed on drop.
#[derive(Debug)]
pub(super) struct Quarantine {
    objects: PathBuf,
    folder: PathBuf,
}

impl Quarantine {
    /// Creates one in the object directory of a repository.
    pub(super) fn new(objects: PathBuf) -> io::Result<Self> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = objects.join(format!("{NAME}-{}-{number}", std::process::id()));
            match private::create_dir(&folder) {
                Ok(()) => return Ok(Self { objects, folder }),
                // A process with the same pid in another container may have one.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the directory for git to write to.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the pack if there is exactly one with at most this many objects.
    pub(super) fn pack_of_at_most(&self, max_objects: u32) -> io::Result<Option<File>> {
        let mut packs = self.whole_packs()?;
        packs.retain(|path| path.extension().is_some_and(|end| end == "pack"));
        let [path] = packs.as_slice() else { return Ok(None) };
        let mut pack = File::open(path)?;
        // Header: `PACK`, the version and the number of objects, four bytes each.
        let mut header = [0; 12];
        pack.read_exact(&mut header)?;
        pack.rewind()?;
        let [.., a, b, c, d] = header;
        Ok((u32::from_be_bytes([a, b, c, d]) <= max_objects).then_some(pack))
    }

    /// Creates the directory for the loose objects of a pack.
    pub(super) fn make_loose(&self) -> io::Result<PathBuf> {
        let loose = self.loose_dir();
        private::create_dir(&loose)?;
        Ok(loose)
    }

    fn loose_dir(&self) -> PathBuf {
        self.folder.join("loose")
    }

    /// Moves the complete packs into the repository.
    pub(super) fn release_packs(self) -> io::Result<()> {
        let mut packs = self.whole_packs()?;
        if packs.is_empty() {
            return Ok(());
        }
        sync_files(&packs)?;
        // Indexes are moved last: a git that finds an index opens its pack.
        packs.sort_by_key(|path| path.extension().is_some_and(|end| end == "idx"));
        let into = self.objects.join("pack");
        fs::create_dir_all(&into)?;
        packs.iter().try_for_each(|path| move_file(path, &into))?;
        // The directory of packs may be new, so its parent is synced, too.
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

    /// Moves the loose objects into the repository.
    pub(super) fn release_loose(self) -> io::Result<()> {
        let (mut objects, mut folders) = (Vec::new(), Vec::new());
        for folder in entries(&self.loose_dir())? {
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

/// Moves a directory of loose objects, or its files if a directory of that name exists.
fn move_folder(from: &Path, into: &Path) -> io::Result<()> {
    loop {
        match fs::rename(from, into) {
            // The error depends on the file system.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) => {}
            moved => return moved,
        }
        match entries(from)?.iter().try_for_each(|object| move_file(object, into)) {
            // Another git packed its objects and removed the directory.
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
        // Best effort: git removes leftovers eventually.
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
    fn complete_packs_are_moved_and_unfinished_packs_of_others_stay() {
        for is_whole in [true, false] {
            let objects = tempfile::tempdir().unwrap();
            let put = |folder: &Path, name: &str| {
                fs::create_dir_all(folder.join("pack")).unwrap();
                fs::write(folder.join("pack").join(name), name).unwrap();
            };
            put(objects.path(), "pack-1.pack");
            let ours = Quarantine::new(objects.path().to_owned()).unwrap();
            let other = Quarantine::new(objects.path().to_owned()).unwrap();
            // A pack that another git has closed but not renamed yet.
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
            // Without packs there is nothing to move.
            other.release_packs().unwrap();
            assert_eq!(names(objects.path()), ["pack"]);
        }
    }

    #[test]
    fn loose_objects_are_moved_beside_existing_ones() {
        let objects = tempfile::tempdir().unwrap();
        let put = |folder: &Path, name: &str, text: &str| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), text).unwrap();
        };
        put(&objects.path().join("ab"), "other", "theirs");
        // An object that was named before it was on disk, as a power cut can leave it.
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
