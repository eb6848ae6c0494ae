//! What another program may have put in the place of a file of ours.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Puts a link to `victim`, or a pipe without another end, at `path`.
pub(crate) const ALL: [fn(path: &Path, victim: &Path); 2] = [link, pipe];

fn link(path: &Path, victim: &Path) {
    let _ = fs::remove_file(path);
    symlink(victim, path).unwrap();
}

fn pipe(path: &Path, _: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
