//! The index of a checkout, read without git: the folders that it stands for.
//!
//! Where nothing is staged its tree is the one of HEAD, and git keeps the ids of its folders in it. A capture then
//! needs no second process to list what lies beside a changed file. Only the plain form is read. One that is split,
//! sparse or shortened, that has conflicts, submodules or files without content yet, and one whose folders changed
//! since git last named them, is left to git.
//!
//! Start at [`Index::parse`]. Invariant: what is told is what git itself would commit of this index.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::blob::id_of;
use super::change::Change;
use super::folders::{Folders, above};
use super::graft::FOLDER;

/// Before an entry's id: dates, numbers of the file, its mode, owner and size.
const STAT_BYTES: usize = 40;

/// Where the mode is in them.
const MODE_AT: usize = 24;

/// Entries are as long as a multiple of this.
const ALIGNED: usize = 8;

/// The bits of an entry's flags that hold the length of its path, or all of them where it is longer.
const LENGTH: u16 = 0x0fff;

/// A side of a conflict.
const STAGE: u16 = 0x3000;

/// More flags follow.
const EXTENDED: u16 = 0x4000;

/// Among those: the file is announced and has no content yet.
const ANNOUNCED: u16 = 0x2000;

/// What the part with the folders is called.
const FOLDERS: &[u8] = b"TREE";

/// How many entries are listed although few of them may be wanted.
const FEW_ENTRIES: usize = 5_000;

/// How deep folders may lie.
const MAX_DEPTH: usize = 256;

/// An index in the plain form.
#[derive(Debug)]
pub(super) struct Index {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    top: Folder,
}

/// A file.
#[derive(Debug)]
struct Entry {
    mode: &'static [u8],
    id: Range<usize>,
    path: Range<usize>,
}

/// A folder that git named.
#[derive(Debug)]
struct Folder {
    id: Range<usize>,
    /// How many entries lie in it and below.
    files: usize,
    below: HashMap<Vec<u8>, Self>,
}

impl Index {
    /// Reads an index with ids of so many bytes; none where it must be left to git.
    pub(super) fn parse(bytes: Vec<u8>, id_bytes: usize) -> Option<Self> {
        // A sum of everything ends it. Git does not look at it either.
        let end = bytes.len().checked_sub(id_bytes)?;
        let mut rest = Reader { bytes: bytes.get(..end)?, at: 0 };
        let (count, extendable) = rest.start()?;
        // A number out of nowhere must not claim memory: an entry has more bytes than this.
        let mut entries = Vec::with_capacity(count.min(end / STAT_BYTES));
        for _ in 0..count {
            entries.push(rest.entry(id_bytes, extendable)?);
        }
        let mut top = None;
        while !rest.is_empty() {
            let name = rest.take(4)?;
            let size = rest.number()?;
            let until = rest.at.checked_add(size)?;
            match name {
                FOLDERS => top = Some(rest.folder(id_bytes, 0)?.1),
                // Git reads an index without knowing such a part; the others change what an entry is.
                [b'A'..=b'Z', ..] => rest.at = until,
                _ => return None,
            }
            if rest.at != until {
                return None;
            }
        }
        let top = top.filter(|top| top.files == entries.len())?;
        Some(Self { bytes, entries, top })
    }

    /// Says whether an index has entries of files only and lies in one file, which takes a small part of the
    /// time to read it.
    pub(super) fn is_plain(bytes: &[u8], id_bytes: usize) -> bool {
        Self::has_parts(bytes, id_bytes).is_some()
    }

    fn has_parts(bytes: &[u8], id_bytes: usize) -> Option<()> {
        let end = bytes.len().checked_sub(id_bytes)?;
        let mut rest = Reader { bytes: bytes.get(..end)?, at: 0 };
        let (count, extendable) = rest.start()?;
        for _ in 0..count {
            rest.entry(id_bytes, extendable)?;
        }
        while !rest.is_empty() {
            let name = rest.take(4)?;
            let size = rest.number()?;
            rest.take(size)?;
            // See `parse`.
            name.first().filter(|first| first.is_ascii_uppercase())?;
        }
        Some(())
    }

    /// Lists the folders on the way to some changes, the top one in any case; none where git must be asked.
    pub(super) fn folders(&self, changes: &[Change]) -> Option<Folders> {
        self.list(Some(&above(changes)))
    }

    /// Lists all folders where they are few enough to be listed before it is known which are wanted.
    pub(super) fn few_folders(&self) -> Option<Folders> {
        if self.entries.len() > FEW_ENTRIES { None } else { self.list(None) }
    }

    fn list(&self, wanted: Option<&BTreeSet<Vec<u8>>>) -> Option<Folders> {
        let mut list = List { index: self, wanted, listed: Folders::default() };
        list.add(&self.top, &[], &self.entries)?;
        Some(list.listed)
    }
}

/// Folders in the making.
struct List<'i> {
    index: &'i Index,
    /// Which are listed; all where nothing is said.
    wanted: Option<&'i BTreeSet<Vec<u8>>>,
    listed: Folders,
}

impl List<'_> {
    /// Adds a folder with all its entries, and wanted ones below it.
    fn add(&mut self, folder: &Folder, path: &[u8], entries: &[Entry]) -> Option<()> {
        let bytes = self.index.bytes.as_slice();
        let above = if path.is_empty() { 0 } else { path.len() + 1 };
        let mut content = Vec::new();
        let mut rest = entries;
        while let Some(entry) = rest.first() {
            let whole = bytes.get(entry.path.clone()).filter(|whole| whole.starts_with(path))?;
            let name = whole.get(above..)?;
            let (mode, name, id, files) = match name.iter().position(|byte| *byte == b'/') {
                None => (entry.mode, name, &entry.id, 1),
                Some(end) => {
                    let (name, inner) = (name.get(..end)?, whole.get(..above + end)?);
                    let below = folder.below.get(name)?;
                    if self.wanted.is_none_or(|wanted| wanted.contains(inner)) {
                        self.add(below, inner, rest.get(..below.files)?)?;
                    }
                    (FOLDER, name, &below.id, below.files)
                }
            };
            for part in [mode, b" ", name, b"\0", bytes.get(id.clone())?] {
                content.extend_from_slice(part);
            }
            // A folder without files would never end.
            rest = rest.get(files..).filter(|_| files > 0)?;
        }
        let id = id_of(bytes.get(folder.id.clone())?).ok()?;
        self.listed.0.insert(path.to_vec(), (id, content));
        Some(())
    }
}

/// The part of an index that is still to be read.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(bytes)).ok()
    }

    /// Reads what begins an index: how many entries there are, and whether they may have more flags.
    fn start(&mut self) -> Option<(usize, bool)> {
        let extendable = match (self.take(4)?, self.number()?) {
            (b"DIRC", 2) => false,
            (b"DIRC", 3) => true,
            _ => return None,
        };
        Some((self.number()?, extendable))
    }

    fn flags(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Reads what comes before a byte, and the byte.
    fn until(&mut self, last: u8) -> Option<&'b [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let taken = rest.get(..rest.iter().position(|byte| *byte == last)?)?;
        self.at += taken.len() + 1;
        Some(taken)
    }

    /// Reads a count as git writes it in words.
    fn count(&mut self, last: u8) -> Option<usize> {
        std::str::from_utf8(self.until(last)?).ok()?.parse().ok()
    }

    fn range(&mut self, count: usize) -> Option<Range<usize>> {
        let start = self.at;
        self.take(count)?;
        Some(start..self.at)
    }

    fn entry(&mut self, id_bytes: usize, extendable: bool) -> Option<Entry> {
        let start = self.at;
        let mode = self.take(STAT_BYTES)?.get(MODE_AT..MODE_AT + 4)?;
        let mode: &[u8] = match u32::from_be_bytes(mode.try_into().ok()?) {
            0o100_644 => b"100644",
            0o100_755 => b"100755",
            0o120_000 => b"120000",
            // A submodule, or a folder of a sparse index.
            _ => return None,
        };
        let id = self.range(id_bytes)?;
        let flags = self.flags()?;
        let more = if flags & EXTENDED == 0 { 0 } else { self.flags().filter(|_| extendable)? };
        if flags & STAGE != 0 || more & ANNOUNCED != 0 {
            return None;
        }
        let path = match flags & LENGTH {
            LENGTH => {
                let start = self.at;
                start..start + self.until(0)?.len()
            }
            len => self.range(usize::from(len))?,
        };
        // At least one NUL follows the path.
        self.at = start + (path.end - start + 1).next_multiple_of(ALIGNED);
        Some(Entry { mode, id, path })
    }

    /// Reads a folder and those below it; none where git has not named all of them.
    fn folder(&mut self, id_bytes: usize, depth: usize) -> Option<(Vec<u8>, Folder)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let name = self.until(0)?.to_vec();
        let files = self.count(b' ')?;
        let below = self.count(b'\n')?;
        let id = self.range(id_bytes)?;
        let below = (0..below).map(|_| self.folder(id_bytes, depth + 1)).collect::<Option<_>>()?;
        Some((name, Folder { id, files, below }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;
    use crate::{Git, RelPath, Repository};

    /// Names that sort differently as a file and as a folder, and a path too long for the flags of its entry.
    fn paths() -> Vec<String> {
        let long = format!("{}x", format!("{}/", "l".repeat(200)).repeat(19));
        let usual = ["a", "a-b/x", "a.c", "b/c/d", "b/c.d", "b/e", "ü/\"q\\\n", "top"];
        usual.into_iter().map(str::to_owned).chain([long + &"y".repeat(150)]).collect()
    }

    fn git(tree: &Path, args: &[&str]) {
        let who = ["-c", "user.name=u", "-c", "user.email=u@localhost"];
        let allow = ["-c", "protocol.file.allow=always", "-c", "advice.addEmbeddedRepo=false"];
        let mut git = Command::new("git");
        let ran = git.args(who).args(allow).args(args).current_dir(tree).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    fn put(tree: &Path, path: &str, text: &str) {
        let at = tree.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    /// A repository with one commit of all paths.
    fn committed(folder: &Path, format: &str) -> (PathBuf, Repository) {
        let tree = folder.join("t");
        fs::create_dir(&tree).unwrap();
        git(&tree, &["init", "-q", "--object-format", format, "."]);
        // The longest one is in the index only: a file system may not take it.
        for path in paths().iter().filter(|path| path.len() < 100) {
            put(&tree, path, path);
        }
        git(&tree, &["add", "."]);
        let long = paths().pop().unwrap();
        let id = Command::new("git").args(["hash-object", "-w", "top"]).current_dir(&tree).output();
        let id = String::from_utf8(id.unwrap().stdout).unwrap();
        let entry = format!("100755,{},{long}", id.trim());
        git(&tree, &["update-index", "--add", "--cacheinfo", &entry]);
        git(&tree, &["update-index", "--skip-worktree", &long]);
        git(&tree, &["commit", "-q", "-m", "first"]);
        let found = Git::find(&std::env::var_os("PATH").unwrap()).unwrap();
        let repository = Repository::open(&found, &tree, &folder.join("state")).unwrap();
        (tree, repository)
    }

    fn read(tree: &Path, format: &str) -> Option<Index> {
        let bytes = fs::read(tree.join(".git/index")).unwrap();
        let id_bytes = if format == "sha1" { 20 } else { 32 };
        let is_plain = Index::is_plain(&bytes, id_bytes);
        let read = Index::parse(bytes, id_bytes);
        assert!(is_plain || read.is_none(), "only a plain index is read");
        read
    }

    #[test]
    fn the_folders_of_an_index_are_those_that_git_lists() {
        for format in ["sha1", "sha256"] {
            let folder = tempfile::tempdir().unwrap();
            let (tree, repository) = committed(folder.path(), format);
            let head = repository.head().unwrap().unwrap();
            let changes: Vec<Change> = paths()
                .into_iter()
                .chain(["new/x".to_owned(), "a/below/a/file".to_owned()])
                .map(|path| Change::Written(RelPath::new(path).unwrap()))
                .collect();
            let ours = read(&tree, format).unwrap().folders(&changes).unwrap();
            let scratch = repository.scratch(Some(&head)).unwrap();
            let gits = scratch.reading(&head, || Ok(&changes), |all| all).unwrap().1;
            assert_eq!(ours.0, gits.0);
            assert_eq!(ours.top(), Some(&repository.tree_of(&head).unwrap()));
            assert!(ours.0.len() > 20, "{}", ours.0.len());
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_git() {
        let cases: [(&str, &[&[&str]]); 7] = [
            ("shortened paths", &[&["update-index", "--index-version", "4"]]),
            ("split", &[&["update-index", "--split-index"]]),
            ("announced", &[&["add", "-N", "new"]]),
            ("staged", &[&["add", "new"]]),
            ("submodule", &[&["add", "nested"], &["commit", "-q", "-m", "nested"]]),
            ("conflict", &[&["read-tree", "-i", "-m", "main^", "main", "other"]]),
            (
                "sparse",
                &[
                    &["sparse-checkout", "set", "--cone", "--sparse-index", "b/c"],
                    &["sparse-checkout", "reapply", "--sparse-index"],
                ],
            ),
        ];
        for (what, steps) in cases {
            let folder = tempfile::tempdir().unwrap();
            let (tree, _) = committed(folder.path(), "sha1");
            git(&tree, &["branch", "-m", "main"]);
            git(&tree, &["commit", "-q", "--allow-empty", "-m", "more"]);
            git(&tree, &["checkout", "-q", "-b", "other", "HEAD^"]);
            put(&tree, "top", "other");
            git(&tree, &["commit", "-q", "-a", "-m", "other"]);
            git(&tree, &["checkout", "-q", "main"]);
            put(&tree, "top", "main");
            git(&tree, &["commit", "-q", "-a", "-m", "main"]);
            assert!(read(&tree, "sha1").is_some(), "{what}");
            put(&tree, "new", "new");
            if what == "submodule" {
                git(&tree, &["init", "-q", "nested"]);
                git(&tree.join("nested"), &["commit", "-q", "--allow-empty", "-m", "x"]);
            }
            steps.iter().for_each(|step| git(&tree, step));
            assert!(read(&tree, "sha1").is_none(), "{what}");
        }
    }

    #[test]
    fn an_index_with_another_tree_is_not_taken_for_head() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, repository) = committed(folder.path(), "sha1");
        git(&tree, &["init", "-q", "nested"]);
        git(&tree.join("nested"), &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&tree, &["add", "nested"]);
        git(&tree, &["commit", "-q", "-m", "nested"]);
        fs::remove_dir_all(tree.join("nested")).unwrap();
        let capture = || {
            // Git names all folders again.
            git(&tree, &["write-tree"]);
            assert!(read(&tree, "sha1").is_some());
            let head = repository.head().unwrap().unwrap();
            let snapshot = repository.capture(std::time::SystemTime::now()).unwrap();
            assert_eq!(snapshot.head_tree, repository.tree_of(&head).unwrap());
            assert_eq!(snapshot.tree, repository.tree_of(&snapshot.commit).unwrap());
            snapshot.changes
        };
        git(&tree, &["rm", "-q", "--cached", "nested"]);
        assert_eq!(capture(), []);
        put(&tree, "b/c/d", "staged");
        git(&tree, &["add", "b/c/d"]);
        assert_eq!(capture(), [Change::Written(RelPath::new("b/c/d").unwrap())]);
    }

    #[test]
    fn a_torn_index_is_left_to_git() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, _) = committed(folder.path(), "sha1");
        let whole = fs::read(tree.join(".git/index")).unwrap();
        for len in 0..whole.len() {
            assert!(Index::parse(whole[..len].to_vec(), 20).is_none(), "{len}");
        }
        let all = paths().into_iter().map(|path| Change::Written(RelPath::new(path).unwrap()));
        let all: Vec<Change> = all.collect();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            // Whatever it says now, it is read to an end.
            let _ = Index::parse(bytes, 20).map(|index| index.folders(&all));
        }
    }
}
