//! Objects of git, written without git: hashed, put singly into the repository, on disk before they are named.
//!
//! For the few objects of a small change the start of a process costs more than everything else. A file
//! appears under the name of an object only once its bytes are on disk: after a power cut there is no empty
//! object that git would take for the real one. Git's own gc removes temporary files a crash leaves.
//!
//! Start at [`Store::add`]; nothing is written before [`Store::settle`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flate2::{Compress, Compression, FlushCompress, Status};
use ring::digest;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::GitError;
use super::id::ObjectId;

/// How many files are synced at the same time.
const AT_ONCE: usize = 16;

/// From so many objects on a second thread writes half of them.
const MANY: usize = 8;

/// What a sync takes where nothing waits for a disk; threads would take longer.
const QUICK: Duration = Duration::from_micros(100);

/// Objects up to this size are stored as they are: packed, they would take one block of a disk less at best.
const SMALL_BYTES: usize = 8_000;

/// What begins bytes of zlib that are one last block as it is.
const AS_IT_IS: [u8; 3] = [0x78, 0x01, 0x01];

/// What the sums that end it are taken by, and how many bytes fit into them in between.
const ADLER: (u32, usize) = (65_521, 5_552);

/// Room for what packing adds to a few bytes.
const ROOM: usize = 256;

/// How many temporary files of others are passed over; git removes what crashes left of them in time.
const MAX_TAKEN: usize = 100_000;

/// How much of a file is hashed at a time.
const PIECE_BYTES: usize = 256 * 1024;

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
    /// That folder, once something is stored: what is named from there need not be found anew each time.
    opened: Option<OwnedFd>,
    algorithm: &'static digest::Algorithm,
    storing: Storing,
    /// By where they belong in the folder. No file stays open: a change may make more objects than files can be.
    waiting: BTreeMap<String, Waiting>,
}

/// An object that is to be on disk.
#[derive(Debug)]
struct Waiting {
    /// What it consists of, until it is written.
    header: Vec<u8>,
    bytes: Vec<u8>,
    /// Where it lies until it is on disk; none for an object that was there.
    temporary: Option<String>,
    is_synced: bool,
    is_named: bool,
}

impl Store {
    /// Begins to write into `folder`, with ids as long as `like`.
    pub(super) fn new(folder: PathBuf, like: &ObjectId, storing: Storing) -> Self {
        let algorithm = algorithm(like);
        Self { folder, opened: None, algorithm, storing, waiting: BTreeMap::new() }
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

    /// Adds an object whose id is known; it is in memory until all are stored.
    pub(super) fn add(&mut self, id: &ObjectId, kind: Kind, bytes: Vec<u8>) {
        let (folder, rest) = id.as_str().split_at(2);
        if self.storing == Storing::Durable {
            let header = header(kind, bytes.len());
            let (temporary, is_synced, is_named) = (None, false, false);
            let one = Waiting { header, bytes, temporary, is_synced, is_named };
            self.waiting.entry(format!("{folder}/{rest}")).or_insert(one);
        }
    }

    /// Writes everything, waits until it is on disk, and gives it its name; does something else meanwhile.
    pub(super) fn settle(mut self, meanwhile: impl FnOnce()) -> Result<(), GitError> {
        self.store_all(meanwhile).map_err(GitError::io("storing an object"))
    }

    fn store_all(&mut self, meanwhile: impl FnOnce()) -> io::Result<()> {
        if self.waiting.is_empty() {
            meanwhile();
            return Ok(());
        }
        let opened: &OwnedFd = self.opened.insert(File::open(&self.folder)?.into());
        let within = opened.as_fd();
        let mut all: Vec<(&String, &mut Waiting)> = self.waiting.iter_mut().collect();
        let half = if all.len() < MANY { 0 } else { all.len() / 2 };
        let (one, other) = all.split_at_mut(half);
        let (first, second) = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            let begun = (half > 0).then(|| thread.spawn_scoped(scope, || place(within, one)));
            let second = place(within, other);
            meanwhile();
            let failed = |_| Err(io::Error::other("storing failed"));
            // Where no thread is to be had, that half is late.
            let first = begun.and_then(Result::ok).map(|it| it.join().unwrap_or_else(failed));
            (first, second)
        });
        second?;
        match first {
            Some(first) => first?,
            None => place(within, one)?,
        }
        let late: Vec<&mut (&String, &mut Waiting)> =
            all.iter_mut().filter(|(_, one)| !one.is_named).collect();
        sync_all(&late, |(name, one)| match (&one.temporary, open(within, name)) {
            // What the kernel could not write since the file was closed is said to whoever opens it next.
            (Some(temporary), _) => open(within, temporary)?.sync_data(),
            // Git has it in a pack by now, which it syncs.
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (None, opened) => opened?.sync_data(),
        })?;
        // A folder of objects may be new.
        name_all(within, late.into_iter().map(|(name, one)| (name.as_str(), &mut **one)), Some("."))
    }
}

/// Writes some objects, and names them where it is known that they are on disk.
fn place(within: BorrowedFd<'_>, some: &mut [(&String, &mut Waiting)]) -> io::Result<()> {
    // To make a packer takes longer than to pack a file.
    let (mut packer, mut is_quick) = (None, true);
    for (name, one) in some.iter_mut() {
        write(within, name, one, &mut packer, &mut is_quick)?;
    }
    if some.iter().any(|(_, one)| !one.is_synced) {
        return Ok(());
    }
    name_all(within, some.iter_mut().map(|(name, one)| (name.as_str(), &mut **one)), None)
}

/// Writes an object into a file of no name; `is_quick` says whether a sync is not worth a thread here, as far
/// as is known.
fn write(
    within: BorrowedFd<'_>,
    name: &str,
    one: &mut Waiting,
    packer: &mut Option<Compress>,
    is_quick: &mut bool,
) -> io::Result<()> {
    let (header, bytes) = (mem::take(&mut one.header), mem::take(&mut one.bytes));
    let file = match freshened(within, name) {
        Some(file) => file,
        None => {
            let packed = match bytes.len() {
                0..=SMALL_BYTES => as_it_is(&[header, bytes].concat()),
                _ => {
                    let new = || Compress::new(Compression::fast(), true);
                    packed(packer.get_or_insert_with(new), &[&header, &bytes])?
                }
            };
            let folder = name.split('/').next().unwrap_or_default();
            let (mut file, temporary) = create(within, folder)?;
            one.temporary = Some(temporary);
            file.write_all(&packed)?;
            file
        }
    };
    if *is_quick {
        let begun = Instant::now();
        file.sync_data()?;
        one.is_synced = true;
        *is_quick = begun.elapsed() < QUICK;
    }
    Ok(())
}

/// Gives objects that are on disk their names, and waits until those are on disk too, in these folders and
/// in another one.
fn name_all<'w>(
    within: BorrowedFd<'_>,
    some: impl Iterator<Item = (&'w str, &'w mut Waiting)>,
    other: Option<&'w str>,
) -> io::Result<()> {
    let mut folders: BTreeSet<&str> = other.into_iter().collect();
    for (name, one) in some {
        if let Some(temporary) = &one.temporary {
            renameat(within, temporary, within, name)?;
            one.temporary = None;
        }
        one.is_named = true;
        folders.extend(name.split('/').next());
    }
    let folders: Vec<&str> = folders.into_iter().collect();
    sync_all(&folders, |folder| sync_folder(open(within, folder)))
}

impl Drop for Store {
    fn drop(&mut self) {
        let Some(within) = &self.opened else { return };
        for temporary in self.waiting.values().filter_map(|one| one.temporary.as_ref()) {
            // Best effort: git removes what is left of these by their names.
            let _ = unlinkat(within, temporary, AtFlags::empty());
        }
    }
}

/// Waits until the names in some folders are on disk; a folder that is gone has none.
pub(super) fn sync_folders<'p>(folders: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
    let folders: Vec<&Path> = folders.into_iter().collect();
    sync_all(&folders, |folder| sync_folder(File::open(folder)))
}

fn sync_folder(opened: io::Result<File>) -> io::Result<()> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
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

/// Puts bytes into the form of zlib without packing them; they must be few.
fn as_it_is(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let (mut one, mut other) = (1_u32, 0_u32);
    for some in bytes.chunks(ADLER.1) {
        for byte in some {
            one += u32::from(*byte);
            other += one;
        }
        (one, other) = (one % ADLER.0, other % ADLER.0);
    }
    let sums = (other << 16 | one).to_be_bytes();
    [&AS_IT_IS[..], &len.to_le_bytes(), &(!len).to_le_bytes(), bytes, &sums].concat()
}

/// Opens what is there; a link is not followed and a pipe holds nobody up.
fn open(within: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(within, name, flags, Mode::empty())?.into())
}

/// Gives an object that is there a new date, so that it is not collected as one nobody wants.
fn freshened(within: BorrowedFd<'_>, name: &str) -> Option<File> {
    let file = open(within, name).ok()?;
    // What a crash left empty is no object.
    let whole = file.metadata().is_ok_and(|found| found.is_file() && found.len() > 0);
    (whole && file.set_modified(SystemTime::now()).is_ok()).then_some(file)
}

/// Makes a file that is nobody's yet; the number of a process tells little where there are containers.
fn create(within: BorrowedFd<'_>, folder: &str) -> io::Result<(File, String)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for _ in 0..MAX_TAKEN {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{folder}/tmp_obj_{}_{number}", std::process::id());
        match openat(within, &name, flags, Mode::from_raw_mode(0o444)) {
            Ok(file) => return Ok((file.into(), name)),
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => match mkdirat(within, folder, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            },
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EXIST.into())
}

fn header(kind: Kind, len: usize) -> Vec<u8> {
    let kind = match kind {
        Kind::Blob => "blob",
        Kind::Tree => "tree",
        Kind::Commit => "commit",
    };
    format!("{kind} {len}\0").into_bytes()
}

/// Returns the id that git gives to content of so many bytes, without storing anything; none where it has
/// fewer by now. `like` is an id of the same repository.
pub(crate) fn blob_id(
    content: &mut dyn Read,
    len: u64,
    like: &ObjectId,
) -> Result<Option<ObjectId>, GitError> {
    let mut context = digest::Context::new(algorithm(like));
    context.update(format!("blob {len}\0").as_bytes());
    let mut content = content.take(len);
    let (mut piece, mut left) = (vec![0; PIECE_BYTES], len);
    loop {
        match content.read(&mut piece) {
            Ok(0) if left > 0 => return Ok(None),
            Ok(0) => return id_of(context.finish().as_ref()).map(Some),
            Ok(count) => {
                context.update(piece.get(..count).unwrap_or_default());
                left = left.saturating_sub(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(GitError::io("reading a changed file")(error)),
        }
    }
}

/// Returns what makes ids as long as this one.
fn algorithm(like: &ObjectId) -> &'static digest::Algorithm {
    match like.as_str().len() {
        64 => &digest::SHA256,
        _ => &digest::SHA1_FOR_LEGACY_USE_ONLY,
    }
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
    use std::fs;

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
        store.add(&id, Kind::Blob, b"text".to_vec());
        store.settle(|| ()).unwrap();
        assert_ne!(fs::read(folder.join(rest)).unwrap(), b"torn");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 501);
    }

    /// Adds many objects and returns the folders that they belong into.
    fn add_many(store: &mut Store) -> Vec<String> {
        let add = |number: usize| {
            let text = number.to_string().into_bytes();
            let id = store.name(Kind::Blob, &text).unwrap();
            store.add(&id, Kind::Blob, text);
            id.as_str()[..2].to_owned()
        };
        (0..4 * MANY).map(add).collect()
    }

    fn count(folder: &Path, is_one: impl Fn(&str) -> bool + Copy) -> usize {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let count_one = |entry: fs::DirEntry| match entry.path() {
            path if path.is_dir() => count(&path, is_one),
            path => usize::from(is_one(path.file_name().unwrap().to_str().unwrap())),
        };
        entries.map(count_one).sum()
    }

    #[test]
    fn many_objects_are_all_stored_and_stored_once() {
        let objects = tempfile::tempdir().unwrap();
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        for _ in 0..2 {
            let mut store = Store::new(objects.path().to_owned(), &like, Storing::Durable);
            add_many(&mut store);
            assert_eq!(count(objects.path(), |name| name.starts_with("tmp_obj_")), 0);
            store.settle(|| ()).unwrap();
            assert_eq!(count(objects.path(), |name| name.len() == 38), 4 * MANY);
            assert_eq!(count(objects.path(), |name| name.starts_with("tmp_obj_")), 0);
        }
    }

    #[test]
    fn objects_that_cannot_all_be_stored_leave_nothing_unfinished() {
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        for which in [0, 2 * MANY, 4 * MANY - 1] {
            let objects = tempfile::tempdir().unwrap();
            let mut store = Store::new(objects.path().to_owned(), &like, Storing::Durable);
            let mut folders = add_many(&mut store);
            folders.sort();
            fs::write(objects.path().join(&folders[which]), "in the way").unwrap();
            assert!(store.settle(|| ()).is_err());
            assert_eq!(count(objects.path(), |name| name.starts_with("tmp_obj_")), 0);
        }
    }
}
