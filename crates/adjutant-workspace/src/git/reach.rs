//! Many commits asked about at once: which are there, which another one has, which references keep.
//!
//! Each question is one call of git, or a few, however many commits there are.

use std::collections::{BTreeMap, BTreeSet};

use super::GitError;
use super::id::{ObjectId, ResultRef};
use super::repository::Repository;

impl Repository {
    /// Returns those of the commits that this repository has.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn present(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("cat-file").arg("--batch-check=%(objectname) %(objecttype)");
        let output = call.feed(lines(commits).as_bytes())?;
        let text = String::from_utf8_lossy(&output.bytes);
        let found = text.lines().filter_map(|line| line.strip_suffix(" commit"));
        Ok(found.filter_map(ObjectId::parse).collect())
    }

    /// Returns those of the commits whose work HEAD has: the commit itself, or all its changes.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn in_head(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let Some(head) = self.head()? else { return Ok(BTreeSet::new()) };
        let outside = self.outside(commits, &head)?;
        let mut found: BTreeSet<_> =
            commits.iter().filter(|it| !outside.contains(it)).cloned().collect();
        // A commit without a base is no result of ours; whether it is merged is not known.
        let bases = self.bases_of(&outside)?;
        let pairs: Vec<_> =
            outside.iter().filter_map(|it| bases.get(it).map(|base| (it, base))).collect();
        if pairs.is_empty() {
            return Ok(found);
        }
        let tree = self.tree_of(&head)?;
        let merged = self.merged_trees(&pairs, &head)?;
        let is_there = |with: &Option<ObjectId>| with.as_ref() == Some(&tree);
        let there = pairs.iter().zip(&merged).filter(|(_, with)| is_there(with));
        found.extend(there.map(|((commit, _), _)| (*commit).clone()));
        Ok(found)
    }

    /// Returns those of the commits that a branch, here or as it was last fetched, or a reference of ours
    /// still keeps.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn kept(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let ours = format!("--glob={}", ResultRef::PREFIX.trim_end_matches('/'));
        let outside = self.not_in(commits, &["--branches", "--remotes", &ours])?;
        Ok(commits.iter().filter(|it| !outside.contains(it)).cloned().collect())
    }

    /// Returns those of the commits that are neither another one nor among those before it, in their order.
    pub(crate) fn outside(
        &self,
        commits: &[ObjectId],
        of: &ObjectId,
    ) -> Result<Vec<ObjectId>, GitError> {
        let outside = self.not_in(commits, &[of.as_str()])?;
        Ok(commits.iter().filter(|it| outside.contains(it)).cloned().collect())
    }

    /// Returns those of the commits that come before no other of them.
    pub(crate) fn latest(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let call = self.call("merge-base").arg("--independent");
        let output = call.args(commits.iter().map(ObjectId::as_str)).run()?;
        Ok(output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect())
    }

    /// Returns the first parents of commits that have one.
    fn bases_of(&self, commits: &[ObjectId]) -> Result<BTreeMap<ObjectId, ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let call = self.call("rev-list").args(["--no-walk=unsorted", "--parents", "--stdin"]);
        let output = call.feed(lines(commits).as_bytes())?;
        let read = |line: &str| {
            let mut ids = line.split(' ').map(ObjectId::parse);
            Some((ids.next()??, ids.next()??))
        };
        Ok(String::from_utf8_lossy(&output.bytes).lines().filter_map(read).collect())
    }

    /// Returns those of the commits that none of the others reaches, and what lies between.
    fn not_in(
        &self,
        commits: &[ObjectId],
        others: &[&str],
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("rev-list").args(["--stdin", "--not"]).args(others.iter().copied());
        let output = call.feed(lines(commits).as_bytes())?;
        Ok(output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect())
    }
}

fn lines(commits: &[ObjectId]) -> String {
    commits.iter().map(|commit| format!("{commit}\n")).collect()
}
