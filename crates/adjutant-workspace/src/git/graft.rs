//! Making a small commit without a process that writes: only the folders on the way to a change are read.
//!
//! They are listed by git, see `folders`. Contents, folders and the commit are put into the repository singly;
//! see `object`. What is large or many is left to `import`, whose commits are the same to the last bit.
//!
//! Start at [`Scratch::graft`]. Invariant: a folder is changed only where all of it was read and its id is the
//! one that the folder above names.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Component, Path};

use super::GitError;
use super::blob::id_of;
use super::change::{Change, SkipReason, Skipped};
use super::folders::{Folders, above};
use super::id::ObjectId;
use super::import::{
    Commit, Committed, IDENTITY, Imported, Taken, WHOLE_BYTES, is_allowed, seconds,
};
use super::object::{Kind, Store, Storing, bytes_of_id};
use super::scratch::Scratch;

/// More changes than this make a pack, which is what git does with them.
pub(super) const FEW: usize = 200;

/// More objects than this make a pack: each is a file of its own that is waited for.
const FEW_OBJECTS: usize = 128;

/// How many bytes of content are stored singly.
const FEW_BYTES: u64 = 4 * WHOLE_BYTES;

/// More than a file had when it was opened.
const ROOM: usize = 64;

/// The mode of a folder.
pub(super) const FOLDER: &[u8] = b"40000";
const SUBMODULE: &[u8] = b"160000 ";

/// The modes git writes: a folder, files, a link, a submodule.
///
/// Old repositories have others, such as a folder of the mode `040000`; git reads those for what they are.
const MODES: [&[u8]; 5] = [FOLDER, b"100644", b"100755", b"120000", b"160000"];

impl Scratch<'_> {
    /// Makes a commit of a few changes; none where they are better left to git.
    pub(super) fn graft(
        &self,
        commit: Commit<'_>,
        folders: Option<Folders>,
        storing: Storing,
    ) -> Result<Option<Imported>, GitError> {
        if !self.is_little(commit, storing) {
            return Ok(None);
        }
        let folders = match (folders, commit.base) {
            (Some(folders), _) => folders,
            (None, Some(base)) => self.reading(base, || Ok(commit.changes), |changes| changes)?.1,
            (None, None) => Folders::default(),
        };
        match self.plan(commit, &folders, storing)? {
            Some(planned) => planned.keep(),
            None => Ok(None),
        }
    }

    fn is_little(&self, commit: Commit<'_>, storing: Storing) -> bool {
        let is_much = || self.is_shared() || most_objects(commit.changes) > FEW_OBJECTS;
        commit.changes.len() <= FEW && (storing == Storing::Nothing || !is_much())
    }

    /// Says what the commit of a few changes is, and begins to write it; none where git must make it.
    pub(super) fn plan(
        &self,
        commit: Commit<'_>,
        folders: &Folders,
        storing: Storing,
    ) -> Result<Option<Planned>, GitError> {
        if !self.is_little(commit, storing) {
            return Ok(None);
        }
        let base_tree = match commit.base {
            Some(_) => match folders.top() {
                Some(id) => id.clone(),
                // Git says what is wrong with the base.
                None => return Ok(None),
            },
            None => self.empty_tree().clone(),
        };
        let store = Store::new(self.objects(), self.empty_tree(), storing);
        let graft = Graft { store, folders, skipped: Vec::new(), bytes: 0 };
        without_files(graft.plan(commit, base_tree))
    }
}

/// A commit that is known to the last bit; nothing of it stays unless it is kept.
pub(super) struct Planned {
    store: Store,
    imported: Imported,
}

impl Planned {
    /// Stores it; none where git must store it.
    pub(super) fn keep(self) -> Result<Option<Imported>, GitError> {
        let Self { store, imported } = self;
        without_files(store.settle().map(|()| Some(imported)))
    }
}

/// Leaves to git what more files would have to be open for: it needs one for all of them.
fn without_files<T>(done: Result<Option<T>, GitError>) -> Result<Option<T>, GitError> {
    match done {
        Err(error) if error.is_out_of_files() => Ok(None),
        done => done,
    }
}

/// A commit in the making.
struct Graft<'f> {
    store: Store,
    folders: &'f Folders,
    skipped: Vec<Skipped>,
    bytes: u64,
}

/// A folder that may differ from the base.
#[derive(Debug, Default)]
struct Folder<'f> {
    /// In the order of git, by what that is; see `order`.
    entries: Vec<(Cow<'f, [u8]>, Entry<'f>)>,
    /// What it is in the base.
    was: Option<ObjectId>,
    path: Vec<u8>,
}

#[derive(Debug)]
enum Entry<'f> {
    /// As git stores it: mode, space, name, NUL, id.
    Stored(Cow<'f, [u8]>),
    /// A folder that something changes in.
    Open(Folder<'f>),
}

impl<'f> Graft<'f> {
    /// Says what the commit is; none where git must make it.
    fn plan(
        mut self,
        commit: Commit<'_>,
        base_tree: ObjectId,
    ) -> Result<Option<Planned>, GitError> {
        let Some(mut top) = self.folder(b"", Some(&base_tree)) else { return Ok(None) };
        if self.apply(commit, &mut top)?.is_none() {
            return Ok(None);
        }
        let tree = self.add(&top, &base_tree)?;
        let text = words(commit, &tree);
        let made = self.store.name(Kind::Commit, &text)?;
        self.store.add(&made, Kind::Commit, text);
        let made = Committed { commit: made, tree, skipped: self.skipped };
        Ok(Some(Planned { store: self.store, imported: Imported { made, base_tree } }))
    }

    /// Reads a folder of the base; none where git must be asked.
    fn folder(&self, path: &[u8], id: Option<&ObjectId>) -> Option<Folder<'f>> {
        let mut folder = Folder { entries: Vec::new(), was: id.cloned(), path: path.to_vec() };
        let Some(id) = id else { return Some(folder) };
        let content = match self.folders.0.get(path) {
            Some((found, content)) if found == id => content.as_slice(),
            // The tree without entries is known to git without being stored.
            None if path.is_empty() && self.folders.0.is_empty() => b"",
            Some(_) | None => return None,
        };
        let mut rest = content;
        while !rest.is_empty() {
            let space = rest.iter().position(|byte| *byte == b' ')?;
            let end = rest.iter().position(|byte| *byte == 0).filter(|end| *end > space)?;
            let (line, after) = rest.split_at_checked(end + 1 + self.store.id_bytes())?;
            let mode = line.get(..space).filter(|mode| MODES.contains(mode))?;
            let key = order(line.get(space + 1..end)?, mode == FOLDER);
            // Out of order, what is written back would not be what was read.
            if folder.entries.last().is_some_and(|(last, _)| *last >= key) {
                return None;
            }
            folder.entries.push((key, Entry::Stored(line.into())));
            rest = after;
        }
        Some(folder)
    }

    /// Makes the changes, deletions first; none where git must make them.
    fn apply(&mut self, commit: Commit<'_>, top: &mut Folder<'f>) -> Result<Option<()>, GitError> {
        for change in commit.changes {
            if let Change::Deleted(path) = change
                && self.allowed(path.as_path())
                && self.remove(top, path.as_path()).is_none()
            {
                return Ok(None);
            }
        }
        for change in commit.changes {
            let Change::Written(path) = change else { continue };
            if !self.allowed(path.as_path()) {
                continue;
            }
            let done = match Taken::look(commit.root, path, self.bytes)? {
                Taken::Gone => self.remove(top, path.as_path()),
                Taken::Skipped(reason) => {
                    self.skipped.push(Skipped { path: path.as_path().to_owned(), reason });
                    Some(())
                }
                Taken::Link(target) => self.put(top, path.as_path(), "120000", target)?,
                Taken::File { len, .. } if len > WHOLE_BYTES || self.bytes + len > FEW_BYTES => {
                    None
                }
                Taken::File { file, len, mode } => {
                    self.bytes += len;
                    // With room to spare no read is needed to see that this was all.
                    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0) + ROOM);
                    // A file that grows is taken as far as it was when it was opened.
                    file.take(len)
                        .read_to_end(&mut bytes)
                        .map_err(GitError::io("reading a changed file"))?;
                    self.put(top, path.as_path(), mode, bytes)?
                }
            };
            if done.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn allowed(&mut self, path: &Path) -> bool {
        let fine = is_allowed(path);
        if !fine {
            let reason = SkipReason::NestedRepository;
            self.skipped.push(Skipped { path: path.to_owned(), reason });
        }
        fine
    }

    /// Removes a file or all of a folder; what is not there is fine.
    fn remove(&self, top: &mut Folder<'f>, path: &Path) -> Option<()> {
        let mut folder = top;
        let mut names = names(path).peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                folder.remove(name);
                return Some(());
            }
            match self.open(folder, name)? {
                Some(below) => folder = below,
                None => return Some(()),
            }
        }
        Some(())
    }

    /// Puts content at a path; what is in its way goes.
    fn put(
        &mut self,
        top: &mut Folder<'f>,
        path: &Path,
        mode: &str,
        bytes: Vec<u8>,
    ) -> Result<Option<()>, GitError> {
        let id = self.store.name(Kind::Blob, &bytes)?;
        let mut folder = top;
        let mut names = names(path).peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                let stored = bytes_of_id(&id);
                let line = [mode.as_bytes(), b" ", name, b"\0", &stored].concat();
                // Of another mode it may be the id of something else, which need not be there.
                let known = matches!(folder.remove(name), Some(Entry::Stored(had)) if *had == line);
                if !known {
                    self.store.add(&id, Kind::Blob, bytes);
                }
                folder.insert(name.to_vec().into(), Entry::Stored(line.into()));
                return Ok(Some(()));
            }
            match self.open(folder, name) {
                None => return Ok(None),
                Some(Some(_)) => {}
                Some(None) => {
                    folder.remove(name);
                    let path = joined(&folder.path, name);
                    let new = Folder { entries: Vec::new(), was: None, path };
                    folder.insert(order(name, true).into_owned().into(), Entry::Open(new));
                }
            }
            folder = match self.open(folder, name) {
                Some(Some(below)) => below,
                Some(None) | None => return Ok(None),
            };
        }
        Ok(Some(()))
    }

    /// Opens the folder of a name: an inner none where there is no folder, an outer one where git must be asked.
    fn open<'m>(
        &self,
        folder: &'m mut Folder<'f>,
        name: &[u8],
    ) -> Option<Option<&'m mut Folder<'f>>> {
        let path = joined(&folder.path, name);
        if folder.is_submodule(name) {
            // What lies in one is left out and said, which `import` does.
            return None;
        }
        let Ok(at) = folder.place(&order(name, true)) else { return Some(None) };
        let (_, entry) = folder.entries.get_mut(at)?;
        if let Entry::Stored(line) = &*entry {
            let id = id_of(line.get(line.len().checked_sub(self.store.id_bytes())?..)?).ok()?;
            *entry = Entry::Open(self.folder(&path, Some(&id))?);
        }
        match entry {
            Entry::Open(below) => Some(Some(below)),
            Entry::Stored(_) => None,
        }
    }

    /// Adds a folder and those below it; returns its id.
    fn add(&mut self, folder: &Folder<'_>, base_tree: &ObjectId) -> Result<ObjectId, GitError> {
        let mut bytes = Vec::new();
        for (key, entry) in &folder.entries {
            match entry {
                Entry::Stored(line) => bytes.extend_from_slice(line),
                // Git keeps no folder without files.
                Entry::Open(below) if below.is_bare() => {}
                Entry::Open(below) => {
                    let id = bytes_of_id(&self.add(below, base_tree)?);
                    let name = key.strip_suffix(b"/").unwrap_or(key);
                    for part in [FOLDER, b" ", name, b"\0", &id] {
                        bytes.extend_from_slice(part);
                    }
                }
            }
        }
        let id = self.store.name(Kind::Tree, &bytes)?;
        if folder.was.as_ref() != Some(&id) && id != *base_tree {
            self.store.add(&id, Kind::Tree, bytes);
        }
        Ok(id)
    }
}

impl<'f> Folder<'f> {
    fn is_submodule(&self, name: &[u8]) -> bool {
        let at = self.place(&order(name, false)).ok().and_then(|at| self.entries.get(at));
        matches!(at, Some((_, Entry::Stored(line))) if line.starts_with(SUBMODULE))
    }

    fn is_bare(&self) -> bool {
        self.entries.iter().all(|(_, entry)| matches!(entry, Entry::Open(below) if below.is_bare()))
    }

    fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|(other, _)| other.as_ref().cmp(key))
    }

    /// Takes away what has a name, be it a file or a folder.
    fn remove(&mut self, name: &[u8]) -> Option<Entry<'f>> {
        let at =
            self.place(&order(name, false)).or_else(|_| self.place(&order(name, true))).ok()?;
        Some(self.entries.remove(at).1)
    }

    fn insert(&mut self, key: Cow<'f, [u8]>, entry: Entry<'f>) {
        match self.place(&key) {
            Ok(at) => self.entries.splice(at..=at, [(key, entry)]).for_each(drop),
            Err(at) => self.entries.insert(at, (key, entry)),
        }
    }
}

/// How many objects a commit of some changes may need: contents, folders, the top one and itself.
fn most_objects(changes: &[Change]) -> usize {
    let written = changes.iter().filter(|change| matches!(change, Change::Written(_))).count();
    written + above(changes).len() + 2
}

fn names(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_encoded_bytes()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    })
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// What git sorts the entries of a folder by.
fn order(name: &[u8], is_folder: bool) -> Cow<'_, [u8]> {
    if is_folder { [name, b"/"].concat().into() } else { name.into() }
}

/// What a commit consists of.
fn words(commit: Commit<'_>, tree: &ObjectId) -> Vec<u8> {
    let who = format!("{IDENTITY} {} +0000", seconds(commit.at));
    let parent = commit.base.map(|base| format!("parent {base}\n")).unwrap_or_default();
    let message = commit.message;
    format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{message}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};
    use std::ffi::OsStr;
    use std::fs;
    use std::process::Command;
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::{Git, RelPath, Repository, Root};

    /// Paths that take each other's places, and sort differently as a file and as a folder.
    const PATHS: [&str; 10] =
        ["a", "a/b", "a/b/c", "a/b.c", "a-b", "a.c", "d/e/f", "d/e-f", "d/\"q\\\n", "ü/x"];

    fn repository(folder: &Path, format: &str) -> Repository {
        let tree = folder.join("tree");
        let init = ["init", "--quiet", "--object-format", format].map(OsStr::new);
        let made = Command::new("git").args(init).arg(&tree).status().unwrap();
        assert!(made.success());
        let git = Git::find(&std::env::var_os("PATH").unwrap()).unwrap();
        Repository::open(&git, &tree, &folder.join("state")).unwrap()
    }

    /// What a step does to a path: nothing, a deletion, or content of one of two modes or a link.
    fn step(root: &Path, path: &str, what: u8) -> Option<Change> {
        let named = RelPath::new(path).unwrap();
        let at = root.join(path);
        match what {
            0 => return None,
            1 => return Some(Change::Deleted(named)),
            _ => {}
        }
        for above in at.ancestors().skip(1).take_while(|above| *above != root) {
            if above.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                fs::remove_file(above).unwrap();
            }
        }
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        if at.is_dir() && !at.is_symlink() {
            fs::remove_dir_all(&at).unwrap();
        }
        let _ = fs::remove_file(&at);
        match what {
            2 => std::os::unix::fs::symlink("target", &at).unwrap(),
            _ => fs::write(&at, path.repeat(usize::from(what))).unwrap(),
        }
        if what == 3 {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&at, mode).unwrap();
        }
        Some(Change::Written(named))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

        #[test]
        fn a_commit_made_here_is_the_one_git_makes(
            rounds in prop::collection::vec(prop::collection::vec(0_u8..6, PATHS.len()), 1..4),
            long in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let repository = repository(folder.path(), if long { "sha256" } else { "sha1" });
            let scratch = repository.scratch(None).unwrap();
            let mut base: Option<ObjectId> = None;
            for (round, steps) in (1_u64..).zip(rounds) {
                let files = folder.path().join(format!("files-{round}"));
                fs::create_dir(&files).unwrap();
                let root = Root::open(&files).unwrap();
                let all = PATHS.iter().zip(steps);
                let mut changes: Vec<Change> =
                    all.filter_map(|(path, what)| step(&files, path, what)).collect();
                changes.sort();
                let at = UNIX_EPOCH + Duration::from_secs(round);
                let message = "What was done\n\nand why\n";
                let commit =
                    Commit { base: base.as_ref(), root: &root, changes: &changes, message, at };
                let only_said = scratch.graft(commit, None, Storing::Nothing).unwrap().unwrap();
                let id = only_said.made.commit.clone();
                let stored = scratch.call("cat-file").args(["-e", id.as_str()]);
                prop_assert_ne!(stored.accept(&[0, 1, 128]).run().unwrap().code, 0);
                let ours = scratch.graft(commit, None, Storing::Durable).unwrap().unwrap();
                scratch.call("fsck").args(["--strict", "--no-dangling", id.as_str()]).run().unwrap();
                let (gits, _) = scratch.import_once(commit, &BTreeSet::new()).unwrap();
                prop_assert_eq!(&ours.made, &only_said.made);
                prop_assert_eq!(&ours.made, &gits.made);
                prop_assert_eq!(&ours.base_tree, &gits.base_tree);
                base = Some(ours.made.commit);
            }
        }
    }

    #[test]
    fn folders_are_read_without_a_thread_too() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path(), "sha1");
        let root = Root::open(repository.work_tree()).unwrap();
        let changes: Vec<Change> =
            PATHS.iter().skip(6).filter_map(|path| step(repository.work_tree(), path, 4)).collect();
        let commit =
            Commit { base: None, root: &root, changes: &changes, message: "x\n", at: UNIX_EPOCH };
        let scratch = repository.scratch(None).unwrap();
        let made = scratch.graft(commit, None, Storing::Durable).unwrap().unwrap().made.commit;
        let with = scratch.reading(&made, || Ok(&changes), |all| all).unwrap().1;
        let without = scratch.reading_after(&made, &changes, |all| all).unwrap().1;
        assert_eq!(with.0.len(), 4);
        assert_eq!(with.0, without.0);
    }

    #[test]
    fn a_folder_that_is_not_what_its_parent_names_is_left_to_git() {
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        let store = Store::new("/nonexistent".into(), &like, Storing::Nothing);
        let other = ObjectId::parse(&"2".repeat(40)).unwrap();
        let listed = HashMap::from([(b"a".to_vec(), (other, Vec::new()))]);
        let graft = Graft { store, folders: &Folders(listed), skipped: Vec::new(), bytes: 0 };
        assert!(graft.folder(b"a", Some(&like)).is_none());
        assert!(graft.folder(b"b", Some(&like)).is_none());
    }

    #[test]
    fn a_folder_out_of_order_is_left_to_git() {
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        let line = |name: &[u8]| [b"100644 ", name, b"\0", &[0; 20][..]].concat();
        for (lines, fine) in [([line(b"a"), line(b"b")], true), ([line(b"b"), line(b"a")], false)] {
            let listed = HashMap::from([(b"a".to_vec(), (like.clone(), lines.concat()))]);
            let store = Store::new("/nonexistent".into(), &like, Storing::Nothing);
            let graft = Graft { store, folders: &Folders(listed), skipped: Vec::new(), bytes: 0 };
            assert_eq!(graft.folder(b"a", Some(&like)).is_some(), fine);
        }
    }
}
