//! Objects of git, written without git: hashed, put singly into the repository, on disk before they are named.
//!
//! For the few objects of a small change the start of a process costs more than everything else. A file
//! appears under the name of an object only once its bytes are on disk: after a power cut there is no empty
//! object that git would take for the real one. Git's own gc removes temporary files a crash leaves.
//!
//! Start at [`Store::add`]; nothing is promised before [`Store::settle`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flate2::{Compress, Compression, FlushCompress, Status};
use ring::digest;

use super::GitError;
use super::id::ObjectId;

/// How many files are synced at the same time.
const AT_ONCE: usize = 16;

/// What a sync takes where nothing waits for a disk; threads would take longer.
const QUICK: Duration = Duration::from_micros(100);

/// Objects up to this size are stored as they are.
const SMALL_BYTES: usize = 4_000;

/// Room for what packing adds to a few bytes.
const ROOM: usize = 256;

/// How many temporary files of others are passed over; git removes what crashes left of them in time.
const MAX_TAKEN: usize = 100_000;

/// The digits of numbers.
const HEX: &[u8; 16] = b"0123456789abcdef";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The kinds of object there are in a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The content of a file.
    Blob,
    /// A folder.
    Tree,
    /// A commit.
    Commit,
}

/// What becomes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// They are on disk when the work is done.
    Durable,
    /// Only their ids are wanted; a commit too large to be made here is made all the same.
    Nothing,
}

/// Hashes objects and puts them into the folder of objects of a repository.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    algorithm: &'static digest::Algorithm,
    storing: Storing,
    /// For small objects and for others; to make one takes longer than to pack a small file.
    packers: [Option<Compress>; 2],
    /// By where they belong. No file stays open: a change may make more objects than files can be.
    waiting: BTreeMap<PathBuf, Waiting>,
}

/// A file that is to be on disk.
#[derive(Debug)]
struct Waiting {
    /// Where it lies until it is on disk; none for an object that was there.
    temporary: Option<PathBuf>,
}

impl Store {
    /// Begins to write into `folder`, with ids as long as `like`.
    pub(super) fn new(folder: PathBuf, like: &ObjectId, storing: Storing) -> Self {
        let algorithm = match like.as_str().len() {
            64 => &digest::SHA256,
            _ => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        };
        Self { folder, algorithm, storing, packers: [None, None], waiting: BTreeMap::new() }
    }

    /// Returns the length of an id in bytes.
    pub(super) fn id_bytes(&self) -> usize {
        self.algorithm.output_len()
    }

    /// Returns the id of an object without storing it.
    pub(super) fn name(&self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let mut context = digest::Context::new(self.algorithm);
        context.update(&header(kind, bytes.len()));
        context.update(bytes);
        id_of(context.finish().as_ref())
    }

    /// Adds an object whose id is known.
    pub(super) fn add(&mut self, id: &ObjectId, kind: Kind, bytes: &[u8]) -> Result<(), GitError> {
        if self.storing == Storing::Nothing {
            return Ok(());
        }
        let (first, rest) = id.as_str().split_at(2);
        let folder = self.folder.join(first);
        let path = folder.join(rest);
        if self.waiting.contains_key(&path) {
            return Ok(());
        }
        let [small, other] = &mut self.packers;
        let (packer, level) = match bytes.len() {
            // They take one block of a disk, packed or not.
            0..=SMALL_BYTES => (small, Compression::none()),
            _ => (other, Compression::fast()),
        };
        let packer = packer.get_or_insert_with(|| Compress::new(level, true));
        let mut add = || -> io::Result<Waiting> {
            if freshened(&path) {
                return Ok(Waiting { temporary: None });
            }
            let packed = packed(packer, &[&header(kind, bytes.len()), bytes])?;
            let (mut file, temporary) = create(&folder)?;
            let waiting = Waiting { temporary: Some(temporary) };
            file.write_all(&packed)?;
            Ok(waiting)
        };
        let waiting = add().map_err(GitError::io("storing an object"))?;
        self.waiting.insert(path, waiting);
        Ok(())
    }

    /// Waits until everything is on disk, and then gives it its name.
    pub(super) fn settle(mut self) -> Result<(), GitError> {
        let all: Vec<(&PathBuf, &Waiting)> = self.waiting.iter().collect();
        sync_all(&all, |(path, one)| one.sync(path)).map_err(GitError::io("storing an object"))?;
        for (path, one) in &mut self.waiting {
            if let Some(temporary) = one.temporary.take()
                && let Err(error) = fs::rename(&temporary, path)
            {
                one.temporary = Some(temporary);
                return Err(GitError::io("storing an object")(error));
            }
        }
        let mut folders: BTreeSet<&Path> =
            self.waiting.keys().filter_map(|path| path.parent()).collect();
        if !folders.is_empty() {
            // One of them may be new.
            folders.insert(&self.folder);
        }
        sync_folders(folders).map_err(GitError::io("storing an object"))
    }
}

impl Waiting {
    fn sync(&self, path: &Path) -> io::Result<()> {
        // What the kernel could not write since the file was closed is said to whoever opens it next.
        match (File::open(self.temporary.as_deref().unwrap_or(path)), &self.temporary) {
            // Git has it in a pack by now, which it syncs.
            (Err(error), None) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (opened, _) => opened?.sync_data(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Best effort: git removes what is left of these by their names.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Waits until the names in some folders are on disk; a folder that is gone has none.
pub(super) fn sync_folders<'p>(folders: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
    let folders: Vec<&Path> = folders.into_iter().collect();
    sync_all(&folders, |folder| match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    })
}

/// Syncs all, at the same time where one takes long.
fn sync_all<'s, T: Sync>(
    all: &'s [T],
    sync: impl Fn(&T) -> io::Result<()> + Copy + Send,
) -> io::Result<()> {
    let Some((first, rest)) = all.split_first() else { return Ok(()) };
    let begun = Instant::now();
    sync(first)?;
    if begun.elapsed() < QUICK {
        return rest.iter().try_for_each(sync);
    }
    std::thread::scope(|scope| {
        let some = rest.chunks(rest.len().div_ceil(AT_ONCE).max(1));
        let begin = |some: &'s [T]| {
            let thread = std::thread::Builder::new();
            thread.spawn_scoped(scope, move || some.iter().try_for_each(sync)).map_err(|_| some)
        };
        let threads: Vec<_> = some.map(begin).collect();
        threads.into_iter().try_for_each(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("syncing failed"))),
            // No thread is to be had; it takes longer here.
            Err(some) => some.iter().try_for_each(sync),
        })
    })
}

/// Packs some bytes after each other.
fn packed(packer: &mut Compress, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    packer.reset();
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut packed = Vec::with_capacity(len + ROOM);
    for (number, part) in (1..).zip(parts) {
        let flush = if number == parts.len() { FlushCompress::Finish } else { FlushCompress::None };
        let begun = packer.total_in();
        loop {
            let done = usize::try_from(packer.total_in() - begun).unwrap_or(usize::MAX);
            let rest = part.get(done..).unwrap_or_default();
            if rest.is_empty() && flush == FlushCompress::None {
                break;
            }
            match packer.compress_vec(rest, &mut packed, flush).map_err(io::Error::other)? {
                Status::StreamEnd => break,
                Status::Ok | Status::BufError => packed.reserve(ROOM),
            }
        }
    }
    Ok(packed)
}

/// Gives an object that is there a new date, so that it is not collected as one nobody wants.
fn freshened(path: &Path) -> bool {
    let Ok(file) = super::trust::open_plain(path) else { return false };
    // What a crash left empty is no object.
    let whole = file.metadata().is_ok_and(|found| found.is_file() && found.len() > 0);
    whole && file.set_modified(SystemTime::now()).is_ok()
}

/// Makes a file that is nobody's yet; the number of a process tells little where there are containers.
fn create(folder: &Path) -> io::Result<(File, PathBuf)> {
    let mut taken = 0;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("tmp_obj_{}_{number}", std::process::id()));
        match File::options().write(true).create_new(true).mode(0o444).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < MAX_TAKEN => {
                taken += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                fs::create_dir_all(folder)?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn header(kind: Kind, len: usize) -> Vec<u8> {
    let kind = match kind {
        Kind::Blob => "blob",
        Kind::Tree => "tree",
        Kind::Commit => "commit",
    };
    format!("{kind} {len}\0").into_bytes()
}

/// Writes an id the way git shows it.
pub(super) fn id_of(bytes: &[u8]) -> Result<ObjectId, GitError> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let digits = [byte >> 4, byte & 15].map(usize::from);
        text.extend(digits.iter().filter_map(|digit| HEX.get(*digit)));
    }
    ObjectId::from_bytes(&text)
        .ok_or_else(|| GitError::BadName(String::from_utf8_lossy(&text).into_owned()))
}

/// Writes an id the way git stores it in a folder.
pub(super) fn bytes_of_id(id: &ObjectId) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'a'..=b'f' => byte - b'a' + 10,
        other => other.wrapping_sub(b'0'),
    };
    let pairs = id.as_str().as_bytes().chunks_exact(2);
    pairs.map(|pair| pair.iter().fold(0, |sum, byte| (sum << 4) | digit(*byte))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_of_the_same_number_left_is_in_nobodys_way() {
        let objects = tempfile::tempdir().unwrap();
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        let mut store = Store::new(objects.path().to_owned(), &like, Storing::Durable);
        let id = store.name(Kind::Blob, b"text").unwrap();
        let (first, rest) = id.as_str().split_at(2);
        let folder = objects.path().join(first);
        fs::create_dir(&folder).unwrap();
        let next = NEXT.load(Ordering::Relaxed);
        for number in next..next + 500 {
            let left = folder.join(format!("tmp_obj_{}_{number}", std::process::id()));
            fs::write(left, "torn").unwrap();
        }
        store.add(&id, Kind::Blob, b"text").unwrap();
        store.settle().unwrap();
        assert_ne!(fs::read(folder.join(rest)).unwrap(), b"torn");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 501);
    }

    #[test]
    fn objects_that_are_not_kept_leave_nothing() {
        let objects = tempfile::tempdir().unwrap();
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        let mut store = Store::new(objects.path().to_owned(), &like, Storing::Durable);
        let id = store.name(Kind::Blob, b"text").unwrap();
        let folder = objects.path().join(&id.as_str()[..2]);
        store.add(&id, Kind::Blob, b"text").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        drop(store);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
