//! Waits for changes in run directories through inotify.
//!
//! One inotify instance serves all waiters. A directory that cannot be watched is polled instead; the wait
//! then takes longer but is still correct.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::watch;

/// The polling interval for a directory that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The delay of a second check after a change: the kernel reports the close of a file just before it releases
/// the file's lock.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// The watch descriptor of the event that reports lost events (inotify(7), `IN_Q_OVERFLOW`).
const OVERFLOW: i32 = -1;

/// All directories that are being watched. `None` if inotify is unavailable.
#[derive(Clone)]
pub(crate) struct DirectoryWatcher {
    // A std mutex: held for single map operations, never across an await.
    watched: Option<Arc<InotifyWatches>>,
}

struct InotifyWatches {
    fd: OwnedFd,
    folders: Mutex<BTreeMap<i32, WatchedDirectory>>,
}

struct WatchedDirectory {
    changed: watch::Sender<()>,
    waiting: usize,
}

impl DirectoryWatcher {
    /// Starts a thread that reads inotify events until the process ends.
    pub(crate) fn listen() -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC).ok();
        let watched = fd.map(|fd| Arc::new(InotifyWatches { fd, folders: Mutex::default() }));
        let heard = watched.and_then(|watched| {
            let ours = Arc::clone(&watched);
            let thread = thread::Builder::new().name("mcp-changes".into());
            thread.spawn(move || ours.read_events()).ok().map(|_| watched)
        });
        Self { watched: heard }
    }

    /// Watches a directory until the subscription is dropped.
    pub(crate) fn subscribe(&self, folder: &Path) -> DirectorySubscription {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO;
        let subscribe = |watched: &Arc<InotifyWatches>| {
            let mut folders = watched.folders();
            let wd = inotify::add_watch(&watched.fd, folder, flags).ok()?;
            let entry = folders.entry(wd).or_insert_with(|| WatchedDirectory {
                changed: watch::Sender::default(),
                waiting: 0,
            });
            entry.waiting += 1;
            Some((Arc::clone(watched), wd, entry.changed.subscribe()))
        };
        DirectorySubscription {
            watch: self.watched.as_ref().and_then(subscribe),
            looks_again: false,
        }
    }
}

impl InotifyWatches {
    fn folders(&self) -> std::sync::MutexGuard<'_, BTreeMap<i32, WatchedDirectory>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the waiters of a directory, or all waiters if the kernel lost events.
    fn wake(&self, wd: i32) {
        let folders = self.folders();
        let which = folders.iter().filter(|(folder, _)| wd == OVERFLOW || **folder == wd);
        which.for_each(|(_, folder)| {
            folder.changed.send_replace(());
        });
    }

    fn read_events(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next().map(|event| event.wd()) {
                Ok(wd) => self.wake(wd),
                Err(Errno::INTR) => {}
                // Waiters also check from time to time without events.
                Err(_) => return,
            }
        }
    }
}

/// Wakes its owner when a directory changes, and shortly after once more; without inotify it polls.
pub(crate) struct DirectorySubscription {
    watch: Option<(Arc<InotifyWatches>, i32, watch::Receiver<()>)>,
    looks_again: bool,
}

impl DirectorySubscription {
    /// Waits until the directory may have changed since the last call.
    pub(crate) async fn changed(&mut self) {
        let Some((_, _, changed)) = &mut self.watch else {
            return tokio::time::sleep(POLL_INTERVAL).await;
        };
        // The sender lives as long as this subscription is counted.
        if !self.looks_again {
            let _ = changed.changed().await;
            self.looks_again = true;
            return;
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep(SECOND_LOOK) => self.looks_again = false,
        }
    }
}

impl Drop for DirectorySubscription {
    fn drop(&mut self) {
        let Some((watched, wd, _)) = &self.watch else { return };
        let mut folders = watched.folders();
        let Some(folder) = folders.get_mut(wd) else { return };
        folder.waiting -= 1;
        if folder.waiting == 0 {
            folders.remove(wd);
            // The kernel has already removed the watch of a deleted directory.
            let _ = inotify::remove_watch(&watched.fd, *wd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lost events may have been about any directory.
    #[test]
    fn an_overflow_wakes_all_waiters_and_a_change_only_those_of_its_directory() {
        let changes = DirectoryWatcher::listen();
        let (one, other) =
            (changes.subscribe(Path::new("/proc")), changes.subscribe(Path::new("/sys")));
        let is_woken =
            |it: &DirectorySubscription| it.watch.as_ref().unwrap().2.has_changed().unwrap();
        let (watched, wd, _) = one.watch.as_ref().unwrap();
        watched.wake(*wd);
        assert_eq!([&one, &other].map(is_woken), [true, false]);
        watched.wake(OVERFLOW);
        assert_eq!([&one, &other].map(is_woken), [true, true]);
    }
}
