//! All files of a tree, by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::GitError;
use super::id::ObjectId;
use super::repository::{Repository, path_of};

/// The files, links and submodules of a tree by path.
pub(crate) type TreeListing = BTreeMap<PathBuf, TreeEntry>;

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// The mode, which includes the type.
    pub(crate) mode: u32,
    /// The content, or the commit of a submodule.
    pub(crate) id: ObjectId,
}

impl Repository {
    /// Lists everything in the tree of a commit.
    pub(crate) fn listing(&self, commit: &ObjectId) -> Result<TreeListing, GitError> {
        let call = self.scratch(None)?;
        let call = call.call("ls-tree").args(["-r", "-z", "--full-tree", commit.as_str()]);
        let output = call.run()?;
        let lines = output.bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty());
        let all: Option<TreeListing> = lines.map(read).collect();
        all.ok_or_else(|| GitError::Unreadable { command: "ls-tree".to_owned() })
    }
}

/// Parses `mode type id TAB path`.
fn read(line: &[u8]) -> Option<(PathBuf, TreeEntry)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let mut fields = std::str::from_utf8(line.get(..tab)?).ok()?.split(' ');
    let mode = u32::from_str_radix(fields.next()?, 8).ok()?;
    let id = ObjectId::parse(fields.nth(1)?)?;
    Some((path_of(line.get(tab + 1..)?), TreeEntry { mode, id }))
}
