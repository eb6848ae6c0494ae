//! Conversion between the workspace crate's types and those of the journal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use adjutant_core::workspace::{ChangedFile, KeptWork, OwnWorkspace, OwnWorkspaceKind};
use adjutant_workspace::space::{KeptCommit, WorkspaceBacking, WorkspaceRecord};
use adjutant_workspace::{DiffStatus, SkipReason, SkippedPath};

pub(super) fn as_space(record: WorkspaceRecord) -> OwnWorkspace {
    let kind = match record.kind {
        WorkspaceBacking::Overlay => OwnWorkspaceKind::Overlay,
        WorkspaceBacking::Worktree => OwnWorkspaceKind::Worktree,
    };
    let WorkspaceRecord { path, base, layers, remarks, .. } = record;
    OwnWorkspace { kind, path, base, layers, remarks }
}

pub(super) fn as_record(space: &OwnWorkspace) -> WorkspaceRecord {
    let kind = match space.kind {
        OwnWorkspaceKind::Overlay => WorkspaceBacking::Overlay,
        OwnWorkspaceKind::Worktree => WorkspaceBacking::Worktree,
    };
    let OwnWorkspace { path, base, layers, remarks, .. } = space.clone();
    WorkspaceRecord { kind, path, base, layers, remarks }
}

pub(super) fn as_kept(kept: KeptCommit, changed: &BTreeSet<PathBuf>) -> KeptWork {
    let files = kept.diff.entries.iter().map(|entry| ChangedFile {
        path: entry.path.display().to_string(),
        how: how(&entry.status),
        added: entry.lines.map(|lines| lines.added),
        removed: entry.lines.map(|lines| lines.removed),
    });
    let left_out = |it: &&SkippedPath| it.reason != SkipReason::Ignored && !it.is_work();
    let named = |it: &SkippedPath| format!("{} ({})", it.path.display(), why(it.reason));
    let skipped = kept.skipped.iter().filter(left_out).map(named);
    let ignored = ignored_among(changed, &kept.skipped);
    let ignored = ignored.map(|path| format!("{} ({})", path.display(), why(SkipReason::Ignored)));
    let left = kept.skipped.iter().filter(|it| it.is_work());
    KeptWork {
        reference: kept.commit.as_ref().map(|_| kept.reference.to_string()),
        commit: kept.commit.map(|commit| commit.as_str().to_owned()),
        files: files.collect(),
        skipped: skipped.chain(ignored).collect(),
        left: left.map(named).collect(),
    }
}

/// Returns those of `named` that were skipped as ignored, directly or with a parent directory.
pub(super) fn ignored_among<'n>(
    named: &'n BTreeSet<PathBuf>,
    skipped: &[SkippedPath],
) -> impl Iterator<Item = &'n Path> + use<'n> {
    let ignored = skipped.iter().filter(|skipped| skipped.reason == SkipReason::Ignored);
    let ignored: BTreeSet<PathBuf> = ignored.map(|skipped| skipped.path.clone()).collect();
    let is_in = move |path: &&Path| path.ancestors().any(|at| ignored.contains(at));
    named.iter().map(PathBuf::as_path).filter(is_in)
}

fn how(status: &DiffStatus) -> String {
    match status {
        DiffStatus::Added => "added".to_owned(),
        DiffStatus::Deleted => "deleted".to_owned(),
        DiffStatus::Modified => "modified".to_owned(),
        DiffStatus::TypeChanged => "type changed".to_owned(),
        DiffStatus::Renamed(from) => format!("renamed from {}", from.display()),
    }
}

fn why(reason: SkipReason) -> String {
    match reason {
        SkipReason::NestedRepository => "a nested repository".to_owned(),
        SkipReason::Reserved => "only Adjutant changes it".to_owned(),
        SkipReason::Special => "not a file, directory or link".to_owned(),
        SkipReason::Unreadable => "cannot be read".to_owned(),
        SkipReason::Ignored => "ignored".to_owned(),
        SkipReason::TooDeep => "too deep".to_owned(),
        SkipReason::TooLarge(bytes) => format!("too large, {bytes} bytes"),
    }
}
