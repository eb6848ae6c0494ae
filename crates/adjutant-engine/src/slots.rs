//! How many runs of one tree clients may have alive at once.
//!
//! A file for each place, locked by the process of the run that has it. The kernel gives a place back
//! when its process ends, however that comes about, so nothing needs to be counted or cleaned up.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use adjutant_store::open_private;

const FOLDER: &str = "places";

/// A place among the live runs of a tree, given back when this is dropped.
#[derive(Debug)]
pub struct Slot {
    _held: File,
}

impl Slot {
    /// Takes one of `places` places for runs in `root`; none when all are taken.
    ///
    /// # Errors
    ///
    /// Why it cannot be known which are free.
    pub fn take(home: &Path, root: &Path, places: u32) -> io::Result<Option<Self>> {
        let folder = home.join(FOLDER).join(name(root));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for place in 0..places {
            let file = open_private(&folder.join(place.to_string()))?;
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _held: file })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Names a folder after a tree: the FNV-1a hash of its path. Two trees that share one share places.
fn name(root: &Path) -> String {
    let hash = root.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_for_each_tree_and_given_back() {
        let home = tempfile::tempdir().unwrap();
        let take = |root: &str| Slot::take(home.path(), Path::new(root), 2).unwrap();
        let one = take("/a");
        let two = take("/a");
        assert!(one.is_some() && two.is_some());
        assert!(take("/a").is_none());
        assert!(take("/b").is_some());
        drop(one);
        assert!(take("/a").is_some());
    }
}
