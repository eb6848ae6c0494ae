//! Fsync of files and directories, several at the same time where one takes long.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The number of threads for fsyncs.
const AT_ONCE: usize = 16;

/// The longest duration of an fsync that does not wait for a disk; threads would take longer.
const QUICK: Duration = Duration::from_micros(100);

/// Fsyncs these directories. Paths that are missing or are not directories are skipped.
pub(super) fn sync_folders<'p>(folders: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
    let folders: Vec<&Path> = folders.into_iter().collect();
    sync_all(&folders, |folder| sync_folder(File::open(folder)))
}

/// Fsyncs the contents of these files.
pub(super) fn sync_files(files: &[PathBuf]) -> io::Result<()> {
    sync_all(files, |file| File::open(file)?.sync_data())
}

fn sync_folder(opened: io::Result<File>) -> io::Result<()> {
    match opened {
        Err(error) if is_no_folder(&error) => Ok(()),
        opened => opened?.sync_all(),
    }
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Fsyncs the first, then the others: on several threads if the first took long.
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
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
            }
            // No thread could be started; these are synced here.
            Err(some) => some.iter().try_for_each(sync),
        })
    })
}
