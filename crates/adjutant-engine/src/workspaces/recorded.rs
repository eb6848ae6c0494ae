//! Conversion between the workspace crate's types and those of the journal.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use adjutant_core::workspace::{ChangedFile, KeptWork, OwnWorkspace, WorkspaceKind};
use adjutant_workspace::space::{KeptCommit, WorkspaceBacking, WorkspaceRecord};
use adjutant_workspace::{DiffStatus, SkipReason, SkippedPath};

pub(super) fn as_space(record: WorkspaceRecord) -> OwnWorkspace {
    let kind = match record.kind {
        WorkspaceBacking::Overlay => WorkspaceKind::Overlay,
        WorkspaceBacking::Worktree => WorkspaceKind::Worktree,
    };
    let WorkspaceRecord { path, base, layers, remarks, .. } = record;
    OwnWorkspace { kind, path, base, layers, remarks }
}

pub(crate) fn as_record(space: &OwnWorkspace) -> WorkspaceRecord {
    let kind = match space.kind {
        WorkspaceKind::Overlay => WorkspaceBacking::Overlay,
        WorkspaceKind::Worktree => WorkspaceBacking::Worktree,
    };
    let OwnWorkspace { path, base, layers, remarks, .. } = space.clone();
    WorkspaceRecord { kind, path, base, layers, remarks }
}

/// Converts committed work. Its paths and those of `changed` are relative to the top of the repository; the record
/// has them as seen from `folder`, in which the agent started.
pub(super) fn as_kept(kept: KeptCommit, changed: &BTreeSet<PathBuf>, folder: &Path) -> KeptWork {
    let shown = |path: &Path| seen_from(folder, path);
    let files = kept.diff.entries.iter().map(|entry| ChangedFile {
        path: shown(&entry.path),
        how: change_word(&entry.status, &shown),
        added: entry.lines.map(|lines| lines.added),
        removed: entry.lines.map(|lines| lines.removed),
    });
    let left_out = |it: &&SkippedPath| it.reason != SkipReason::Ignored && !it.is_work();
    let named = |it: &SkippedPath| format!("{} ({})", shown(&it.path), skip_reason_text(it.reason));
    let skipped = kept.skipped.iter().filter(left_out).map(named);
    let ignored = ignored_among(changed, &kept.skipped);
    let ignored =
        ignored.map(|path| format!("{} ({})", shown(path), skip_reason_text(SkipReason::Ignored)));
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

/// Returns a path of the repository as seen from one of its directories, as `git status` shows it: `../b` for `b`
/// as seen from `a`.
pub(super) fn seen_from(folder: &Path, path: &Path) -> String {
    let shared = folder.components().zip(path.components()).take_while(|(one, other)| one == other);
    // The name itself stays, also of a directory that contains `folder`.
    let shared = shared.count().min(path.components().count().saturating_sub(1));
    let up = folder.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(path.components().skip(shared)).collect::<PathBuf>().display().to_string()
}

fn change_word(status: &DiffStatus, shown: &impl Fn(&Path) -> String) -> String {
    match status {
        DiffStatus::Added => "added".to_owned(),
        DiffStatus::Deleted => "deleted".to_owned(),
        DiffStatus::Modified => "modified".to_owned(),
        DiffStatus::TypeChanged => "type changed".to_owned(),
        DiffStatus::Renamed(from) => format!("renamed from {}", shown(from)),
    }
}

fn skip_reason_text(reason: SkipReason) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_seen_from_a_folder_and_never_without_a_name() {
        for (folder, path, shown) in [
            ("", "a/b", "a/b"),
            ("a", "a/b", "b"),
            ("a/b", "c", "../../c"),
            ("a/b", "a/c/d", "../c/d"),
            ("a/b", "a/b", "../b"),
            ("a/b", "a", "../../a"),
        ] {
            assert_eq!(seen_from(Path::new(folder), Path::new(path)), shown, "{folder} {path}");
        }
    }
}
