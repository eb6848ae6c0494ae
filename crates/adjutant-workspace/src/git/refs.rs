//! References that keep results: listing, moving, branching, discarding.
//!
//! Invariant: a reference is changed only if it has the value that the caller expects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::GitError;
use super::id::{ObjectId, ResultRef};
use super::repository::Repository;
use super::sync::sync_folders;

/// The interval for checking a lock file.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A reference to a subagent's committed work, and whether a branch contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRef {
    /// Its reference.
    pub reference: ResultRef,
    /// The commit.
    pub commit: ObjectId,
    /// When it was committed.
    pub at: SystemTime,
    /// Whether HEAD or a branch already contains the work.
    pub merged: bool,
}

impl Repository {
    /// Lists the kept results, oldest first.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn results(&self) -> Result<Vec<KeptRef>, GitError> {
        self.list_results(ResultRef::PREFIX)
    }

    /// Lists the kept results of one run, oldest first.
    ///
    /// # Errors
    ///
    /// [`GitError::BadName`], or why git failed.
    pub fn results_of(&self, run: &str) -> Result<Vec<KeptRef>, GitError> {
        let any = ResultRef::new(run, "any")?;
        self.list_results(&format!("{}{}/", ResultRef::PREFIX, any.run()))
    }

    /// Lists the references of kept results, without checking which are merged.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn result_names(&self) -> Result<Vec<ResultRef>, GitError> {
        let call = self.call("for-each-ref").arg("--format=%(refname)");
        let output = call.arg(ResultRef::PREFIX).run()?;
        let text = String::from_utf8_lossy(&output.bytes);
        Ok(text.lines().filter_map(ResultRef::parse).collect())
    }

    fn list_results(&self, below: &str) -> Result<Vec<KeptRef>, GitError> {
        let call = self.call("for-each-ref").arg("--sort=committerdate");
        let call = call
            .arg("--format=%(refname) %(objecttype) %(objectname) %(committerdate:unix) %(parent)");
        let output = call.arg(below).run()?;
        let mut all = Vec::new();
        for line in String::from_utf8_lossy(&output.bytes).lines() {
            let mut parts = line.split(' ');
            let reference = parts.next().and_then(ResultRef::parse);
            let reference = reference.filter(|_| parts.next() == Some("commit"));
            let commit = parts.next().and_then(ObjectId::parse);
            let seconds = parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
            let base = parts.next().and_then(ObjectId::parse);
            // References below our prefix that are not ours are ignored.
            let Some((reference, commit)) = reference.zip(commit) else { continue };
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            all.push((KeptRef { reference, commit, at, merged: false }, base));
        }
        self.mark_merged(&mut all)?;
        Ok(all.into_iter().map(|(kept, _)| kept).collect())
    }

    /// Returns the commit of a kept result.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn result(&self, reference: &ResultRef) -> Result<Option<ObjectId>, GitError> {
        self.resolve(&format!("{reference}^{{commit}}"))
    }

    /// Moves `reference` from `expected` to `commit`.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] if it has another value.
    pub fn keep(
        &self,
        reference: &ResultRef,
        commit: &ObjectId,
        expected: Option<&ObjectId>,
    ) -> Result<(), GitError> {
        self.update_ref(&reference.to_string(), commit, expected)
    }

    /// Sets a result to a commit, whatever it was before.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn set_result(&self, reference: &ResultRef, commit: &ObjectId) -> Result<(), GitError> {
        match self.result(reference)? {
            Some(before) if before == *commit => Ok(()),
            before => self.keep(reference, commit, before.as_ref()),
        }
    }

    /// Creates the branch `adjutant/<run>-<child>` at a result and returns its name.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] without a result, [`GitError::Moved`] if the branch exists elsewhere.
    pub fn branch(&self, reference: &ResultRef) -> Result<String, GitError> {
        self.branch_as(reference, reference.branch())
    }

    /// Like [`Repository::branch`], with another name, which must be valid for a branch.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] without a result, [`GitError::Moved`] if the branch exists elsewhere.
    pub fn branch_as(&self, reference: &ResultRef, name: String) -> Result<String, GitError> {
        let commit = self.result(reference)?;
        let commit = commit.ok_or_else(|| GitError::Missing(reference.to_string()))?;
        if self.branch_tip(&name)?.as_ref() != Some(&commit) {
            self.update_ref(&format!("refs/heads/{name}"), &commit, None)?;
        }
        Ok(name)
    }

    /// Returns the commit of a branch.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn branch_tip(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.resolve(&format!("refs/heads/{name}^{{commit}}"))
    }

    /// Lists the branches and their commits.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn branches(&self) -> Result<BTreeMap<String, ObjectId>, GitError> {
        let call = self.call("for-each-ref").arg("--format=%(objectname) %(refname:lstrip=2)");
        let output = call.arg("refs/heads").run()?;
        let read = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some((name.to_owned(), ObjectId::parse(id)?))
        };
        Ok(String::from_utf8_lossy(&output.bytes).lines().filter_map(read).collect())
    }

    /// Deletes the reference of a result that is at `expected`.
    ///
    /// # Errors
    ///
    /// [`GitError::Moved`] if it has another value, [`GitError::Missing`] if there is none.
    pub fn discard(&self, reference: &ResultRef, expected: &ObjectId) -> Result<(), GitError> {
        let name = reference.to_string();
        match self.result(reference)? {
            Some(found) if found == *expected => {}
            Some(_) => return Err(GitError::Moved { reference: name }),
            None => return Err(GitError::Missing(name)),
        }
        let delete = ["--no-deref", "-d", &name, expected.as_str()];
        let first = self.call("update-ref").args(delete).run();
        match first {
            Err(_) if self.remove_stale_lock(&name) => {
                self.call("update-ref").args(delete).run().map(drop)
            }
            done => done.map(drop),
        }
    }

    /// Moves a reference from `expected` to `commit`.
    pub(crate) fn update_ref(
        &self,
        reference: &str,
        commit: &ObjectId,
        expected: Option<&ObjectId>,
    ) -> Result<(), GitError> {
        let nothing = "0".repeat(commit.as_str().len());
        let old = expected.map_or(nothing.as_str(), ObjectId::as_str);
        let set = ["--no-deref", reference, commit.as_str(), old];
        // By default git does not fsync references: a power cut could leave an empty file.
        let update = || self.call("update-ref").config("core.fsync=reference").args(set).run();
        let mut done = update();
        if done.is_err() && self.remove_stale_lock(reference) {
            done = update();
        }
        let Err(error) = done else { return self.sync_ref_dirs(reference) };
        if self.resolve(&format!("{reference}^{{commit}}"))?.as_ref() == expected {
            return Err(error);
        }
        Err(GitError::Moved { reference: reference.to_owned() })
    }

    /// Fsyncs the directories of a reference: once the work is reported as kept, its files may be removed.
    fn sync_ref_dirs(&self, reference: &str) -> Result<(), GitError> {
        let path = self.common_dir().join(reference);
        let top = self.common_dir().join("refs");
        // With another reference format there are no such directories, and git fsyncs by itself.
        let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&top));
        sync_folders(folders).map_err(GitError::io("syncing a reference"))
    }

    /// Waits until the lock file of one of our references is gone, or removes it if a killed git left it. Returns
    /// whether to try again.
    ///
    /// Git holds the lock while it writes and fsyncs the reference, which may take long on a busy disk; see
    /// [`Repository::with_stale_lock`]. Lock files of other references are never removed.
    fn remove_stale_lock(&self, reference: &str) -> bool {
        if !reference.starts_with(ResultRef::PREFIX) {
            return false;
        }
        let lock = self.common_dir().join(format!("{reference}.lock"));
        let age = || lock.symlink_metadata().and_then(|found| found.modified()).ok();
        if age().is_none() {
            return false;
        }
        while let Some(since) = age() {
            // A timestamp in the future has no age.
            if since.elapsed().is_ok_and(|age| age > self.stale_lock()) {
                return std::fs::remove_file(&lock).is_ok();
            }
            if since.elapsed().is_err() {
                return false;
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
        true
    }

    /// Marks results whose work HEAD or a branch contains, as the commit itself or as all its changes: with a few
    /// git calls, however many there are.
    fn mark_merged(&self, all: &mut [(KeptRef, Option<ObjectId>)]) -> Result<(), GitError> {
        let Some(head) = self.head()?.filter(|_| !all.is_empty()) else { return Ok(()) };
        let list: String = all.iter().map(|(kept, _)| format!("{}\n", kept.commit)).collect();
        let call = self.call("rev-list").args(["--stdin", "--not", head.as_str()]);
        // A broken branch contains no work and is not ours to repair.
        let call = call.args(["--ignore-missing", "--branches"]);
        let output = call.run_with_input(list.as_bytes())?;
        let outside: BTreeSet<ObjectId> =
            output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect();
        let mut asked = Vec::new();
        for (kept, base) in all {
            kept.merged = !outside.contains(&kept.commit);
            // A commit without a parent is not one of our results; whether it is merged is unknown.
            if let Some(base) = base.as_ref().filter(|_| !kept.merged) {
                asked.push((&mut kept.merged, kept.commit.clone(), base.clone()));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let pairs: Vec<_> = asked.iter().map(|(_, result, base)| (result, base)).collect();
        let merged = self.merges_without_change(&pairs, &head)?;
        for ((is_merged, ..), is_there) in asked.into_iter().zip(merged) {
            *is_merged = is_there;
        }
        Ok(())
    }
}
