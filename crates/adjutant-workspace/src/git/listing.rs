//! Listing the files, links and submodules of a commit, by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::GitError;
use super::id::ObjectId;
use super::repository::{Repository, path_of};

/// The files, links and submodules of a tree by path.
pub(crate) type TreeListing = BTreeMap<PathBuf, TreeEntry>;

/// A file, link or submodule of a commit: its mode and its object id.
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

    /// Returns the symbolic links of a commit, each with its target as written.
    pub(crate) fn link_targets(
        &self,
        commit: &ObjectId,
    ) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let links = self.listing(commit)?.into_iter().filter(|(_, entry)| entry.mode == LINK_MODE);
        let links: Vec<(PathBuf, TreeEntry)> = links.collect();
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let ids: String = links.iter().map(|(_, entry)| format!("{}\n", entry.id)).collect();
        let call = self.call("cat-file").arg("--batch=%(objectsize)");
        let output = call.run_with_input(ids.as_bytes())?;
        let mut rest = output.bytes.as_slice();
        let targets = links.into_iter().map(|(path, _)| {
            let target = read_batched(&mut rest)?;
            Some((path, path_of(target)))
        });
        let unreadable = || GitError::Unreadable { command: "cat-file".to_owned() };
        targets.collect::<Option<_>>().ok_or_else(unreadable)
    }
}

/// The mode of a symbolic link.
const LINK_MODE: u32 = 0o120_000;

/// Takes the next `SIZE LF CONTENT LF` from the output of `git cat-file --batch`.
fn read_batched<'text>(rest: &mut &'text [u8]) -> Option<&'text [u8]> {
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let size: usize = std::str::from_utf8(rest.get(..line)?).ok()?.parse().ok()?;
    let content = rest.get(line + 1..line + 1 + size)?;
    *rest = rest.get(line + size + 2..)?;
    Some(content)
}

/// Parses `mode type id TAB path`.
fn read(line: &[u8]) -> Option<(PathBuf, TreeEntry)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let mut fields = std::str::from_utf8(line.get(..tab)?).ok()?.split(' ');
    let mode = u32::from_str_radix(fields.next()?, 8).ok()?;
    let id = ObjectId::parse(fields.nth(1)?)?;
    Some((path_of(line.get(tab + 1..)?), TreeEntry { mode, id }))
}
