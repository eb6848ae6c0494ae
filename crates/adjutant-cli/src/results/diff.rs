//! `diff`: shows what a result changes relative to the state its agent started from.

use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use adjutant_engine::Archive;
use adjutant_engine::results::{
    BinaryContent, Diff, DiffEntry, DiffStatus, PatchOptions, shared_files,
};
use adjutant_view::layout::some_of;
use adjutant_view::palette::TextStyle;
use adjutant_view::{patch, sanitize};
use serde_json::{Value, json};

use super::{MergedChildren, ResultSelection, SelectedResult, file_json, size, work_failure};
use crate::args::DiffResultsArgs;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, say};
use crate::pager;
use crate::records::colours;

/// The size after which one patch is cut, with a message.
const PATCH_BYTES: usize = 64 * 1024 * 1024;

/// Runs `adjutant diff`.
pub(crate) fn run_diff(
    archive: &Archive,
    args: &DiffResultsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let (run, paths) = split_run_and_paths(args);
    let chosen = ResultSelection::find(archive, run, MergedChildren::Exclude)?;
    let paths = paths_in_tree(&chosen, &paths)?;
    let diffs = chosen.diffs(&paths)?;
    let shared = shared_files(&diffs);
    if as_json {
        print_json(&json!({
            "v": 1, "run": chosen.run, "tree": chosen.work.tree().to_string_lossy(),
            "results": chosen.picked.iter().zip(&diffs).map(as_object).collect::<Vec<_>>(),
            "gone": chosen.gone_json(), "shared": chosen.shared_json(&shared),
            "unfinished": chosen.unfinished_json(), "unkept": chosen.unkept_json(),
        }))?;
        return Ok(chosen.exit(Exit::Completed));
    }
    chosen.say_gone()?;
    if chosen.is_nothing() {
        say(&format!("adjutant: {} has no results: nothing was changed", chosen.name));
    }
    for (picked, diff) in chosen.picked.iter().zip(&diffs) {
        let merged = if picked.kept.merged { ", merged or on a branch already" } else { "" };
        say(&format!("{}: {}{merged}", picked.title(), size(diff)));
        if !picked.left_out.is_empty() {
            say(&format!("  left out: {}", some_of(&picked.left_out)));
        }
        if args.stat {
            print(&stat(diff))?;
        } else {
            show(&chosen, picked, &paths)?;
        }
    }
    chosen.say_shared(&shared);
    chosen.say_unkept();
    chosen.say_unfinished();
    Ok(chosen.exit(Exit::Completed))
}

fn as_object((picked, diff): (&SelectedResult, &Diff)) -> Value {
    let mut object = picked.json();
    let lines = diff.lines();
    object["files"] = diff.entries.iter().map(file_json).collect();
    object["added"] = json!(lines.added);
    object["removed"] = json!(lines.removed);
    if !picked.left_out.is_empty() {
        object["left_out"] = json!(picked.left_out);
    }
    object
}

/// Decides whether the first argument names a run or a path: a path if it exists or contains a slash.
fn split_run_and_paths(args: &DiffResultsArgs) -> (Option<&str>, Vec<PathBuf>) {
    let Some(first) = args.run.as_deref() else { return (None, args.paths.clone()) };
    let is_id = first == "latest" || first.starts_with("run_") || first.starts_with("sess_");
    if !is_id && (first.contains('/') || Path::new(first).symlink_metadata().is_ok()) {
        let paths = std::iter::once(PathBuf::from(first)).chain(args.paths.iter().cloned());
        return (None, paths.collect());
    }
    (Some(first), args.paths.clone())
}

/// Returns paths relative to the top of the tree. They need not exist there.
fn paths_in_tree(chosen: &ResultSelection, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let tree = chosen.work.tree();
    // For a run in another directory, paths are relative to the top of its tree.
    let from = if here.starts_with(tree) { here.as_path() } else { tree };
    let named = |path: &PathBuf| {
        let mut whole = PathBuf::new();
        for part in from.join(path).components() {
            match part {
                Component::ParentDir => drop(whole.pop()),
                Component::CurDir => {}
                Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
                    whole.push(part)
                }
            }
        }
        let inside = whole.strip_prefix(tree).map(Path::to_owned);
        inside.map_err(|_| {
            let (path, tree) = (path.display(), tree.display());
            Failure::usage(format!("{path} is not inside {tree}"))
        })
    };
    let mut all = paths.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    // The top of the tree selects everything.
    if all.iter().any(|path| path.as_os_str().is_empty()) {
        all.clear();
    }
    Ok(all)
}

/// Prints a patch: coloured and sanitized on a terminal, byte for byte elsewhere.
fn show(
    chosen: &ResultSelection,
    picked: &SelectedResult,
    paths: &[PathBuf],
) -> Result<(), Failure> {
    let terminal = pager::is_terminal();
    let binary = if terminal { BinaryContent::Named } else { BinaryContent::Whole };
    let what = PatchOptions { paths, binary, max_bytes: PATCH_BYTES };
    let (bytes, more) =
        chosen.work.patch(&picked.kept, what).map_err(|error| work_failure(&error))?;
    if terminal {
        print(&patch::render(&bytes, colours()))?;
    } else {
        write_exactly(&bytes)?;
    }
    if more {
        return Err(Failure::new(
            Exit::Partial,
            format!("{}: the patch is longer than 64 MiB and was cut", picked.title()),
        )
        .hint("Name paths to get less of it, or run `git show` with its commit."));
    }
    Ok(())
}

fn write_exactly(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the `--stat` output: one line per file.
fn stat(diff: &Diff) -> String {
    diff.entries.iter().map(stat_line).collect()
}

fn stat_line(entry: &DiffEntry) -> String {
    let palette = colours();
    let name = |path: &Path| sanitize::line(&path.to_string_lossy()).into_owned();
    let path = name(&entry.path);
    let (letter, path) = match &entry.status {
        DiffStatus::Added => ("A", path),
        DiffStatus::Deleted => ("D", path),
        DiffStatus::Modified => ("M", path),
        DiffStatus::TypeChanged => ("T", path),
        DiffStatus::Renamed(old) => ("R", format!("{} => {path}", name(old))),
    };
    let modes = match (entry.old_mode, entry.new_mode) {
        (0, _) | (_, 0) => String::new(),
        (old, new) if old == new => String::new(),
        (old, new) => format!("  mode {old:06o} => {new:06o}"),
    };
    let lines = entry.lines.map_or_else(
        || format!("{:>11}", "not text"),
        |lines| {
            let added =
                palette.paint(TextStyle::Good, &format!("{:>5}", format!("+{}", lines.added)));
            let removed =
                palette.paint(TextStyle::Bad, &format!("{:>5}", format!("-{}", lines.removed)));
            format!("{added} {removed}")
        },
    );
    format!("{letter} {lines}  {path}{modes}\n")
}
