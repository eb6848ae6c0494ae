//! The part of `prune` that deletes old results: merged ones, and others only with `--unmerged`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::RunId;
use adjutant_engine::results::{DiskUsage, KeptResult, KeptResults, disk_usage, merges_disk_usage};
use adjutant_engine::{Archive, WorkspaceSetup};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use super::disk_usage::{disk_usage_json, disk_usage_text, mib};
use super::merge::unrestored_line;
use super::{open_work, work_failure};
use crate::records::count_with_noun;

/// The age in days after which results are deleted, unless `--days` is given.
const DAYS: u32 = 30;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What pruning did with old results, and how much disk space workspaces take.
#[derive(Default)]
pub(crate) struct PrunedResults {
    dropped: Vec<(PathBuf, KeptResult)>,
    left: Vec<(PathBuf, KeptResult)>,
    disk_usage: DiskUsage,
    /// The bytes of the data to undo merges.
    merges: u64,
    /// What was done about the remains of crashed processes, one sentence each.
    pub(crate) swept: Vec<String>,
    /// What went wrong, one sentence each.
    pub(crate) problems: Vec<String>,
}

/// Deletes old results in the repositories that runs worked in: merged ones, and with `unmerged` the others too.
pub(crate) fn prune_results(archive: &Archive, days: Option<u32>, unmerged: bool) -> PrunedResults {
    let mut old = PrunedResults::default();
    let before = SystemTime::now() - DAY * days.unwrap_or(DAYS);
    let mut seen = BTreeSet::new();
    let setup = WorkspaceSetup::new(archive.path().to_owned());
    let all = repositories(archive);
    // Each work tree has its own workspaces. Work that is left in them becomes results.
    let trees: BTreeSet<&Path> = all.iter().map(KeptResults::tree).collect();
    old.swept = trees.into_iter().flat_map(|tree| setup.sweep(tree, archive)).collect();
    for work in all {
        old.put_back(&work);
        // Work trees of the same repository share their results.
        if !seen.insert(work.shared_folder().to_owned()) {
            continue;
        }
        match work.all_results() {
            Ok(all) => {
                let aged = all.into_iter().filter(|it| it.at < before);
                aged.for_each(|result| old.judge(&work, result, unmerged));
                setup.release_base_refs(work.tree(), archive);
            }
            Err(error) => {
                let tree = work.tree().display();
                old.problems.push(format!("{tree}: {}", work_failure(&error)));
            }
        }
    }
    old.disk_usage = disk_usage(archive.path());
    old.merges = merges_disk_usage(archive.path());
    old
}

/// Opens every repository that a run worked in. Trees that are gone or not repositories are skipped. A repository that
/// was moved is found if it contains the current directory.
fn repositories(archive: &Archive) -> Vec<KeptResults> {
    let runs = archive.runs().unwrap_or_default();
    let trees: BTreeSet<PathBuf> = runs.iter().filter_map(|files| files.workdir()).collect();
    let open = |tree: &Path| open_work(tree, archive).ok();
    let trees = trees.into_iter().filter(|tree| tree.is_dir());
    let mut all: Vec<KeptResults> = trees.filter_map(|tree| open(&tree)).collect();
    let is_new = |here: &KeptResults| all.iter().all(|work| work.tree() != here.tree());
    let is_ours = |here: &KeptResults| {
        let known = |run: &RunId| runs.iter().any(|files| files.id() == *run);
        here.runs().is_ok_and(|found| found.iter().any(known))
    };
    let here = open(Path::new(".")).filter(|here| is_new(here) && is_ours(here));
    all.extend(here);
    all
}

impl PrunedResults {
    /// Restores the files that a killed merge had replaced, and deletes its temporary files.
    fn put_back(&mut self, work: &KeptResults) {
        let tree = work.tree().display();
        let done = match work.recover() {
            Ok(done) => done,
            Err(error) => {
                self.problems.push(format!("{tree}: {}", work_failure(&error)));
                return;
            }
        };
        if done.merges > 0 {
            self.swept.push(format!("restored the files of an interrupted merge in {tree}"));
        }
        self.swept.extend(done.left.iter().map(unrestored_line));
        self.problems.extend(done.stuck.map(|error| format!("{tree}: {}", work_failure(&error))));
    }

    fn judge(&mut self, work: &KeptResults, result: KeptResult, unmerged: bool) {
        let tree = work.tree().to_owned();
        if !result.merged && !unmerged {
            self.left.push((tree, result));
            return;
        }
        match work.discard(&result) {
            Ok(()) => self.dropped.push((tree, result)),
            Err(error) => {
                self.problems.push(format!("{}: {}", result.reference, work_failure(&error)));
            }
        }
    }

    /// Returns a line for each result, and one about disk space.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        for (_, it) in &self.dropped {
            let state = if it.merged { "merged" } else { "not merged" };
            text += &format!("dropped  {} ({state}): commit {}\n", it.reference, it.commit);
        }
        for (tree, it) in &self.left {
            let tree = tree.display().to_string();
            let tree = sanitize::line(&tree);
            text += &format!("left  {}: old and not merged, in {tree}\n", it.reference);
        }
        let workspaces = disk_usage_text(self.disk_usage);
        let merges =
            (self.merges > 0).then(|| format!("undo records of merges {} MiB", mib(self.merges)));
        let used: Vec<String> = workspaces.into_iter().chain(merges).collect();
        if !used.is_empty() {
            text += &format!("disk space: {}\n", used.join(", "));
        }
        text
    }

    /// Describes how to delete the results that were left.
    pub(crate) fn advice(&self) -> Option<String> {
        (!self.left.is_empty()).then(|| {
            let count = count_with_noun(self.left.len(), "old result");
            format!("{count} not merged; `adjutant prune --unmerged` drops those too.")
        })
    }

    /// Returns the deleted results, the results that were left, and the disk space, as JSON.
    pub(crate) fn json(&self) -> (Value, Value, Value) {
        let list = |all: &[(PathBuf, KeptResult)]| -> Value {
            let one = |(tree, it): &(PathBuf, KeptResult)| {
                json!({
                    "reference": it.reference, "run": it.run, "commit": it.commit,
                    "merged": it.merged, "tree": tree.to_string_lossy(),
                })
            };
            all.iter().map(one).collect()
        };
        let mut room = disk_usage_json(self.disk_usage);
        room["merges"] = json!(self.merges);
        (list(&self.dropped), list(&self.left), room)
    }
}
