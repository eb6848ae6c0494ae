//! What git leaves among the objects when it cannot finish a pack, as on a full disk.
//!
//! Git itself removes such files only when they are two weeks old, and until then they take the room that is
//! missing. What nobody has open is no sign: another git closes a pack before it names it, and one in another
//! container is not seen. Invariant: nothing is removed but files that the git called here had open for its pack.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// How the name of an unfinished pack begins. Its index is made at the end and takes little room.
const UNFINISHED: &str = "tmp_pack_";

/// The unfinished pack of one process.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// What the process has open, as the kernel tells it.
    handles: Option<PathBuf>,
    folder: PathBuf,
    /// By path, with what tells a file from another one of that name.
    found: BTreeMap<PathBuf, (u64, u64)>,
}

impl Unfinished {
    /// Begins to look for what a process that was started here makes in a folder of packs; it must not be waited
    /// for before the last look.
    pub(super) fn of(process: Option<u32>, folder: &Path) -> Self {
        let handles = process.map(|process| PathBuf::from(format!("/proc/{process}/fd")));
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        Self { handles, folder, found: BTreeMap::new() }
    }

    /// Looks what the process has open, until there is something: it has one pack all the time.
    pub(super) fn look(&mut self) {
        let Some(handles) = self.handles.as_ref().filter(|_| self.found.is_empty()) else { return };
        for handle in fs::read_dir(handles).into_iter().flatten().flatten() {
            let Ok(path) = fs::read_link(handle.path()) else { continue };
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(UNFINISHED)
                && path.parent() == Some(&self.folder)
                && let Ok(found) = fs::metadata(handle.path())
            {
                self.found.insert(path, (found.dev(), found.ino()));
            }
        }
    }

    /// Removes what the process, which must have ended, left.
    pub(super) fn remove(self) {
        for (path, file) in self.found {
            let now = path.symlink_metadata().map(|found| (found.dev(), found.ino()));
            if now.is_ok_and(|now| now == file) {
                // Best effort: git collects what stays.
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a process that makes some files and keeps them open.
    fn holding(folder: &Path, names: [&str; 2]) -> Child {
        let script = format!("exec 3>{} 4>{}; echo; read end", names[0], names[1]);
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut all: Vec<String> =
            entries.map(|it| it.file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn only_the_pack_of_the_one_process_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let put = |name: &str| fs::File::create(folder.join(name)).unwrap();
        put("tmp_pack_before");
        let mut ours = holding(folder, ["tmp_pack_ours", "pack-1.pack"]);
        let mut unfinished = Unfinished::of(Some(ours.id()), folder);
        // Closed, and about to be named by a git that is seen or not.
        put("tmp_pack_closed");
        put("tmp_idx_closed");
        let mut other = holding(folder, ["tmp_pack_open", "pack-2.pack"]);
        unfinished.look();
        for child in [&mut ours, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        unfinished.remove();
        let left = ["tmp_idx_closed", "tmp_pack_before", "tmp_pack_closed", "tmp_pack_open"];
        assert_eq!(names(folder), [&["pack-1.pack", "pack-2.pack"], &left[..]].concat());
    }

    #[test]
    fn a_file_that_took_the_name_of_the_pack_stays() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut ours = holding(folder, ["tmp_pack_1", "tmp_pack_2"]);
        let mut unfinished = Unfinished::of(Some(ours.id()), folder);
        unfinished.look();
        fs::write(folder.join("other"), "whole").unwrap();
        fs::rename(folder.join("other"), folder.join("tmp_pack_1")).unwrap();
        ours.kill().unwrap();
        ours.wait().unwrap();
        unfinished.remove();
        assert_eq!(names(folder), ["tmp_pack_1"]);
    }
}
