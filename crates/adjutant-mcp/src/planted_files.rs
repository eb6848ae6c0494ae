//! Test helpers that replace one of our files with a symlink or a FIFO, as a hostile program could.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Functions that put a symlink to `victim`, or a FIFO without a writer, at `path`.
pub(crate) const ALL: [fn(path: &Path, victim: &Path); 2] = [link, pipe];

fn link(path: &Path, victim: &Path) {
    let _ = fs::remove_file(path);
    symlink(victim, path).unwrap();
}

fn pipe(path: &Path, _: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
