//! What git leaves among the objects when it cannot finish a pack, as on a full disk.
//!
//! Git itself removes such files only when they are two weeks old, and until then they take the room that is
//! missing. Invariant: nothing is removed that was there before, is another account's, or is open somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// How the names of unfinished packs begin.
const UNFINISHED: [&str; 3] = ["tmp_pack_", "tmp_idx_", "tmp_rev_"];

/// The unfinished packs that were there before git was called.
#[derive(Debug)]
pub(super) struct Unfinished {
    folder: PathBuf,
    before: BTreeSet<PathBuf>,
}

impl Unfinished {
    /// Looks at a folder of packs.
    pub(super) fn before(folder: PathBuf) -> Self {
        let before = unfinished(&folder).collect();
        Self { folder, before }
    }

    /// Removes what came since and nobody works on.
    pub(super) fn remove(self) {
        let came = unfinished(&self.folder).filter(|path| !self.before.contains(path));
        let is_ours = |path: &PathBuf| {
            let owner = path.symlink_metadata().map(|found| found.uid());
            owner.is_ok_and(|owner| owner == geteuid().as_raw())
        };
        let ours: Vec<PathBuf> = came.filter(is_ours).collect();
        let open = if ours.is_empty() { BTreeSet::new() } else { open_files(&self.folder) };
        for path in ours.iter().filter(|path| !open.contains(*path)) {
            // Best effort: git collects what stays.
            let _ = fs::remove_file(path);
        }
    }
}

fn unfinished(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_one = |name: &str| UNFINISHED.iter().any(|start| name.starts_with(start));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(move |it| it.file_name().to_str().is_some_and(is_one)).map(|it| it.path())
}

/// Returns the files below a folder that processes have open, as far as this account may look.
fn open_files(folder: &Path) -> BTreeSet<PathBuf> {
    let list = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let processes = list(PathBuf::from("/proc"));
    let handles = processes.flat_map(|process| list(process.path().join("fd")));
    let files = handles.filter_map(|handle| fs::read_link(handle.path()).ok());
    files.filter(|file| file.starts_with(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_since_and_is_not_open_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let put = |name: &str| fs::File::create(folder.join(name)).unwrap();
        put("tmp_pack_old");
        put("pack-1.pack");
        let before = Unfinished::before(folder.clone());
        put("tmp_pack_new");
        put("tmp_idx_new");
        put("pack-2.pack");
        let open = put("tmp_pack_open");
        before.remove();
        let mut left: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["pack-1.pack", "pack-2.pack", "tmp_pack_old", "tmp_pack_open"]);
        drop(open);
    }
}
