//! Measuring the memory and disk use of a running sandbox, because no control group is delegated.
//!
//! Start at [`ResourceWatch::check`], which measures each resource when it is due; `resident_bytes`,
//! `written_bytes` and `added_entries` say how. Not counted are deleted files that are only mapped or in transit
//! through a socket. Invariant: what cannot be measured counts as more than allowed.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, fstatvfs, openat, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::plan::{BoundsPlan, InitReport};

/// The shortest interval between two measurements of the disk.
const DISK_TICK: Duration = Duration::from_millis(200);

/// The share of the time that measuring memory may take: one part in so many.
const MEMORY_SHARE: u32 = 20;

/// The same for counting entries and for adding up sizes; together less than one part in twenty.
const ENTRIES_SHARE: u32 = 30;
const DISK_SHARE: u32 = 60;

/// The deepest level of directories that is measured.
const MAX_DEPTH: usize = 500;

/// The largest size that counts for a file without allocated blocks.
const SIZE_CAP: u64 = 512 << 20;

/// How far file timestamps may lag behind the clock.
const COARSE_SECONDS: i64 = 2;

/// The size that counts for the smallest file or directory.
const ENTRY_BYTES: u64 = 4 << 10;

/// The most open files that are examined in one measurement.
const MAX_HANDLES: usize = 4_000_000;

/// The directories in which a program can write.
pub(crate) struct MeasuredDirs {
    /// The workspace as the program sees it.
    pub(crate) workspace: OwnedFd,
    /// The overlay's upper directory; `None` if the workspace is a plain directory.
    pub(crate) upper: Option<OwnedFd>,
    /// The overlay's lower directories, topmost first.
    pub(crate) lowers: Vec<OwnedFd>,
    /// The home directory, the temporary files and the caches' upper directories: everything in them counts.
    pub(crate) private: Vec<OwnedFd>,
}

/// The resource bounds of a run, and when to measure each resource next.
pub(crate) struct ResourceWatch {
    memory_bytes: u64,
    disk_bytes: u64,
    entries: u64,
    base_entries: u64,
    /// How many entries may be added: the bound, or more if more were there when the program started.
    entries_allowed: u64,
    dirs: MeasuredDirs,
    /// The directory that lists processes: `/proc`.
    processes: PathBuf,
    free_at_start: u64,
    free_inodes_at_start: u64,
    /// Start of the run in seconds since 1970, to compare with timestamps of files.
    began: i64,
    next_memory: Option<Instant>,
    next_disk: Option<Instant>,
    next_entries: Option<Instant>,
    /// The earliest time at which the free inodes may bring the next count forward.
    early_entries: Option<Instant>,
    /// Entries that could still be added at the last count, and the free inodes then.
    entries_left: u64,
    free_inodes_counted: u64,
}

impl ResourceWatch {
    pub(crate) fn new(bounds: &BoundsPlan, dirs: MeasuredDirs) -> Self {
        let free_at_start = free_bytes(&dirs.workspace).unwrap_or(u64::MAX);
        let free_inodes_at_start = free_inodes(&dirs.workspace);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let began = i64::try_from(began).unwrap_or(0).saturating_sub(COARSE_SECONDS);
        let mut watch = Self {
            memory_bytes: bounds.memory_bytes,
            disk_bytes: bounds.disk_bytes,
            entries: bounds.entries,
            base_entries: bounds.base_entries,
            entries_allowed: u64::MAX,
            dirs,
            processes: PathBuf::from("/proc"),
            free_at_start,
            free_inodes_at_start,
            began,
            next_memory: None,
            next_disk: None,
            next_entries: None,
            early_entries: None,
            entries_left: u64::MAX,
            free_inodes_counted: free_inodes_at_start,
        };
        // Counted before the program starts. If an earlier run left too many entries, this one may remove some but
        // add none.
        watch.entries_allowed = watch.entries.max(watch.added_entries().0);
        watch
    }

    /// Measures the resources that are due; returns the bound that was exceeded, if any.
    pub(crate) fn check(&mut self, now: Instant, memory: impl Fn() -> u64) -> Option<InitReport> {
        if self.next_memory.is_none_or(|due| due <= now) {
            let bytes = memory();
            if bytes > self.memory_bytes {
                return Some(InitReport::Memory { bytes });
            }
            let after = Instant::now();
            self.next_memory = Some(after + (after - now) * MEMORY_SHARE);
        }
        if let Some(entries) = self.check_entries() {
            return Some(InitReport::Entries { entries });
        }
        let now = Instant::now();
        if self.next_disk.is_none_or(|due| due <= now) {
            let bytes = self.written_bytes();
            if bytes > self.disk_bytes {
                return Some(InitReport::Disk { bytes });
            }
            let after = Instant::now();
            self.next_disk = Some(after + DISK_TICK.max((after - now) * DISK_SHARE));
        }
        None
    }
}

impl ResourceWatch {
    /// Counts entries if that is due; returns how many were added, if that is too many.
    ///
    /// Counting half a million entries takes long, so it happens only every few seconds; a fall of the free inodes
    /// by the number that may still be added brings the next count forward.
    fn check_entries(&mut self) -> Option<u64> {
        let now = Instant::now();
        let is_due = self.next_entries.is_none_or(|due| due <= now);
        let is_early = !is_due && self.early_entries.is_none_or(|from| from <= now) && {
            let free = free_inodes(&self.dirs.workspace);
            self.free_inodes_counted.saturating_sub(free) > self.entries_left
        };
        if !is_due && !is_early {
            return None;
        }
        let began = processor_time();
        let too_many = self.too_many_entries();
        // CPU time, not elapsed time: on a busy machine the pause would grow with the time spent waiting for a CPU.
        let pause = DISK_TICK.max(processor_time().saturating_sub(began) * ENTRIES_SHARE);
        let after = Instant::now();
        // At most one early count per pause, which it prolongs: other programs on the file system use inodes, too.
        let from = self.next_entries.filter(|_| is_early).map_or(after, |due| due.max(after));
        self.next_entries = Some(from + pause);
        self.early_entries = Some(if is_early { from + pause } else { after + DISK_TICK });
        too_many
    }

    /// Counts the added entries, up to one more than allowed; the flag says whether a directory could not be
    /// listed.
    ///
    /// It only lists directories, which takes a tenth of the time of a stat for each entry. An overlay's upper
    /// directory also holds whiteouts, changed files of the base and their directories: once it holds more entries
    /// than may be added, each name is looked up in the lower directories, and only names that they lack count.
    /// Without an overlay, the number of entries of the base is subtracted.
    fn added_entries(&self) -> (u64, bool) {
        let mut count = self.count_entries(&[]);
        if count.entries > self.entries && !self.dirs.lowers.is_empty() {
            count = self.count_entries(&self.dirs.lowers);
        }
        (count.entries.saturating_sub(self.base_entries), count.has_closed)
    }

    fn count_entries(&self, lowers: &[OwnedFd]) -> EntryCount {
        let enough = self.entries_allowed.saturating_add(self.base_entries);
        let mut count = EntryCount::default();
        let top = self.dirs.upper.as_ref().unwrap_or(&self.dirs.workspace);
        if let Ok(top) = openat(top, ".", OPEN_DIR, Mode::empty()) {
            count.add(&top, lowers, 0, enough);
        }
        for private in &self.dirs.private {
            count.add(private, &[], 0, enough);
        }
        count
    }

    /// Returns how many entries were added, if that is too many.
    fn too_many_entries(&mut self) -> Option<u64> {
        self.free_inodes_counted = free_inodes(&self.dirs.workspace);
        let (added, has_closed) = self.added_entries();
        self.entries_left = self.entries_allowed.saturating_sub(added);
        // An unreadable directory cannot be counted; then the free inodes show whether there is much in it.
        let fell = self.free_inodes_at_start.saturating_sub(free_inodes(&self.dirs.workspace));
        let is_hidden = has_closed && fell > self.entries;
        let is_more = added > self.entries_allowed;
        (is_more || is_hidden).then_some(if is_hidden { added.max(fell) } else { added })
    }

    /// Returns how many bytes were written; what cannot be measured counts as more than allowed.
    ///
    /// With an overlay, this is the size of its upper directory and of the private ones. Without one, it is what changed in the workspace
    /// since the start, measured only once the free space has fallen by more than the bound, because other programs
    /// write too. Once it has fallen that far, deleted files that a process still has open count in both cases.
    fn written_bytes(&self) -> u64 {
        let (enough, too_much) = (self.disk_bytes, self.disk_bytes.saturating_add(1));
        let fell = free_bytes(&self.dirs.workspace)
            .map_or(u64::MAX, |free| self.free_at_start.saturating_sub(free));
        let private: u64 =
            self.dirs.private.iter().map(|it| size_bytes(it, i64::MIN, enough)).sum();
        let work = match &self.dirs.upper {
            Some(upper) => size_bytes(upper, i64::MIN, enough),
            None if fell <= enough => return private.max(fell),
            None => match openat(&self.dirs.workspace, ".", OPEN_DIR, Mode::empty()) {
                Ok(top) => size_bytes(&top, self.began, enough),
                Err(_) => too_much,
            },
        };
        let lies = work.saturating_add(private);
        if fell <= enough || lies > enough {
            return lies;
        }
        let places = [&self.dirs.workspace].into_iter().chain(&self.dirs.upper);
        let places = places.chain(&self.dirs.private);
        let devices = places.filter_map(|place| fstat(place).ok());
        let devices: Vec<u64> = devices.map(|stat| stat.st_dev).collect();
        let mut open = DeletedOpenFiles { devices, ..DeletedOpenFiles::default() };
        let all = open.add_all(&self.processes, enough - lies);
        lies.saturating_add(open.bytes).max(if all { 0 } else { too_much })
    }
}

/// Deleted files that processes still have open.
#[derive(Default)]
struct DeletedOpenFiles {
    /// The devices whose files count.
    devices: Vec<u64>,
    seen: BTreeSet<(u64, u64)>,
    handles: usize,
    bytes: u64,
}

impl DeletedOpenFiles {
    /// Adds up the files of every process but this one. Returns false if they exceed `enough` or cannot be
    /// examined.
    fn add_all(&mut self, processes: &Path, enough: u64) -> bool {
        let own = std::process::id().to_string();
        let Ok(found) = fs::read_dir(processes) else { return false };
        for process in found.flatten() {
            let name = process.file_name();
            let is_process = name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
            if !is_process || name == *own {
                continue;
            }
            // Each thread may have its own descriptor table. A process that has ended has none.
            let Ok(threads) = fs::read_dir(process.path().join("task")) else { continue };
            if !threads.flatten().all(|thread| self.add(&thread.path(), enough)) {
                return false;
            }
        }
        true
    }

    fn add(&mut self, thread: &Path, enough: u64) -> bool {
        let handles = match fs::read_dir(thread.join("fd")) {
            Ok(handles) => handles,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // The files of a thread that denies access are unknown; a thread that has ended has none.
                return has_ended(thread);
            }
            Err(_) => return true,
        };
        for handle in handles.flatten() {
            self.handles += 1;
            // A descriptor that was closed meanwhile is skipped.
            let Ok(stat) = fs::metadata(handle.path()) else { continue };
            let counts = stat.nlink() == 0 && self.devices.contains(&stat.dev());
            if counts && self.seen.insert((stat.dev(), stat.ino())) {
                self.bytes = self.bytes.saturating_add(stat.blocks() << 9);
            }
            if self.bytes > enough || self.handles > MAX_HANDLES {
                return false;
            }
        }
        true
    }
}

/// Says whether a thread has ended and is a zombie.
fn has_ended(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    // The name in parentheses may itself contain parentheses.
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
    state.is_empty() || state.starts_with(['Z', 'X'])
}

/// Counts the files and directories below a directory that this process can list.
pub(crate) fn count_entries(path: &Path) -> io::Result<u64> {
    let mut count = EntryCount::default();
    count.add(&openat(rustix::fs::CWD, path, OPEN_DIR, Mode::empty())?, &[], 0, u64::MAX);
    Ok(count.entries)
}

/// Files and directories that were counted.
#[derive(Default)]
struct EntryCount {
    entries: u64,
    /// Whether a directory could not be listed.
    has_closed: bool,
}

impl EntryCount {
    /// Adds the entries below a directory that are not in the lower directories; stops above `enough`.
    fn add(&mut self, directory: &OwnedFd, lowers: &[OwnedFd], depth: usize, enough: u64) {
        let Ok(entries) = Dir::read_from(directory) else { return };
        let mut folders = Vec::new();
        for entry in entries.flatten() {
            let (name, kind) = (entry.file_name(), entry.file_type());
            // A character device is a whiteout of the overlay; programs inside cannot create devices.
            if name == c"." || name == c".." || kind == FileType::CharacterDevice {
                continue;
            }
            if !is_in(lowers, name) {
                self.entries += 1;
            }
            // Some file systems do not report the kind; opening the entry as a directory tells.
            if matches!(kind, FileType::Directory | FileType::Unknown) {
                folders.push(name.to_owned());
            }
            if self.entries > enough {
                return;
            }
        }
        // Deeper directories are bounded by size alone.
        for name in folders.into_iter().filter(|_| depth < MAX_DEPTH) {
            match openat(directory, &name, OPEN_DIR, Mode::empty()) {
                Ok(folder) => {
                    let below = |lower| openat(lower, &name, OPEN_LOWER, Mode::empty()).ok();
                    let lowers: Vec<_> = lowers.iter().filter_map(below).collect();
                    self.add(&folder, &lowers, depth + 1, enough);
                }
                Err(errno) => self.has_closed |= errno == Errno::ACCESS,
            }
            if self.entries > enough {
                return;
            }
        }
    }
}

/// Says whether the topmost lower directory that has this name has more than a whiteout there.
fn is_in(lowers: &[OwnedFd], name: &CStr) -> bool {
    let found = lowers.iter().find_map(|it| statat(it, name, AtFlags::SYMLINK_NOFOLLOW).ok());
    found.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice)
}

/// Returns the number of free inodes; 0 if the file system does not report it.
fn free_inodes(place: impl AsFd) -> u64 {
    fstatvfs(place).map_or(0, |stat| stat.f_ffree)
}

/// Returns the CPU time that this thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fn free_bytes(place: impl AsFd) -> Option<u64> {
    fstatvfs(place).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Adds up the anonymous and shared memory of every process in this namespace.
pub(crate) fn resident_bytes() -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let mut kibibytes = 0;
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // A process that has ended uses nothing.
        let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
        kibibytes += status.lines().filter_map(private_kibibytes).sum::<u64>();
    }
    (kibibytes << 10).saturating_add(unmapped_bytes())
}

/// Returns the size of System V shared memory, which exists even if no process maps it.
fn unmapped_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let resident = |line: &str| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok();
    table.lines().skip(1).filter_map(resident).sum()
}

fn private_kibibytes(line: &str) -> Option<u64> {
    let value = line.strip_prefix("RssAnon:").or_else(|| line.strip_prefix("RssShmem:"))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The flags for opening a directory to list it.
const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The flags for opening a directory to look up names in it.
const OPEN_LOWER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Adds up the sizes of files below a directory that changed at or after `since`; stops above `enough`.
///
/// Keeps one descriptor open per level. A tree deeper than [`MAX_DEPTH`] counts as more than allowed: nothing
/// useful is that deep, and what cannot be measured must not grow.
fn size_bytes(top: &OwnedFd, since: i64, enough: u64) -> u64 {
    let mut total = 0;
    if !add_up(top, 0, since, enough, &mut total) {
        total = total.max(enough.saturating_add(1));
    }
    total
}

/// Adds one directory. Returns false once the total exceeds `enough`.
fn add_up(directory: &OwnedFd, depth: usize, since: i64, enough: u64, total: &mut u64) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    // A directory that is gone or unreadable cannot grow.
    let Ok(entries) = Dir::read_from(directory) else { return true };
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        // A sparse file still has to be read to commit it, and an empty entry still has to be stored. Files above
        // the cap are never committed.
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0) << 9;
        let size = u64::try_from(stat.st_size).unwrap_or(0).min(SIZE_CAP);
        // Programs cannot set the ctime.
        if stat.st_ctime >= since {
            *total = total.saturating_add(blocks.max(size).max(ENTRY_BYTES));
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            folders.push((name.to_owned(), stat.st_ctime));
        }
    }
    if *total > enough {
        return false;
    }
    folders.into_iter().all(|(name, changed)| {
        match openat(directory, &name, OPEN_DIR, Mode::empty()) {
            Ok(folder) => add_up(&folder, depth + 1, since, enough, total),
            // A directory that became unreadable since the start may hold anything. With an overlay (`since` is the
            // minimum) other measurements cover it.
            Err(Errno::ACCESS) => since == i64::MIN || changed < since,
            Err(_) => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: BoundsPlan = BoundsPlan {
        memory_bytes: u64::MAX,
        disk_bytes: 1 << 20,
        entries: 10,
        base_entries: 0,
        tmp_bytes: 0,
        processes: 0,
        open_files: 0,
        address_space_bytes: None,
    };

    fn plain(workspace: OwnedFd) -> MeasuredDirs {
        MeasuredDirs { workspace, upper: None, lowers: Vec::new(), private: Vec::new() }
    }

    #[test]
    fn what_lies_in_a_private_directory_counts_whenever_it_was_written() {
        let [folder, home] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        fs::write(home.path().join("file"), vec![1; 2 << 20]).unwrap();
        for number in 0..11 {
            fs::create_dir(home.path().join(number.to_string())).unwrap();
        }
        let open = |path: &Path| fs::File::open(path).unwrap().into();
        let dirs = MeasuredDirs { private: vec![open(home.path())], ..plain(open(folder.path())) };
        let watch = ResourceWatch::new(&BOUNDS, dirs);
        assert!(watch.written_bytes() > BOUNDS.disk_bytes);
        assert_eq!(watch.added_entries().0, 12);
    }

    #[test]
    fn writes_of_other_programs_are_not_counted_and_own_writes_are() {
        let folder = tempfile::tempdir().unwrap();
        let open = || std::fs::File::open(folder.path()).unwrap().into();
        let no_processes = tempfile::tempdir().unwrap();
        let mut watch = ResourceWatch::new(&BOUNDS, plain(open()));
        watch.processes = no_processes.path().to_owned();
        // As if another program had filled the disk.
        watch.free_at_start = u64::MAX;
        assert!(watch.check(Instant::now(), || 0).is_none());
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("below/file"), vec![1; 2 << 20]).unwrap();
        watch.next_disk = None;
        assert!(matches!(watch.check(Instant::now(), || 0), Some(InitReport::Disk { .. })));
        // Files from before the start of the run do not count.
        let mut next = ResourceWatch::new(&BOUNDS, plain(open()));
        next.processes = no_processes.path().to_owned();
        next.free_at_start = u64::MAX;
        next.began += 3_600;
        assert!(next.check(Instant::now(), || 0).is_none());
    }

    #[test]
    fn a_fall_of_the_free_inodes_triggers_one_early_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch =
            ResourceWatch::new(&BOUNDS, plain(fs::File::open(folder.path()).unwrap().into()));
        let later = Instant::now() + Duration::from_secs(3_600);
        (watch.next_entries, watch.early_entries) = (Some(later), None);
        for number in 0..11 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        // Extreme values, which other programs on the file system cannot cause.
        (watch.free_inodes_counted, watch.entries_left) = (0, 10);
        assert_eq!(watch.check_entries(), None, "neither due nor a sign");
        watch.free_inodes_counted = u64::MAX;
        assert_eq!(watch.check_entries(), Some(11));
        assert!(watch.next_entries > Some(later), "its cost is added to the pause");
        watch.free_inodes_counted = u64::MAX;
        assert_eq!(watch.check_entries(), None, "one in a pause");
    }

    #[test]
    fn a_deleted_open_file_counts_once_and_only_on_the_same_device() {
        let folder = tempfile::tempdir().unwrap();
        let (path, processes) = (folder.path().join("file"), folder.path().join("processes"));
        fs::write(&path, vec![1; 3 << 20]).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        let device = file.metadata().unwrap().dev();
        let leads_to = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        for thread in ["90000001/task/90000001", "90000001/task/90000002", "90000003/task/90000003"]
        {
            fs::create_dir_all(processes.join(thread).join("fd")).unwrap();
            std::os::unix::fs::symlink(&leads_to, processes.join(thread).join("fd/7")).unwrap();
        }
        let counted = |device: u64, enough: u64| {
            let mut open =
                DeletedOpenFiles { devices: vec![device], ..DeletedOpenFiles::default() };
            (open.add_all(&processes, enough), open.bytes >> 20)
        };
        assert_eq!(counted(device, 10 << 20), (true, 0), "it has a name");
        fs::remove_file(&path).unwrap();
        assert_eq!(counted(device, 10 << 20), (true, 3));
        assert_eq!(counted(device + 1, 10 << 20), (true, 0));
        assert!(!counted(device, 1 << 20).0);
    }

    #[test]
    fn an_ended_thread_has_no_open_files() {
        let folder = tempfile::tempdir().unwrap();
        for (stat, ended) in
            [("7 (a) R 1", false), ("7 (Z) S 1", false), ("7 (a) b) Z 1", true), ("", true)]
        {
            fs::write(folder.path().join("stat"), stat).unwrap();
            assert_eq!(has_ended(folder.path()), ended, "{stat}");
        }
    }
}
