//! Giving files of a base the modification times of the user's checkout.
//!
//! Build tools such as cargo and make compare times: with the times of a fresh checkout, build results that were copied
//! into a workspace would all count as outdated. A time is copied only where the content is known to be equal, because
//! an old time on other content would make a tool test stale results.
//!
//! Start at [`CheckoutDates::stamp`]. Content is equal if the captured state has the file unchanged and the file has
//! not been touched since before the capture began, which its ctime shows: programs cannot set it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

/// How far the kernel's file times may lag behind the clock.
const COARSE: Duration = Duration::from_millis(100);

/// The modification times of the user's checkout when its state was captured.
#[derive(Debug)]
pub(crate) struct CheckoutDates {
    checkout: PathBuf,
    /// Files whose captured state differs from the base.
    changed: BTreeSet<PathBuf>,
    /// When the capture began, as seconds and nanoseconds since 1970.
    began: (i64, i64),
}

impl CheckoutDates {
    /// Describes a capture that began at `began` and found these files changed.
    pub(crate) fn new(
        checkout: &Path,
        changed: impl IntoIterator<Item = PathBuf>,
        began: SystemTime,
    ) -> Self {
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(COARSE);
        let seconds = i64::try_from(began.as_secs()).unwrap_or(i64::MAX);
        Self {
            checkout: checkout.to_owned(),
            changed: changed.into_iter().collect(),
            began: (seconds, i64::from(began.subsec_nanos())),
        }
    }

    /// Returns a suffix for names of layers that belong to this capture.
    pub(crate) fn capture_name(&self) -> String {
        format!("-{}.{:09}", self.began.0, self.began.1)
    }

    /// Says whether every file and directory of a base has the time that it should have.
    pub(crate) fn match_base(&self, base: &Path) -> io::Result<bool> {
        self.walk(base, Path::new(""), &mut |_, has_date, _| Ok(has_date))
    }

    /// Gives the files and directories of a base their times. The caller has locked the base.
    pub(crate) fn stamp(&self, base: &Path) -> io::Result<()> {
        self.walk(base, Path::new(""), &mut |path, has_date, date| {
            if !has_date {
                set_modified(path, date)?;
            }
            Ok(true)
        })?;
        Ok(())
    }

    /// Gives these files of a layer, which has the captured content, the times of the checkout.
    pub(crate) fn stamp_files<'p>(
        &self,
        layer: &Path,
        files: impl Iterator<Item = &'p Path>,
    ) -> io::Result<()> {
        for file in files {
            let there = layer.join(file);
            let is_file = there.symlink_metadata().is_ok_and(|found| found.is_file());
            if let Some(date) = self.date(file).filter(|_| is_file) {
                set_modified(&there, Some(date))?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with each path, whether it has the right time, and that time; stops when it returns false.
    /// Directories come after what is in them, because writing there changes their times.
    fn walk(
        &self,
        base: &Path,
        below: &Path,
        visit: &mut impl FnMut(&Path, bool, Option<(i64, i64)>) -> io::Result<bool>,
    ) -> io::Result<bool> {
        for entry in fs::read_dir(base.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let found = entry.metadata()?;
            if found.is_symlink() || self.changed.contains(&path) {
                continue;
            }
            if found.is_dir() && !self.walk(base, &path, visit)? {
                return Ok(false);
            }
            let date = self.date(&path);
            let has = (found.mtime(), found.mtime_nsec());
            // Without a known time, it must be newer than every build result that was copied.
            let has_date = date.map_or(has >= self.began, |date| has == date);
            if !visit(&entry.path(), has_date, date)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the time of a file or directory in the checkout, unless it was touched since the capture began.
    fn date(&self, path: &Path) -> Option<(i64, i64)> {
        let found = self.checkout.join(path).symlink_metadata().ok()?;
        let is_settled = (found.ctime(), found.ctime_nsec()) < self.began;
        (is_settled && !found.is_symlink()).then(|| (found.mtime(), found.mtime_nsec()))
    }
}

/// Sets the modification time; `None` sets the present.
fn set_modified(path: &Path, date: Option<(i64, i64)>) -> io::Result<()> {
    let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let (tv_sec, tv_nsec) = date.unwrap_or((0, rustix::fs::UTIME_NOW));
    let times = Timestamps { last_access: keep, last_modification: Timespec { tv_sec, tv_nsec } };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
