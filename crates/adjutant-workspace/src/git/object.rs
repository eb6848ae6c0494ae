//! Objects of git, written without git: hashed, put singly into the repository, on disk before they are named.
//!
//! For the few objects of a small change the start of a process costs more than everything else. A file
//! appears under the name of an object only once its bytes are on disk: after a power cut there is no empty
//! object that git would take for the real one. Git's own gc removes temporary files a crash leaves.
//!
//! Start at [`Store::add`]. Invariant: nothing has a name before [`Store::settle`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use flate2::{Compress, Compression, FlushCompress, Status};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::GitError;
use super::blob::{hasher, id_bytes, id_of};
use super::id::ObjectId;
use super::sync::{QUICK, sync_all, sync_folder};

/// From so many objects on a second thread writes some of them.
const MANY: usize = 8;

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
    id_bytes: usize,
    storing: Storing,
    /// The names of what was added.
    known: BTreeSet<String>,
    /// Goes before the helper does, which ends then.
    ask: mpsc::Sender<Object>,
    queue: Queue,
    /// Writes some of the objects, once there are enough for two.
    helper: Option<Helper>,
}

/// Objects that are to be written, for whoever has the time.
type Queue = Arc<Mutex<mpsc::Receiver<Object>>>;

/// An object that is to be written.
#[derive(Debug)]
struct Object {
    /// Where it belongs in the folder of objects.
    name: String,
    header: Vec<u8>,
    bytes: Vec<u8>,
}

/// An object that was written, and goes away again where it gets no name.
#[derive(Debug)]
struct Written {
    /// The folder of objects.
    within: Arc<OwnedFd>,
    name: String,
    /// Where it lies until it is on disk; none for an object that was there.
    temporary: Option<String>,
    is_synced: bool,
    is_named: bool,
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Best effort: git removes what is left of these by their names.
            let _ = unlinkat(&self.within, temporary, AtFlags::empty());
        }
    }
}

/// A thread that writes objects as long as some are added.
#[derive(Debug)]
struct Helper {
    thread: Option<JoinHandle<io::Result<Vec<Written>>>>,
    /// Whether what was written is to get its name.
    is_wanted: Arc<AtomicBool>,
}

impl Helper {
    fn begin(folder: &Path, queue: &Queue) -> Option<Self> {
        let within = Arc::new(OwnedFd::from(File::open(folder).ok()?));
        let (queue, is_wanted) = (Arc::clone(queue), Arc::new(AtomicBool::new(false)));
        let wanted = Arc::clone(&is_wanted);
        let work = move || {
            let written = write_some(&within, &queue)?;
            if wanted.load(Ordering::Acquire) { named(written) } else { Ok(written) }
        };
        let thread = std::thread::Builder::new().spawn(work).ok()?;
        Some(Self { thread: Some(thread), is_wanted })
    }

    /// Waits until there is nothing left to write; returns what was written.
    fn end(mut self) -> io::Result<Vec<Written>> {
        let failed = |_| Err(io::Error::other("storing failed"));
        self.thread.take().map_or(Ok(Vec::new()), |it| it.join().unwrap_or_else(failed))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Nobody wants what it wrote, so nobody cares what was in the way.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Begins to write into `folder`, with ids as long as `like`.
    pub(super) fn new(folder: PathBuf, like: &ObjectId, storing: Storing) -> Self {
        let (ask, queue) = mpsc::channel();
        let (queue, known) = (Arc::new(Mutex::new(queue)), BTreeSet::new());
        Self { folder, id_bytes: id_bytes(like), storing, known, ask, queue, helper: None }
    }

    /// Returns the length of an id in bytes.
    pub(super) const fn id_bytes(&self) -> usize {
        self.id_bytes
    }

    /// Returns the id of an object without storing it.
    pub(super) fn name(&self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let mut hash = hasher(self.id_bytes);
        hash.update(&header(kind, bytes.len()));
        hash.update(bytes);
        id_of(&hash.finalize())
    }

    /// Adds an object whose id is known; it may be in memory until all are stored.
    pub(super) fn add(&mut self, id: &ObjectId, kind: Kind, bytes: Vec<u8>) {
        let (folder, rest) = id.as_str().split_at(2);
        let name = format!("{folder}/{rest}");
        if self.storing == Storing::Nothing || !self.known.insert(name.clone()) {
            return;
        }
        // The other end is with us.
        let _ = self.ask.send(Object { name, header: header(kind, bytes.len()), bytes });
        if self.known.len() == MANY {
            // Without a helper they are all written in the end.
            self.helper = Helper::begin(&self.folder, &self.queue);
        }
    }

    /// Writes everything, waits until it is on disk, and gives it its name.
    pub(super) fn settle(self) -> Result<(), GitError> {
        self.store_all().map_err(GitError::io("storing an object"))
    }

    fn store_all(self) -> io::Result<()> {
        let Self { folder, known, ask, queue, helper, .. } = self;
        if let Some(helper) = &helper {
            helper.is_wanted.store(true, Ordering::Release);
        }
        // Whoever waits for more knows by this that there is none.
        drop(ask);
        if known.is_empty() {
            return Ok(());
        }
        let within = Arc::new(OwnedFd::from(File::open(folder)?));
        let mut late = named(write_some(&within, &queue)?)?;
        late.extend(helper.map_or(Ok(Vec::new()), Helper::end)?);
        late.retain(|one| !one.is_named);
        sync_all(&late, |one| match (&one.temporary, open(&within, &one.name)) {
            // What the kernel could not write since the file was closed is said to whoever opens it next.
            (Some(temporary), _) => open(&within, temporary)?.sync_data(),
            // Git has it in a pack by now, which it syncs.
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (None, opened) => opened?.sync_data(),
        })?;
        late.iter_mut().for_each(|one| one.is_synced = true);
        named(late).map(drop)
    }
}

/// Writes objects until all are written that ever come.
fn write_some(within: &Arc<OwnedFd>, queue: &Queue) -> io::Result<Vec<Written>> {
    // To make a packer takes longer than to pack a file.
    let (mut packer, mut is_quick) = (None, true);
    let mut written = Vec::new();
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    while let Some(object) = next() {
        written.push(write(within, object, &mut packer, &mut is_quick)?);
    }
    Ok(written)
}

/// Writes an object into a file of no name; `is_quick` says whether a sync is not worth a thread here, as far
/// as is known.
fn write(
    within: &Arc<OwnedFd>,
    object: Object,
    packer: &mut Option<Compress>,
    is_quick: &mut bool,
) -> io::Result<Written> {
    let Object { name, header, bytes } = object;
    let within = Arc::clone(within);
    let mut one = Written { within, name, temporary: None, is_synced: false, is_named: false };
    let file = match freshened(&one.within, &one.name) {
        Some(file) => file,
        None => {
            let packed = match bytes.len() {
                0..=SMALL_BYTES => as_it_is(&[header, bytes].concat()),
                _ => {
                    let new = || Compress::new(Compression::fast(), true);
                    packed(packer.get_or_insert_with(new), &[&header, &bytes])?
                }
            };
            let folder = one.name.split('/').next().unwrap_or_default();
            let (mut file, temporary) = create(&one.within, folder)?;
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
    Ok(one)
}

/// Gives objects their names where all are on disk, and waits until those are on disk too.
fn named(mut some: Vec<Written>) -> io::Result<Vec<Written>> {
    let Some(first) = some.first().filter(|_| some.iter().all(|one| one.is_synced)) else {
        return Ok(some);
    };
    let within = Arc::clone(&first.within);
    for one in &mut some {
        if let Some(temporary) = &one.temporary {
            renameat(&within, temporary, &within, &one.name)?;
            one.temporary = None;
        }
        one.is_named = true;
    }
    // A folder of objects may be new.
    let mut folders = BTreeSet::from(["."]);
    folders.extend(some.iter().filter_map(|one| one.name.split('/').next()));
    let folders: Vec<&str> = folders.into_iter().collect();
    sync_all(&folders, |folder| sync_folder(open(&within, folder)))?;
    Ok(some)
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
fn freshened(within: &OwnedFd, name: &str) -> Option<File> {
    let file = open(within, name).ok()?;
    // What a crash left empty is no object.
    let whole = file.metadata().is_ok_and(|found| found.is_file() && found.len() > 0);
    (whole && file.set_modified(SystemTime::now()).is_ok()).then_some(file)
}

/// Makes a file that is nobody's yet; the number of a process tells little where there are containers.
fn create(within: &OwnedFd, folder: &str) -> io::Result<(File, String)> {
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
        store.settle().unwrap();
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
            store.settle().unwrap();
            assert_eq!(count(objects.path(), |name| name.len() == 38), 4 * MANY);
            assert_eq!(count(objects.path(), |name| name.starts_with("tmp_obj_")), 0);
        }
    }

    #[test]
    fn objects_that_nobody_wants_in_the_end_leave_nothing() {
        let objects = tempfile::tempdir().unwrap();
        let like = ObjectId::parse(&"1".repeat(40)).unwrap();
        let mut store = Store::new(objects.path().to_owned(), &like, Storing::Durable);
        add_many(&mut store);
        drop(store);
        assert_eq!(count(objects.path(), |_| true), 0);
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
            assert!(store.settle().is_err());
            assert_eq!(count(objects.path(), |name| name.starts_with("tmp_obj_")), 0);
        }
    }
}
