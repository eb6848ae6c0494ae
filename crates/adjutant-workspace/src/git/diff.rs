//! Differences between two trees, as data and as a patch.
//!
//! The comparison runs in a private git directory without attributes, so there are no external diff programs and no
//! text conversion; the options that forbid them are passed nevertheless.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::GitError;
use super::id::ObjectId;
use super::repository::{Repository, path_of};

/// The differences between two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The changed files, sorted by path.
    pub entries: Vec<DiffEntry>,
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffEntry {
    /// How it changed.
    pub status: DiffStatus,
    /// Its path; the new one after a rename.
    pub path: PathBuf,
    /// The mode before; 0 if it did not exist.
    pub old_mode: u32,
    /// The mode after; 0 if it was deleted.
    pub new_mode: u32,
    /// The blob before; all zeros if it did not exist.
    pub old_id: ObjectId,
    /// The blob after; all zeros if it was deleted.
    pub new_id: ObjectId,
    /// Lines added and removed; `None` for binary content.
    pub lines: Option<LineCounts>,
}

/// How a file changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffStatus {
    /// It is new.
    Added,
    /// It was deleted.
    Deleted,
    /// Its content or its executable bit changed.
    Modified,
    /// Its type changed: file, link or submodule.
    TypeChanged,
    /// It was renamed from this path.
    Renamed(PathBuf),
}

/// Numbers of added and removed lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
}

/// What a patch contains.
#[derive(Clone, Copy, Debug)]
pub struct PatchOptions<'a> {
    /// Only these paths and what is below them; all if empty.
    pub paths: &'a [PathBuf],
    /// How binary content is shown.
    pub binary: BinaryContent,
    /// The largest size of the patch.
    pub max_bytes: usize,
}

/// How a patch shows binary content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryContent {
    /// Only a note that it differs, for people.
    Named,
    /// In full, so that the patch can be applied.
    Whole,
}

impl Diff {
    /// Adds up the lines of all files.
    #[must_use]
    pub fn lines(&self) -> LineCounts {
        let each = self.entries.iter().filter_map(|entry| entry.lines);
        each.fold(LineCounts::default(), |sum, lines| LineCounts {
            added: sum.added + lines.added,
            removed: sum.removed + lines.removed,
        })
    }
}

impl Repository {
    /// Compares two trees or commits, with rename detection and line counts.
    ///
    /// # Errors
    ///
    /// When git cannot compare them.
    pub fn diff(&self, from: &ObjectId, to: &ObjectId) -> Result<Diff, GitError> {
        self.diff_within(from, to, &[])
    }

    /// Compares only some paths and what is below them; everything if empty.
    ///
    /// # Errors
    ///
    /// When git cannot compare them.
    pub fn diff_within(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        paths: &[PathBuf],
    ) -> Result<Diff, GitError> {
        self.compare(from, to, &["--raw", "--numstat", "-M"], paths)
    }

    /// Compares without renames and line counts: what must be written and removed to get from one to the other.
    pub(crate) fn differences(&self, from: &ObjectId, to: &ObjectId) -> Result<Diff, GitError> {
        self.compare(from, to, &["--raw", "--no-renames"], &[])
    }

    /// Compares each commit with its base, without renames and line counts. If git cannot compare one, it and those
    /// after it are missing in the result.
    pub(crate) fn differences_of(
        &self,
        bases: &BTreeMap<ObjectId, ObjectId>,
    ) -> Result<BTreeMap<ObjectId, Diff>, GitError> {
        if bases.is_empty() {
            return Ok(BTreeMap::new());
        }
        let scratch = self.scratch(None)?;
        let call = scratch.call("diff-tree").args(["--stdin", "-r", "-z", "--raw", "--no-renames"]);
        let call = call.args(["--no-ext-diff", "--no-textconv"]).accept(&[0, 128]);
        let list: String = bases.iter().map(|(to, from)| format!("{to} {from}\n")).collect();
        let output = call.run_with_input(list.as_bytes())?;
        read_many(&output.bytes)
            .ok_or_else(|| GitError::Unreadable { command: "diff-tree".to_owned() })
    }

    fn compare(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        how: &[&str],
        paths: &[PathBuf],
    ) -> Result<Diff, GitError> {
        let scratch = self.scratch(None)?;
        let call = scratch.call("diff-tree").args(["-r", "-z", "--no-ext-diff", "--no-textconv"]);
        let call = call.args(how).args([from.as_str(), to.as_str(), "--"]).args(paths);
        let output = call.run()?;
        read(&output.bytes).ok_or_else(|| GitError::Unreadable { command: "diff-tree".to_owned() })
    }

    /// Returns a patch of at most `max_bytes`, and whether it was cut.
    ///
    /// # Errors
    ///
    /// When git cannot compare them.
    pub fn patch(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        max_bytes: usize,
    ) -> Result<(Vec<u8>, bool), GitError> {
        self.patch_of(
            from,
            to,
            PatchOptions { paths: &[], binary: BinaryContent::Named, max_bytes },
        )
    }

    /// Returns a patch, and whether it was cut.
    ///
    /// Names are not quoted, except for control characters and quotes, so that `git apply` can read them.
    ///
    /// # Errors
    ///
    /// When git cannot compare them.
    pub fn patch_of(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        what: PatchOptions<'_>,
    ) -> Result<(Vec<u8>, bool), GitError> {
        let scratch = self.scratch(None)?;
        let call = scratch.call("diff-tree").args(["-r", "-p", "-M"]);
        let call = match what.binary {
            BinaryContent::Named => call,
            BinaryContent::Whole => call.arg("--binary"),
        };
        let call = call.args(["--no-color", "--no-ext-diff", "--no-textconv"]);
        let call = call.config("core.quotePath=false");
        let call = call.args([from.as_str(), to.as_str(), "--"]).args(what.paths);
        let output = call.truncate_at(what.max_bytes).run()?;
        Ok((output.bytes, output.truncated))
    }
}

fn read(bytes: &[u8]) -> Option<Diff> {
    let mut records = bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    let mut diff = Diff::default();
    let mut counted = 0;
    while let Some(record) = records.next() {
        if let Some(raw) = record.strip_prefix(b":") {
            diff.entries.push(read_raw(raw, &mut records)?);
            continue;
        }
        // Line counts follow in the order of the entries: `added TAB removed TAB path`.
        let mut parts = record.splitn(3, |byte| *byte == b'\t');
        let (added, removed) = (number(parts.next()?), number(parts.next()?));
        if parts.next()?.is_empty() {
            // A rename: its two paths follow as separate records.
            records.next()?;
            records.next()?;
        }
        let entry = diff.entries.get_mut(counted)?;
        entry.lines = added.zip(removed).map(|(added, removed)| LineCounts { added, removed });
        counted += 1;
    }
    Some(diff)
}

/// Parses several comparisons, each after the id of its commit.
fn read_many(bytes: &[u8]) -> Option<BTreeMap<ObjectId, Diff>> {
    let mut records = bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    let (mut all, mut at) = (BTreeMap::<ObjectId, Diff>::new(), None);
    while let Some(record) = records.next() {
        match record.strip_prefix(b":") {
            Some(raw) => {
                all.entry(at.clone()?).or_default().entries.push(read_raw(raw, &mut records)?);
            }
            None => at = Some(ObjectId::from_bytes(record)?),
        }
    }
    Some(all)
}

fn read_raw<'b>(raw: &[u8], records: &mut impl Iterator<Item = &'b [u8]>) -> Option<DiffEntry> {
    let text = std::str::from_utf8(raw).ok()?;
    let mut parts = text.split(' ');
    let mode = |part: Option<&str>| u32::from_str_radix(part?, 8).ok();
    let (old_mode, new_mode) = (mode(parts.next())?, mode(parts.next())?);
    let old_id = ObjectId::parse(parts.next()?)?;
    let new_id = ObjectId::parse(parts.next()?)?;
    let first = path_of(records.next()?);
    let (status, path) = match parts.next()?.as_bytes().first()? {
        b'A' => (DiffStatus::Added, first),
        b'D' => (DiffStatus::Deleted, first),
        b'T' => (DiffStatus::TypeChanged, first),
        b'R' => (DiffStatus::Renamed(first), path_of(records.next()?)),
        _ => (DiffStatus::Modified, first),
    };
    Some(DiffEntry { status, path, old_mode, new_mode, old_id, new_id, lines: None })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}
