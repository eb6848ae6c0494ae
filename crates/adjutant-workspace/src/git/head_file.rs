//! Reads what HEAD names from the repository's files, without running git.

use std::fmt;
use std::io::Read;
use std::path::Path;

use super::trust::{open_regular_file, read_pointer};

/// The most bytes of a HEAD file that are read.
const HEAD_BYTES: u64 = 4096;

/// What HEAD of a repository names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadRef {
    /// A branch, by its short name.
    Branch(String),
    /// A commit without a branch, by its id.
    Commit(String),
}

impl HeadRef {
    /// Reads the content of a HEAD file; `None` if it is not as git writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end();
        if let Some(branch) = text.strip_prefix("ref: refs/heads/") {
            return Some(Self::Branch(branch.to_owned()));
        }
        let is_id =
            matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self::Commit(text.to_owned()))
    }
}

impl fmt::Display for HeadRef {
    /// Writes the content of a HEAD file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "ref: refs/heads/{name}"),
            Self::Commit(id) => f.write_str(id),
        }
    }
}

/// Returns what HEAD names in the repository that `folder` lies in; `None` outside a repository, or if the file is
/// not as git writes it.
#[must_use]
pub fn head_around(folder: &Path) -> Option<HeadRef> {
    let found = folder.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())?;
    let git = found.join(".git");
    let git = if git.is_dir() { git } else { found.join(read_pointer(&git, "gitdir: ")?) };
    let mut text = String::new();
    let head = open_regular_file(&git.join("HEAD")).ok()?;
    head.take(HEAD_BYTES).read_to_string(&mut text).ok()?;
    HeadRef::parse(&text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn head_is_read_from_a_repository_a_subfolder_and_a_linked_work_tree() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("project");
        fs::create_dir_all(top.join(".git/worktrees/other")).unwrap();
        fs::create_dir_all(top.join("src/deep")).unwrap();
        let other = scratch.path().join("other");
        fs::create_dir(&other).unwrap();
        assert_eq!(head_around(&top), None, "a git directory without HEAD");
        fs::write(top.join(".git/HEAD"), "ref: refs/heads/feature/one\n").unwrap();
        let id = "0123456789abcdef0123456789abcdef01234567";
        fs::write(top.join(".git/worktrees/other/HEAD"), format!("{id}\n")).unwrap();
        fs::write(other.join(".git"), "gitdir: ../project/.git/worktrees/other\n").unwrap();
        let branch = Some(HeadRef::Branch("feature/one".into()));
        assert_eq!(head_around(&top), branch);
        assert_eq!(head_around(&top.join("src/deep")), branch);
        assert_eq!(head_around(&other), Some(HeadRef::Commit(id.into())));
        for head in ["ref: refs/heads/feature/one", id] {
            assert_eq!(HeadRef::parse(head).unwrap().to_string(), head);
        }
        for foreign in ["root:x:0:0", "ref: refs/remotes/origin/main", "0123"] {
            fs::write(top.join(".git/HEAD"), foreign).unwrap();
            assert_eq!(head_around(&top), None, "{foreign}");
        }
        assert_eq!(head_around(Path::new("/")), None);
    }
}
