//! The store through which the machines of a cluster exchange the files and the work of runs.
#![expect(clippy::unwrap_used, reason = "a test that cannot write its files has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use adjutant_core::RunId;
use adjutant_engine::portable::{StoreError, WorkStore, open_checkout, store_base};
use tempfile::TempDir;

use crate::workspace_rig::UserRepository;

/// A store in a directory, which fails as often as it is told to.
#[derive(Debug)]
struct DirectoryStore {
    place: TempDir,
    failures: AtomicUsize,
}

impl DirectoryStore {
    fn new() -> Self {
        Self { place: TempDir::new().unwrap(), failures: AtomicUsize::new(0) }
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        let left = self.failures.load(Ordering::Relaxed);
        if left > 0 {
            self.failures.store(left - 1, Ordering::Relaxed);
            return Err(StoreError::Unavailable("not now".to_owned()));
        }
        let path = self.place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        Ok(path)
    }

    /// The names of all stored files, and their sizes.
    fn stored(&self, directory: &str) -> BTreeMap<String, u64> {
        let entries = fs::read_dir(self.place.path().join(directory)).into_iter().flatten();
        let size = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, entry.metadata().unwrap().len())
        };
        let files = entries.map(Result::unwrap).filter(|it| it.file_type().unwrap().is_file());
        files.map(size).collect()
    }
}

impl WorkStore for DirectoryStore {
    fn put(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        fs::copy(file, self.path(name)?).unwrap();
        Ok(())
    }

    fn fetch(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        let missing = |error: std::io::Error| StoreError::Failed(format!("{name}: {error}"));
        fs::copy(self.path(name)?, file).map(drop).map_err(missing)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, StoreError> {
        self.path(directory)?;
        Ok(self.stored(directory).into_keys().collect())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        fs::remove_file(self.path(name)?).unwrap();
        Ok(())
    }

    fn remove_all(&self, directory: &str) -> Result<(), StoreError> {
        fs::remove_dir_all(self.path(directory)?).unwrap();
        Ok(())
    }
}

fn run(number: u8) -> RunId {
    RunId::new(1_700_000_000, [number; 6])
}

/// The files of a checkout, without git's own.
fn files(top: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(top).unwrap().map(Result::unwrap);
    let plain = entries.filter(|entry| entry.file_name() != ".git");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    plain
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(entry.path())))
        .collect()
}

#[test]
fn a_checkout_elsewhere_has_the_files_and_the_history_of_the_users() {
    let (user, store, elsewhere) =
        (UserRepository::new(), DirectoryStore::new(), TempDir::new_in("/var/tmp").unwrap());
    let first = store_base(&store, (&user.tree(), &user.state()), run(1), &[]).unwrap();
    let mut bases = vec![(1, first, 1)];
    for number in 2..=4 {
        fs::write(user.tree().join("later"), format!("committed {number}\n")).unwrap();
        user.git(&["add", "later"]);
        user.git(&["commit", "-q", "-m", "later"]);
        let base = store_base(&store, (&user.tree(), &user.state()), run(number), &[]).unwrap();
        bases.push((number, base, usize::from(number)));
    }
    assert_eq!(store.stored("history/full").len(), 1, "the history is stored once");
    assert_eq!(store.stored("history").len(), 3, "the others build on it");
    for (number, base, commits) in &bases {
        let (number, commits) = (*number, *commits);
        let place = elsewhere.path().join(number.to_string());
        let tree = open_checkout(&store, &place, run(number), base).unwrap();
        assert_eq!(tree.file_name(), user.tree().file_name(), "agents may look at the name");
        let mut log = std::process::Command::new("git");
        let log = log.args(["log", "--oneline"]).current_dir(&tree).output().unwrap().stdout;
        let log = String::from_utf8(log).unwrap();
        assert_eq!(log.lines().count(), commits, "{log}");
        // Opening it again, as after a restart, changes nothing.
        fs::write(tree.join("touched"), "since\n").unwrap();
        assert_eq!(open_checkout(&store, &place, run(number), base).unwrap(), tree);
        assert!(tree.join("touched").exists());
    }
    let copy = elsewhere.path().join("4").join("tree");
    fs::remove_file(copy.join("touched")).unwrap();
    assert_eq!(files(&copy), files(&user.tree()));
}

#[test]
fn an_interrupted_checkout_is_made_again() {
    let (user, store, elsewhere) =
        (UserRepository::new(), DirectoryStore::new(), TempDir::new_in("/var/tmp").unwrap());
    let base = store_base(&store, (&user.tree(), &user.state()), run(1), &[]).unwrap();
    for failures in 1..=3 {
        store.failures.store(failures, Ordering::Relaxed);
        let opened = open_checkout(&store, elsewhere.path(), run(1), &base);
        assert!(matches!(opened, Err(StoreError::Unavailable(_))), "{opened:?}");
        store.failures.store(0, Ordering::Relaxed);
    }
    let tree = open_checkout(&store, elsewhere.path(), run(1), &base).unwrap();
    assert_eq!(files(&tree), files(&user.tree()));
}

#[test]
fn a_state_that_the_store_has_lost_is_named() {
    let (user, store, elsewhere) =
        (UserRepository::new(), DirectoryStore::new(), TempDir::new_in("/var/tmp").unwrap());
    let base = store_base(&store, (&user.tree(), &user.state()), run(1), &[]).unwrap();
    store.remove_all("runs").unwrap();
    let opened = open_checkout(&store, elsewhere.path(), run(1), &base);
    let Err(StoreError::Failed(text)) = opened else { panic!("{opened:?}") };
    assert_eq!(text, format!("the store no longer has the files of {}", run(1)));
}
