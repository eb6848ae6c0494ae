//! Carrying commits to another repository in git bundles.
//!
//! A bundle is a file that every git can read: a pack of objects, with the names of commits that the reader must have.
//! Start at [`Repository::write_bundle`] and [`Repository::take_bundle`].

use std::path::Path;

use super::GitError;
use super::id::ObjectId;
use super::repository::Repository;

impl Repository {
    /// Writes a bundle with what these references reach and none of the commits `known` does.
    ///
    /// # Errors
    ///
    /// When git fails, for example because nothing is left to write.
    pub fn write_bundle(
        &self,
        references: &[String],
        known: &[ObjectId],
        to: &Path,
    ) -> Result<(), GitError> {
        let call = self.call("bundle").args(["create", "--quiet"]).arg(to).args(references);
        call.args(known.iter().map(|commit| format!("^{commit}"))).run().map(drop)
    }

    /// Takes the objects of a bundle in. No reference changes.
    ///
    /// # Errors
    ///
    /// When git fails, for example because a commit is missing that the bundle builds on.
    pub fn take_bundle(&self, file: &Path) -> Result<(), GitError> {
        let call = self.call("bundle").config("core.fsync=committed").arg("unbundle");
        call.arg(file).run().map(drop)
    }

    /// Returns the commits that `commit` reaches, itself first, newest first; no more than `limit`.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn commits_below(
        &self,
        commit: &ObjectId,
        limit: usize,
    ) -> Result<Vec<ObjectId>, GitError> {
        let call = self.call("rev-list").arg(format!("--max-count={limit}")).arg(commit.as_str());
        let output = call.run()?;
        Ok(output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect())
    }
}
